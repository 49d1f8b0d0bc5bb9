"""Boundaries are counted, and faults strike where a schedule says."""

from __future__ import annotations

import pytest

from holdfast.prove.schedules import BoundaryKind, FaultKind, PlannedFault
from holdfast.prove.worlds.faults import PAST_LEASE, FaultInjector
from holdfast.prove.worlds.trace import WorldTrace
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.network import Fate, StoreCall
from holdfast.testing.simulation.world import NothingHappens, World

LEASE_SECONDS = 10.0


class Faulty:
    """A world with one host and one fault, at the second boundary."""

    def __init__(self, fault: FaultKind | None = None) -> None:
        self.world = World(seed=1)
        self.host: Host = self.world.host("worker-1")
        self.trace = WorldTrace(self.world)
        self.killed: list[str] = []
        self.cancelled = 0
        planned = () if fault is None else (PlannedFault(1, fault),)
        self.faults = FaultInjector(
            self.world,
            self.trace,
            planned,
            lease_seconds=LEASE_SECONDS,
            kill=lambda host: self.killed.append(host.name),
            cancel=self.cancel,
        )
        self.faults.is_live = True

    def cancel(self) -> None:
        self.cancelled += 1

    def reach(self, kind: BoundaryKind = "commit") -> Fate | None:
        call = StoreCall(self.host, "commit", (), {})
        return self.faults.reach(kind, "before", self.host, about=f"a {kind}", call=call)

    def wait(self) -> None:
        """Until nothing happens any more."""
        with pytest.raises(NothingHappens):
            self.world.run(lambda: False)


@pytest.fixture
def a_world():
    made: list[Faulty] = []

    def make(fault: FaultKind | None = None) -> Faulty:
        made.append(Faulty(fault))
        return made[-1]

    yield make
    for each in made:
        each.world.close()


def test_boundaries_are_numbered_in_the_order_in_which_they_are_reached(a_world):
    world = a_world()
    assert [world.reach(), world.reach("effect")] == [None, None]
    assert [(each.number, each.kind) for each in world.faults.boundaries] == [(0, "commit"), (1, "effect")]


def test_there_are_no_boundaries_before_a_world_is_live(a_world):
    world = a_world("crash")
    world.faults.is_live = False
    assert [world.reach(), world.reach()] == [None, None]
    assert world.faults.boundaries == []


def test_renewals_count_once_until_something_else_happens(a_world):
    world = a_world()
    for kind in ("renewal", "renewal", "commit", "renewal", "renewal"):
        world.reach(kind)
    assert [each.kind for each in world.faults.boundaries] == ["renewal", "commit", "renewal"]


@pytest.mark.parametrize(
    ("fault", "fate", "outstanding", "held_back", "killed", "cancelled"),
    [
        ("crash", Fate(call_lost=True), 0, 0, ["worker-1"], 0),
        ("pause", None, 1, 0, [], 0),
        ("late", Fate(there=LEASE_SECONDS * PAST_LEASE), 2, 0, [], 0),
        ("stale", Fate(call_lost=True), 1, 1, [], 0),
        ("cancel", None, 0, 0, [], 1),
    ],
)
def test_a_fault_strikes_at_its_boundary_alone(a_world, fault, fate, outstanding, held_back, killed, cancelled):
    world = a_world(fault)
    assert world.reach() is None
    assert (world.killed, world.cancelled, world.faults.outstanding) == ([], 0, 0)
    assert world.reach() == fate
    assert [boundary.number for boundary in world.faults.met] == [1]
    assert world.faults.outstanding == outstanding
    assert len(world.faults.held_back) == held_back
    assert (world.killed, world.cancelled) == (killed, cancelled)
    assert world.reach() is None


@pytest.mark.parametrize("fault", ["pause", "late", "stale"])
def test_a_host_that_stands_still_goes_on_past_its_lease(a_world, fault):
    world = a_world(fault)
    world.reach()
    world.reach()
    assert not world.host.is_running
    world.wait()
    assert world.host.is_running
    assert world.faults.outstanding == 0
    assert world.world.now() >= LEASE_SECONDS * PAST_LEASE
    assert world.trace.happenings[-1].words == "worker-1 goes on"
