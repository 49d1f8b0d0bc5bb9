"""A whole installation for a test of the gate: Redis, NATS, and two replicas of each role."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.gate import course, installation
from holdfast.gate.report import Report
from holdfast.gate.stage import Options
from holdfast.local.topology import Plan

ROOT = Path(__file__).parents[2]
LEASE_MS = 2_000  # most of the time is spent on waiting for it to end


async def gated(
    directory: Path, scenarios: Sequence[str], *, pack: str = "holdfast.gate.pack", runs: int = 30
) -> Report:
    """What the gate finds on workers with this pack."""
    plan = Plan(packs=(pack,), environment={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"})
    options = Options(runs=runs, lease_ms=LEASE_MS)
    async with installation.up(directory, plan, lease_ms=options.lease_ms) as (site, ledger):
        return await course.run(site, scenarios, ledger_file=ledger, options=options, tell=print)
