from __future__ import annotations

import asyncio

import pytest

from examples import onboarding as example
from examples.onboarding import World, onboarding, people
from holdfast import Holdfast
from holdfast.events import RunLetGo
from holdfast.kernel.journal import Elapsed, Joined


@pytest.fixture
def world(monkeypatch) -> World:
    world = World()
    monkeypatch.setattr(example, "world", world)
    return world


async def test_a_user_who_confirms_after_a_reminder_is_welcomed(world, tmp_path):
    outcome = await example.story(f"sqlite:///{tmp_path}/people.db", day=1.0)  # a machine may stand still for a moment
    assert outcome.status == "welcomed"
    assert outcome.accounts == ["workspace of ada", "trial of ada"]
    reminders = [mail for mail in world.mails.values() if mail.startswith("reminder")]
    assert len(reminders) == outcome.reminders >= 2
    assert sorted(world.created) == ["create:trial:ada", "create:workspace:ada"]


async def test_a_user_who_never_confirms_is_given_up(world, tmp_path):
    world.heeds = None
    outcome = await example.story(f"sqlite:///{tmp_path}/people.db", day=0.04)
    assert outcome.status == "given up"
    assert outcome.accounts == []
    assert world.created == []


async def test_an_onboarding_that_waits_for_days_goes_on_in_another_process_with_the_same_winner(world, tmp_path):
    url = f"sqlite:///{tmp_path}/people.db"
    let_go = asyncio.Event()
    async with Holdfast(url, packs=[people]) as hf:
        hf.listen(lambda event: let_go.set() if isinstance(event, RunLetGo) else None)
        run, _ = await hf.start(onboarding("ada", 2.0))
        await asyncio.wait_for(let_go.wait(), 30)
        before = await run.journal()
    async with Holdfast(url, packs=[people]) as hf:
        again, created = await hf.start(onboarding("ada", 2.0))
        assert (created, again.id) == (False, run.id)
        world.heeds = 1
        assert (await again.result(timeout="1m")).status == "welcomed"
        after = await again.journal()
    assert after[: len(before)] == before
    assert any(isinstance(entry, Elapsed) for entry in after)
    assert any(isinstance(entry, Joined) for entry in after)
    assert len(set(world.mails)) == len(world.mails)
