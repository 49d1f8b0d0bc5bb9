from __future__ import annotations

from contextlib import suppress

from holdfast import Holdfast, Pack, RunFailed
from holdfast.adapters.machine import SystemClock
from holdfast.dashboard.series import Figures
from holdfast.dashboard.throughput import FRESH_MS, Throughput
from holdfast.stores.memory import MemoryStore

pack = Pack("p")


@pack.workflow
async def work(fails: bool = False) -> None:
    if fails:
        raise ValueError("as asked")


async def done(hf: Holdfast, *calls: bool) -> None:
    for fails in calls:
        run, _ = await hf.start(work(fails))
        with suppress(RunFailed):
            await run.result(30)


async def figures(hf: Holdfast, throughput: Throughput, *, later_ms: int = 0) -> Figures:
    return await throughput.figures(hf, await hf.workers(), now_ms=hf.runtime.common_documents.now_ms() + later_ms)


def store() -> MemoryStore:
    return MemoryStore(clock=SystemClock())


async def test_the_only_worker_hears_every_end():
    async with Holdfast(store(), packs=[pack]) as hf:
        throughput = Throughput(hf)
        await done(hf, False, True)
        found = await figures(hf, throughput)
        assert (found.total, found.total_failed) == (2, 1)
        await done(hf, False)
        assert (await figures(hf, throughput)).total == 3


async def test_what_ended_before_a_restart_is_there_and_counted_once():
    home = store()
    async with Holdfast(home, packs=[pack]) as hf:
        await done(hf, False, False, True)
    async with Holdfast(home, packs=[pack]) as hf:
        throughput = Throughput(hf)
        await done(hf, False)
        for _ in range(2):
            found = await figures(hf, throughput)
            assert (found.total, found.total_failed) == (4, 1)


async def test_a_process_that_executes_nothing_asks_the_store_now_and_then():
    home = store()
    async with Holdfast(home, packs=[pack]) as worker, Holdfast(home, packs=[pack], worker=False) as looker:
        throughput = Throughput(looker)
        await done(worker, False)
        assert (await figures(looker, throughput, later_ms=1)).total == 1
        await done(worker, False)
        assert (await figures(looker, throughput)).total == 1  # what was read is fresh enough
        assert (await figures(looker, throughput, later_ms=2 * FRESH_MS)).total == 2


async def test_another_namespace_has_a_pulse_of_its_own():
    async with Holdfast(store(), packs=[pack]) as hf:
        throughput = Throughput(hf)
        await done(hf, False)
        other = hf.namespaced("other")
        found = await throughput.figures(other, await other.workers(), now_ms=hf.runtime.common_documents.now_ms())
        assert found.total == 0
