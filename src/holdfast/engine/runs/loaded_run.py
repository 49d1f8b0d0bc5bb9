"""What has arrived for a run in memory, turned into entries and delivered to its code, one at a time.

Nothing here waits or writes: the execution commits what an activation has recorded, and begins what it answers.

    arrivals    what came back from errands, and messages, in the order in which they came
    dropped     what the code has stopped waiting for, and may come back all the same
    in_doubt    steps that a former holder of the run may have begun
    deadline    of a cancellation, once there is one; `pausing` if the code is not told of it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from holdfast.engine.code.commands import Command
from holdfast.engine.code.machine import Machine
from holdfast.engine.code.replay import replaying
from holdfast.engine.runs.completions import Again, Arrival, Record, TokenClaimed
from holdfast.engine.runs.host import RunHost
from holdfast.engine.runs.in_flight import InFlight
from holdfast.engine.runs.recorder import Recorder
from holdfast.kernel import cancels
from holdfast.kernel.changes import Blob
from holdfast.kernel.journal import (
    Attempted,
    Dropped,
    Elapsed,
    Entry,
    Forked,
    GaveUp,
    Late,
    Performed,
    Received,
    Resumed,
    Retried,
    Spawned,
    Stopped,
    Value,
)
from holdfast.kernel.messages import CancelRequest, KeyTaken, Message, OutcomeMessage, Signal
from holdfast.kernel.replay import NOTHING_NOTED, noted
from holdfast.pack import Workflow
from holdfast.ports.store import History
from holdfast.workflow import Current

ENTRIES_MAX = 500  # of one activation, more or less


class LoadedRun:
    """One life of a run in memory: its machine, its errands, and what lies between the two."""

    def __init__(
        self,
        host: RunHost,
        workflow: Workflow[..., Any],
        history: History,
        blobs: Mapping[str, bytes],
        arrive: Callable[[Arrival], None],
    ) -> None:
        run, journal = history.run, history.journal
        fresh = len(journal) == 1
        self.run = run
        self.history = history
        self.blobs = dict(blobs)
        self.machine = Machine(
            workflow,
            Current(run.id, run.key, run.workflow, run.version or None),
            codec=host.codec,
            blobs=self.blobs,
            noted=NOTHING_NOTED if fresh else noted(journal, first=run.length - len(journal)),
        )
        self.in_flight = InFlight(host, history, arrive)
        self.recorder = Recorder(host, run.id, self.in_flight, self.blobs)
        self.arrivals: deque[Arrival] = deque(history.messages)
        self._admitted = {entry.step for entry in journal if isinstance(entry, Late) and entry.run_id}
        self.dropped: dict[str, Command] = {}
        self.came_to_its_end: set[str] = set()  # steps of which a late entry says what came of them
        self.in_doubt: frozenset[str] = frozenset()
        self.deadline_ms: int | None = None
        self.pausing = False
        self._now_ms = host.store.now_ms
        self._pauses = workflow.pauses
        self._to_call: list[Command] = []  # effects to be called again: their retry is due, or they never happened
        self._watch_again = not fresh and any(isinstance(entry, Retried | Resumed | Forked) for entry in journal)

    def close(self) -> None:
        """The run is not here any more, or begins anew."""
        self.in_flight.close()
        self.machine.evict()

    def replaying(self) -> Iterator[None]:
        """Bring the code to where the journal ends, in pieces."""
        run = self.run
        yield from replaying(self.machine, run, self.history.journal)
        asked = cancels.request_in(run, self.history.journal)
        if asked is not None:
            self.deadline_ms, self.pausing = asked.deadline_ms, asked.pausing

    def deliver(self, record: Record, *, mail_only: bool = False) -> None:
        """Turn what has arrived into entries and deliver each, until the code ends or nothing is left.

        If very much has arrived, some of it is left for the next activation: a commit lies in between, and whatever
        else this process has to do.
        """
        while self.machine.outcome is None and len(record.entries) < ENTRIES_MAX:
            if self.arrivals and (not mail_only or isinstance(self.arrivals[0], Message)):
                entry = self._entry_of(self.arrivals.popleft(), record)
            elif self.pausing or mail_only:
                return
            elif self._may_unwind():
                entry = Stopped(self._now_ms())
            else:
                entry = self._due()
                if entry is None:
                    return
            if isinstance(entry, Command):
                self._to_call.append(entry)
            elif entry is not None:
                self._apply(entry, record)
                if self.machine.pending.dropped:
                    self.let_drop(record)

    def _due(self) -> Elapsed | Command | None:
        if self.machine.pending.next_due_ms() is None:
            return None
        now_ms = self._now_ms()
        # Not a millisecond before: an event loop that wakes too soon sleeps again for what is left.
        due = self.machine.pending.take_due(now_ms)
        if due is None or isinstance(due, Command):
            return due
        return Elapsed(max(now_ms, due.due_ms), due.step, due.due_ms)

    def _may_unwind(self) -> bool:
        """Whether the code has ended in a cancellation, and nothing that it had begun is still under way."""
        machine = self.machine
        return machine.ended is not None and not machine.is_unwinding and not self.in_flight.in_flight

    def _entry_of(self, arrival: Arrival, record: Record) -> Entry | Command | None:
        match arrival:
            case CancelRequest():
                record.read.append(arrival.id)
                return None if self.deadline_ms is not None else self.cancel(arrival, record)
            case Signal() | KeyTaken():
                record.read.append(arrival.id)
                return self.recorder.entry_of_message(arrival, record, pausing=False)
            case Again(entry=entry):
                return self._entry_once_more(entry, record)
            case OutcomeMessage():
                record.read.append(arrival.id)
            case _:
                self.in_flight.in_flight.pop(arrival.step, None)
                record.heard += self.in_flight.heard(arrival.step)
        command = self.machine.open.get(arrival.step)
        if command is not None:
            return self.recorder.entry_of(arrival, command, record)
        dropped = self.dropped.pop(arrival.step, None)
        if dropped is None or isinstance(arrival, OutcomeMessage):
            return None  # the code no longer waits for it, and there is nothing to record
        if isinstance(arrival, TokenClaimed) and arrival.holder is None and dropped.hook is not None:
            record.closes += (dropped.hook,)  # it was closed before it was its own
        return self.recorder.late_entry_of(arrival, dropped, record)

    def _entry_once_more(self, entry: Entry, record: Record) -> Entry | None:
        """What was recorded in a change that came too late, as far as the code still waits for it."""
        step: str = getattr(entry, "step", "")
        if isinstance(entry, Late):
            if entry.value is None:
                return replace(entry, at_ms=self._now_ms())
            entry = Performed(entry.at_ms, step, entry.intent, entry.attempt, entry.value)
        if isinstance(entry, Performed):
            record.blobs += self.kept(entry.value)
        if step in self.machine.open:
            return replace(entry, at_ms=self._now_ms())
        if isinstance(entry, Performed):
            return Late(self._now_ms(), step, entry.intent, entry.attempt, entry.value)
        return None

    def _too_late(self, entry: Entry, record: Record) -> Late | None:
        """What was to be recorded once more, when the code has ended without it: it has happened all the same."""
        now_ms = self._now_ms()
        match entry:
            case Performed(step=step, intent=intent, attempt=attempt, value=value):
                record.blobs += self.kept(value)
                return Late(now_ms, step, intent, attempt, value)
            case (
                GaveUp(step=step, intent=intent, attempt=attempt, error=error)
                | Attempted(step=step, intent=intent, attempt=attempt, error=error)
            ) if intent.kind in {"effect", "undo"}:
                return Late(now_ms, step, intent, attempt, error=error)
            case Spawned(step=step, intent=intent, run_id=run_id, created=True, detached=False):
                return Late(now_ms, step, intent, 1, run_id=run_id)
            case Late(value=value):
                record.blobs += () if value is None else self.kept(value)
                return replace(entry, at_ms=now_ms)
            case _:
                return None

    def cancel(self, request: CancelRequest, record: Record) -> Entry:
        self.deadline_ms = request.deadline_ms
        self.pausing = self._pauses
        if self.pausing:  # the code is not told; what is under way is
            for step in self.in_flight.in_flight:
                if (command := self.machine.open.get(step)) is not None:
                    self.in_flight.drop(command)
        return self.recorder.entry_of_message(request, record, pausing=self.pausing)

    def _apply(self, entry: Entry, record: Record) -> None:
        record.entries.append(entry)
        self.machine.apply(entry, self.run.length + len(record.entries) - 1)

    def let_drop(self, record: Record) -> None:
        """Interrupt what the code no longer waits for; note what may have been under way."""
        for command in self.machine.pending.take_dropped():
            self.dropped[command.step] = command
            self.in_flight.drop(command)
            if self._may_have_admitted(command):
                # Its child may exist. Admitting it again finds out, and keeps a paused former holder from doing so.
                self.in_flight.begin(command)
            if self.may_have_begun(command):
                self._apply(Dropped(self.machine.now_ms(), command.step, command.intent), record)

    def _may_have_admitted(self, command: Command) -> bool:
        """Whether a former holder of the run may have started this child without a record of it."""
        own = command.admits_a_run and not command.detached and not command.child_id
        unknown = command.step in self.in_doubt and command.step not in self._admitted
        return own and unknown and command.step not in self.in_flight.in_flight

    def may_have_begun(self, command: Command) -> bool:
        """Whether the world may have been touched, here or by a former holder of the run."""
        begun = self.in_flight.has_begun(command.step) or command.step in self.in_doubt
        return begun and command.touches_the_world

    def take_notes(self, record: Record) -> None:
        notes = self.machine.notes
        if notes.are_there:
            record.entries += notes.take()
            record.shown = notes.take_shown()
            record.opens, closes = notes.take_hooks()
            record.closes += closes

    def to_begin(self, record: Record) -> list[Command]:
        """What is to be begun once `record` is durable; adds the intents of `once` effects to it."""
        if self.pausing or self.machine.outcome is not None:
            return []
        commands = {command.step: command for command in self._to_call if command.step in self.machine.open}
        self._to_call.clear()
        for command in self.machine.pending.take_fresh():
            if not command.is_under_way(self._now_ms):
                commands[command.step] = command
        if self._watch_again:
            # While the run was ended, nobody told it how its children fared.
            commands |= {command.step: command for command in self.machine.open.values() if command.awaits_a_child}
            self._watch_again = False
        for command in commands.values():
            intent = self.recorder.intent_of(command)
            if intent is not None:
                self._apply(intent, record)
        return list(commands.values())

    def next_due_ms(self) -> int | None:
        due_ms, deadline_ms = self.machine.pending.next_due_ms(), self.deadline_ms
        if due_ms is None or deadline_ms is None:
            return deadline_ms if due_ms is None else due_ms
        return min(due_ms, deadline_ms)

    def is_cancelled_by_now(self) -> bool:
        """Whether a cancellation has come to its end without the code: at its deadline, or with all standing still."""
        if self.deadline_ms is None:
            return False
        return self.deadline_ms <= self._now_ms() or (self.pausing and not self.in_flight.in_flight)

    def take_what_ended(self, record: Record) -> None:
        """Record what came of effects that were under way when the code ended, or could not go on. Messages wait."""
        ended = [arrival for arrival in self.arrivals if not isinstance(arrival, Message)]
        self.arrivals = deque(arrival for arrival in self.arrivals if isinstance(arrival, Message))
        for arrival in ended:
            self.in_flight.in_flight.pop(arrival.step, None)
            if isinstance(arrival, Again):
                entry = self._too_late(arrival.entry, record)
            else:
                record.heard += self.in_flight.heard(arrival.step)
                command = self.dropped.pop(arrival.step, None) or self.machine.open.get(arrival.step)
                entry = None if command is None else self.recorder.late_entry_of(arrival, command, record)
            if entry is not None:
                self.came_to_its_end.add(arrival.step)
                self._apply(entry, record)

    def interrupt(self, *, all_of_it: bool) -> None:
        """Begin nothing more; with `all_of_it`, interrupt what has begun here, too.

        A remote effect is taken back in any case: it may be that no worker has it yet, or ever will.
        """
        for step in tuple(self.in_flight.in_flight):
            command = self.machine.open.get(step)
            if command is None or not command.touches_the_world:
                continue
            if all_of_it or command.effect().remote or not self.in_flight.has_begun(step):
                self.in_flight.drop(command)

    def note_what_may_be_under_way(self, record: Record) -> None:
        """The run is left where it stands: record which effects were begun, as far as is known."""
        for step, command in self.machine.open.items():
            known = command.intended or step in self.dropped or step in self.came_to_its_end
            if not known and self.may_have_begun(command):
                record.entries.append(Dropped(self._now_ms(), step, command.intent))

    def record_leftovers(self, record: Record, *, but: Collection[str] = ()) -> None:
        """Record the signals that had come before the code ended, so that the journal says where they went."""
        left = [each for each in self.arrivals if isinstance(each, Signal) and each.id not in {*but, *record.read}]
        self.dismiss(left, record)

    def dismiss(self, messages: Collection[Message], record: Record) -> None:
        """Read what came too late to change anything.

        Signals are recorded all the same, since they were accepted; and that the key was released.
        """
        for message in messages:
            record.read.append(message.id)
            if isinstance(message, Signal | KeyTaken):
                entry = self.recorder.entry_of_message(message, record, pausing=False)
                record.entries.append(replace(entry, left=True) if isinstance(entry, Received) else entry)

    def for_a_successor(self) -> tuple[tuple[Signal, ...], tuple[str, ...]]:
        """The signals that the next owner of the key should see: those recorded, and the ids of those not even read."""
        unheard = tuple(
            Signal(each.id, each.hook, Raw(self._data_of(each.value)), by_key=True)
            for each in self.machine.inbox.untaken()
            if self._is_for_a_successor(each)
        )
        unread = (each for each in self.arrivals if isinstance(each, Signal) and self._is_for_a_successor(each))
        return unheard, tuple(each.id for each in unread)

    def _is_for_a_successor(self, signal: Signal | Received) -> bool:
        """Whether the next owner of the key should see this signal.

        It was sent to the key, which the run still has, and for a hook that the code did take from: so each run takes
        one at least, and a hook that is never read does not start one run after the other.
        """
        has_key = self.run.key is not None and self.run.holds_key
        return signal.by_key and has_key and self.machine.inbox.took_any(signal.hook)

    def kept(self, *values: Value) -> tuple[Blob, ...]:
        return tuple(Blob(value.blob, self.blobs[value.blob]) for value in values if value.blob)

    def _data_of(self, value: Value) -> bytes:
        return self.blobs[value.blob] if value.blob else bytes(value.json)  # pyright: ignore[reportArgumentType]

    def is_all_there_is(self, command: Command) -> bool:
        """Whether an async effect is the only thing that the run waits for: then it needs no task of its own."""
        return (
            command.intent.kind == "effect"
            and command.effect().is_async
            and not command.effect().remote
            and len(self.machine.open) == 1
            and not self.machine.timers
            and not self.machine.inbox.awaited()
            and not self.in_flight.in_flight
            and self.deadline_ms is None
            and not self.in_flight.is_in_doubt(command)
        )
