"""Rules about lanes: who goes after whom, and how many at once. Most need what a store model has seen of lanes."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.kernel.runs import ENDED
from holdfast.testing.histories.history import (
    EffectObserved,
    FaultApplied,
    HistoryViolation,
    LaneSeen,
    PlaceSeen,
    StoreWrite,
)
from holdfast.testing.histories.seen import Seen

Lane = tuple[str, str]  # namespace and name
NO_PLACES = LaneSeen(lane="")  # before a lane was seen for the first time


def widths_and_orders(seen: Seen) -> Iterator[HistoryViolation]:
    """As many as a lane is wide are active while others wait, and those that become active are the next ones."""
    before: dict[Lane, LaneSeen | None] = {}
    for record in seen.history:
        if isinstance(record, FaultApplied) and record.fault == "forgot":
            before = dict.fromkeys(before)  # the lanes are what they were some time ago
        if not isinstance(record, LaneSeen):
            continue
        lane = record.namespace, record.lane
        yield from _moved(record, before.get(lane, NO_PLACES))
        before[lane] = record


def _moved(now: LaneSeen, before: LaneSeen | None) -> Iterator[HistoryViolation]:
    known = {place.run for place in (now if before is None else before).active}
    fresh = [place for place in now.active if place.run not in known]
    if fresh and len(now.active) > now.width:
        detail = f"{', '.join(place.run for place in fresh)} became active, the {len(now.active)}. of {now.width}"
        yield HistoryViolation("I12", "lane_width", now.lane, detail)
    if fresh and before is not None and now.paused and before.paused:
        yield HistoryViolation("I12", "lane_width", now.lane, f"{fresh[0].run} became active in a paused lane")
    if now.parked and not now.paused and len(now.active) < now.width:
        detail = f"{now.parked[0].run} waits, though {len(now.active)} of {now.width} are active"
        yield HistoryViolation("I12", "lane_forgotten", now.lane, detail)
    for place in fresh:
        ahead = min(now.parked, key=_order, default=None)
        if ahead is not None and _order(ahead) < _order(place):
            yield HistoryViolation("I12", "lane_order", now.lane, f"{place.run} became active before {ahead.run}")


def _order(place: PlaceSeen) -> tuple[int, int]:
    return -place.priority, place.number


def out_of_turn(seen: Seen) -> Iterator[HistoryViolation]:
    """No effect is called for a run that is parked and has never been active."""
    parked: dict[Lane, frozenset[str]] = {}
    once_active: set[str] = set()
    for record in seen.history:
        match record:
            case FaultApplied(fault="forgot"):
                parked.clear()
            case LaneSeen():
                once_active.update(place.run for place in record.active)
                parked[record.namespace, record.lane] = frozenset(place.run for place in record.parked)
            case EffectObserved(phase="began", run=run) if run not in once_active:
                for (_, lane), runs in parked.items():
                    if run in runs:
                        yield HistoryViolation("I12", "lane_order", run, f"{record.key} was called; {lane}: parked")
            case _:
                pass


def places_of_the_ended(seen: Seen) -> Iterator[HistoryViolation]:
    """A run gives its place up in the write that ends it."""
    ended: set[str] = set()
    for record in seen.history:
        match record:
            case FaultApplied(fault="forgot"):
                ended.clear()
            case StoreWrite(outcome="accepted", run=run, status=status):
                (ended.add if status in ENDED else ended.discard)(run)
            case LaneSeen():
                for place in (*record.active, *record.parked):
                    if place.run in ended:
                        yield HistoryViolation("I12", "lane_forgotten", record.lane, f"{place.run} has ended in it")
            case _:
                pass


def left_waiting(seen: Seen) -> Iterator[HistoryViolation]:
    """In the end a run that is parked has another one before it, which is at rest; or its lane is paused."""
    last = {(each.namespace, each.lane): each for _, each in seen.of(LaneSeen)}
    paused = {lane for lane, each in last.items() if each.paused}
    held = {
        (final.namespace, final.lane)
        for final in seen.finals.values()
        if final.lane and not final.parked and final.status not in ENDED
    }
    for final in seen.finals.values():
        lane = final.namespace, final.lane
        if final.parked and lane not in held | paused:
            yield HistoryViolation("I12", "lane_forgotten", final.lane, f"{final.run} waits, and no run is before it")
