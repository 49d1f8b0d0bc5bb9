"""The verbs to start a run, to find it and to read what came of it, over a store in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast import Pack
from holdfast.engine.api.start_options import PRIORITY_MAX, StartOptions
from holdfast.errors import (
    InputRefused,
    NotAllowedNow,
    RunCancelled,
    RunFailed,
    TimedOut,
    UnknownRun,
    UnknownWorkflow,
    UsageError,
)
from holdfast.kernel import transitions
from holdfast.kernel.runs import Status
from tests.builders import a_failure
from tests.unit.engine.api.conftest import Api, checkout, report

NOTHING = StartOptions()


async def test_a_start_has_the_key_of_its_workflow_or_the_one_that_is_given(api: Api) -> None:
    run, created = await api.service.start(checkout("o-1"), NOTHING)
    assert (run.key, run.workflow, created) == ("order:o-1", "shop.checkout", True)
    other, _ = await api.service.start(checkout("o-1"), StartOptions(key="mine"))
    assert other.key == "mine"
    assert (await api.service.find("shop.checkout", "order:o-1")).id == run.id
    assert (await api.service.get(other.id)).key == "mine"


async def test_what_is_pending_is_told_to_the_waker(api: Api) -> None:
    run, _ = await api.service.start(checkout("o-1"), StartOptions(delay="1s"))
    assert api.pending == [run.id]
    await api.service.start(checkout("o-1"), NOTHING)  # joins: nothing is new
    assert api.pending == [run.id]


async def test_every_option_reaches_the_run(api: Api) -> None:
    options = StartOptions(
        priority=7, retention="2d", delay="3s", attributes={"customer": "c-1"}, request_id="r-1", key="k"
    )
    run, _ = await api.service.start(report("today"), options)
    now_ms = api.store.now_ms()
    assert (run.priority, run.retention_ms, run.request_id, run.key) == (7, 2 * 86_400_000, "r-1", "k")
    assert run.wake_at_ms == now_ms + 3_000
    assert msgspec.json.decode(run.attributes)["customer"] == "c-1"
    plain, _ = await api.service.start(report("today"), NOTHING)
    assert (plain.priority, plain.retention_ms, plain.wake_at_ms) == (0, 86_400_000, now_ms)


async def test_without_a_key_a_request_id_tells_a_repetition_from_a_new_start(api: Api) -> None:
    first, _ = await api.service.start(report("today"), StartOptions(request_id="r"))
    again, created = await api.service.start(report("today"), StartOptions(request_id="r"))
    assert (again.id, created) == (first.id, True)
    other, _ = await api.service.start(report("today"), NOTHING)
    assert other.id != first.id


STRANGE = Pack("strange")


@STRANGE.workflow
async def stranger() -> None: ...


@STRANGE.effect
async def act() -> None: ...


@pytest.mark.parametrize(
    ("call", "options", "error"),
    [
        (stranger(), {}, UnknownWorkflow),
        (act(), {}, UsageError),
        ("checkout", {}, UsageError),
        (checkout("o-1", "much"), {}, UsageError),  # pyright: ignore[reportArgumentType]
        (checkout("o-1"), {"priority": PRIORITY_MAX + 1}, UsageError),
        (checkout("o-1"), {"priority": True}, UsageError),
        (checkout("o-1"), {"request_id": ""}, UsageError),
        (checkout("o-1"), {"signal": ("hook",)}, UsageError),
        (report("today"), {"signal": ("hook", 1)}, UsageError),
    ],
)
async def test_a_start_that_is_not_possible_is_refused(
    api: Api, call: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await api.service.start(call, StartOptions(**options))
    assert api.events == []


async def test_only_a_run_of_the_same_workflow_and_key_is_replaced(api: Api) -> None:
    old, _ = await api.service.start(checkout("o-1"), NOTHING)
    with pytest.raises(UsageError):
        await api.service.start(checkout("o-2"), StartOptions(replace=old))
    new, created = await api.service.start(checkout("o-1"), StartOptions(replace=old))
    assert created
    assert (await api.service.find("shop.checkout", "order:o-1")).id == new.id
    assert (await api.service.get(old.id)).status is Status.CANCELLED  # nobody had begun it


async def test_a_call_by_name_takes_what_the_workflow_has_and_nothing_else(api: Api) -> None:
    assert api.service.call("shop.checkout", {"order": "o-1"}).arguments == {"order": "o-1", "amount": 1}
    assert api.service.call("shop.checkout", b'{"order":"o-1","amount":2}').arguments["amount"] == 2
    for arguments in ({"order": 1}, {"order": "o-1", "colour": "red"}, b"[]"):
        with pytest.raises(InputRefused):
            api.service.call("shop.checkout", arguments)


async def test_nothing_works_before_it_is_open(api: Api) -> None:
    api.is_open = False
    for verb in (api.service.start(checkout("o-1"), NOTHING), api.service.get("a"), api.service.find("w", "k")):
        with pytest.raises(UsageError, match="not open"):
            await verb


async def test_what_is_not_there_is_unknown(api: Api) -> None:
    for verb in (api.service.get("a"), api.service.find("shop.checkout", "k")):
        with pytest.raises(UnknownRun):
            await verb


async def test_the_result_of_a_run_is_what_its_end_means(api: Api) -> None:
    run, _ = await api.service.start(checkout("o-1"), NOTHING)
    with pytest.raises(NotAllowedNow):
        await api.service.result_json(run)
    ended = await api.end(await api.claim(), "paid")
    assert await api.service.result(ended, str, None) == "paid"
    await api.service.start(checkout("o-2"), NOTHING)
    failed = await api.decide(await api.claim(), transitions.RunRaised(a_failure("OSError", "no money")))
    with pytest.raises(RunFailed, match="no money"):
        await api.service.result(failed, str, None)
    cancelled, _ = await api.service.start(checkout("o-3"), NOTHING)
    await api.operations.cancel(cancelled.id, "", "1s")
    with pytest.raises(RunCancelled):
        await api.service.result(await api.service.get(cancelled.id), str, None)


async def test_a_result_is_waited_for_as_long_as_the_caller_wants(api: Api) -> None:
    run, _ = await api.service.start(checkout("o-1"), NOTHING)
    with pytest.raises(TimedOut):
        await api.service.wait(run, 0.001)
    waiting = asyncio.create_task(api.service.result(run, str, "30s"))
    await asyncio.sleep(0)
    api.waiters.settled(await api.end(await api.claim(), "paid"))
    assert await waiting == "paid"


async def test_the_input_can_be_read(api: Api) -> None:
    run, _ = await api.service.start(checkout("o-1", 2), NOTHING)
    assert await api.service.input(run) == {"order": "o-1", "amount": 2}
    large, _ = await api.service.start(checkout("x" * 400_000), StartOptions(key="k"))
    assert (await api.service.input(large))["order"] == "x" * 400_000
