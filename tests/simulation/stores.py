"""The store of a simulated world: a memory store that tells what it does, may have two shards, and may lose its end.

Shards: a run lives in the shard of its key, or of its id. What a change has to say to a run of another shard is left in
an outbox and delivered at once, as the stores on many servers do; or it stays there, if the sender was cut off in
between, until `relay` finds it.

A lossy primary: between `begin_losing` and `fail_over` everything is applied and can be read, and no writer hears of
it. Then all of that is gone.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from holdfast.errors import StoreUnavailable
from holdfast.kernel.changes import Answer, Change, Committed, Refused
from holdfast.kernel.messages import Envelope
from holdfast.kernel.runs import Run
from holdfast.kernel.times import END_OF_TIME, Instant, Millis
from holdfast.ports.notices import ANYTHING
from holdfast.ports.store import Claim, Claimed, Serves
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.tables import Tables
from holdfast.stores.memory.writes import MemoryWrites
from holdfast.testing.histories.history import (
    LeaseChanged,
    MessageDelivered,
    Record,
    RunMoved,
    StoreWrite,
    WriteOutcome,
)
from holdfast.testing.histories.recording import fence_seen, run_of, store_write
from holdfast.testing.simulation.network import Fate, Observer, StoreCall, StoreModel
from holdfast.testing.simulation.world import World

WRITING = frozenset({"commit", "claim", "join", "renew", "leave", "rescue", "prune", "write", "relay", "held"}) | {
    *("set_lane", "drop_outs", "drop_audits")
}


class StoreWitness(Observer, Protocol):
    """Is told more than an observer: every change as it is decided, and every run that moves."""

    def record(self, record: Record) -> None: ...
    def leaves_behind(self, call: StoreCall) -> bool:
        """Whether the sender is cut off before it delivers what this call leaves for another shard."""
        ...

    def relayed(self, count: int) -> None: ...
    def stolen(self, run: str, owner: str) -> None:
        """A run was taken from an owner whose lease had expired."""
        ...

    def unheard(self, call: StoreCall) -> None:
        """A call arrives at a primary whose replies are lost."""
        ...

    def forgot(self, writes: tuple[str, ...], runs: tuple[str, ...]) -> None: ...


class ClusterTables(Tables):
    """Tables with an outbox, which can be copied, and which know when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox: list[Envelope] = []
        self.written = 0

    def put(self, run: Run) -> Run:
        self.written += 1
        return super().put(run)

    def copy(self) -> dict[str, Any]:
        """All that is stored. What the tables hold never changes; only the tables do, and what is collected in them."""
        return {name: _copied(value) for name, value in vars(self).items()}

    def restore(self, copied: dict[str, Any]) -> None:
        vars(self).update({name: _copied(value) for name, value in copied.items()})


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return list(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]


