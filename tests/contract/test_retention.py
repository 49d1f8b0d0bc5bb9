"""Pruning removes a run whose retention is over with all that belongs to it, and nothing else (K6, K17)."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.kernel import lanes, transitions
from holdfast.kernel.audits import Audit
from holdfast.kernel.lanes import Entering
from holdfast.kernel.messages import Watcher
from holdfast.kernel.outs import Out
from holdfast.kernel.rates import Rate, Taking
from holdfast.kernel.runs import Run
from holdfast.kernel.searches import Search, conditions_of
from holdfast.ports.store import Store
from tests.builders import FakeClock, performed
from tests.contract.conftest import Backend, SqliteBackend
from tests.contract.helpers import (
    A_BLOB,
    ANOTHER_BLOB,
    HOOK,
    WATCHER,
    WORKFLOW,
    admission,
    admitted,
    beat,
    blockage,
    committed,
    completion,
    database,
    ended,
    everything,
    failed,
    family,
    held,
    history,
    let_go,
    message_of_child,
    refused,
    retry,
    rich,
    stored,
    takeover,
    token_of,
    watch,
)

SHORT_MS = 1_000
LONG_MS = 1_000_000


async def _finished(store: Store, run_id: str, *, retention_ms: int = SHORT_MS) -> Run:
    """A run that has left something in every table."""
    run = await rich(store, run_id, retention_ms=retention_ms)
    recorded = transitions.Recorded((performed(),), (ANOTHER_BLOB,), (message_of_child(run_id),))
    return await committed(store, completion(store, run, recorded=recorded))


async def _gone(store: Store, run_id: str) -> bool:
    return (
        await store.run("default", run_id) is None
        and await store.runs([run_id]) == []
        and await store.histories([run_id]) == []
        and await store.run_of_key("default", WORKFLOW, run_id) is None
        and await store.blob(run_id, A_BLOB.digest) is None
        and await store.blob(run_id, ANOTHER_BLOB.digest) is None
        and await store.hook(run_id, HOOK) is None
        and await store.hook_of_token("default", token_of(run_id)) is None
        and await store.search(Search(namespace="default", limit=10, conditions=conditions_of({"customer": run_id})))
        == []
    )


async def test_a_run_goes_when_its_retention_is_over_and_not_before(store: Store, clock: FakeClock) -> None:
    await _finished(store, "run-1")
    before = await everything(store, "run-1")
    clock.advance(SHORT_MS - 1)
    assert await store.prune(100) == 0
    assert await everything(store, "run-1") == before
    clock.advance(1)
    assert await store.prune(100) == 2  # and its child
    assert await _gone(store, "run-1")


async def test_retention_counts_from_the_end_and_not_from_the_start(store: Store, clock: FakeClock) -> None:
    run = await held(store, retention_ms=SHORT_MS)
    clock.advance(SHORT_MS * 10)
    assert await store.prune(100) == 0
    await committed(store, completion(store, run))
    clock.advance(SHORT_MS - 1)
    assert await store.prune(100) == 0
    clock.advance(1)
    assert await store.prune(100) == 1


async def test_runs_that_have_not_ended_are_never_pruned(store: Store, clock: FakeClock) -> None:
    await admitted(store, "pending", key="pending", retention_ms=0)
    await held(store, "running", key="running", retention_ms=0)
    await committed(store, let_go(store, await held(store, "waiting", key="waiting", retention_ms=0)))
    await committed(store, blockage(store, await held(store, "blocked", key="blocked", retention_ms=0)))
    await committed(store, await retry(store, await failed(store, "retried", key="retried", retention_ms=0)))
    clock.advance(10**12)
    assert await store.prune(100) == 0
    assert len(await store.runs(["pending", "running", "waiting", "blocked", "retried"])) == 5


async def test_pruning_leaves_the_neighbours_as_they_are(store: Store, clock: FakeClock) -> None:
    """They have the same workflow, the same digests, the same steps and the same watcher."""
    await held(store, "parent", key=None)
    await _finished(store, "run-1")
    await _finished(store, "run-2", retention_ms=LONG_MS)
    others = ("parent", "run-2", "run-2-child")
    before = await everything(store, *others)
    clock.advance(SHORT_MS)
    assert await store.prune(100) == 2
    assert await everything(store, *others) == before
    found = await store.run_of_key("default", WORKFLOW, "run-2")
    assert found is not None


async def test_a_live_keys_payload_is_never_pruned(store: Store, clock: FakeClock) -> None:
    """K6: as long as the key is known, so are the input, the journal, the output and the large values."""
    await _finished(store, "run-1", retention_ms=LONG_MS)
    for n in range(20):
        await _finished(store, f"other-{n}")
    before = await everything(store, "run-1")
    clock.advance(LONG_MS - 1)
    assert await store.prune(1_000) == 40  # the others and their children
    assert await everything(store, "run-1") == before
    holder = await refused(store, admission(store, "run-9", key="run-1"))
    assert holder is not None
    assert holder.output is not None
    assert await store.blob("run-1", A_BLOB.digest) == A_BLOB.data


async def test_a_message_outlives_the_run_that_it_tells_of(store: Store, clock: FakeClock) -> None:
    """The parent may be slow: what it was told stays, however short its child's retention was."""
    _, child = await family(store, retention_ms=0)
    await committed(store, completion(store, child))
    before = await history(store, "parent")
    clock.advance(1)
    assert await store.prune(10) == 1
    assert await history(store, "parent") == before
    assert len(before.messages) == 1


