from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import attempt, cancel_requested, effect_key, heartbeat
from holdfast.effects import RUNNING_EFFECT
from holdfast.errors import UsageError


class Scope:
    """What the engine tells an attempt; heartbeats are kept in memory."""

    def __init__(self, beats: list[Any]) -> None:
        self.key = "charge:o-1"
        self.attempt = 2
        self.dropped = False
        self.beats = beats

    def last_beat(self) -> Any:
        return self.beats[-1] if self.beats else None

    def beat(self, details: Any) -> None:
        self.beats.append(details)


@pytest.fixture
def scope():
    scope = Scope([])
    token = RUNNING_EFFECT.set(scope)
    yield scope
    RUNNING_EFFECT.reset(token)


@pytest.fixture
def beats(scope):
    return scope.beats


def test_an_effect_knows_its_key_and_its_attempt(beats):
    assert effect_key() == "charge:o-1"
    assert attempt() == 2


def test_a_heartbeat_answers_what_was_recorded_before(beats):
    """E11."""
    assert heartbeat() is None
    assert heartbeat({"row": 1}) is None
    assert heartbeat({"row": 2}) == {"row": 1}
    assert heartbeat() == {"row": 2}
    assert heartbeat(None) == {"row": 2}  # None is something to record
    assert beats == [{"row": 1}, {"row": 2}, None]


def test_a_sync_effect_in_a_thread_knows_them_too(beats):
    async def ask() -> tuple[str, int]:
        return await asyncio.to_thread(effect_key), await asyncio.to_thread(attempt)

    assert asyncio.run(ask()) == ("charge:o-1", 2)


def test_an_effect_can_see_that_nobody_waits_for_it_any_more(scope):
    """Also one in a thread, which cannot be interrupted."""

    async def ask() -> bool:
        return await asyncio.to_thread(cancel_requested)

    assert not cancel_requested()
    assert not asyncio.run(ask())
    scope.dropped = True
    assert cancel_requested()
    assert asyncio.run(ask())


@pytest.mark.parametrize("use", [effect_key, attempt, heartbeat, lambda: heartbeat("x"), cancel_requested])
def test_outside_an_effect_they_are_refused(use):
    with pytest.raises(UsageError, match=r"\(\) was called outside an effect") as caught:
        use()
    assert "@pack.effect" in caught.value.hint
