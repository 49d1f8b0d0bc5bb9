"""The memory store: the contract in its plainest form. For tests; everything is gone when the process ends.

Several Holdfasts of one process may share one: it is safe among tasks of one event loop, since nothing here awaits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.kernel.changes import (
    ENDED,
    Answer,
    Beat,
    Change,
    Committed,
    Fenced,
    KeyFree,
    KeyHeldBy,
    Known,
    Message,
    Refused,
    Run,
    Status,
    Watcher,
    blob_of,
    outcome_message,
    with_key_released,
)
from holdfast.kernel.journal import Entry
from holdfast.ports.clock import Clock
from holdfast.ports.store import Claim, History


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
        self._messages: dict[str, dict[str, Message]] = {}
        self._watchers: dict[str, list[Watcher]] = {}
        self._leases: dict[str, int] = {}
        self._listeners: list[Callable[[], None]] = []

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    def now_ms(self) -> int:
        return int(self._clock.steady_ms() + self._offset_ms)

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
            case Fenced(run_id, epoch, nonce) if change.run is None:
                current = self._runs.get(run_id)
                if current is None or (current.epoch, current.nonce) != (epoch, nonce):
                    return Refused(current)
                self._keep_beats(run_id, change.beats)
                return Committed(None)
            case Fenced():
                return self._update(change)
            case Known(run_id):
                run = self._runs.get(run_id)
                return Refused(None) if run is None else Committed(run, self._add_watcher(run, change.watcher))

    def _admit(self, change: Change) -> Answer:
        run, guard = change.run, change.guard
        assert run is not None
        if run.id in self._runs:  # offered again after a lost reply
            return Committed(self._runs[run.id])
        holder = self._holder(run)
        if holder is not None:
            if not isinstance(guard, KeyHeldBy) or holder.fence != Fenced(guard.run_id, guard.epoch, guard.nonce):
                return Refused(holder)
            self._put(with_key_released(holder))
        self._put(run)
        if run.key is not None:
            self._keys[run.namespace, run.workflow, run.key] = run.id
        self._append(run.id, change)
        self._add_watcher(run, change.watcher)
        return Committed(run)

    def _holder(self, run: Run) -> Run | None:
        if run.key is None:
            return None
        holder_id = self._keys.get((run.namespace, run.workflow, run.key))
        return None if holder_id is None else self._runs[holder_id]

    def _update(self, change: Change) -> Answer:
        run, guard = change.run, change.guard
        assert run is not None
        assert isinstance(guard, Fenced)
        current = self._runs.get(run.id)
        if current is not None and current.change_id == change.id:
            return Committed(current)
        if current is None or current.fence != guard or current.length != run.length - len(change.entries):
            return Refused(current)
        messages = self._messages.get(run.id, {})
        for message_id in change.read:
            messages.pop(message_id, None)
        unread = current.unread - len(change.read)
        wake_ms = self.now_ms() if run.status is Status.WAITING and unread else run.wake_ms
        run = self._put(replace(run, unread=unread, wake_ms=wake_ms, holds_key=current.holds_key))
        self._append(run.id, change)
        self._keep_beats(run.id, change.beats)
        if run.status not in ENDED:
            return Committed(run)
        told = [self._tell(run, watcher) for watcher in self._watchers.get(run.id, ())]
        return Committed(run, tuple(watcher for watchers in told for watcher in watchers))

    def _append(self, run_id: str, change: Change) -> None:
        self._journals.setdefault(run_id, []).extend(change.entries)
        self._blobs.setdefault(run_id, {}).update({blob.digest: blob.data for blob in change.blobs})

    def _keep_beats(self, run_id: str, beats: tuple[Beat, ...]) -> None:
        self._beats.setdefault(run_id, {}).update({beat.step: beat.details for beat in beats})

    def _add_watcher(self, run: Run, watcher: Watcher | None) -> tuple[str, ...]:
        if watcher is None:
            return ()
        watchers = self._watchers.setdefault(run.id, [])
        if watcher not in watchers:
            watchers.append(watcher)
        return self._tell(run, watcher) if run.status in ENDED else ()

    def _tell(self, run: Run, watcher: Watcher) -> tuple[str, ...]:
        parent = self._runs.get(watcher.run_id)
        message = outcome_message(run, watcher)
        messages = self._messages.setdefault(watcher.run_id, {})
        if parent is None or parent.finished_ms is not None or message.id in messages:
            return ()
        messages[message.id] = message
        if (digest := blob_of(message)) is not None:
            self._blobs.setdefault(parent.id, {})[digest] = self._blobs[run.id][digest]
        wake_ms = self.now_ms() if parent.status is Status.WAITING else parent.wake_ms
        self._put(replace(parent, unread=parent.unread + 1, wake_ms=wake_ms))
        return (parent.id,)

    # -- claim

    async def claim(self, claim: Claim) -> list[Run]:
        now_ms = self.now_ms()
        ready = [run for run in self._claimable(claim.namespace, claim.workflows) if (run.wake_ms or 0) <= now_ms]
        ready.sort(key=lambda run: (-run.priority, run.wake_ms, run.id))
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
            for run in ready[: max(0, claim.limit)]
        ]
        return [self._put(run) for run in claimed]

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
                tuple(self._messages.get(run.id, {}).values()),
                tuple(Beat(step, details) for step, details in self._beats.get(run.id, {}).items()),
            )
            for run in await self.runs(run_ids)
        ]

    async def messages(self, owner: str) -> dict[str, list[Message]]:
        held = (run for run in map(self._runs.__getitem__, self._unread) if run.owner == owner)
        return {run.id: list(self._messages[run.id].values()) for run in held}

    async def held(self, owner: str) -> list[str]:
        return [run.id for run in self._runs.values() if run.owner == owner]

    async def blob(self, run_id: str, digest: str) -> bytes | None:
        return self._blobs.get(run_id, {}).get(digest)

    # -- leases

    async def join(self, owner: str, ttl_ms: int) -> None:
        assert owner not in self._leases, owner
        self._leases[owner] = self.now_ms() + ttl_ms

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
        for run_id in rescued:
            self._free(run_id)
        if rescued:
            self._notify()
        return rescued

    def _free(self, run_id: str) -> None:
        run = self._runs[run_id]
        self._put(replace(run, status=Status.PENDING, owner=None, nonce="", epoch=run.epoch + 1, wake_ms=self.now_ms()))

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
            for table in (self._journals, self._blobs, self._beats, self._messages, self._watchers):
                table.pop(run.id, None)
        return len(over)

    # -- notices

    def watch(self, on_change: Callable[[], None]) -> None:
        self._listeners.append(on_change)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