async def test_the_key_is_free_after_pruning(store: Store, clock: FakeClock) -> None:
    """K4."""
    await _finished(store, "run-1")
    clock.advance(SHORT_MS)
    await store.prune(100)
    await admitted(store, "run-2", key="run-1")


async def test_pruning_a_former_holder_takes_nothing_from_the_key(store: Store, clock: FakeClock) -> None:
    done = await ended(store, retention_ms=SHORT_MS)
    clock.advance(SHORT_MS)
    successor = await committed(store, takeover(store, done, retention_ms=LONG_MS))
    assert await store.prune(10) == 1
    assert await store.run_of_key("default", WORKFLOW, "order:1") == successor
    assert await refused(store, admission(store, "run-3")) == successor


async def test_pruning_comes_in_bites_the_longest_over_first(store: Store, clock: FakeClock) -> None:
    for n in range(7):
        await ended(store, f"run-{n}", key=None, retention_ms=SHORT_MS)
        clock.advance(1)
    clock.advance(SHORT_MS)
    assert await store.prune(3) == 3
    assert {run.id for run in await store.runs([f"run-{n}" for n in range(7)])} == {"run-3", "run-4", "run-5", "run-6"}
    assert [await store.prune(3), await store.prune(3), await store.prune(3)] == [3, 1, 0]


async def test_a_late_word_to_a_pruned_run_leaves_no_trace(store: Store, clock: FakeClock) -> None:
    parent = await held(store, "parent", key=None, retention_ms=0)
    child = await held(store, "run-1", watcher=WATCHER)
    await committed(store, completion(store, parent))
    clock.advance(1)
    await store.prune(10)
    done = await committed(store, completion(store, child))
    assert done.status == "completed"
    assert await store.histories(["parent"]) == []
    assert await refused(store, watch("parent", Watcher("run-1", "x#1"))) is None
    assert await refused(store, beat(parent)) is None


def _rows(backend: Backend) -> dict[str, int]:
    db = database(backend.path)
    tables = [
        name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    ]
    counts = {name: db.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in tables}
    db.close()
    return counts


async def test_row_counts_of_every_table_return_to_the_baseline(sqlite: SqliteBackend) -> None:
    """K17, on the tables themselves: what no read shows must go too."""
    store = await sqlite.another()
    baseline = _rows(sqlite)
    assert sum(baseline.values()) == 1  # the clock
    await held(store, "parent", key=None, retention_ms=SHORT_MS)
    for n in range(10):
        await _finished(store, f"run-{n}", retention_ms=SHORT_MS * (n % 3))
        await stored(store, f"document-{n}", expires_at_ms=store.now_ms() + SHORT_MS)
    an_out = Out("default", "paid", "orders", "o-1", b"{}", store.now_ms())
    an_audit = Audit("default", "a", "u-7", "run.start", "in-lane", store.now_ms())
    entering = admission(store, "in-lane", key=None, owner="w-1", retention_ms=SHORT_MS, enters=Entering("lane"))
    in_lane = await committed(store, replace(entering, outs=(an_out,), audits=(an_audit,)))
    fields = {"key": None, "owner": "w-1", "retention_ms": SHORT_MS}
    under_rules = await committed(
        store, admission(store, "ruled", **fields, shares="ada", takes=Taking("shop", Rate(1, per="1s")))
    )
    full = _rows(sqlite)
    may_go = set(full) - {"clock", "leases", "sqlite_sequence"}
    assert {table for table in may_go if full[table] > baseline[table]} == may_go
    parent = await history(store, "parent")
    read = tuple(message.id for message in parent.messages)
    await committed(store, completion(store, parent.run, recorded=transitions.Recorded(read=read)))
    await committed(store, completion(store, in_lane))
    await committed(store, completion(store, under_rules))
    sqlite.clock.advance(max(SHORT_MS * 3, lanes.IDLE_MS))
    await store.drop_outs("default", [each.place for each in (await store.outs("default")).kept])
    await store.drop_audits("default", [each.place for each in (await store.audits("default")).kept])
    while await store.prune(4):
        pass
    after = _rows(sqlite)
    assert after.pop("sqlite_sequence") == 2  # a number never comes twice
    assert baseline.pop("sqlite_sequence") == 0
    assert after == baseline
