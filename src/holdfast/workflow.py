"""For authors of workflows: what the body of a workflow may call.

A workflow is an ordinary async function. Plain asyncio is durable in it: `asyncio.sleep`, `timeout`, `gather`,
`TaskGroup`, `wait`, queues and locks replay alike. The functions below are what asyncio does not have, or has
with another clock: everything they answer follows from the journal, so it is the same on every replay.

They reach the engine through the running event loop, which in a workflow is the engine's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID

from holdfast.errors import UsageError
from holdfast.kernel.units import Duration, milliseconds

if TYPE_CHECKING:
    from holdfast.pack import Call

R = TypeVar("R")


class Current(NamedTuple):
    """Which run this is."""

    run_id: str
    key: str | None
    workflow: str


class WorkflowScope(Protocol):
    """What the engine offers to the code of one run. Found as the `holdfast` attribute of its event loop."""

    @property
    def current(self) -> Current: ...
    def perform(self, call: Call[Any]) -> Awaitable[Any]: ...
    def spawn(self, call: Call[Any], key: str | None) -> Awaitable[ChildRun[Any]]: ...
    def join(self, child: ChildRun[Any]) -> Awaitable[Any]: ...
    def now_ms(self) -> int: ...
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


async def spawn(call: Call[R], *, key: str | None = None) -> ChildRun[R]:
    """Start a child run without waiting for its end. If its key is taken, it is the run that holds it."""
    return cast("ChildRun[R]", await scope("spawn()").spawn(call, key))


def now() -> datetime:
    """The time of the last thing that happened in this run, in UTC; the same on every replay."""
    return datetime.fromtimestamp(scope("now()").now_ms() / 1000, UTC)


def uuid4() -> UUID:
    """A random UUID, the same on every replay."""
    return UUID(int=scope("uuid4()").bits(128), version=4)


def random() -> float:
    """A random number in [0, 1), the same on every replay."""
    return scope("random()").chance()


def current() -> Current:
    """The id, key and workflow name of this run."""
    return scope("current()").current
