"""`run.retry()`: a failed or blocked run goes on from its last record; everything recorded stays (C10 in part)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from holdfast import NotAllowedNow, Pack, Retry, RunFailed, attempt, hook, sleep
from holdfast.errors import ReplayDiverged, WaitsForNothing
from holdfast.events import RunEnded, RunRetried
from holdfast.kernel.journal import Retried, Spawned
from tests.integration.conftest import Home, eventually, heard


class Works:
    """Three effects in a row, of which the second may be broken; a child that may be broken too."""

    def __init__(self) -> None:
        self.pack = Pack("works")
        self.broken = True
        self.ledger: Counter[str] = Counter()
        self.attempts: list[int] = []

        @self.pack.effect(retry=Retry(attempts=2, base=0))
        async def act(name: str) -> str:
            self.ledger[name] += 1
            if name == "second":
                self.attempts.append(attempt())
                if self.broken:
                    raise OSError("broken")
            return name

        @self.pack.workflow(key="k")
        async def work() -> list[str]:
            return [await act("first"), await act("second"), await act("third")]

        @self.pack.workflow(key="child")
        async def child() -> str:
            return await act("second")

        @self.pack.workflow
        async def parent() -> str:
            return "parent of " + await child()

        self.act, self.work, self.child, self.parent = act, work, child, parent


async def test_a_failed_run_is_tried_again_from_its_last_record(home: Home) -> None:
    works = Works()
    async with home.holdfast(works.pack) as hf:
        seen = heard(hf)
        run = (await hf.start(works.work())).run
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        works.broken = False
        again = await (await run.refresh()).retry()
        assert again.id == run.id
        assert again.fence > run.fence
        assert await again.result(timeout=30) == ["first", "second", "third"]
        assert seen.all(RunRetried, run_id=run.id)
        assert any(isinstance(entry, Retried) for entry in await again.journal())
        found = await hf.find(works.work, "k")
        assert (found.id, found.status) == (run.id, "completed")
    assert works.ledger == {"first": 1, "second": 3, "third": 1}
    assert works.attempts == [1, 2, 1]  # the step starts afresh


async def test_a_retried_run_may_fail_and_be_retried_again(home: Home) -> None:
    works = Works()
    async with home.holdfast(works.pack) as hf:
        run = (await hf.start(works.work())).run
        for _ in range(3):
            with pytest.raises(RunFailed):
                await run.result(timeout=30)
            run = await (await run.refresh()).retry()
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        works.broken = False
        run = await (await run.refresh()).retry()
        assert await run.result(timeout=30) == ["first", "second", "third"]
    assert works.ledger["first"] == 1


async def test_a_retry_in_another_process_is_taken_up_by_a_worker(home: Home) -> None:
    works = Works()
    async with home.holdfast(works.pack) as hf, home.holdfast(works.pack, worker=False) as client:
        run = (await client.start(works.work())).run
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        works.broken = False
        run = await (await client.get(run.id)).retry()
        assert await run.result(timeout=30) == ["first", "second", "third"]
        assert hf is not client


async def test_a_run_that_failed_in_its_own_code_runs_it_again(home: Home) -> None:
    pack = Pack("p")
    broken = True
    ledger: Counter[str] = Counter()

    @pack.effect
    async def act() -> str:
        ledger["act"] += 1
        return "acted"

    @pack.workflow
    async def work() -> str:
        result = await act()
        if broken:
            raise ValueError("a bug")
        return result

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        broken = False
        run = await (await run.refresh()).retry()
        assert await run.result(timeout=30) == "acted"
    assert ledger == {"act": 1}


@pytest.mark.parametrize("status", ["running", "waiting", "completed", "cancelled"])
async def test_only_a_failed_or_blocked_run_can_be_retried(home: Home, status: str) -> None:
    pack = Pack("p")
    gate = asyncio.Event()

    @pack.effect
    async def hold() -> None:
        await gate.wait()

    @pack.workflow
    async def work() -> None:
        match status:
            case "running":
                await hold()
            case "waiting":
                await sleep("1d")
            case "cancelled":
                raise asyncio.CancelledError
            case _:
                return

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await eventually(lambda: _status_is(run, status))
        with pytest.raises(NotAllowedNow) as caught:
            await run.retry()
        assert status in caught.value.message
        assert caught.value.hint
        gate.set()


async def _status_is(run: Any, status: str) -> bool:
    return (await run.refresh()).status == status


async def test_many_retries_at_once_are_one(home: Home) -> None:
    works = Works()
    async with home.holdfast(works.pack) as hf:
        run = (await hf.start(works.work())).run
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        works.broken = False
        run = await run.refresh()
        await asyncio.gather(*(run.retry() for _ in range(8)), return_exceptions=True)
        assert await (await run.refresh()).result(timeout=30) == ["first", "second", "third"]
        assert len([entry for entry in await run.journal() if isinstance(entry, Retried)]) == 1
    assert works.ledger == {"first": 1, "second": 3, "third": 1}


async def test_a_run_whose_key_a_successor_has_cannot_be_retried(home: Home) -> None:
    works = Works()
    async with home.holdfast(works.pack, duties=False) as hf:  # nothing is pruned while the test looks
        run = (await hf.start(works.work(), retention=0)).run
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        works.broken = False
        await eventually(lambda: _started_anew(hf, works, run.id))
        run = await run.refresh()
        with pytest.raises(NotAllowedNow, match="key"):
            await run.retry()
    assert works.ledger["third"] == 1


async def _started_anew(hf: Any, works: Works, former: str) -> bool:
    """Starts until the former run's retention is over, and the new one's result is there."""
    run = (await hf.start(works.work())).run
    if run.id == former:
        return False
    return await run.result(timeout=30) == ["first", "second", "third"]


async def test_a_parent_and_its_failed_child_are_retried_child_first(home: Home) -> None:
    works = Works()
    async with home.holdfast(works.pack) as hf:
        run = (await hf.start(works.parent())).run
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        works.broken = False
        child = await (await hf.find(works.child, "child")).retry()
        assert await child.result(timeout=30) == "second"
        run = await (await run.refresh()).retry()
        assert await run.result(timeout=30) == "parent of second"


async def test_a_child_that_ends_while_its_parent_is_failed_is_not_lost(home: Home) -> None:
    """gather(broken, slow): the parent fails first; when it is retried, the slow one has long ended."""
    works = Works()
    gate = asyncio.Event()

    @works.pack.effect
    async def wait_for_gate() -> str:
        await gate.wait()
        return "slow"

    @works.pack.workflow
    async def slow() -> str:
        return await wait_for_gate()

    @works.pack.workflow
    async def both() -> list[str]:
        async def later() -> str:
            await sleep(0.05)
            return await works.act("second")

        return await asyncio.gather(later(), slow())

    async with home.holdfast(works.pack) as hf:
        seen = heard(hf)
        run = (await hf.start(both())).run
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        assert any(isinstance(entry, Spawned) for entry in await run.journal())
        works.broken = False
        gate.set()
        await seen.until(RunEnded, workflow="works.slow")
        run = await (await run.refresh()).retry()
        assert await run.result(timeout=30) == ["second", "slow"]


# -- blocked runs


async def test_code_that_contradicts_the_journal_blocks_and_the_right_code_goes_on(home: Home) -> None:
    def pack(version: int) -> tuple[Pack, Any]:
        pack = Pack("p")

        @pack.effect
        async def first() -> str:
            return "first"

        @pack.effect
        async def other() -> str:
            return "other"

        @pack.workflow
        async def work() -> str:
            result = await (first() if version != 2 else other())
            await hook("go")
            return f"{result} {version}"

        return pack, work

    one, work = pack(1)
    async with home.holdfast(one) as hf:
        run = (await hf.start(work())).run
        await eventually(lambda: _length_is(run, 2))
    async with home.holdfast(pack(2)[0]) as hf:
        run = await hf.get(run.id)
        await run.signal("go", 1)
        with pytest.raises(ReplayDiverged) as caught:
            await run.result(timeout=30)
        assert "first#1" in caught.value.message
        assert "other#1" in caught.value.message
        assert "test_retry_of_runs.py:" in caught.value.message
        assert (await run.refresh()).status == "blocked"
    async with home.holdfast(pack(3)[0]) as hf:
        run = await (await hf.get(run.id)).retry()
        assert await run.result(timeout=30) == "first 3"


async def _length_is(run: Any, length: int) -> bool:
    return len(await run.journal()) >= length


async def test_a_workflow_that_waits_for_nothing_is_blocked_and_says_where(home: Home) -> None:
    pack = Pack("p")
    fixed = False

    @pack.workflow
    async def work() -> str:
        if not fixed:
            await asyncio.Event().wait()
        return "done"

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        with pytest.raises(WaitsForNothing) as caught:
            await run.result(timeout=30)
        assert "test_retry_of_runs.py:" in caught.value.message
        assert caught.value.hint
        fixed = True
        run = await (await run.refresh()).retry()
        assert await run.result(timeout=30) == "done"


async def test_a_deadlock_of_two_tasks_is_found(home: Home) -> None:
    pack = Pack("p")

    @pack.effect
    async def act() -> None: ...

    @pack.workflow
    async def work() -> None:
        one, two = asyncio.Lock(), asyncio.Lock()

        async def left() -> None:
            async with one:
                await act()
                async with two:
                    pass

        async def right() -> None:
            async with two:
                await act()
                async with one:
                    pass

        await asyncio.gather(left(), right())

    async with home.holdfast(pack) as hf:
        with pytest.raises(WaitsForNothing):
            await (await hf.start(work())).run.result(timeout=30)