class ClusterWrites(MemoryWrites):
    """Tells each change as it was decided. What is for another shard goes through the outbox."""

    def __init__(self, tables: ClusterTables, now_ms: Callable[[], Instant], model: ClusterStore) -> None:
        super().__init__(tables, now_ms)
        self.tables = tables
        self._model = model
        self._shard: int | None = None
        self._told: list[StoreWrite] | None = None

    def apply(self, change: Change) -> Answer:
        if self._told is not None:  # a successor, within another change
            return self._decided(change)
        self._told, self._shard = [], self._model.shard_of(self._home_of(change))
        before = len(self.tables.outbox)
        try:
            answer = self._decided(change)
            if len(self.tables.outbox) > before and isinstance(answer, Committed) and not self._model.leaves_behind():
                answer = Committed(answer.run, (*answer.told, *self._deliver_behind(before)))
            # A change is told before the successor that it admits.
            for write in reversed(self._told):
                self._model.tell(write)
            return answer
        finally:
            self._told = self._shard = None

    def _home_of(self, change: Change) -> Run | str:
        run_id = run_of(change)
        return change.run or self.tables.runs.get(run_id) or run_id

    def _decided(self, change: Change) -> Answer:
        tables, run_id = self.tables, run_of(change)
        before, written = tables.runs.get(run_id), tables.written
        answer = super().apply(change)
        if isinstance(answer, Refused):
            outcome: WriteOutcome = "refused"
        else:
            is_news = tables.written > written or change.watcher is not None or change.run is None
            outcome = "accepted" if is_news else "repeated"
        assert self._told is not None
        after = tables.runs.get(run_id)
        self._told.append(self._model.seen(change, outcome, before, after))
        return answer

    def _deliver(self, envelopes: tuple[Envelope, ...]) -> tuple[str, ...]:
        here = tuple(each for each in envelopes if self._is_here(each))
        self.tables.outbox += [each for each in envelopes if not self._is_here(each)]
        return self._put_into_inboxes(here)

    def _put_into_inboxes(self, envelopes: tuple[Envelope, ...]) -> tuple[str, ...]:
        told: list[str] = []
        for envelope in envelopes:
            if super()._deliver((envelope,)):
                told.append(envelope.run_id)
                self._model.delivered(envelope)
        return tuple(told)

    def _is_here(self, envelope: Envelope) -> bool:
        run = self.tables.runs.get(envelope.run_id)
        return run is None or self._shard is None or self._model.shard_of(run) == self._shard

    def _deliver_behind(self, before: int) -> tuple[str, ...]:
        """Take what this change has left to its shards."""
        leaving = tuple(self.tables.outbox[before:])
        del self.tables.outbox[before:]
        return self._put_into_inboxes(leaving)

    def deliver_outbox(self, limit: int) -> tuple[str, ...]:
        """Take messages to their shards; returns the runs that got one."""
        leaving, self.tables.outbox = self.tables.outbox[:limit], self.tables.outbox[limit:]
        return self._put_into_inboxes(tuple(leaving))


class ClusterMemory(MemoryStore):
    """A memory store with such tables."""

    def __init__(self, model: ClusterStore) -> None:
        super().__init__(clock=model.clock)
        self._model = model
        self._tables = ClusterTables()
        self.writes = ClusterWrites(self._tables, self.now_ms, model)
        self._writes = self.writes

    @property
    def tables(self) -> ClusterTables:
        return self._tables

    async def commit(self, changes: Sequence[Change]) -> list[Answer]:
        answers = await super().commit(changes)
        if self._model.was_cut_off():
            raise StoreUnavailable("the connection broke before all was delivered")
        return answers

    async def relay(self, limit: int) -> int:
        count = min(limit, len(self.tables.outbox))
        self.writes.deliver_outbox(count)
        if count:
            self._model.witness.relayed(count)
        return count

    async def claim(self, claim: Claim) -> Claimed:
        claimed = await super().claim(claim)
        for run in claimed.runs:
            self._model.moved("claimed", run)
        return claimed

    async def join(self, owner: str, ttl_ms: Millis, serves: Serves | None = None) -> None:
        await super().join(owner, ttl_ms, serves)
        self._model.leased("joined")

    async def renew(self, owner: str, ttl_ms: Millis) -> bool:
        renewed = await super().renew(owner, ttl_ms)
        self._model.leased("renewed" if renewed else "lapsed")
        return renewed

    async def leave(self, owner: str) -> None:
        held = await self.held(owner)
        await super().leave(owner)
        for run in await self.runs(held):
            self._model.moved("left", run)
        self._model.leased("left")

    async def prune(self, limit: int) -> int:
        before = dict(self.tables.runs)
        pruned = await super().prune(limit)
        for run_id, run in before.items():
            if run_id not in self.tables.runs:
                self._model.moved("pruned", run)
        return pruned

    async def rescue(self, limit: int, *, expired_until_ms: Instant = END_OF_TIME) -> list[str]:
        owners = {run.id: run.owner or "" for run in await self.fallen(limit)}
        rescued = await super().rescue(limit, expired_until_ms=expired_until_ms)
        for run in await self.runs(rescued):
            self._model.moved("rescued", run, owners.get(run.id, ""))
        return rescued


