"""What the metrics say is what happened, over the public API and every store."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from holdfast import Holdfast, Pack, Retry, RunFailed, hook
from holdfast.events import (
    AskedInVain,
    EffectBegan,
    LeaseWasLost,
    PartFailed,
    RunBlocked,
    RunEnded,
    RunsClaimed,
    RunsRescued,
    StoreTroubled,
)
from holdfast.telemetry.metrics import METRICS
from tests.integration.conftest import Home, SqliteHome, eventually, heard
from tests.integration.wrappers import LossyStore, SeverableStore, StoreWrapper


def counted(hf: Holdfast, name: str, **labels: str) -> float:
    """The value of a sample; 0 if there is none."""
    return hf.metrics().registry.get_sample_value(name, labels) or 0.0


class Shop:
    """Charges that fail as often as they are told to."""

    def __init__(self) -> None:
        self.pack = Pack("shop")
        self.failures: dict[str, int] = {}

        @self.pack.effect(retry=Retry(attempts=2, base=0.001))
        async def charge(order: str) -> str:
            self.failures[order] = self.failures.get(order, 0) - 1
            if self.failures[order] >= 0:
                raise OSError("declined")
            return f"charged {order}"

        @self.pack.workflow(key="{order}")
        async def checkout(order: str) -> str:
            return await charge(order)

        self.charge, self.checkout = charge, checkout


async def test_runs_and_attempts_are_counted_by_what_came_of_them(home: Home) -> None:
    shop = Shop()
    shop.failures = {"flaky": 1, "hopeless": 2}
    async with home.holdfast(shop.pack) as hf:
        hf.metrics()
        for order in ("fine", "flaky"):
            run = (await hf.start(shop.checkout(order))).run
            assert await run.result(timeout=30) == f"charged {order}"
        assert not (await hf.start(shop.checkout("fine"))).created
        with pytest.raises(RunFailed):
            await (await hf.start(shop.checkout("hopeless"))).run.result(timeout=30)
        workflow, effect = "shop.checkout", "shop.charge"
        assert counted(hf, "holdfast_runs_started_total", workflow=workflow) == 3
        assert counted(hf, "holdfast_runs_joined_total", workflow=workflow) == 1
        assert counted(hf, "holdfast_runs_finished_total", workflow=workflow, status="completed") == 2
        assert counted(hf, "holdfast_runs_finished_total", workflow=workflow, status="failed") == 1
        assert counted(hf, "holdfast_run_duration_seconds_count", workflow=workflow) == 3
        for outcome, times in {"performed": 2, "retried": 2, "gave_up": 1}.items():
            assert counted(hf, "holdfast_effect_attempts_total", effect=effect, outcome=outcome) == times
        assert counted(hf, "holdfast_effect_duration_seconds_count", effect=effect) == 5
        assert counted(hf, "holdfast_effect_duration_seconds_sum", effect=effect) > 0
        batches = counted(hf, "holdfast_commit_batch_size_count")
        assert 3 <= batches <= counted(hf, "holdfast_commit_batch_size_sum")


async def test_the_duration_of_a_run_is_that_of_the_store(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        hf.metrics()
        run = (await hf.start(shop.checkout("o-1"))).run
        await run.result(timeout=30)
        run = await run.refresh()
        assert run.finished_at is not None
        took = (run.finished_at - run.created_at).total_seconds()
        assert counted(hf, "holdfast_run_duration_seconds_sum", workflow="shop.checkout") == pytest.approx(took)


async def test_every_way_in_and_out_is_counted(home: Home) -> None:
    """Children, forks, successors and runs that are ended from outside begin and end like any other."""
    pack = Pack("p")

    gate = asyncio.Event()

    @pack.effect
    async def act() -> None:
        await gate.wait()

    @pack.workflow
    async def child() -> None:
        await hook("never")

    @pack.workflow
    async def parent() -> None:
        await child()

    @pack.workflow(key="the one")
    async def entity() -> int:
        await act()
        return await hook("more", type=int)

    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        hf.metrics()
        run = (await hf.start(parent())).run
        await eventually(lambda: counted(hf, "holdfast_runs_started_total", workflow="p.child") == 1)
        await run.cancel()
        for name in ("p.parent", "p.child"):
            assert counted(hf, "holdfast_runs_finished_total", workflow=name, status="cancelled") == 1
        # Two signals to the key, and a run that takes one of them: the other begins a successor.
        assert [(await hf.start(entity(), signal=("more", n, f"s-{n}"))).created for n in range(2)] == [True, False]
        gate.set()
        await seen.until(RunEnded, workflow="p.entity", count=2)
        assert counted(hf, "holdfast_runs_finished_total", workflow="p.entity", status="completed") == 2
        assert counted(hf, "holdfast_runs_started_total", workflow="p.entity") == 2
        done = await hf.find(entity, "the one")
        await done.fork(at="act#1", key="another")
        assert counted(hf, "holdfast_runs_started_total", workflow="p.entity") == 3


async def test_a_child_that_had_not_begun_is_counted_when_its_parent_takes_it_along(home: Home) -> None:
    """Nobody executes it, so the parent's worker ends it by a commit of its own."""
    pack = Pack("p")

    @pack.workflow(queue="kids")
    async def child() -> None:
        await hook("never")

    @pack.workflow
    async def parent() -> None:
        await child()

    async with home.holdfast(pack, queues=["default"]) as hf:
        hf.metrics()
        run = (await hf.start(parent())).run
        await eventually(lambda: counted(hf, "holdfast_runs_started_total", workflow="p.child") == 1)
        await run.cancel()
        assert counted(hf, "holdfast_runs_finished_total", workflow="p.child", status="cancelled") == 1


