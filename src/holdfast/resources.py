"""For authors of effects: what is opened once in each process and shared by its effects, such as clients and pools.

    @shop.resource
    async def payments() -> AsyncIterator[Provider]:
        async with Provider() as provider:
            yield provider

    @shop.effect(key="charge:{order}")
    async def charge(order: str, cents: int, provider: Provider = payments.shared) -> str: ...

A parameter that uses a resource is no argument of the call: it is neither passed nor recorded, and no part of a key.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from holdfast.errors import UsageError

__all__ = ["Resource"]

T = TypeVar("T")


class Resource(Generic[T]):
    """How to open something that effects share: a function that returns it, or that yields it and closes it after."""

    def __init__(self, fn: Callable[[], Any], *, pack: str) -> None:
        if taken := list(inspect.signature(fn).parameters):
            raise UsageError(
                f"resource {fn.__name__!r} takes {', '.join(taken)}",
                hint="A resource is opened by the engine: write its function without parameters.",
            )
        self.fn = fn
        self.name = f"{pack}.{fn.__name__}"

    @property
    def shared(self) -> T:
        """The default of a parameter that the engine fills in with what is open, whenever an effect is performed."""
        return cast("T", self)

    def __repr__(self) -> str:
        return f"<resource {self.name!r}>"
