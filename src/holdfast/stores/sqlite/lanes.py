"""Lanes: the rules of `holdfast.kernel.lanes`, inside the transaction of the change that moves a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict, replace

from holdfast.kernel import lanes
from holdfast.kernel.lanes import Entering, Lane, LaneSetting, LaneStanding, LaneState, NoRoom
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant
from holdfast.ports.store import COUNT_MAX, Finding
from holdfast.stores import lane_findings
from holdfast.stores.sqlite import kept
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.queries import SQL, numbered

_LANE, _ = numbered("lane", ("namespace", "name"))
_COUNT, _ = numbered("count_places", ("namespace", "lane", "active", "limit"))
_FIRST, _ = numbered("first_places", ("namespace", "lane", "active", "limit"))
_GIVE_UP, _ = numbered("give_up_place", ("run_id",))
_ACTIVATE, _ = numbered("activate_place", ("run_id",))
_WAKE, _ = numbered("wake", ("wake_ms", "run_id"))


class SqlLanes:
    """Who has a place in which lane."""

    def __init__(self, now_ms: Callable[[], Instant]) -> None:
        self._now_ms = now_ms

    def no_room(self, db: Database, namespace: str, entering: Entering) -> NoRoom:
        """Why a run gets no place; empty if it gets one."""
        if not entering.if_free and entering.parked_max is None:
            return ""
        active = _count(db, namespace, entering.lane, active=True, limit=1) if entering.if_free else 0
        limit = 1 if entering.parked_max is None else max(1, entering.parked_max)
        parked = _count(db, namespace, entering.lane, active=False, limit=limit)
        return lanes.no_room(entering, active=active, parked=parked)

    def first(self, db: Database, namespace: str, lane: str) -> str | None:
        """The run that has been there for longest: an active one, if there is any."""
        for active in (True, False):
            if found := _first(db, namespace, lane, active=active, limit=1):
                return found[0][0]
        return None

    def enter(self, db: Database, run: Run, entering: Entering) -> tuple[str, ...]:
        """Give the run a place, unless it has one. Returns the runs that became active, itself among them if it did."""
        known = _lane(db, run.namespace, entering.lane) or lanes.new(run.namespace, entering.lane, entering.width)
        lane, place = lanes.enter(lanes.declare(known, entering.width), run, now_ms=self._now_ms())
        row = {"run_id": run.id, "namespace": lane.namespace, "lane": lane.name, "number": place.number}
        db.execute(SQL["add_place"], {**row, "priority": place.priority, "wake_ms": place.wake_at_ms})
        if not db.changes():
            return ()
        _keep(db, lane)
        active = self._promote(db, lane, run)
        if run.id not in active:
            parked = lanes.parked(run)
            db.execute(SQL["park"], {**_moving(parked), "run_id": run.id})
        return active

    def leave(self, db: Database, run: Run) -> tuple[str, ...]:
        """The run gives its place up. Returns the runs that became active."""
        db.execute(_GIVE_UP, (run.id,))
        return self._left(db, run.namespace, run.lane) if db.changes() else ()

    def put_off(self, db: Database, run: Run) -> None:
        """If the run is parked, it shall not be claimed before its wake-up when it becomes active."""
        db.execute(SQL["put_off_place"], {"run_id": run.id, "wake_ms": run.wake_at_ms})

    def set(self, db: Database, setting: LaneSetting) -> tuple[str, ...]:
        """Set a lane by hand, whether or not it was ever used. Returns the runs that became active."""
        known = before = _lane(db, setting.namespace, setting.name)
        if known is None:
            known = replace(lanes.new(setting.namespace, setting.name, None), empty_since_ms=self._now_ms())
        lane = lanes.set_by_hand(known, setting)
        _keep(db, lane)
        kept.keep(db, (), (lanes.audit(before, lane, by=setting.by, now_ms=self._now_ms()),))
        return self._promote(db, lane)

    def put_right(self, db: Database, limit: int) -> tuple[int, tuple[str, ...]]:
        """Take the places of runs that have ended: how many, and who became active."""
        stale = stale_places(db, limit)
        active: tuple[str, ...] = ()
        for run_id, namespace, name in stale:
            db.execute(_GIVE_UP, (run_id,))
            active += self._left(db, namespace, name)
        return len(stale), active

    def forget_idle(self, db: Database, limit: int) -> None:
        """Forget lanes that no run has used for a while."""
        now_ms = self._now_ms()
        for lane in idle(db, limit, now_ms=now_ms):
            db.execute(SQL["forget_lane"], {"namespace": lane.namespace, "name": lane.name})

    def _left(self, db: Database, namespace: str, name: str) -> tuple[str, ...]:
        lane = _lane(db, namespace, name)
        assert lane is not None, (namespace, name)
        active = self._promote(db, lane)
        if not active and not any(_first(db, namespace, name, active=each, limit=1) for each in (True, False)):
            _keep(db, replace(lane, empty_since_ms=self._now_ms()))
        return active

    def _promote(self, db: Database, lane: Lane, offered: Run | None = None) -> tuple[str, ...]:
        """Make those active that may go now. `offered` is as it shall be already, if it is among them."""
        taken = 0 if lane.paused else _count(db, lane.namespace, lane.name, active=True, limit=lane.width)
        room = lanes.room(lane, taken)
        promoted = _first(db, lane.namespace, lane.name, active=False, limit=room) if room else []
        for run_id, _, _, wake_at_ms, _ in promoted:
            db.execute(_ACTIVATE, (run_id,))
            if offered is None or run_id != offered.id:
                db.execute(_WAKE, (wake_at_ms, run_id))
        return tuple(run_id for run_id, *_ in promoted)


def state_of(db: Database, lane: Lane) -> LaneState:
    """The lane, and who is in it."""
    active, parked = (_count(db, lane.namespace, lane.name, active=each, limit=COUNT_MAX) for each in (True, False))
    first_active, first_parked = (
        tuple(run_id for run_id, *_ in _first(db, lane.namespace, lane.name, active=each, limit=lanes.SHOWN_MAX))
        for each in (True, False)
    )
    return LaneState(lane, active, parked, first_active, first_parked)


def state(db: Database, namespace: str, name: str) -> LaneState | None:
    lane = _lane(db, namespace, name)
    return None if lane is None else state_of(db, lane)


def page(db: Database, namespace: str, *, after: str, limit: int) -> list[LaneState]:
    rows = db.execute(SQL["lanes"], {"namespace": namespace, "after": after, "limit": max(0, limit)}).fetchall()
    return [state_of(db, _lane_of(row)) for row in rows]


def standing(db: Database, run: Run) -> LaneStanding | None:
    rows = db.execute(SQL["place"], {"run_id": run.id}).fetchall()
    if not rows:
        return None
    number, priority, active = rows[0]
    if active:
        return LaneStanding(True)
    place = {"namespace": run.namespace, "lane": run.lane, "priority": priority, "number": number}
    [(ahead,)] = db.execute(SQL["count_ahead"], place).fetchall()
    first = [row for each in (True, False) for row in _first(db, run.namespace, run.lane, active=each, limit=1)]
    return LaneStanding(False, ahead, first[0][0] if ahead else None)


def stale_places(db: Database, limit: int) -> list[tuple[str, str, str]]:
    """Active places of runs that have ended: run, namespace and lane."""
    return db.execute(SQL["stale_places"], {"limit": limit}).fetchall()


def placeless(db: Database, limit: int) -> list[str]:
    """Runs that should have a place in their lane, and have none."""
    return [run_id for (run_id,) in db.execute(SQL["placeless"], {"limit": limit}).fetchall()]


def finding(db: Database) -> Finding:
    """What an inspection says of all lanes."""
    looked_at = lane_findings.LOOKED_AT_MAX
    rows = db.execute(SQL["all_lanes"], {"limit": looked_at}).fetchall()
    ended = [run_id for run_id, *_ in stale_places(db, looked_at)]
    states = (state_of(db, _lane_of(row)) for row in rows)
    return lane_findings.finding(states, ended=ended, without=placeless(db, looked_at))


def idle(db: Database, limit: int, *, now_ms: Instant) -> list[Lane]:
    """Lanes that no run has used for a while, and that were not set by hand."""
    bounds = {"empty_since_ms": now_ms - lanes.IDLE_MS, "limit": limit}
    return [_lane_of(row) for row in db.execute(SQL["empty_lanes"], bounds).fetchall()]


def _lane(db: Database, namespace: str, name: str) -> Lane | None:
    rows = db.execute(_LANE, (namespace, name)).fetchall()
    return _lane_of(rows[0]) if rows else None


def _lane_of(row: tuple[Any, ...]) -> Lane:
    namespace, name, width, declared, paused, next_number, empty_since_ms = row
    return Lane(namespace, name, width, declared, bool(paused), next_number, empty_since_ms)


def _keep(db: Database, lane: Lane) -> None:
    db.execute(SQL["keep_lane"], asdict(lane))


def _count(db: Database, namespace: str, lane: str, *, active: bool, limit: int) -> int:
    return db.execute(_COUNT, (namespace, lane, int(active), limit)).fetchall()[0][0]


def _first(db: Database, namespace: str, lane: str, *, active: bool, limit: int) -> list[tuple[Any, ...]]:
    return db.execute(_FIRST, (namespace, lane, int(active), limit)).fetchall()


def _moving(run: Run) -> dict[str, Any]:
    return {
        "status": run.status,
        "epoch": run.epoch,
        "nonce": run.nonce,
        "owner": run.owner,
        "wake_ms": run.wake_at_ms,
        "started_ms": run.started_at_ms,
    }
