"""The memory store: the contract in its plainest form. For tests; everything is gone when the process ends.

Several Holdfasts of one process may share one: it is safe among tasks of one event loop, since nothing here awaits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from holdfast.kernel.audits import Audit, Audits, KeptAudit
from holdfast.kernel.changes import (
    Answer,
    Beat,
    Change,
    HookOpen,
)
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.fairness import FairTurn
from holdfast.kernel.lanes import LaneSetting, LaneStanding, LaneState
from holdfast.kernel.messages import Message
from holdfast.kernel.outs import KeptOut, Out, Outs
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import Search, matches
from holdfast.kernel.times import END_OF_TIME, EPOCH, Instant, Millis
from holdfast.ports.clock import Clock
from holdfast.ports.notices import ANYTHING, Notice
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
from holdfast.stores.memory.limiter import MemoryLimiter
from holdfast.stores.memory.tables import Tables
from holdfast.stores.memory.writes import MemoryWrites

BATCHES = Batches(size=512, at_once=1)
K = TypeVar("K", Out, Audit)


class MemoryStore:
    """Dictionaries, and nothing else."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.wall_ms() - float(clock.steady_ms())
        self._tables = Tables()
        self._writes = MemoryWrites(self._tables, self.now_ms)
        self._limiter = MemoryLimiter(self.now_ms)
        self._listeners: list[Callable[[Notice], bool]] = []

    @property
    def tables(self) -> Tables:
        """All that is stored, for tests and provers, which look at it from outside. No process asks for it."""
        return self._tables

    @property
    def batches(self) -> Batches:
        return BATCHES

    @property
    def caution(self) -> str:
        return ""

    @property
    def poll_reason(self) -> str:
        return ""

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    def now_ms(self) -> Instant:
        return int(self._clock.steady_ms() + self._offset_ms)  # pyright: ignore[reportReturnType] - read often: no call for a name

    def id_for(self, run_id: str, **_: str | None) -> str:
        return run_id  # there is one shard

    # -- commit

    async def commit(self, changes: Sequence[Change]) -> list[Answer]:
        answers = [self._writes.apply(change) for change in changes]
        self._notify()
        return answers

    # -- claim

    async def claim(self, claim: Claim) -> Claimed:
        now_ms = self.now_ms()
        ready = [
            run for run in self._claimable(claim.namespace, claim.workflows) if (run.wake_at_ms or EPOCH) <= now_ms
        ]
        ready.sort(key=lambda run: (-run.priority, run.wake_at_ms, run.id))
        ready = self._writes.rules.in_turn(ready)[: max(0, claim.limit)]
        for run in ready:
            self._writes.rules.claim(run)
        claimed = [
            replace(
                run,
                status=Status.RUNNING,
                owner=claim.owner,
                nonce=claim.nonce,
                epoch=run.epoch + 1,
                wake_at_ms=None,
                started_at_ms=run.started_at_ms or now_ms,
            )
            for run in ready
        ]
        ready_at_ms = min((run.wake_at_ms for run in ready if run.wake_at_ms is not None), default=None)
        return Claimed([self._tables.put(run) for run in claimed], ready_at_ms)

    async def next_wake_at_ms(self, namespace: str, workflows: tuple[str, ...]) -> Instant | None:
        return min((run.wake_at_ms or EPOCH for run in self._claimable(namespace, workflows)), default=None)

    def _claimable(self, namespace: str, workflows: tuple[str, ...]) -> list[Run]:
        waking = (self._tables.runs[run_id] for run_id in self._tables.waking)
        return [run for run in waking if run.namespace == namespace and run.workflow in workflows]

    # -- reads

    async def run(self, namespace: str, run_id: str) -> Run | None:
        run = self._tables.runs.get(run_id)
        return run if run is not None and run.namespace == namespace else None

    async def runs(self, run_ids: Sequence[str]) -> list[Run]:
        return [self._tables.runs[run_id] for run_id in run_ids if run_id in self._tables.runs]

    async def run_of_key(self, namespace: str, workflow: str, key: str) -> Run | None:
        run_id = self._tables.keys.get((namespace, workflow, key))
        return None if run_id is None else self._tables.runs[run_id]

    async def histories(self, run_ids: Sequence[str]) -> list[History]:
        return [
            History(
                run,
                tuple(self._tables.journals[run.id]),
                self._unread_of(run.id),
                tuple(Beat(step, details) for step, details in self._tables.beats.get(run.id, {}).items()),
            )
            for run in await self.runs(run_ids)
        ]

    async def messages(self, owner: str, among: Collection[str] | None = None) -> dict[str, list[Message]]:
        asked = [run_id for run_id in self._tables.unread if among is None or run_id in among]
        held = (run for run in map(self._tables.runs.__getitem__, asked) if run.owner == owner)
        return {run.id: list(self._unread_of(run.id)) for run in held}

    def _unread_of(self, run_id: str) -> tuple[Message, ...]:
        return tuple(message for message in self._tables.inboxes.get(run_id, {}).values() if message is not None)

    async def held(self, owner: str) -> list[str]:
        return [run.id for run in self._tables.runs.values() if run.owner == owner]

    async def blob(self, run_id: str, digest: str) -> bytes | None:
        return self._tables.blobs.get(run_id, {}).get(digest)

    async def search(self, search: Search) -> list[Run]:
        found = [run for run in self._tables.runs.values() if matches(search, run)]
        found.sort(key=lambda run: (run.created_at_ms, run.id), reverse=search.newest_first)
        return found[: search.limit]

    async def hook(self, run_id: str, name: str) -> HookOpen | None:
        found = [hook for hook in self._tables.hooks.get(run_id, {}).values() if hook.name == name]
        return found[-1] if found else None

    async def hook_of_token(self, namespace: str, token: str) -> KnownHook | None:
        run = self._tables.runs.get(self._tables.tokens.get((namespace, token), ""))
        hooks = () if run is None else self._tables.hooks.get(run.id, {}).values()
        return next((KnownHook(run, hook) for hook in hooks if run and hook.token == token), None)

    async def served(self, namespace: str) -> frozenset[str]:
        live = (self._tables.workers[owner][1] for owner in self._live_workers(namespace))
        return frozenset(name for serves in live for name in serves.workflows)

    async def members(self, namespace: str) -> list[Member]:
        return [
            Member(owner, joined_at_ms, self._tables.leases[owner], serves, len(await self.held(owner)))
            for owner in self._live_workers(namespace)
            for joined_at_ms, serves in (self._tables.workers[owner],)
        ]

    def _live_workers(self, namespace: str) -> list[str]:
        now_ms = self.now_ms()
        live = [
            (joined_at_ms, owner)
            for owner, (joined_at_ms, serves) in self._tables.workers.items()
            if serves.namespace == namespace and self._tables.leases[owner] > now_ms
        ]
        return [owner for _, owner in sorted(live)]

    async def backlog(self, namespace: str) -> Backlog:
        statuses = dict.fromkeys(Status, 0)
        for run in self._tables.runs.values():
            if run.namespace == namespace:
                statuses[run.status] = min(COUNT_MAX, statuses[run.status] + 1)
        waking: dict[str, list[Run]] = {}
        for run in map(self._tables.runs.__getitem__, self._tables.waking):
            if run.namespace == namespace:
                waking.setdefault(run.workflow, []).append(run)
        return Backlog(statuses, tuple(self._depth(workflow, waking[workflow]) for workflow in sorted(waking)))

    def _depth(self, workflow: str, waking: list[Run]) -> Depth:
        oldest_at_ms, queue = min((run.wake_at_ms or EPOCH, run.queue) for run in waking)
        now_ms = self.now_ms()
        ready = sum((run.wake_at_ms or EPOCH) <= now_ms for run in waking)
        return Depth(workflow, queue, min(COUNT_MAX, ready), oldest_at_ms if ready else None)

    async def inspect(self) -> tuple[Finding, ...]:
        return (
            Finding(
                "warning",
                "durability",
                "runs are kept in memory, and are gone when this process ends",
                hint="Use sqlite:///file.db for anything that must last.",
            ),
            self._writes.lanes.finding(),
        )

    # -- leases

    async def join(self, owner: str, ttl_ms: Millis, serves: Serves | None = None) -> None:
        assert owner not in self._tables.leases, owner
        now_ms = self.now_ms()
        self._tables.leases[owner] = now_ms + ttl_ms
        self._tables.workers[owner] = (now_ms, serves or Serves("", ()))

    async def renew(self, owner: str, ttl_ms: Millis) -> bool:
        now_ms = self.now_ms()
        if self._tables.leases.get(owner, EPOCH) <= now_ms:
            return False
        self._tables.leases[owner] = now_ms + ttl_ms
        return True

    async def leave(self, owner: str) -> None:
        for run_id in await self.held(owner):
            self._free(run_id)
        self._tables.leases.pop(owner, None)
        self._tables.workers.pop(owner, None)
        self._notify()

    async def fallen(self, limit: int) -> list[Run]:
        held = [run_id for owner in self._fallen_owners() for run_id in await self.held(owner)]
        return await self.runs(held[:limit])

    def _fallen_owners(self, expired_until_ms: Instant = END_OF_TIME) -> list[str]:
        """Owners whose lease has expired, and owners without one."""
        by_ms = min(self.now_ms(), expired_until_ms)
        expired = [owner for owner, until_ms in self._tables.leases.items() if until_ms <= by_ms]
        missing = {run.owner for run in self._tables.runs.values() if run.owner is not None} - set(self._tables.leases)
        return [*expired, *sorted(missing)]

    async def rescue(self, limit: int, *, expired_until_ms: Instant = END_OF_TIME) -> list[str]:
        rescued: list[str] = []
        for owner in self._fallen_owners(expired_until_ms):
            held = await self.held(owner)
            rescued += held[: limit - len(rescued)]
            if len(rescued) < limit:
                self._tables.leases.pop(owner, None)
                self._tables.workers.pop(owner, None)
        for run_id in rescued:
            self._free(run_id)
        if rescued:
            self._notify()
        return rescued

    def _free(self, run_id: str) -> None:
        run = self._tables.runs[run_id]
        freed = replace(run, status=Status.PENDING, owner=None, nonce="", epoch=run.epoch + 1, waits=None)
        self._tables.put(replace(freed, wake_at_ms=self.now_ms()))

    # -- retention

    async def prune(self, limit: int) -> int:
        now_ms = self.now_ms()
        over = [
            run for run in self._tables.runs.values() if run.expires_at_ms is not None and run.expires_at_ms <= now_ms
        ][:limit]
        for run in over:
            self._tables.forget(run)
        self._writes.lanes.forget_idle()
        self._writes.rules.forget()
        return len(over) + self._prune_documents(limit - len(over), now_ms)

    async def relay(self, limit: int) -> int:  # noqa: ARG002 - nothing crosses shards where there is one
        return 0

    def _prune_documents(self, limit: int, now_ms: Instant) -> int:
        # One whose versions have run ahead of the clock stays a moment longer: made again, it must not repeat them.
        over = [
            place
            for place, document in self._tables.documents.items()
            if not _is_live(document, now_ms) and document.version < now_ms
        ]
        for place in over[:limit]:
            del self._tables.documents[place]
        return len(over[:limit])

    # -- lanes

    async def set_lane(self, setting: LaneSetting) -> LaneState:
        self._writes.lanes.set(setting)
        self._notify()
        state = self._writes.lanes.state(setting.namespace, setting.name)
        assert state is not None
        return state

    async def lane(self, namespace: str, name: str) -> LaneState | None:
        return self._writes.lanes.state(namespace, name)

    async def lanes(self, namespace: str, *, after: str = "", limit: int = 100) -> list[LaneState]:
        names = sorted(name for of_namespace, name in self._tables.lanes if of_namespace == namespace and name > after)
        found = (self._writes.lanes.state(namespace, name) for name in names[: max(0, limit)])
        return [state for state in found if state is not None]

    async def standing(self, run: Run) -> LaneStanding | None:
        return self._writes.lanes.standing(run)

    # -- flow rules

    async def turn(self, run: Run) -> FairTurn | None:
        return self._writes.rules.turn(run)

    # -- outs and audits

    async def outs(self, namespace: str, *, after: str = "", limit: int = 100) -> Outs:
        page = _page(self._tables.outs, namespace, after, limit)
        return Outs(tuple(KeptOut(str(number), out) for number, out in page), str(page[-1][0]) if page else after)

    async def drop_outs(self, namespace: str, places: Sequence[str]) -> None:
        _drop(self._tables.outs, namespace, places)

    async def audits(self, namespace: str, *, after: str = "", limit: int = 100) -> Audits:
        page = _page(self._tables.audits, namespace, after, limit)
        kept = tuple(KeptAudit(str(number), audit) for number, audit in page)
        return Audits(kept, str(page[-1][0]) if page else after)

    async def drop_audits(self, namespace: str, places: Sequence[str]) -> None:
        _drop(self._tables.audits, namespace, places)

    # -- documents

    async def write(self, writings: Sequence[Writing]) -> list[bool]:
        answers = [self._replace(writing) for writing in writings]
        self._notify()
        return answers

    def _replace(self, writing: Writing) -> bool:
        new = writing.document
        place = (new.namespace, new.kind, new.id)
        stored = self._tables.documents.get(place)
        if stored == new:  # offered again after a lost reply
            return True
        # One that has expired counts as absent, but its version may not come again.
        live = stored if stored is not None and _is_live(stored, self.now_ms()) else None
        if writing.replaces != (None if live is None else live.version):
            return False
        if stored is not None and new.version <= stored.version:
            return False
        self._tables.documents[place] = new
        return True

    async def document(self, namespace: str, kind: str, id: str) -> Document | None:
        return next(iter(await self.named([(namespace, kind, id)])), None)

    async def named(self, places: Sequence[tuple[str, str, str]]) -> list[Document]:
        now_ms = self.now_ms()
        found = map(self._tables.documents.get, places)
        return [document for document in found if document is not None and _is_live(document, now_ms)]

    async def documents(self, namespace: str, kind: str, *, after: str = "", limit: int = 100) -> list[Document]:
        found = [document for document in self._live_documents(namespace, (kind,)) if document.id > after]
        return sorted(found, key=lambda document: document.id)[: max(0, limit)]

    async def due(self, namespace: str, kinds: Sequence[str], limit: int) -> list[Document]:
        now_ms = self.now_ms()
        found = [
            document
            for document in self._live_documents(namespace, kinds)
            if document.due_at_ms is not None and document.due_at_ms <= now_ms
        ]
        found.sort(key=lambda document: (document.due_at_ms, document.kind, document.id))
        return found[: max(0, limit)]

    def _live_documents(self, namespace: str, kinds: Sequence[str]) -> list[Document]:
        now_ms = self.now_ms()
        return [
            document
            for document in self._tables.documents.values()
            if document.namespace == namespace and document.kind in kinds and _is_live(document, now_ms)
        ]

    # -- limits

    @property
    def limiter(self) -> MemoryLimiter:
        return self._limiter

    # -- notices

    def watch(self, on_notice: Callable[[Notice], bool]) -> None:
        self._listeners.append(on_notice)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener(ANYTHING)


def _is_live(document: Document, now_ms: Instant) -> bool:
    return document.expires_at_ms is None or document.expires_at_ms > now_ms


def _page(kept: Mapping[int, K], namespace: str, after: str, limit: int) -> list[tuple[int, K]]:
    found = [(number, each) for number, each in kept.items() if each.namespace == namespace]
    return [(number, each) for number, each in found if number > int(after or 0)][: max(0, limit)]


def _drop(kept: dict[int, K], namespace: str, places: Sequence[str]) -> None:
    for number in map(int, places):
        if number in kept and kept[number].namespace == namespace:
            del kept[number]
