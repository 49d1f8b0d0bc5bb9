"""The resources of one process: opened by the first effect that uses them, closed when the worker stops.

Rules
- A resource is opened once, however many effects ask at the same time. If that fails, the effects that waited for it
  fail as attempts, nothing is kept, and the next attempt opens it again.
- Opening belongs to no effect: an effect that is interrupted or timed out while it waits does not stop it.
- A resource is opened and closed in one task of its own, since some may not be left in another task than they were
  entered in. Functions that are not async open and close theirs in a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

from holdfast.engine.failures import worded
from holdfast.engine.runs.threads import DaemonThreads
from holdfast.events import Emit, ResourceNotClosed, ResourceOpened
from holdfast.kernel.retries import Begin
from holdfast.resources import Resource

_ENTER = Begin(None)


class OpenResources:
    """What is open in this process, by resource."""

    def __init__(self, threads: DaemonThreads, emit: Emit) -> None:
        self._threads = threads
        self._emit = emit
        self._context = contextvars.copy_context()  # not that of the effect which happens to be the first
        self._kept: dict[Resource[Any], _Kept] = {}
        self._provided: dict[Resource[Any], Any] = {}

    def provide(self, resource: Resource[Any], value: object) -> None:
        """A resource of the engine's own: what it is, is known here, and is neither opened nor closed."""
        self._provided[resource] = value

    async def open(self, wanted: Mapping[str, Resource[Any]]) -> dict[str, Any]:
        """The resources, opened where they were not, by the names under which they are wanted."""
        return {name: await self._opened(resource) for name, resource in wanted.items()}

    async def close(self, seconds: float) -> None:
        """Close all, and wait for it this long at most."""
        kept, self._kept = list(self._kept.values()), {}
        for each in kept:
            each.closing.set()
        tasks = [each.task for each in kept]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=seconds)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _opened(self, resource: Resource[Any]) -> Any:
        if resource in self._provided:
            return self._provided[resource]
        kept = self._kept.get(resource)
        if kept is None:
            kept = self._kept[resource] = _Kept()
            kept.task = asyncio.get_running_loop().create_task(self._keep(resource, kept), context=self._context.copy())
        return await asyncio.shield(kept.opened)

    async def _keep(self, resource: Resource[Any], kept: _Kept) -> None:
        try:
            async with self._manager(resource.fn) as value:
                kept.opened.set_result(value)
                self._emit(ResourceOpened(resource.name))
                await kept.closing.wait()
        except BaseException as error:
            if kept.opened.done():
                late = isinstance(error, asyncio.CancelledError)
                self._emit(ResourceNotClosed(resource.name, "it took too long" if late else worded(error)))
            else:
                if self._kept.get(resource) is kept:
                    del self._kept[resource]
                kept.fail(error)
            if not isinstance(error, Exception):
                raise

    def _manager(self, fn: Callable[[], Any]) -> AbstractAsyncContextManager[Any]:
        if inspect.isasyncgenfunction(fn):
            return asynccontextmanager(fn)()
        if inspect.iscoroutinefunction(fn):
            return _returned_by(fn)
        return self._in_threads(fn)

    @asynccontextmanager
    async def _in_threads(self, fn: Callable[[], Any]) -> AsyncGenerator[Any]:
        if not inspect.isgeneratorfunction(fn):
            yield await self._call(fn)
            return
        manager = contextmanager(fn)()
        yield await self._call(manager.__enter__)
        await self._call(lambda: manager.__exit__(None, None, None))

    async def _call(self, work: Callable[[], Any]) -> Any:
        return await self._threads.call(work, lambda: _ENTER).done


class _Kept:
    """One resource that is open, or being opened."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.closing = asyncio.Event()
        self.task: asyncio.Task[None]

    def fail(self, error: BaseException) -> None:
        """It could not be opened."""
        if isinstance(error, asyncio.CancelledError):
            self.opened.cancel()
            return
        self.opened.set_exception(error)
        self.opened.exception()  # the effects that waited may all be gone: asyncio would complain that it was not read


@asynccontextmanager
async def _returned_by(fn: Callable[[], Any]) -> AsyncGenerator[Any]:
    yield await fn()
