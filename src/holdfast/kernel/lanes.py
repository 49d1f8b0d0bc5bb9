"""Lanes: runs that go one after the other, or a few at a time, in the order in which they came.

    a run                                  its place in the lane
    ─────────────────────────────────────  ──────────────────────────────────────────────────────────
    is admitted, or goes on after its end  gets the next number; it is parked
    has a place already                    keeps it
    is the first of those that are parked,
    and fewer are active than the lane
    is wide, and the lane is not paused    becomes active: it may be claimed, at once or after its delay
    sleeps, waits, is rescued, is blocked  stays as it is: the order is the point
    is blocked, and steps aside            is given up; when it goes on it gets the next number
    ends                                   is given up

Rules
- A lane has a name in a namespace. It is there as long as it has places, and for `IDLE_MS` after that; one that was set
  by hand stays.
- Those that are parked go in the order of their numbers, after those of a higher priority.
- A place is entered and given up in the commit that moves its run, and what follows from it, that others become active,
  happens in the same one. So there is no counter that could be wrong: `active` is how many places are active.
- A parked run may not be claimed: nothing wakes it. When it becomes active it wakes as it was to begin with.
- The width that a start declares counts from when it differs from what was declared before. What was set by hand in the
  meantime stays until then. A start that declares none takes the lane as it is.
- What was set by hand is kept as an audit, in the same unit.
- More may be active than the lane is wide, when that has become narrower: those that are active stay so.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import keys
from holdfast.kernel.audits import Audit
from holdfast.kernel.runs import ENDED, Run, Status
from holdfast.kernel.times import Instant, Millis

WIDTH_MAX: Final = 1_000_000
PARKED_MAX: Final = 10_000  # by default
IDLE_MS: Final = Millis(3_600_000)
SHOWN_MAX: Final = 20  # runs of a lane that are named

_encode = msgspec.json.Encoder().encode
NoRoom = Literal["", "full", "busy"]


class Entering(Struct, frozen=True, gc=False):
    """A run that shall have a place in this lane.

    With `parked_max`, only if fewer are parked; with `if_free`, only if no run has a place at all.
    """

    lane: str
    width: int | None = None
    parked_max: int | None = None
    if_free: bool = False


class Lane(Struct, frozen=True, gc=False):
    """A lane without its places. `next_number` is what the next run gets; since `empty_since_ms` it has no places."""

    namespace: str
    name: str
    width: int = 1
    declared: int = 1
    paused: bool = False
    next_number: int = 1
    empty_since_ms: Instant | None = None

    @property
    def is_set_by_hand(self) -> bool:
        return self.paused or self.width != self.declared


class LaneSetting(Struct, frozen=True, gc=False):
    """What a person sets about a lane; None leaves it as it is. `by` is who does."""

    namespace: str
    name: str
    width: int | None = None
    paused: bool | None = None
    by: str = ""


class Place(Struct, frozen=True, gc=False):
    """A run in a lane. `wake_at_ms` is from when it may be claimed once it is active."""

    run_id: str
    number: int
    priority: int
    wake_at_ms: Instant
    active: bool = False


class LaneState(Struct, frozen=True, gc=False):
    """A lane with how many are in it, and the first of those that are active and of those that are parked."""

    lane: Lane
    active: int = 0
    parked: int = 0
    first_active: tuple[str, ...] = ()
    first_parked: tuple[str, ...] = ()


class LaneStanding(Struct, frozen=True, gc=False):
    """Where a run stands in its lane: how many are ahead of it, if it is not active; and the first of them."""

    active: bool
    ahead: int = 0
    first: str | None = None


def new(namespace: str, name: str, width: int | None) -> Lane:
    """A lane that no run has used before."""
    return Lane(namespace, name, width or 1, width or 1)


def declare(lane: Lane, width: int | None) -> Lane:
    """The lane after a start has declared this width."""
    return lane if width is None or width == lane.declared else replace(lane, width=width, declared=width)


def set_by_hand(lane: Lane, setting: LaneSetting) -> Lane:
    """The lane after a person has set it."""
    width = lane.width if setting.width is None else setting.width
    paused = lane.paused if setting.paused is None else setting.paused
    return replace(lane, width=width, paused=paused)


def audit(before: Lane | None, after: Lane, *, by: str, now_ms: Instant) -> Audit:
    """What is kept of a lane that was set by hand."""
    was = None if before is None else {"width": before.width, "paused": before.paused}
    detail = _encode({"before": was, "after": {"width": after.width, "paused": after.paused}})
    return Audit(after.namespace, f"lane/{after.name}/{now_ms}", by, "lane.set", after.name, now_ms, detail)


def no_room(entering: Entering, *, active: int, parked: int) -> NoRoom:
    """Why a run gets no place; empty if it gets one."""
    if entering.if_free and active + parked:
        return "busy"
    if entering.parked_max is not None and parked >= entering.parked_max:
        return "full"
    return ""


def enter(lane: Lane, run: Run, *, now_ms: Instant) -> tuple[Lane, Place]:
    """The place that a run gets, behind all others of its priority. Who is active afterwards is for `room` to say."""
    place = Place(run.id, lane.next_number, run.priority, run.wake_at_ms if run.wake_at_ms is not None else now_ms)
    return replace(lane, next_number=lane.next_number + 1, empty_since_ms=None), place


def again(run: Run) -> Entering | None:
    """Where a run goes that comes after this one, or this one itself when it goes on: into its lane, as that is."""
    return Entering(run.lane) if run.lane else None


def room(lane: Lane, active: int) -> int:
    """How many that are parked become active."""
    return 0 if lane.paused else max(0, lane.width - active)


def trouble(state: LaneState) -> str | None:
    """What is wrong with a lane whose places were counted again; None if nothing is."""
    lane = state.lane
    if state.active > lane.width and not lane.is_set_by_hand:
        return f"{state.active} runs are active in lane {lane.name!r}, which is {lane.width} wide"
    if state.parked and room(lane, state.active):
        return f"{state.parked} runs are parked in lane {lane.name!r}, although there is room"
    return None


def order(place: Place) -> tuple[int, int]:
    """Sorts those that are parked by who is next."""
    return -place.priority, place.number


def parked(run: Run) -> Run:
    """The row of a run that has to wait for its turn: the worker that was to take it does not."""
    if run.status is not Status.RUNNING:
        return replace(run, wake_at_ms=None)
    return replace(run, status=Status.PENDING, epoch=0, nonce="", owner=None, wake_at_ms=None, started_at_ms=None)


def leaves(run: Run) -> bool:
    """Whether a run that was moved to this row gives its place up."""
    return bool(run.lane) and (run.status in ENDED or run.aside)


def is_forgotten(lane: Lane, *, now_ms: Instant) -> bool:
    """Whether nothing of the lane has to be known any more."""
    empty_since_ms = lane.empty_since_ms
    return empty_since_ms is not None and empty_since_ms + IDLE_MS <= now_ms and not lane.is_set_by_hand


def checked_name(name: str) -> str:
    """The name of a lane, or a `UsageError`."""
    return keys.checked(name, what="lane")


def checked_width(width: int) -> int:
    """A width, or a `UsageError`."""
    if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= WIDTH_MAX:
        raise UsageError(
            f"the width of a lane cannot be {width!r}",
            hint=f"It is how many of its runs may be active at once: a whole number from 1 to {WIDTH_MAX:,}.",
        )
    return width
