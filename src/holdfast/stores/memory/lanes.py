"""The lanes of the memory store: dictionaries, and the rules of `holdfast.kernel.lanes`."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from holdfast.kernel import lanes
from holdfast.kernel.lanes import Entering, Lane, LaneSetting, LaneStanding, LaneState, NoRoom, Place
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant
from holdfast.ports.store import Finding
from holdfast.stores import lane_findings
from holdfast.stores.memory.tables import Tables

Name = tuple[str, str]  # namespace and lane


class MemoryLanes:
    """Who has a place in which lane."""

    def __init__(self, tables: Tables, now_ms: Callable[[], Instant]) -> None:
        self._tables = tables
        self._now_ms = now_ms

    def no_room(self, namespace: str, entering: Entering) -> NoRoom:
        """Why a run gets no place; empty if it gets one."""
        active, parked = self._counts((namespace, entering.lane))
        return lanes.no_room(entering, active=active, parked=parked)

    def first(self, namespace: str, lane: str) -> Run | None:
        """The run that has been there for longest: an active one, if there is any."""
        places = self._places((namespace, lane))
        found = sorted(places, key=lambda place: (not place.active, *lanes.order(place)))
        return self._tables.runs[found[0].run_id] if found else None

    def enter(self, run: Run, entering: Entering) -> tuple[str, ...]:
        """Give the run a place, unless it has one. Returns the runs that became active, itself among them if it did."""
        name = run.namespace, entering.lane
        if run.id in self._tables.places.get(name, {}):
            return ()
        known = self._tables.lanes.get(name) or lanes.new(*name, entering.width)
        lane, place = lanes.enter(lanes.declare(known, entering.width), run, now_ms=self._now_ms())
        self._tables.lanes[name] = lane
        self._tables.places.setdefault(name, {})[run.id] = place
        self._tables.put(lanes.parked(run))
        return self._promote(lane, {run.id: run})

    def leave(self, run: Run) -> tuple[str, ...]:
        """The run gives its place up. Returns the runs that became active."""
        name = run.namespace, run.lane
        if self._tables.places.get(name, {}).pop(run.id, None) is None:
            return ()
        lane = self._tables.lanes[name]
        if not self._tables.places[name]:
            self._tables.lanes[name] = lane = replace(lane, empty_since_ms=self._now_ms())
        return self._promote(lane, {})

    def put_off(self, run: Run) -> None:
        """The run is parked, and shall not be claimed before its wake-up when it becomes active."""
        place = self._tables.places.get((run.namespace, run.lane), {}).get(run.id)
        if place is not None and run.wake_at_ms is not None:
            self._tables.places[run.namespace, run.lane][run.id] = replace(place, wake_at_ms=run.wake_at_ms)

    def set(self, setting: LaneSetting) -> tuple[str, ...]:
        """Set a lane by hand, whether or not it was ever used. Returns the runs that became active."""
        name = setting.namespace, setting.name
        known = self._tables.lanes.get(name) or replace(lanes.new(*name, None), empty_since_ms=self._now_ms())
        before = self._tables.lanes.get(name)
        self._tables.lanes[name] = lane = lanes.set_by_hand(known, setting)
        self._tables.keep((), (lanes.audit(before, lane, by=setting.by, now_ms=self._now_ms()),))
        return self._promote(lane, {})

    def _promote(self, lane: Lane, offered: dict[str, Run]) -> tuple[str, ...]:
        name = lane.namespace, lane.name
        active, _ = self._counts(name)
        waiting = sorted((place for place in self._places(name) if not place.active), key=lanes.order)
        promoted = waiting[: lanes.room(lane, active)]
        for place in promoted:
            self._tables.places[name][place.run_id] = replace(place, active=True)
            run = self._tables.runs[place.run_id]
            self._tables.put(offered.get(run.id) or replace(run, wake_at_ms=place.wake_at_ms))
        return tuple(place.run_id for place in promoted)

    def state(self, namespace: str, name: str) -> LaneState | None:
        lane = self._tables.lanes.get((namespace, name))
        if lane is None:
            return None
        places = sorted(self._places((namespace, name)), key=lanes.order)
        active = [place.run_id for place in places if place.active]
        parked = [place.run_id for place in places if not place.active]
        return LaneState(lane, len(active), len(parked), *(tuple(ids[: lanes.SHOWN_MAX]) for ids in (active, parked)))

    def standing(self, run: Run) -> LaneStanding | None:
        places = self._places((run.namespace, run.lane))
        own = next((place for place in places if place.run_id == run.id), None)
        if own is None:
            return None
        ahead = [] if own.active else [each for each in places if each.active or lanes.order(each) < lanes.order(own)]
        first = min(ahead, key=lambda place: (not place.active, *lanes.order(place)), default=None)
        return LaneStanding(own.active, len(ahead), None if first is None else first.run_id)

    def forget_idle(self) -> None:
        """Forget lanes that no run has used for a while."""
        now_ms = self._now_ms()
        for name in [name for name, lane in self._tables.lanes.items() if lanes.is_forgotten(lane, now_ms=now_ms)]:
            del self._tables.lanes[name]
            self._tables.places.pop(name, None)

    def finding(self) -> Finding:
        """What an inspection says of all lanes."""
        tables = self._tables
        states = (state for name in tables.lanes if (state := self.state(*name)) is not None)
        placed = {run_id for places in tables.places.values() for run_id in places}
        live = {run.id for run in tables.runs.values() if run.finished_at_ms is None}
        should = (run.id for run in tables.runs.values() if run.lane and run.id in live and not run.aside)
        without = [run_id for run_id in should if run_id not in placed]
        return lane_findings.finding(states, ended=sorted(placed - live), without=without)

    def _places(self, name: Name) -> list[Place]:
        return list(self._tables.places.get(name, {}).values())

    def _counts(self, name: Name) -> tuple[int, int]:
        active = sum(place.active for place in self._places(name))
        return active, len(self._places(name)) - active
