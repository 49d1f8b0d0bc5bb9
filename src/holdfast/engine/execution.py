"""One run in memory: deliver what has arrived, commit what that produced, then do what the code asked for.

    arrivals ──▶ deliver, one at a time, each to quiescence ──▶ entries, commands
                                                                    │
      perform the commands ◀── the commit is durable ◀── one Change ┘

Rules
- Nothing that the code asked for is begun before the records it depends on are durable.
- An activation that delivered nothing and asks only for ordinary effects has nothing to commit: a crash derives
  the same keys and inputs again. A `once` effect is the exception; its intent is committed first.
- A refused commit means that somebody else has the run. Everything here is void then, and ends quietly.
- A run that only waits holds no slot, and is let go after a short idle time, or at once if nothing can come soon.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, assert_never

import msgspec
from msgspec import Struct

from holdfast.effects import EffectScope
from holdfast.engine import events
from holdfast.engine.events import Emit
from holdfast.engine.failures import described
from holdfast.engine.machine import CodeCancelled, CodeRaised, CodeReturned, Command, Machine
from holdfast.engine.performer import AttemptOutcome, AttemptReturned, Performer
from holdfast.engine.values import inline, kept
from holdfast.errors import (
    EngineFault,
    InputMismatch,
    LeaseLost,
    NotPerformed,
    ReplayDiverged,
    RunCancelled,
    TimedOut,
    UnknownOutcome,
    UnknownRun,
    UnknownWorkflow,
    UsageError,
    WaitsForNothing,
)
from holdfast.kernel import retries, runs
from holdfast.kernel.changes import Beat, Blob, Change, Committed, Message, Run, Watcher
from holdfast.kernel.journal import (
    Attempted,
    Elapsed,
    Entry,
    Failure,
    GaveUp,
    Intended,
    Joined,
    Performed,
    Retried,
    Spawned,
    Started,
    Value,
    to_replay,
)
from holdfast.pack import Effect, EffectPolicy, Workflow
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.ports.store import History, Store
from holdfast.workflow import Current

IDLE_MS = 500


class Desk(Protocol):
    """What a run in memory needs from the worker that holds it."""

    store: Store
    codec: Codec
    ids: Ids
    emit: Emit
    performer: Performer
    loop: asyncio.AbstractEventLoop

    async def trusted(self) -> None:
        """Returns when the lease is good enough to touch the world."""
        ...

    def policy_of(self, effect: Effect[..., Any]) -> EffectPolicy: ...
    async def commit(self, change: Change) -> Committed | None:
        """None if the change was refused. Raises `LeaseLost` if there was no answer while the lease lasted."""
        ...

    async def admit_child(self, parent: Run, command: Command) -> Run: ...
    async def watch(self, run_id: str, watcher: Watcher) -> bool: ...
    def ended(self, run: Run) -> None: ...
    def blocked(self, run: Run) -> None: ...
    def let_go(self, run: Run) -> None: ...
    def quiet(self, execution: Execution) -> None: ...
    def busy(self, execution: Execution) -> None: ...


class Attempt(Struct, frozen=True):
    """An attempt of an effect has ended."""

    step: str
    outcome: AttemptOutcome


class Reconciled(Struct, frozen=True):
    """The world was asked about a `once` effect of unknown outcome."""

    step: str
    outcome: AttemptOutcome


class Admitted(Struct, frozen=True):
    """A child run exists."""

    step: str
    run: Run


class NotAdmitted(Struct, frozen=True):
    """A child run cannot exist, or cannot be found."""

    step: str
    error: Exception


class Watching(Struct, frozen=True):
    """The end of another run will be told as a message."""

    step: str


Arrival = Attempt | Reconciled | Admitted | NotAdmitted | Watching | Message


class Overtaken(Exception):
    """The run is with somebody else."""


class _Stuck(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Execution:
    """Drives one run from where its journal ends to its end, to a long wait, or until it is taken away."""

    def __init__(self, desk: Desk, workflow: Workflow[..., Any], history: History, blobs: Mapping[str, bytes]) -> None:
        self.run = history.run
        self._desk = desk
        self._loop = desk.loop
        self._history = history
        self._blobs = dict(blobs)
        self._machine = Machine(
            workflow,
            Current(self.run.id, self.run.key, self.run.workflow),
            codec=desk.codec,
            blobs=self._blobs,
        )
        self._arrivals: deque[Arrival] = deque(history.messages)
        self._seen = {message.id for message in history.messages}
        self._mail_arrived = bool(history.messages)
        self._beats = {beat.step: beat.details for beat in history.beats}
        self._unwritten_beats: set[str] = set()
        self._beat_tasks: set[asyncio.Task[None]] = set()
        self._beat_count = 0
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._intended_here: set[str] = set()  # `once` effects whose intent this very process has recorded
        self._to_call: list[Command] = []  # effects to be called again: their retry is due, or they never happened
        self._read_later: list[str] = []  # messages that need no entry; the next commit takes them along
        self._signal: asyncio.Future[None] | None = None
        self._stopping = False
        self._watch_again = any(isinstance(entry, Retried) for entry in history.journal)

    async def drive(self) -> None:
        """Everything, from replay to the end. Never raises; what happens is said by events."""
        try:
            await self._drive()
        except Overtaken:
            self._desk.emit(events.RunOvertaken(self.run.id))
        except LeaseLost:
            pass  # the worker has said so, for all its runs at once
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave the run held and forgotten
            await self._set_aside(error)
        finally:
            for task in self._in_flight.values():
                task.cancel()
            self._machine.evict()

    def arrive(self, arrival: Arrival) -> None:
        """Something came for this run; the next activation delivers it."""
        if isinstance(arrival, Message):
            if arrival.id in self._seen:
                return
            self._seen.add(arrival.id)
            self._mail_arrived = True
        self._arrivals.append(arrival)
        self._poke()

    @property
    def in_flight(self) -> list[asyncio.Task[None]]:
        """What is being done for the run at this moment."""
        return list(self._in_flight.values())

    def stop(self) -> None:
        """The worker stops: begin nothing more, and end as soon as no effect is in flight."""
        self._stopping = True
        self._poke()

    def _poke(self) -> None:
        if self._signal is not None and not self._signal.done():
            self._signal.set_result(None)

    # -- the loop

    async def _drive(self) -> None:
        try:
            self._replay()
        except ReplayDiverged as divergence:
            return await self._block(divergence.code, divergence.message, _Record())
        while True:
            record = _Record()
            if self._mail_arrived:
                await self._load_blobs()
            try:
                self._deliver(record)
                if self._machine.outcome is not None:
                    return await self._end(record)
                commands = [] if self._stopping else self._to_begin(record)
            except (_Stuck, ReplayDiverged) as stuck:
                return await self._block(stuck.code, stuck.message, record)
            if self._stopping and not self._in_flight:
                if record.entries:
                    await self._commit(runs.Progressed(), record)
                return None  # whoever takes it next begins what is left
            if not commands and not self._in_flight and not self._may_wake_soon():
                return await self._let_go(record)
            if record.entries:
                await self._commit(runs.Progressed(), record)
            else:
                self._read_later += record.read
            for command in commands:
                self._begin(command)
            if not await self._wait():
                return await self._let_go(_Record())

    def _replay(self) -> None:
        journal = self._history.journal
        started = journal[0]
        assert isinstance(started, Started), started
        data = inline(started.input) or self._blobs[started.input.blob]
        self._machine.start(data, at_ms=self.run.started_ms or self.run.created_ms)
        for position, entry, strict in to_replay(journal):
            self._machine.apply(entry, position, strict=strict)

    def _deliver(self, record: _Record) -> None:
        """Turn what has arrived into entries and deliver each, until the code ends or nothing is left."""
        while self._machine.outcome is None:
            if self._arrivals:
                entry = self._entry_of(self._arrivals.popleft(), record)
            else:
                now_ms = self._desk.store.now_ms()
                due = self._machine.take_due(now_ms)
                if due is None:
                    return
                if isinstance(due, Command):
                    self._to_call.append(due)
                    continue
                entry = Elapsed(now_ms, due.step, due.due_ms)
            if entry is not None:
                self._apply(entry, record)

    def _apply(self, entry: Entry, record: _Record) -> None:
        record.entries.append(entry)
        self._machine.apply(entry, self.run.length + len(record.entries) - 1)

    def _to_begin(self, record: _Record) -> list[Command]:
        """What is to be begun once `record` is durable; adds the intents of `once` effects to it."""
        for step in self._machine.take_dropped():
            if (task := self._in_flight.pop(step, None)) is not None:
                task.cancel()
        now_ms = self._desk.store.now_ms()
        commands = [command for command in self._machine.take_fresh() if not command.is_under_way(now_ms)]
        if self._watch_again:
            # While the run was ended, nobody told it how its children fared.
            commands += [command for command in self._machine.open.values() if command.awaits_a_child]
            self._watch_again = False
        commands += [command for command in self._to_call if command.step in self._machine.open]
        self._to_call.clear()
        for command in commands:
            self._intend(command, record)
        return commands

    def _intend(self, command: Command, record: _Record) -> None:
        policy = self._policy(command)
        if policy is None or policy.safety != "once" or command.step in self._intended_here:
            return
        if command.intended:  # by a process that died since: nobody calls again
            if policy.reconcile is None:
                raise _unknown_outcome(command, "the process died after it was begun")
            return
        self._intended_here.add(command.step)
        now_ms = self._desk.store.now_ms()
        self._apply(Intended(now_ms, command.step, command.intent, command.failures + 1), record)

    def _may_wake_soon(self) -> bool:
        """Whether something may come before the run would be let go anyway: a child's end, a timer, an arrival."""
        if self._arrivals or any(command.awaits_a_run for command in self._machine.open.values()):
            return True
        due_ms = self._machine.next_due_ms()
        return due_ms is not None and due_ms - self._desk.store.now_ms() <= IDLE_MS

    async def _wait(self) -> bool:
        """Wait for an arrival or a timer. False if there was neither, and the run may be let go."""
        due_ms = self._machine.next_due_ms()
        delay_ms = None if due_ms is None else max(0, due_ms - self._desk.store.now_ms())
        if self._in_flight:
            await self._signalled(delay_ms)
            return True
        self._desk.quiet(self)
        try:
            came = await self._signalled(IDLE_MS if delay_ms is None else min(IDLE_MS, delay_ms))
        finally:
            self._desk.busy(self)
        return came or self._stopping or (delay_ms is not None and delay_ms <= IDLE_MS)

    async def _signalled(self, timeout_ms: int | None) -> bool:
        if self._arrivals:
            return True
        loop = self._loop
        signal = self._signal = loop.create_future()
        timer = None if timeout_ms is None else loop.call_later(timeout_ms / 1000, _wake, signal)
        try:
            await signal
        finally:
            self._signal = None
            if timer is not None:
                timer.cancel()
        return bool(self._arrivals)

    # -- arrivals to entries

    def _entry_of(self, arrival: Arrival, record: _Record) -> Entry | None:
        """The entry that records `arrival`; None if there is nothing to record."""
        command = self._machine.open.get(arrival.step)
        if isinstance(arrival, Message):
            record.read.append(arrival.id)
        else:
            self._in_flight.pop(arrival.step, None)
        if command is None:  # the code no longer waits for it
            return None
        now_ms = self._desk.store.now_ms()
        match arrival:
            case Attempt() | Reconciled():
                return self._entry_of_outcome(arrival, command, now_ms, record)
            case Admitted(run=run):
                return Spawned(now_ms, command.step, command.intent, run.id, run.key or "")
            case NotAdmitted(error=error):
                return GaveUp(now_ms, command.step, command.intent, 1, described(error, self._desk.codec))
            case Watching():
                return None
            case Message():
                return self._joined(command, arrival, now_ms)
            case _:  # pragma: no cover
                assert_never(arrival)

    def _entry_of_outcome(
        self, arrival: Attempt | Reconciled, command: Command, now_ms: int, record: _Record
    ) -> Entry | None:
        outcome = arrival.outcome
        if isinstance(outcome, AttemptReturned):
            self._desk.emit(events.EffectPerformed(self.run.id, command.step, command.failures + 1))
            value = self._kept(outcome.value, record)
            return Performed(now_ms, command.step, command.intent, command.failures + 1, value)
        if isinstance(arrival, Attempt):
            return self._failed_attempt(command, outcome.error, now_ms)
        if isinstance(outcome.error, NotPerformed):
            self._intended_here.add(command.step)
            self._to_call.append(command)
            return None
        raise _unknown_outcome(command, f"reconcile raised {type(outcome.error).__name__}: {outcome.error}")

    def _failed_attempt(self, command: Command, error: BaseException, now_ms: int) -> Entry | None:
        policy = self._policy(command)
        assert policy is not None
        attempt = command.failures + 1
        if policy.safety == "once" and isinstance(error, TimedOut):
            # It may be happening still. This is the case that `once` exists for.
            if policy.reconcile is None:
                raise _unknown_outcome(command, "it did not answer in time")
            self._in_flight[command.step] = self._loop.create_task(self._reconcile(command, policy))
            return None
        failure = described(error, self._desk.codec)
        verdict = retries.decide(
            policy.retry,
            error,
            attempt=attempt,
            asked_ms=command.asked_ms,
            now_ms=now_ms,
            chance=self._desk.ids.chance(),
        )
        text = f"{failure.type}: {failure.message}"
        if isinstance(verdict, retries.GiveUp):
            self._desk.emit(events.EffectGaveUp(self.run.id, command.step, attempt, text))
            return GaveUp(now_ms, command.step, command.intent, attempt, failure)
        self._intended_here.discard(command.step)
        self._desk.emit(events.EffectWillRetry(self.run.id, command.step, attempt, verdict.delay_ms, text))
        return Attempted(now_ms, command.step, command.intent, attempt, failure, now_ms + verdict.delay_ms)

    def _joined(self, command: Command, message: Message, now_ms: int) -> Joined:
        step, run_id = command.step, message.from_run
        if message.output is not None:
            return Joined(now_ms, step, run_id, value=msgspec.json.decode(message.output, type=Value))
        if message.error is not None:
            return Joined(now_ms, step, run_id, error=msgspec.json.decode(message.error, type=Failure))
        return Joined(now_ms, step, run_id, error=described(RunCancelled(run_id), self._desk.codec))

    def _kept(self, data: bytes, record: _Record) -> Value:
        value, blobs = kept(data)
        for blob in blobs:
            self._blobs[blob.digest] = blob.data
            record.blobs.append(blob)
        return value

    async def _load_blobs(self) -> None:
        """Large results of children come beside the message; fetch them before they are delivered."""
        self._mail_arrived = False
        for message in tuple(self._arrivals):
            if isinstance(message, Message) and message.output is not None:
                digest = msgspec.json.decode(message.output, type=Value).blob
                if digest and digest not in self._blobs:
                    data = await self._desk.store.blob(self.run.id, digest)
                    assert data is not None, message
                    self._blobs[digest] = data

    # -- commands

    def _begin(self, command: Command) -> None:
        match command.intent.kind:
            case "effect":
                policy = self._policy(command)
                assert policy is not None
                if command.intended and command.step not in self._intended_here:
                    work = self._reconcile(command, policy)
                else:
                    work = self._attempt(command, policy)
            case "join":
                work = self._watch(command)
            case "child" if command.child_id:
                work = self._watch(command)
            case _:
                work = self._admit(command)
        self._in_flight[command.step] = self._loop.create_task(work)

    def _policy(self, command: Command) -> EffectPolicy | None:
        target = command.call.target if command.call else None
        return self._desk.policy_of(target) if isinstance(target, Effect) else None

    async def _attempt(self, command: Command, policy: EffectPolicy) -> None:
        assert command.call is not None
        effect = command.call.target
        assert isinstance(effect, Effect)
        await self._desk.trusted()
        attempt = command.failures + 1
        self._desk.emit(events.EffectBegan(self.run.id, command.step, attempt))
        beat = self._beats.get(command.step)
        scope = EffectScope(
            command.intent.key,
            attempt,
            None if beat is None else self._desk.codec.decode(beat, Any),
            self._beater(command),
        )
        limit_ms = retries.limit_ms(
            policy.retry, policy.timeout_ms, asked_ms=command.asked_ms, now_ms=self._desk.store.now_ms()
        )
        outcome = await self._desk.performer.attempt(effect, command.call.arguments, scope, limit_ms=limit_ms)
        self.arrive(Attempt(command.step, outcome))

    async def _reconcile(self, command: Command, policy: EffectPolicy) -> None:
        assert command.call is not None
        assert policy.reconcile is not None
        effect = command.call.target
        assert isinstance(effect, Effect)
        outcome = await self._desk.performer.reconcile(effect, policy.reconcile, command.intent.key)
        self.arrive(Reconciled(command.step, outcome))

    async def _admit(self, command: Command) -> None:
        try:
            run = await self._desk.admit_child(self.run, command)
        except (InputMismatch, UnknownWorkflow) as error:
            self.arrive(NotAdmitted(command.step, error))
        else:
            self.arrive(Admitted(command.step, run))

    async def _watch(self, command: Command) -> None:
        watching = await self._desk.watch(command.child_id, Watcher(self.run.id, command.step))
        unknown = UnknownRun(f"no run has the id {command.child_id}")
        self.arrive(Watching(command.step) if watching else NotAdmitted(command.step, unknown))

    def _beater(self, command: Command) -> Callable[[Any], None]:
        """Records heartbeats, from whatever thread; the newest details win."""
        loop, codec = self._loop, self._desk.codec

        attempt = command.failures

        def beat(details: Any) -> None:
            data = codec.encode(details, what="the details of heartbeat()")
            loop.call_soon_threadsafe(self._beat, command, attempt, data)

        return beat

    def _beat(self, command: Command, attempt: int, data: bytes) -> None:
        step = command.step
        if attempt != command.failures or step not in self._machine.open:
            return  # a thread that goes on after its attempt was given up
        self._beats[step] = data
        if step not in self._unwritten_beats:
            self._unwritten_beats.add(step)
            task = self._loop.create_task(self._write_beat(step))
            self._beat_tasks.add(task)
            task.add_done_callback(self._beat_tasks.discard)

    async def _write_beat(self, step: str) -> None:
        self._beat_count += 1
        self._unwritten_beats.discard(step)
        change = Change(
            f"{self.run.id}/{self.run.epoch}.beat{self._beat_count}",
            self.run.fence,
            beats=(Beat(step, self._beats[step]),),
        )
        try:
            await self._desk.commit(change)
        except LeaseLost:
            return

    # -- ways out

    async def _end(self, record: _Record) -> None:
        outcome = self._machine.outcome
        event: runs.Event
        match outcome:
            case CodeReturned(value):
                event = self._returned(value, record)
            case CodeRaised(error):
                event = runs.Raised(described(error, self._desk.codec))
            case CodeCancelled():
                event = runs.CancelledItself()
            case None:  # pragma: no cover
                raise AssertionError
        await self._commit(event, record)
        self._desk.ended(self.run)

    def _returned(self, value: Any, record: _Record) -> runs.Returned | runs.Raised:
        try:
            data = self._desk.codec.encode(value, what=f"the result of {self.run.workflow}")
        except UsageError as error:
            return runs.Raised(described(error, self._desk.codec))
        return runs.Returned(self._kept(data, record))

    async def _block(self, code: str, message: str, record: _Record) -> None:
        await self._commit(runs.Stuck(code, message), record)
        self._desk.emit(events.RunBlocked(self.run.id, code, message))
        self._desk.blocked(self.run)

    async def _set_aside(self, error: Exception) -> None:
        try:
            await self._block(
                EngineFault.code,
                f"{type(error).__name__}: {error} ({described(error, self._desk.codec).line})",
                _Record(),
            )
        except (Overtaken, LeaseLost):
            self._desk.emit(events.RunOvertaken(self.run.id))

    async def _let_go(self, record: _Record) -> None:
        machine = self._machine
        if not machine.open and not machine.timers:
            place = machine.where()
            error = WaitsForNothing(
                f"run {self.run.id} waits{f' at {place}' if place else ''} for something that nothing in it can deliver"
            )
            await self._block(error.code, error.message, record)
            return
        await self._commit(runs.LetGo(machine.next_due_ms()), record)
        self._desk.emit(events.RunLetGo(self.run.id, self.run.wake_ms))
        self._desk.let_go(self.run)

    async def _commit(self, event: runs.Event, record: _Record) -> None:
        record.read += self._read_later
        self._read_later = []
        change = runs.decide(self.run, event, recorded=record.frozen(), now_ms=self._desk.store.now_ms())
        committed = await self._desk.commit(change)
        # A repeated change answers as the first time, even if the run has changed hands since: look at the fence.
        if committed is None or committed.run is None or change.run is None or committed.run.fence != change.run.fence:
            raise Overtaken
        self.run = committed.run


class _Record:
    """What one activation has to record."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.blobs: list[Blob] = []
        self.read: list[str] = []

    def frozen(self) -> runs.Recorded:
        return runs.Recorded(tuple(self.entries), tuple(self.blobs), tuple(self.read))


def _wake(signal: asyncio.Future[None]) -> None:
    if not signal.done():
        signal.set_result(None)


def _unknown_outcome(command: Command, why: str) -> _Stuck:
    return _Stuck(
        UnknownOutcome.code,
        f"effect {command.intent.name} ({command.step}, key {command.intent.key!r}) was begun and {why}; "
        "whether it happened is not known",
    )
