"""What things cost, counted in calls to the store and not in time (E13, K15, idleness, the budget of DESIGN 3.1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from holdfast import Pack, hook, sleep
from holdfast.events import RunLetGo
from holdfast.kernel import starts, transitions
from holdfast.kernel.changes import Change, Committed
from holdfast.kernel.journal import Value
from holdfast.kernel.runs import Status
from holdfast.kernel.starts import Hand, Wanted
from holdfast.ports.store import Store
from tests.integration.conftest import Home, SqliteHome, eventually, heard, worker_of
from tests.integration.wrappers import READS, CountingStore

WAITING = 10_000


@pytest.fixture
def pushed_only() -> None:
    """Here the safety polls are part of what is counted."""


def _counted(home: Home, *packs: Pack, **options: Any) -> tuple[Any, CountingStore]:
    counting: list[CountingStore] = []

    def through(store: Store) -> CountingStore:
        counting.append(CountingStore(store))
        return counting[0]

    hf = home.holdfast(*packs, through=through, **options)
    return hf, counting[0]


def _sequence() -> tuple[Pack, Any]:
    pack = Pack("p")

    @pack.effect
    async def step(n: int) -> int:
        return n

    @pack.workflow(key="k:{name}")
    async def work(name: str, count: int) -> int:
        return sum([await step(n) for n in range(count)])

    return pack, work


@pytest.mark.parametrize("effects", [0, 1, 5])
async def test_a_run_with_n_effects_costs_n_plus_one_commits_and_is_never_read_back(home: Home, effects: int) -> None:
    pack, work = _sequence()
    hf, store = _counted(home, pack)
    async with hf:
        await _settled(store)
        before = store.calls.copy()
        run = (await hf.start(work("a", effects))).run
        await run.result(timeout=30)
        spent = store.calls - before
    # A run without effects still has to record its outcome.
    assert spent["commit"] == 1 + max(1, effects)
    assert len([change for change in store.changes if change.run and change.run.id == run.id]) == spent["commit"]
    assert (spent["histories"], spent["claim"], spent["blob"], spent["held"]) == (0, 0, 0, 0)


async def test_effect_2000_costs_what_effect_100_cost(home: Home) -> None:
    """E13: the number of calls per effect, and what they carry, are constant."""
    pack, work = _sequence()
    hf, store = _counted(home, pack)
    async with hf:
        run = (await hf.start(work("a", 2_000))).run
        assert await run.result(timeout=60) == sum(range(2_000))
    changes = [change for change in store.changes if change.run is not None and change.run.id == run.id]
    assert [len(change.entries) for change in changes] == [1] * 2_000 + [2]
    assert store.calls["commit"] == 2_001
    assert (store.calls["histories"], store.calls["claim"], store.calls["blob"]) == (0, 0, 0)
    by_the_clock = sum(store.calls[verb] for verb in ("write", "named", "relay", "prune", "rescue", "renew", "held"))
    assert sum(store.calls.values()) - by_the_clock <= 3 * 2_001 + 20, store.calls


async def test_a_replay_reads_the_journal_once_however_long_it_is(home: Home) -> None:
    """E13: recovery reads once, and begins nothing that is recorded."""
    pack = Pack("p")
    begun: list[int] = []

    @pack.effect
    async def step(n: int) -> int:
        begun.append(n)
        return n

    @pack.workflow
    async def work() -> int:
        total = sum([await step(n) for n in range(300)])
        await hook("go")
        return total

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await eventually(lambda: len(begun) == 300)
    async with home.holdfast(pack, worker=False) as client:
        await (await client.get(run.id)).signal("go", 1)
    hf, store = _counted(home, pack)
    async with hf:
        assert await (await hf.get(run.id)).result(timeout=30) == sum(range(300))
        assert store.calls["histories"] == 1
        assert store.calls["commit"] == 1
    assert begun == list(range(300))


async def _settled(store: CountingStore) -> None:
    """Wait until the first looks of all duties are over."""
    await eventually(lambda: store.calls["next_wake_at_ms"] and store.calls["prune"] and store.calls["rescue"])
    for _ in range(20):
        await asyncio.sleep(0)


# -- K15


async def _fill(store: Store, count: int) -> None:
    """So many runs that wait: half of them for a far timer, half for a child that is not there yet."""
    await store.open()
    now_ms = store.now_ms()
    for start in range(0, count, 1_000):
        admissions = [
            starts.admission(_wanted(n), now_ms=now_ms, hand=Hand("somebody", "n"))
            for n in range(start, min(count, start + 1_000))
        ]
        answers = await store.commit(admissions)
        waits: list[Change] = []
        for n, answer in enumerate(answers):
            assert isinstance(answer, Committed)
            assert answer.run is not None
            wake_at_ms = now_ms + 86_400_000 + n if n % 2 else None
            waits.append(transitions.decide(answer.run, transitions.LetGo(wake_at_ms), now_ms=now_ms))
        await store.commit(waits)


def _wanted(n: int) -> Wanted:
    return Wanted(
        run_id=f"{n:032x}",
        namespace="default",
        workflow="p.long",
        key=f"long:{n}",
        queue="default",
        priority=n % 3,
        delay_ms=0,
        retention_ms=1_000,
        digest="d",
        request_id=f"r-{n}",
        input=Value(Raw(b"{}")),
    )


async def test_a_restart_with_10000_waiting_runs_looks_at_none_of_them(home: Home) -> None:
    """K15: no replay, no claim, no query per run; new work goes on beside them."""
    pack, work = _sequence()

    @pack.workflow
    async def long() -> None:
        await sleep("1d")

    store = home.store()
    await _fill(store, WAITING)
    if isinstance(home, SqliteHome):
        await store.close()
    hf, counting = _counted(home, pack)
    async with hf:
        await _settled(counting)
        assert await (await hf.start(work("new", 3))).run.result(timeout=30) == 3
        assert counting.claimed == []
        assert counting.calls["histories"] == 0
        assert counting.calls["commit"] == 4
        assert sum(counting.calls.values()) < 40, counting.calls
        inner = counting.inner
        sample = await inner.runs([f"{n:032x}" for n in range(0, WAITING, 97)])
        assert {(run.status, run.epoch, run.length) for run in sample} == {(Status.WAITING, 1, 1)}


# -- idleness


async def test_an_idle_worker_asks_little_and_writes_nothing(home: Home) -> None:
    """Beyond `data_version` it asks only by its slow polls, one question each; the lease is not due for renewal."""
    polls = 8
    home.paced(wake_poll_seconds=0.1, waiters_poll_seconds=0.1)
    pack = Pack("p")

    @pack.workflow
    async def long(n: int) -> None:
        await sleep("1d")

    waiting = 20
    hf, store = _counted(home, pack)
    async with hf:
        seen = heard(hf)
        for n in range(waiting):
            await hf.start(long(n))
        await seen.until(RunLetGo, count=waiting)
        await _settled(store)
        await _polled(store, 1)  # what was just committed may still be looked at once
        before = store.calls.copy()
        await _polled(store, polls)
        spent = store.calls - before
    reads = sum(spent[name] for name in READS | {"prune", "rescue", "claim"})
    assert reads <= polls + 2, spent
    assert spent["commit"] + spent["renew"] + spent["join"] + spent["leave"] == 0, spent


async def _polled(store: CountingStore, times: int) -> None:
    """Wait until the safety poll for due runs has come so many times more."""
    already = store.calls["next_wake_at_ms"]
    await eventually(lambda: store.calls["next_wake_at_ms"] >= already + times)


async def test_an_idle_workers_file_does_not_change_but_for_its_lease(sqlite_home: SqliteHome) -> None:
    pack, work = _sequence()
    hf, store = _counted(sqlite_home, pack, lease="1500ms")
    async with hf:
        await (await hf.start(work("a", 1))).run.result(timeout=30)
        await _settled(store)
        before, calls = sqlite_home.rows(), store.calls.copy()
        await eventually(lambda: (store.calls - calls)["renew"] >= 3)
        spent = store.calls - calls
        assert sqlite_home.rows() == before
        assert spent["commit"] + spent["join"] + spent["leave"] == 0
        assert spent["renew"] <= 4
        # Each renewal is a commit that others may have to look at; no more than one look follows it.
        assert spent["next_wake_at_ms"] + spent["runs"] + spent["messages"] <= 2 * spent["renew"] + 2, spent


async def test_a_waiting_run_costs_no_memory_and_no_slot(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def long(n: int) -> None:
        await sleep("1d")

    async with home.holdfast(pack, concurrency=2) as hf:
        seen = heard(hf)
        for n in range(20):
            await hf.start(long(n))
        await seen.until(RunLetGo, count=20)
        await eventually(lambda: not worker_of(hf).held and worker_of(hf).slots.has_room)
