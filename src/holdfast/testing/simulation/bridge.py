"""The bridge from a loop in real time to a host in virtual time: verbs called there are executed here.

The verbs of a caller ask a `Backend`. This one sends each question into the loop of a host and waits, in the caller's
own loop, for what comes of it. Meanwhile a pump, which is a plain callback of that loop and never part of a task, lets
the world go on. It stops as soon as something is there for the caller, so between two awaits no virtual time passes;
and it waits some turns of the caller's loop before it begins, so what is asked together arrives together.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant
from holdfast.testing.simulation.hosts import Host

T = TypeVar("T")
TURNS = 8  # of the caller's loop before the world goes on: a result passes through some tasks until it is used
STEPS = 2_000  # of the world at a time, then the caller's loop has a turn


class AwaitedReply(Struct, eq=False):
    """What a caller waits for."""

    reply: asyncio.Future[Any]
    task: asyncio.Task[Any] | None = None  # in the host; None if it is a moment or a condition
    about: str = ""  # the run that it is about, if it is about one
    until_ms: Instant | None = None
    condition: Callable[[], object] | None = None
    since_ms: Instant | None = None  # when the world was first asked to go on for it


class Pumped(Protocol):
    """A world that a pump lets go on."""

    def go_on(self, is_over: Callable[[], bool], pump: Pump) -> None:
        """Go on until it is over. Raises what makes that impossible."""
        ...

    def failure(self, error: BaseException, pending: AwaitedReply) -> BaseException:
        """What the caller is told who waits for this."""
        ...


class Pump:
    """Lets a world go on as long as a caller waits for something, in turns with the caller's loop."""

    def __init__(self, world: Pumped) -> None:
        self.pending: list[AwaitedReply] = []
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False
        self._is_news = False
        self._turns = 0

    async def ask(self, host: Host, work: Coroutine[Any, Any, T], about: str = "") -> T:
        """What comes of `work`, executed by this host."""
        if not host.is_alive:
            work.close()
            raise UsageError("this simulation is over", hint="Ask within its `async with`.")
        task = host.spawn(work)
        pending = AwaitedReply(self._loop.create_future(), task, about)
        task.add_done_callback(lambda _: self._settle(pending))
        try:
            return await self._waited_for(pending)
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def until_ms(self, at_ms: Instant) -> None:
        """Returns at this moment of the calendar, when all that is due then is done."""
        await self._waited_for(AwaitedReply(self._loop.create_future(), until_ms=at_ms))

    async def until(self, condition: Callable[[], object]) -> None:
        """Returns as soon as the condition is true."""
        await self._waited_for(AwaitedReply(self._loop.create_future(), condition=condition))

    async def _waited_for(self, pending: AwaitedReply) -> Any:
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError("a simulation belongs to the loop that entered it", hint="Use it in one loop.")
        self.pending.append(pending)
        self._turns = 0
        self._schedule()
        try:
            return await pending.reply
        finally:
            if pending in self.pending:
                self.pending.remove(pending)

    def settle_conditions(self) -> None:
        """Tell those whose condition is true by now."""
        for pending in [each for each in self.pending if each.condition is not None and each.condition()]:
            self._reply(pending, None)

    def settle_moments(self, now_ms: Instant) -> None:
        """Tell those who wait for a moment that has come."""
        for pending in [each for each in self.pending if each.until_ms is not None and each.until_ms <= now_ms]:
            self._reply(pending, None)

    def close(self) -> None:
        """Whatever is still waited for does not come any more."""
        for pending in self.pending:
            pending.reply.cancel()
        self.pending.clear()

    def _settle(self, pending: AwaitedReply) -> None:
        task = pending.task
        assert task is not None
        if task.cancelled():
            self._reply(pending, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._reply(pending, error)
        else:
            self._reply(pending, None, task.result())

    def _reply(self, pending: AwaitedReply, error: BaseException | None, value: object = None) -> None:
        if pending in self.pending:
            self.pending.remove(pending)
        if pending.reply.done():
            return
        self._is_news = True
        if isinstance(error, asyncio.CancelledError):
            pending.reply.cancel()
        elif error is not None:
            pending.reply.set_exception(error)
        else:
            pending.reply.set_result(value)

    def _schedule(self) -> None:
        if not self._is_scheduled and self.pending:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        self._turns += 1
        if self.pending and self._turns > TURNS:
            self._is_news = False
            steps = 0

            def is_over() -> bool:
                nonlocal steps
                steps += 1
                self.settle_conditions()
                return self._is_news or steps > STEPS

            try:
                self._world.go_on(is_over, self)
            except BaseException as error:  # it is for all who wait: a callback that raises is only logged
                for pending in tuple(self.pending):
                    self._reply(pending, self._world.failure(error, pending))
                if not isinstance(error, Exception):
                    raise
            if self._is_news:
                self._turns = 0
        self._schedule()


class Bridge:
    """An object of a host, seen from the caller's loop: what is async is executed there, the rest is passed on."""

    PARTS = ("signals", "operations", "queries", "bulk")

    def __init__(self, pump: Pump, host: Host, target: object) -> None:
        self._pump = pump
        self._host = host
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name in self.PARTS:
            return Bridge(self._pump, self._host, found)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            made = found(*args, **kwargs)
            if inspect.iscoroutine(made):
                return self._pump.ask(self._host, made, _about(args))
            return self._items(made) if isinstance(made, AsyncIterator) else made

        return call

    async def _items(self, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        end = object()
        while (item := await self._pump.ask(self._host, _next(items, end))) is not end:
            yield item


async def _next(items: AsyncIterator[Any], end: object) -> Any:
    return await anext(items, end)


def _about(args: tuple[Any, ...]) -> str:
    """The run that a verb is about: it comes first, as a row or by its id."""
    first = args[0] if args else ""
    return first.id if isinstance(first, Run) else first if isinstance(first, str) else ""
