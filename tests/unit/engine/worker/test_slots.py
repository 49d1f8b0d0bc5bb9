"""Slots are counted, are never negative, and ring when room comes where there was none."""

from __future__ import annotations

import pytest

from holdfast.engine.worker.slots import Slots


@pytest.fixture
def rings() -> list[str]:
    return []


@pytest.fixture
def slots(rings: list[str]) -> Slots:
    return Slots(2, on_room=lambda: rings.append("room"))


def test_a_run_at_work_takes_a_slot_and_one_that_waits_has_none(slots: Slots) -> None:
    assert (slots.free, slots.taken, slots.has_room) == (2, 0, True)
    slots.busy()
    assert (slots.free, slots.taken, slots.has_room) == (1, 1, True)
    slots.busy()
    assert (slots.free, slots.taken, slots.has_room) == (0, 2, False)
    slots.quiet()
    assert (slots.free, slots.taken, slots.has_room) == (1, 1, True)


def test_only_a_slot_that_becomes_free_where_none_was_rings(slots: Slots, rings: list[str]) -> None:
    slots.busy()
    slots.quiet()
    assert rings == []
    slots.busy()
    slots.busy()
    slots.quiet()
    assert rings == ["room"]
    slots.quiet()
    assert rings == ["room"]


def test_a_run_that_goes_on_takes_a_slot_over_the_limit_and_nothing_else_begins_meanwhile(slots: Slots) -> None:
    for _ in range(3):
        slots.busy()
    assert (slots.free, slots.taken) == (0, 3)
    slots.quiet()
    assert not slots.has_room
    slots.quiet()
    assert slots.has_room


def test_closed_slots_have_no_room(slots: Slots) -> None:
    slots.close()
    assert (slots.free, slots.has_room) == (0, False)
