"""Runs that go through a lane. In the ledger each enters before it leaves, and another one enters after that."""

from __future__ import annotations

from holdfast import Pack, sleep, spawn
from tests.faults.workflows_checkout import note
from tests.faults.workflows_held_by_flags import flag, raised

queue = Pack("queue")
RUN = "tests.faults.workflows_in_lanes:queue"
LANE = "till"


@queue.effect
async def enter(name: str) -> None:
    note("enter", name)
    if flag(f"hold-{name}").exists():
        await raised(f"go-{name}")


@queue.effect
async def leave(name: str) -> str:
    note("leave", name)
    return name


@queue.workflow(key="{name}", lane="till")
async def serve(name: str) -> str:
    """Sleeps in the middle, so that it is let go and taken up again: its place is its own all the while."""
    await enter(name)
    await sleep("5ms")
    return await leave(name)


@queue.workflow(key="group:{name}")
async def group(name: str) -> None:
    """Sends members into the lane, in their order."""
    for member in ("one", "two"):
        await spawn(serve(f"{name}-{member}"))
