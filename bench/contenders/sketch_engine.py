"""The engine of the sketch: a loop for the code of each run, and what drives it from its journal to its end.

- Nothing is performed before all that it depends on is durable.
- A live entry and a recorded one take the same way into the code, so a journal replays to where it ends. A process that
  opens the file goes on with the runs that were under way.
- An effect that raises leaves its run where it is, and the exception goes to those who wait.
"""

import asyncio
import inspect
import random
import sys
import time
from asyncio import tasks
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context, ContextVar, copy_context
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.msgpack import Decoder, encode

from bench.contenders.sketch_store import (
    Admission,
    Completed,
    Entry,
    Fence,
    Holder,
    Intent,
    Performed,
    Record,
    Started,
    Writer,
)
from bench.workloads import Wait

effect_key: ContextVar[str] = ContextVar("effect_key")  # for the body of an effect: the same in every life of the run


class Refused(Exception):
    """The key belongs to another input, the run to another owner, or the journal to other code."""


class Function:
    """An async function whose arguments and result are stored, and read by its annotations."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.name = f"bench.{fn.__name__}"
        types = inspect.get_annotations(fn, eval_str=True)
        self.decode_result = Decoder(types.pop("return")).decode
        self.decode_arguments = Decoder(tuple[tuple(types.values())]).decode


class Effect(Function):
    """Awaited in a workflow, it is performed and recorded."""

    def __call__(self, *arguments: Any) -> Awaitable[Any]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorkflowLoop), "an effect is awaited in a workflow"
        frame = sys._getframe(1)
        line = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        return loop.run.ask(self, arguments, line)


class Command(NamedTuple):
    """An effect that the code waits for."""

    step: str
    effect: Effect
    arguments: tuple[Any, ...]
    intent: Intent
    future: asyncio.Future[Any]


class WorkflowLoop(asyncio.AbstractEventLoop):
    """Runs what is ready, in order, until nothing is: no selector, no threads, no clock."""

    def __init__(self, run: "LoadedRun") -> None:
        self.run = run
        self._ready: deque[tuple[Context, Callable[..., Any], tuple[Any, ...]]] = deque()

    def run_until_quiet(self) -> None:
        outer, ready = asyncio.get_running_loop(), self._ready
        task = _swap_task(outer, None)
        asyncio._set_running_loop(self)
        try:
            while ready:
                context, callback, arguments = ready.popleft()
                context.run(callback, *arguments)
        finally:
            asyncio._set_running_loop(outer)
            _swap_task(outer, task)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        self._ready.append((context or copy_context(), callback, args))

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What the code never awaited is lost on every replay alike."""


# Since 3.14 a thread has one current task, whatever the loop; before 3.12 there is nothing to set aside.
_swap_task: Callable[..., Any] = getattr(tasks, "_swap_current_task", lambda _loop, _task: None)


