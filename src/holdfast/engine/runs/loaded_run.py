"""What has arrived for a run in memory, turned into entries and delivered to its code, one at a time.

Nothing here waits or writes: the activation commits what has been recorded, and begins what is to be begun. What
follows from a completion is decided in `kernel/steps.py`; here that is applied to the run.

    arrivals    completions of steps, and messages, in the order in which they came
    held_back   signals that came through a token before it is known here that the token is held
    dropped     what the code has stopped waiting for, and may come back all the same
    in_doubt    steps that a former holder of the run may have begun
    deadline    of a cancellation, once there is one; `pausing` if the code is not told of it
    failure     with which the code has ended, if what it did is undone before the run fails; `deadline` is that of it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from holdfast import events
from holdfast.engine.code.commands import Command
from holdfast.engine.code.dropped_calls import DroppedCall
from holdfast.engine.code.machine import Machine
from holdfast.engine.code.replay import replaying
from holdfast.engine.failures import described
from holdfast.engine.runs import never_awaited
from holdfast.engine.runs.completions import (
    ActivationRecord,
    Arrival,
    Broken,
    Completion,
    HeldBack,
    NeedsPerson,
    Passed,
)
from holdfast.engine.runs.host import RunHost
from holdfast.engine.runs.in_flight import StepsInFlight
from holdfast.engine.values import kept, kept_of
from holdfast.errors import RunCancelled
from holdfast.kernel import cancels, hooks, retry_requests, steps
from holdfast.kernel.changes import Blob
from holdfast.kernel.journal import (
    Attempted,
    CancelAsked,
    EffectEntry,
    Elapsed,
    Entry,
    Failure,
    Forked,
    GaveUp,
    KeyReleased,
    Late,
    Opened,
    Performed,
    Received,
    Resumed,
    Retried,
    Spawned,
    StepEntry,
    Stopped,
    Value,
)
from holdfast.kernel.messages import CancelRequest, KeyTaken, Message, OutcomeMessage, SignalMessage
from holdfast.kernel.replay import NOTHING_NOTED, noted
from holdfast.kernel.retry_requests import RetryRequest
from holdfast.kernel.runs import Run
from holdfast.kernel.steps import Act, AwaitedRunEnded, Block, Expired, Raised, Repeated, Returned, Step
from holdfast.kernel.times import Instant
from holdfast.pack import EffectPolicy, Workflow
from holdfast.ports.store import History
from holdfast.workflow import Current

E = TypeVar("E", bound=EffectEntry)
ENTRIES_MAX = 500  # of one activation, more or less
_NO_STEPS: frozenset[str] = frozenset()
_NONE_LATE: Mapping[str, Late] = MappingProxyType({})


class LoadedRun(Struct, eq=False):
    """One life of a run in memory: its machine, its work in flight, and what lies between the two."""

    _host: RunHost
    _workflow: Workflow[..., Any]
    history: History
    run: Run
    blobs: dict[str, bytes]  # the large values that are at hand
    machine: Machine
    in_flight: StepsInFlight
    arrivals: deque[Arrival]
    is_fresh: bool  # nothing has happened to it yet
    _records_inputs: bool
    _admitted_at_ms: Instant | None  # if no worker took it at once
    held_back: tuple[SignalMessage, ...] = ()
    dropped: dict[str, Command] = {}
    in_doubt: frozenset[str] = _NO_STEPS
    came_to_its_end: frozenset[str] = _NO_STEPS  # steps of which a late entry says what came of them
    deadline_at_ms: Instant | None = None
    pausing: bool = False
    failure: Failure | None = None
    timed_out: Failure | None = None  # the run is ended as by a cancellation, and fails with this
    _came_late: Mapping[str, Late] = _NONE_LATE
    _watch_again: bool = False
    _repeated_left: int = 0  # how many arrivals are to be recorded again
    _to_call: tuple[Command, ...] = ()  # effects to be called again: their retry is due, or they never happened

    @classmethod
    def of(
        cls,
        host: RunHost,
        workflow: Workflow[..., Any],
        history: History,
        blobs: dict[str, bytes],
        arrive: Callable[[Arrival], None],
    ) -> LoadedRun:
        """The run as its history has it; what comes of its work in flight goes to `arrive`."""
        run, journal, recorded = history.run, history.journal, workflow.record_inputs
        is_fresh = len(journal) == 1
        machine = Machine(
            workflow,
            Current(run.id, run.key, run.workflow, run.version or None),
            codec=host.codec,
            blobs=blobs,
            noted=NOTHING_NOTED if is_fresh else noted(journal, first=run.length - len(journal)),
            journal=journal,
        )
        loaded = cls(
            host,
            workflow,
            history,
            run,
            blobs,
            machine,
            StepsInFlight(host, history, arrive),
            deque(history.messages),
            is_fresh,
            host.record_inputs if recorded is None else recorded,
            None if run.started_at_ms == run.created_at_ms else run.created_at_ms,
        )
        machine.on_dropped = loaded._tell_of
        if not is_fresh:
            loaded._came_late = {entry.step: entry for entry in journal if isinstance(entry, Late)}
            loaded._watch_again = any(isinstance(entry, Retried | Resumed | Forked) for entry in journal)
        return loaded

    def close(self) -> None:
        """The run is not here any more, or begins again."""
        self.in_flight.close()
        self.machine.evict()

    def _tell_of(self, call: DroppedCall) -> None:
        """The code has called an effect or a workflow, and has not awaited it."""
        self._host.emit(events.CallDropped(self.run.id, self.run.workflow, call.name, call.line))
        never_awaited.tell(call, self.run, strict=self._host.strict)

    def replaying(self) -> Iterable[None]:
        """Bring the code to where the journal ends, in pieces."""
        if not self.is_fresh:
            self._take_up_cancellation()
        return replaying(self.machine, self.run, self.history.journal)

    def _take_up_cancellation(self) -> None:
        """The run may have been cancelled, or have failed, before it came here."""
        journal = self.history.journal
        asked = cancels.request_in(self.run, journal)
        if asked is not None:
            self.deadline_at_ms, self.pausing, self.timed_out = asked.deadline_at_ms, asked.pausing, asked.error
        failed = cancels.failure_in(self.run, journal)
        if failed is not None and failed.error is not None:
            self._undo_until(failed.deadline_at_ms, failed.error)

    @property
    def undoes_failure(self) -> bool:
        """Whether the workflow wants to be undone if its code fails, there may be something, and it is not done yet."""
        machine = self.machine
        may_be_left = bool(machine.open) or not machine.left.is_empty
        return self._workflow.undo_ms is not None and not machine.cancelling and not machine.failing and may_be_left

    def undo_failure(self, error: Failure) -> None:
        """The code has failed with this: take back what it did. It begins when nothing is under way any more."""
        assert self._workflow.undo_ms is not None
        self._undo_until(self._host.store.now_ms() + self._workflow.undo_ms, error)
        self.machine.fail_by_unwinding()

    def _undo_until(self, deadline_at_ms: Instant | None, error: Failure) -> None:
        self.failure, self.deadline_at_ms, self.pausing = error, deadline_at_ms, False
        self.in_flight.parent_ended = "failed"

    @property
    def has_unseen_mail(self) -> bool:
        """Whether there may be mail that the code has not taken."""
        return bool(self.arrivals or self.held_back) or not self.machine.inbox.is_empty

    def unread_signals(self) -> list[SignalMessage]:
        """The signals that have come and are not recorded yet, in order."""
        return [*self.held_back, *(each for each in self.arrivals if isinstance(each, SignalMessage))]

    def put_signals_first(self) -> None:
        """Deliver signals before whatever else has come: the code must not end over one that is here already.

        What came through a token stands behind the record that its hook was opened, whatever was faster: a fork at
        the hook must not have it.
        """
        signals = self.unread_signals()
        if not signals:
            return
        others = [each for each in self.arrivals if not isinstance(each, SignalMessage)]
        completions = {each.step: each for each in others if isinstance(each, Completion)}
        opening = {each.hook.token: step for step, each in self.machine.open.items() if each.hook is not None}
        ready, opened, behind = list[Arrival](), dict[str, Completion](), list[Arrival]()
        self.held_back = ()
        for signal in signals:
            step = opening.get(hooks.token_of(signal.id))
            if step is None:
                ready.append(signal)
            elif step in completions:
                opened[step] = completions[step]
                behind.append(signal)
            else:
                self.held_back += (signal,)
        others = [each for each in others if not isinstance(each, Completion) or each.step not in opened]
        self.arrivals = deque([*ready, *opened.values(), *behind, *others])

    def deliver(self, record: ActivationRecord, *, mail_only: bool = False) -> None:
        """Turn what has arrived into entries and deliver each, until the code ends or nothing is left.

        If very much has arrived, some of it is left for the next activation: a commit lies in between, and whatever
        else this process has to do.
        """
        machine = self.machine
        while machine.outcome is None and len(record.entries) < ENTRIES_MAX:
            if self.arrivals and (not mail_only or isinstance(self.arrivals[0], Message)):
                entry = self._entry_of(self.arrivals.popleft(), record)
            elif self.pausing or mail_only:
                return
            elif machine.ended is not None and self._may_unwind():
                deadline_at_ms = None if self.failure is None else self.deadline_at_ms
                kept = self.timed_out is not None and self._workflow.undo_ms is None
                entry = Stopped(self._host.store.now_ms(), error=self.failure, deadline_at_ms=deadline_at_ms, kept=kept)
            else:
                due = self._due()
                if due is None:
                    return
                if isinstance(due, Command):
                    self._to_call += (due,)
                    continue
                entry = due
            if entry is not None:
                self._apply(entry, record)
                if machine.pending.dropped:
                    self.let_drop(record)

    def deliver_at_once(self, completion: Completion, command: Command, record: ActivationRecord) -> bool:
        """Deliver what came of a lone effect, if it has returned and nothing else has come. Otherwise False."""
        event, machine = completion.event, self.machine
        if type(event) is not Returned or completion.blobs or self.arrivals or self.held_back:
            return False
        if machine.open.get(command.step) is not command:
            return False
        entry = self._perform(command, event, completion)
        if self._records_inputs:
            entry = self._with_input(entry, command, record)
        record.entries.append(entry)
        machine.deliver(command, entry)
        return True

    def lone_effect(self) -> Command | None:
        """What the code has just asked for, if that is an effect to be performed at once, and all there is to do.

        It stays among what is fresh until it is begun.
        """
        machine, pending = self.machine, self.machine.pending
        if len(pending.fresh) != 1 or pending.dropped or machine.outcome is not None or machine.notes.are_there:
            return None
        [command] = pending.fresh
        if self.is_all_there_is(command) and steps.may_call_at_once(command.policy_on(self._host), intended=False):
            return command
        return None

    def _due(self) -> Elapsed | Command | None:
        if not self.machine.pending.has_dues:
            return None
        now_ms = self._host.store.now_ms()
        # Not a millisecond before: an event loop that wakes too soon sleeps again for what is left.
        due = self.machine.pending.take_due(now_ms)
        if due is None or isinstance(due, Command):
            return due
        return Elapsed(max(now_ms, due.due_at_ms), due.step, due.due_at_ms)

    def _may_unwind(self) -> bool:
        """Whether the code has ended in a cancellation, and nothing that it had begun is still under way."""
        machine = self.machine
        return machine.ended is not None and not machine.is_unwinding and not self.in_flight.tasks

    def _entry_of(self, arrival: Arrival, record: ActivationRecord) -> Entry | None:
        if isinstance(arrival, Completion):
            return self._complete(arrival, record)
        match arrival:
            case CancelRequest():
                record.read += (arrival.id,)
                if self.failure is not None and self.deadline_at_ms is not None:  # it is undone as it is
                    self.deadline_at_ms = min(self.deadline_at_ms, arrival.deadline_at_ms)
                return None if self.deadline_at_ms is not None else self.cancel(arrival)
            case SignalMessage() if (request := retry_requests.request_in(arrival)) is not None:
                record.read += (arrival.id,)
                return self._retry_now(request)
            case SignalMessage() | KeyTaken():
                record.read += (arrival.id,)
                return self.entry_of_message(arrival, record)
            case OutcomeMessage():
                record.read += (arrival.id,)
                return self._complete(Completion(arrival.step, self._end_of_a_run(arrival)), record)

    def _retry_now(self, request: RetryRequest) -> Attempted | None:
        """A person wants the next attempt of a step to begin: the entry that lets it, if the step waits for it."""
        command = self.machine.open.get(request.failed.step)
        if command is None or self.pausing:
            return None
        return retry_requests.entry_of(
            request, attempts=command.failures, retry_at_ms=command.retry_at_ms, now_ms=self._host.store.now_ms()
        )

    def _complete(self, completion: Completion, record: ActivationRecord) -> Entry | None:
        """Something has happened to a step: the entry that is to be recorded of it, if any."""
        step, event = completion.step, completion.event
        if isinstance(event, Repeated):
            return self._repeat(event, record, waited=step in self.machine.open)
        if isinstance(event, HeldBack):
            return None
        self._take(completion, record)
        command = self.machine.open.get(step)
        waited = command is not None
        if isinstance(event, Passed):
            self._pass(step, command)
            return None
        if type(event) is Returned and command is not None and not completion.blobs:
            return self._perform(command, event, completion)
        if command is None:
            command = self.dropped.pop(step, None)
        if command is None:
            return None  # the code no longer waits for it, and there is nothing to record
        if isinstance(event, Broken):
            if waited:
                raise event.error
            return None
        decision = self._decide(command, event, waited=waited, took_ms=completion.took_ms)
        if waited and command.touches_the_world:
            self._tell(decision, completion)
        return self._follow(decision, command, completion, record)

    def _pass(self, step: str, command: Command | None) -> None:
        """What stands before an effect lets it begin."""
        if command is None:
            self.in_flight.give_back(step)
        else:
            self._to_call += (command,)

    def leave_held(self) -> bool:
        """Do not wait any longer for what lets effects begin: they ask again when the run goes on."""
        left = self.in_flight.leave_held()
        for step, stay in left.items():
            self.machine.open[step].held = stay.wait
            self.machine.pending.retry_at(step, stay.wake_at_ms)
        return bool(left)

    def park(self) -> None:
        """The run was let go: have it woken when what stands before its effects lets them begin."""
        for command in self.machine.open.values():
            if command.held is not None:
                self._host.gate.park(command.held, self.run)

    def _perform(self, command: Command, event: Returned, completion: Completion) -> Performed:
        """What nearly always happens: an attempt of an effect has returned, and its code waits for it."""
        step, intent = command.step, command.intent
        took_ms = completion.took_ms
        told_at_ms = command.asked_at_ms if self._admitted_at_ms is None else self._told_at_ms(command)
        entry = steps.perform(
            step,
            intent,
            command.failures,
            event.value,
            now_ms=self._host.store.now_ms(),
            told_at_ms=told_at_ms,
            took_ms=took_ms,
        )
        self._host.emit(events.EffectPerformed(self.run.id, step, entry.attempt, intent.name, took_ms))
        return entry

    def _told_at_ms(self, command: Command) -> Instant:
        """When the code asked for the step, as the journal tells it.

        For the code, time begins when a worker takes the run; those who read the journal know when it was admitted.
        """
        asked_at_ms = command.asked_at_ms
        if self._admitted_at_ms is None or asked_at_ms != self.run.started_at_ms:
            return asked_at_ms
        return self._admitted_at_ms

    def _take(self, completion: Completion, record: ActivationRecord) -> None:
        """The work for the step is done; the outcome of a remote task need not be kept once it is recorded."""
        if not isinstance(completion.event, AwaitedRunEnded):
            self.in_flight.tasks.pop(completion.step, None)
        if completion.task is not None:
            record.heard += (completion.task,)

    def _decide(
        self, command: Command, event: steps.Event, *, waited: bool, took_ms: float | None = None
    ) -> steps.Decision:
        chance = self._host.ids.chance() if isinstance(event, Raised) else 0.0
        step = command.as_step(waited=waited, told_at_ms=self._told_at_ms(command), took_ms=took_ms)
        return steps.decide(step, event, self._policy(command), now_ms=self._host.store.now_ms(), chance=chance)

    def _follow(
        self, decision: steps.Decision, command: Command, completion: Completion, record: ActivationRecord
    ) -> Entry | None:
        """Do what was decided, as far as nothing has to be durable before; the entry to be recorded, if any."""
        if isinstance(decision, StepEntry):
            if completion.blobs:
                self._keep(completion.blobs, record)
            return decision
        match decision:
            case Act.CALL:
                command.may_call = True  # it is known that it never happened
                self._to_call += (command,)
            case Act.RECONCILE:
                self.in_flight.reconcile(command)
            case Act.CLOSE_HOOK if command.hook is not None:
                record.closes += (command.hook,)
            case Block(code=code, message=message):
                raise NeedsPerson(code, message)
            case _:
                pass
        return None

    def record_again(self, entries: Iterable[Entry]) -> None:
        """What a change recorded that was refused is recorded once more, as far as it is still true."""
        repeated = [
            Completion(entry.step, Repeated(entry))
            for entry in entries
            if isinstance(entry, Performed | GaveUp | Attempted | Spawned | Opened | Late)
        ]
        self._repeated_left += len(repeated)
        self.arrivals.extend(repeated)

    @property
    def records_again(self) -> bool:
        """Whether something that was performed here still waits to be recorded again: a run is not left before."""
        return self._repeated_left > 0

    def _repeat(self, event: Repeated, record: ActivationRecord, *, waited: bool) -> Entry | None:
        """What was recorded in a change that the store has refused."""
        self._repeated_left -= 1
        step = Step(event.entry.step, event.entry.intent, waited=waited)
        entry = steps.decide(step, event, None, now_ms=self._host.store.now_ms())
        if isinstance(entry, Performed | Late) and entry.value is not None:
            record.blobs += self.kept(entry.value)
        if isinstance(entry, EffectEntry) and entry.input is not None:
            record.blobs += self.kept(entry.input)
        return entry if isinstance(entry, StepEntry) else None

    def _tell(self, decision: steps.Decision, completion: Completion) -> None:
        """Say what has come of an attempt."""
        emit, run_id = self._host.emit, self.run.id
        if isinstance(decision, Performed):
            name, attempt = decision.intent.name, decision.attempt
            emit(events.EffectPerformed(run_id, decision.step, attempt, name, completion.took_ms))
            return
        match decision:
            case GaveUp(step=step, intent=intent, attempt=attempt, error=error):
                type_ = "TimedOut" if isinstance(completion.event, Expired) else error.type
                text = f"{type_}: {error.message}"
                emit(events.EffectGaveUp(run_id, step, attempt, text, intent.name, completion.took_ms))
            case Attempted(step=step, intent=intent, attempt=attempt, error=error):
                text, delay_ms = f"{error.type}: {error.message}", decision.retry_at_ms - decision.at_ms
                emit(events.EffectWillRetry(run_id, step, attempt, delay_ms, text, intent.name, completion.took_ms))
            case _:
                pass

    def _end_of_a_run(self, message: OutcomeMessage) -> AwaitedRunEnded:
        run_id = message.from_run
        if message.output is not UNSET:
            return AwaitedRunEnded(run_id, value=msgspec.json.decode(message.output, type=Value))
        if message.error is not UNSET:
            return AwaitedRunEnded(run_id, error=msgspec.json.decode(message.error, type=Failure))
        return AwaitedRunEnded(run_id, error=described(RunCancelled(run_id), self._host.codec))

    def entry_of_message(self, message: SignalMessage | KeyTaken, record: ActivationRecord) -> Received | KeyReleased:
        """The entry that records a message to the run itself."""
        now_ms = self._host.store.now_ms()
        if isinstance(message, KeyTaken):
            return KeyReleased(now_ms, message.reason)
        value, blobs = kept_of(message)
        self._keep(blobs, record)
        return Received(now_ms, message.hook, message.id, value, message.by_key)

    def keep(self, data: bytes, record: ActivationRecord) -> Value:
        """`data` as a journal value; what is large is recorded beside it."""
        value, blobs = kept(data)
        self._keep(blobs, record)
        return value

    def _keep(self, blobs: tuple[Blob, ...], record: ActivationRecord) -> None:
        for blob in blobs:
            self.blobs[blob.digest] = blob.data
            record.blobs += (blob,)

    def _policy(self, command: Command) -> EffectPolicy | None:
        return command.policy_on(self._host) if command.touches_the_world else None

    def cancel(self, request: CancelRequest) -> CancelAsked:
        self.deadline_at_ms = request.deadline_at_ms
        self.pausing, self.timed_out = self._workflow.pauses and request.error is None, request.error
        if self.pausing:  # the code is not told; what is under way is
            for step in tuple(self.in_flight.tasks):
                if (command := self.machine.open.get(step)) is not None:
                    self._stop(command)
        now_ms = self._host.store.now_ms()
        return CancelAsked(now_ms, request.deadline_at_ms, request.reason, self.pausing, request.error)

    def _with_input(self, entry: E, command: Command, record: ActivationRecord) -> E:
        """The entry, with the arguments of the effect if it is the first one of its step."""
        if command.failures or command.intended or entry.input is not None:
            return entry
        return replace(entry, input=self.keep(command.arguments, record))

    def _apply(self, entry: Entry, record: ActivationRecord) -> None:
        if self._records_inputs and isinstance(entry, EffectEntry):
            command = self.machine.open.get(entry.step) or self.dropped.get(entry.step)
            if command is not None:
                entry = self._with_input(entry, command, record)
        record.entries.append(entry)
        self.machine.apply(entry, self.run.length + len(record.entries) - 1)

    def let_drop(self, record: ActivationRecord) -> None:
        """Interrupt what the code no longer waits for; note what may have been under way."""
        for command in self.machine.pending.take_dropped():
            if command.step in self.came_to_its_end:
                continue  # the code had failed meanwhile, and what came of it is recorded
            self.dropped[command.step] = command
            self._stop(command)
            self.in_flight.give_back(command.step)
            step = command.as_step(waited=False, begun=self._may_have_begun(command))
            entry = steps.decide(step, steps.CODE_LEFT, None, now_ms=self.machine.now_ms())
            if isinstance(entry, StepEntry):
                self._apply(entry, record)

    def _stop(self, command: Command) -> None:
        """Do no more for the step; find out what a former holder of the run may have begun."""
        step, in_flight = command.step, self.in_flight
        known = command.as_step(
            waited=False,
            under_way=step in in_flight.tasks,
            in_doubt=self._may_be_with_a_former_holder(command),
        )
        match steps.decide(known, steps.STOPPING, None, now_ms=self._host.store.now_ms()):
            case Act.INTERRUPT:
                in_flight.interrupt(step)
            case Act.TAKE_BACK:
                in_flight.take_back(command)
            case Act.ADMIT:
                # Its child may exist. Admitting it again finds out, and keeps a paused former holder from doing so.
                in_flight.begin(command)
            case _:
                pass

    def _may_be_with_a_former_holder(self, command: Command) -> bool:
        """Whether a former holder of the run may have begun it, and no record says what came of that."""
        late = self._came_late.get(command.step)
        if command.is_remote:  # a task may be out even if the holder let the run go; not while a retry waits
            return late is None and not self.in_flight.is_leaving and not command.is_under_way(self._host.store.now_ms)
        return command.step in self.in_doubt and not command.child_id and not (late is not None and late.run_id)

    def _may_have_begun(self, command: Command) -> bool:
        """Whether the work was begun and has not come to its end, here or by a former holder of the run."""
        return self.in_flight.has_begun(command.step) or command.step in self.in_doubt

    def take_notes(self, record: ActivationRecord) -> None:
        notes = self.machine.notes
        if notes.are_there:
            record.entries += notes.take()
            record.shown = notes.take_shown()
            record.opens, closes = notes.take_hooks()
            record.closes += closes

    def to_begin(self, record: ActivationRecord) -> list[Command]:
        """What is to be begun once `record` is durable; adds the intents of `once` effects to it."""
        # What waits to be recorded again may be the result of a step that would be begun here, for the second time.
        if self.pausing or self.machine.outcome is not None or self._repeated_left:
            return []
        commands: dict[str, Command] = {}
        for command in self._to_call:
            if command.step in self.machine.open:
                commands[command.step] = command
        self._to_call = ()
        for command in self.machine.pending.take_fresh():
            if not command.is_under_way(self._host.store.now_ms):
                commands[command.step] = command
        if self._watch_again:
            # While the run was ended, it was not told how its children fared.
            commands |= {command.step: command for command in self.machine.open.values() if command.awaits_a_child}
            self._watch_again = False
        for command in commands.values():
            if command.touches_the_world:
                self._prepare(command, record)
        return list(commands.values())

    def _prepare(self, command: Command, record: ActivationRecord) -> None:
        """Record what must be durable before the effect is begun, and choose how it is begun."""
        if self._must_pass_first(command) or steps.may_call_at_once(
            command.policy_on(self._host), intended=command.intended
        ):
            command.reconciles = False
            return
        decision = self._decide(command, steps.TO_BEGIN, waited=True)
        command.reconciles = decision is Act.RECONCILE
        if decision is Act.CALL:
            return
        if isinstance(decision, StepEntry):
            command.may_call = True
            self._apply(decision, record)
        elif isinstance(decision, Block):
            raise NeedsPerson(decision.code, decision.message)

    def _must_pass_first(self, command: Command) -> bool:
        """Whether a breaker or a limit stands before the effect. The intent to call it is recorded after that."""
        effect = command.effect
        if effect is None or effect.rules is None or command.intended:
            return False
        return not self.in_flight.may_call(command.step)

    def next_due_at_ms(self) -> Instant | None:
        due_at_ms, deadline_at_ms = self.machine.pending.next_due_at_ms(), self.deadline_at_ms
        if due_at_ms is None or deadline_at_ms is None:
            return deadline_at_ms if due_at_ms is None else due_at_ms
        return min(due_at_ms, deadline_at_ms)

    def is_cancelled_by_now(self) -> bool:
        """Whether a cancellation has come to its end without the code: at its deadline, or with all standing still."""
        if self.deadline_at_ms is None:
            return False
        return self.deadline_at_ms <= self._host.store.now_ms() or (self.pausing and not self.in_flight.tasks)

    def take_what_ended(self, record: ActivationRecord) -> None:
        """Record what came of effects that were under way when the code ended, or could not go on. Messages wait."""
        if not self.arrivals:
            return
        ended = [arrival for arrival in self.arrivals if isinstance(arrival, Completion)]
        self.arrivals = deque(arrival for arrival in self.arrivals if isinstance(arrival, Message))
        for completion in ended:
            entry = self._complete_too_late(completion, record)
            if entry is not None:
                self.came_to_its_end |= {completion.step}
                self._apply(entry, record)

    def _complete_too_late(self, completion: Completion, record: ActivationRecord) -> Entry | None:
        step, event = completion.step, completion.event
        if isinstance(event, HeldBack):
            return None
        self._take(completion, record)
        if isinstance(event, Repeated):
            return self._repeat(event, record, waited=False)
        command = self.dropped.pop(step, None) or self.machine.open.get(step)
        if isinstance(event, Passed):
            self.in_flight.give_back(step)
        if command is None or isinstance(event, Broken | Passed):
            return None
        decision = self._decide(command, event, waited=False)
        # A token that was claimed stays with the run: if the run is retried, it claims it again.
        return None if isinstance(decision, Act) else self._follow(decision, command, completion, record)

    def interrupt(self, *, all_of_it: bool) -> None:
        """Begin nothing more; with `all_of_it`, interrupt what has begun here, too.

        A remote effect is taken back in any case: it may be that no worker has it yet, or ever will.
        """
        for step in tuple(self.in_flight.tasks):
            command = self.machine.open.get(step)
            if command is None or not command.touches_the_world:
                continue
            if all_of_it or command.is_remote or not self.in_flight.has_begun(step):
                self._stop(command)

    def note_what_may_be_under_way(self, record: ActivationRecord) -> None:
        """The run is left where it stands: record which effects were begun, as far as is known."""
        for step, command in self.machine.open.items():
            if step in self.dropped or step in self.came_to_its_end:
                continue  # the journal says so already
            known = command.as_step(waited=True, begun=self._may_have_begun(command))
            entry = steps.decide(known, steps.RUN_LEFT, None, now_ms=self._host.store.now_ms())
            if self._records_inputs and isinstance(entry, EffectEntry):
                entry = self._with_input(entry, command, record)
            if isinstance(entry, StepEntry):
                record.entries.append(entry)

    def kept(self, *values: Value) -> tuple[Blob, ...]:
        return tuple(Blob(value.blob, self.blobs[value.blob]) for value in values if value.blob)

    def data_of(self, value: Value) -> bytes:
        return self.blobs[value.blob] if value.blob else bytes(value.json)  # pyright: ignore[reportArgumentType]

    def is_all_there_is(self, command: Command) -> bool:
        """Whether an async effect is the only thing that the run waits for: then it needs no task of its own."""
        machine, effect = self.machine, command.effect
        return (
            effect is not None
            and effect.runs_here
            and command.intent.kind == "effect"
            and len(machine.open) == 1
            and not machine.timers
            and not machine.inbox.waiting
            and not self.in_flight.tasks
            and self.deadline_at_ms is None
            and not command.reconciles
        )
