"""A failed run says where: the traceback and the line are the user's, in every place where people look."""

from __future__ import annotations

import asyncio
import logging

import pytest
from msgspec import UNSET

from holdfast import Pack, Retry, RunFailed
from holdfast.wire import inbound, outbound
from tests.integration.conftest import Home

failing = Pack("failing")


def deeper() -> None:
    raise KeyError("missing")


@failing.effect(retry=Retry(attempts=1))
async def charge() -> None:
    deeper()


@failing.workflow
async def of_code() -> None:
    deeper()


@failing.workflow
async def of_an_effect() -> None:
    await charge()


@failing.workflow
async def of_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_member())


@failing.workflow
async def of_the_loop() -> None:
    asyncio.get_running_loop().add_signal_handler(1, print)


async def _member() -> None:
    deeper()


@pytest.mark.parametrize("workflow", [of_code, of_an_effect, of_a_group, of_the_loop])
async def test_the_line_and_the_frames_of_a_failure_are_the_users(home: Home, workflow):
    async with home.holdfast(failing) as hf:
        run, _ = await hf.start(workflow())
        with pytest.raises(RunFailed) as raised:
            await run.result()
        [listed] = (await hf.runs().page()).runs
    assert listed.error is not None
    assert listed.error.line.startswith("test_failures_say_where.py:")
    assert raised.value.line == listed.error.line
    assert raised.value.traceback == listed.error.traceback
    assert workflow.fn.__name__ in raised.value.traceback
    assert "/holdfast/" not in raised.value.traceback.replace(__file__, "")
    assert "asyncio/" not in raised.value.traceback


async def test_the_traceback_of_a_run_shows_the_frames_of_the_effect(home: Home):
    async with home.holdfast(failing) as hf:
        run, _ = await hf.start(of_an_effect())
        with pytest.raises(RunFailed) as raised:
            await run.result()
    assert 'raise KeyError("missing")' in raised.value.traceback
    assert "in deeper" in raised.value.traceback


async def test_the_members_of_a_group_have_tracebacks_and_are_told(home: Home):
    async with home.holdfast(failing) as hf:
        run, _ = await hf.start(of_a_group())
        settled = await run.wait()
        assert "[KeyError: 'missing']" in str(await run.explain())
    assert settled.error is not None
    assert "in deeper" in settled.error.members[0].traceback


async def test_a_failed_run_is_logged_as_an_error_with_its_reason(home: Home, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.ERROR, logger="holdfast"):
        async with home.holdfast(failing) as hf:
            run, _ = await hf.start(of_code(), key="o-1")
            await run.wait()
    [record] = [each for each in caplog.records if each.message == "run failed"]
    fields = record.__dict__["holdfast"]
    assert record.levelno == logging.ERROR
    assert (fields["workflow"], fields["key"], fields["error"]) == ("failing.of_code", "o-1", "KeyError: 'missing'")
    assert "in deeper" in fields["traceback"]


async def test_the_error_of_a_run_crosses_the_wire(home: Home):
    async with home.holdfast(failing) as hf:
        run, _ = await hf.start(of_code())
        assert run.error is None
        settled = await run.wait()
    view = outbound.run(settled)
    assert settled.error is not None
    assert inbound.run(view, "default").error is not None
    assert view.error is not UNSET
    assert (view.error.type, view.error.message, view.error.line) == ("KeyError", "'missing'", settled.error.line)
