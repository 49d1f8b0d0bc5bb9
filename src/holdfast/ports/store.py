"""The store: the only record. Five families of verb, and no policy.

    commit              many independent Changes in one round trip, each atomic, each with its own result
    claim               the one selection a store makes
    reads               by id, by key, by run, by what a run shows; how much there is to do
    leases              join, renew, leave, look at what an expired one held, rescue it
    documents           small records beside the runs, changed by compare-and-set

Beside it is a limiter, which counts and keeps no record: see `ports.limiter`.

A store may keep runs in several shards. One commit is atomic within a shard; what it has to tell runs of another one
is an idempotent message, delivered before `commit` returns, or by `relay` if the process that committed it has died.

Rules for every store
- What `commit` has confirmed is durable. A call that raises `StoreUnavailable` may or may not have been applied;
  the same Changes are offered again, with the result of the first time.
- `now_ms` is the store's clock as this process knows it. It never runs backwards, and wall-clock steps of the
  machine do not move it.
- A fence once refused stays refused: claim, rescue and retry raise the epoch, and nothing lowers it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct, field

from holdfast.kernel.audits import Audits
from holdfast.kernel.changes import Answer, Beat, Change, HookOpen
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.fairness import FairTurn
from holdfast.kernel.journal import Entry
from holdfast.kernel.lanes import LaneSetting, LaneStanding, LaneState
from holdfast.kernel.leases import instance_of
from holdfast.kernel.messages import Message
from holdfast.kernel.outs import Outs
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import Search
from holdfast.kernel.times import END_OF_TIME, Instant, Millis
from holdfast.kernel.units import utc_of, utc_or_none
from holdfast.ports.limiter import Limiter
from holdfast.ports.notices import Notice


class Batches(Struct, frozen=True, gc=False):
    """How many changes travel together at most, and how many such batches may be under way at once."""

    size: int
    at_once: int


class Claim(Struct, frozen=True, gc=False):
    """Who wants how many runs of which workflows. Each claimed run gets the nonce and the next epoch."""

    namespace: str
    owner: str
    nonce: str
    workflows: tuple[str, ...]
    limit: int


class History(Struct, frozen=True, gc=False):
    """All that is needed to continue a run: its row, its journal, what came in, the last heartbeats."""

    run: Run
    journal: tuple[Entry, ...]
    messages: tuple[Message, ...] = ()
    beats: tuple[Beat, ...] = ()


class Claimed(Struct, frozen=True, gc=False):
    """What a claim has brought, and since when the first of them could have been claimed; None if none could.

    `histories` are those that the store has seen in passing. The others have to be asked for.
    """

    runs: list[Run]
    ready_at_ms: Instant | None = None
    histories: tuple[History, ...] = ()


class KnownHook(Struct, frozen=True, gc=False):
    """A hook that others may know, and the run that opened it last."""

    run: Run
    hook: HookOpen


class Serves(Struct, frozen=True, gc=False):
    """What a worker executes, and where it runs."""

    namespace: str
    workflows: tuple[str, ...]
    host: str = ""
    pid: int = 0
    concurrency: int = 0


class Member(Struct, frozen=True, gc=False):
    """A worker whose lease has not expired, and how many runs it holds."""

    owner: str
    joined_at_ms: Instant = field(name="joined_ms")
    until_ms: Instant
    serves: Serves
    holds: int

    @property
    def instance(self) -> str:
        """Its process, by the name that it has in logs and metrics."""
        return instance_of(self.owner)

    @property
    def joined_at(self) -> datetime:
        """Since when it is there."""
        return utc_of(self.joined_at_ms)

    @property
    def lease_until(self) -> datetime:
        """When its lease expires, unless it renews it."""
        return utc_of(self.until_ms)


class Depth(Struct, frozen=True, gc=False):
    """How many runs of a workflow could be claimed now, and since when the first of them could be."""

    workflow: str
    queue: str
    ready: int
    oldest_at_ms: Instant | None = field(name="oldest_ms")

    @property
    def oldest_at(self) -> datetime | None:
        """Since when the first of them could be claimed; None if there is none."""
        return utc_or_none(self.oldest_at_ms)


class Backlog(Struct, frozen=True, gc=False):
    """How much there is to do. No number exceeds COUNT_MAX: counting costs the same however much there is."""

    statuses: dict[Status, int]
    depths: tuple[Depth, ...]


class Finding(Struct, frozen=True, gc=False):
    """What an inspection of the store has found."""

    level: Literal["ok", "warning", "error"]
    what: str
    detail: str
    hint: str = ""


COUNT_MAX = 10_000


class Store(Protocol):
    """Where runs live."""

    @property
    def batches(self) -> Batches:
        """In which portions it likes to be offered changes."""
        ...

    @property
    def caution(self) -> str:
        """What may be lost although it was confirmed, because the settings of the store allow it; empty if nothing may.

        It is reported once, when a process begins to use the store.
        """
        ...

    @property
    def poll_reason(self) -> str:
        """Why this process has to look for what others commit, as it is not told; empty if it is told, or looks anyway.

        It is reported once, when a process begins to use the store, and is a metric from then on.
        """
        ...

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def now_ms(self) -> Instant: ...

    def id_for(self, run_id: str, *, namespace: str, workflow: str, key: str | None, lane: str = "") -> str:
        """The id for a run that shall have this key: `run_id`, and its shard if this store has several.

        A run without a key goes to the shard of its lane, if it has one: what happens there then needs no message.
        """
        ...

    async def commit(self, changes: Sequence[Change]) -> list[Answer]: ...

    async def claim(self, claim: Claim) -> Claimed:
        """Runs that may be taken now, highest priority first, then by the time they became ready.

        Of a workflow whose runs take turns, those times say when it has its turn, and the tags which of its runs goes.
        """
        ...

    async def next_wake_at_ms(self, namespace: str, workflows: tuple[str, ...]) -> Instant | None:
        """When the next run may be claimed: in the past if one is ready now, None if none is in sight."""
        ...

    async def run(self, namespace: str, run_id: str) -> Run | None: ...
    async def runs(self, run_ids: Sequence[str]) -> list[Run]: ...
    async def run_of_key(self, namespace: str, workflow: str, key: str) -> Run | None: ...
    async def histories(self, run_ids: Sequence[str]) -> list[History]: ...
    async def messages(self, owner: str, among: Collection[str] | None = None) -> dict[str, list[Message]]:
        """Unread messages of the runs that `owner` holds, oldest first; with `among`, of these runs alone."""
        ...

    async def held(self, owner: str) -> list[str]:
        """The ids of the runs that `owner` holds, whether or not it knows: a reply may have been lost."""
        ...

    async def blob(self, run_id: str, digest: str) -> bytes | None: ...

    async def search(self, search: Search) -> list[Run]:
        """The runs that are meant, in order, by index."""
        ...

    async def hook(self, run_id: str, name: str) -> HookOpen | None:
        """What is known about a hook of this run; None if nothing is, which does not mean that it has none."""
        ...

    async def hook_of_token(self, namespace: str, token: str) -> KnownHook | None:
        """The hook that has this token, whether or not its run has ended."""
        ...

    async def served(self, namespace: str) -> frozenset[str]:
        """The workflows that live workers execute."""
        ...

    async def members(self, namespace: str) -> list[Member]:
        """The live workers of a namespace, in the order in which they joined."""
        ...

    async def backlog(self, namespace: str) -> Backlog:
        """How many runs there are by status, and how many could be claimed."""
        ...

    async def inspect(self) -> tuple[Finding, ...]:
        """Whether the store can keep its promises: durability settings, room, clock, schema."""
        ...

    async def join(self, owner: str, ttl_ms: Millis, serves: Serves | None = None) -> None:
        """Open a lease under a name that was never used before, for a worker that executes what `serves` says."""
        ...

    async def renew(self, owner: str, ttl_ms: Millis) -> bool:
        """Extend a lease. False if it has expired: another process may have what it held."""
        ...

    async def leave(self, owner: str) -> None:
        """End a lease; whatever it still holds may be claimed at once."""
        ...

    async def fallen(self, limit: int) -> list[Run]:
        """Up to `limit` runs that `rescue` would take now, as they are, in its order."""
        ...

    async def rescue(self, limit: int, *, expired_until_ms: Instant = END_OF_TIME) -> list[str]:
        """Take up to `limit` runs from holders whose lease has expired, raise their epoch, make them claimable.

        Leases that expired later than `expired_until_ms` are left for the next time.
        """
        ...

    async def prune(self, limit: int) -> int:
        """Remove up to `limit` runs whose retention is over, with all that belongs to them; and expired documents.

        Returns how many were removed, of both.
        """
        ...

    async def relay(self, limit: int) -> int:
        """Deliver up to `limit` messages between shards that were left behind; how many were.

        Besides, put lanes right in which a run has a place that has ended: a process of an earlier version knows none.
        """
        ...

    async def set_lane(self, setting: LaneSetting) -> LaneState:
        """Set a lane by hand, whether or not a run has used it; the lane as it is then. Those that may go are told."""
        ...

    async def lane(self, namespace: str, name: str) -> LaneState | None: ...

    async def lanes(self, namespace: str, *, after: str = "", limit: int = 100) -> list[LaneState]:
        """Those whose name comes behind `after`, by name."""
        ...

    async def standing(self, run: Run) -> LaneStanding | None:
        """Where the run stands in its lane; None if it has no place there."""
        ...

    async def turn(self, run: Run) -> FairTurn | None:
        """Where the run stands among those that take turns with it; None if it takes none, or has begun."""
        ...

    async def outs(self, namespace: str, *, after: str = "", limit: int = 100) -> Outs:
        """Messages for topics that are kept, oldest first, behind where another page ended.

        In the order of the commits. Of a store with shards each shard has its order, and what runs of different shards
        have left is in none. A page ends where the next one begins, also if more has come in any shard meanwhile.
        """
        ...

    async def drop_outs(self, namespace: str, places: Sequence[str]) -> None:
        """Forget those at these places: they have been published."""
        ...

    async def audits(self, namespace: str, *, after: str = "", limit: int = 100) -> Audits:
        """What was done, and by whom: in order as `outs` are."""
        ...

    async def drop_audits(self, namespace: str, places: Sequence[str]) -> None: ...

    async def write(self, writings: Sequence[Writing]) -> list[bool]:
        """Store each document if it replaces the stored version, each for itself; whether it is stored now."""
        ...

    async def document(self, namespace: str, kind: str, id: str) -> Document | None: ...

    async def named(self, places: Sequence[tuple[str, str, str]]) -> list[Document]:
        """Those under these namespaces, kinds and ids, in one round trip."""
        ...

    async def documents(self, namespace: str, kind: str, *, after: str = "", limit: int = 100) -> list[Document]:
        """Those of a kind whose id comes behind `after`, by id."""
        ...

    async def due(self, namespace: str, kinds: Sequence[str], limit: int) -> list[Document]:
        """Documents of these kinds that are due, earliest first."""
        ...

    @property
    def limiter(self) -> Limiter:
        """What counts limits, for all processes on this store."""
        ...

    def watch(self, on_notice: Callable[[Notice], bool]) -> None:
        """Call `on_notice` soon after any commit that another process has made. Costs no write and no query.

        Where others cannot tell what they commit, it may take 20 ms.

        Work that is ready may be told to one process alone. If that one has no room it returns False, and the others
        are told.
        """
        ...
