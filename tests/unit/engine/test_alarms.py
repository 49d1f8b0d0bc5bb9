"""Alarms: what parts of the engine wait for."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine.alarms import Alarm


async def test_an_alarm_that_is_set_ends_the_wait() -> None:
    alarm = Alarm()
    waiting = asyncio.create_task(alarm.wait(3600))
    await asyncio.sleep(0)
    alarm.set()
    alarm.set()
    assert await waiting
    assert alarm.is_set()


async def test_an_alarm_that_was_set_before_needs_no_wait() -> None:
    alarm = Alarm()
    alarm.set()
    assert await alarm.wait(3600)
    alarm.clear()
    assert not alarm.is_set()
    assert not await alarm.wait(0)


async def test_without_an_alarm_the_wait_ends_in_time() -> None:
    assert not await Alarm().wait(0.001)
    assert not await Alarm().wait(0)
    assert not await Alarm().wait(-1)


async def test_a_wait_that_is_cancelled_leaves_the_alarm_to_the_next() -> None:
    alarm = Alarm()
    waiting = asyncio.create_task(alarm.wait(3600))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    alarm.set()
    assert await alarm.wait(3600)
