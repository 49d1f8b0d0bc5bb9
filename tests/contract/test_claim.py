"""Claiming: the one selection a store makes. Each run goes to one claimer, the most urgent first."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast.kernel import attributes
from holdfast.kernel.runs import Status
from holdfast.kernel.times import Millis
from holdfast.ports.store import Claim, Claimed, Store
from holdfast.stores.sqlite.pace import SqlitePace
from tests.builders import FakeClock, performed
from tests.contract.conftest import Backend, SqliteBackend
from tests.contract.helpers import (
    A_BLOB,
    WORKFLOW,
    admitted,
    beat,
    blockage,
    claim,
    committed,
    completion,
    database,
    held,
    history,
    let_go,
    offer,
    progress,
    refused,
    replaces_journal,
    retry,
    signalled,
)


async def test_a_claimed_run_belongs_to_the_claimer_at_the_next_epoch(store: Store, clock: FakeClock) -> None:
    await admitted(store)
    clock.advance(250)
    [run] = await claim(store, "w-1")
    assert (run.status, run.owner, run.nonce, run.epoch) == (Status.RUNNING, "w-1", "nonce-of-w-1", 1)
    assert (run.wake_at_ms, run.started_at_ms) == (None, store.now_ms())
    assert await store.run("default", "run-1") == run
    assert await store.held("w-1") == ["run-1"]


async def _ready_in_every_way(store: Store) -> None:
    """Runs that were never executed, and runs that were; some have messages, or large inputs."""
    await admitted(store, "fresh", key=None)
    await admitted(store, "large", key=None, blobs=(A_BLOB,), attributes=attributes.encode({"total": 12}))
    await admitted(store, "told", key=None)
    await signalled(store, "told")
    run = await held(store, "let-go", key=None)
    run = await committed(store, progress(store, run, performed("charge#1")))
    await committed(store, let_go(store, run, wake_at_ms=store.now_ms()))
    run = await held(store, "left", key=None, owner="leaves")
    await offer(store, beat(run))
    run = await held(store, "again", key=None, owner="leaves")
    await committed(store, replaces_journal(store, run))
    run = await committed(store, blockage(store, await held(store, "tried", key=None)))
    await committed(store, await retry(store, run))
    await store.leave("leaves")


async def test_a_history_that_a_claim_brings_along_is_the_history(store: Store) -> None:
    await _ready_in_every_way(store)
    claimed = await store.claim(Claim("default", "w-1", "nonce", (WORKFLOW,), 100))
    assert {run.id for run in claimed.runs} == {"fresh", "large", "told", "let-go", "left", "again", "tried"}
    for brought in claimed.histories:
        assert brought == await history(store, brought.run.id)


async def test_a_run_that_was_never_executed_comes_with_its_history(sqlite: SqliteBackend) -> None:
    """It saves a hand-over to another thread, for which a caller in another process would wait."""
    store = await sqlite.another()
    await _ready_in_every_way(store)
    claimed = await store.claim(Claim("default", "w-1", "nonce", (WORKFLOW,), 100))
    assert {brought.run.id for brought in claimed.histories} == {"fresh", "large"}


@pytest.mark.parametrize(
    "entries",
    [
        b'[{"what":"teleported"}]',
        b'[{"what":"started","at_ms":1,"input":{"blob":"\xff"}}]',
        b'[{"what":"started","at_ms":1,"input":{"json":' + b"[" * 5_000 + b"]" * 5_000 + b"}}]",
    ],
    ids=["of a newer version", "no UTF-8", "nested too deeply"],
)
async def test_a_run_whose_journal_cannot_be_read_is_claimed_without_it(sqlite: SqliteBackend, entries: bytes) -> None:
    store = await sqlite.another()
    await admitted(store, "odd", key=None)
    await admitted(store, "longer", key=None)
    await admitted(store, "fine", key=None)
    db = database(sqlite.path)
    db.execute("UPDATE runs SET length = 2 WHERE id = 'longer'")
    db.execute("UPDATE journal SET entries = :entries WHERE run_id = 'odd'", {"entries": entries})
    db.close()
    claimed = await store.claim(Claim("default", "w-1", "nonce", (WORKFLOW,), 100))
    assert len(claimed.runs) == 3
    assert [brought.run.id for brought in claimed.histories] == ["fine"]


async def test_a_claim_that_can_bring_nothing_waits_for_no_lock(sqlite: SqliteBackend) -> None:
    sqlite.pace = SqlitePace(busy_ms=Millis(20))
    store = await sqlite.another()
    await admitted(store, "later", key=None, delay_ms=60_000)
    other = database(sqlite.path)
    other.execute("BEGIN IMMEDIATE")
    assert await claim(store) == []
    other.execute("ROLLBACK")
    other.close()


async def test_a_claimed_run_is_not_claimed_again(store: Store) -> None:
    await admitted(store)
    assert len(await claim(store, "w-1")) == 1
    assert await claim(store, "w-1") == []
    assert await claim(store, "w-2") == []


async def test_the_claimer_may_write_and_the_former_holder_may_not(store: Store) -> None:
    former = await held(store, owner="w-1")
    await store.leave("w-1")
    [run] = await claim(store, "w-2")
    assert await refused(store, progress(store, former, performed())) == run
    await committed(store, progress(store, run, performed()))


async def test_higher_priority_goes_first_then_who_was_ready_first(store: Store, clock: FakeClock) -> None:
    for run_id, priority in [("low", -5), ("mid-1", 0), ("high", 7), ("mid-2", 0), ("top", 1_000_000)]:
        await admitted(store, run_id, key=run_id, priority=priority)
        clock.advance(10)
    assert [run.id for run in await claim(store)] == ["top", "high", "mid-1", "mid-2", "low"]


async def test_a_claim_says_since_when_the_first_of_its_runs_was_ready(store: Store, clock: FakeClock) -> None:
    wish = Claim("default", "w-1", "n-1", (WORKFLOW, "shop.refund"), 2)
    assert await store.claim(wish) == Claimed([], None)
    await admitted(store, "later", key=None, delay_ms=60_000)
    assert await store.claim(wish) == Claimed([], None)
    start_at_ms = store.now_ms()
    for run_id, workflow, priority in [("low", WORKFLOW, -1), ("mid", "shop.refund", 0), ("high", WORKFLOW, 9)]:
        await admitted(store, run_id, key=None, workflow=workflow, priority=priority)
        clock.advance(10)
    claimed = await store.claim(wish)
    assert ([run.id for run in claimed.runs], claimed.ready_at_ms) == (["high", "mid"], start_at_ms + 10)
    claimed = await store.claim(wish)
    assert ([run.id for run in claimed.runs], claimed.ready_at_ms) == (["low"], start_at_ms)


async def test_readiness_counts_and_not_admission(store: Store, clock: FakeClock) -> None:
    await admitted(store, "first-admitted", key="a", delay_ms=100)
    clock.advance(10)
    await admitted(store, "first-ready", key="b", delay_ms=0)
    clock.advance(200)
    assert [run.id for run in await claim(store)] == ["first-ready", "first-admitted"]


async def test_the_limit_is_kept_and_takes_the_most_urgent(store: Store, clock: FakeClock) -> None:
    for n in range(10):
        await admitted(store, f"run-{n}", key=f"{n}", priority=n % 3)
        clock.advance(1)
    assert [run.id for run in await claim(store, limit=4)] == ["run-2", "run-5", "run-8", "run-1"]
    assert [run.id for run in await claim(store, limit=1)] == ["run-4"]
    assert await claim(store, limit=0) == []
    assert len(await claim(store)) == 5


async def test_the_limit_holds_over_all_workflows_together(store: Store, clock: FakeClock) -> None:
    for n in range(12):
        await admitted(store, f"run-{n:02}", key=f"{n}", workflow=f"shop.w{n % 3}", priority=n % 2)
        clock.advance(1)
    both = ("shop.w0", "shop.w1", "shop.w2")
    claimed = await claim(store, limit=7, workflows=both)
    assert [run.id for run in claimed] == ["run-01", "run-03", "run-05", "run-07", "run-09", "run-11", "run-00"]


async def test_only_the_named_workflows_are_claimed(store: Store) -> None:
    await admitted(store, "run-1", workflow="shop.checkout")
    await admitted(store, "run-2", workflow="shop.refund")
    await admitted(store, "run-3", workflow="shop.checkout2")
    assert await claim(store, workflows=()) == []
    assert [run.id for run in await claim(store, workflows=("shop.refund", "shop.unknown"))] == ["run-2"]


async def test_only_the_named_namespace_is_claimed(store: Store) -> None:
    await admitted(store, "run-1", namespace="default")
    await admitted(store, "run-2", namespace="tenant")
    assert [run.id for run in await claim(store, namespace="tenant")] == ["run-2"]
    assert await claim(store, namespace="tenant") == []


async def test_a_run_is_not_claimed_before_its_time(store: Store, clock: FakeClock) -> None:
    await admitted(store, delay_ms=1_000)
    clock.advance(999)
    assert await claim(store) == []
    clock.advance(1)
    assert [run.id for run in await claim(store)] == ["run-1"]


async def test_a_waiting_run_is_claimed_when_its_timer_is_due_and_not_before(store: Store, clock: FakeClock) -> None:
    run = await held(store)
    waiting = await committed(store, let_go(store, run, wake_at_ms=store.now_ms() + 500))
    assert (waiting.status, waiting.owner) == (Status.WAITING, None)
    clock.advance(499)
    assert await claim(store) == []
    clock.advance(1)
    assert [run.epoch for run in await claim(store)] == [2]


async def test_a_run_that_waits_without_a_timer_is_not_claimed(store: Store, clock: FakeClock) -> None:
    await committed(store, let_go(store, await held(store), wake_at_ms=None))
    clock.advance(10**12)
    assert await claim(store) == []


async def test_ended_and_blocked_runs_are_not_claimed(store: Store, clock: FakeClock) -> None:
    await committed(store, completion(store, await held(store, "run-1", key="1")))
    await committed(store, blockage(store, await held(store, "run-2", key="2")))
    clock.advance(60_000)
    assert await claim(store) == []


async def test_the_first_start_is_remembered_over_later_claims(store: Store, clock: FakeClock) -> None:
    await admitted(store)
    clock.advance(5)
    [first] = await claim(store, "w-1")
    clock.advance(5)
    await committed(store, let_go(store, first, wake_at_ms=store.now_ms()))
    [second] = await claim(store, "w-2")
    assert (second.started_at_ms, second.epoch) == (first.started_at_ms, 2)


async def test_a_claim_keeps_everything_else_of_the_row(store: Store) -> None:
    before = await admitted(store, priority=3, retention_ms=77, queue="slow")
    [run] = await claim(store)
    changed = {"status", "epoch", "nonce", "owner", "wake_at_ms", "started_at_ms"}
    kept = [name for name in run.__struct_fields__ if name not in changed]
    assert [getattr(run, name) for name in kept] == [getattr(before, name) for name in kept]


async def test_each_run_goes_to_one_of_many_claimers(backend: Backend) -> None:
    stores = [await backend.another() for _ in range(4)]
    for n in range(200):
        await admitted(stores[0], f"run-{n}", key=f"{n}")

    async def work(number: int) -> list[str]:
        mine: list[str] = []
        while taken := await claim(stores[number % 4], f"w-{number}", limit=7):
            mine += [run.id for run in taken]
        return mine

    shares = await asyncio.gather(*(work(number) for number in range(8)))
    claimed = Counter(run_id for share in shares for run_id in share)
    assert set(claimed.values()) == {1}
    assert len(claimed) == 200
    for number, share in enumerate(shares):
        assert sorted(await stores[0].held(f"w-{number}")) == sorted(share)


async def test_next_wake_tells_when_the_next_run_may_be_claimed(store: Store, clock: FakeClock) -> None:
    names = (WORKFLOW,)
    now_ms = store.now_ms()
    assert await store.next_wake_at_ms("default", names) is None
    await admitted(store, "late", key="late", delay_ms=9_000, priority=5)
    assert await store.next_wake_at_ms("default", names) == now_ms + 9_000
    await admitted(store, "soon", key="soon", delay_ms=3_000, priority=-5)
    assert await store.next_wake_at_ms("default", names) == now_ms + 3_000
    await admitted(store, "now", key="now")
    assert await store.next_wake_at_ms("default", names) == now_ms
    await claim(store)
    assert await store.next_wake_at_ms("default", names) == now_ms + 3_000
    clock.advance(5_000)
    assert await store.next_wake_at_ms("default", names) == now_ms + 3_000  # in the past: it is ready now


async def test_next_wake_looks_at_the_named_workflows_and_namespace_alone(store: Store) -> None:
    now_ms = store.now_ms()
    await admitted(store, "run-1", key="1", workflow="shop.refund", delay_ms=10)
    await admitted(store, "run-2", key="2", namespace="tenant", delay_ms=20)
    await admitted(store, "run-3", key="3", delay_ms=30)
    assert await store.next_wake_at_ms("default", (WORKFLOW,)) == now_ms + 30
    assert await store.next_wake_at_ms("default", (WORKFLOW, "shop.refund")) == now_ms + 10
    assert await store.next_wake_at_ms("default", ()) is None


async def test_next_wake_forgets_runs_that_are_held_or_over(store: Store) -> None:
    await held(store, "run-1", key="1")
    await committed(store, completion(store, await held(store, "run-2", key="2")))
    await committed(store, let_go(store, await held(store, "run-3", key="3"), wake_at_ms=None))
    assert await store.next_wake_at_ms("default", (WORKFLOW,)) is None


async def test_two_who_claim_at_once_share_what_is_ready(backend: Backend) -> None:
    """The process that is slower with some of them finds that there are more."""
    stores = [await backend.another() for _ in range(2)]
    for number in range(40):
        await admitted(stores[0], f"run-{number}", key=None)
    bites = await asyncio.gather(*(claim(store, f"w-{n}", limit=10) for n, store in enumerate(stores)))
    assert [len(bite) for bite in bites] == [10, 10]
    assert len({run.id for bite in bites for run in bite}) == 20
