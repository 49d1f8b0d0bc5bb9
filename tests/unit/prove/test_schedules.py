"""Schedules, and the words for them."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from holdfast.kernel.times import Millis
from holdfast.prove.report import told
from holdfast.prove.schedules import CLEAN, FAULTS, Boundary, BoundaryKind, FaultKind, PlannedFault, Schedule


def boundary(number: int = 3, **changes: Any) -> Boundary:
    known = {
        "kind": "commit",
        "phase": "before",
        "host": "worker-1",
        "after_ms": Millis(5),
        "about": "charge#1 is recorded as performed",
    }
    return Boundary(**{"number": number, **known, **changes})


@pytest.mark.parametrize(
    ("schedule", "size"),
    [
        (CLEAN, 0),
        (Schedule(start="twice"), 1),
        (Schedule((PlannedFault(1, "crash"),)), 1),
        (Schedule((PlannedFault(1, "cancel"), PlannedFault(2, "crash")), signals="late"), 3),
    ],
)
def test_the_size_of_a_schedule_is_how_much_goes_wrong(schedule, size):
    assert schedule.size == size


def test_every_kind_of_boundary_has_faults_and_every_fault_is_tried():
    assert {kind for kind, _ in FAULTS} == set(get_args(BoundaryKind))
    assert {fault for faults in FAULTS.values() for fault in faults} == set(get_args(FaultKind))


def test_a_crash_is_tried_wherever_anything_is():
    assert all("crash" in faults for faults in FAULTS.values())


def test_boundaries_are_alike_whatever_their_number_host_and_time():
    assert boundary().place == boundary(9, host="worker-2", after_ms=Millis(7)).place
    assert boundary().place != boundary(phase="after").place


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (CLEAN, ("nothing happens to it: the clean run shows it",)),
        (Schedule(start="late"), ("the start arrives once more after the end",)),
        (Schedule(signals="together"), ("each signal arrives twice at the same time",)),
        (
            Schedule((PlannedFault(3, "crash"),)),
            ("worker-1 is killed right before charge#1 is recorded as performed (shop.py:7)",),
        ),
        (
            Schedule((PlannedFault(3, "cancel"), PlannedFault(4, "pause"))),
            (
                "the run is cancelled right before charge#1 is recorded as performed (shop.py:7)",
                "worker-1 stands still past its lease, right after charge#1 is done",
            ),
        ),
        (Schedule((PlannedFault(8, "crash"),)), ("nothing happens to it: the clean run shows it",)),  # never reached
    ],
)
def test_a_schedule_is_told_in_words(schedule, words):
    met = [boundary(line="shop.py:7"), boundary(4, kind="effect", phase="after", about="charge#1 is done")]
    assert told(schedule, met) == words