class ClusterStore(StoreModel):
    """The store, and the ways to it."""

    def __init__(self, world: World, witness: StoreWitness, *, shards: int, limit_seconds: float) -> None:
        super().__init__(world, witness, limit_seconds=limit_seconds)
        self.witness = witness
        self.memory = ClusterMemory(self)
        self.inner = self.memory
        self.under_way = 0  # calls that have been sent, and have not arrived
        self._shards = shards
        self._kept: dict[str, Any] | None = None  # what survives the primary
        self._unsure: list[StoreWrite] = []  # what does not
        self._call: StoreCall | None = None
        self._is_cut_off = False

    # -- shards

    def shard_of(self, run: Run | str) -> int:
        """Where a run lives: with the others of its key."""
        if self._shards == 1:
            return 0
        home = run if isinstance(run, str) else (run.id if run.key is None else f"{run.workflow}/{run.key}")
        return zlib.crc32(home.encode()) % self._shards

    def leaves_behind(self) -> bool:
        if self._call is None or not self.witness.leaves_behind(self._call):
            return False
        self._is_cut_off = True
        return True

    def was_cut_off(self) -> bool:
        """Whether the sender of this call was cut off before it had delivered all."""
        was, self._is_cut_off = self._is_cut_off, False
        return was

    # -- calls

    def send(self, call: StoreCall, reply: asyncio.Future[Any]) -> None:
        self.under_way += 1
        super().send(call, reply)

    def lost(self) -> None:
        """A call that was sent does not arrive."""
        self.under_way -= 1

    def _apply(self, call: StoreCall, reply: asyncio.Future[Any], fate: Fate) -> None:
        self.under_way -= 1
        if self._kept is not None and call.verb == "prune":
            self.give_up_on(call, reply)  # or what it removes would have to be told as having come back
            return
        if self._kept is not None and call.verb in WRITING:
            fate = fate._replace(reply_lost=True)
            self.witness.unheard(call)
            self.give_up_on(call, reply)
        self._call = call
        super()._apply(call, reply, fate)
        self._call = None

    # -- the history

    def seen(self, change: Change, outcome: WriteOutcome, before: Run | None, after: Run | None) -> StoreWrite:
        return store_write(change, outcome, at_ms=self.inner.now_ms(), host=self._host, before=before, after=after)

    def tell(self, write: StoreWrite) -> None:
        if self._kept is not None and write.outcome == "accepted":
            self._unsure.append(write)
        self.witness.record(write)

    def delivered(self, envelope: Envelope) -> None:
        at_ms, message_id = self.inner.now_ms(), envelope.message.id
        self.witness.record(MessageDelivered(at_ms=at_ms, what="message", run=envelope.run_id, id=message_id))

    def moved(self, how: Literal["claimed", "rescued", "left", "pruned"], run: Run, owner: str = "") -> None:
        """A run has another holder, or none."""
        at_ms = self.inner.now_ms()
        self.witness.record(RunMoved(at_ms=at_ms, how=how, run=run.id, host=self._host, fence=fence_seen(run)))
        if owner:
            self.witness.stolen(run.id, owner)

    def leased(self, how: Literal["joined", "renewed", "lapsed", "left"]) -> None:
        self.witness.record(LeaseChanged(at_ms=self.inner.now_ms(), how=how, host=self._host))

    @property
    def _host(self) -> str:
        return "" if self._call is None else self._call.host.name

    # -- a primary that is lost

    def begin_losing(self) -> None:
        """From now on no replica hears of what is written."""
        if self._kept is None:
            self._kept, self._unsure = self.memory.tables.copy(), []

    def fail_over(self) -> None:
        """The replica takes over."""
        if self._kept is None:
            return
        before, tables = dict(self.memory.tables.runs), self.memory.tables
        tables.restore(self._kept)
        changed = tuple(run_id for run_id, run in before.items() if tables.runs.get(run_id) != run)
        self.witness.forgot(tuple(write.write for write in self._unsure), changed)
        self._kept, self._unsure = None, []
        # Connections are broken by it, so every process looks again.
        for host, on_notice in self._watchers:
            if host.is_alive:
                self._tell(host, on_notice, ANYTHING)
