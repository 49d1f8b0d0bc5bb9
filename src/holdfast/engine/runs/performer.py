"""Performs one attempt of an effect: in a task if it is async, in a thread if it is sync.

Rules
- Whatever the attempt raises is an outcome and not a failure of the engine. The one exception is a cancellation by the
  engine itself, which means that the outcome is not wanted any more.
- Whether it may begin is asked where it is entered, in its thread or right before its first step. What is not entered
  is no attempt.
- Resources that an effect uses are opened before it is entered. That they cannot be opened is a failed attempt.
- A thread cannot be interrupted. An attempt that timed out leaves its thread behind, and its room to others. That of a
  `once` effect does not end at that: while the thread lives the outcome is not known, so it is waited for; and if the
  run was taken away meanwhile, nothing is asked or called for this step here before the thread has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import CoroutineType
from typing import Any

from msgspec import Struct

from holdfast.effects import RUNNING_EFFECT
from holdfast.engine.attempts import (
    AttemptOutcome,
    AttemptRaised,
    AttemptRefused,
    AttemptReturned,
    EffectAttempt,
    LeaseTrust,
    StepWork,
)
from holdfast.engine.pace import Pace
from holdfast.engine.runs.open_resources import OpenResources
from holdfast.engine.runs.threads import DaemonThreads, Job, NotEntered
from holdfast.errors import TimedOut, UsageError
from holdfast.events import Emit, ThreadGivenUp, ThreadsUsedUp
from holdfast.kernel.retries import Begin
from holdfast.kernel.times import Millis
from holdfast.pack import Effect
from holdfast.ports.codec import Codec
from holdfast.resources import Resource

_set_scope = RUNNING_EFFECT.set


class Turn(Struct):
    """Room for one effect, until it ends."""

    _leave: Callable[[], None] | None

    def end(self) -> None:
        """Make room for the next one. It may be said more than once."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()


@types.coroutine
def _in_context(context: contextvars.Context, made: Any) -> Generator[Any, Any, Any]:
    """Awaits what an effect has made in a context of its own: what it sets, no other effect of the run sees."""
    coroutine: Any = made if type(made) is CoroutineType else _awaiting(made)  # pyright: ignore[reportUnknownVariableType]
    step: Callable[..., Any] = coroutine.send
    value = None
    while True:
        try:
            awaited = context.run(step, value)
        except StopIteration as done:
            return done.value
        try:
            value = yield awaited
            step = coroutine.send
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - it is for the coroutine
            step, value = coroutine.throw, error


