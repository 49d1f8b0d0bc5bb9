"""One run in memory: deliver what has arrived, commit what that produced, then do what the code asked for.

    arrivals ──▶ deliver, one at a time, each to quiescence ──▶ entries, commands
                                                                    │
      perform the commands ◀── the commit is durable ◀── one Change ┘

Rules
- Nothing that the code asked for is begun before the records it depends on are durable.
- An activation that delivered nothing and asks only for ordinary effects has nothing to commit: a crash derives
  the same keys and inputs again. A `once` effect is the exception; its intent is committed first.
- A refused commit means that another worker has the run. Everything here is void then, and ends quietly.
- A run that only waits holds no slot, and is let go after a short idle time, or at once if nothing can come soon.
- A run does not end over an unread signal: if one came first, the end is taken back, and the code sees it before.
- A workflow may want to be undone if its code fails: then it is unwound as a cancelled one is, and fails after that.
- A cancellation ends by its deadline, whatever the code, its effects and their undoing do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET

from holdfast import events
from holdfast.engine.code.commands import CodeCancelled, CodeContinued, CodeOutcome, CodeRaised, CodeReturned, Command
from holdfast.engine.failures import described, place_of
from holdfast.engine.runs import leftovers
from holdfast.engine.runs.completions import ActivationRecord, Arrival, Completion, NeedsPerson
from holdfast.engine.runs.host import RunHost
from holdfast.engine.runs.loaded_run import LoadedRun
from holdfast.engine.values import require_open
from holdfast.errors import (
    EngineFault,
    HeldUpItsWorker,
    LeaseLost,
    NeverAwaited,
    ReplayDiverged,
    SealedPayload,
    TransientError,
    UsageError,
    WaitsForNothing,
)
from holdfast.kernel import seals, transitions, waits
from holdfast.kernel.changes import Answer, Change, Committed, Refused
from holdfast.kernel.journal import Continued, Stopped, Value, input_of, original_input
from holdfast.kernel.messages import CancelRequest, Message, OutcomeMessage, SignalMessage
from holdfast.kernel.running_effects import StepAtWork
from holdfast.kernel.runs import Run
from holdfast.kernel.steps import Interrupted
from holdfast.kernel.times import NO_TIME, Millis
from holdfast.pack import Workflow
from holdfast.ports.store import History

BEGUN_AT_ONCE = 100  # then others have their turn: the lease, above all
SEEN_KEPT = 10_000  # when a run begins again; an entity may live for years


class TakenAway(Exception):
    """Another worker has the run."""


class MailCame(Exception):
    """The run cannot end yet: there are messages that it has not read."""


class Activation:
    """Drives one run from where its journal ends to its end, to a long wait, or until it is taken away."""

    def __init__(
        self,
        host: RunHost,
        workflow: Workflow[..., Any],
        history: History,
        blobs: Mapping[str, bytes],
        number: int = 0,
        *,
        was_cut_short: bool = False,
    ) -> None:
        self.run = history.run
        self.number = number  # among the executions of its worker
        self._was_cut_short = was_cut_short  # it was driven by this worker before, under the same fence
        self.task: asyncio.Task[None] | None = None  # which drives it
        self._signal: asyncio.Future[None] | None = None
        self._inline: Command | None = None
        self._stopping = False
        self._is_abandoned = False
        self._host = host
        self._store = host.store
        self._workflow = workflow
        self._record = ActivationRecord()  # of the present activation; what is in it before, the next one goes on with
        self._seen: dict[str, None] = {}  # messages, in order; an answer that was under way may bring them again
        self._load(history, blobs)

    def _load(self, history: History, blobs: Mapping[str, bytes]) -> None:
        """Begin with this history: the first time, and when the run begins again."""
        self._loaded = LoadedRun.of(self._host, self._workflow, history, dict(blobs), self.arrive)
        if self._stopping:
            self._loaded.in_flight.leave_tasks()
        if self._seen or history.messages:
            self._seen = dict.fromkeys([*list(self._seen)[-SEEN_KEPT:], *(message.id for message in history.messages)])
        self._mail_arrived = bool(history.messages)

    async def drive(self) -> None:
        """Everything, from replay to the end. Never raises; what happens is said by events."""
        try:
            await self._drive()
        except TakenAway:
            self._host.emit(events.RunOvertaken(self.run.id))
        except LeaseLost:
            pass  # the worker has said so, for all its runs at once
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - a fault, ours or a codec's, must not leave the run held and forgotten
            await self._set_aside(error)
        finally:
            self._loaded.close()
            self.task = None

    def arrive(self, arrival: Arrival) -> None:
        """Something came for this run; the next activation delivers it."""
        if type(arrival) is not Completion and isinstance(arrival, Message):
            if arrival.id in self._seen:
                return
            self._seen[arrival.id] = None
            self._mail_arrived = True
            if isinstance(arrival, CancelRequest):
                self._interrupt_the_lone_effect()
        self._loaded.arrivals.append(arrival)
        self._poke()

    @property
    def in_flight(self) -> list[asyncio.Task[None]]:
        """What is being done for the run at this moment."""
        return list(self._loaded.in_flight.tasks.values())

    @property
    def at_work(self) -> list[StepAtWork]:
        """The effects of the run that run now."""
        return self._loaded.in_flight.at_work(self.run.length)

    def abandon(self) -> None:
        """The run is taken away; its task is about to be cancelled."""
        self._is_abandoned = True
        self._loaded.in_flight.close()

    def stop(self) -> None:
        """The worker stops: begin nothing more, and end as soon as no effect is in flight."""
        self._stopping = True
        self._loaded.in_flight.leave_tasks()
        self._poke()

    def _poke(self) -> None:
        if self._signal is not None and not self._signal.done():
            self._signal.set_result(None)

    # -- the loop

    async def _drive(self) -> None:
        try:
            if self._loaded.is_fresh:  # nothing is recorded that its code could contradict
                for _ in self._loaded.replaying():
                    await self._host.clock.pause(0)
            elif not await self._replay():
                return
            if self._was_cut_short or (self.run.waits is None and self.run.epoch > 1):
                pending = self._loaded.machine.pending
                # A cancellation in the journal has dropped what the former holder may have admitted just then.
                dropped = (command.step for command in pending.dropped if command.admits_a_run)
                self._loaded.in_doubt = frozenset([*pending.open, *dropped])
            if self._loaded.is_fresh and not self._loaded.arrivals and not self._stopping:
                await self._perform_in_a_row(self._loaded.lone_effect())
            while await self._activate():
                pass
        except ReplayDiverged as diverged:
            # What is known of the values is theirs who may open them.
            told = diverged.message if self._host.seals else diverged.told
            await self._block(diverged.code, told, self._record, said=diverged.message)
        except (NeedsPerson, HeldUpItsWorker, NeverAwaited, SealedPayload) as stuck:
            await self._block(stuck.code, stuck.message, self._record)

    async def _replay(self) -> bool:
        """Bring the code to where a journal ends. False if another worker has the run now: its code fits better."""
        try:
            for _ in self._loaded.replaying():
                await self._host.clock.pause(0)
        except ReplayDiverged as diverged:
            if await self._host.hand_over(self.run, diverged.message):
                return False
            raise
        if not (patches := self._loaded.machine.notes.unasked_patches()):
            return True
        return not await self._host.prefer_other(self.run, patches)

    async def _activate(self) -> bool:
        """One activation, and the wait for the next. False if this was the last one here."""
        record, loaded = self._record, self._loaded
        try:
            if self._mail_arrived or loaded.held_back:
                await self._prepare_mail()
            if loaded.machine.pending.dropped:
                loaded.let_drop(record)
            loaded.deliver(record)
            commands = [] if self._stopping else loaded.to_begin(record)
        except (NeedsPerson, HeldUpItsWorker, NeverAwaited, SealedPayload) as stuck:
            await self._block(stuck.code, stuck.message, await self._see_effects_through(record))
            return False
        loaded.take_notes(record)
        if loaded.machine.outcome is not None:
            return await self._end(record)
        if loaded.deadline_at_ms is not None and loaded.is_cancelled_by_now():
            await self._stop_here(record)
            return False
        if not commands and not loaded.in_flight.tasks:
            return await self._pause(record)
        await self._progress(record)
        if self._stopping:  # it may have come while the record was being written
            commands = [command for command in commands if command.may_call]
            if not commands and not loaded.in_flight.tasks:
                return loaded.records_again
        if len(commands) == 1 and loaded.is_all_there_is(commands[0]) and not loaded.arrivals:
            await self._perform_in_a_row(commands[0])
        else:
            await self._begin(commands)
        return True

    async def _perform_in_a_row(self, command: Command | None) -> None:
        """Perform an effect that is all the run waits for, and what the code asks for next, as long as that is so, too.

        It is performed in this very task, which is interrupted with it (`_interrupt_the_lone_effect`).
        Whatever is not as usual is left to the next activation, with what there is to be recorded: mail, a failure, a
        large value, notes of the code, its end.
        """
        loaded, record, pending = self._loaded, self._record, self._loaded.machine.pending
        while command is not None:
            pending.fresh.clear()
            self._inline = command
            try:
                completion = await loaded.in_flight.attempt(command)
            except asyncio.CancelledError:
                if self._inline is not None or self._is_abandoned:  # whatever else has cancelled it before
                    raise
                completion = Completion(command.step, Interrupted(loaded.in_flight.has_begun(command.step)))
            finally:
                if self._inline is None:
                    self._forget_cancellation()
                self._inline = None
            if self._is_abandoned:  # and the effect has kept the cancellation of its task to itself
                raise LeaseLost(f"run {self.run.id} was taken away")
            if not loaded.deliver_at_once(completion, command, record):
                self.arrive(completion)
                return
            command = loaded.lone_effect()
            if command is None:
                return
            await self._make_durable(record.as_progress(self.run), record)
            record = self._record
            if self._stopping or loaded.arrivals:  # a cancellation must not wait for the effect
                return

    async def _begin(self, commands: list[Command]) -> None:
        """Begin what the code asked for, and wait until something comes of it."""
        for n, command in enumerate(commands, 1):
            # The next holder begins the rest; but of a `once` effect whose intent is recorded it could not know that it
            # was not called.
            if not self._stopping or command.may_call:
                self._loaded.in_flight.begin(command)
            if n % BEGUN_AT_ONCE == 0:
                await self._host.clock.pause(0)
        in_flight = self._loaded.in_flight
        if not in_flight.need_no_slot():
            await self._signalled(self._due_in_ms())
            return
        self._host.quiet()  # others do the work, or it waits for its turn
        try:
            await self._signalled(self._until_let_go_ms())
        finally:
            self._host.busy()
        held_for_ms = in_flight.all_held_for_ms()
        if held_for_ms is not None and held_for_ms >= self._host.pace.idle_ms and not self._loaded.arrivals:
            self._loaded.leave_held()

    def _until_let_go_ms(self) -> Millis | None:
        """How long to wait for what others do; what only waits for a breaker or a limit, is let go after a while."""
        held_for_ms, due_in_ms = self._loaded.in_flight.all_held_for_ms(), self._due_in_ms()
        if held_for_ms is None:
            return due_in_ms
        left_ms = max(Millis(1), self._host.pace.idle_ms - held_for_ms)
        return left_ms if due_in_ms is None else min(left_ms, due_in_ms)

    def _forget_cancellation(self) -> None:
        """A lone effect was interrupted, and has ended: the task of the run goes on."""
        if self.task is not None and not self._is_abandoned:
            while self.task.cancelling():
                self.task.uncancel()

    def _interrupt_the_lone_effect(self) -> None:
        """A cancellation has come while an effect is performed in the run's own task."""
        command = self._inline
        if command is not None and self.task is not None and not self._loaded.machine.is_shielded(command.step):
            self._inline = None
            self._loaded.in_flight.tell_dropped(command.step)
            self.task.cancel()

    async def _prepare_mail(self) -> None:
        """Have at hand what the messages need, in the order in which they are delivered."""
        self._mail_arrived = False
        await self._load_blobs()
        self._loaded.put_signals_first()

    async def _load_blobs(self) -> None:
        """Large results of children come beside the message; fetch them before they are delivered.

        Raises `SealedPayload` if a message has what this process cannot open: then nothing is delivered.
        """
        for message in tuple(self._loaded.arrivals):
            if isinstance(message, SignalMessage):
                if message.sealed:
                    raise seals.refusal(message.sealed)
            elif (
                isinstance(message, OutcomeMessage)
                and message.output is not UNSET
                and message.step in self._loaded.machine.open
            ):
                value = msgspec.json.decode(message.output, type=Value)
                if value.sealed:
                    raise seals.refusal(value.sealed)
                digest = value.blob
                if digest and digest not in self._loaded.blobs:
                    self._loaded.blobs[digest] = await self._blob(digest)

    async def _blob(self, digest: str) -> bytes:
        data = await self._host.insist(lambda: self._host.store.blob(self.run.id, digest), self.run.id)
        assert data is not None, digest
        return require_open(data)

    # -- waiting

    async def _pause(self, record: ActivationRecord) -> bool:
        """The run only waits. True if something came soon; otherwise it has been let go."""
        if self._stopping:
            await self._progress(record)  # the next holder begins what is left
            return self._loaded.records_again
        if not self._may_wake_soon():
            await self._let_go(record)
            return False
        await self._progress(record)
        if self._stopping:
            return self._loaded.records_again
        due_in_ms = self._due_in_ms()
        self._host.quiet()
        try:
            came = await self._signalled(
                self._host.pace.idle_ms if due_in_ms is None else min(self._host.pace.idle_ms, due_in_ms)
            )
        finally:
            self._host.busy()
        if came or self._stopping or (due_in_ms is not None and due_in_ms <= self._host.pace.idle_ms):
            return True
        await self._let_go(self._record)
        return False

    def _may_wake_soon(self) -> bool:
        """Whether something may come before the run would be let go anyway: a child's end, a signal, a timer."""
        if self._loaded.arrivals or self._loaded.machine.inbox.waiting:
            return True
        if any(command.awaits_a_run for command in self._loaded.machine.open.values()):
            return True
        due_in_ms = self._due_in_ms()
        return due_in_ms is not None and due_in_ms <= self._host.pace.idle_ms

    def _due_in_ms(self) -> Millis | None:
        due_at_ms = self._loaded.next_due_at_ms()
        return None if due_at_ms is None else max(NO_TIME, due_at_ms - self._store.now_ms())

    async def _signalled(self, timeout_ms: Millis | None) -> bool:
        """Whether something arrived within the time."""
        if not self._loaded.arrivals:
            await self._poked(timeout_ms)
        return bool(self._loaded.arrivals)

    async def _poked(self, timeout_ms: Millis | None) -> None:
        """Returns when something arrives, or after this time."""
        loop = self._host.loop
        signal = self._signal = loop.create_future()
        timer = None if timeout_ms is None else loop.call_later(timeout_ms / 1000, _wake, signal)
        try:
            await signal
        finally:
            self._signal = None
            if timer is not None:
                timer.cancel()

    # -- ways out

    async def _end(self, record: ActivationRecord) -> bool:
        """The code has ended. True if the run goes on all the same: it begins again, or there is mail to be read."""
        outcome = self._loaded.machine.outcome
        if type(outcome) is CodeContinued and self._loaded.failure is None:
            await self._begin_anew(outcome.call.arguments, record)
            return True
        if type(outcome) is CodeRaised and self._loaded.failure is None:
            record = await self._see_effects_through(record)
        event = self._end_of(outcome, record)
        if type(event) is transitions.RunRaised and self._loaded.undoes_failure:
            await self._begin_to_undo(event, await self._see_effects_through(record))
            return True
        self._loaded.take_what_ended(record)
        self._loaded.note_what_may_be_under_way(record)
        if not isinstance(event, transitions.RunReturned):
            leftovers.record_leftovers(self._loaded, record)
        while True:
            try:
                await self._commit(event, record)
            except MailCame:
                again = await self._read_mail_first(event, record)
                if again is None:
                    return True
                event = again
            else:
                self._host.settled(self.run)
                return False

    def _end_of(self, outcome: CodeOutcome | None, record: ActivationRecord) -> transitions.Event:
        """How the run ends that has ended in this way."""
        if self._loaded.failure is not None:  # it has been unwound since
            return transitions.RunRaised(self._loaded.failure)
        if isinstance(outcome, CodeReturned):
            return self._returned(outcome.value, record)
        if isinstance(outcome, CodeRaised):
            return transitions.RunRaised(described(outcome.error, self._host.codec))
        assert isinstance(outcome, CodeCancelled), outcome
        return self._end_of_a_cancellation()

    def _end_of_a_cancellation(self) -> transitions.RunRaised | transitions.CancelledItself:
        """How a run ends that was stopped: cancelled, unless it is undone since it failed, or has taken too long."""
        error = self._loaded.failure or self._loaded.timed_out
        return transitions.CancelledItself() if error is None else transitions.RunRaised(error)

    async def _begin_to_undo(self, event: transitions.RunRaised, record: ActivationRecord) -> None:
        """The code has failed: take back what it did, unless a signal came before that, which it shall see."""
        history = await self._as_it_is()
        here = {*record.read, *(each.id for each in self._loaded.unread_signals())}  # they came after its end
        if any(isinstance(each, SignalMessage) and each.id not in here for each in history.messages):
            await self._read_mail_first(event, record)
            return
        self._loaded.undo_failure(event.error)
        self._host.emit(events.UndoBegan(self.run.id, self.run.workflow, f"{event.error.type}: {event.error.message}"))

    async def _see_effects_through(self, record: ActivationRecord) -> ActivationRecord:
        """Wait for the effects that are under way though the code goes on no more; the record to go on with.

        What they have done is recorded, so that a retry of the run does not do it again. They are not interrupted,
        unless the run is to be cancelled: then they have until the deadline of that.
        """
        loaded = self._loaded
        loaded.take_what_ended(record)
        if not loaded.in_flight.are_under_way():
            return record
        record = await self._recorded(record)
        await self._until_effects_end(record)
        return await self._recorded(record)

    async def _until_effects_end(self, record: ActivationRecord) -> None:
        """Begin nothing more, and wait for what is under way; what comes of it goes into the record."""
        loaded = self._loaded
        loaded.take_what_ended(record)
        deadline_at_ms = loaded.deadline_at_ms
        loaded.interrupt(all_of_it=deadline_at_ms is not None)
        while loaded.in_flight.are_under_way() and (deadline_at_ms is None or self._store.now_ms() < deadline_at_ms):
            await self._poked(None if deadline_at_ms is None else deadline_at_ms - self._store.now_ms())
            loaded.take_what_ended(record)
            asked = next((each for each in loaded.arrivals if isinstance(each, CancelRequest)), None)
            if asked is not None and deadline_at_ms is None:
                deadline_at_ms = asked.deadline_at_ms
                loaded.interrupt(all_of_it=True)

    async def _recorded(self, record: ActivationRecord) -> ActivationRecord:
        """Commit what there is; the record to go on with."""
        await self._progress(record)
        return self._record

    async def _read_mail_first(self, event: transitions.Event, record: ActivationRecord) -> transitions.Event | None:
        """Take the end back if a signal came before it: None. Otherwise the end that is to be tried again.

        What is no signal is dismissed, since nothing waits for it any more. What a successor was to take over is
        recorded here if the run has lost its key: then there is none.
        """
        history = await self._as_it_is()
        moves = event.unread if isinstance(event, transitions.RunReturned) else ()
        news = [message for message in history.messages if message.id not in {*record.read, *moves}]
        is_over = self._loaded.machine.cancelling or self._loaded.failure is not None
        if is_over or not any(isinstance(message, SignalMessage) for message in news):
            if isinstance(event, transitions.RunReturned) and not history.run.holds_key:
                event = msgspec.structs.replace(event, unheard=(), unread=())
                news = [message for message in history.messages if message.id not in record.read]
            leftovers.dismiss(self._loaded, news, record)
            return event
        # What the code has left under way would be begun again beside itself: it is asked for once more.
        await self._until_effects_end(record)
        history = await self._as_it_is()
        entries, blobs = record.entries, {blob.digest: blob.data for blob in record.blobs}
        begun = frozenset(step for step in self._loaded.dropped if self._loaded.in_flight.has_begun(step))
        await self._begin_again(history, await self._host.blobs_of(history) | blobs)
        self._loaded.in_doubt = begun
        self._loaded.record_again(entries)
        await self._make_mail_durable()
        return None

    async def _as_it_is(self) -> History:
        """The run as the store has it now, if it is still ours."""
        history = await self._host.history(self.run.id)
        if history is None or history.run.fence != self.run.fence:
            raise TakenAway
        return history

    async def _make_mail_durable(self) -> None:
        """Record what has come before the end is tried again: a run that is fed steadily must not read it all again."""
        record = self._record = ActivationRecord()
        await self._prepare_mail()
        self._loaded.deliver(record, mail_only=True)
        if self._loaded.machine.outcome is None:
            self._loaded.take_notes(record)
            await self._progress(record)

    async def _begin_anew(self, arguments: dict[str, Any], record: ActivationRecord) -> None:
        """Continue as new: the same run, with an empty journal."""
        data = self._host.codec.encode(arguments, what=self._workflow.input_name)
        before = input_of(self._loaded.history.journal)
        generation = before.generation + 1 if isinstance(before, Continued) else 1
        value = self._loaded.keep(data, record)
        machine = self._loaded.machine
        first = Continued(
            self._store.now_ms(),
            value,
            generation,
            original_input(before),
            machine.left.children(),
            machine.notes.attributes_now(),
        )
        unheard = self._loaded.machine.inbox.untaken()
        # The large values of the former generation go; those that the code has not taken yet must not.
        record.blobs += self._loaded.kept(original_input(before), *(each.value for each in unheard))
        await self._commit(transitions.ContinuedAsNew(first, unheard), record)
        self._host.emit(events.RunContinued(self.run.id, generation))
        await self._begin_again(History(self.run, (first, *unheard)), self._loaded.blobs)

    async def _begin_again(self, history: History, blobs: Mapping[str, bytes]) -> None:
        known = {message.id for message in history.messages}
        came_since = [
            each
            for each in (*self._loaded.held_back, *self._loaded.arrivals)
            if isinstance(each, Message) and each.id not in known
        ]
        self._loaded.close()
        self.run = history.run
        self._load(history, blobs)
        self._loaded.arrivals.extend(came_since)
        self._mail_arrived = bool(self._loaded.arrivals)
        for _ in self._loaded.replaying():
            await self._host.clock.pause(0)

    async def _stop_here(self, record: ActivationRecord) -> None:
        """End a run where it stands that is being cancelled or undone: its time is over, or it is to be resumed."""
        assert self._loaded.deadline_at_ms is not None
        self._loaded.take_what_ended(record)
        self._loaded.note_what_may_be_under_way(record)
        late = bool(self._loaded.in_flight.tasks) or not self._loaded.pausing
        error, paused = self._loaded.failure, self._loaded.pausing
        record.entries.append(Stopped(self._store.now_ms(), by_deadline=late, paused=paused, error=error))
        await self._end_stopped(record)

    async def _stop_in_doubt(self, record: ActivationRecord) -> None:
        """End a run that is being cancelled or undone, and can neither go on nor be unwound."""
        for arrival in self._loaded.arrivals:
            if isinstance(arrival, CancelRequest) and self._loaded.deadline_at_ms is None:
                record.read += (arrival.id,)
                record.entries.append(self._loaded.cancel(arrival))
        self._loaded.note_what_may_be_under_way(record)
        record.entries.append(Stopped(self._store.now_ms(), unsure=True, error=self._loaded.failure))
        await self._end_stopped(record)

    async def _end_stopped(self, record: ActivationRecord) -> None:
        """End it whatever is still in its inbox: signals are recorded, and seen if it is resumed some day."""
        leftovers.record_leftovers(self._loaded, record)
        event = self._end_of_a_cancellation()
        while True:
            try:
                await self._commit(event, record)
            except MailCame:
                history = await self._as_it_is()
                news = [each for each in history.messages if each.id not in record.read]
                leftovers.dismiss(self._loaded, news, record)
            else:
                self._host.settled(self.run)
                return

    def _returned(self, value: Any, record: ActivationRecord) -> transitions.RunReturned | transitions.RunRaised:
        codec = self._host.codec
        try:
            data = codec.encode(value, what=self._workflow.result_name)
            codec.decode(data, self._workflow.signature.returns)  # what cannot be read back must not look completed
        except UsageError as error:
            return transitions.RunRaised(described(error, codec))
        output = self._loaded.keep(data, record)
        if not self._loaded.has_unseen_mail:
            return transitions.RunReturned(output)
        first = input_of(self._loaded.history.journal)
        unheard, unread = leftovers.for_a_successor(self._loaded)
        leftovers.record_leftovers(self._loaded, record, but=unread)
        return transitions.RunReturned(output, first, unheard, unread, self._loaded.kept(original_input(first)))

    async def _block(self, code: str, message: str, record: ActivationRecord, *, said: str | None = None) -> None:
        """It cannot go on without a person; if it was to be cancelled, it need not, and ends here.

        `said` is what the log says, if it is less than what is recorded.
        """
        loaded = self._loaded
        asked = loaded.deadline_at_ms is not None or any(isinstance(each, CancelRequest) for each in loaded.arrivals)
        if asked and (
            loaded.failure is None or loaded.machine.failing
        ):  # otherwise the code differs from the one that failed
            await self._stop_in_doubt(record)
            return
        self._loaded.note_what_may_be_under_way(record)
        await self._commit(transitions.Stuck(code, message, self._workflow.steps_aside), record)
        self._host.emit(events.RunBlocked(self.run.id, code, said or message, self.run.workflow, self.run.key))
        self._host.settled(self.run)

    async def _set_aside(self, error: BaseException) -> None:
        failure = described(error, self._host.codec)
        # What was performed must not be lost with it: what is in the record, and what would be recorded next.
        with suppress(Exception):
            self._loaded.take_what_ended(self._record)
        try:
            await self._block(EngineFault.code, f"{failure.type}: {failure.message} ({place_of(error)})", self._record)
        except (TakenAway, LeaseLost):
            self._host.emit(events.RunOvertaken(self.run.id))

    async def _let_go(self, record: ActivationRecord) -> None:
        machine = self._loaded.machine
        if not machine.open and not machine.timers and not machine.inbox.waiting:
            place = f" at {where}" if (where := machine.where()) else ""
            error = WaitsForNothing(f"run {self.run.id} waits{place} for something that nothing in it can deliver")
            await self._block(error.code, error.message, record)
            return
        await self._commit(transitions.LetGo(self._loaded.next_due_at_ms(), waits.encode(machine.waits())), record)
        self._host.emit(events.RunLetGo(self.run.id, self.run.wake_at_ms))
        self._host.let_go(self.run)
        self._loaded.park()

    async def _progress(self, record: ActivationRecord) -> None:
        """Make what there is to record durable. Messages alone can wait: the next commit takes them along."""
        if record.is_worth_a_commit:
            await self._make_durable(record.as_progress(self.run), record)

    def _commit(self, event: transitions.Event, record: ActivationRecord) -> Coroutine[Any, Any, None]:
        """Make durable what becomes of the run, with what there is to record."""
        change = transitions.decide(self.run, event, recorded=record.frozen(), now_ms=self._store.now_ms())
        return self._make_durable(change, record)

    async def _make_durable(self, change: Change, record: ActivationRecord) -> None:
        try:
            answer = await self._host.offer(change)
        except TransientError as error:
            answer = await self._host.offer_again(change, error)
        if type(answer) is not Committed:
            raise _why_refused(answer, change)
        run = answer.run
        # A repeated change returns what the first one did, even if the run has changed hands since: look at the fence.
        if run is None or (run is not change.run and not _same_holder(run, change.run)):
            raise TakenAway
        self.run = self._loaded.run = run
        self._record = ActivationRecord()
        for task in record.heard:
            self._host.remote_effects.let_go(task)
        if change.then is not None and change.then.run is not None and change.then.run.id in answer.told:
            successor = change.then.run
            self._host.emit(events.RunAdmitted(successor.id, successor.workflow, successor.key))


def _why_refused(answer: Answer, change: Change) -> Exception:
    current = answer.current if isinstance(answer, Refused) else None
    return MailCame() if current is not None and current.fence == change.guard else TakenAway()


def _same_holder(committed: Run, offered: Run | None) -> bool:
    return offered is not None and committed.fence == offered.fence


def _wake(signal: asyncio.Future[None]) -> None:
    if not signal.done():
        signal.set_result(None)
