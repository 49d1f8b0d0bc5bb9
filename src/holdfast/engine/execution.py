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
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.engine import events
from holdfast.engine.arrivals import Arrival, Record, Stuck
from holdfast.engine.desk import Desk
from holdfast.engine.errands import Errands
from holdfast.engine.failures import described
from holdfast.engine.machine import CodeCancelled, CodeRaised, CodeReturned, Command, Machine
from holdfast.engine.recorder import Recorder
from holdfast.engine.values import inline
from holdfast.errors import EngineFault, LeaseLost, ReplayDiverged, UsageError, WaitsForNothing
from holdfast.kernel import runs
from holdfast.kernel.changes import Message, Run
from holdfast.kernel.journal import Elapsed, Entry, Retried, Started, Value, to_replay
from holdfast.pack import Workflow
from holdfast.ports.store import History
from holdfast.workflow import Current

IDLE_MS = 1_000


class Overtaken(Exception):
    """The run is with somebody else."""


class Execution:
    """Drives one run from where its journal ends to its end, to a long wait, or until it is taken away."""

    def __init__(self, desk: Desk, workflow: Workflow[..., Any], history: History, blobs: Mapping[str, bytes]) -> None:
        run = self.run = history.run
        self._desk = desk
        self._now_ms = desk.store.now_ms
        self._history = history
        self._workflow = workflow
        self._blobs = dict(blobs)
        self._machine = Machine(workflow, Current(run.id, run.key, run.workflow), codec=desk.codec, blobs=self._blobs)
        self._errands = Errands(desk, run, history.beats, self.arrive)
        self._recorder = Recorder(desk, run.id, self._errands, self._blobs)
        self._arrivals: deque[Arrival] = deque(history.messages)
        self._seen = {message.id for message in history.messages} if history.messages else set[str]()
        self._mail_arrived = bool(history.messages)
        self._read_later: list[str] = []  # messages that need no entry; the next commit takes them along
        self._to_call: list[Command] = []  # effects to be called again: their retry is due, or they never happened
        self._watch_again = len(history.journal) > 1 and any(isinstance(entry, Retried) for entry in history.journal)
        self._signal: asyncio.Future[None] | None = None
        self._stopping = False

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
            self._errands.close()
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
        return list(self._errands.in_flight.values())

    def abandon(self) -> None:
        """The run is taken away; its task is about to be cancelled."""
        self._errands.close()

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
            while await self._activate():
                pass
        except (Stuck, ReplayDiverged) as stuck:
            await self._block(stuck.code, stuck.message, Record())

    async def _activate(self) -> bool:
        """One activation, and the wait for the next. False if this was the last one here."""
        record = Record()
        if self._mail_arrived:
            await self._load_blobs()
        try:
            self._deliver(record)
            commands = [] if self._stopping or self._machine.outcome else self._to_begin(record)
        except Stuck as stuck:
            await self._block(stuck.code, stuck.message, record)
            return False
        if self._machine.outcome is not None:
            await self._end(record)
            return False
        if not commands and not self._errands.in_flight:
            return await self._pause(record)
        await self._progress(record)
        if self._stopping:  # it may have come while the record was being written
            commands = []
            if not self._errands.in_flight:
                return False
        await self._begin(commands)
        return True

    def _replay(self) -> None:
        journal = self._history.journal
        started = journal[0]
        assert isinstance(started, Started), started
        data = inline(started.input) or self._blobs[started.input.blob]
        self._machine.start(data, at_ms=self.run.started_ms or self.run.created_ms)
        for position, entry, strict in to_replay(journal):
            self._machine.apply(entry, position, strict=strict)

    def _deliver(self, record: Record) -> None:
        """Turn what has arrived into entries and deliver each, until the code ends or nothing is left."""
        while self._machine.outcome is None:
            if self._arrivals:
                entry = self._entry_of(self._arrivals.popleft(), record)
            else:
                now_ms = self._now_ms()
                # Event loops count in whole milliseconds: a timer that is due within the next one is due.
                entry = self._machine.take_due(now_ms + 1)
                if entry is None:
                    return
                if not isinstance(entry, Command):
                    entry = Elapsed(max(now_ms, entry.due_ms), entry.step, entry.due_ms)
            if isinstance(entry, Command):
                self._to_call.append(entry)
            elif entry is not None:
                self._apply(entry, record)

    def _entry_of(self, arrival: Arrival, record: Record) -> Entry | Command | None:
        command = self._machine.open.get(arrival.step)
        if isinstance(arrival, Message):
            record.read.append(arrival.id)
        else:
            self._errands.in_flight.pop(arrival.step, None)
        # If the code no longer waits for it, there is nothing to record.
        return None if command is None else self._recorder.entry_of(arrival, command, record)

    def _apply(self, entry: Entry, record: Record) -> None:
        record.entries.append(entry)
        self._machine.apply(entry, self.run.length + len(record.entries) - 1)

    def _to_begin(self, record: Record) -> list[Command]:
        """What is to be begun once `record` is durable; adds the intents of `once` effects to it."""
        for step in self._machine.take_dropped():
            self._errands.drop(step)
        commands = {command.step: command for command in self._to_call if command.step in self._machine.open}
        self._to_call.clear()
        now_ms = self._now_ms()
        for command in self._machine.take_fresh():
            if not command.is_under_way(now_ms):
                commands[command.step] = command
        if self._watch_again:
            # While the run was ended, nobody told it how its children fared.
            commands |= {command.step: command for command in self._machine.open.values() if command.awaits_a_child}
            self._watch_again = False
        for command in commands.values():
            intent = self._recorder.intent_of(command)
            if intent is not None:
                self._apply(intent, record)
        return list(commands.values())

    async def _begin(self, commands: list[Command]) -> None:
        """Begin what the code asked for, and wait until something comes of it."""
        if len(commands) == 1 and self._is_all_there_is(commands[0]):
            await self._errands.attempt(commands[0])
            return
        for command in commands:
            self._errands.begin(command)
        await self._signalled(self._due_in_ms())

    def _is_all_there_is(self, command: Command) -> bool:
        """Whether an effect is the only thing that the run waits for: then it needs no task of its own."""
        return (
            command.intent.kind == "effect"
            and len(self._machine.open) == 1
            and not self._machine.timers
            and not self._errands.in_flight
            and not self._errands.is_in_doubt(command)
        )

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

    # -- waiting

    async def _pause(self, record: Record) -> bool:
        """The run only waits. True if something came soon; otherwise it has been let go."""
        if self._stopping:
            await self._progress(record)  # whoever takes it next begins what is left
            return False
        if not self._may_wake_soon():
            await self._let_go(record)
            return False
        await self._progress(record)
        if self._stopping:
            return False
        due_in_ms = self._due_in_ms()
        self._desk.quiet()
        try:
            came = await self._signalled(IDLE_MS if due_in_ms is None else min(IDLE_MS, due_in_ms))
        finally:
            self._desk.busy()
        if came or self._stopping or (due_in_ms is not None and due_in_ms <= IDLE_MS):
            return True
        await self._let_go(Record())
        return False

    def _may_wake_soon(self) -> bool:
        """Whether something may come before the run would be let go anyway: a child's end, a timer, an arrival."""
        if self._arrivals or any(command.awaits_a_run for command in self._machine.open.values()):
            return True
        due_in_ms = self._due_in_ms()
        return due_in_ms is not None and due_in_ms <= IDLE_MS

    def _due_in_ms(self) -> int | None:
        due_ms = self._machine.next_due_ms()
        return None if due_ms is None else max(0, due_ms - self._now_ms())

    async def _signalled(self, timeout_ms: int | None) -> bool:
        """Whether something arrived within the time."""
        if self._arrivals:
            return True
        loop = self._desk.loop
        signal = self._signal = loop.create_future()
        timer = None if timeout_ms is None else loop.call_later(timeout_ms / 1000, _wake, signal)
        try:
            await signal
        finally:
            self._signal = None
            if timer is not None:
                timer.cancel()
        return bool(self._arrivals)

    # -- ways out

    async def _end(self, record: Record) -> None:
        event: runs.Event
        match self._machine.outcome:
            case CodeReturned(value):
                event = self._returned(value, record)
            case CodeRaised(error):
                event = runs.Raised(described(error, self._desk.codec))
            case CodeCancelled():
                event = runs.CancelledItself()
            case None:  # pragma: no cover
                raise AssertionError
        await self._commit(event, record)
        self._desk.settled(self.run)

    def _returned(self, value: Any, record: Record) -> runs.Returned | runs.Raised:
        codec = self._desk.codec
        try:
            data = codec.encode(value, what=self._workflow.result_name)
            codec.decode(data, self._workflow.signature.returns)  # what cannot be read back must not look completed
        except UsageError as error:
            return runs.Raised(described(error, codec))
        return runs.Returned(self._recorder.keep(data, record))

    async def _block(self, code: str, message: str, record: Record) -> None:
        await self._commit(runs.Stuck(code, message), record)
        self._desk.emit(events.RunBlocked(self.run.id, code, message))
        self._desk.settled(self.run)

    async def _set_aside(self, error: Exception) -> None:
        failure = described(error, self._desk.codec)
        try:
            await self._block(EngineFault.code, f"{failure.type}: {failure.message} ({failure.line})", Record())
        except (Overtaken, LeaseLost):
            self._desk.emit(events.RunOvertaken(self.run.id))

    async def _let_go(self, record: Record) -> None:
        machine = self._machine
        if not machine.open and not machine.timers:
            place = f" at {where}" if (where := machine.where()) else ""
            error = WaitsForNothing(f"run {self.run.id} waits{place} for something that nothing in it can deliver")
            await self._block(error.code, error.message, record)
            return
        await self._commit(runs.LetGo(machine.next_due_ms()), record)
        self._desk.emit(events.RunLetGo(self.run.id, self.run.wake_ms))
        self._desk.let_go(self.run)

    async def _progress(self, record: Record) -> None:
        if record.entries:
            await self._commit(runs.Progressed(), record)
        else:
            self._read_later += record.read

    async def _commit(self, event: runs.Event, record: Record) -> None:
        record.read += self._read_later
        self._read_later = []
        change = runs.decide(self.run, event, recorded=record.frozen(), now_ms=self._now_ms())
        committed = await self._desk.commit(change)
        # A repeated change answers as the first time, even if the run has changed hands since: look at the fence.
        if committed is None or committed.run is None or not _same_holder(committed.run, change.run):
            raise Overtaken
        self.run = committed.run


def _same_holder(committed: Run, offered: Run | None) -> bool:
    return committed is offered or (offered is not None and committed.fence == offered.fence)


def _wake(signal: asyncio.Future[None]) -> None:
    if not signal.done():
        signal.set_result(None)
