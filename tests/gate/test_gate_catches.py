"""The gate on workers that are broken on purpose: it has to find what is wrong, and nothing else."""

from __future__ import annotations

import pytest

from tests.gate.installations import gated

pytestmark = pytest.mark.faults


async def test_the_gate_fails_if_the_fence_is_broken(tmp_path) -> None:
    report = await gated(tmp_path, ["zombies"], pack="tests.gate.fenceless")
    [zombies] = report.scenarios
    assert zombies.verdict == "failed", zombies
    assert {"recorded_twice", "rewritten"} <= {violation.kind for violation in zombies.violations}
    assert not report.proved


async def test_the_fence_alone_holds_zombies_off_that_do_not_look_at_their_clock(tmp_path) -> None:
    report = await gated(tmp_path, ["zombies"], pack="tests.gate.heedless")
    [zombies] = report.scenarios
    assert zombies.verdict == "passed", zombies
