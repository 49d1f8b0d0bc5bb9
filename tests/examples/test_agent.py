from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples import agent
from examples.agent import FakeModel, agents, research
from holdfast import Holdfast
from holdfast.kernel.journal import Attempted

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(monkeypatch, tmp_path) -> FakeModel:
    model = FakeModel(tmp_path / "bill.txt")
    monkeypatch.setattr(agent, "model", model)
    return model


def billed(directory: Path) -> list[str]:
    return [line.split()[0].rpartition("/")[2] for line in (directory / "bill.txt").read_text().splitlines()]


async def test_the_agent_answers_and_a_slow_tool_does_not_stop_it(model, tmp_path):
    report = await agent.story(tmp_path)
    assert report.answer.startswith("A holdfast is what anchors kelp")
    assert (report.tokens, report.turns) == (120 + 340 + 560, 3)
    assert billed(tmp_path) == ["think#1", "think#2", "think#3"]


async def test_a_rate_limited_call_is_repeated_under_the_same_key_and_paid_once(model, tmp_path):
    model.busy = 2
    async with Holdfast(f"sqlite:///{tmp_path}/agents.db", packs=[agents]) as hf:
        run, _ = await hf.start(research("q", budget=100))
        assert (await run.result(timeout="1m")).turns == 1
        assert len([entry for entry in await run.journal() if isinstance(entry, Attempted)]) == 2
    assert billed(tmp_path) == ["think#1"]


async def test_the_agent_stops_when_its_budget_is_spent(model, tmp_path):
    async with Holdfast(f"sqlite:///{tmp_path}/agents.db", packs=[agents]) as hf:
        run, _ = await hf.start(research("q", budget=400))
        report = await run.result(timeout="1m")
    assert (report.answer, report.tokens, report.turns) == ("stopped: the budget is spent", 460, 2)


@pytest.mark.faults
async def test_a_killed_agent_goes_on_elsewhere_without_paying_again(model, tmp_path):
    killed = subprocess.run([sys.executable, "-m", "examples.agent", str(tmp_path)], cwd=ROOT, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert billed(tmp_path) == ["think#1", "think#2"]
    report = await agent.story(tmp_path)
    assert report.turns == 3
    assert billed(tmp_path) == ["think#1", "think#2", "think#3"]
