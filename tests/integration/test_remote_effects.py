"""Remote effects: attempts that workers in other languages claim. The journal is that of any effect (R-tasks)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from holdfast import (
    Holdfast,
    NotAllowedNow,
    NotPerformed,
    Pack,
    Retry,
    RunFailed,
    TimedOut,
    UsageError,
    continue_as_new,
    hook,
    sleep,
)
from holdfast.engine.remote.tasks import Handed, Tasks
from holdfast.errors import NotSerializable, StoreUnavailable, UnknownOutcome, UnknownTask
from holdfast.events import EffectBegan, EffectPerformed, EffectWillRetry, PartFailed, ReplicaStopped
from holdfast.kernel import hooks
from holdfast.kernel.changes import Change
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.journal import Attempted, Completed, GaveUp, Intended, Late, Performed, Started
from holdfast.kernel.tasks import DONE_KEPT_MS, HEARD_KEPT_MS, Task, TaskPlace, offer
from holdfast.ports.store import Store
from tests.integration.conftest import PATIENCE_SECONDS, Home, SqliteHome, eventually, heard
from tests.integration.ledgers import lefts
from tests.integration.wrappers import GatedStore, LossyStore, SeverableStore, StoreWrapper

RESIZE = "studio.resize"


class Studio:
    """A workflow with one remote effect. Whoever calls its body has made a mistake."""

    def __init__(self, **options: Any) -> None:
        self.pack = Pack("studio")
        self.taken_back: list[str] = []

        @self.pack.effect
        async def remove(image: str) -> None:
            self.taken_back.append(image)

        @self.pack.effect(**{"key": "resize:{image}", "undo": remove, "remote": True} | options)
        async def resize(image: str, width: int) -> str:
            raise AssertionError("a remote effect is never called here")

        @self.pack.workflow(key="thumbnail:{image}")
        async def thumbnail(image: str, width: int = 100) -> str:
            return await resize(image, width)

        self.resize, self.thumbnail = resize, thumbnail


def tasks_of(hf: Holdfast) -> Tasks:
    return hf.runtime.tasks_in(hf.namespace)


async def claimed(hf: Holdfast, effect: str = RESIZE, *, worker: str = "w-1", **options: Any) -> Handed:
    """The next task of the effect."""
    [handed] = await tasks_of(hf).claim([effect], worker=worker, wait=PATIENCE_SECONDS, **options)
    return handed


def json(value: object) -> bytes:
    return msgspec.json.encode(value)


async def complete(hf: Holdfast, handed: Handed, value: object) -> None:
    await tasks_of(hf).complete(handed.place.name, fence=handed.claim.fence, result=json(value))


async def fail(hf: Holdfast, handed: Handed, type: str = "TooLarge", message: str = "9 GB", **options: Any) -> None:
    await tasks_of(hf).fail(handed.place.name, fence=handed.claim.fence, type=type, message=message, **options)


async def journal_of(run: Any) -> list[type]:
    return [type(entry) for entry in await run.journal()]


# -- the ordinary way


async def test_a_remote_worker_performs_the_effect_and_the_journal_does_not_show_the_difference(home: Home) -> None:
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        handed = await claimed(hf)
        assert (handed.place.effect, handed.task.key, handed.task.attempt) == (RESIZE, "resize:cat.png", 1)
        assert handed.task.run_id == run.id
        assert msgspec.json.decode(handed.task.input) == {"image": "cat.png", "width": 100}
        assert handed.task.details is None
        await complete(hf, handed, "cat-100.png")
        assert await run.result(timeout=PATIENCE_SECONDS) == "cat-100.png"
        journal = await run.journal()
        performed = journal[1]
        assert isinstance(performed, Performed)
        assert (performed.attempt, performed.intent.key) == (1, "resize:cat.png")


async def test_work_and_outcomes_are_pushed_from_process_to_process(sqlite_home: SqliteHome) -> None:
    """The worker waits for work before there is any; run and worker are in different processes."""
    studio = Studio()
    async with sqlite_home.holdfast(studio.pack) as hf, sqlite_home.holdfast(worker=False) as gateway:
        seeking = asyncio.create_task(claimed(gateway))
        await eventually(lambda: gateway._replica._task_watch._seekers)
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await complete(gateway, await seeking, "small")
        assert await run.result(timeout=PATIENCE_SECONDS) == "small"


async def test_tasks_are_shared_out_and_each_is_claimed_once(home: Home) -> None:
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        seekers = [asyncio.create_task(claimed(hf, worker=f"w-{n}")) for n in range(5)]
        runs = [(await hf.start(studio.thumbnail(f"{n}.png"))).run for n in range(5)]
        handed = await asyncio.gather(*seekers)
        assert {each.task.run_id for each in handed} == {run.id for run in runs}
        await asyncio.gather(*(complete(hf, each, each.task.key) for each in handed))
        assert [await run.result(timeout=30) for run in runs] == [f"resize:{n}.png" for n in range(5)]


async def test_who_waits_in_vain_is_answered_with_nothing(home: Home) -> None:
    async with home.holdfast(worker=False) as hf:
        assert await tasks_of(hf).claim([RESIZE], worker="w", wait="20ms") == []


async def test_a_waiting_task_holds_no_slot_and_a_stopping_worker_does_not_wait_for_it(home: Home) -> None:
    studio = Studio()

    @studio.pack.effect
    async def local() -> str:
        return "done"

    @studio.pack.workflow
    async def here() -> str:
        return await local()

    async with home.holdfast(studio.pack, concurrency=1) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        handed = await claimed(hf)
        other = (await hf.start(here())).run
        assert await other.result(timeout=PATIENCE_SECONDS) == "done"
    assert [stopped.given_back for stopped in heard(hf).all(ReplicaStopped)] == [0]  # it had not to be cut short
    async with home.holdfast(worker=False) as gateway:  # nobody waits for it now
        await complete(gateway, handed, "small")
    async with home.holdfast(studio.pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=PATIENCE_SECONDS) == "small"
        assert await journal_of(await hf.get(run.id)) == [Started, Performed, Completed]


async def test_a_worker_that_stops_while_an_end_is_refused_waits_for_no_remote_worker(home: Home) -> None:
    """The run begins again from its record: it must know there, too, that it is left."""
    pack, refused = Pack("p"), asyncio.Event()

    @pack.effect
    async def act() -> None:
        await go.wait()

    @pack.effect(remote=True)
    async def far() -> None:
        raise AssertionError("a remote effect is never called here")

    @pack.workflow
    async def collect() -> None:
        taken = list[int]()

        async def take() -> None:
            async for item in hook("items", type=int):
                taken.append(item)

        async def afar() -> None:
            await far()

        taking, remote = asyncio.create_task(take()), asyncio.create_task(afar())
        await act()
        remote.cancel()
        if not taken:
            taking.cancel()
            return
        await hook("never")

    class Crowded(StoreWrapper):
        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            for change in args[0] if name == "commit" and not refused.is_set() else ():
                if change.run is not None and change.run.status == "completed":
                    refused.set()
                    await verb([hooks.to_run(change.run.id, hooks.signal("items", b"1", dedupe="d", nonce="n"))])
                    hf.runtime.wind_down()
            return await verb(*args)

    go = asyncio.Event()
    async with home.holdfast(pack, through=Crowded) as hf:
        await hf.start(collect())
        await claimed(hf, "p.far", lease="60s")
        go.set()
        await refused.wait()
    assert [stopped.given_back for stopped in heard(hf).all(ReplicaStopped)] == [0]


async def test_whoever_has_the_run_next_joins_the_task_that_is_out(home: Home) -> None:
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        handed = await claimed(hf)
    async with home.holdfast(studio.pack) as hf:
        await heard(hf).until(EffectBegan, run_id=run.id)
        assert await tasks_of(hf).claim([RESIZE], worker="w-2") == []
        await complete(hf, handed, "small")
        assert await (await hf.get(run.id)).result(timeout=PATIENCE_SECONDS) == "small"


async def test_each_generation_of_a_run_has_tasks_of_its_own(home: Home) -> None:
    pack = Pack("studio")

    @pack.effect(remote=True)
    def resize(image: str) -> str: ...

    @pack.workflow
    async def album(images: list[str], done: list[str]) -> list[str]:
        if not images:
            return done
        small = await resize(images[0])
        await continue_as_new(album(images[1:], [*done, small]))
        return []

    async with home.holdfast(pack) as hf:
        run, names = (await hf.start(album(["a", "b"], []))).run, set[str]()
        for image in "ab":
            handed = await claimed(hf)
            assert msgspec.json.decode(handed.task.input) == {"image": image}
            names.add(handed.place.name)
            await complete(hf, handed, image.upper())
        assert await run.result(timeout=PATIENCE_SECONDS) == ["A", "B"]
        assert len(names) == 2


# -- failures


async def test_a_failure_is_retried_by_the_policy_of_the_effect(home: Home) -> None:
    studio = Studio(retry=Retry(attempts=2, base=0.0))
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        first = await claimed(hf)
        await fail(hf, first)
        second = await claimed(hf)
        assert second.task.attempt == 2
        assert second.place.name != first.place.name
        assert second.task.key == first.task.key
        await fail(hf, second, "OutOfPaper", "none left")
        with pytest.raises(RunFailed, match="OutOfPaper: none left"):
            await run.result(timeout=PATIENCE_SECONDS)
        entries = await run.journal()
        assert [type(entry) for entry in entries[1:3]] == [Attempted, GaveUp]


async def test_a_class_of_this_process_arrives_as_itself(home: Home) -> None:
    studio = Studio(retry=Retry(attempts=5, never_on=(ValueError,)))
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await fail(hf, await claimed(hf), "ValueError", "not an image")
        with pytest.raises(RunFailed) as caught:
            await run.result(timeout=PATIENCE_SECONDS)
        assert isinstance(caught.value.__cause__, ValueError)


async def test_a_worker_may_say_that_trying_again_cannot_help(home: Home) -> None:
    studio = Studio(retry=Retry(attempts=5))
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await fail(hf, await claimed(hf), retry=False)
        with pytest.raises(RunFailed, match="TooLarge: 9 GB"):
            await run.result(timeout=PATIENCE_SECONDS)
        assert heard(hf).all(EffectWillRetry) == []


async def test_a_worker_may_say_when_to_try_again(home: Home) -> None:
    studio = Studio(retry=Retry(attempts=5))
    async with home.holdfast(studio.pack) as hf:
        await hf.start(studio.thumbnail("cat.png"))
        await fail(hf, await claimed(hf), retry_after="90s")
        assert (await heard(hf).until(EffectWillRetry)).delay_ms == 90_000


async def test_a_result_of_another_type_fails_the_attempt_and_says_so(home: Home) -> None:
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await complete(hf, await claimed(hf), {"not": "text"})
        with pytest.raises(RunFailed, match="does not fit its annotation: Expected `str`, got `object`") as caught:
            await run.result(timeout=PATIENCE_SECONDS)
        assert isinstance(caught.value.__cause__, NotSerializable)


async def test_a_retried_run_offers_its_effect_anew(home: Home) -> None:
    studio = Studio(retry=Retry(attempts=1))
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        first = await claimed(hf)
        await fail(hf, first)
        with pytest.raises(RunFailed):
            await run.result(timeout=PATIENCE_SECONDS)
        again = await run.retry()
        second = await claimed(hf)
        assert second.place.name != first.place.name
        await complete(hf, second, "small")
        assert await again.result(timeout=PATIENCE_SECONDS) == "small"


# -- leases, fences and time


async def test_a_lease_that_runs_out_uses_no_attempt_and_the_late_worker_is_refused(home: Home) -> None:
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        slow = await claimed(hf, lease="200ms")
        await tasks_of(hf).heartbeat(slow.place.name, fence=slow.claim.fence, details=json({"row": 7}))
        quick: list[Handed] = []

        async def is_claimed_by_another() -> bool:
            quick[:] = await tasks_of(hf).claim([RESIZE], worker="w-2")
            return bool(quick)

        await eventually(is_claimed_by_another)
        assert quick[0].place == slow.place
        assert quick[0].claim.fence > slow.claim.fence
        assert quick[0].task.attempt == 1
        assert msgspec.json.decode(quick[0].task.details or "") == {"row": 7}
        with pytest.raises(NotAllowedNow, match="not that of the last claim"):
            await complete(hf, slow, "too late")
        with pytest.raises(NotAllowedNow):
            await tasks_of(hf).heartbeat(slow.place.name, fence=slow.claim.fence)
        await complete(hf, quick[0], "small")
        await complete(hf, quick[0], "small")  # its reply was lost: the answer is the same
        assert await run.result(timeout=PATIENCE_SECONDS) == "small"
        performed = (await run.journal())[1]
        assert isinstance(performed, Performed)
        assert performed.attempt == 1


async def test_heartbeats_become_those_of_the_step_and_the_next_attempt_reads_them(home: Home) -> None:
    studio = Studio(retry=Retry(attempts=2, base=0.0))
    async with home.holdfast(studio.pack) as hf:
        await hf.start(studio.thumbnail("cat.png"))
        first = await claimed(hf, lease="60s")
        beat = await tasks_of(hf).heartbeat(first.place.name, fence=first.claim.fence, details=json({"row": 7}))
        assert beat.wanted
        assert beat.until_ms >= first.claim.until_ms
        await fail(hf, first)
        second = await claimed(hf)
        assert second.task.attempt == 2
        assert msgspec.json.decode(second.task.details or "") == {"row": 7}


async def test_the_timeout_counts_from_the_claim(home: Home) -> None:
    """It is far shorter than the time that the task waits for a worker."""
    studio = Studio(timeout="150ms", retry=Retry(attempts=1))
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await heard(hf).until(EffectBegan)
        await asyncio.sleep(0.3)  # of no use to wait for: nothing happens, that is the point
        handed = await claimed(hf, lease="60s")
        with pytest.raises(RunFailed) as caught:
            await run.result(timeout=PATIENCE_SECONDS)
        assert isinstance(caught.value.__cause__, TimedOut)
        assert not (await tasks_of(hf).heartbeat(handed.place.name, fence=handed.claim.fence)).wanted
        with pytest.raises(NotAllowedNow, match="is not wanted any more"):
            await complete(hf, handed, "too late")


async def test_the_deadline_of_the_retries_counts_while_nobody_claims(home: Home) -> None:
    studio = Studio(retry=Retry(attempts=5, deadline="50ms"))
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        with pytest.raises(RunFailed, match="its deadline was over before a worker claimed it") as caught:
            await run.result(timeout=PATIENCE_SECONDS)
        assert isinstance(caught.value.__cause__, NotPerformed)
        assert await tasks_of(hf).claim([RESIZE], worker="w") == []


async def test_after_the_deadline_nothing_is_claimed_although_the_process_that_put_it_up_is_gone(home: Home) -> None:
    """No process holds the run at that moment: only the task itself can say that it is too late."""
    studio = Studio(retry=Retry(attempts=5, deadline="1s"))
    gone: list[SeverableStore] = []

    def through(store: Any) -> SeverableStore:
        gone.append(SeverableStore(store))
        return gone[0]

    async with home.holdfast(studio.pack, worker=False, duties=False) as client:
        store = client._replica.store
        async with home.holdfast(studio.pack, through=through, lease="600ms") as first:
            run = (await first.start(studio.thumbnail("cat.png"))).run
            await eventually(lambda: _is_due(store))
            gone[0].sever()
            await eventually(lambda: store.now_ms() > run.created_at.timestamp() * 1000 + 1_000)
            assert await tasks_of(client).claim([RESIZE], worker="w") == []
    async with home.holdfast(studio.pack) as second:
        with pytest.raises(RunFailed, match="its deadline was over before a worker claimed it"):
            await (await second.get(run.id)).result(timeout=PATIENCE_SECONDS)


async def _is_due(store: Store) -> bool:
    return bool(await store.due("default", [f"task/{RESIZE}"], 1))


# -- once


async def test_the_intent_of_a_once_effect_is_durable_before_its_task_is_out(home: Home) -> None:
    studio = Studio(safety="once")
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        handed = await claimed(hf)
        assert await journal_of(run) == [Started, Intended]
        await complete(hf, handed, "small")
        assert await run.result(timeout=PATIENCE_SECONDS) == "small"


async def test_a_once_task_that_is_out_is_joined_and_not_in_doubt(home: Home) -> None:
    studio = Studio(safety="once")
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        handed = await claimed(hf)
    async with home.holdfast(worker=False) as gateway:
        await complete(gateway, handed, "small")
    async with home.holdfast(studio.pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=PATIENCE_SECONDS) == "small"


async def test_a_once_task_that_did_not_end_in_time_blocks_the_run(home: Home) -> None:
    studio = Studio(safety="once", timeout="100ms")
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await claimed(hf, lease="60s")
        with pytest.raises(UnknownOutcome, match="it did not answer in time"):
            await run.result(timeout=PATIENCE_SECONDS)


async def test_a_once_task_whose_lease_ran_out_blocks_the_run(home: Home) -> None:
    studio = Studio(safety="once")
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        silent = await claimed(hf, lease="200ms")
        with pytest.raises(UnknownOutcome):
            await run.result(timeout=PATIENCE_SECONDS)
        assert await tasks_of(hf).claim([RESIZE], worker="w-2") == []
        with pytest.raises(NotAllowedNow, match="is not wanted any more"):
            await complete(hf, silent, "too late")


async def test_nobody_else_is_given_a_once_task_that_somebody_may_have_performed(home: Home) -> None:
    """Its lease runs out while nobody has the run."""
    studio = Studio(safety="once")
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await claimed(hf, lease="200ms")
    async with home.holdfast(worker=False) as gateway:
        await eventually(lambda: due(gateway))
        assert await tasks_of(gateway).claim([RESIZE], worker="w-2") == []
        assert await due(gateway) == 0
    async with home.holdfast(studio.pack) as hf:
        with pytest.raises(UnknownOutcome):
            await (await hf.get(run.id)).result(timeout=PATIENCE_SECONDS)


async def test_a_once_task_whose_lease_ran_out_is_reconciled(home: Home) -> None:
    studio = Studio(safety="once", reconcile=lambda key: f"{key} is there")
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await claimed(hf, lease="200ms")
        assert await run.result(timeout=PATIENCE_SECONDS) == "resize:cat.png is there"


async def test_a_once_task_nobody_can_find_is_reconciled_and_put_up_again_only_then(home: Home) -> None:
    asked: list[str] = []

    def ask(key: str) -> None:
        asked.append(key)
        raise NotPerformed

    studio = Studio(safety="once", timeout="100ms", reconcile=ask)
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        first = await claimed(hf, lease="60s")
        while True:
            again = await claimed(hf, lease="60s")
            assert set(asked) == {"resize:cat.png"}
            assert again.place == first.place
            try:
                await complete(hf, again, "small")
            except NotAllowedNow:  # a slow machine: it was out of time once more
                continue
            break
        assert await run.result(timeout=PATIENCE_SECONDS) == "small"


# -- cancellation


async def test_a_cancelled_run_withdraws_what_nobody_has_claimed_and_nothing_is_left(home: Home) -> None:
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await eventually(lambda: due(hf))
        receipt = await run.cancel()
        assert receipt.outcome == "no_effects"
        assert await tasks_of(hf).claim([RESIZE], worker="w") == []


async def test_a_worker_learns_of_the_cancellation_and_what_it_completes_all_the_same_is_undone(home: Home) -> None:
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        handed = await claimed(hf)
        cancelling = asyncio.create_task(run.cancel())
        await until_unwanted(hf, handed)
        await complete(hf, handed, "small")
        receipt = await cancelling
        assert receipt.outcome == "compensated"
        assert studio.taken_back == ["cat.png"]


@pytest.mark.parametrize("failures", [0, 1])
async def test_the_next_holder_takes_back_whichever_attempt_is_out_before_it_undoes(home: Home, failures: int) -> None:
    """The process of the run has gone while a worker is at it; the run is cancelled before somebody else has it."""
    studio = Studio(retry=Retry(attempts=3, base=0.0))
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        for _ in range(failures):
            await fail(hf, await claimed(hf))
        handed = await claimed(hf)
        assert handed.task.attempt == failures + 1
    async with home.holdfast(studio.pack, worker=False) as client:
        cancelling = await (await client.get(run.id)).ask_cancel()
        async with home.holdfast(studio.pack) as hf:
            await until_unwanted(hf, handed)
            await complete(hf, handed, "small")
            assert (await cancelling.receipt()).outcome == "compensated"
            assert Late in await journal_of(await hf.get(run.id)), "it was undone before it was known what came of it"
    assert studio.taken_back == ["cat.png"]


async def test_a_worker_that_stops_when_it_learns_of_the_cancellation_leaves_nothing_behind(home: Home) -> None:
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        handed = await claimed(hf)
        cancelling = asyncio.create_task(run.cancel())
        await until_unwanted(hf, handed)
        await fail(hf, handed, "Stopped", "nobody wants it")
        assert (await cancelling).outcome == "no_effects"


async def test_a_claimed_task_whose_worker_says_nothing_is_of_unknown_outcome(home: Home) -> None:
    studio = Studio(undo=None)
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        handed = await claimed(hf, lease="300ms")
        receipt = await run.cancel()
        assert receipt.outcome == "unknown"
        assert lefts(receipt) == {"resize:cat.png": "unknown"}
        with pytest.raises(NotAllowedNow, match="is not wanted any more"):
            await complete(hf, handed, "too late")


async def test_a_task_of_a_run_that_was_ended_by_force_is_not_handed_out(home: Home) -> None:
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await eventually(lambda: due(hf))
    async with home.holdfast(studio.pack, worker=False) as client:
        await (await client.get(run.id)).cancel(deadline=0)
        assert await tasks_of(client).claim([RESIZE], worker="w") == []


async def test_what_the_code_no_longer_waits_for_is_withdrawn_while_the_run_goes_on(home: Home) -> None:
    pack = Pack("studio")

    @pack.effect(remote=True)
    async def resize(image: str) -> str: ...

    @pack.workflow
    async def hasty(image: str) -> str:
        try:
            async with asyncio.timeout(0.05):
                return await resize(image)
        except TimeoutError:
            await sleep(0.01)
            return "as it is"

    async with home.holdfast(pack) as hf:
        run = (await hf.start(hasty("cat.png"))).run
        assert await run.result(timeout=PATIENCE_SECONDS) == "as it is"
        assert await tasks_of(hf).claim([RESIZE], worker="w") == []


async def until_unwanted(hf: Holdfast, handed: Handed) -> None:
    async def is_unwanted() -> bool:
        return not (await tasks_of(hf).heartbeat(handed.place.name, fence=handed.claim.fence)).wanted

    await eventually(is_unwanted)


async def due(hf: Holdfast) -> int:
    """How many tasks anybody could claim."""
    return len(await hf._replica._ports.store.due(hf.namespace, ["task/" + RESIZE], 10))


class Patient:
    """A workflow that stands still when it is cancelled."""

    def __init__(self) -> None:
        self.pack = Pack("studio")

        @self.pack.effect(remote=True)
        async def resize(image: str) -> str: ...

        @self.pack.workflow(outcomes=("no_effects", "resumable"))
        async def thumbnail(image: str) -> str:
            small = await resize(image)
            await sleep(0.01)
            return small

        self.thumbnail = thumbnail


async def test_a_paused_run_withdraws_its_task_and_puts_it_up_again_when_it_is_resumed(home: Home) -> None:
    patient = Patient()
    async with home.holdfast(patient.pack) as hf:
        run = (await hf.start(patient.thumbnail("cat.png"))).run
        await eventually(lambda: due(hf))
        assert (await run.cancel()).outcome == "no_effects"
        assert await due(hf) == 0
        resumed = await run.resume()
        handed = await claimed(hf)
        assert handed.task.attempt == 1
        await complete(hf, handed, "small")
        assert await resumed.result(timeout=PATIENCE_SECONDS) == "small"


async def test_what_a_worker_completes_while_its_run_is_paused_is_not_performed_again(home: Home) -> None:
    patient = Patient()
    async with home.holdfast(patient.pack) as hf:
        run = (await hf.start(patient.thumbnail("cat.png"))).run
        handed = await claimed(hf)
        cancelling = asyncio.create_task(run.cancel())
        await until_unwanted(hf, handed)
        await complete(hf, handed, "small")
        assert (await cancelling).outcome == "resumable"
        assert await (await run.resume()).result(timeout=PATIENCE_SECONDS) == "small"


async def test_an_undo_may_be_remote_too(home: Home) -> None:
    pack = Pack("studio")

    @pack.effect(remote=True)
    async def remove(image: str, result: str) -> None: ...

    @pack.effect(undo=remove, remote=True)
    async def resize(image: str) -> str: ...

    @pack.workflow
    async def thumbnail(image: str) -> str:
        small = await resize(image)
        await sleep("1h")
        return small

    async with home.holdfast(pack) as hf:
        run = (await hf.start(thumbnail("cat.png"))).run
        await complete(hf, await claimed(hf), "small")

        async def is_recorded() -> bool:
            return Performed in await journal_of(run)

        await eventually(is_recorded)
        cancelling = asyncio.create_task(run.cancel())
        undoing = await claimed(hf, "studio.remove")
        assert msgspec.json.decode(undoing.task.input) == {"image": "cat.png", "result": "small"}
        await complete(hf, undoing, None)
        assert (await cancelling).outcome == "compensated"


# -- trouble with the store


async def test_replies_that_are_lost_change_nothing(home: Home) -> None:
    """Every write and every read of a task is carried out, and its first reply lost."""
    studio, lost = Studio(), set[tuple[str, int]]()

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        if name not in {"write", "document"}:
            return False
        call = (name, len(args[0][0].document.body) if name == "write" else 0)
        is_first = call not in lost
        lost.add(call)
        return is_first

    async with home.holdfast(studio.pack, through=lambda store: LossyStore(store, loses)) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        async with home.holdfast(worker=False) as gateway:
            handed = await claimed(gateway)
            await complete(gateway, handed, "small")
            assert await run.result(timeout=PATIENCE_SECONDS) == "small"
        assert {name for name, _ in lost} == {"write", "document"}
        assert await journal_of(run) == [Started, Performed, Completed]


async def test_a_worker_whose_reply_was_lost_says_it_again(home: Home) -> None:
    studio, store = Studio(), None

    def through(inner: Any) -> LossyStore:
        nonlocal store
        store = LossyStore(inner, lambda name, _: name == "write" and not store.lost)
        return store

    async with home.holdfast(studio.pack) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        handed = await claimed(hf)
        async with home.holdfast(worker=False, through=through) as gateway:
            with pytest.raises(StoreUnavailable):
                await complete(gateway, handed, "small")
            await complete(gateway, handed, "small")
        assert await run.result(timeout=PATIENCE_SECONDS) == "small"


async def test_an_outcome_is_kept_for_long_until_it_is_recorded(home: Home) -> None:
    """Whoever has the run after a crash, days later, must find it."""
    studio, stores = Studio(), list[GatedStore]()

    def through(inner: Store) -> GatedStore:
        stores.append(GatedStore(inner, records_the_outcome))
        return stores[0]

    def records_the_outcome(changes: Sequence[Change]) -> bool:
        return any(isinstance(entry, Performed) for change in changes for entry in change.entries)

    async with home.holdfast(studio.pack, through=through) as hf:
        [store] = stores
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        handed = await claimed(hf)

        async def kept_ms() -> int:
            task = await store.document(hf.namespace, handed.place.kind, handed.place.id)
            return task.expires_at_ms - store.now_ms()

        async def is_let_go() -> bool:
            return await kept_ms() <= HEARD_KEPT_MS

        await complete(hf, handed, "small")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await store.reached.wait()
        await asyncio.sleep(0.05)  # of no use to wait for: nothing happens, that is the point
        assert await kept_ms() > DONE_KEPT_MS / 2
        store.gate.set()
        assert await run.result(timeout=PATIENCE_SECONDS) == "small"
        await eventually(is_let_go)


class Answering(StoreWrapper):
    """Counts how often it has said what can be claimed."""

    answers = 0

    async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
        answer = await verb(*args)
        self.answers += name == "due"
        return answer


async def test_a_worker_that_was_rung_for_and_took_another_task_passes_the_bell_on(sqlite_home: SqliteHome) -> None:
    """Two tasks come together. One worker serves both effects and takes one: the other one must hear of the second."""
    studio, stores = Studio(), list[Answering]()

    def through(inner: Store) -> Answering:
        stores.append(Answering(inner))
        return stores[0]

    async with sqlite_home.holdfast(studio.pack, through=through) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        await claimed(hf)
        [store], tasks = stores, tasks_of(hf)
        store.answers = 0
        either = asyncio.create_task(tasks.claim(["studio.a", "studio.z"], worker="w-1", wait="1h"))
        await eventually(lambda: store.answers == 1)
        other = asyncio.create_task(tasks.claim(["studio.z"], worker="w-2", wait="1h"))
        await eventually(lambda: store.answers == 2)
        await hf._replica._task_watch.write([offered(store, run.id, effect) for effect in ("studio.z", "studio.a")])
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [handed.place.effect for handed in await either] == ["studio.a"]
            assert [handed.place.effect for handed in await other] == ["studio.z"]


def offered(store: Any, run_id: str, effect: str) -> Writing:
    """A task of this run, as if it had asked for that effect. Those of the same call are due at the same time."""
    now_ms = store.now_ms() // 1000 * 1000
    writing = offer(
        None, TaskPlace("default", effect, "t"), Task(run_id, "key", 1, "{}"), in_doubt=False, now_ms=now_ms
    )
    assert writing is not None
    return writing


@pytest.mark.parametrize("body", [b'{"v":2}', b'"\xff"'])
async def test_a_task_that_cannot_be_read_holds_up_no_other(home: Home, body: bytes) -> None:
    """A newer version has put it up, say. It is left as it is, and reported."""
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        store = hf._replica._ports.store
        strange = Document(hf.namespace, "task/" + RESIZE, "strange", 1, body, due_at_ms=1)
        assert await store.write([Writing(strange)]) == [True]
        await hf.start(studio.thumbnail("cat.png"))
        handed = await claimed(hf)
        assert handed.task.key == "resize:cat.png"
        assert await tasks_of(hf).claim([RESIZE], worker="w-2") == []
        [failed] = heard(hf).all(PartFailed)
        assert (failed.part, "studio.resize.strange cannot be read" in failed.message) == ("claim", True)
        kept = await store.document(hf.namespace, strange.kind, strange.id)
        assert kept is not None
        assert kept.body == body


class Garbled(StoreWrapper):
    """Answers documents that nobody can read."""

    async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
        return Document(*args, version=1, body=b"{}") if name == "document" else await verb(*args)


async def test_a_task_that_cannot_be_read_fails_the_attempt(home: Home) -> None:
    studio = Studio(retry=Retry(attempts=1))
    async with home.holdfast(studio.pack, through=Garbled) as hf:
        run = (await hf.start(studio.thumbnail("cat.png"))).run
        with pytest.raises(RunFailed, match="ValidationError"):
            await run.result(timeout=PATIENCE_SECONDS)


async def test_what_was_dropped_is_taken_back_by_the_next_process_if_the_first_could_not(home: Home) -> None:
    pack = Pack("studio")

    @pack.effect(remote=True)
    async def resize(image: str) -> str: ...

    @pack.effect
    async def note() -> None: ...

    @pack.workflow
    async def hasty(image: str) -> None:
        async def shrink() -> str:
            return await resize(image)

        shrinking = asyncio.create_task(shrink())
        await hook("enough")
        shrinking.cancel()
        await note()
        await hook("never")

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        return name == "write" and args[0][0].replaces is not None  # it can offer, and not withdraw

    async with home.holdfast(pack, through=lambda store: LossyStore(store, loses, before=True)) as hf:
        run = (await hf.start(hasty("cat.png"))).run
        await eventually(lambda: due(hf))
        await run.signal("enough", None)
        await heard(hf).until(EffectPerformed)
        assert await due(hf) == 1
    async with home.holdfast(pack) as hf:
        await (await hf.get(run.id)).signal("other", 1)  # so that somebody takes it up

        async def is_withdrawn() -> bool:
            return await due(hf) == 0

        await eventually(is_withdrawn)


# -- mistakes


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"worker": ""}, "worker name"),
        ({"limit": 0}, "limit=0 is out of range"),
        ({"limit": 101}, "limit=101 is out of range"),
        ({"lease": "10ms"}, "10 ms is too short"),
        ({"lease": "2h"}, "is too long"),
        ({"wait": "soon"}, "not a duration"),
    ],
)
async def test_a_claim_that_makes_no_sense_is_refused(home: Home, wrong: dict[str, Any], why: str) -> None:
    async with home.holdfast(worker=False) as hf:
        with pytest.raises(UsageError, match=why):
            await tasks_of(hf).claim([RESIZE], **({"worker": "w"} | wrong))
        with pytest.raises(UsageError, match="0 effects"):
            await tasks_of(hf).claim([], worker="w")


@pytest.mark.parametrize("name", ["", "x", "studio.resize.unknown", "a.b.c.d"])
async def test_an_unknown_task_is_named(home: Home, name: str) -> None:
    async with home.holdfast(worker=False) as hf:
        with pytest.raises(UnknownTask, match="there is no task"):
            await tasks_of(hf).complete(name, fence=1, result=json(1))


async def test_tasks_of_another_namespace_are_not_seen(home: Home) -> None:
    studio = Studio()
    async with home.holdfast(studio.pack) as hf:
        await hf.start(studio.thumbnail("cat.png"))
        handed = await claimed(hf)
        others = hf.runtime.tasks_in("another")
        assert await others.claim([RESIZE], worker="w") == []
        with pytest.raises(UnknownTask):
            await others.complete(handed.place.name, fence=handed.claim.fence, result=json("theirs"))


def test_remote_is_yes_or_no() -> None:
    with pytest.raises(UsageError, match="remote='yes'"):
        Pack("p").effect(remote="yes")  # pyright: ignore[reportArgumentType, reportCallIssue]