class Performer:
    """Carries effects out, at most `concurrency` of them at a time."""

    def __init__(
        self,
        *,
        concurrency: int,
        codec: Codec,
        emit: Emit,
        pace: Pace,
        threads: type[DaemonThreads] = DaemonThreads,
    ) -> None:
        self._codec = codec
        self._emit = emit
        self.room = concurrency  # for so many more
        self._queue: deque[asyncio.Future[None]] = deque()
        self._threads = threads(concurrency, name="holdfast-effect", pace=pace)
        self._resources = OpenResources(self._threads, emit)
        self._pace = pace
        self._living: dict[tuple[str, str], asyncio.Event] = {}  # `once` effects that have not ended, by run and step

    def provide(self, resource: Resource[Any], value: object) -> None:
        """Effects that use this resource get `value`: it is open already, and not closed here."""
        self._resources.provide(resource, value)

    @property
    def threads_given_up(self) -> int:
        """How many threads are still in the middle of a call that is not waited for any more."""
        return self._threads.given_up

    async def perform(
        self, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt
    ) -> AttemptOutcome:
        """Perform a plain effect that nothing limits: what most effects are. There is room, and it may be entered."""
        self.room -= 1
        context, codec = contextvars.copy_context(), self._codec
        try:
            context.run(_set_scope, scope)
            made = context.run(effect.signature.apply, effect.fn, arguments)
            data = codec.encode(await _in_context(context, made), what=effect.result_name)
            return AttemptReturned(data, codec.decode(data, effect.signature.returns))
        except BaseException as error:  # noqa: BLE001 - see there
            return _raised(error, scope)
        finally:
            self.room += 1
            if self._queue:
                self._next_turn()

    def attempt(
        self, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt, turn: Turn, *, once: bool
    ) -> Coroutine[Any, Any, AttemptOutcome | AttemptRefused]:
        """Perform one attempt, and encode what it returned."""
        if effect.signature.resources:
            supplied = partial(self._supplied, effect, arguments, scope, turn, once=once)
            return self._outcome(supplied, effect, effect.result_name, scope, turn)
        work = partial(effect.signature.apply, effect.fn, arguments)
        if effect.is_async:
            call = partial(self._here, work, effect.described, scope, once=once)
        else:
            call = partial(self._there, work, effect.described, scope, turn, once=once)
        return self._outcome(call, effect, effect.result_name, scope, turn)

    def reconcile(
        self, effect: Effect[..., Any], ask: Callable[[str], Any], key: str, scope: StepWork, turn: Turn
    ) -> Coroutine[Any, Any, AttemptOutcome | AttemptRefused]:
        """Ask whether an effect of unknown outcome has happened, and with which result."""
        work, what = partial(ask, key), f"the reconcile function of {effect.name}"
        if is_async(ask):
            call = partial(_entered, work, what, scope)
        else:
            call = partial(
                self._in_thread, partial(contextvars.copy_context().run, work), what, scope, turn, once=False
            )
        return self._outcome(call, effect, f"the result of reconciling {effect.name}", scope, turn)

    @property
    def is_in_a_once_effect(self) -> bool:
        """Whether a `once` effect has not ended, although perhaps it is not waited for any more."""
        return bool(self._living)

    async def until_ended(self, run_id: str, step: str) -> None:
        """Returns when nothing in this process is in the middle of this `once` effect."""
        while (ended := self._living.get((run_id, step))) is not None:
            await ended.wait()

    async def close(self) -> None:
        """Close what effects shared, and take no more work. Threads that are still busy are left to themselves."""
        await self._resources.close(self._pace.clean_up_seconds)
        self._threads.close()

    def turn_now(self, *, in_thread: bool) -> Turn | None:
        """Room, and a thread if one is needed, if both are there. Whether the lease is good, is asked at the entry."""
        if self.room <= 0 or (in_thread and self._threads.are_used_up):
            return None
        self.room -= 1
        return Turn(self._leave)

    async def turn(self, gate: LeaseTrust, *, in_thread: bool) -> Turn:
        """Room, a thread if one is needed, and a good lease, all at once: the effect is called without another wait."""
        said = False
        while True:
            if self.room <= 0:
                await self._until_room()
            elif in_thread and self._threads.are_used_up:
                self._next_turn()
                if not said:
                    self._emit(ThreadsUsedUp(self._threads.given_up))
                said = True
                await self._threads.until_free()
            elif not gate.is_trusted():
                self._next_turn()  # another run's lease is no better, but the turn must not be lost
                await gate.until_trusted()
            else:
                self.room -= 1
                return Turn(self._leave)

    async def _until_room(self) -> None:
        while self.room <= 0:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next_turn()  # it had come, and is not used
                raise

    def _leave(self) -> None:
        self.room += 1
        if self._queue:
            self._next_turn()

    def _next_turn(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _outcome(
        self, call: Callable[[], Awaitable[Any]], effect: Effect[..., Any], what: str, scope: StepWork, turn: Turn
    ) -> AttemptOutcome | AttemptRefused:
        """What comes of a call into code that is not ours. It raises nothing but the engine's own cancellation."""
        try:
            data = self._codec.encode(await call(), what=what)
            # What cannot be read back must not be recorded.
            return AttemptReturned(data, self._codec.decode(data, effect.signature.returns))
        except NotEntered:
            return AttemptRefused()
        except BaseException as error:  # noqa: BLE001 - see there
            return _raised(error, scope)
        finally:
            turn.end()

    def _here(self, work: Callable[[], Any], what: str, scope: EffectAttempt, *, once: bool) -> Awaitable[Any]:
        """An async effect in the present task, about to be entered."""
        context = _context_of(scope)
        verdict = scope.may_enter()
        if type(verdict) is not Begin:
            raise NotEntered
        made = context.run(work) if verdict.limit_ms is None else _limited(work, what, scope, verdict.limit_ms)
        call = _in_context(context, made)
        return self._lived(call, scope) if once else call

    def _there(
        self, work: Callable[[], Any], what: str, scope: EffectAttempt, turn: Turn, *, once: bool
    ) -> Awaitable[Any]:
        """A sync effect, in a thread."""
        return self._in_thread(partial(_context_of(scope).run, work), what, scope, turn, once=once)

    async def _supplied(
        self, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt, turn: Turn, *, once: bool
    ) -> Any:
        """An effect with the resources that it uses. Opening them may take as long as the effect itself."""
        limit_ms = scope.policy.timeout_ms
        limit = asyncio.timeout(None if limit_ms is None else limit_ms / 1000)
        try:
            async with limit:
                opened = await self._resources.open(effect.signature.resources)
        except TimeoutError as error:
            if limit_ms is not None and limit.expired():
                raise _timed_out(f"opening the resources of {effect.described}", limit_ms) from error
            raise
        work = partial(effect.signature.apply, partial(effect.fn, **opened), arguments)
        if effect.is_async:
            return await self._here(work, effect.described, scope, once=once)
        return await self._there(work, effect.described, scope, turn, once=once)

    async def _lived(self, call: Awaitable[Any], scope: StepWork) -> Any:
        end = self._live((scope.run_id, scope.step))
        try:
            return await call
        finally:
            end()

    async def _in_thread(self, work: Callable[[], Any], what: str, scope: StepWork, turn: Turn, *, once: bool) -> Any:
        job = self._threads.call(work, scope.may_enter)
        if once:
            job.on_ended = self._live((scope.run_id, scope.step))
        while not job.done.done():
            try:
                news = [job.done] if job.given_up else [job.done, job.overdue]
                await asyncio.wait(news, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                # A thread cannot be interrupted. If the effect was only dropped, what it returns is recorded late.
                self._give_up(job, scope, turn)
                withdrawn = not job.given_up and not job.done.done()
                if scope.abandoned or not scope.dropped or withdrawn:
                    job.done.cancel()
                    raise
            if job.overdue.done() and not job.done.done() and not job.given_up:
                self._give_up(job, scope, turn)
                if not once:
                    job.done.cancel()
                    raise _timed_out(what, job.limit_ms)
        result = job.done.result()
        if asyncio.iscoroutine(result):
            result.close()
            raise UsageError("a sync function returned a coroutine", hint="Write it as `async def`.")
        return result

    def _give_up(self, job: Job, scope: StepWork, turn: Turn) -> None:
        """Leave the thread to itself, and its room to others, if it is in the middle of the call."""
        if self._threads.give_up(job):
            self._emit(ThreadGivenUp(scope.run_id, scope.step, scope.effect, self._threads.given_up))
            turn.end()

    def _live(self, place: tuple[str, str]) -> Callable[[], None]:
        """A `once` effect is about to be entered; what is returned is called when it has ended."""
        ended = self._living[place] = asyncio.Event()

        def end() -> None:
            if self._living.get(place) is ended:
                del self._living[place]
            ended.set()

        return end


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine, so that it needs no thread."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004 - its own kind is asked for


def _raised(error: BaseException, scope: StepWork) -> AttemptRaised:
    """The outcome of an attempt that raised. Not only Exceptions: a task would pass SystemExit on to the loop."""
    if issubclass(type(error), asyncio.CancelledError):  # an exception of the user may not even have a `__class__`
        if scope.dropped:
            raise error
        # It cancelled itself, or let a cancellation of its own escape. That is its outcome, and not ours.
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
    return AttemptRaised(error)


def _context_of(scope: EffectAttempt) -> contextvars.Context:
    """A context for one attempt, in which the effect finds its scope."""
    context = contextvars.copy_context()
    context.run(_set_scope, scope)
    return context


def _entered(make: Callable[[], Awaitable[Any]], what: str, scope: StepWork) -> Awaitable[Any]:
    """What `make` makes, if it may be entered now, and for as long as it may take."""
    verdict = scope.may_enter()
    if type(verdict) is not Begin:
        raise NotEntered
    return make() if verdict.limit_ms is None else _limited(make, what, scope, verdict.limit_ms)


async def _limited(make: Callable[[], Awaitable[Any]], what: str, scope: StepWork, limit_ms: Millis) -> Any:
    limit = asyncio.timeout(limit_ms / 1000)
    try:
        async with limit:
            if type(scope.may_enter()) is not Begin:  # once more: nothing but the call itself may lie in between
                raise NotEntered
            return await make()
    except TimeoutError as error:
        if limit.expired():
            raise _timed_out(what, limit_ms) from error
        raise


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _timed_out(what: str, limit_ms: Millis) -> TimedOut:
    return TimedOut(f"{what} took longer than {limit_ms} ms")
