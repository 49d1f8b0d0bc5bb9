"""One run as a sans-IO machine: journal entries go in, commands come out.

A live completion and a recorded one take the same way: `apply(entry)` delivers it and runs the code until it is
quiet. So what happens on a replay is what happened the first time, by construction.

    open      steps that the code waits for, by id: what to do about them, and how far that has come
    fresh     those asked for since the engine last looked
    dropped   those that the code no longer waits for (a timeout, a lost race)
    outcome   how the code ended, once it has
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from heapq import heappop, heappush
from pathlib import PurePath
from types import FrameType
from typing import Any

from msgspec import UNSET, Struct

from holdfast.engine.failures import rebuilt
from holdfast.engine.loop import LINEAGE, Timer, WorkflowLoop
from holdfast.engine.values import digest_of
from holdfast.errors import ReplayDiverged, UsageError
from holdfast.kernel import keys
from holdfast.kernel.journal import (
    Attempted,
    Elapsed,
    Entry,
    GaveUp,
    Intended,
    Intent,
    Joined,
    Performed,
    Spawned,
    Value,
)
from holdfast.kernel.replay import TIMER, contradiction, ended_early
from holdfast.pack import Call, Effect, Workflow
from holdfast.ports.codec import Codec
from holdfast.workflow import ChildRun, Current


class Command(Struct):
    """A step that the code waits for, and how far it has come."""

    step: str
    intent: Intent
    asked_ms: int
    future: asyncio.Future[Any]
    returns: Any
    call: Call[Any] | None = None  # of an effect or a child
    arguments: bytes = b""
    key: str | None = None  # of a child
    child_id: str = ""  # of a child once admitted; of a join
    failures: int = 0
    retry_at_ms: int | None = None
    intended: bool = False

    @property
    def awaits_a_run(self) -> bool:
        """Whether another run's end is what it waits for."""
        return bool(self.child_id)

    @property
    def awaits_a_child(self) -> bool:
        """Whether it is an awaited child that has been admitted."""
        return self.intent.kind == "child" and bool(self.child_id)

    def is_under_way(self, now_ms: int) -> bool:
        """Whether nothing needs to be begun: its child exists, or its retry is not yet due."""
        if self.awaits_a_child:
            return True
        return self.retry_at_ms is not None and self.retry_at_ms > now_ms


class CodeReturned(Struct, frozen=True):
    value: Any


class CodeRaised(Struct, frozen=True):
    error: BaseException


class CodeCancelled(Struct, frozen=True):
    pass


CodeOutcome = CodeReturned | CodeRaised | CodeCancelled


class _StepFuture(asyncio.Future[Any]):
    """What the code awaits. Cancelling it tells the machine that nobody waits for the step any more."""

    machine: Machine
    step: str

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self.machine._drop(self.step)  # noqa: SLF001 - one class in two parts
        return cancelled


