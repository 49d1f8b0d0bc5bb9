"""Which effect of a run runs at this moment: seen at once in its own process, and from everywhere else soon after."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Pack, Retry, Run, heartbeat
from holdfast.client import Wait
from holdfast.events import EffectBegan
from holdfast.kernel import running_effects
from tests.integration.conftest import Home, eventually, heard

LEASE = "3s"


class Works:
    """Effects that are held until the test lets them go."""

    def __init__(self) -> None:
        self.pack = Pack("p")
        self.gates = {name: asyncio.Event() for name in ("first", "second")}
        self.failures = 0

        @self.pack.effect(timeout="10m", retry=Retry(attempts=3, base=0.001))
        async def hold(name: str) -> str:
            if self.failures:
                self.failures -= 1
                raise OSError("not yet")
            heartbeat({"page": 3})
            await self.gates[name].wait()
            return name

        @self.pack.effect
        async def quick() -> None:
            pass

        @self.pack.workflow(key="work")
        async def work() -> str:
            await quick()
            return await hold("first") + await hold("second")

        @self.pack.workflow(key="both")
        async def both() -> list[str]:
            return list(await asyncio.gather(hold("first"), hold("second")))

        self.work, self.both = work, both

    def let_go(self, *names: str) -> None:
        for name in names or self.gates:
            self.gates[name].set()


@pytest.fixture
def works() -> Works:
    return Works()


async def steps_at_work(run: Run[Any]) -> list[str]:
    return sorted(wait.step for wait in (await run.refresh()).waiting_on if wait.effect is not None)


async def until_at_work(run: Run[Any], *steps: str) -> tuple[Wait, ...]:
    async def shown() -> bool:
        return await steps_at_work(run) == list(steps)

    await eventually(shown)
    return (await run.refresh()).waiting_on


def check(hf: Holdfast, wait: Wait, *, attempt: int = 1) -> None:
    effect = wait.effect
    assert effect is not None
    assert (wait.kind, wait.step, effect.name, effect.attempt) == ("running", "hold#1", "p.hold", attempt)
    assert (effect.timeout, effect.heartbeat, effect.remote, effect.lost) == (
        timedelta(minutes=10),
        {"page": 3},
        False,
        False,
    )
    assert wait.until == effect.since + timedelta(minutes=10)
    assert wait.instance == hf.runtime.instance
    assert f"effect hold#1, attempt {attempt}, running since {effect.since.isoformat(timespec='milliseconds')}" in str(
        wait
    )
    assert f"on instance {hf.runtime.instance}; last heartbeat: " in str(wait)


async def test_in_its_own_process_it_is_seen_at_once(home: Home, works: Works) -> None:
    works.failures = 1
    async with home.holdfast(works.pack) as hf:
        run = (await hf.start(works.work())).run
        await heard(hf).until(EffectBegan, effect="p.hold", attempt=2)
        for shown in (await run.refresh(), *[each async for each in hf.runs()], await hf.find(works.work, "work")):
            [wait] = shown.waiting_on
            check(hf, wait, attempt=2)
            assert wait.effect is not None
            assert wait.effect.since >= run.created_at
            assert wait.effect.heartbeat_at is not None
        [wait] = (await run.explain()).waiting_on
        check(hf, wait, attempt=2)
        for _ in range(50):  # what does not change looks the same each time, so it is not told again
            assert (await run.refresh()).waiting_on == (wait,)
        works.let_go()
        assert await run.result() == "firstsecond"
        assert (await run.refresh()).waiting_on == ()


async def test_other_processes_see_it_within_a_third_of_the_lease(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack, lease=LEASE) as hf, home.holdfast(worker=False) as viewer:
        await hf.start(works.work())
        run = await viewer.find("p.work", "work")
        [wait] = await until_at_work(run, "hold#1")
        check(hf, wait)
        [listed] = [each async for each in viewer.runs()]
        check(hf, listed.waiting_on[0])
        [told] = (await viewer.explain(run)).waiting_on
        check(hf, told)
        works.let_go("first")
        await until_at_work(run, "hold#2")  # and not the first one any more
        works.let_go()
        assert await run.result() == "firstsecond"


async def test_of_several_that_run_side_by_side_those_are_shown_that_have_not_ended(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack, lease=LEASE) as hf, home.holdfast(worker=False) as viewer:
        run = (await hf.start(works.both())).run
        seen = await viewer.get(run.id)
        await until_at_work(seen, "0/hold#1", "1/hold#1")
        works.let_go("first")
        await until_at_work(seen, "1/hold#1")
        assert await steps_at_work(run) == ["1/hold#1"]
        works.let_go()
        await run.result()


async def test_an_effect_that_remote_workers_perform_says_so(home: Home) -> None:
    pack = Pack("studio")

    @pack.effect(remote=True)
    async def resize(image: str) -> str:
        raise AssertionError

    @pack.workflow(key="thumbnail")
    async def thumbnail() -> str:
        return await resize("a.png")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(thumbnail())).run
        await heard(hf).until(EffectBegan)
        [wait] = (await run.refresh()).waiting_on
        assert wait.effect is not None
        assert (wait.step, wait.effect.name, wait.effect.remote) == ("resize#1", "studio.resize", True)
        assert "with remote workers since" in str(wait)
        await run.cancel()


async def test_an_effect_that_ends_soon_is_told_to_nobody(home: Home, works: Works) -> None:
    """What runs costs a run nothing: no commit, and no document if it is over soon."""
    works.let_go()
    async with home.holdfast(works.pack, lease=LEASE) as hf:
        run = (await hf.start(works.work())).run
        await run.result()
        documents = await hf.runtime.store.documents(hf.namespace, running_effects.KIND)
        assert documents == []


async def test_a_process_has_one_name(home: Home, works: Works) -> None:
    """The same in the list of workers, in what a run waits for, and in logs and metrics."""
    async with home.holdfast(works.pack) as hf:
        run = (await hf.start(works.work())).run
        await heard(hf).until(EffectBegan, effect="p.hold")
        [worker] = await hf.workers()
        [wait] = (await run.refresh()).waiting_on
        assert worker.instance == wait.instance == hf.runtime.instance
        assert wait.name == worker.owner
        works.let_go()
        await run.result()
