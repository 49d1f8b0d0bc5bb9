"""The memory store: the contract in its plainest form. For tests; everything is gone when the process ends.

Several Holdfasts of one process may share one: it is safe among tasks of one event loop, since nothing here awaits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from holdfast.kernel import hooks
from holdfast.kernel.changes import (
    Alive,
    Answer,
    Beat,
    Change,
    Committed,
    HookOpen,
    KeyFree,
    KeyHeldBy,
    Known,
    Refused,
    TokenFree,
    TokenHeldBy,
)
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.journal import Entry
from holdfast.kernel.messages import Envelope, Message, Watcher, blob_of, outcome_message
from holdfast.kernel.runs import ENDED, Fenced, Run, Status, with_key_released
from holdfast.kernel.searches import Search, matches
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

BATCHES = Batches(size=512, at_once=1)


class MemoryStore:
    """Dictionaries, and nothing else."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.wall_ms() - clock.steady_ms()
        self._runs: dict[str, Run] = {}
        self._waking: set[str] = set()  # runs that may be claimed, now or later
        self._unread: set[str] = set()  # runs with messages
        self._keys: dict[tuple[str, str, str], str] = {}
        self._journals: dict[str, list[Entry]] = {}
        self._blobs: dict[str, dict[str, bytes]] = {}
        self._beats: dict[str, dict[str, bytes]] = {}
        self._inboxes: dict[str, dict[str, Message | None]] = {}  # None: it has been read
        self._scopes: dict[tuple[str, str], str] = {}  # (scope, message id) -> the run that received it
        self._watchers: dict[str, list[Watcher]] = {}
        self._hooks: dict[str, dict[tuple[str, str | None], HookOpen]] = {}  # by name and token
        self._tokens: dict[tuple[str, str], str] = {}  # (namespace, token) -> the run that opened it last
        self._leases: dict[str, int] = {}
        self._workers: dict[str, tuple[int, Serves]] = {}  # since when, and what they serve
        self._documents: dict[tuple[str, str, str], Document] = {}  # by namespace, kind and id
        self._listeners: list[Callable[[Notice], bool]] = []

    @property
    def batches(self) -> Batches:
        return BATCHES

    @property
    def caution(self) -> str:
        return ""

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    def now_ms(self) -> int:
        return int(self._clock.steady_ms() + self._offset_ms)

    def id_for(self, run_id: str, *, namespace: str, workflow: str, key: str | None) -> str:  # noqa: ARG002 - one shard
        return run_id

    def _put(self, run: Run) -> Run:
        """Write a row, and keep the two indexes that are asked most."""
        self._runs[run.id] = run
        (self._waking.discard if run.wake_ms is None else self._waking.add)(run.id)
        (self._unread.add if run.unread else self._unread.discard)(run.id)
        return run

    # -- commit

    async def commit(self, changes: Sequence[Change]) -> list[Answer]:
        answers = [self._apply(change) for change in changes]
        self._notify()
        return answers

    def _apply(self, change: Change) -> Answer:
        match change.guard:
            case KeyFree() | KeyHeldBy():
                return self._admit(change)
            case Fenced() if change.run is None:
                return self._beside(change)
            case Fenced():
                return self._update(change)
            case Known(run_id):
                run = self._runs.get(run_id)
                return Refused(None) if run is None else Committed(run, self._add_watcher(run, change.watcher))
            case Alive() | TokenHeldBy():
                return self._send(change)
            case TokenFree():
                return self._open_token(change)

    def _admit(self, change: Change) -> Answer:
        run, guard = change.run, change.guard
        assert run is not None
        if run.id in self._runs:  # offered again after a lost reply
            return Committed(self._runs[run.id])
        for envelope in () if change.inherits else change.envelopes:
            if (receiver := self._receiver_in_scope(envelope)) is not None:
                return Committed(receiver)
        holder = self._holder(run)
        if holder is not None:
            if not isinstance(guard, KeyHeldBy) or guard.run_id != holder.id:
                return Refused(holder)
            if guard.fence is not None and guard.fence != holder.fence:
                return Refused(holder)
            self._put(with_key_released(holder))
        self._put(run)
        if run.key is not None:
            self._keys[run.namespace, run.workflow, run.key] = run.id
        self._append(run.id, change)
        self._add_watcher(run, change.watcher)
        self._open_hooks(run, tuple(hook for hook in change.opens if self._is_free(run, hook.token)))
        told = self._deliver(self._inherited(change) if change.inherits else change.envelopes)
        return Committed(self._runs[run.id], told)

    def _inherited(self, change: Change) -> tuple[Envelope, ...]:
        """Takes over the messages that the run may have from another one."""
        received = self._inheritable(change)
        for envelope in received:
            del self._inboxes[change.inherits][envelope.message.id]
        return received

    def _inheritable(self, change: Change) -> tuple[Envelope, ...]:
        """The messages that the run may take over from another one: those that the other one has received."""
        scopes = self._scopes
        return tuple(each for each in change.envelopes if scopes.get((each.scope, each.message.id)) == change.inherits)

    def _holder(self, run: Run) -> Run | None:
        if run.key is None:
            return None
        holder_id = self._keys.get((run.namespace, run.workflow, run.key))
        return None if holder_id is None else self._runs[holder_id]

    def _beside(self, change: Change) -> Answer:
        """What is written at a run's fence without moving the run."""
        guard = change.guard
        assert isinstance(guard, Fenced)
        current = self._runs.get(guard.run_id)
        if current is None or current.fence != guard:
            return Refused(current)
        self._keep_beats(guard.run_id, change.beats)
        return Committed(None)

    def _send(self, change: Change) -> Answer:
        assert isinstance(change.guard, Alive | TokenHeldBy)
        for envelope in change.envelopes:
            if (receiver := self._receiver_in_scope(envelope)) is not None:
                return Committed(receiver)
            if envelope.message.id in self._inboxes.get(envelope.run_id, {}):
                return Committed(self._runs[envelope.run_id])
        run = self._runs.get(change.guard.run_id)
        if run is None or run.finished_ms is not None:
            return Refused(run)
        guard = change.guard
        if isinstance(guard, Alive) and guard.holds_key and not run.holds_key:
            return Refused(run)
        if isinstance(guard, TokenHeldBy) and self._tokens.get((guard.namespace, guard.token)) != run.id:
            return Refused(run)
        if change.takes_key:
            self._lose_key(run)
        told = self._deliver(change.envelopes)
        return Committed(self._runs[run.id], told)

    def _receiver_in_scope(self, envelope: Envelope) -> Run | None:
        """The run that has received this message before, under this key or token."""
        names = ((envelope.scope, message_id) for message_id in (envelope.message.id, envelope.formerly))
        return next((self._runs[self._scopes[name]] for name in names if name in self._scopes), None)

    def _lose_key(self, run: Run) -> None:
        if run.key is not None and self._keys.get((run.namespace, run.workflow, run.key)) == run.id:
            del self._keys[run.namespace, run.workflow, run.key]
        self._put(replace(self._runs[run.id], holds_key=False))

    def _open_token(self, change: Change) -> Answer:
        guard = change.guard
        assert isinstance(guard, TokenFree)
        current = self._runs.get(guard.fence.run_id)
        if current is None or current.fence != guard.fence:
            return Refused(current)
        if not self._is_free(current, guard.token):
            return Refused(self._runs[self._tokens[guard.namespace, guard.token]])
        self._open_hooks(current, change.opens)
        return Committed(current)

    def _is_free(self, run: Run, token: str | None) -> bool:
        """Whether no other live run holds the token."""
        holder = self._runs.get(self._tokens.get((run.namespace, token or ""), ""))
        return holder is None or holder.id == run.id or holder.finished_ms is not None

    def _open_hooks(self, run: Run, opens: tuple[HookOpen, ...]) -> None:
        for hook in opens:
            hooks = self._hooks.setdefault(run.id, {})
            if hook.token is not None:
                self._forget_token(run.namespace, hook.token)
            hooks.pop((hook.name, hook.token), None)  # the newest comes last
            hooks[hook.name, hook.token] = hook
            if hook.token is not None:
                self._tokens[run.namespace, hook.token] = run.id

    def _close_hooks(self, run: Run, closes: tuple[HookOpen, ...]) -> None:
        for hook in closes:
            closed = self._hooks.get(run.id, {}).pop((hook.name, hook.token), None)
            if closed is not None and closed.token is not None:
                self._free_token(run, closed.token)

    def _forget_token(self, namespace: str, token: str) -> None:
        """Whoever has opened a hook with this token has it no longer."""
        hooks = self._hooks.get(self._tokens.pop((namespace, token), ""), {})
        for place in [place for place, hook in hooks.items() if hook.token == token]:
            del hooks[place]

    def _free_token(self, run: Run, token: str) -> None:
        if self._tokens.get((run.namespace, token)) == run.id:
            del self._tokens[run.namespace, token]

    def _update(self, change: Change) -> Answer:
        run, guard = change.run, change.guard
        assert run is not None
        assert isinstance(guard, Fenced)
        current = self._runs.get(run.id)
        if current is not None and current.change_id == change.id:
            return Committed(current)
        if current is None or current.fence != guard or current.length != run.length - len(change.entries):
            return Refused(current)
        inbox = self._inboxes.get(run.id, {})
        moves = change.moves if current.holds_key else ()  # without its key it has no successor: they stay
        unread = current.unread - sum(inbox.get(message_id) is not None for message_id in change.read) - len(moves)
        if run.status in ENDED and unread and current.finished_ms is None:
            return Refused(current)
        for message_id in change.read:
            inbox[message_id] = None
        wake_ms = self.now_ms() if run.status is Status.WAITING and unread else run.wake_ms
        run = self._put(replace(run, unread=unread, wake_ms=wake_ms, holds_key=current.holds_key))
        if change.takes_key:
            self._lose_key(run)
        if change.anew:
            self._journals[run.id] = []
            self._blobs[run.id] = {}
        self._append(run.id, change)
        self._keep_beats(run.id, change.beats)
        self._open_hooks(run, change.opens)
        self._close_hooks(run, change.closes)
        if run.status not in ENDED or current.finished_ms is not None:
            return Committed(self._runs[run.id])
        told = [self._tell(run, watcher) for watcher in self._watchers.get(run.id, ())]
        if change.then is not None:
            told.append(self._succeed(change, change.then))
        return Committed(run, tuple(watcher for watchers in told for watcher in watchers))

    def _succeed(self, change: Change, admission: Change) -> tuple[str, ...]:
        """Admit the successor, and hand it the messages that it inherits. Answers who was told."""
        former = self._runs[admission.inherits]
        if not former.holds_key:
            return ()  # the key was released or taken over, so there is no successor
        if not change.moves and not self._inheritable(admission):
            return ()  # its journal was copied from the run that has received them: nothing would be handed over
        self._apply(admission)
        successor, inbox = admission.run, self._inboxes.get(former.id, {})
        assert successor is not None
        moving = [inbox.pop(message_id) for message_id in change.moves]
        scope = hooks.key_scope(successor.namespace, successor.workflow, successor.key or "")
        self._deliver(tuple(Envelope(successor.id, message, scope) for message in moving if message is not None))
        return (successor.id,)

    def _append(self, run_id: str, change: Change) -> None:
        self._journals.setdefault(run_id, []).extend(change.entries)
        self._blobs.setdefault(run_id, {}).update({blob.digest: blob.data for blob in change.blobs})

    def _keep_beats(self, run_id: str, beats: tuple[Beat, ...]) -> None:
        self._beats.setdefault(run_id, {}).update({beat.step: beat.details for beat in beats})

    def _add_watcher(self, run: Run, watcher: Watcher | None) -> tuple[str, ...]:
        if watcher is None:
            return ()
        watchers, kept = self._watchers.setdefault(run.id, []), replace(watcher, epoch=0)
        if kept not in watchers:
            watchers.append(kept)
        return self._tell(run, watcher) if run.status in ENDED else ()

    def _tell(self, run: Run, watcher: Watcher) -> tuple[str, ...]:
        message = outcome_message(run, watcher)
        told = self._deliver((Envelope(watcher.run_id, message),))
        if told and (digest := blob_of(message)) is not None:
            self._blobs.setdefault(watcher.run_id, {})[digest] = self._blobs[run.id][digest]
        return told

    def _deliver(self, envelopes: tuple[Envelope, ...]) -> tuple[str, ...]:
        """Put messages into the inboxes of runs that have not ended; answers which runs got one."""
        told: list[str] = []
        for envelope in envelopes:
            run = self._runs.get(envelope.run_id)
            inbox = self._inboxes.setdefault(envelope.run_id, {})
            if run is None or run.finished_ms is not None or envelope.message.id in inbox:
                continue
            inbox[envelope.message.id] = envelope.message
            if envelope.scope:
                self._scopes[envelope.scope, envelope.message.id] = run.id
            wake_ms = self.now_ms() if run.status is Status.WAITING else run.wake_ms
            self._put(replace(run, unread=run.unread + 1, wake_ms=wake_ms))
            told.append(run.id)
        return tuple(told)

    # -- claim

    async def claim(self, claim: Claim) -> Claimed:
        now_ms = self.now_ms()
        ready = [run for run in self._claimable(claim.namespace, claim.workflows) if (run.wake_ms or 0) <= now_ms]
        ready = sorted(ready, key=lambda run: (-run.priority, run.wake_ms, run.id))[: max(0, claim.limit)]
        claimed = [
            replace(
                run,
                status=Status.RUNNING,
                owner=claim.owner,
                nonce=claim.nonce,
                epoch=run.epoch + 1,
                wake_ms=None,
                started_ms=run.started_ms or now_ms,
            )
            for run in ready
        ]
        ready_ms = min((run.wake_ms for run in ready if run.wake_ms is not None), default=None)
        return Claimed([self._put(run) for run in claimed], ready_ms)

    async def next_wake_ms(self, namespace: str, workflows: tuple[str, ...]) -> int | None:
        return min((run.wake_ms or 0 for run in self._claimable(namespace, workflows)), default=None)

    def _claimable(self, namespace: str, workflows: tuple[str, ...]) -> list[Run]:
        waking = (self._runs[run_id] for run_id in self._waking)
        return [run for run in waking if run.namespace == namespace and run.workflow in workflows]

    # -- reads

    async def run(self, namespace: str, run_id: str) -> Run | None:
        run = self._runs.get(run_id)
        return run if run is not None and run.namespace == namespace else None

    async def runs(self, run_ids: Sequence[str]) -> list[Run]:
        return [self._runs[run_id] for run_id in run_ids if run_id in self._runs]

    async def run_of_key(self, namespace: str, workflow: str, key: str) -> Run | None:
        run_id = self._keys.get((namespace, workflow, key))
        return None if run_id is None else self._runs[run_id]

    async def histories(self, run_ids: Sequence[str]) -> list[History]:
        return [
            History(
                run,
                tuple(self._journals[run.id]),
                self._unread_of(run.id),
                tuple(Beat(step, details) for step, details in self._beats.get(run.id, {}).items()),
            )
            for run in await self.runs(run_ids)
        ]

    async def messages(self, owner: str, among: Collection[str] | None = None) -> dict[str, list[Message]]:
        asked = self._unread if among is None else self._unread.intersection(among)
        held = (run for run in map(self._runs.__getitem__, asked) if run.owner == owner)
        return {run.id: list(self._unread_of(run.id)) for run in held}

    def _unread_of(self, run_id: str) -> tuple[Message, ...]:
        return tuple(message for message in self._inboxes.get(run_id, {}).values() if message is not None)

    async def held(self, owner: str) -> list[str]:
        return [run.id for run in self._runs.values() if run.owner == owner]

    async def blob(self, run_id: str, digest: str) -> bytes | None:
        return self._blobs.get(run_id, {}).get(digest)

    async def search(self, search: Search) -> list[Run]:
        found = [run for run in self._runs.values() if matches(search, run)]
        found.sort(key=lambda run: (run.created_ms, run.id), reverse=search.newest_first)
        return found[: search.limit]

    async def hook(self, run_id: str, name: str) -> HookOpen | None:
        found = [hook for hook in self._hooks.get(run_id, {}).values() if hook.name == name]
        return found[-1] if found else None

    async def hook_of_token(self, namespace: str, token: str) -> KnownHook | None:
        run = self._runs.get(self._tokens.get((namespace, token), ""))
        hooks = () if run is None else self._hooks.get(run.id, {}).values()
        return next((KnownHook(run, hook) for hook in hooks if run and hook.token == token), None)

    async def served(self, namespace: str) -> frozenset[str]:
        live = (self._workers[owner][1] for owner in self._live_workers(namespace))
        return frozenset(name for serves in live for name in serves.workflows)

    async def members(self, namespace: str) -> list[Member]:
        return [
            Member(owner, joined_ms, self._leases[owner], serves, len(await self.held(owner)))
            for owner in self._live_workers(namespace)
            for joined_ms, serves in (self._workers[owner],)
        ]

    def _live_workers(self, namespace: str) -> list[str]:
        now_ms = self.now_ms()
        live = [
            (joined_ms, owner)
            for owner, (joined_ms, serves) in self._workers.items()
            if serves.namespace == namespace and self._leases[owner] > now_ms
        ]
        return [owner for _, owner in sorted(live)]

    async def backlog(self, namespace: str) -> Backlog:
        statuses = dict.fromkeys(Status, 0)
        for run in self._runs.values():
            if run.namespace == namespace:
                statuses[run.status] = min(COUNT_MAX, statuses[run.status] + 1)
        waking: dict[str, list[Run]] = {}
        for run in map(self._runs.__getitem__, self._waking):
            if run.namespace == namespace:
                waking.setdefault(run.workflow, []).append(run)
        return Backlog(statuses, tuple(self._depth(workflow, waking[workflow]) for workflow in sorted(waking)))

    def _depth(self, workflow: str, waking: list[Run]) -> Depth:
        oldest_ms, queue = min((run.wake_ms or 0, run.queue) for run in waking)
        now_ms = self.now_ms()
        ready = sum((run.wake_ms or 0) <= now_ms for run in waking)
        return Depth(workflow, queue, min(COUNT_MAX, ready), oldest_ms if ready else None)

    async def inspect(self) -> tuple[Finding, ...]:
        return (
            Finding(
                "warning",
                "durability",
                "runs are kept in memory, and are gone when this process ends",
                hint="Use sqlite:///file.db for anything that must last.",
            ),
        )

    # -- leases

    async def join(self, owner: str, ttl_ms: int, serves: Serves | None = None) -> None:
        assert owner not in self._leases, owner
        now_ms = self.now_ms()
        self._leases[owner] = now_ms + ttl_ms
        self._workers[owner] = (now_ms, serves or Serves("", ()))

    async def renew(self, owner: str, ttl_ms: int) -> bool:
        now_ms = self.now_ms()
        if self._leases.get(owner, 0) <= now_ms:
            return False
        self._leases[owner] = now_ms + ttl_ms
        return True

    async def leave(self, owner: str) -> None:
        for run_id in await self.held(owner):
            self._free(run_id)
        self._leases.pop(owner, None)
        self._workers.pop(owner, None)
        self._notify()

    async def rescue(self, limit: int) -> list[str]:
        rescued: list[str] = []
        expired = [owner for owner, until_ms in self._leases.items() if until_ms <= self.now_ms()]
        missing = {run.owner for run in self._runs.values() if run.owner is not None} - set(self._leases)
        for owner in [*expired, *sorted(missing)]:
            held = await self.held(owner)
            rescued += held[: limit - len(rescued)]
            if len(rescued) < limit:
                self._leases.pop(owner, None)
                self._workers.pop(owner, None)
        for run_id in rescued:
            self._free(run_id)
        if rescued:
            self._notify()
        return rescued

    def _free(self, run_id: str) -> None:
        run = self._runs[run_id]
        freed = replace(run, status=Status.PENDING, owner=None, nonce="", epoch=run.epoch + 1, waits=None)
        self._put(replace(freed, wake_ms=self.now_ms()))

    # -- retention

    async def prune(self, limit: int) -> int:
        now_ms = self.now_ms()
        over = [run for run in self._runs.values() if run.expires_ms is not None and run.expires_ms <= now_ms][:limit]
        for run in over:
            self._waking.discard(run.id)
            self._unread.discard(run.id)
            del self._runs[run.id]
            if run.key is not None and self._keys.get((run.namespace, run.workflow, run.key)) == run.id:
                del self._keys[run.namespace, run.workflow, run.key]
            for hook in self._hooks.get(run.id, {}).values():
                if hook.token is not None:
                    self._free_token(run, hook.token)
            self._scopes = {scope: run_id for scope, run_id in self._scopes.items() if run_id != run.id}
            for table in (self._journals, self._blobs, self._beats, self._inboxes, self._watchers, self._hooks):
                table.pop(run.id, None)
        return len(over) + self._prune_documents(limit - len(over), now_ms)

    async def relay(self, limit: int) -> int:  # noqa: ARG002 - nothing crosses shards where there is one
        return 0

    def _prune_documents(self, limit: int, now_ms: int) -> int:
        # One whose versions have run ahead of the clock stays a moment longer: made anew, it must not repeat them.
        over = [
            place
            for place, document in self._documents.items()
            if not _is_live(document, now_ms) and document.version < now_ms
        ]
        for place in over[:limit]:
            del self._documents[place]
        return len(over[:limit])

    # -- documents

    async def write(self, writings: Sequence[Writing]) -> list[bool]:
        answers = [self._replace(writing) for writing in writings]
        self._notify()
        return answers

    def _replace(self, writing: Writing) -> bool:
        new = writing.document
        place = (new.namespace, new.kind, new.id)
        stored = self._documents.get(place)
        if stored == new:  # offered again after a lost reply
            return True
        # One that has expired counts as absent, but its version may not come again.
        live = stored if stored is not None and _is_live(stored, self.now_ms()) else None
        if writing.replaces != (None if live is None else live.version):
            return False
        if stored is not None and new.version <= stored.version:
            return False
        self._documents[place] = new
        return True

    async def document(self, namespace: str, kind: str, id: str) -> Document | None:
        found = self._documents.get((namespace, kind, id))
        return found if found is not None and _is_live(found, self.now_ms()) else None

    async def named(self, places: Sequence[tuple[str, str, str]]) -> list[Document]:
        return [found for place in places if (found := await self.document(*place)) is not None]

    async def documents(self, namespace: str, kind: str, *, after: str = "", limit: int = 100) -> list[Document]:
        found = [document for document in self._live_documents(namespace, (kind,)) if document.id > after]
        return sorted(found, key=lambda document: document.id)[: max(0, limit)]

    async def due(self, namespace: str, kinds: Sequence[str], limit: int) -> list[Document]:
        now_ms = self.now_ms()
        found = [
            document
            for document in self._live_documents(namespace, kinds)
            if document.due_ms is not None and document.due_ms <= now_ms
        ]
        found.sort(key=lambda document: (document.due_ms, document.kind, document.id))
        return found[: max(0, limit)]

    def _live_documents(self, namespace: str, kinds: Sequence[str]) -> list[Document]:
        now_ms = self.now_ms()
        return [
            document
            for document in self._documents.values()
            if document.namespace == namespace and document.kind in kinds and _is_live(document, now_ms)
        ]

    # -- notices

    def watch(self, on_notice: Callable[[Notice], bool]) -> None:
        self._listeners.append(on_notice)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener(ANYTHING)


def _is_live(document: Document, now_ms: int) -> bool:
    return document.expires_ms is None or document.expires_ms > now_ms