class Machine:
    """Drives the code of one run. It is also the `WorkflowScope` that the authoring functions find."""

    def __init__(
        self, workflow: Workflow[..., Any], current: Current, *, codec: Codec, blobs: Mapping[str, bytes]
    ) -> None:
        self.current = current
        self.open: dict[str, Command] = {}
        self.timers: dict[str, Timer] = {}
        self.dropped: list[str] = []
        self.outcome: CodeOutcome | None = None
        self._workflow = workflow
        self._codec = codec
        self._blobs = blobs
        self._asked: dict[str, Intent] = {}
        self._fresh: list[Command] = []
        self._draws: dict[str, int] = {}
        self._put_by: dict[str, list[Entry]] = {}
        self._due: list[tuple[int, int, str]] = []
        self._dues_set = 0
        self._loop = WorkflowLoop(self, on_timer=self._timer_set, on_timer_cancelled=self._timer_cancelled)
        self._main: asyncio.Task[Any] | None = None

    # -- driven by the engine

    def start(self, arguments: bytes, *, at_ms: int) -> None:
        """Begin the code with its stored arguments."""
        self._loop.now_ms = at_ms
        signature = self._workflow.signature
        try:
            decoded = self._codec.decode(arguments, signature.arguments_type)
            coroutine = signature.apply(self._workflow.fn, signature.named(decoded))
        except UsageError as error:  # stored by other code than this: the run fails with the reason
            self.outcome = CodeRaised(error)
            return
        self._main = self._loop.start(coroutine)
        self._run()

    def apply(self, entry: Entry, position: int, *, strict: bool = True) -> None:
        """Deliver one entry and run the code until it is quiet.

        Raises `ReplayDiverged` if the code contradicts it; an entry that is not strict is put by instead, and
        delivered if the code asks for it after all.
        """
        if self.outcome is not None:
            if strict and getattr(entry, "step", None) is not None:
                raise ReplayDiverged(f"run {self.current.run_id}: {ended_early(entry, position)}")
            return
        divergence = contradiction(entry, position, self._asked)
        if divergence is None:
            self._deliver_and_run(entry)
        elif strict:
            raise ReplayDiverged(f"run {self.current.run_id}: {divergence}")
        elif _step_of(entry) not in self._asked and not isinstance(entry, Elapsed):  # a wait begins anew
            self._put_by.setdefault(_step_of(entry), []).append(entry)

    def _deliver_and_run(self, entry: Entry) -> None:
        self._loop.now_ms = max(self._loop.now_ms, entry.at_ms)
        self._deliver(entry)
        self._run()
        if self._put_by:
            self._deliver_what_was_put_by()

    def _deliver_what_was_put_by(self) -> None:
        while (step := next((step for step in self.open if step in self._put_by), None)) is not None:
            for entry in self._put_by.pop(step):
                if contradiction(entry, 0, self._asked) is not None:
                    continue  # it was put by because of this very step: not what the code wants
                self._loop.now_ms = max(self._loop.now_ms, entry.at_ms)
                self._deliver(entry)
                self._run()

    def take_fresh(self) -> list[Command]:
        """The steps asked for since the last time, as far as the code still waits for them."""
        if not self._fresh:
            return []
        fresh, self._fresh = self._fresh, []
        return [command for command in fresh if command.step in self.open]

    def take_dropped(self) -> list[str]:
        """The steps that the code has stopped waiting for since the last time."""
        if not self.dropped:
            return []
        dropped, self.dropped = self.dropped, []
        return dropped

    def next_due_ms(self) -> int | None:
        """When the first timer or retry of this run is due."""
        while self._due:
            due_ms, _, step = self._due[0]
            timer, command = self.timers.get(step), self.open.get(step)
            if timer is not None or (command is not None and command.retry_at_ms == due_ms):
                return due_ms
            heappop(self._due)  # cancelled, dropped or done meanwhile
        return None

    def take_due(self, now_ms: int) -> Timer | Command | None:
        """The first timer that has elapsed, or effect that is to be tried again, by `now_ms`; each is answered once."""
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        _, _, step = heappop(self._due)
        if step in self.timers:
            return self.timers[step]
        command = self.open[step]
        command.retry_at_ms = None
        return command

    def evict(self) -> None:
        """Forget the run; its coroutines are closed."""
        self._loop.evict()
        self._main = None

    def where(self) -> str:
        """The line at which the main task waits, for messages."""
        stack = self._main.get_stack(limit=1) if self._main and not self._main.done() else []
        return _line(stack[0]) if stack else ""

    # -- asked by the code

    def perform(self, call: Call[Any]) -> Awaitable[Any]:
        target = call.target
        kind = "effect" if isinstance(target, Effect) else "child"
        key = target.key.fill(call.arguments) if target.key else None
        line = _line(sys._getframe(2))  # noqa: SLF001 - perform ← Call.__await__ ← the code
        return self._ask(kind, call, key, line)

    def spawn(self, call: Call[Any], key: str | None) -> Awaitable[ChildRun[Any]]:
        if not isinstance(call, Call):
            raise UsageError(f"spawn() was given {type(call).__name__}", hint="Call the workflow: spawn(ship('o-1')).")
        target = call.target
        if not isinstance(target, Workflow):
            raise UsageError(
                f"spawn() was given the effect {target.name!r}",
                hint="Only a workflow can be a child run; await the effect.",
            )
        if key is None and target.key is not None:
            key = target.key.fill(call.arguments)
        key = None if key is None else keys.checked(key)
        line = _line(sys._getframe(2))  # noqa: SLF001 - spawn ← workflow.spawn ← the code
        return self._ask("spawn", call, key, line)

    def join(self, child: ChildRun[Any]) -> Awaitable[Any]:
        name = f"{child.workflow.partition('.')[2]}.result"
        step, intent = self._next_step(name, lambda _: Intent("join", child.workflow, key=child.id))
        return self._open(
            Command(step, intent, self._loop.now_ms, self._future(step), child.returns, child_id=child.id)
        )

    def now_ms(self) -> int:
        return self._loop.now_ms

    def chance(self) -> float:
        return self.bits(53) / (1 << 53)

    def bits(self, count: int) -> int:
        """`count` bits that follow from the run, the task and how often it has asked: the same on every replay."""
        path = LINEAGE.get().path
        draw = self._draws[path] = self._draws.get(path, 0) + 1
        seed = f"{self.current.run_id}/{path}/{draw}".encode()
        return int.from_bytes(blake2b(seed, digest_size=32).digest()) & ((1 << count) - 1)

    # -- between the two

    def _ask(self, kind: str, call: Call[Any], key: str | None, line: str) -> Awaitable[Any]:
        target = call.target
        arguments = self._codec.encode(call.arguments, what=target.input_name)
        digest = digest_of(target.signature.essence(call.arguments, arguments, self._codec))

        def intent_for(step: str) -> Intent:
            # Every effect has a key; one that declares none is known by its run and step.
            named = key or (f"{self.current.run_id}/{step}" if kind == "effect" else "")
            return Intent(kind, target.name, named, digest, line)

        step, intent = self._next_step(target.step_name, intent_for)
        returns = target.signature.returns
        return self._open(Command(step, intent, self._loop.now_ms, self._future(step), returns, call, arguments, key))

    def _next_step(self, name: str, intent_for: Callable[[str], Intent]) -> tuple[str, Intent]:
        """The id of the code's next step of this name. Ids under which something else was done are passed over."""
        lineage = LINEAGE.get()
        while True:
            step = lineage.step(name)
            intent = intent_for(step)
            if step not in self._put_by or contradiction(self._put_by[step][0], 0, {step: intent}) is None:
                return step, intent

    def _open(self, command: Command) -> Awaitable[Any]:
        self.open[command.step] = command
        self._asked[command.step] = command.intent
        self._fresh.append(command)
        return command.future

    def _future(self, step: str) -> _StepFuture:
        future = _StepFuture(loop=self._loop)
        future.machine = self
        future.step = step
        return future

    def _drop(self, step: str) -> None:
        if self.open.pop(step, None) is not None:
            del self._asked[step]
            self.dropped.append(step)

    def _timer_set(self, timer: Timer) -> None:
        self.timers[timer.step] = timer
        self._is_due_at(timer.due_ms, timer.step)
        self._asked[timer.step] = TIMER

    def _is_due_at(self, due_ms: int, step: str) -> None:
        self._dues_set += 1  # of two that are due together, the one that was asked for first comes first
        heappush(self._due, (due_ms, self._dues_set, step))

    def _timer_cancelled(self, timer: Timer) -> None:
        if self.timers.pop(timer.step, None) is not None:
            del self._asked[timer.step]

    def _deliver(self, entry: Entry) -> None:
        match entry:
            case Performed(step=step, value=value):
                self._resolve(step, value)
            case GaveUp(step=step, error=error):
                self._close(step).future.set_exception(rebuilt(error, self._codec, step=step))
            case Elapsed(step=step):
                timer = self.timers.pop(step)
                del self._asked[step]
                self._loop.fire(timer)
            case Spawned(step=step, run_id=run_id) if self.open[step].intent.kind == "child":
                self.open[step].child_id = run_id
            case Spawned(step=step, run_id=run_id, key=key):
                command = self._close(step)
                command.future.set_result(ChildRun(run_id, command.intent.name, key or None, command.returns))
            case Joined(step=step, value=Value() as value):
                self._resolve(step, value)
            case Joined(step=step, error=error):
                assert error is not None
                self._close(step).future.set_exception(rebuilt(error, self._codec, step=step))
            case Attempted(step=step, attempt=attempt, retry_at_ms=retry_at_ms):
                command = self.open[step]
                command.failures, command.retry_at_ms, command.intended = attempt, retry_at_ms, False
                self._is_due_at(retry_at_ms, step)
            case Intended(step=step):
                self.open[step].intended = True
            case _:
                pass

    def _resolve(self, step: str, value: Value) -> None:
        command = self._close(step)
        try:
            result = self._codec.decode(self._bytes_of(value), command.returns)
        except UsageError as error:
            command.future.set_exception(error)
        else:
            command.future.set_result(result)

    def _bytes_of(self, value: Value) -> bytes:
        return self._blobs[value.blob] if value.json is UNSET else bytes(value.json)

    def _close(self, step: str) -> Command:
        del self._asked[step]
        return self.open.pop(step)

    def _run(self) -> None:
        try:
            self._loop.run_until_quiet()
        except (SystemExit, KeyboardInterrupt) as error:
            self.outcome = CodeRaised(error)
            return
        main = self._main
        assert main is not None
        if not main.done():
            return
        if main.cancelled():
            self.outcome = CodeCancelled()
        else:
            error = main.exception()
            self.outcome = CodeReturned(main.result()) if error is None else CodeRaised(error)


_lines: dict[tuple[object, int], str] = {}
_FOREIGN = (str(PurePath(asyncio.__file__).parent), str(PurePath(__file__).parent))


def _step_of(entry: Entry) -> str:
    step: str = getattr(entry, "step", "")
    assert step, entry  # only entries of steps can be contradicted
    return step


def _line(frame: FrameType) -> str:
    """`file.py:12` of the code that asks; nothing if asyncio asks on its behalf (gather)."""
    place = (frame.f_code, frame.f_lineno)
    line = _lines.get(place)
    if line is None:
        path = frame.f_code.co_filename
        foreign = path.startswith(_FOREIGN)
        line = _lines[place] = "" if foreign else f"{PurePath(path).name}:{frame.f_lineno}"
    return line
