"""Applies Changes to dictionaries: one function for each guard, and the rules of `holdfast.kernel.changes` in quotes.

Each function checks first and writes then. Nothing here awaits, so every Change is one atomic unit.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from holdfast.kernel import batches, hooks, lanes
from holdfast.kernel.changes import (
    KEEPING,
    Alive,
    Answer,
    Beat,
    Change,
    Committed,
    Gathering,
    HandedOver,
    HolderOf,
    HookOpen,
    KeyFree,
    KeyHeldBy,
    Known,
    NotBegun,
    Refused,
    TokenFree,
    TokenHeldBy,
)
from holdfast.kernel.messages import Envelope, Watcher, blob_of, outcome_message, size
from holdfast.kernel.runs import ENDED, Fenced, Run, Status, with_key_released
from holdfast.kernel.times import Instant
from holdfast.stores.memory.lanes import MemoryLanes
from holdfast.stores.memory.rules import MemoryRules
from holdfast.stores.memory.tables import Tables


class MemoryWrites:
    """How each kind of Change is written."""

    def __init__(self, tables: Tables, now_ms: Callable[[], Instant]) -> None:
        self._tables = tables
        self._now_ms = now_ms
        self._lanes = MemoryLanes(tables, now_ms)
        self._rules = MemoryRules(tables, now_ms)

    @property
    def lanes(self) -> MemoryLanes:
        return self._lanes

    @property
    def rules(self) -> MemoryRules:
        return self._rules

    def apply(self, change: Change) -> Answer:
        """Check the guard and write, or write nothing."""
        assert not (change.outs or change.audits) or isinstance(change.guard, KEEPING), change
        match change.guard:
            case KeyFree() | KeyHeldBy():
                return self._admit(change, change.guard)
            case HolderOf():
                return self._look(change.guard)
            case Fenced() if change.run is None:
                return self._keep_beats_at_fence(change, change.guard)
            case Fenced():
                return self._update(change, change.guard)
            case HandedOver(fence):
                return self._update(change, fence)
            case Known():
                return self._watch(change, change.guard)
            case Alive():
                return self._send_to_run(change, change.guard)
            case TokenHeldBy():
                return self._send_to_token(change, change.guard)
            case TokenFree():
                return self._open_token(change, change.guard)
            case NotBegun(fence):
                return self._renew(change, fence)
            case Gathering():
                return self._gather(change, change.guard)

    # -- HolderOf

    def _look(self, guard: HolderOf) -> Answer:
        # "If the run of the start is there already: then the start has to be offered whole."
        if guard.run_id in self._tables.runs:
            return Refused(None)
        holder_id = self._tables.keys.get((guard.namespace, guard.workflow, guard.key))
        return Refused(None if holder_id is None else self._tables.runs[holder_id])

    # -- KeyFree, KeyHeldBy

    def _admit(self, change: Change, guard: KeyFree | KeyHeldBy) -> Answer:
        run = change.run
        assert run is not None
        # "Offered again after a lost reply" it returns what it returned first, "and writes nothing more."
        if run.id in self._tables.runs:
            return Committed(self._tables.runs[run.id])
        # "A change whose message has been received before" is committed already, by the run that received it.
        receiver = None if change.inherits else self._receiver_in_scopes(change)
        if receiver is not None:
            return Committed(receiver)
        holder = self._holder_of_key(run)
        if holder is not None and not self._may_take_over(guard, holder):
            return Refused(holder)
        if change.enters is not None and (no_room := self._lanes.no_room(run.namespace, change.enters)):
            return Refused(self._lanes.first(run.namespace, change.enters.lane), no_room)
        if holder is not None:
            self._tables.put(with_key_released(holder))
        # "if it admits the run: one that is refused, or has been made before, changes neither."
        run = self._tables.put(self._rules.admit(change, run))
        if run.key is not None:
            self._tables.keys[run.namespace, run.workflow, run.key] = run.id
        self._append(run.id, change)
        self._tables.keep(change.outs, change.audits)
        self._add_watcher(run, change.watcher)
        # "An admission that opens hooks gets the tokens that are free."
        self._open_hooks(run, tuple(hook for hook in change.opens if self._is_free(run, hook.token)))
        # "A run with a lane enters it in the change that says so"
        active = () if change.enters is None else self._lanes.enter(run, change.enters)
        told = self._deliver(self._take_over(change) if change.inherits else change.envelopes)
        return Committed(self._tables.runs[run.id], (*told, *(each for each in active if each != run.id)))

    def _may_take_over(self, guard: KeyFree | KeyHeldBy, holder: Run) -> bool:
        """Whether the holder lets go of its key."""
        # "The key is held by this run, at this fence if one is given."
        return isinstance(guard, KeyHeldBy) and guard.run_id == holder.id and guard.fence in {None, holder.fence}

    def _holder_of_key(self, run: Run) -> Run | None:
        if run.key is None:
            return None
        holder_id = self._tables.keys.get((run.namespace, run.workflow, run.key))
        return None if holder_id is None else self._tables.runs[holder_id]

    def _take_over(self, change: Change) -> tuple[Envelope, ...]:
        """Take the messages that the run inherits out of the inbox of the other run."""
        received = self._inheritable(change)
        for envelope in received:
            del self._tables.inboxes[change.inherits][envelope.message.id]
        return received

    def _inheritable(self, change: Change) -> tuple[Envelope, ...]:
        """The messages that the run may take over from another one: those that the other one has received."""
        scopes = self._tables.scopes
        return tuple(each for each in change.envelopes if scopes.get((each.scope, each.message.id)) == change.inherits)

    # -- Fenced

    def _keep_beats_at_fence(self, change: Change, guard: Fenced) -> Answer:
        """What is written at a run's fence without moving the run."""
        current = self._tables.runs.get(guard.run_id)
        if current is None or current.fence != guard:
            return Refused(current)
        self._keep_beats(guard.run_id, change.beats)
        return Committed(None)

    def _update(self, change: Change, guard: Fenced) -> Answer:
        run = change.run
        assert run is not None
        current = self._tables.runs.get(run.id)
        # "Offered again after a lost reply" it returns what it returned first, "and writes nothing more."
        if current is not None and current.change_id == change.id:
            return Committed(current)
        # "`entries` follow the journal's present end"
        if current is None or current.fence != guard or current.length != run.length - len(change.entries):
            return Refused(current)
        unread = self._unread_after(change, current)
        # "A run ends over an empty inbox: a change that ends it and leaves a message unread is refused."
        if run.status in ENDED and unread and current.finished_at_ms is None:
            return Refused(current)
        run = self._write_row(change, run, current, unread)
        self._tables.keep(change.outs, change.audits)
        self._write_what_belongs_to(run, change)
        ends = run.status in ENDED and current.finished_at_ms is None
        active = () if change.enters is None else self._lanes.enter(run, change.enters)
        if lanes.leaves(run):  # "and leaves it in the one that ends it, or by which it steps aside."
            active += self._lanes.leave(run)
        if not ends:
            return Committed(self._tables.runs[run.id], tuple(each for each in active if each != run.id))
        # "When a run ends, each of its watchers gets a message with the outcome"
        told = [active, *(self._tell(run, watcher) for watcher in self._tables.watchers.get(run.id, ()))]
        if change.then is not None:
            told.append(self._succeed(change, change.then))
        return Committed(run, tuple(run_id for run_ids in told for run_id in run_ids))

    def _unread_after(self, change: Change, current: Run) -> int:
        """How many messages are unread when this change is written. It is counted here: the Change may be older."""
        inbox = self._tables.inboxes.get(current.id, {})
        # "A message is read once: one that `read` names, and that has been read meanwhile, is not counted a second
        # time."
        read = sum(inbox.get(message_id) is not None for message_id in change.read)
        # "A message that a successor takes over leaves the inbox with it; if there can be none, since the run has lost
        # its key, it stays unread."
        moved = len(change.moves) if current.holds_key else 0
        return current.unread - read - moved

    def _write_row(self, change: Change, run: Run, current: Run, unread: int) -> Run:
        for message_id in change.read:
            self._tables.inboxes.setdefault(run.id, {})[message_id] = None
        # "an unowned waiting run with unread messages may be claimed at once"
        wake_at_ms = self._now_ms() if run.status is Status.WAITING and unread else run.wake_at_ms
        # Whether it holds its key is the row's to say: an owner does not know that its key was taken.
        run = self._tables.put(replace(run, unread=unread, wake_at_ms=wake_at_ms, holds_key=current.holds_key))
        if change.takes_key:
            self._lose_key(run)
        return run

    def _write_what_belongs_to(self, run: Run, change: Change) -> None:
        if change.replaces_journal:  # "with `replaces_journal` they replace it"
            self._tables.journals[run.id] = []
            self._tables.blobs[run.id] = {}
        self._append(run.id, change)
        self._keep_beats(run.id, change.beats)
        self._open_hooks(run, change.opens)
        self._close_hooks(run, change.closes)

    def _succeed(self, change: Change, admission: Change) -> tuple[str, ...]:
        """Admit the successor, and hand it the messages that it inherits. Returns the runs that were told."""
        # "`then` admits a successor in the same unit, as long as the run has its key and there is a message for it"
        former = self._tables.runs[admission.inherits]
        if not former.holds_key:
            return ()
        if not change.moves and not self._inheritable(admission):
            return ()  # its journal was copied from the run that has received them: nothing would be handed over
        self.apply(admission)
        successor, inbox = admission.run, self._tables.inboxes.get(former.id, {})
        assert successor is not None
        moving = [inbox.pop(message_id) for message_id in change.moves]
        scope = hooks.key_scope(successor.namespace, successor.workflow, successor.key or "")
        self._deliver(tuple(Envelope(successor.id, message, scope) for message in moving if message is not None))
        return (successor.id,)

    # -- Known

    def _watch(self, change: Change, guard: Known) -> Answer:
        run = self._tables.runs.get(guard.run_id)
        return Refused(None) if run is None else Committed(run, self._add_watcher(run, change.watcher))

    # -- Alive, TokenHeldBy

    def _send_to_run(self, change: Change, guard: Alive) -> Answer:
        if (receiver := self._receiver(change)) is not None:
            return Committed(receiver)
        run = self._tables.runs.get(guard.run_id)
        # "The run exists and has not ended; with `holds_key`, its key is still its own."
        if run is None or run.finished_at_ms is not None or (guard.holds_key and not run.holds_key):
            return Refused(run)
        return self._send(change, run)

    def _send_to_token(self, change: Change, guard: TokenHeldBy) -> Answer:
        if (receiver := self._receiver(change)) is not None:
            return Committed(receiver)
        run = self._tables.runs.get(guard.run_id)
        # "The token is held by this run, which has not ended."
        if run is None or run.finished_at_ms is not None:
            return Refused(run)
        if self._tables.tokens.get((guard.namespace, guard.token)) != run.id:
            return Refused(run)
        return self._send(change, run)

    def _send(self, change: Change, run: Run) -> Answer:
        if change.takes_key:
            self._lose_key(run)
        self._tables.keep(change.outs, change.audits)
        told = self._deliver(change.envelopes)
        return Committed(self._tables.runs[run.id], told)

    def _receiver(self, change: Change) -> Run | None:
        """The run that has received a message of this change before."""
        # "A message is received once: by its run, whose inbox remembers its id, and within its scope if it has one."
        for envelope in change.envelopes:
            if (receiver := self._receiver_in_scope(envelope)) is not None:
                return receiver
            if envelope.message.id in self._tables.inboxes.get(envelope.run_id, {}):
                return self._tables.runs[envelope.run_id]
        return None

    def _receiver_in_scopes(self, change: Change) -> Run | None:
        found = map(self._receiver_in_scope, change.envelopes)
        return next((receiver for receiver in found if receiver is not None), None)

    def _receiver_in_scope(self, envelope: Envelope) -> Run | None:
        """The run that has received this message before, under this key or token."""
        runs, scopes = self._tables.runs, self._tables.scopes
        names = ((envelope.scope, message_id) for message_id in (envelope.message.id, envelope.formerly))
        return next((runs[scopes[name]] for name in names if name in scopes), None)

    # -- NotBegun

    def _renew(self, change: Change, fence: Fenced) -> Answer:
        run = change.run
        assert run is not None
        current = self._tables.runs.get(run.id)
        if current is not None and current.change_id == change.id:
            return Committed(current)
        # "The run has not begun, holds its key, and is still at this fence"
        if current is None or current.fence != fence or current.status is not Status.PENDING or not current.holds_key:
            return Refused(current)
        if current.wake_at_ms is None:  # "If it is parked, what the change says about its wake-up counts from when"
            self._lanes.put_off(run)
            run = replace(run, wake_at_ms=None)
        self._tables.journals[run.id] = []
        self._tables.blobs[run.id] = {}
        self._append(run.id, change)
        return Committed(self._tables.put(replace(run, unread=current.unread)))

    # -- Gathering

    def _gather(self, change: Change, guard: Gathering) -> Answer:
        if (receiver := self._receiver(change)) is not None:
            return Committed(receiver)
        run = self._tables.runs.get(guard.run_id)
        # "The run has not begun and holds its key, and its inbox has room"
        if run is None or not batches.has_room(run, guard.size):
            return Refused(run)
        inbox = self._tables.inboxes.get(run.id, {}).values()
        messages = [*(each for each in inbox if each is not None), *(each.message for each in change.envelopes)]
        if sum(map(size, messages)) > guard.bytes_max:
            return Refused(run)
        told = self._deliver(change.envelopes)
        # "With the last message that there is room for, the run may be claimed at once."
        run = self._tables.runs[run.id]
        if batches.is_full(run.unread, guard.size) and run.wake_at_ms is not None:
            run = self._tables.put(replace(run, wake_at_ms=min(run.wake_at_ms, self._now_ms())))
        return Committed(run, told)

    # -- TokenFree

    def _open_token(self, change: Change, guard: TokenFree) -> Answer:
        # "No other live run holds the token, and the run that wants it is still at its fence."
        current = self._tables.runs.get(guard.fence.run_id)
        if current is None or current.fence != guard.fence:
            return Refused(current)
        if not self._is_free(current, guard.token):
            return Refused(self._tables.runs[self._tables.tokens[guard.namespace, guard.token]])
        self._open_hooks(current, change.opens)
        return Committed(current)

    def _is_free(self, run: Run, token: str | None) -> bool:
        """Whether no other live run holds the token."""
        # "The token of a run that has ended is free."
        holder = self._tables.runs.get(self._tables.tokens.get((run.namespace, token or ""), ""))
        return holder is None or holder.id == run.id or holder.finished_at_ms is not None

    # -- what they write

    def _append(self, run_id: str, change: Change) -> None:
        self._tables.journals.setdefault(run_id, []).extend(change.entries)
        self._tables.blobs.setdefault(run_id, {}).update({blob.digest: blob.data for blob in change.blobs})

    def _keep_beats(self, run_id: str, beats: tuple[Beat, ...]) -> None:
        self._tables.beats.setdefault(run_id, {}).update({beat.step: beat.details for beat in beats})

    def _lose_key(self, run: Run) -> None:
        self._tables.free_key(run)
        self._tables.put(replace(self._tables.runs[run.id], holds_key=False))

    def _open_hooks(self, run: Run, opens: tuple[HookOpen, ...]) -> None:
        for hook in opens:
            known = self._tables.hooks.setdefault(run.id, {})
            if hook.token is not None:
                self._forget_token(run.namespace, hook.token)
            known.pop((hook.name, hook.token), None)  # the newest comes last
            known[hook.name, hook.token] = hook
            if hook.token is not None:
                self._tables.tokens[run.namespace, hook.token] = run.id

    def _close_hooks(self, run: Run, closes: tuple[HookOpen, ...]) -> None:
        for hook in closes:
            closed = self._tables.hooks.get(run.id, {}).pop((hook.name, hook.token), None)
            if closed is not None:
                self._tables.free_token(run, closed.token)

    def _forget_token(self, namespace: str, token: str) -> None:
        """A run that has opened a hook with this token has it no longer."""
        # "A token belongs to one live run."
        known = self._tables.hooks.get(self._tables.tokens.pop((namespace, token), ""), {})
        for place in [place for place, hook in known.items() if hook.token == token]:
            del known[place]

    # -- messages

    def _add_watcher(self, run: Run, watcher: Watcher | None) -> tuple[str, ...]:
        if watcher is None:
            return ()
        watchers, kept = self._tables.watchers.setdefault(run.id, []), replace(watcher, epoch=0)
        if kept not in watchers:
            watchers.append(kept)
        # One who begins to watch "a run that has already ended gets it at once."
        return self._tell(run, watcher) if run.status in ENDED else ()

    def _tell(self, run: Run, watcher: Watcher) -> tuple[str, ...]:
        message = outcome_message(run, watcher)
        told = self._deliver((Envelope(watcher.run_id, message),))
        # "and a copy of the blob if the output is large"
        if told and (digest := blob_of(message)) is not None:
            self._tables.blobs.setdefault(watcher.run_id, {})[digest] = self._tables.blobs[run.id][digest]
        return told

    def _deliver(self, envelopes: tuple[Envelope, ...]) -> tuple[str, ...]:
        """Put messages into the inboxes of runs that have not ended; returns the runs that got one."""
        told: list[str] = []
        for envelope in envelopes:
            run = self._tables.runs.get(envelope.run_id)
            inbox = self._tables.inboxes.setdefault(envelope.run_id, {})
            if run is None or run.finished_at_ms is not None or envelope.message.id in inbox:
                continue
            inbox[envelope.message.id] = envelope.message
            if envelope.scope:
                self._tables.scopes[envelope.scope, envelope.message.id] = run.id
            # "A message for a run raises its unread count; an unowned waiting run with unread messages may be claimed
            # at once."
            wake_at_ms = self._now_ms() if run.status is Status.WAITING else run.wake_at_ms
            self._tables.put(replace(run, unread=run.unread + 1, wake_at_ms=wake_at_ms))
            told.append(run.id)
        return tuple(told)