async def test_a_blocked_run_is_counted_by_why(home: Home) -> None:
    pack = Pack("p")

    @pack.effect(safety="once", timeout="10ms")
    async def act() -> None:
        await asyncio.Event().wait()

    @pack.workflow
    async def work() -> None:
        await act()

    async with home.holdfast(pack) as hf:
        hf.metrics()
        await hf.start(work())
        await heard(hf).until(RunBlocked)
        assert counted(hf, "holdfast_runs_blocked_total", workflow="p.work", code="unknown_outcome") == 1


async def test_what_waits_is_seen_and_how_long_it_waited_for_a_worker(home: Home) -> None:
    shop = Shop()
    queue = {"queue": "default", "workflow": "shop.checkout"}
    async with home.holdfast(shop.pack, worker=False) as client:
        for n in range(3):
            await client.start(shop.checkout(f"o-{n}"))
        oldest = await client.find(shop.checkout, "o-0")
        await eventually(lambda: _age_ms(client, oldest) > 20)  # so that it has waited for something
        await client.metrics().render()
        assert counted(client, "holdfast_queue_ready_runs", **queue) == 3
        assert counted(client, "holdfast_queue_oldest_seconds", **queue) > 0.02
        assert counted(client, "holdfast_runs", status="pending") == 3
        assert counted(client, "holdfast_workers") == 0
        worker = home.holdfast(shop.pack)
        worker.metrics()
        async with worker:
            for n in range(3):
                await (await client.find(shop.checkout, f"o-{n}")).result(timeout=30)
            claims = len(heard(worker).all(RunsClaimed))
            assert counted(worker, "holdfast_claim_latency_seconds_count") == claims > 0
            assert counted(worker, "holdfast_claim_latency_seconds_sum") > 0.02
            await worker.metrics().render()
            assert counted(worker, "holdfast_queue_ready_runs", **queue) == 0
            assert counted(worker, "holdfast_runs", status="completed") == 3
            assert counted(worker, "holdfast_workers") == 1


def _age_ms(hf: Holdfast, run: Any) -> float:
    return hf._now_ms() - run.created_at.timestamp() * 1000


async def test_an_idle_worker_asks_for_almost_nothing(sqlite_home: SqliteHome) -> None:
    """Each duty looks when it begins, and what is started here is taken up by hand: that needs no question either."""
    sqlite_home.paced(prune_seconds=3600.0)
    shop = Shop()
    hf = sqlite_home.holdfast(shop.pack, lease="1h")
    hf.metrics()
    async with hf:
        for part in ("waker", "rescuer", "pruner"):
            await heard(hf).until(AskedInVain, part=part)
        for n in range(50):
            await (await hf.start(shop.checkout(f"o-{n}"))).run.result(timeout=30)
        parts = ("claim", "mail", "waker", "rescuer", "pruner")
        idle = {part: counted(hf, "holdfast_idle_reads_total", part=part) for part in parts}
        # A commit of its own is mistaken for somebody else's now and then, which costs a look; it is not the rule.
        assert sum(idle.values()) <= 15, idle


