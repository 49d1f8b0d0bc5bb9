"""Performs one attempt of an effect: in a task if it is async, in a thread if it is sync.

Whatever the attempt raises is an outcome and not a failure of the engine. The one exception is a cancellation
by the engine itself, which means that nobody wants the outcome any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol

from msgspec import Struct

from holdfast.effects import RUNNING_EFFECT, EffectScope
from holdfast.engine.threads import DaemonThreads
from holdfast.errors import TimedOut, UsageError
from holdfast.kernel.documents import Document
from holdfast.pack import Effect
from holdfast.ports.codec import Codec


class Droppable(EffectScope, Protocol):
    """An attempt that the engine may drop: then, and only then, a cancellation is the engine's."""

    dropped: bool  # pyright: ignore[reportIncompatibleMethodOverride] - the effect may only look
    abandoned: bool
    task: Document | None


class Gate(Protocol):
    """What says whether the world may be touched."""

    @property
    def trusted(self) -> bool: ...
    async def until_trusted(self) -> None: ...


class AttemptReturned(Struct, frozen=True):
    value: bytes


class AttemptRaised(Struct, frozen=True):
    error: BaseException


AttemptOutcome = AttemptReturned | AttemptRaised


class _InContext:
    """Awaits a coroutine in a context of its own: what an effect sets, no other effect of the run sees."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> None:
        self._coroutine = coroutine
        self._context = context

    def __await__(self) -> Generator[Any, Any, Any]:
        step, value = self._coroutine.send, None
        while True:
            try:
                awaited = self._context.run(step, value)
            except StopIteration as done:
                return done.value
            try:
                value = yield awaited
                step = self._coroutine.send
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is for the coroutine
                step, value = self._coroutine.throw, error


class Performer:
    """Carries effects out, at most `concurrency` of them at a time."""

    def __init__(self, *, concurrency: int, codec: Codec) -> None:
        self._codec = codec
        self._room = concurrency
        self._queue: deque[asyncio.Future[None]] = deque()
        self._threads = DaemonThreads(concurrency, name="holdfast-effect")

    async def attempt(
        self, effect: Effect[..., Any], arguments: dict[str, Any], scope: Droppable, *, limit_ms: int | None
    ) -> AttemptOutcome:
        """Perform one attempt, within the limit if there is one, and encode what it returned. It has had its `turn`."""
        context = contextvars.copy_context()
        context.run(RUNNING_EFFECT.set, scope)
        try:
            call = self._call(effect, arguments, scope)
            if limit_ms is not None:
                call = self._within(limit_ms, call, effect)
            data = self._codec.encode(await _InContext(call, context), what=effect.result_name)
            self._codec.decode(data, effect.signature.returns)  # what cannot be read back must not be recorded
            return AttemptReturned(data)
        except asyncio.CancelledError as error:
            if scope.dropped:
                raise
            # It cancelled itself, or let a cancellation of its own escape. That is its outcome, and not ours.
            task = asyncio.current_task()
            while task is not None and task.cancelling():
                task.uncancel()
            return AttemptRaised(error)
        except BaseException as error:  # noqa: BLE001 - what an effect raises is its outcome
            return AttemptRaised(error)
        finally:
            self._leave()

    async def reconcile(self, effect: Effect[..., Any], ask: Callable[[str], Any], key: str) -> AttemptOutcome:
        """Ask whether an effect of unknown outcome has happened, and with which result."""
        try:
            if inspect.iscoroutinefunction(ask):
                result = await ask(key)
            else:
                result = await self._in_thread(ask, key)
            return AttemptReturned(self._codec.encode(result, what=f"the result of reconciling {effect.name}"))
        except Exception as error:  # noqa: BLE001 - its outcome, as above
            return AttemptRaised(error)

    def close(self) -> None:
        """Stop taking work. Threads that are still busy are left to end by themselves."""
        self._threads.close()

    async def turn(self, gate: Gate) -> None:
        """Returns when there is room and the lease is good, both at once: the effect is called without another wait."""
        while True:
            if self._room <= 0:
                await self._until_room()
            elif not gate.trusted:
                self._next_turn()  # somebody else's lease is no better, but the turn must not be lost
                await gate.until_trusted()
            else:
                self._room -= 1
                return

    async def _until_room(self) -> None:
        while self._room <= 0:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next_turn()  # it had come, and is not used
                raise

    def _leave(self) -> None:
        self._room += 1
        self._next_turn()

    def _next_turn(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _within(self, limit_ms: int, call: Coroutine[Any, Any, Any], effect: Effect[..., Any]) -> Any:
        limit = asyncio.timeout(limit_ms / 1000)
        try:
            async with limit:
                return await call
        except TimeoutError as error:
            if limit.expired():
                raise TimedOut(f"effect {effect.name} took longer than {limit_ms} ms") from error
            raise

    async def _call(self, effect: Effect[..., Any], arguments: dict[str, Any], scope: Droppable) -> Any:
        if effect.is_async:
            return await effect.signature.apply(effect.fn, arguments)
        return await self._in_thread(effect.signature.apply, effect.fn, arguments, scope=scope)

    async def _in_thread(self, fn: Callable[..., Any], *args: Any, scope: Droppable | None = None) -> Any:
        job = self._threads.call(fn, *args)
        while not job.done.done():
            try:
                await asyncio.wait([job.done])
            except asyncio.CancelledError:
                # A thread cannot be interrupted. If the effect was only dropped, what it returns is recorded late.
                if scope is None or scope.abandoned or not scope.dropped or not job.begun:
                    job.done.cancel()
                    raise
        result = job.done.result()
        if asyncio.iscoroutine(result):
            result.close()
            raise UsageError("a sync function returned a coroutine", hint="Write it as `async def`.")
        return result
