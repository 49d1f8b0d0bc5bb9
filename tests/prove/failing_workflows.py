"""Workflows whose clean run fails: by a mistake, and because it is to."""

from __future__ import annotations

from typing import Any

from holdfast import Pack, Permanent
from holdfast.testing import FakeWorld, prove

shop = Pack("failing")


class Rejected(Permanent):
    """The order is not taken."""


@shop.effect(key="charge:{order}")
async def charge(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def mistyped(order: str) -> str:
    await charge(order)
    nothing: Any = None
    return nothing.name  # the line


@shop.workflow(key="{order}")
async def rejected(order: str) -> str:
    await charge(order)
    raise Rejected("we have none")


@prove(rejected, runs=[("o-1",)], fails=Rejected)
def none_left(world: FakeWorld) -> None:
    del world


@shop.workflow(key="{order}")
async def refused(order: str) -> str:
    await charge(order)
    raise Rejected("we have none")


@prove(refused, runs=[("o-1",)], fails=KeyError)
def none_known(world: FakeWorld) -> None:
    del world


@shop.workflow(key="{order}")
async def taken(order: str) -> str:
    return await charge(order)


@prove(taken, runs=[("o-1",)], fails=Rejected)
def some_left(world: FakeWorld) -> None:
    del world
