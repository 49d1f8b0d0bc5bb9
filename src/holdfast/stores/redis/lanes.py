"""Lanes: each lives in the shard of its name. A run of that shard enters and leaves in the script that moves it.

A run of another shard does so by messages, and is parked until its lane says that it may go:

    shard of the run                         shard of its lane
    ───────────────────────────────────────  ──────────────────────────────────────────
                                             a place is reserved, if there are limits
    admitted, and parked; leaves `enter`
                                             its place counts; if it is its turn, leaves `go`
    may be claimed
    ends; leaves `leave`
                                             its place is free; the next one's `go` is left

Rules
- A reservation holds for `reserve_ms`: the admission is refused after that, and a while later `relay` takes the place
  back, or finds that the run has come. No run waits behind it.
- `relay` also looks for places of runs that have ended: a process of an earlier version knows of no lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from holdfast.kernel import lanes
from holdfast.kernel.changes import Change, KeyFree, KeyHeldBy
from holdfast.kernel.lanes import Lane, LaneSetting, LaneStanding, LaneState
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant
from holdfast.ports.store import COUNT_MAX, Finding
from holdfast.stores import lane_findings
from holdfast.stores.redis import kept, rows, scripts
from holdfast.stores.redis.encode_change import ChangeEncoder, LeftMessage, left_in
from holdfast.stores.redis.lane_words import NO_PLACE, Reservation, enter_words
from holdfast.stores.redis.net.client import Reply, ScriptCall
from holdfast.stores.redis.pace import RedisPace
from holdfast.stores.redis.rows import under
from holdfast.stores.redis.script_calls import Asks
from holdfast.stores.redis.shards import Shards

_row_of = msgspec.msgpack.Decoder(tuple[int, int, int, int, int]).decode
_Place = tuple[str, str, str, str, int, str, bool, int]
_place_of = msgspec.msgpack.Decoder(_Place).decode


class MovedPlace(msgspec.Struct, frozen=True, gc=False):
    """What a message about a place has done: which runs may go, and what it has left for other shards."""

    told: tuple[str, ...] = ()
    woken: tuple[str, ...] = ()
    left: tuple[LeftMessage, ...] = ()


class StalePlace(msgspec.Struct, frozen=True, gc=False):
    """The place of a run that has ended."""

    shard: int
    run_id: str
    lane: str
    epoch: str
    home: bool


class RedisLanes:
    """Who has a place in which lane."""

    def __init__(
        self,
        asks: Asks,
        shards: Shards,
        writes: ChangeEncoder,
        *,
        instant: Callable[[], bytes],
        now_ms: Callable[[], Instant],
        pace: RedisPace,
    ) -> None:
        self._asks = asks
        self._shards = shards
        self._writes = writes
        self._instant = instant
        self._now_ms = now_ms
        self._pace = pace
        self._looked_up_to: dict[int, str] = {}  # by shard, the active place that was looked at last

    # -- admission

    async def reserve(self, changes: Sequence[Change]) -> dict[str, Reservation]:
        """Places for runs that are to be admitted in other shards than that of their lane, by run."""
        wanted = [(run, change) for change in changes if (run := self._must_reserve(change)) is not None]
        if not wanted:
            return {}
        replies = await self._asks.ask([self._reserve_call(run, change) for run, change in wanted], writes=True)
        found: dict[str, Reservation] = {}
        for (run, _), reply in zip(wanted, map(scripts.RESERVE_PLACE.read, replies), strict=True):
            verdict = rows.text(reply.verdict)
            if verdict == "ok":
                found[run.id] = Reservation(until_ms=rows.text(reply.until_ms))
            else:
                found[run.id] = Reservation(verdict, rows.text(reply.first))
        return found

    def _must_reserve(self, change: Change) -> Run | None:
        """The run of an admission into a lane of another shard with limits."""
        run, entering = change.run, change.enters
        if run is None or entering is None or not isinstance(change.guard, KeyFree | KeyHeldBy):
            return None
        is_limited = entering.if_free or entering.parked_max is not None
        return run if is_limited and not self._writes.is_home(run, entering.lane) else None

    def _reserve_call(self, run: Run, change: Change) -> ScriptCall:
        entering = change.enters
        assert entering is not None
        _, _, _, _, _, width, rank, wake = enter_words(run, entering, run.wake_at_ms or run.created_at_ms)
        return scripts.RESERVE_PLACE.call(
            self._keys(run.namespace, entering.lane),
            now=self._instant(),
            id=run.id,
            lane=rows.lane_name(run.namespace, entering.lane),
            width=width,
            rank=rank,
            wake=wake,
            reserve_ms=self._pace.reserve_ms,
            parked_max="" if entering.parked_max is None else entering.parked_max,
            if_free=entering.if_free,
        )

    async def give_back(self, changes: Sequence[Change]) -> None:
        """Take back what was reserved for these, which were not admitted."""
        calls: list[ScriptCall] = []
        for change in changes:
            assert change.run is not None
            assert change.enters is not None
            keys = self._keys(change.run.namespace, change.enters.lane)
            calls.append(scripts.GIVE_BACK_PLACE.call(keys, now=self._instant(), ids=[change.run.id]))
        if calls:
            await self._asks.ask(calls, writes=True)

    # -- messages

    async def move(self, messages: Sequence[LeftMessage]) -> list[MovedPlace]:
        """Take messages about places to their shards, all in one round trip. What they have left is for the caller."""
        calls: list[ScriptCall] = []
        homes: list[int] = []
        for each in messages:
            call, shard = self._call(each.words)
            calls.append(call)
            homes.append(shard)
        replies = await self._asks.ask(calls, writes=True)
        return [
            _gone(each, reply) if each.words[0] == "go" else _moved(shard, reply)
            for each, shard, reply in zip(messages, homes, replies, strict=True)
        ]

    def _call(self, words: tuple[str, ...]) -> tuple[ScriptCall, int]:
        match words:
            case ("enter", namespace, lane, run_id, epoch, width, rank, wake):
                shard = self._shards.of_lane(namespace, lane)
                call = scripts.ENTER_LANE.call(
                    self._shards.of_shard(shard),
                    now=self._instant(),
                    id=run_id,
                    lane=rows.lane_name(namespace, lane),
                    epoch=epoch,
                    width=width,
                    rank=rank,
                    wake=wake,
                )
            case ("leave", namespace, lane, run_id, epoch):
                shard = self._shards.of_lane(namespace, lane)
                call = self._leave_call(shard, run_id, rows.lane_name(namespace, lane), epoch, home=False)
            case ("go", run_id, epoch, wake):
                shard = self._shards.of_run(run_id)
                call = scripts.GO.call(self._shards.whole(run_id), id=run_id, epoch=epoch, wake=wake)
            case _:
                raise ValueError(words)
        return call, shard

    def _leave_call(self, shard: int, run_id: str, lane: str, epoch: str, *, home: bool) -> ScriptCall:
        keys = self._shards.of_shard(shard)
        return scripts.LEAVE_LANE.call(keys, now=self._instant(), id=run_id, lane=lane, epoch=epoch, home=home)

    def forgotten_call(self, namespace: str, lane: str, run_id: str) -> ScriptCall:
        """The call that forgets that a run, which is gone, has left its lane."""
        return scripts.FORGET_PLACE.call(self._keys(namespace, lane), id=run_id)

    # -- what a person sets and sees

    async def set(self, setting: LaneSetting) -> MovedPlace:
        """Set a lane by hand, as it was when it was looked at; otherwise look again."""
        shard = self._shards.of_lane(setting.namespace, setting.name)
        while True:
            found = await self.states([(setting.namespace, setting.name)])
            before = found[0].lane if found else None
            after = lanes.set_by_hand(before or lanes.new(setting.namespace, setting.name, None), setting)
            audit = lanes.audit(before, after, by=setting.by, now_ms=self._now_ms())
            call = scripts.SET_LANE.call(
                self._shards.of_shard(shard),
                now=self._instant(),
                lane=rows.lane_name(setting.namespace, setting.name),
                before="" if before is None else f"{before.width}.{int(before.paused)}",
                width=after.width,
                paused=str(int(after.paused)),
                kept=kept.records((), (audit,)),
            )
            [reply] = await self._asks.ask([call], writes=True)
            if scripts.SET_LANE.read(reply).verdict == b"ok":
                return _moved(shard, reply)

    async def states(self, names: Sequence[tuple[str, str]]) -> list[LaneState]:
        """Those of these lanes, by namespace and name, that are there."""
        calls = [
            scripts.LANE_STATES.call(
                self._keys(namespace, name),
                now=self._instant(),
                limit=str(lanes.SHOWN_MAX),
                wanted=[rows.lane_name(namespace, name)],
            )
            for namespace, name in names
        ]
        replies = await self._asks.ask(calls)
        return [
            _state_of(namespace, name, found)
            for (namespace, name), reply in zip(names, replies, strict=True)
            for found in rows.items(reply)
            if found is not None
        ]

    async def page(self, namespace: str, *, after: str, limit: int) -> list[LaneState]:
        prefix = f"l\0{rows.safe(namespace)}\0"
        low, high = under(prefix.encode())
        low = b"(" + (prefix + rows.safe(after)).encode() if after else low
        members = sorted(await self._asks.between(low, high, limit=limit)) if limit > 0 else []
        names = [rows.unsafe(member[len(prefix) :]) for member in members[:limit]]
        return await self.states([(namespace, name) for name in names])

    async def standing(self, run: Run) -> LaneStanding | None:
        call = scripts.STANDING.call(self._keys(run.namespace, run.lane), now=self._instant(), id=run.id)
        [reply] = await self._asks.ask([call])
        if reply is None:
            return None
        active, ahead, first = rows.items(reply)
        assert isinstance(ahead, int)
        return LaneStanding(active == 1, ahead, rows.text(first) or None)

    # -- what is put right

    async def put_right(self, limit: int) -> list[LeftMessage | MovedPlace]:
        """Look after places whose run has not come in time, and those of runs that have ended."""
        return [*await self._overdue(limit), *await self._stale(limit)]

    async def _overdue(self, limit: int) -> list[LeftMessage | MovedPlace]:
        """Reservations that were not used in time: the run is there, and its message was lost; or the place is free."""
        now = rows.instant(self._now_ms() - self._pace.overdue_ms).encode()
        low, high = under(b"h\0", up_to=now)
        found = await self._asks.everywhere(scripts.RANGE, backwards=False, limit=str(limit), stretches=[(low, high)])
        moved: list[LeftMessage | MovedPlace] = []
        for shard, reply in zip(self._shards.all, found, strict=True):
            [members] = rows.items(reply)
            run_ids = [member.split("\0", 2)[2] for member in rows.texts(members)]
            if not run_ids:
                continue
            places, found_runs = await self._places(shard, run_ids), await self._asks.rows(run_ids)
            for run_id, place, run in zip(run_ids, places, found_runs, strict=True):
                if place is None:
                    continue
                if run is not None and run.lane and run.finished_at_ms is None and not run.aside:
                    namespace, lane = map(rows.unsafe, place[2].split("\0"))
                    words = ("enter", namespace, lane, run_id, str(run.epoch), "", place[3], place[5])
                    moved.append(LeftMessage(shard, b"", words))
                else:
                    keys = self._shards.of_shard(shard)
                    call = scripts.GIVE_BACK_PLACE.call(keys, now=self._instant(), ids=[run_id])
                    await self._asks.ask([call], writes=True)
                    moved.append(MovedPlace())
        return moved

    async def _stale(self, limit: int) -> list[LeftMessage | MovedPlace]:
        """Active places of runs that have ended, a page of each shard at a time."""
        moved: list[LeftMessage | MovedPlace] = []
        for stale in await self._ended(limit, self._looked_up_to):
            call = self._leave_call(stale.shard, stale.run_id, stale.lane, stale.epoch, home=stale.home)
            [reply] = await self._asks.ask([call], writes=True)
            moved.append(_moved(stale.shard, reply))
        return moved

    async def _ended(self, limit: int, looked_up_to: dict[int, str]) -> list[StalePlace]:
        """Active places of runs that have ended, behind where it was looked up to in each shard."""
        calls: list[ScriptCall] = []
        for shard in self._shards.all:
            low, high = under(b"g\0a\0")
            after = looked_up_to.get(shard, "")
            stretch = (b"(" + after.encode() if after else low, high)
            keys = self._shards.of_shard(shard)
            calls.append(scripts.RANGE.call(keys, backwards=False, limit=str(limit), stretches=[stretch]))
        found: list[StalePlace] = []
        for shard, reply in zip(self._shards.all, await self._asks.ask(calls), strict=True):
            [members] = rows.items(reply)
            active = rows.texts(members)
            looked_up_to[shard] = active[-1] if len(active) == limit else ""
            run_ids = [member.rpartition("\0")[2] for member in active]
            for run_id, member, run in zip(run_ids, active, await self._asks.rows(run_ids), strict=True):
                if run is None or run.finished_at_ms is not None:
                    _, _, namespace, lane, *_ = member.split("\0")
                    epoch, home = "" if run is None else str(run.epoch), self._shards.of_run(run_id) == shard
                    found.append(StalePlace(shard, run_id, f"{namespace}\0{lane}", epoch, home))
        return found

    async def finding(self) -> Finding:
        """What an inspection says of all lanes."""
        looked_at = lane_findings.LOOKED_AT_MAX
        members = await self._asks.between(*under(b"l\0"), limit=looked_at)
        names = [member.split("\0") for member in members[:looked_at]]
        states = await self.states([(rows.unsafe(namespace), rows.unsafe(name)) for _, namespace, name in names])
        ended = [stale.run_id for stale in await self._ended(looked_at, {})]
        return lane_findings.finding(states, ended=ended, without=await self._placeless(looked_at))

    async def _placeless(self, limit: int) -> list[str]:
        """Runs that should have a place, and have none."""
        of_shard: dict[int, list[str]] = {}
        for member in (await self._asks.between(*under(b"j\0"), limit=limit))[:limit]:
            _, namespace, lane, run_id = member.split("\0")
            of_shard.setdefault(self._shards.of_lane(rows.unsafe(namespace), rows.unsafe(lane)), []).append(run_id)
        without: list[str] = []
        for shard, run_ids in of_shard.items():
            places = await self._places(shard, run_ids)
            without += [
                run_id for run_id, place in zip(run_ids, places, strict=True) if place is None or place[1] == "l"
            ]
        live = [run for run in await self._asks.rows(without) if run is not None and run.finished_at_ms is None]
        return [run.id for run in live if run.lane and not run.aside]

    async def _places(self, shard: int, run_ids: Sequence[str]) -> list[_Place | None]:
        [reply] = await self._asks.ask([scripts.PLACES.call(self._shards.of_shard(shard), ids=run_ids)])
        packed = cast("list[bytes | None]", rows.items(reply))
        return [None if each is None else _place_of(each) for each in packed]

    async def forget_idle(self, limit: int) -> None:
        """Forget lanes that no run has used for a while."""
        await self._asks.everywhere(
            scripts.FORGET_LANES, confirmed=True, now=self._instant(), idle_ms=lanes.IDLE_MS, limit=str(limit)
        )

    def _keys(self, namespace: str, lane: str) -> Mapping[str, bytes]:
        return self._shards.of_shard(self._shards.of_lane(namespace, lane))


def reserved_for(change: Change, reservations: Mapping[str, Reservation]) -> Reservation:
    return NO_PLACE if change.run is None else reservations.get(change.run.id, NO_PLACE)


def _moved(shard: int, reply: Reply) -> MovedPlace:
    moved = scripts.PlaceReply(*rows.items(reply))
    left = tuple(left_in(shard, moved.left)) if moved.left else ()
    return MovedPlace(tuple(rows.texts(moved.told or [])), tuple(rows.texts(moved.woken or [])), left)


def _gone(message: LeftMessage, reply: Reply) -> MovedPlace:
    woken = rows.text(reply)
    return MovedPlace((message.words[1],), (woken,)) if woken else MovedPlace()


def _state_of(namespace: str, name: str, found: Reply) -> LaneState:
    row, active, parked, first_active, first_parked = cast("list[Any]", rows.items(found))
    width, declared, paused, next_number, empty_since_ms = _row_of(row)
    since = Instant(empty_since_ms) if empty_since_ms else None
    lane = Lane(namespace, name, width, declared, bool(paused), next_number, since)
    firsts = (tuple(rows.texts(ids)) for ids in (first_active, first_parked))
    return LaneState(lane, min(COUNT_MAX, active), min(COUNT_MAX, parked), *firsts)
