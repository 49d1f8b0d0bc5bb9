"""The same with real processes: kill -9 at each boundary, on SQLite."""

from __future__ import annotations

import pytest

from holdfast.prove.processes import prove_with_processes

pytestmark = pytest.mark.faults


async def test_what_is_right_is_proved_with_real_processes() -> None:
    worlds, found = await prove_with_processes(("examples.agent",), "agents.research", seed=1)
    assert worlds > 4
    assert found == []


async def test_a_key_that_holds_the_time_is_found_with_real_processes() -> None:
    _, found = await prove_with_processes(("tests.prove.mistakes.key_with_time",), "key_with_time.checkout", seed=1)
    assert {each.rule for each in found} & {"another key", "another end"}, found
    assert any("kill -9" in words for each in found for words in each.told)
