"""A workflow that walks a set of strings, and one that is right: their clean runs have equal ids."""

from __future__ import annotations

from holdfast import Pack
from holdfast.testing import FakeWorld, prove

pack = Pack("prover_two_cases")


@pack.effect(key="look:{word}")
async def look(word: str) -> str:
    return word


@pack.workflow(key="a:{order}")
async def a_walks_a_set(order: str) -> int:
    words = {"alpha", "beta", "gamma", "delta"}
    for word in words:
        await look(word)
    return 1


@pack.workflow(key="b:{order}")
async def b_is_right(order: str) -> str:
    return await look(order)


@pack.workflow(key="c:{order}")
async def a_walks_a_set_of(order: str) -> int:
    words = {"alpha", "beta", "gamma", order}
    for word in words:
        await look(word)
    return 1


@prove(a_walks_a_set_of, runs=[("o-1",), ("o-2",)])
def two_runs(world: FakeWorld) -> None:
    world.stub(look, returns="seen")
