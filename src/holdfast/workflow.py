"""For authors of workflows: what the body of a workflow may call.

A workflow is an ordinary async function. Plain asyncio is durable in it: `asyncio.sleep`, `timeout`, `gather`,
`TaskGroup`, `wait`, queues and locks replay alike. The functions below are what asyncio does not have, or has
with another clock: everything they return follows from the journal, so it is the same on every replay.

They reach the engine through the running event loop, which in a workflow is the engine's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import TracebackType, UnionType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, Protocol, Self, TypeVar, cast, overload
from uuid import UUID

from holdfast.errors import HookTaken, UsageError
from holdfast.kernel import keys
from holdfast.kernel.attributes import Scalar, checked
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import Duration, milliseconds, utc_of

if TYPE_CHECKING:
    from holdfast import calls
    from holdfast.pack import Call

__all__ = [
    "ChildRun",
    "Current",
    "Hook",
    "continue_as_new",
    "current",
    "hook",
    "mark",
    "now",
    "patched",
    "random",
    "set_attributes",
    "shield",
    "sleep",
    "spawn",
    "timeout",
    "uuid4",
]

R = TypeVar("R")
T = TypeVar("T")


class Current(NamedTuple):
    """Which run this is, and the version of the code that admitted it."""

    run_id: str
    key: str | None
    workflow: str
    version: str | None = None


class WorkflowScope(Protocol):
    """What the engine offers to the code of one run. Found as the `holdfast` attribute of its event loop."""

    @property
    def current(self) -> Current: ...
    def perform(self, call: calls.Call[Any]) -> Awaitable[Any]: ...
    def dropped(self, call: calls.Call[Any]) -> None:
        """The code has let go of a call that it has not awaited."""
        ...

    def spawn(
        self, call: Call[Any], key: str | None, *, detached: bool, lane: str | None, width: int | None
    ) -> Awaitable[ChildRun[Any]]: ...
    def join(self, child: ChildRun[Any]) -> Awaitable[Any]: ...
    def open_hook(self, name: str, token: str | None, as_type: Any) -> asyncio.Future[ChildRun[Any] | None] | None:
        """Claim the token, if there is one. The result is the other run that holds it."""
        ...

    async def receive(self, name: str, as_type: Any) -> Any:
        """The next payload for this hook; raises `StopAsyncIteration` if it has been closed meanwhile."""
        ...

    def close_hook(self, name: str, token: str | None) -> None: ...
    def mark(self, marker: str) -> None: ...
    def set_attributes(self, changes: Mapping[str, Scalar | None]) -> None: ...
    def shield(self, limit_ms: Millis) -> AbstractAsyncContextManager[None]: ...
    def continue_as_new(self, call: Call[Any]) -> NoReturn: ...
    def patched(self, name: str) -> bool: ...
    def now_ms(self) -> Instant: ...
    def place(self) -> int:
        """A number that is the same on every replay: the next of this run."""
        ...

    def chance(self) -> float: ...
    def bits(self, count: int) -> int: ...


class ChildRun(Generic[R]):
    """A run started by `spawn`, as its parent sees it: only what is the same on every replay."""

    def __init__(self, run_id: str, workflow: str, key: str | None, returns: Any) -> None:
        self.id = run_id
        self.workflow = workflow
        self.key = key
        self.returns = returns

    async def result(self) -> R:
        """Wait, durably, for the child to end: its value, or the exception that it raised."""
        return cast("R", await scope("ChildRun.result").join(self))

    def __repr__(self) -> str:
        return f"ChildRun({self.id!r}, workflow={self.workflow!r}, key={self.key!r})"


class Hook(Generic[T]):
    """A named inbox of this run. What arrives before the code waits for it is kept.

    `await hook` returns the next payload, `async for` all of them until it is closed.
    """

    def __init__(self, name: str, token: str | None, as_type: Any) -> None:
        self.name = keys.checked(name, what="hook name")
        self.token = None if token is None else keys.checked(token, what="token")
        self._type = as_type
        self._scope = scope("hook()")
        self._claim = self._scope.open_hook(name, token, as_type)
        self._closed = False

    async def conflict(self) -> ChildRun[Any] | None:
        """The other live run that holds the token; None if the token is this hook's."""
        return None if self._claim is None else await asyncio.shield(self._claim)

    def __await__(self) -> Generator[Any, Any, T]:
        return self._next().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._closed:
            raise StopAsyncIteration
        return await self._receive()

    async def _next(self) -> T:
        if self._closed:
            raise UsageError(f"hook {self.name!r} has been closed", hint="Open it again: hook(...).")
        try:
            return await self._receive()
        except StopAsyncIteration:
            raise UsageError(f"hook {self.name!r} was closed while it was awaited") from None

    async def _receive(self) -> T:
        holder = await self.conflict()
        if holder is not None:
            raise HookTaken(self.token or "", holder.id)
        return cast("T", await self._scope.receive(self.name, self._type))

    def close(self) -> Awaitable[None]:
        """Take nothing more; the token is free again. It may be awaited, and need not be."""
        if not self._closed:
            self._scope.close_hook(self.name, self.token)  # first: it refuses what is executed outside of the run
            self._closed = True
            if self._claim is not None:
                self._claim.cancel()
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def scope(asked: str) -> WorkflowScope:
    """The scope of the run whose code is executing, or a `UsageError` that names what was `asked`."""
    found = running_scope()
    if found is None:
        raise UsageError(
            f"{asked} was used outside a workflow", hint="Use it in an async function decorated with @pack.workflow."
        )
    return found


