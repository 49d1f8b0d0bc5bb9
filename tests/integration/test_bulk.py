"""Bulk verbs: one verb on all runs that a search means, each once, as a run of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import apsw
import pytest

from holdfast import Holdfast, InputMismatch, NotAllowedNow, Pack, Range, Retry, Run, UsageError, hook
from holdfast.client import BulkReport
from holdfast.errors import UnknownWorkflow
from holdfast.events import RunRetried
from holdfast.journal import CancelAsked, Continued, Received, Retried
from holdfast.kernel import bulks
from holdfast.kernel.bulks import BulkCounts, BulkOrder
from tests.integration.conftest import Home, SqliteHome, eventually, heard

SECONDS = 60


class Shop:
    """Checkouts that fail while the shop is broken, and approvals that wait for a signal."""

    def __init__(self) -> None:
        self.pack = Pack("shop")
        self.broken = True
        self.ledger: Counter[str] = Counter()

        @self.pack.effect(retry=Retry(attempts=1))
        async def charge(order: str) -> str:
            self.ledger[order] += 1
            if self.broken:
                raise OSError("the provider is away")
            return order

        @self.pack.workflow(key="checkout:{order}")
        async def checkout(order: str) -> str:
            return await charge(order)

        @self.pack.workflow(key="approval:{order}", outcomes=("no_effects", "resumable", "completed_first"))
        async def approval(order: str) -> str:
            return await hook("approval", type=str)

        self.checkout, self.approval = checkout, approval

    async def failed(self, hf: Holdfast, *orders: str, **attributes: Any) -> list[Run[Any]]:
        runs = [(await hf.start(self.checkout(order), attributes=attributes)).run for order in orders]
        return [await run.wait(SECONDS) for run in runs]

    async def waiting(self, hf: Holdfast, *orders: str) -> list[Run[Any]]:
        runs = [(await hf.start(self.approval(order))).run for order in orders]
        for run in runs:
            await eventually(lambda run=run: is_waiting(run))
        return runs


async def is_waiting(run: Run[Any]) -> bool:
    return (await run.refresh()).status == "waiting"


def orders(count: int, name: str = "o") -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


async def ended(run: Run[BulkReport]) -> BulkReport:
    return await run.result(SECONDS)


async def retries(run: Run[Any]) -> list[str]:
    return [entry.bulk for entry in await run.journal() if isinstance(entry, Retried)]


async def settled(runs: list[Run[Any]]) -> list[str]:
    return [(await (await run.refresh()).wait(SECONDS)).status for run in runs]


async def test_all_failed_runs_are_tried_again_once_each(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        runs = await shop.failed(hf, *orders(7))
        shop.broken = False
        run, created = await hf.runs(shop.checkout, "failed").retry(reason="the provider is back")
        assert created
        assert await ended(run) == BulkReport("retry", 7, 7, {}, 0, ())
        assert await settled(runs) == ["completed"] * 7
        assert set(shop.ledger.values()) == {2}
        assert [await retries(each) for each in runs] == [[run.id]] * 7
        run = await run.refresh()
        assert run.workflow == "holdfast.bulk"
        assert run.attributes == {
            "verb": "retry", "workflow": "shop.checkout", "matched": 7, "done": 7, "skipped": 0, "failed": 0
        }  # fmt: skip
        assert f"was retried by bulk run {run.id}" in str(await runs[0].explain())
        assert (await run.input())["order"].reason == "the provider is back"
        assert len(heard(hf).all(RunRetried)) == 7


async def test_a_dry_run_says_what_would_happen_and_changes_nothing(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        runs = await shop.failed(hf, *orders(5))
        await runs[1].release_key("for another")
        before = [await run.journal() for run in runs]
        count = len([run async for run in hf.runs()])
        found = await hf.runs(shop.checkout, newest_first=False).dry_run("retry", first=3)
        assert (found.verb, found.matched, found.is_all) == ("retry", 5, True)
        assert sorted(each.run.key or "" for each in found.first) == ["checkout:o-0", "checkout:o-1", "checkout:o-2"]
        refusals = {each.run.id: each.refusal for each in found.first}
        assert refusals.pop(runs[1].id) == f"run {runs[1].id} no longer holds its key 'checkout:o-1'"
        assert set(refusals.values()) == {""}
        assert (await hf.runs(shop.checkout, limit=2).dry_run("retry", first=0))[1:] == (2, True, ())
        assert (await hf.runs(shop.checkout).dry_run("cancel")).matched == 0
        assert [await run.journal() for run in runs] == before
        assert len([run async for run in hf.runs()]) == count
        # What it says is what happens.
        shop.broken = False
        report = await ended((await hf.runs(shop.checkout).retry()).run)
        assert (report.done, report.skipped) == (4, {"refused": 1})
        [error] = report.errors
        assert (error.run_id, error.message) == (runs[1].id, f"run {runs[1].id} no longer holds its key 'checkout:o-1'")


async def test_the_filters_are_those_of_a_search(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        small = await shop.failed(hf, *orders(2, "small"), cents=5)
        large = await shop.failed(hf, *orders(3, "large"), cents=900)
        waiting = await shop.waiting(hf, "a")
        report = await ended((await hf.runs(attributes={"cents": Range(ge=100)}, newest_first=False).retry()).run)
        assert (report.matched, report.done) == (3, 3)
        assert [len(await retries(run)) for run in (*small, *large)] == [0, 0, 1, 1, 1]
        await settled(large)
        report = await ended((await hf.runs(key_prefix="checkout:small", limit=1).retry()).run)
        assert (report.matched, report.done) == (1, 1)
        assert sum([len(await retries(run)) for run in small]) == 1
        assert await is_waiting(waiting[0])


async def test_a_run_that_has_failed_again_is_not_retried_again_by_the_same_bulk_run(home: Home) -> None:
    """The process dies when all of a page is applied and nothing of that is recorded: the page is applied again."""
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        runs = await shop.failed(hf, *orders(4))
        verbs, order = hf._replica.service.bulk, BulkOrder(verb="retry", runs=bulks.BulkFilter(status=("failed",)))  # pyright: ignore[reportArgumentType]
        page = await verbs.select(order, hf.runtime.store.now_ms(), 0, None)
        assert {each.run_id for each in page.runs} == {run.id for run in runs}
        assert await verbs.apply("b-1", order, page.runs[:2]) == BulkCounts(done=2)
        assert await settled(runs) == ["failed"] * 4
        by_hand = await hf.get(page.runs[3].run_id)
        await by_hand.retry()
        assert (await by_hand.wait(SECONDS)).status == "failed"
        assert await verbs.apply("b-1", order, page.runs) == BulkCounts(done=3, skipped={"changed": 1})
        assert await settled(runs) == ["failed"] * 4
        assert await verbs.apply("b-1", order, page.runs) == BulkCounts(done=3, skipped={"changed": 1})
        assert sorted([await retries(run) for run in runs]) == [[""], ["b-1"], ["b-1"], ["b-1"]]
        assert await verbs.apply("b-2", order, page.runs) == BulkCounts(skipped={"changed": 4})


async def test_a_cancellation_that_was_taken_back_is_not_repeated_by_the_same_bulk_run(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        [live] = await shop.waiting(hf, "a")
        idle, _ = await hf.start(shop.approval("b"), delay="1h")  # no worker has it: it is cancelled at once
        verbs = hf._replica.service.bulk
        order = BulkOrder(verb="cancel", runs=bulks.BulkFilter(status=("pending", "waiting")), reason="closing")  # pyright: ignore[reportArgumentType]
        page = await verbs.select(order, hf.runtime.store.now_ms(), 0, None)
        assert {each.run_id for each in page.runs} == {live.id, idle.id}
        assert await verbs.apply("b-1", order, page.runs) == BulkCounts(done=2)
        assert await settled([live, idle]) == ["cancelled"] * 2
        for run in (live, idle):
            await (await run.refresh()).resume()
            await eventually(lambda run=run: is_waiting(run))
        assert await verbs.apply("b-1", order, page.runs) == BulkCounts(done=2)
        await live.signal("approval", "yes")
        await idle.signal("approval", "no")
        assert await live.result(SECONDS) == "yes"
        assert await idle.result(SECONDS) == "no"
        asked = [entry.reason for entry in await live.journal() if isinstance(entry, CancelAsked)]
        assert asked == ["closing (bulk run b-1)"]


async def test_all_live_runs_are_cancelled_and_resumed(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        runs = await shop.waiting(hf, *orders(3))
        [over] = await shop.waiting(hf, "over")
        await over.signal("approval", "yes")
        await over.result(SECONDS)
        report = await ended((await hf.runs(shop.approval).cancel("the shop closes")).run)
        assert (report.verb, report.matched, report.done) == ("cancel", 3, 3)
        assert await settled([*runs, over]) == ["cancelled"] * 3 + ["completed"]
        assert (await runs[0].receipt()).reason.startswith("the shop closes (bulk run ")
        report = await ended((await hf.runs(shop.approval).resume()).run)
        assert (report.verb, report.matched, report.done) == ("resume", 3, 3)
        for run in runs:
            await eventually(lambda run=run: is_waiting(run))


async def test_a_signal_reaches_each_live_run_once(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        runs = await shop.waiting(hf, *orders(3))
        with pytest.raises(UsageError, match="names no hook"):
            await hf.runs(shop.approval).bulk("signal")
        with pytest.raises(UsageError, match="takes no hook"):
            await hf.runs(shop.approval).bulk("retry", hook="approval")
        misfit = await ended((await hf.runs(shop.approval).signal("approval", 5)).run)
        assert (misfit.done, misfit.failed) == (0, 3)
        assert "approval" in misfit.errors[0].message
        assert [each.refusal for each in (await hf.runs(shop.approval).dry_run("signal", hook="approval")).first] != [
            ""
        ] * 3
        run, _ = await hf.runs(shop.approval).signal("approval", "yes")
        assert (await ended(run)).done == 3
        assert [await each.result(SECONDS) for each in runs] == ["yes"] * 3
        for each in runs:
            received = [entry.id for entry in await each.journal() if isinstance(entry, Received)]
            assert received == [f"signal/8/approval/bulk/{run.id}"]


async def test_the_rate_is_a_bound_for_any_span_of_its_time(home: Home) -> None:
    """By the clock of the store: a machine that is slow makes it slower, and never faster."""
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        runs = await shop.failed(hf, *orders(7))
        run, _ = await hf.runs(shop.checkout).retry(rate="3/200ms")
        assert (await ended(run)).done == 7
        times = sorted([entry.at_ms for each in runs for entry in await each.journal() if isinstance(entry, Retried)])
        assert len(times) == 7
        for first, fourth in zip(times, times[3:], strict=False):
            assert fourth - first >= 200


async def test_more_runs_than_one_journal_holds_are_taken_once_each(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        runs = await shop.failed(hf, *orders(25))
        shop.broken = False
        run, _ = await hf.runs(shop.checkout).retry(rate="1/ms")
        assert await ended(run) == BulkReport("retry", 25, 25, {}, 0, ())
        assert isinstance((await run.journal())[0], Continued)
        assert await settled(runs) == ["completed"] * 25
        assert [await retries(each) for each in runs] == [[run.id]] * 25


async def test_cancelled_it_stands_still_and_resumed_it_goes_on_from_its_cursor(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        runs = await shop.failed(hf, *orders(6))
        shop.broken = False
        run, _ = await hf.runs(shop.checkout).retry(rate="2/1h")

        async def has_applied_a_page() -> bool:
            return (await run.refresh()).attributes.get("done") == 2

        await eventually(has_applied_a_page)
        assert (await run.cancel()).outcome == "resumable"
        assert (await run.refresh()).attributes["done"] == 2
        assert Counter([len(await retries(each)) for each in runs]) == {1: 2, 0: 4}
        [again] = [each async for each in hf.runs("holdfast.bulk", "cancelled")]
        assert again.id == run.id
        await again.resume()
        await eventually(lambda: is_waiting(run))
        assert Counter([len(await retries(each)) for each in runs]) == {1: 2, 0: 4}


async def test_runs_that_are_not_meant_are_left_alone(home: Home) -> None:
    """Bulk runs, the bulk run itself, runs that were created later, and runs that failed later."""
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        early = await shop.failed(hf, *orders(3))
        slow, _ = await hf.runs(shop.checkout, newest_first=False).retry(rate="1/1h")

        async def has_begun() -> bool:
            return (await slow.refresh()).attributes.get("done") == 1

        await eventually(has_begun)
        await settled(early)
        late = await shop.failed(hf, "late")
        report = await ended((await hf.runs().cancel()).run)
        assert (report.matched, report.done) == (0, 0)
        assert await is_waiting(slow)
        with pytest.raises(UsageError, match="bulk runs are not moved"):
            await hf.runs("holdfast.bulk").cancel()
        verbs = hf._replica.service.bulk
        order = (await slow.input())["order"]
        state = await verbs.begin(slow.id, order)
        assert state.matched == 2  # the first has failed again since; `late` came later
        page = await verbs.select(order, state.began_at_ms, 0, None)
        assert late[0].id not in {each.run_id for each in page.runs}


async def test_a_bulk_run_is_started_once_per_key(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        await shop.failed(hf, *orders(2))
        first, created = await hf.runs(shop.checkout, "failed").retry(key="outage-12")
        again, created_again = await hf.runs(shop.checkout, "failed").retry(key="outage-12")
        assert (created, created_again, again.id) == (True, False, first.id)
        with pytest.raises(InputMismatch):
            await hf.runs(shop.approval).cancel(key="outage-12")
        assert (await ended(again)).done == 2


@pytest.mark.parametrize(
    ("verb", "filters", "options", "message"),
    [
        ("retry", {"status": "completed"}, {}, "a run that is completed cannot be retried"),
        ("resume", {"status": ["failed", "waiting"]}, {}, "a run that is failed or waiting cannot be resumed"),
        ("cancel", {"status": "cancelled"}, {}, "a run that is cancelled cannot be cancelled"),
        ("explode", {}, {}, "'explode' is not a bulk verb"),
        ("retry", {}, {"rate": "fast"}, "'fast' is not a rate"),
        ("retry", {}, {"rate": "0/1s"}, "'0/1s' is not a rate"),
        ("retry", {}, {"rate": "5/0s"}, "'5/0s' is a rate per no time"),
        ("retry", {}, {"rate": "5/soon"}, "'soon' is not a duration"),
        ("retry", {}, {"reason": 5}, "reason=5 is not text"),
        ("retry", {"limit": 0}, {}, "limit=0 leaves no run"),
        ("cancel", {}, {"deadline": "later"}, "'later' is not a duration"),
        ("signal", {}, {"hook": "x" * 300}, "hook name"),
    ],
)
async def test_what_cannot_be_is_said_before_anything_is_started(
    verb: Any, filters: Any, options: Any, message: str
) -> None:
    shop = Shop()
    async with Holdfast("memory://", packs=[shop.pack]) as hf:
        with pytest.raises(UsageError) as refused:
            await hf.runs(shop.checkout, **filters).bulk(verb, **options)
        assert message in str(refused.value)
        assert [run async for run in hf.runs()] == []


async def test_the_runs_of_another_namespace_are_not_touched(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf, home.holdfast(shop.pack, namespace="other") as other:
        ours, theirs = await shop.failed(hf, "a"), await shop.failed(other, "a")
        shop.broken = False
        report = await ended((await hf.runs(shop.checkout).retry()).run)
        assert (report.matched, report.done) == (1, 1)
        assert (await settled(ours), await settled(theirs)) == (["completed"], ["failed"])
        # A page that names a run of another namespace, whoever has made it, moves nothing there.
        order = BulkOrder(verb="retry", runs=bulks.BulkFilter(status=("failed",)))  # pyright: ignore[reportArgumentType]
        page = await other._replica.service.bulk.select(order, hf.runtime.store.now_ms(), 0, None)
        assert await hf._replica.service.bulk.apply("b", order, page.runs) == BulkCounts(skipped={"gone": 1})
        # Started from here for another namespace, it is executed there.
        run, _ = await hf.namespaced("other").runs(shop.checkout).retry()
        assert (await ended(run)).done == 1
        assert await settled(theirs) == ["completed"]


async def test_every_worker_executes_bulk_runs_and_shows_only_workflows_of_packs(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack, queues=["none of its own"]) as hf, home.holdfast(worker=False) as bare:
        assert (await ended((await bare.runs().retry()).run)).matched == 0
        assert [each.name for each in await hf.workflows()] == ["shop.checkout", "shop.approval"]
        assert [each.serves.workflows for each in await hf.workers()] == [()]
        with pytest.raises(UnknownWorkflow):
            hf.call("bulk", {})


async def test_without_a_worker_it_waits_for_one(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack, worker=False) as hf:
        run, _ = await hf.runs(shop.checkout).retry()
        assert [wait.kind for wait in run.waiting_on] == ["no_worker"]


def test_the_name_of_the_engines_own_pack_is_taken() -> None:
    with pytest.raises(UsageError, match="'holdfast' belongs to the engine"):
        Holdfast("memory://", packs=[Pack("holdfast")])


async def test_a_workflow_of_a_pack_may_be_called_bulk() -> None:
    pack = Pack("mine")

    @pack.workflow
    async def bulk() -> int:
        return 1

    async with Holdfast("memory://", packs=[pack]) as hf:
        assert await (await hf.start(hf.call("bulk", {}))).run.result(SECONDS) == 1


def test_the_blocking_verbs_are_the_same() -> None:
    shop = Shop()
    with Holdfast.blocking("memory://", packs=[shop.pack], worker=True) as hf:
        runs = [hf.start(shop.checkout(order)).run.wait(SECONDS) for order in orders(3)]
        shop.broken = False
        found = hf.runs(shop.checkout).dry_run("retry", first=1)
        assert (found.matched, found.is_all, found.first[0].refusal) == (3, True, "")
        assert found.first[0].run.refresh().status == "failed"
        run, created = hf.runs(shop.checkout, "failed").retry(rate="2/1ms")
        assert (created, run.result(SECONDS).done) == (True, 3)
        assert [each.refresh().wait(SECONDS).status for each in runs] == ["completed"] * 3
        assert hf.runs(shop.approval).signal("approval", "yes").run.result(SECONDS).matched == 0


async def test_two_bulk_runs_at_once_retry_each_run_once(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        runs = await shop.failed(hf, *orders(30))
        shop.broken = False
        both = await asyncio.gather(*(hf.runs(shop.checkout, "failed").retry() for _ in range(2)))
        reports = [await ended(run) for run, _ in both]
        assert sum(report.done for report in reports) == 30
        assert all(report.done + sum(report.skipped.values()) == report.matched for report in reports)
        assert [len(await retries(run)) for run in runs] == [1] * 30


async def test_a_run_that_cannot_be_resumed_says_why(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        shop.broken = False
        run, _ = await hf.start(shop.checkout("a"), delay="1h")
        await run.cancel()
        await run.release_key()
        report = await ended((await hf.runs().resume()).run)
        assert (report.matched, report.skipped) == (1, {"refused": 1})
        with pytest.raises(NotAllowedNow) as refused:
            await run.resume()
        assert report.errors[0].message == refused.value.message


async def test_a_run_whose_journal_cannot_be_read_is_told_and_the_others_are_retried(sqlite_home: SqliteHome) -> None:
    """As after a newer version has written it, or a disk has failed."""
    shop = Shop()
    async with sqlite_home.holdfast(shop.pack) as hf:
        runs = await shop.failed(hf, *orders(3))
        shop.broken = False
        db = apsw.Connection(str(sqlite_home.path))
        odd = b'[{"what":"from the future"}]'
        db.execute("UPDATE journal SET entries = ? WHERE run_id = ?", (odd, runs[1].id))
        db.close()
        preview = await hf.runs(shop.checkout, "failed").dry_run("retry")
        assert [bool(each.refusal) for each in preview.first] == [False, True, False]
        report = await ended((await hf.runs(shop.checkout, "failed").retry()).run)
        assert (report.done, report.failed, report.errors[0].run_id) == (2, 1, runs[1].id)
        assert await settled([runs[0], runs[2]]) == ["completed"] * 2
