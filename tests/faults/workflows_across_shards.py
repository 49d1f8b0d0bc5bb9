"""A workflow in which everything crosses shards that ever does: tokens are claimed and freed, a child's end is told."""

from __future__ import annotations

from holdfast import Pack, hook, sleep
from tests.faults.workflows_checkout import note

cross = Pack("cross")
RUN = "tests.faults.workflows_across_shards:cross"


@cross.effect
async def stamp(name: str) -> str:
    note("stamp", name)
    return name


@cross.workflow(key="leg:{name}")
async def leg(name: str) -> str:
    """The child: it takes the token that its parent has let go. That may be late, if its parent's worker died then."""
    while await hook("borrowed", token=f"first-{name}").conflict() is not None:
        await sleep("100ms")
    return await stamp(name)


@cross.workflow(key="bridge:{name}")
async def bridge(name: str) -> list[str]:
    async with hook("first", token=f"first-{name}") as first:
        got = await first
    stamped = await leg(name)
    reopened = hook("reopened", token=f"first-{name}")
    taken = await reopened.conflict()
    return [got, stamped, await hook("second", token=f"second-{name}"), "free" if taken is None else "taken"]
