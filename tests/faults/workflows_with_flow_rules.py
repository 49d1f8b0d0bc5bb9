"""Workflows that declare flow rules, each with effects that the ledger counts."""

from __future__ import annotations

from holdfast import Batch, Debounce, Pack, Rate
from tests.faults.workflows_checkout import note

mill = Pack("mill")
RUN = "tests.faults.workflows_with_flow_rules:mill"
COUNT, BURST, PER_SECOND = 100, 20, "1s"


@mill.effect
async def grind(name: str) -> str:
    note("grind", name)
    return f"flour of {name}"


@mill.workflow(key="sack:{name}", throttle=Rate(COUNT, per=PER_SECOND, burst=BURST))
async def sack(name: str) -> str:
    return await grind(name)


@mill.workflow(key="label:{name}", debounce=Debounce("30ms", at_most="200ms"))
async def label(name: str, version: int) -> int:
    await grind(f"{name}-{version}")
    return version


@mill.workflow(batch=Batch(6, wait="30s"))
async def loads(items: list[str]) -> list[str]:
    return [await grind(item) for item in items]
