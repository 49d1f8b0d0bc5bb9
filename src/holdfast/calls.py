"""A workflow or an effect with its arguments: what calling one returns, and what is awaited, spawned or started.

At run time a call is a `Call`. To a type checker it is a coroutine, and exactly that: `asyncio.create_task` takes only
coroutines, and checkers report only those that are dropped without an `await`. What the first parameter of
`Coroutine` says is whose call it is, so that the call of an effect is not taken where a run is to be started.

A call that the code of a workflow drops without having awaited it was most likely meant to be awaited: its last
reference tells the run. That is asked here rather than counted by the run, because it costs a call that is awaited
next to nothing.
"""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.errors import UsageError
from holdfast.workflow import running_scope

if TYPE_CHECKING:
    from holdfast.pack import Effect, Workflow

R = TypeVar("R")


class OfWorkflow:
    """Typing only: marks the call of a workflow, which can be started, spawned and awaited."""


class OfEffect:
    """Typing only: marks the call of an effect, which can be awaited in a workflow."""


if TYPE_CHECKING:
    _AsCoroutine = Coroutine[Any, Any, R]
else:
    _AsCoroutine = Generic  # it has the methods of a coroutine; an abstract base would make `isinstance` slow


class Call(_AsCoroutine[R]):
    """A workflow or an effect with its arguments, not yet executed."""

    __slots__ = ("_driver", "_place", "arguments", "fits", "is_taken", "target")

    def __init__(
        self, target: Effect[..., R] | Workflow[..., R], arguments: dict[str, Any], *, fits: bool = False
    ) -> None:
        self.target = target
        self.arguments = arguments
        self.fits = fits  # the arguments were decoded by the annotations of the target, so they need no check
        self.is_taken = False  # whether it was awaited, or handed to what sees to that

    def __hash__(self) -> int:
        # By its place in the run, not by its address: a set of calls is walked alike in every process.
        try:
            return self._place
        except AttributeError:
            scope = running_scope()
            self._place: int = id(self) >> 4 if scope is None else scope.place()
            return self._place

    def __await__(self) -> Generator[Any, Any, R]:
        self.is_taken = True
        scope = getattr(_get_running_loop(), "holdfast", None)  # `running_scope`, without another call for each effect
        if scope is None:
            raise _awaited_outside(self)
        return scope.perform(self).__await__()

    def __del__(self) -> None:
        if not self.is_taken:
            _drop(self)

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.target.name}({listed})"

    # -- as a coroutine, for those who drive one by hand

    def send(self, value: Any, /) -> Any:
        return self._driven().send(value)

    def throw(self, *error: Any) -> Any:
        return self._driven().throw(*error)

    def close(self) -> None:
        """It is not going to be awaited."""
        self.is_taken = True
        driver = getattr(self, "_driver", None)
        if driver is not None:
            driver.close()

    def _driven(self) -> Coroutine[Any, Any, R]:
        if not hasattr(self, "_driver"):
            self.is_taken = True
            self._driver = _await(self)
        return self._driver


class ItemCall(Generic[R]):
    """An item for a batch of a workflow: `hf.start(embed.item(chunk))`."""

    __slots__ = ("item", "target")

    def __init__(self, target: Workflow[..., Any], item: Any) -> None:
        self.target = target
        self.item = item

    def __await__(self) -> Generator[Any, Any, R]:
        raise UsageError(
            f"an item of workflow {self.target.name!r} was awaited", hint="Pass it to hf.start(item) instead."
        )

    def __repr__(self) -> str:
        return f"{self.target.name}.item({self.item!r})"


if TYPE_CHECKING:
    WorkflowCall = Coroutine[OfWorkflow, Any, R]
    EffectCall = Coroutine[OfEffect, Any, R]
else:
    WorkflowCall = EffectCall = Call


async def _await(call: Call[R]) -> R:
    return await call


def _awaited_outside(call: Call[Any]) -> UsageError:
    from holdfast.pack import Workflow  # noqa: PLC0415 - it imports this module

    kind, now = ("workflow", "hf.start(call)") if isinstance(call.target, Workflow) else ("effect", "a workflow")
    return UsageError(
        f"{kind} {call.target.name!r} was awaited outside a workflow", hint=f"Pass the call to {now} instead."
    )


def _drop(call: Call[Any]) -> None:
    """The last reference to a call is gone, and it was never awaited."""
    try:
        scope = running_scope()
    except Exception:  # noqa: BLE001 - the interpreter is shutting down, and its modules are gone
        return
    if scope is not None:
        scope.dropped(call)
