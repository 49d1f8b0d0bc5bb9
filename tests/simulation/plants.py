"""Planted bugs: the mistakes that the simulation must find, switched on one at a time.

Each is a patch of a store or of the engine, for as long as the block lasts. A plant must be strong enough to show: a
fence that is not checked does no harm where the length of the journal is checked, too, so both are also planted
together; and what was written late has to meet runs that have ended.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from msgspec.structs import replace

from holdfast.engine.api.admission import Admission
from holdfast.engine.code.pending import Pending
from holdfast.engine.code.unwinding import LeftBehind
from holdfast.engine.runs.activation import Activation
from holdfast.engine.runs.completions import ActivationRecord
from holdfast.engine.runs.loaded_run import LoadedRun
from holdfast.engine.wakeups import Wakeups
from holdfast.engine.worker import worker
from holdfast.engine.worker.held import HeldRuns
from holdfast.kernel import ids, lanes
from holdfast.kernel.changes import Alive, Answer, Change, Committed, KeyFree, KeyHeldBy
from holdfast.kernel.journal import Elapsed
from holdfast.kernel.lanes import Lane
from holdfast.kernel.messages import CancelRequest, Envelope, OutcomeMessage
from holdfast.kernel.runs import ENDED, Fenced, Run, Status
from holdfast.kernel.times import Instant
from holdfast.ports.store import Claim, Claimed
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.lanes import MemoryLanes
from holdfast.stores.memory.writes import MemoryWrites
from tests.simulation.campaigns import Wrong, look_at
from tests.simulation.stores import ClusterMemory, ClusterWrites

Patch = contextlib.AbstractContextManager[Any]


def _patched(owner: Any, name: str, plant: Callable[[Callable[..., Any]], Any]) -> Patch:
    """`name` of a class or module, made of what it was."""
    return mock.patch.object(owner, name, plant(getattr(owner, name)))


# -- what a store checks


def _without_checks(*, fence: bool, length: bool) -> Patch:
    def plant(update: Callable[..., Answer]) -> Any:
        def planted(self: Any, change: Change, guard: Fenced) -> Answer:
            current = self._tables.runs.get(guard.run_id)
            if current is None or change.run is None or current.change_id == change.id:
                return update(self, change, guard)
            if not fence and current.fence != guard:
                return update(self, change, guard)
            run = change.run
            if length:
                run = replace(run, length=current.length + len(change.entries))
            elif current.length != run.length - len(change.entries):
                return update(self, change, guard)
            self._tables.put(replace(current, epoch=guard.epoch, nonce=guard.nonce, finished_at_ms=None))
            return update(self, replace(change, run=run), guard)

        return planted

    return _patched(MemoryWrites, "_update", plant)


def _recorded_before_the_fence() -> Patch:
    def plant(update: Callable[..., Answer]) -> Any:
        def planted(self: Any, change: Change, guard: Fenced) -> Answer:
            answer = update(self, change, guard)
            current = self._tables.runs.get(guard.run_id)
            if not isinstance(answer, Committed) and current is not None and current.fence != guard:
                self._tables.journals[current.id].extend(change.entries)
            return answer

        return planted

    return _patched(MemoryWrites, "_update", plant)


def _over_unread_messages() -> Patch:
    def plant(unread_after: Callable[..., int]) -> Any:
        def planted(self: Any, change: Change, current: Run) -> int:
            ends = change.run is not None and change.run.status in ENDED
            return 0 if ends else unread_after(self, change, current)

        return planted

    return _patched(MemoryWrites, "_unread_after", plant)


# -- keys


def _key_freed_at_end() -> Patch:
    def plant(write_row: Callable[..., Run]) -> Any:
        def planted(self: Any, change: Change, run: Run, current: Run, unread: int) -> Run:
            written = write_row(self, change, run, current, unread)
            if written.status in ENDED:
                self._tables.free_key(written)
            return written

        return planted

    return _patched(MemoryWrites, "_write_row", plant)


def _key_dropped_by_continuing() -> Patch:
    def plant(write_row: Callable[..., Run]) -> Any:
        def planted(self: Any, change: Change, run: Run, current: Run, unread: int) -> Run:
            written = write_row(self, change, run, current, unread)
            if change.replaces_journal:
                self._tables.free_key(written)
            return written

        return planted

    return _patched(MemoryWrites, "_write_row", plant)


def _holder_not_looked_at() -> Patch:
    def plant(admit: Callable[..., Answer]) -> Any:
        def planted(self: Any, change: Change, guard: KeyFree | KeyHeldBy) -> Answer:
            holder = None if change.run is None else self._holder_of_key(change.run)
            if isinstance(guard, KeyFree) and holder is not None and holder.finished_at_ms is None:
                guard = KeyHeldBy(holder.id)
            return admit(self, change, guard)

        return planted

    return _patched(MemoryWrites, "_admit", plant)


def _superseded_without_cancel() -> Patch:
    def plant(admit: Callable[..., Answer]) -> Any:
        def planted(self: Any, change: Change, guard: KeyFree | KeyHeldBy) -> Answer:
            kept = tuple(each for each in change.envelopes if not isinstance(each.message, CancelRequest))
            return admit(self, replace(change, envelopes=kept), guard)

        return planted

    return _patched(MemoryWrites, "_admit", plant)


def _retention_of_the_living() -> Patch:
    def plant(prune: Callable[..., Any]) -> Any:
        async def planted(self: Any, limit: int) -> int:
            for run in self._tables.runs.values():
                if run.key is not None and run.created_at_ms + run.retention_ms <= self.now_ms():
                    self._tables.free_key(run)
            return await prune(self, limit)

        return planted

    return _patched(MemoryStore, "prune", plant)


# -- leases


def _rescued_at_the_same_epoch() -> Patch:
    def plant(_free: Callable[..., None]) -> Any:
        def planted(self: Any, run_id: str) -> None:
            run = self._tables.runs[run_id]
            freed = replace(run, status=Status.PENDING, owner=None, waits=None, wake_at_ms=self.now_ms())
            self._tables.put(freed)

        return planted

    return _patched(MemoryStore, "_free", plant)


def _claimed_from_others() -> Patch:
    def plant(claim: Callable[..., Any]) -> Any:
        async def planted(self: Any, wanted: Claim) -> Claimed:
            self.claims_counted = getattr(self, "claims_counted", 0) + 1
            for run in [*self._tables.runs.values()] if self.claims_counted % 10 == 0 else ():
                if run.status is Status.RUNNING and run.owner != wanted.owner and run.workflow in wanted.workflows:
                    self._tables.put(replace(run, wake_at_ms=self.now_ms()))
            return await claim(self, wanted)

        return planted

    return _patched(ClusterMemory, "claim", plant)


def _never_rescued() -> Patch:
    return mock.patch.object(MemoryStore, "_fallen_owners", return_value=[])


def _adopted_twice() -> Patch:
    return mock.patch.object(HeldRuns, "holds", return_value=False)


# -- messages


def _dropped(kind: type[Any]) -> Patch:
    def plant(put: Callable[..., tuple[str, ...]]) -> Any:
        def planted(self: Any, envelopes: tuple[Envelope, ...]) -> tuple[str, ...]:
            return put(self, tuple(each for each in envelopes if not isinstance(each.message, kind)))

        return planted

    return _patched(ClusterWrites, "_put_into_inboxes", plant)


def _without_wake_up() -> Patch:
    def plant(put: Callable[..., tuple[str, ...]]) -> Any:
        def planted(self: Any, envelopes: tuple[Envelope, ...]) -> tuple[str, ...]:
            waiting = {each.run_id: self._tables.runs.get(each.run_id) for each in envelopes}
            told = put(self, envelopes)
            for run_id, run in waiting.items():
                if run is not None and run.status is Status.WAITING and run_id in told:
                    self._tables.put(replace(self._tables.runs[run_id], wake_at_ms=run.wake_at_ms))
            return told

        return planted

    return _patched(ClusterWrites, "_put_into_inboxes", plant)


def _inbox_forgets_what_was_read() -> Patch:
    def plant(claim: Callable[..., Any]) -> Any:
        async def planted(self: Any, wanted: Claim) -> Claimed:
            claimed = await claim(self, wanted)
            for run in claimed.runs:
                inbox = self._tables.inboxes.get(run.id, {})
                for message_id in [message_id for message_id, message in inbox.items() if message is None]:
                    del inbox[message_id]
                self._tables.scopes = {place: each for place, each in self._tables.scopes.items() if each != run.id}
            return claimed

        return planted

    return _patched(ClusterMemory, "claim", plant)


def _delivered_twice() -> Patch:
    """What a run has read is delivered again if it is sent again."""

    def plant(send_to_run: Callable[..., Answer]) -> Any:
        def planted(self: Any, change: Change, guard: Alive) -> Answer:
            inbox = self._tables.inboxes.get(guard.run_id, {})
            for each in change.envelopes:
                if inbox.get(each.message.id, each) is None:
                    del inbox[each.message.id]
            return send_to_run(self, change, guard)

        return planted

    return _patched(MemoryWrites, "_send_to_run", plant)


def _sent_to_the_ended() -> Patch:
    def plant(send_to_run: Callable[..., Answer]) -> Any:
        def planted(self: Any, change: Change, guard: Alive) -> Answer:
            run = self._tables.runs.get(guard.run_id)
            if run is not None and run.finished_at_ms is not None and not guard.holds_key:
                return Committed(run)
            return send_to_run(self, change, guard)

        return planted

    return _patched(MemoryWrites, "_send_to_run", plant)


def _relay_that_drops() -> Patch:
    def plant(_relay: Callable[..., Any]) -> Any:
        async def planted(self: Any, limit: int) -> int:
            count = min(limit, len(self.tables.outbox))
            del self.tables.outbox[:count]
            return count

        return planted

    return _patched(ClusterMemory, "relay", plant)


# -- the engine


def _lost_wake_up() -> Patch:
    return mock.patch.object(Wakeups, "_take", return_value=True)


def _undone_in_order() -> Patch:
    def plant(unwind: Callable[..., Any]) -> Any:
        async def planted(self: Any, undoer: Any) -> None:
            self._done = dict(reversed(list(self._done.items())))
            await unwind(self, undoer)

        return planted

    return _patched(LeftBehind, "unwind", plant)


def _attempts_counted_again() -> Patch:
    def plant(replaying: Callable[..., Iterable[None]]) -> Any:
        def planted(self: Any) -> Iterator[None]:
            yield from replaying(self)
            for command in self.machine.pending.open.values():
                command.failures = 0

        return planted

    return _patched(LoadedRun, "replaying", plant)


def _timer_recorded_twice() -> Patch:
    def plant(append: Callable[..., None]) -> Any:
        def planted(self: Any, run_id: str, change: Change) -> None:
            append(self, run_id, change)
            self._tables.journals[run_id].extend(each for each in change.entries if isinstance(each, Elapsed))

        return planted

    return _patched(MemoryWrites, "_append", plant)


def _timer_early() -> Patch:
    def plant(take_due: Callable[..., Any]) -> Any:
        def planted(self: Any, now_ms: Instant) -> Any:
            return take_due(self, now_ms + 400)

        return planted

    def plant_next(next_due: Callable[..., Any]) -> Any:
        def planted(self: Any) -> Instant | None:
            due_at_ms = next_due(self)
            return None if due_at_ms is None else Instant(due_at_ms - 400)

        return planted

    both = contextlib.ExitStack()
    both.enter_context(_patched(Pending, "take_due", plant))
    both.enter_context(_patched(Pending, "next_due_at_ms", plant_next))
    return both


def _recorded_after_what_follows() -> Patch:
    def plant(make_durable: Callable[..., Any]) -> Any:
        async def planted(self: Any, change: Change, record: Any) -> None:
            if change.run is None or change.run.status is not Status.RUNNING or change.replaces_journal:
                await make_durable(self, change, record)
                return
            self._host.offer(change)
            self.run = self._loaded.run = change.run
            self._record = ActivationRecord()

        return planted

    return _patched(Activation, "_make_durable", plant)


def _children_twice() -> Patch:
    """A child is admitted under an id of chance, and admitted again."""
    count = itertools.count()

    def derived(run_id: str, name: str) -> str:
        return ids.derived(run_id, f"{name}/{next(count)}")

    def joined(*texts: str) -> str:
        return ids.joined(*texts, str(next(count)))

    def plant(admit_child: Callable[..., Any]) -> Any:
        async def planted(self: Any, parent: Run, command: Any) -> Any:
            await admit_child(self, parent, command)
            return await admit_child(self, parent, command)

        return planted

    both = contextlib.ExitStack()
    both.enter_context(mock.patch.object(worker, "ids", SimpleNamespace(derived=derived, joined=joined)))
    both.enter_context(_patched(worker.Worker, "admit_child", plant))
    return both


def _adopted_unasked() -> Patch:
    """A fresh run whose admission has no known outcome is taken for admitted."""

    def plant(settle_hand: Callable[..., Any]) -> Any:
        def planted(self: Any, change: Change) -> Any:
            settle = settle_hand(self, change)

            def believe(answer: Answer | None) -> None:
                settle(Committed(change.run) if answer is None else answer)

            return believe

        return planted

    return _patched(Admission, "_settle_hand", plant)


# -- lanes


def _promoted_twice() -> Patch:
    def plant(room: Callable[..., int]) -> Any:
        def planted(lane: Lane, active: int) -> int:
            count = room(lane, active)
            return count + 1 if count else 0

        return planted

    return _patched(lanes, "room", plant)


def _forgotten_in_lanes() -> Patch:
    def plant(promote: Callable[..., tuple[str, ...]]) -> Any:
        def planted(self: Any, lane: Lane, offered: dict[str, Run]) -> tuple[str, ...]:
            # A run that enters a free lane is active at once; none is when another one leaves.
            return promote(self, lane, offered) if offered else ()

        return planted

    return _patched(MemoryLanes, "_promote", plant)


PLANTS: dict[str, Callable[[], Patch]] = {
    "fence not checked": lambda: _without_checks(fence=True, length=False),
    "length not checked": lambda: _without_checks(fence=False, length=True),
    "neither fence nor length checked": lambda: _without_checks(fence=True, length=True),
    "recorded before the fence": _recorded_before_the_fence,
    "ends over unread messages": _over_unread_messages,
    "key freed at the end": _key_freed_at_end,
    "continue-as-new drops the key": _key_dropped_by_continuing,
    "holder of the key not looked at": _holder_not_looked_at,
    "supersede without cancel": _superseded_without_cancel,
    "retention frees a live key": _retention_of_the_living,
    "rescue without raising the epoch": _rescued_at_the_same_epoch,
    "claim ignores the lease": _claimed_from_others,
    "the dead are never rescued": _never_rescued,
    "double adoption": _adopted_twice,
    "adopted though unknown": _adopted_unasked,
    "cancel lost": lambda: _dropped(CancelRequest),
    "outcome of a child lost": lambda: _dropped(OutcomeMessage),
    "message without wake-up": _without_wake_up,
    "lost wake-up": _lost_wake_up,
    "dedupe forgotten at takeover": _inbox_forgets_what_was_read,
    "message delivered twice": _delivered_twice,
    "signal to an ended run accepted": _sent_to_the_ended,
    "relay drops messages": _relay_that_drops,
    "undo in order": _undone_in_order,
    "retry count reset": _attempts_counted_again,
    "timer fired twice": _timer_recorded_twice,
    "timer fired early": _timer_early,
    "recorded after what follows": _recorded_after_what_follows,
    "child started twice": _children_twice,
    "two become active in a lane for one": _promoted_twice,
    "none becomes active in a lane": _forgotten_in_lanes,
}


@contextlib.contextmanager
def planted(name: str | None) -> Generator[None]:
    """With this bug; with none if it is None."""
    if name is None:
        yield
        return
    with PLANTS[name]():
        yield


def seeds_needed(name: str, seeds: Iterable[int]) -> Wrong | None:
    """The first of these seeds that finds a planted bug; None if none does."""
    with planted(name):
        return next((wrong for wrong in map(look_at, seeds) if wrong is not None), None)