def running_scope() -> WorkflowScope | None:
    """The scope of the run whose code is executing, if any."""
    return getattr(asyncio._get_running_loop(), "holdfast", None)  # noqa: SLF001 - documented for loop authors


async def sleep(duration: Duration) -> None:
    """Wait for `duration`. The process may die meanwhile, the machine may restart."""
    scope("sleep()")
    await asyncio.sleep(milliseconds(duration) / 1000)


def timeout(duration: Duration) -> asyncio.Timeout:
    """For `async with`: raises TimeoutError in the block when the time is over. It survives restarts."""
    scope("timeout()")
    return asyncio.timeout(milliseconds(duration) / 1000)


async def spawn(
    call: Call[R],
    *,
    key: str | None = None,
    detached: bool = False,
    lane: str | None = None,
    width: int | None = None,
) -> ChildRun[R]:
    """Start a child run without waiting for its end. If its key is taken, it is the run that holds it.

    A child that this run has created is cancelled with it, unless it is `detached`. It goes into the `lane` that is
    given, or else into the one that its workflow declares. A child that would wait there for this very run is refused
    with `WaitsForItself`.
    """
    spawned = scope("spawn()").spawn(call, key, detached=detached, lane=lane, width=width)
    return cast("ChildRun[R]", await spawned)


@overload
def hook(name: str, token: str | None = None) -> Hook[Any]: ...
@overload
def hook(name: str, token: str | None = None, *, type: type[T]) -> Hook[T]: ...
@overload
def hook(name: str, token: str | None = None, *, type: UnionType) -> Hook[Any]: ...
def hook(name: str, token: str | None = None, *, type: Any = Any) -> Hook[Any]:
    """A named inbox of this run, for `run.signal(name, ...)`; with a `token` also for `hf.resume_hook(token, ...)`.

    With a `type`, payloads are checked when they are sent, and arrive as values of that type. Before you give a token
    away in an effect, `await hook.conflict()`: then it is yours, and known.
    """
    return Hook(name, token, type)


async def mark(marker: str) -> None:
    """Say that this run has reached a marker. Raises `NotAllowedNow` if it may not follow the present one."""
    scope("mark()").mark(marker)


async def set_attributes(attributes: Mapping[str, Scalar | None] | None = None, /, **more: Scalar | None) -> None:
    """Set attributes by which this run can be found; None removes one."""
    scope("set_attributes()").set_attributes(checked({**checked(attributes or {}), **more}))


def shield(deadline: Duration) -> AbstractAsyncContextManager[None]:
    """For `async with`: what is awaited in the block is not cancelled with the run, for as long as `deadline`.

    The time counts from the cancellation, or from the beginning of the block if that is later.
    """
    return scope("shield()").shield(milliseconds(deadline))


def continue_as_new(call: Call[Any]) -> NoReturn:
    """Start this run over with other arguments: same run, key, inbox and attributes, and an empty journal."""
    scope("continue_as_new()").continue_as_new(call)


def patched(name: str) -> bool:
    """Whether this run takes the new way: False if it had passed this place before the change was deployed."""
    return scope("patched()").patched(name)


def now() -> datetime:
    """The time of the last thing that happened in this run, in UTC; the same on every replay."""
    return utc_of(scope("now()").now_ms())


def uuid4() -> UUID:
    """A random UUID, the same on every replay."""
    return UUID(int=scope("uuid4()").bits(128), version=4)


def random() -> float:
    """A random number in [0, 1), the same on every replay."""
    return scope("random()").chance()


def current() -> Current:
    """The id, key and workflow name of this run, and the version under which it was admitted."""
    return scope("current()").current
