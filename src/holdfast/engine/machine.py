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
from collections.abc import Awaitable, Iterable, Mapping
from hashlib import blake2b
from pathlib import PurePath
from types import FrameType
from typing import Any

from msgspec import UNSET, Struct

from holdfast.engine.failures import rebuilt
from holdfast.engine.loop import LINEAGE, Timer, WorkflowLoop
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

DIGEST_BYTES = 16


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

    def is_under_way(self, now_ms: int) -> bool:
        """Whether nothing needs to be begun: its child exists, or its retry is not yet due."""
        if self.intent.kind == "child" and self.child_id:
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

    def replay(self, journal: Iterable[tuple[int, Entry]]) -> None:
        """Deliver what is recorded, in the order in which it was committed."""
        for position, entry in journal:
            self.apply(entry, position)

    def apply(self, entry: Entry, position: int) -> None:
        """Deliver one entry and run the code until it is quiet. Raises `ReplayDiverged` if the code contradicts it."""
        if self.outcome is not None:
            if getattr(entry, "step", None) is not None:
                raise ReplayDiverged(f"run {self.current.run_id}: {ended_early(entry, position)}")
            return
        divergence = contradiction(entry, position, self._asked)
        if divergence is not None:
            raise ReplayDiverged(f"run {self.current.run_id}: {divergence}")
        self._loop.now_ms = max(self._loop.now_ms, entry.at_ms)
        self._deliver(entry)
        self._run()

    def take_fresh(self) -> list[Command]:
        """The steps asked for since the last time, as far as the code still waits for them."""
        fresh, self._fresh = self._fresh, []
        return [command for command in fresh if command.step in self.open]

    def take_dropped(self) -> list[str]:
        """The steps that the code has stopped waiting for since the last time."""
        dropped, self.dropped = self.dropped, []
        return dropped

    def next_due_ms(self) -> int | None:
        """When the first timer or retry of this run is due."""
        due = [timer.due_ms for timer in self.timers.values()]
        due += [command.retry_at_ms for command in self.open.values() if command.retry_at_ms is not None]
        return min(due, default=None)

    def due(self, now_ms: int) -> list[Elapsed]:
        """The timers that have come due, the earliest first."""
        ready = sorted(
            (timer.due_ms, order, timer) for order, timer in enumerate(self.timers.values()) if timer.due_ms <= now_ms
        )
        return [Elapsed(now_ms, timer.step, timer.due_ms) for _, _, timer in ready]

    def evict(self) -> None:
        """Forget the run; its coroutines are closed."""
        self._loop.evict()

    def where(self) -> str:
        """The line at which the main task waits, for messages."""
        stack = self._main.get_stack(limit=1) if self._main and not self._main.done() else []
        return _line(stack[0]) if stack else ""

    # -- asked by the code

    def perform(self, call: Call[Any]) -> Awaitable[Any]:
        target = call.target
        step = LINEAGE.get().step(target.step_name)
        arguments = self._codec.encode(call.arguments, what=f"the input of {target.name}")
        line = _line(sys._getframe(2))  # noqa: SLF001 - perform ← Call.__await__ ← the code
        if isinstance(target, Effect):
            key = target.key.fill(call.arguments) if target.key else f"{self.current.run_id}/{step}"
            return self._ask("effect", step, call, key=key, arguments=arguments, line=line)
        key = target.key.fill(call.arguments) if target.key else None
        return self._ask("child", step, call, key=key, arguments=arguments, line=line)

    def spawn(self, call: Call[Any], key: str | None) -> Awaitable[ChildRun[Any]]:
        target = call.target
        if not isinstance(target, Workflow):
            raise UsageError(
                f"spawn() was given the effect {target.name!r}",
                hint="Only a workflow can be a child run; await the effect.",
            )
        step = LINEAGE.get().step(target.step_name)
        arguments = self._codec.encode(call.arguments, what=f"the input of {target.name}")
        if key is None and target.key is not None:
            key = target.key.fill(call.arguments)
        key = None if key is None else keys.checked(key)
        return self._ask("spawn", step, call, key=key, arguments=arguments, line="")

    def join(self, child: ChildRun[Any]) -> Awaitable[Any]:
        step = LINEAGE.get().step(f"{child.workflow.partition('.')[2]}.result")
        intent = Intent("join", child.workflow, key=child.id)
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

    def _ask(
        self, kind: str, step: str, call: Call[Any], *, key: str | None, arguments: bytes, line: str
    ) -> Awaitable[Any]:
        target = call.target
        digest = blake2b(arguments, digest_size=DIGEST_BYTES).hexdigest()
        intent = Intent(kind, target.name, key or "", digest, line)
        future = self._future(step)
        returns = target.signature.returns
        return self._open(Command(step, intent, self._loop.now_ms, future, returns, call, arguments, key))

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
        self._asked[timer.step] = TIMER

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


def _line(frame: FrameType) -> str:
    """`file.py:12` of the code that asks; nothing if asyncio asks on its behalf (gather)."""
    place = (frame.f_code, frame.f_lineno)
    line = _lines.get(place)
    if line is None:
        path = PurePath(frame.f_code.co_filename)
        foreign = path.parent.name in {"asyncio", "engine"}
        line = _lines[place] = "" if foreign else f"{path.name}:{frame.f_lineno}"
    return line
