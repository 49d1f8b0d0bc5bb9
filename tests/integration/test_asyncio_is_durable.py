"""gather, TaskGroup, wait, as_completed, queues, locks, timeouts: any delays, any restart, one result (E12, K14)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from holdfast import Pack, Retry, effect_key, now, random as durable_random, sleep, timeout, uuid4
from holdfast.adapters.payloads import JsonCodec
from holdfast.engine.code.commands import CodeReturned
from holdfast.engine.code.machine import Machine
from holdfast.engine.code.replay import replay
from holdfast.events import EffectPerformed, RunEnded, RunLetGo
from holdfast.kernel.journal import Elapsed, Entry, Performed
from holdfast.kernel.replay import noted
from holdfast.kernel.runs import Run
from holdfast.workflow import Current
from tests.builders import FakeClock
from tests.integration.conftest import EventRecorder, Home, eventually, heard, worker_of


class Lab:
    """Effects that take a random time; workflows whose result depends on who came first."""

    def __init__(self, seed: int) -> None:
        self.pack = Pack("lab")
        self.ledger: Counter[str] = Counter()
        chance = random.Random(seed)

        @self.pack.effect(retry=Retry(attempts=1))
        async def step(name: str) -> str:
            self.ledger[effect_key()] += 1
            await asyncio.sleep(chance.random() * 0.03)
            return name

        @self.pack.workflow
        async def maze() -> list[Any]:
            trace: list[Any] = [now().timestamp(), str(uuid4()), durable_random()]
            trace.append(await asyncio.gather(step("a"), self.sequence(step, "b", 3), step("c")))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.sequence(step, f"g{n}", 2)) for n in range(3)]
            trace.append([task.result() for task in tasks])
            racers = {asyncio.ensure_future(step(f"r{n}")) for n in range(4)}
            done, pending = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
            trace.append(sorted(task.result() for task in done))
            for loser in pending:
                loser.cancel()
            trace.append([await first for first in asyncio.as_completed([step(f"c{n}") for n in range(4)])])
            try:
                async with timeout(0.01):
                    trace.append(await step("slow?"))
            except TimeoutError:
                trace.append("too slow")
            queue: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
            lock, event = asyncio.Lock(), asyncio.Event()

            async def produce() -> None:
                for n in range(3):
                    async with lock:
                        await queue.put(await step(f"q{n}"))
                event.set()

            async def consume() -> list[str]:
                return [await queue.get() for _ in range(3)]

            _, consumed, _ = await asyncio.gather(produce(), consume(), event.wait())
            trace.append(consumed)
            await sleep(0.005)
            trace.append(now().timestamp())
            return trace

        self.maze = maze

    async def sequence(self, step: Any, name: str, count: int) -> list[str]:
        return [await step(f"{name}{n}") for n in range(count)]


def _replayed(lab: Lab, run: Run, journal: tuple[Entry, ...]) -> Any:
    """What the code returns when all of its journal is delivered to it again."""
    current = Current(run.id, run.key, run.workflow)
    machine = Machine(lab.maze, current, codec=JsonCodec(), blobs={}, noted=noted(journal))
    replay(machine, run, journal)
    assert isinstance(machine.outcome, CodeReturned)
    return machine.outcome.value


@pytest.mark.parametrize("seed", range(4))
async def test_a_replay_of_the_journal_gives_the_same_result(home: Home, seed: int) -> None:
    """E12: winners, order, times and chance are all what they were."""
    lab = Lab(seed)
    async with home.holdfast(lab.pack) as hf:
        run = (await hf.start(lab.maze())).run
        result = await run.result(timeout=60)
        journal = await run.journal()
        [row] = await hf._replica._ports.store.runs([run.id])
    for _ in range(3):
        assert _replayed(lab, row, journal) == result
    assert set(lab.ledger.values()) == {1}
    recorded = Counter(entry.step for entry in journal if isinstance(entry, Performed))
    assert set(recorded.values()) == {1}


async def _ended_before(seen: EventRecorder, effects: int) -> bool:
    """Wait for the end of the run or for so many effects, whichever comes first."""
    await eventually(lambda: seen.all(RunEnded) or len(seen.all(EffectPerformed)) >= effects)
    return bool(seen.all(RunEnded))


@pytest.mark.parametrize("seed", range(4))
async def test_restarts_in_the_middle_change_nothing(home: Home, seed: int) -> None:
    """E12: stopped after random steps, continued by the next process: nothing twice, nothing lost, one result."""
    lab = Lab(seed)
    chance = random.Random(seed)
    run_id = ""
    restarts = 0
    for _ in range(100):
        async with home.holdfast(lab.pack) as hf:
            run = await hf.get(run_id) if run_id else (await hf.start(lab.maze())).run
            run_id = run.id
            # It may have ended while the last one stopped.
            if run.status == "completed" or await _ended_before(heard(hf), chance.randrange(1, 5)):
                result = await (await run.refresh()).result(timeout=30)
                journal = await run.journal()
                [row] = await hf._replica._ports.store.runs([run.id])
                break
            restarts += 1
    else:
        pytest.fail("it never ended")
    assert restarts >= 2
    assert _replayed(lab, row, journal) == result
    assert result[3] == ["a", ["b0", "b1", "b2"], "c"]
    assert result[4] == [[f"g{n}0", f"g{n}1"] for n in range(3)]
    assert len(result[5]) >= 1
    assert sorted(result[6]) == ["c0", "c1", "c2", "c3"]
    assert result[7] in {"slow?", "too slow"}
    assert result[8] == ["q0", "q1", "q2"]
    assert set(lab.ledger.values()) == {1}
    recorded = Counter(entry.step for entry in journal if isinstance(entry, Performed))
    assert set(recorded.values()) == {1}


async def test_a_sleep_outlives_the_process_and_is_not_begun_anew(home: Home) -> None:
    """The time that passes while nobody runs it counts."""
    clock = home.clock = FakeClock()
    pack = Pack("p")

    @pack.workflow
    async def nap() -> str:
        await asyncio.sleep(3600)
        return "rested"

    async with home.holdfast(pack) as hf:
        run = (await hf.start(nap())).run
        let_go = await heard(hf).until(RunLetGo, run_id=run.id)
    clock.advance(3_600_000)
    async with home.holdfast(pack) as hf:
        run = await hf.get(run.id)
        assert await run.result(timeout=30) == "rested"
        [elapsed] = [entry for entry in await run.journal() if isinstance(entry, Elapsed)]
    assert elapsed.due_at_ms == let_go.wake_at_ms == round(run.created_at.timestamp() * 1000) + 3_600_000
    assert elapsed.at_ms >= elapsed.due_at_ms


async def test_a_timer_is_not_early_by_a_millisecond_though_another_one_wakes_the_run(home: Home) -> None:
    clock = home.clock = FakeClock()
    pack = Pack("p")

    @pack.workflow
    async def naps() -> None:
        await asyncio.gather(sleep("5ms"), sleep("6ms"))

    async with home.holdfast(pack) as hf:
        run = (await hf.start(naps())).run

        async def elapsed() -> list[Elapsed]:
            return [entry for entry in await run.journal() if isinstance(entry, Elapsed)]

        clock.advance(5)
        assert len(await eventually(elapsed)) == 1
        clock.advance(1)
        await run.result(timeout=30)
        assert len(await elapsed()) == 2


async def test_who_won_a_race_against_the_clock_is_decided_once(home: Home) -> None:
    """The timeout was recorded; on a replay the effect would be quicker, and does not get another chance."""
    pack = Pack("p")
    slow = asyncio.Event()

    @pack.effect
    async def answer() -> str:
        await slow.wait()
        return "answered"

    @pack.effect
    async def apologise() -> str:
        await asyncio.Event().wait() if not slow.is_set() else None
        return "sorry"

    @pack.workflow
    async def ask() -> str:
        try:
            async with timeout("30ms"):
                return await answer()
        except TimeoutError:
            return await apologise()

    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        run = (await hf.start(ask())).run
        await eventually(lambda: any(e.step == "apologise#1" for e in seen.events if hasattr(e, "step")))
        worker_of(hf).drop_all()  # as if the lease were lost
    slow.set()
    async with home.holdfast(pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=30) == "sorry"
