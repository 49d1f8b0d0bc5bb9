"""The store on Redis: shards that each live in one slot, one script per verb, and Redis' clock.

- A batch of changes is one round trip, and one more for what crosses shards. Each change is one script in one slot.
- What selects among shards (claims, rescues, lists) looks into all of them first, and then asks each run's own shard
  to move it if it is still as it was.
- The clock is Redis' own. This process reckons with it between two looks, close to it and never backwards.
- Notices of what has changed travel by the bus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec.structs import replace

from holdfast.errors import InvalidConfig, TransientError
from holdfast.kernel.audits import Audits
from holdfast.kernel.changes import Answer, Beat, Change, HookOpen
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.fairness import FairTurn
from holdfast.kernel.lanes import LaneSetting, LaneStanding, LaneState
from holdfast.kernel.messages import Message
from holdfast.kernel.outs import Outs
from holdfast.kernel.runs import SETTLED, Run, Status
from holdfast.kernel.searches import Search
from holdfast.kernel.times import END_OF_TIME, EPOCH, Instant, Millis
from holdfast.ports.bus import Bus
from holdfast.ports.clock import Clock
from holdfast.ports.notices import Notice, Ready
from holdfast.ports.store import (
    COUNT_MAX,
    Backlog,
    Batches,
    Claim,
    Claimed,
    Depth,
    Finding,
    History,
    KnownHook,
    Member,
    Serves,
)
from holdfast.stores.notices import of_documents
from holdfast.stores.redis import inspections, rows, scripts
from holdfast.stores.redis.commits import Commits, ready_of
from holdfast.stores.redis.documents import RedisDocuments
from holdfast.stores.redis.encode_change import ChangeEncoder, token_name
from holdfast.stores.redis.kept import RedisKept
from holdfast.stores.redis.lanes import RedisLanes
from holdfast.stores.redis.leases import Leases
from holdfast.stores.redis.limiter import RedisLimiter
from holdfast.stores.redis.net.client import RedisClient, Reply
from holdfast.stores.redis.net.clocks import ServerClock
from holdfast.stores.redis.net.urls import RedisUrl
from holdfast.stores.redis.notifier import Notifier
from holdfast.stores.redis.outbox import BLOBS_MS, Outbox
from holdfast.stores.redis.pace import PACE, RedisPace
from holdfast.stores.redis.rows import instant, safe, under
from holdfast.stores.redis.rules import InTurn, RedisRules
from holdfast.stores.redis.script_calls import Asks
from holdfast.stores.redis.searches import Searches
from holdfast.stores.redis.shards import Shards

# Two: Redis works on one while we prepare the next. Measured: smaller ones, and more of them, cost this process up to
# half as much again, since each is a system call and a wake-up at both ends.
BATCHES = Batches(size=32, at_once=2)
LAYOUT = "1"  # of keys, rows and members: a store of another one is not touched
CLAIM_TRIES = 5
LOOKS = 5  # at Redis' clock, each time: one of them may meet a server that is busy


class RedisStore:
    """All shards of one name."""

    def __init__(self, url: RedisUrl, *, clock: Clock, bus: Bus, pace: RedisPace = PACE) -> None:
        self._pace = pace
        self._url = url
        self._clock = clock
        self._client = RedisClient(url, clock=clock, pace=pace)
        self._shards = self._places(url)
        self._writes = ChangeEncoder(self._shards, self._instant, self.now_ms)
        self._asks = Asks(self._client, self._shards)
        self._lanes = RedisLanes(
            self._asks, self._shards, self._writes, instant=self._instant, now_ms=self.now_ms, pace=pace
        )
        self._outbox = Outbox(
            self._asks, self._shards, self._writes, self._lanes, clock=clock, instant=self._instant, pace=pace
        )
        self._rules = RedisRules(self._asks, self._shards, instant=self._instant, now_ms=self.now_ms)
        self._commits = Commits(
            self._asks, self._shards, self._writes, self._outbox, lanes=self._lanes, rules=self._rules
        )
        self._documents = RedisDocuments(self._asks, self._shards, self._instant)
        self._kept = RedisKept(self._asks, self._shards)
        self._searches = Searches(self._asks, self._shards)
        self._leases = Leases(self._asks, self._shards, self._instant)
        self._limiter = RedisLimiter(self._client, self._shards, self._instant)
        self._notifier = Notifier(bus)
        self._server_clock = ServerClock()
        self._latest_at_ms = EPOCH
        self._keeping_time: asyncio.Task[None] | None = None

    def _places(self, url: RedisUrl) -> Shards:
        return Shards(url.name, url.shards)

    def _instant(self) -> bytes:
        """The instant for a script: nothing, so that it asks Redis. Tests bring their own."""
        return b""

    @property
    def batches(self) -> Batches:
        return BATCHES

    @property
    def caution(self) -> str:
        return self._client.caution

    @property
    def poll_reason(self) -> str:
        return ""

    async def open(self) -> None:
        await self._client.open()
        try:
            await self._check_shards()
            await self._look_at_clock()
            await self._notifier.open()
        except BaseException:
            await self._notifier.close()
            await self._client.close()
            raise
        self._keeping_time = asyncio.create_task(self._keep_time())

    async def close(self) -> None:
        try:
            if self._keeping_time is not None:
                self._keeping_time.cancel()
                await asyncio.wait([self._keeping_time])
                await self._outbox.close()
        finally:
            await self._notifier.close()
            await self._client.close()

    async def _check_shards(self) -> None:
        """The process that comes first decides on the number of shards, and on how they are laid out.

        A store that exists is opened without a write: a replica that is away must keep no process from starting.
        """
        wanted = f"{LAYOUT}:{self._shards.count}".encode()
        keys = self._shards.layout
        [known] = await self._asks.ask([scripts.SHARDS.call(keys, wanted="")])
        if known is None:
            [known] = await self._asks.ask([scripts.SHARDS.call(keys, wanted=wanted)], writes=True)
        layout, _, count = rows.text(known).partition(":")
        if layout != LAYOUT:
            raise InvalidConfig(
                f"the store {self._url.name!r} is laid out as version {layout}, and this Holdfast knows {LAYOUT}",
                hint="A newer Holdfast has made it: install that one, or name another store with name=.",
            )
        if int(count) != self._shards.count:
            raise InvalidConfig(
                f"the store {self._url.name!r} has {count} shards, and the URL says {self._shards.count}",
                hint=f"Their number is fixed when a store is made: write shards={count}, or another name=.",
            )

    # -- time

    def now_ms(self) -> Instant:
        # Never backwards, also when a failover brings a server whose clock is behind: instants that this process has
        # written must not lie in its future.
        self._latest_at_ms = max(
            self._latest_at_ms, Instant(int(self._clock.steady_ms() + self._server_clock.ahead_ms))
        )
        return self._latest_at_ms

    async def _look_at_clock(self) -> None:
        key = self._shards.leases["expiries"]
        self._server_clock.take([await self._client.time(key) for _ in range(LOOKS)])

    async def _keep_time(self) -> None:
        while True:
            await self._clock.pause(self._pace.clock_seconds)
            try:
                await self._look_at_clock()
            except TransientError:
                continue  # the steady clock goes on

    # -- commit

    def id_for(self, run_id: str, *, namespace: str, workflow: str, key: str | None, lane: str = "") -> str:
        return self._shards.id_for(run_id, namespace=namespace, workflow=workflow, key=key, lane=lane)

    async def commit(self, changes: Sequence[Change]) -> list[Answer]:
        try:
            outcomes = await self._commits.commit(changes)
        except TransientError:
            self._notifier.note_unsure()
            raise
        now_ms = self.now_ms()
        moved: list[str] = []
        told: list[str] = []
        ready: list[Ready] = []
        settled: list[str] = []
        for change, outcome in zip(changes, outcomes, strict=True):
            if outcome.committed and outcome.run is not None:
                moved.append(outcome.run.id)
                if outcome.run.status in SETTLED:
                    settled.append(outcome.run.id)
                told += outcome.told
                ready += ready_of(change, outcome, now_ms=now_ms)
        notice = Notice(tuple(moved), tuple(told), tuple(ready), settled=tuple(settled))
        self._notifier.tell(notice, now_ms=now_ms)
        return [outcome.answer() for outcome in outcomes]

    # -- claim

    async def claim(self, claim: Claim) -> Claimed:
        """Others may be faster with some of what is ready: then there may be more, and we look again."""
        runs: list[Run] = []
        ready_at_ms: list[Instant] = []
        for _ in range(CLAIM_TRIES if claim.workflows else 0):
            left = claim.limit - len(runs)
            if left <= 0:
                break
            ready, turns = await self._ready(claim, left)
            taken = await self._take(claim, [each.run_id for each in ready])
            if turns:
                await self._rules.begin(taken, [each.run_id for each in ready], turns)
            runs += taken
            mine = {run.id for run in taken}
            ready_at_ms += [each.wake_at_ms for each in ready if each.run_id in mine]
            if len(taken) == len(ready):
                break
        if runs:
            self._notifier.tell(Notice(tuple(run.id for run in runs)), now_ms=self.now_ms())
        return Claimed(runs, min(ready_at_ms, default=None))

    async def _ready(self, claim: Claim, limit: int) -> InTurn:
        prefixes = [rows.workflow_wakes(claim.namespace, workflow).encode() for workflow in claim.workflows]
        replies = await self._asks.everywhere(scripts.READY, **self._writes.instants(), limit=limit, prefixes=prefixes)
        return await self._rules.in_turn(replies, limit)

    async def _take(self, claim: Claim, run_ids: list[str]) -> list[Run]:
        calls = [self._writes.take_call(run_id, claim.owner, claim.nonce) for run_id in run_ids]
        return [run for row in await self._asks.ask(calls, writes=True) if (run := rows.run_of(row)) is not None]

    async def next_wake_at_ms(self, namespace: str, workflows: tuple[str, ...]) -> Instant | None:
        prefixes = [rows.workflow_wakes(namespace, workflow).encode() for workflow in workflows]
        replies = await self._asks.everywhere(scripts.WAKES, prefixes=prefixes)
        wakes = (rows.waking_of(member)[1].wake_at_ms for reply in replies for member in rows.texts(reply))
        return min(wakes, default=None)

    # -- reads

    async def run(self, namespace: str, run_id: str) -> Run | None:
        found = await self.runs([run_id])
        return found[0] if found and found[0].namespace == namespace else None

    async def runs(self, run_ids: Sequence[str]) -> list[Run]:
        return await self._searches.rows(list(run_ids))

    async def run_of_key(self, namespace: str, workflow: str, key: str) -> Run | None:
        names = self._shards.names(self._shards.of_key(namespace, workflow, key))
        call = scripts.FIELD.call({"hash": names}, field=rows.key_name(namespace, workflow, key))
        [run_id] = await self._asks.ask([call])
        return None if run_id is None else await self.run(namespace, rows.text(run_id))

    async def histories(self, run_ids: Sequence[str]) -> list[History]:
        calls = [scripts.HISTORY.call(self._shards.whole(run_id)) for run_id in run_ids]
        return [found for reply in await self._asks.ask(calls) if (found := _history_of(reply)) is not None]

    async def messages(self, owner: str, among: Collection[str] | None = None) -> dict[str, list[Message]]:
        run_ids = await self._of_owner(b"m", owner) if among is None else list(among)
        calls = [scripts.MAIL.call(self._shards.whole(run_id), owner=owner) for run_id in run_ids]
        replies = await self._asks.ask(calls)
        found: dict[str, list[Message]] = {}
        for run_id, reply in zip(run_ids, replies, strict=True):
            for body in rows.messages_of(reply):
                if (message := rows.message_of(body)) is not None:
                    found.setdefault(run_id, []).append(message)
        return found

    async def held(self, owner: str) -> list[str]:
        """Confirmed like a write: work begins on what is named here, and no failover may give it to another process."""
        return await self._of_owner(b"o", owner, confirmed=True)

    async def _of_owner(self, kind: bytes, owner: str, *, confirmed: bool = False) -> list[str]:
        prefix = kind + b"\0" + owner.encode() + b"\0"
        members = await self._asks.between(*under(prefix), limit=-1, confirmed=confirmed)
        return [member.split("\0", 2)[2] for member in members]

    async def blob(self, run_id: str, digest: str) -> bytes | None:
        [data] = await self._asks.ask([scripts.BLOB.call(self._shards.whole(run_id), digest=digest)])
        assert data is None or isinstance(data, bytes)
        return data

    async def search(self, search: Search) -> list[Run]:
        return await self._searches.search(search)

    async def hook(self, run_id: str, name: str) -> HookOpen | None:
        [aux] = await self._asks.ask([scripts.HASH.call({"hash": self._shards.part(b"aux", run_id)})])
        opened: list[tuple[str, HookOpen, str]] = []
        for place, value in rows.with_prefix(rows.table(aux), b"h\0"):
            known, token = map(rows.unsafe, place.split("\0"))
            age, token_at, schema, _ = rows.unpack(value)
            if known == name:
                opened.append((age, HookOpen(name, token or None, schema.encode() or None), token_at))
        for _, hook, token_at in sorted(opened, key=lambda each: each[0], reverse=True):
            if not token_at or await self._has_token(run_id, token_at, hook):
                return hook
        return None

    async def _has_token(self, run_id: str, token_at: str, hook: HookOpen) -> bool:
        """Whether the token is still this run's: another one may have taken it when this one had ended."""
        held = await self._token(rows.unsafe(token_at.split("\0")[1]), hook.token or "")
        return held is not None and held[0] == run_id

    async def _token(self, namespace: str, token: str) -> list[str] | None:
        names = self._shards.names(self._shards.of_token(namespace, token))
        [held] = await self._asks.ask([scripts.FIELD.call({"hash": names}, field=token_name(namespace, token))])
        assert held is None or isinstance(held, bytes)
        return None if held is None else rows.unpack(held)

    async def hook_of_token(self, namespace: str, token: str) -> KnownHook | None:
        held = await self._token(namespace, token)
        if held is None:
            return None
        run_id, name, schema, _ = held
        run = await self.run(namespace, run_id)
        return None if run is None else KnownHook(run, HookOpen(name, token, schema.encode() or None))

    async def backlog(self, namespace: str) -> Backlog:
        prefix = f"s\0{safe(namespace)}\0"
        totals = await self._asks.count([under(f"{prefix}{status}\0".encode()) for status in Status])
        statuses = {status: min(COUNT_MAX, total) for status, total in zip(Status, totals, strict=True)}
        parts = await self._asks.everywhere(scripts.FIRSTS, prefix=f"w\0{safe(namespace)}\0")
        workflows = sorted({rows.unsafe(part) for reply in parts for part in rows.texts(reply)})
        depths = [await self._depth(namespace, workflow) for workflow in workflows]
        return Backlog(statuses, tuple(depth for depth in depths if depth is not None))

    async def _depth(self, namespace: str, workflow: str) -> Depth | None:
        prefix = rows.workflow_wakes(namespace, workflow).encode()
        replies = await self._asks.everywhere(scripts.WAKES, prefixes=[prefix])
        firsts = [rows.waking_of(member)[1] for reply in replies for member in rows.texts(reply)]
        if not firsts:
            return None
        now_ms = self.now_ms()
        ranks = sorted({each.rank for each in firsts})
        now = instant(now_ms + Millis(1)).encode()
        ready = sum(await self._asks.count([under(prefix + rank.encode() + b"\0", up_to=now) for rank in ranks]))
        oldest = min(firsts, key=lambda each: (each.wake_at_ms, each.run_id))
        first = await self.runs([oldest.run_id])
        queue = first[0].queue if first else ""
        return Depth(workflow, queue, min(COUNT_MAX, ready), oldest.wake_at_ms if oldest.wake_at_ms <= now_ms else None)

    async def inspect(self) -> tuple[Finding, ...]:
        return (*await inspections.inspect(self._client), await self._lanes.finding())

    # -- leases

    async def join(self, owner: str, ttl_ms: Millis, serves: Serves | None = None) -> None:
        told = serves or Serves("", ())
        await self._leases.join(owner, ttl_ms, told)
        self._notifier.serve(told)

    async def renew(self, owner: str, ttl_ms: Millis) -> bool:
        return await self._leases.renew(owner, ttl_ms)

    async def leave(self, owner: str) -> None:
        """First the lease: what is taken up under it from now on, a rescue will find."""
        await self._leases.end([owner])
        await self._free(owner, await self._of_owner(b"o", owner))

    async def fallen(self, limit: int) -> list[Run]:
        found: list[str] = []
        for owner in await self._leases.fallen():
            found += (await self._of_owner(b"o", owner))[: limit - len(found)]
        return await self.runs(found) if found else []

    async def rescue(self, limit: int, *, expired_until_ms: Instant = END_OF_TIME) -> list[str]:
        rescued: list[str] = []
        for owner in await self._leases.end_fallen(expired_until_ms):
            # Others may rescue at the same time: what they are faster with, we look for among the rest.
            before: list[str] = []
            while len(rescued) < limit and (held := await self._of_owner(b"o", owner)) != before:
                rescued += await self._free(owner, held[: limit - len(rescued)])
                before = held
        return rescued

    async def _free(self, owner: str, run_ids: list[str]) -> list[str]:
        calls = [
            scripts.FREE.call(self._shards.whole(run_id), now=self._instant(), id=run_id, owner=owner)
            for run_id in run_ids
        ]
        freed = dict(zip(run_ids, map(rows.text, await self._asks.ask(calls, writes=True)), strict=True))
        now_ms = self.now_ms()
        ready = tuple(Ready(*rows.woken_workflow(prefix), now_ms) for prefix in freed.values() if prefix)
        self._notifier.tell(Notice(tuple(freed), ready=ready), now_ms=now_ms)
        return [run_id for run_id, prefix in freed.items() if prefix]

    async def served(self, namespace: str) -> frozenset[str]:
        return frozenset(name for each in await self._leases.live(namespace) for name in each.serves.workflows)

    async def members(self, namespace: str) -> list[Member]:
        live = await self._leases.live(namespace)
        holds = await self._asks.count([under(f"o\0{member.owner}\0".encode()) for member in live])
        found = [replace(member, holds=count) for member, count in zip(live, holds, strict=True)]
        return sorted(found, key=lambda member: (member.joined_at_ms, member.owner))

    # -- retention and relay

    async def prune(self, limit: int) -> int:
        now = instant(self.now_ms() + Millis(1)).encode()
        over = sorted(await self._asks.between(*under(b"x\0", up_to=now), limit=limit))[:limit]
        pruned = await self._forget(await self.runs([member.split("\0", 2)[2] for member in over]))
        await self._lanes.forget_idle(limit)
        return pruned + await self._documents.prune(limit - pruned, now_ms=self.now_ms())

    async def _forget(self, over: list[Run]) -> int:
        calls = [
            scripts.FORGET.call(
                self._shards.whole(run.id),
                now=self._instant(),
                id=run.id,
                blobs_ms=str(BLOBS_MS),
                lasting_members=rows.lasting_members(run),
                further=[rows.pack(("absent", run.namespace, run.lane, run.id))] if self._has_left(run) else (),
            )
            for run in over
        ]
        replies = map(scripts.FORGET.read, await self._asks.ask(calls, writes=True))
        gone = [(run, reply) for run, reply in zip(over, replies, strict=True) if reply.verdict == b"ok"]
        await self._outbox.deliver([left for run, reply in gone for left in self._outbox.left_by(run.id, reply.left)])
        return len(gone)

    def _has_left(self, run: Run) -> bool:
        """Whether the shard of its lane, which is another one, knows that the run has left."""
        return bool(run.lane) and not self._writes.is_home(run, run.lane)

    async def relay(self, limit: int) -> int:
        relayed = await self._outbox.relay(limit)
        now_ms = self.now_ms()
        told = tuple(run_id for each in relayed for run_id in each.told)
        woken = [prefix for each in relayed for prefix in each.woken]
        self._notifier.tell(Notice(told, told, _ready(woken, now_ms)), now_ms=now_ms)
        return len(relayed)

    # -- flow rules

    async def turn(self, run: Run) -> FairTurn | None:
        return await self._rules.turn(run)

    # -- lanes

    async def set_lane(self, setting: LaneSetting) -> LaneState:
        moved = await self._outbox.follow(await self._lanes.set(setting))
        now_ms = self.now_ms()
        self._notifier.tell(Notice(moved.told, moved.told, _ready(moved.woken, now_ms)), now_ms=now_ms)
        state = await self.lane(setting.namespace, setting.name)
        assert state is not None
        return state

    async def lane(self, namespace: str, name: str) -> LaneState | None:
        found = await self._lanes.states([(namespace, name)])
        return found[0] if found else None

    async def lanes(self, namespace: str, *, after: str = "", limit: int = 100) -> list[LaneState]:
        return await self._lanes.page(namespace, after=after, limit=limit)

    async def standing(self, run: Run) -> LaneStanding | None:
        return await self._lanes.standing(run)

    # -- outs and audits

    async def outs(self, namespace: str, *, after: str = "", limit: int = 100) -> Outs:
        return await self._kept.outs(namespace, after=after, limit=limit)

    async def drop_outs(self, namespace: str, places: Sequence[str]) -> None:
        await self._kept.drop_outs(namespace, places)

    async def audits(self, namespace: str, *, after: str = "", limit: int = 100) -> Audits:
        return await self._kept.audits(namespace, after=after, limit=limit)

    async def drop_audits(self, namespace: str, places: Sequence[str]) -> None:
        await self._kept.drop_audits(namespace, places)

    # -- documents

    async def write(self, writings: Sequence[Writing]) -> list[bool]:
        written = await self._documents.write(writings)
        self._notifier.tell(of_documents(writings, written), now_ms=self.now_ms())
        return written

    async def document(self, namespace: str, kind: str, id: str) -> Document | None:
        found = await self._documents.named([(namespace, kind, id)])
        return found[0] if found else None

    async def named(self, places: Sequence[tuple[str, str, str]]) -> list[Document]:
        return await self._documents.named(places)

    async def documents(self, namespace: str, kind: str, *, after: str = "", limit: int = 100) -> list[Document]:
        return await self._documents.page(namespace, kind, after=after, limit=limit)

    async def due(self, namespace: str, kinds: Sequence[str], limit: int) -> list[Document]:
        return await self._documents.due(namespace, kinds, limit, now_ms=self.now_ms())

    # -- limits

    @property
    def limiter(self) -> RedisLimiter:
        return self._limiter

    # -- notices

    def watch(self, on_notice: Callable[[Notice], bool]) -> None:
        self._notifier.watch(on_notice)


def _ready(woken: Iterable[str], now_ms: Instant) -> tuple[Ready, ...]:
    return tuple(Ready(*rows.woken_workflow(prefix), now_ms) for prefix in woken)


def _history_of(reply: Reply) -> History | None:
    found = scripts.HISTORY.read(reply)
    run = rows.run_of(found.row)
    if run is None:
        return None
    return History(
        run,
        rows.journal_of(found.journal),
        tuple(rows.decode_message(body) for body in rows.messages_of(found.mail)),
        tuple(Beat(step, details) for step, details in rows.with_prefix(rows.table(found.aux), b"t\0")),
    )