async def test_a_question_that_brought_nothing_is_counted(home: Home) -> None:
    """Two workers are told of one run: one of them asks in vain."""
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        hf.metrics()
        hf._replica._worker.claims.ring()  # pyright: ignore[reportOptionalMemberAccess]
        await heard(hf).until(AskedInVain, part="claim")
        assert counted(hf, "holdfast_idle_reads_total", part="claim") == 1


async def test_a_lost_lease_and_its_rescue_are_counted(home: Home) -> None:
    gate = asyncio.Event()
    pack = Pack("p")

    @pack.effect
    async def hold() -> str:
        await gate.wait()
        return "held"

    @pack.workflow
    async def work() -> str:
        return await hold()

    stores: list[SeverableStore] = []

    def through(store: Any) -> SeverableStore:
        stores.append(SeverableStore(store))
        return stores[0]

    silent = home.holdfast(pack, through=through, lease="600ms")
    silent.metrics()
    async with silent:
        run = (await silent.start(work())).run
        await heard(silent).until(EffectBegan)
        async with home.holdfast(pack, lease="2s") as hf:
            hf.metrics()
            stores[0].sever()
            await heard(hf).until(RunsRescued)
            await heard(silent).until(LeaseWasLost)
            gate.set()
            assert await (await hf.get(run.id)).result(timeout=30) == "held"
            assert counted(hf, "holdfast_runs_rescued_total") == 1
            assert counted(hf, "holdfast_lease_losses_total") == 0
        assert counted(silent, "holdfast_lease_losses_total") == 1
        assert counted(silent, "holdfast_store_troubles_total") > 0


async def test_troubles_and_faults_are_counted(sqlite_home: SqliteHome) -> None:
    class Faulty(StoreWrapper):
        """Breaks the claims, by a fault of its own, and then loses one."""

        faults = 1

        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            if name == "claim" and self.faults:
                self.faults -= 1
                raise RuntimeError("a fault")
            return await verb(*args)

    lost = iter([False, True])

    def through(store: Any) -> LossyStore:
        return LossyStore(Faulty(store), lambda name, _: name == "claim" and next(lost, False))

    shop = Shop()
    hf = sqlite_home.holdfast(shop.pack, through=through)
    hf.metrics()
    async with sqlite_home.holdfast(shop.pack, worker=False) as client:
        run = (await client.start(shop.checkout("o-1"))).run
        async with hf:
            await heard(hf).until(PartFailed)
            hf._replica._worker.claims.ring()  # pyright: ignore[reportOptionalMemberAccess]
            await heard(hf).until(StoreTroubled)
            await run.result(timeout=30)
    assert counted(hf, "holdfast_part_failures_total", part="Claims.claim") == 1
    assert counted(hf, "holdfast_store_troubles_total") == 1


async def test_a_scrape_says_everything_that_the_table_promises(home: Home) -> None:
    shop = Shop()
    closed, hf = home.holdfast(shop.pack), home.holdfast(shop.pack)
    before, _ = await closed.metrics().render()  # it is not open: the store's numbers are missing, the rest is there
    assert b"holdfast_build_info{" in before
    assert b"holdfast_runs{" not in before
    hf.metrics()  # which counts from now on
    async with hf:
        await (await hf.start(shop.checkout("o-1"))).run.result(timeout=30)
        await eventually(lambda: all(hf.runtime.duties_led.values()))  # a run may be quicker than an election
        body, content_type = await hf.metrics().render()
        assert content_type.startswith("text/plain")
        text = body.decode()
        for metric in METRICS:
            shown = metric.name
            assert re.search(rf"^# TYPE {shown} {metric.kind}$", text, re.MULTILINE), shown
        assert f'holdfast_runs{{instance_id="{hf.runtime.instance}",status="completed"}} 1.0' in text
        assert f'holdfast_leads{{duty="rescuer",instance_id="{hf.runtime.instance}"}} 1.0' in text
        run_ids = [run.id async for run in hf.runs()]
        assert not any(run_id in text for run_id in run_ids)
        assert "o-1" not in text