class LoadedRun:
    """One run in memory: entries go in, commands come out."""

    def __init__(self, fence: Fence, workflow: Function) -> None:
        self.fence = fence
        self.length = 0
        self.main: asyncio.Task[Any] | None = None
        self._workflow = workflow
        self._asked: Counter[str] = Counter()
        self._open: dict[str, Command] = {}
        self._in_flight: dict[str, asyncio.Task[Performed]] = {}
        self._loop = WorkflowLoop(self)

    def apply(self, entry: Entry) -> None:
        """Give the entry to the code, and run that until it is quiet."""
        self.length += 1
        if isinstance(entry, Performed):
            command = self._open.pop(entry.step, None)
            if command is None or (command.intent.key, command.intent.digest) != (
                entry.intent.key,
                entry.intent.digest,
            ):
                raise Refused(f"run {self.fence.run_id}: the code does not wait for {entry.step}")
            command.future.set_result(command.effect.decode_result(entry.value))
        elif isinstance(entry, Started):
            arguments = self._workflow.decode_arguments(entry.input)
            self.main = self._loop.create_task(self._workflow.fn(*arguments), context=Context())
        self._loop.run_until_quiet()

    def ask(self, effect: Effect, arguments: tuple[Any, ...], line: str) -> Awaitable[Any]:
        self._asked[effect.name] += 1
        step = f"{effect.fn.__name__}#{self._asked[effect.name]}"
        intent = Intent("effect", effect.name, f"{self.fence.run_id}/{step}", _digest(encode(arguments)), line)
        command = self._open[step] = Command(step, effect, arguments, intent, self._loop.create_future())
        return command.future

    async def performed(self) -> list[Performed]:
        """What comes back next of all that the code waits for. A lone effect is performed in this very task."""
        if not self._open:
            raise Refused(f"run {self.fence.run_id}: the code waits for nothing that can come")
        if len(self._open) == 1 and not self._in_flight:
            return [await self._perform(next(iter(self._open.values())))]
        for step, command in self._open.items():
            if step not in self._in_flight:
                self._in_flight[step] = asyncio.create_task(self._perform(command))
        await asyncio.wait(self._in_flight.values(), return_when=asyncio.FIRST_COMPLETED)
        done = [step for step, task in self._in_flight.items() if task.done()]
        return [self._in_flight.pop(step).result() for step in done]

    async def _perform(self, command: Command) -> Performed:
        effect_key.set(command.intent.key)
        value = encode(await command.effect.fn(*command.arguments))
        return Performed(_now_ms(), command.step, command.intent, 1, Raw(value))


class Engine:
    """Starts runs, executes them and hands out their results."""

    def __init__(self, path: Path, workflows: Iterable[Function]) -> None:
        self._owner, nonce = _nonce(), _nonce()
        self._under_way: dict[str, asyncio.Task[bytes]] = {}
        self._writer = Writer(path)
        named = {workflow.name: workflow for workflow in workflows}
        for fence, name, journal in self._writer.take_runs(self._owner, nonce):
            self._execute(fence, named[name], journal)
        self._writer.start()

    async def start(self, workflow: Function, *arguments: Any, key: str) -> Wait:
        """Start a run, or join the one that has the key. What is returned waits for its result."""
        data, at_ms = encode(arguments), _now_ms()
        digest, first = _digest(data), Started(at_ms, Raw(data))
        fence = Fence(f"{at_ms:012x}{random.getrandbits(80):020x}", 1, _nonce())
        admission = Admission(fence, self._owner, workflow.name, key, digest, first)
        holder: Holder = await self._writer.commit(admission)
        if holder.digest != digest:
            raise Refused(f"the key {key!r} belongs to run {holder.run_id} with another input")
        if holder.run_id == fence.run_id:
            self._execute(fence, workflow, [first])
        # Commits are handed back in order, so what had not ended when it was joined is still under way here.
        task = self._under_way[holder.run_id] if holder.output is None else None

        async def result() -> Any:
            return workflow.decode_result(holder.output if task is None else await asyncio.shield(task))

        return result

    async def close(self) -> None:
        """What is under way is left to the process that opens the file next."""
        left = [*self._under_way.values()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._writer.close()

    def _execute(self, fence: Fence, workflow: Function, journal: list[Entry]) -> None:
        run = LoadedRun(fence, workflow)
        task = self._under_way[fence.run_id] = asyncio.create_task(self._drive(run, journal))
        task.add_done_callback(lambda _: self._under_way.pop(fence.run_id))

    async def _drive(self, run: LoadedRun, journal: list[Entry]) -> bytes:
        """Replay; then perform, give the code what came back, and commit that, until the code has ended."""
        for entry in journal:
            run.apply(entry)
        output, main = None, run.main
        assert main is not None
        while output is None:
            position = run.length
            entries: list[Entry] = [] if main.done() else [*await run.performed()]
            for entry in entries:
                run.apply(entry)
            if main.done():
                output = encode(main.result())
                entries.append(Completed(_now_ms()))
                run.length += 1
            if not await self._writer.commit(Record(run.fence, position, entries, output)):
                raise Refused(f"run {run.fence.run_id} has another owner")
        return output


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _nonce() -> str:
    return f"{random.getrandbits(128):032x}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
