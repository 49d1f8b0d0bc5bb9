"""Runs of which many have failed, and fail again however often they are retried."""

from __future__ import annotations

from holdfast import Pack, Permanent
from tests.faults.workflows_checkout import note

mill = Pack("mill")
RUN = "tests.faults.workflows_in_bulk:mill"


@mill.effect
async def grind(name: str) -> str:
    note("grind", name)
    raise Permanent("the stone is broken")


@mill.workflow(key="sack:{name}")
async def sack(name: str) -> str:
    return await grind(name)
