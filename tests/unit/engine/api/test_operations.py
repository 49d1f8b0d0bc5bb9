"""What people do to a run, over a store in memory; also while a worker moves it at the same time."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import events
from holdfast.engine.api.start_options import StartOptions
from holdfast.errors import NotAllowedNow, UnknownRun
from holdfast.kernel import transitions
from holdfast.kernel.messages import CancelRequest
from holdfast.kernel.runs import Run, Status
from tests.builders import a_failure
from tests.unit.engine.api.conftest import Api, checkout


async def started(api: Api, order: str = "o-1") -> Run:
    run, _ = await api.service.start(checkout(order), StartOptions())
    return run


# -- cancel


async def test_a_run_that_nobody_has_begun_ends_at_once(api: Api) -> None:
    run = await started(api)
    receipt = await api.operations.cancel(run.id, "no longer wanted", "30s")
    assert receipt.outcome == "no_effects"
    assert (await api.service.get(run.id)).status is Status.CANCELLED
    assert [event.error for event in api.told(events.RunEnded)] == ["cancelled: no longer wanted"]
    assert [event.run_id for event in api.told(events.CancelRequested)] == [run.id]


async def test_those_who_wait_for_a_run_that_is_stopped_are_told(api: Api) -> None:
    run = await started(api)
    waiting = asyncio.create_task(api.waiters.wait(run.id))
    await asyncio.sleep(0)
    await api.operations.ask_cancel(run.id, "", "30s")
    assert (await asyncio.wait_for(waiting, 30)).status is Status.CANCELLED


async def test_the_owner_of_a_run_is_asked_once_however_often_the_caller_asks(api: Api) -> None:
    await started(api)
    run = await api.claim()
    asked = await api.operations.ask_cancel(run.id, "stop", "30s")
    await api.operations._canceller.ask(asked)
    [history] = await api.store.histories([run.id])
    [message] = history.messages
    assert isinstance(message, CancelRequest)
    assert history.run.status is Status.RUNNING
    assert api.told(events.RunEnded) == []


async def test_a_run_whose_owner_does_not_end_it_in_time_is_stopped(api: Api) -> None:
    await started(api)
    run = await api.claim()
    receipt = await api.operations.cancel(run.id, "stop", "1ms")
    assert receipt.stopped
    assert (await api.service.get(run.id)).status is Status.CANCELLED


async def test_a_run_that_has_ended_is_left_as_it_is(api: Api) -> None:
    await started(api)
    run = await api.end(await api.claim())
    await api.operations.cancel(run.id, "too late", "30s")
    assert (await api.service.get(run.id)).status is Status.COMPLETED
    assert api.told(events.CancelRequested) == []


async def test_a_run_that_is_claimed_between_the_look_and_the_stop_is_asked_by_its_owner(api: Api) -> None:
    """What the caller has read says that nobody has begun it; by now somebody has."""
    run = await started(api)
    claimed = await api.claim()
    has_ended = await api.operations._canceller.ask(
        (await api.operations.ask_cancel(claimed.id, "", "30s"))._replace(nonce="another"), run
    )
    assert not has_ended
    assert (await api.service.get(run.id)).status is Status.RUNNING


async def test_a_run_that_is_not_there_cannot_be_cancelled(api: Api) -> None:
    with pytest.raises(UnknownRun):
        await api.operations.cancel("a", "", "1s")


async def test_there_is_no_receipt_before_the_end(api: Api) -> None:
    run = await started(api)
    with pytest.raises(NotAllowedNow):
        await api.operations.receipt(run.id)


# -- go on


async def test_a_failed_run_is_retried_and_a_cancelled_one_resumed(api: Api) -> None:
    await started(api)
    failed = await api.decide(await api.claim(), transitions.RunRaised(a_failure()))
    api.pending.clear()
    assert (await api.operations.retry(failed.id)).status is Status.PENDING
    assert api.pending == [failed.id]
    assert api.told(events.RunRetried)
    await api.operations.cancel(failed.id, "", "1ms")
    assert (await api.operations.resume(failed.id)).status is Status.PENDING
    assert api.told(events.RunResumed)


async def test_a_live_run_is_neither_retried_nor_resumed(api: Api) -> None:
    run = await started(api)
    for verb in (api.operations.retry, api.operations.resume):
        with pytest.raises(NotAllowedNow):
            await verb(run.id)


async def test_a_key_that_is_released_can_be_used_again(api: Api) -> None:
    run = await started(api)
    assert not (await api.operations.release_key(run.id, "by mistake")).holds_key
    assert [(event.run_id, event.key) for event in api.told(events.KeyWasReleased)] == [(run.id, "order:o-1")]
    again = await started(api)
    assert again.id != run.id
