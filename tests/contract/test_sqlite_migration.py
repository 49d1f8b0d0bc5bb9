"""A file of an earlier schema, with work in it, is opened by the present code: all is there, and goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path

import pytest
from msgspec import UNSET, Raw

from holdfast.kernel import hooks, transitions
from holdfast.kernel.journal import Attempted, Intended, Performed, Spawned
from holdfast.kernel.messages import OutcomeMessage, Watcher
from holdfast.kernel.runs import Status
from holdfast.kernel.searches import Search
from holdfast.ports.store import Member, Serves
from holdfast.stores.sqlite import SqliteStore, files
from tests.builders import NOW_MS, FakeClock, a_value, performed
from tests.contract.helpers import (
    A_BEAT,
    A_BLOB,
    LARGE_DIGEST,
    WORKFLOW,
    a_signal,
    admission,
    claim,
    committed,
    completion,
    database,
    history,
    let_go,
    progress,
    refused,
    retry,
    signalled,
    stored,
    takeover,
    unread,
    watch,
)

# As the first version wrote it.
LATER = NOW_MS + 10
EXPIRES = LATER + 2_592_000_000
OUTPUT = '{"json":{"ü":["🎈",null,1.5,1e300,12345678901234567890,"\\u0000"]}}'.encode()
BIG_OUTPUT = b'{"blob":"%s","size":15}' % LARGE_DIGEST.encode()
ERROR = b'{"type":"ValueError","message":"boom","args":["boom"]}'
INTENT = '{"kind":"child","name":"shop.pay","key":"charge:o-1","digest":"d1","line":"shop.py:12"}'
STARTED = b'[{"what":"started","at_ms":1700000000000,"input":{"json":{"order":"o-1"}}}]'
WORK = f"""[
    {{"what":"spawned","at_ms":{NOW_MS},"step":"pay#1","intent":{INTENT},"run_id":"child-1","key":"pay:1"}},
    {{"what":"performed","at_ms":{NOW_MS},"step":"charge#1","intent":{INTENT},"attempt":1,"value":{{"json":"ok"}}}},
    {{"what":"attempted","at_ms":{NOW_MS},"step":"ship#1","intent":{INTENT},"attempt":1,"error":{ERROR.decode()},
      "retry_at_ms":1700000000500}},
    {{"what":"intended","at_ms":{NOW_MS},"step":"once#1","intent":{INTENT},"attempt":1}}
]""".encode()

# id, key, status, epoch, owner, wake_at_ms, length, unread, finished_at_ms, expires_at_ms, output, error
RUNS = [
    ("parent", "order:1", "waiting", 1, None, LATER, 5, 4, None, None, None, None),
    ("child-1", "pay:1", "completed", 1, None, None, 2, 0, LATER, EXPIRES, OUTPUT, None),
    ("child-2", "pay:2", "failed", 1, None, None, 2, 0, LATER, EXPIRES, None, ERROR),
    ("child-3", "pay:3", "cancelled", 1, None, None, 2, 0, LATER, EXPIRES, None, None),
    ("child-4", "pay:4", "completed", 1, None, None, 2, 0, LATER, EXPIRES, BIG_OUTPUT, None),
    ("child-5", "pay:5", "waiting", 1, None, None, 1, 0, None, None, None, None),
    ("timer", "order:2", "waiting", 1, None, NOW_MS + 60_000, 1, 0, None, None, None, None),
    ("running", "order:3", "running", 1, "w-9", None, 1, 0, None, None, None, None),
    ("blocked", "order:4", "blocked", 1, None, None, 2, 0, None, None, None, b'{"type":"x","message":"y"}'),
    ("pending", None, "pending", 0, None, LATER, 1, 0, None, None, None, None),
]
ENDS = {
    "child-1": b'[{"what":"completed","at_ms":1700000000010}]',
    "child-2": b'[{"what":"failed","at_ms":1700000000010,"error":%s}]' % ERROR,
    "child-3": b'[{"what":"cancelled","at_ms":1700000000010}]',
    "child-4": b'[{"what":"completed","at_ms":1700000000010}]',
    "blocked": b'[{"what":"blocked","at_ms":1700000000010,"code":"x","message":"y"}]',
}
MESSAGES = [
    (3, "parent", "child-2/1/pay#2", "pay#2", "child-2", "failed", None, ERROR),
    (7, "parent", "child-1/1/pay#1", "pay#1", "child-1", "completed", OUTPUT, None),
    (8, "parent", "child-3/1/pay#3", "pay#3", "child-3", "cancelled", None, None),
    (9, "parent", "child-4/1/pay#4", "pay#4", "child-4", "completed", BIG_OUTPUT, None),
]


def _first_version(path: Path) -> None:
    """A file as the first version left it when its process was killed."""
    db = database(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(_script("0001_core.sql"))
    db.execute(f"PRAGMA user_version = 1; PRAGMA application_id = {files.APPLICATION_ID}")
    for run_id, key, status, epoch, owner, wake_at_ms, length, unread_, *end in RUNS:
        started_at_ms = None if status == "pending" else NOW_MS
        nonce = "nonce-of-w-1" if epoch else ""
        identity = (run_id, "default", WORKFLOW, key, "default", 0, "d", f"request-of-{run_id}", 2_592_000_000, NOW_MS)
        state = (status, epoch, nonce, owner, wake_at_ms, length, unread_, int(key is not None), started_at_ms)
        row = (None, *identity, *state, *end, f"change-of-{run_id}")
        db.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(row))})", row)
        db.execute("INSERT INTO journal VALUES (?, 0, ?)", (run_id, STARTED))
        if run_id in ENDS:
            db.execute("INSERT INTO journal VALUES (?, 1, ?)", (run_id, ENDS[run_id]))
    db.execute("INSERT INTO journal VALUES ('parent', 1, ?)", (WORK,))
    for message in MESSAGES:
        db.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", message)
    for run_id in ("parent", "child-4"):
        db.execute("INSERT INTO blobs VALUES (?, ?, ?)", (run_id, A_BLOB.digest, A_BLOB.data))
    db.execute("INSERT INTO watchers VALUES ('child-5', 'parent', 'pay#5')")
    db.execute("INSERT INTO beats VALUES ('running', ?, ?)", (A_BEAT.step, A_BEAT.details))
    db.execute("INSERT INTO leases VALUES ('w-9', ?)", (LATER + 1_000,))
    db.execute("INSERT INTO clock VALUES (1, 'boot-1', ?)", (LATER - 1_000,))
    db.close()


def _second_version(path: Path) -> None:
    """A file as the second version left it when its process was killed."""
    _first_version(path)
    db = database(path)
    db.execute(_script("0002_keys_for_life.sql"))
    db.execute("PRAGMA user_version = 2")
    db.execute("INSERT INTO hooks (run_id, name, namespace, token) VALUES ('timer', 'approval', 'default', 't-1')")
    db.execute("INSERT INTO attributes VALUES ('timer', 'customer', 'default', 'text', 'c-1', ?)", (NOW_MS,))
    db.execute("INSERT INTO inbox (run_id, id, scope, body) VALUES ('timer', 'm-1', 's-1', NULL)")
    db.execute(OLD_JOIN, ("w-8", LATER + 1_000, "default", f'["{WORKFLOW}"]'))
    db.close()


# How a worker of the second version joins.
OLD_JOIN = "INSERT INTO leases (owner, until_ms, namespace, workflows) VALUES (?, ?, ?, ?)"


def _script(name: str) -> str:
    return resources.files(files._PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _rows(path: Path) -> dict[str, list[dict[str, object]]]:
    """Every row of every table."""
    db = database(path)
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()]
    columns = {name: [row[1] for row in db.execute(f"PRAGMA table_info({name})").fetchall()] for name in tables}
    rows = {
        name: [dict(zip(columns[name], row, strict=True)) for row in db.execute(f"SELECT * FROM {name}").fetchall()]
        for name in tables
    }
    db.close()
    return rows


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall=LATER)


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    _first_version(tmp_path / "first.db")
    store = SqliteStore(tmp_path / "first.db", clock=clock)
    await store.open()
    yield store
    await store.close()


async def test_every_run_is_there_as_it_was(store: SqliteStore) -> None:
    found = {run.id: run for run in await store.runs([run_id for run_id, *_ in RUNS])}
    for (
        run_id,
        key,
        status,
        epoch,
        owner,
        wake_at_ms,
        length,
        unread_,
        finished_at_ms,
        expires_at_ms,
        output,
        error,
    ) in RUNS:
        run = found[run_id]
        assert (run.key, run.status, run.epoch, run.owner, run.wake_at_ms) == (key, status, epoch, owner, wake_at_ms)
        assert (run.length, run.unread, run.finished_at_ms, run.expires_at_ms) == (
            length,
            unread_,
            finished_at_ms,
            expires_at_ms,
        )
        assert (run.output, run.error, run.holds_key) == (output, error, key is not None)
        assert (run.version, run.attributes, run.markers) == ("", b"", b"")
        assert run.input == a_value({"order": "o-1"})
        assert len((await history(store, run_id)).journal) == length


async def test_journals_blobs_and_beats_are_read_as_they_were(store: SqliteStore) -> None:
    found = await history(store, "parent")
    assert [type(entry) for entry in found.journal[1:]] == [Spawned, Performed, Attempted, Intended]
    spawned = found.journal[1]
    assert isinstance(spawned, Spawned)
    assert (spawned.created, spawned.detached, spawned.run_id) == (True, False, "child-1")
    assert await store.blob("parent", A_BLOB.digest) == A_BLOB.data
    assert (await history(store, "running")).beats == (A_BEAT,)


async def test_unread_messages_are_read_in_their_order(store: SqliteStore) -> None:
    def outcome(
        number: int, status: Status, *, output: bytes | None = None, error: bytes | None = None
    ) -> OutcomeMessage:
        raw = [UNSET if body is None else Raw(body) for body in (output, error)]
        return OutcomeMessage(f"child-{number}/1/pay#{number}", f"pay#{number}", f"child-{number}", status, *raw)

    assert await unread(store, "parent") == (
        outcome(2, Status.FAILED, error=ERROR),
        outcome(1, Status.COMPLETED, output=OUTPUT),
        outcome(3, Status.CANCELLED),
        outcome(4, Status.COMPLETED, output=BIG_OUTPUT),
    )


async def test_a_waiting_run_goes_on_with_its_messages_to_its_end(store: SqliteStore) -> None:
    [parent] = [run for run in await claim(store, "w-2") if run.id == "parent"]
    assert (parent.epoch, parent.unread) == (2, 4)
    messages = (await store.messages("w-2"))["parent"]
    assert len(messages) == 4
    await refused(store, completion(store, parent))
    read = tuple(message.id for message in messages)
    parent = await committed(store, progress(store, parent, performed("ship#1"), read=read))
    done = await committed(store, completion(store, parent))
    assert done.status is Status.COMPLETED
    assert [entry.what for entry in (await history(store, "parent")).journal[-2:]] == ["performed", "completed"]


async def test_a_run_that_was_let_go_in_order_is_known_to_have_nothing_under_way(store: SqliteStore) -> None:
    for run_id in ("parent", "child-5", "timer"):
        [run] = await store.runs([run_id])
        assert run.waits == b"[]", run_id
    for run_id in ("running", "blocked", "pending", "child-1"):
        [run] = await store.runs([run_id])
        assert run.waits is None, run_id


async def test_a_message_received_before_is_not_received_again(store: SqliteStore) -> None:
    await committed(store, watch("child-1", Watcher("parent", "pay#1")))
    assert len(await unread(store, "parent")) == 4
    await signalled(store, "parent")
    assert (await unread(store, "parent"))[-1] == a_signal()


async def test_a_watched_child_ends_and_tells(store: SqliteStore) -> None:
    await signalled(store, "child-5")
    [child] = [run for run in await claim(store, "w-2") if run.id == "child-5"]
    await committed(store, completion(store, child, recorded=transitions.Recorded(read=(a_signal().id,))))
    last = (await unread(store, "parent"))[-1]
    assert isinstance(last, OutcomeMessage)
    assert last.from_run == "child-5"


async def test_timers_rescue_and_retry_go_on(store: SqliteStore, clock: FakeClock) -> None:
    clock.advance(60_000)
    assert await store.rescue(10) == ["running"]
    [blocked] = await store.runs(["blocked"])
    await committed(store, await retry(store, blocked))
    assert {run.id for run in await claim(store, "w-2")} == {"parent", "timer", "running", "pending", "blocked"}


async def test_keys_are_held_as_before_and_can_be_taken_over(store: SqliteStore) -> None:
    holder = await refused(store, admission(store, "new", key="pay:1"))
    assert holder is not None
    assert holder.id == "child-1"
    successor = await committed(store, takeover(store, holder, "new", key="pay:1"))
    assert await store.run_of_key("default", WORKFLOW, "pay:1") == successor


async def test_old_runs_are_found_by_every_index(store: SqliteStore) -> None:
    async def found(**fields: object) -> set[str]:
        search = Search(namespace="default", limit=100, **fields)  # pyright: ignore[reportArgumentType]
        return {run.id for run in await store.search(search)}

    assert await found() == {run_id for run_id, *_ in RUNS}
    assert await found(statuses=frozenset({Status.WAITING})) == {"parent", "child-5", "timer"}
    assert await found(workflow=WORKFLOW, key_prefix="pay:") == {f"child-{number}" for number in range(1, 6)}


async def test_a_worker_of_the_first_version_serves_nothing_that_is_known(store: SqliteStore) -> None:
    assert await store.served("default") == frozenset()
    await store.join("w-2", 1_000, Serves("default", (WORKFLOW,)))
    assert await store.served("default") == {WORKFLOW}


async def test_a_run_of_the_first_version_may_wait_for_signals(store: SqliteStore) -> None:
    [run] = [run for run in await claim(store, "w-2") if run.id == "pending"]
    await committed(store, let_go(store, run, waits=b'[{"kind":"hook","name":"approval"}]'))
    await committed(store, hooks.to_run("pending", a_signal()))
    [again] = await claim(store, "w-3")
    assert (again.id, again.unread) == ("pending", 1)


async def test_the_file_is_brought_up_to_date_once(store: SqliteStore, tmp_path: Path, clock: FakeClock) -> None:
    """Another process opens it meanwhile, and a later one after that."""
    other = SqliteStore(tmp_path / "first.db", clock=clock)
    await other.open()
    assert await unread(other, "parent") == await unread(store, "parent")
    await other.close()
    db = database(tmp_path / "first.db")
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    assert "messages" not in tables
    db.close()


async def test_its_schema_is_that_of_a_new_file(store: SqliteStore, tmp_path: Path) -> None:
    new = SqliteStore(tmp_path / "new.db", clock=FakeClock())
    await new.open()
    await new.close()
    assert _schema(tmp_path / "first.db") == _schema(tmp_path / "new.db")


def _schema(path: Path) -> list[object]:
    db = database(path)
    schema = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()
    version = db.pragma("user_version")
    db.close()
    return [version, *schema]


async def test_a_migration_that_fails_leaves_the_first_schema_as_it_was(tmp_path: Path) -> None:
    """What it cannot read it does not throw away."""
    path = tmp_path / "odd.db"
    _first_version(path)
    db = database(path)
    db.execute("UPDATE messages SET output = CAST('no json' AS BLOB) WHERE output IS NOT NULL")
    db.close()
    odd = SqliteStore(path, clock=FakeClock())
    with pytest.raises(Exception, match="JSON"):
        await odd.open()
    await odd.close()
    db = database(path)
    assert db.pragma("user_version") == 1
    assert db.execute("SELECT count(*) FROM messages").fetchall() == [(4,)]
    db.close()


# -- from the second version on


@pytest.fixture
async def second(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    _second_version(tmp_path / "second.db")
    store = SqliteStore(tmp_path / "second.db", clock=clock)
    await store.open()
    yield store
    await store.close()


async def test_no_row_of_the_second_version_is_changed(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "second.db"
    _second_version(path)
    before = _rows(path)
    store = SqliteStore(path, clock=clock)
    await store.open()
    await store.close()
    after = _rows(path)
    assert all(before.values()), before
    added = ("documents", "lanes", "places", "outs", "audits", "sqlite_sequence", "rates", "lines", "shares")
    assert [after.pop(table) for table in added] == [[]] * len(added)
    new = {"host": "", "pid": 0, "concurrency": 0, "joined_ms": 0}
    runs = [{**run, "lane": "", "aside": 0, "tag": None, "share": None} for run in before["runs"]]
    assert after == {**before, "runs": runs, "leases": [{**lease, **new} for lease in before["leases"]]}


async def test_the_schema_of_the_second_version_becomes_that_of_a_new_file(second: SqliteStore, tmp_path: Path) -> None:
    new = SqliteStore(tmp_path / "new.db", clock=FakeClock())
    await new.open()
    await new.close()
    assert _schema(tmp_path / "second.db") == _schema(tmp_path / "new.db")


async def test_documents_can_be_written_at_once(second: SqliteStore) -> None:
    document = await stored(second, due_at_ms=second.now_ms())
    assert await second.due("default", ["note"], 10) == [document]


async def test_a_worker_of_the_second_version_is_a_member_who_says_nothing_about_itself(second: SqliteStore) -> None:
    assert await second.members("default") == [
        Member("w-8", 0, LATER + 1_000, Serves("default", (WORKFLOW,)), holds=0),
    ]
    assert await second.served("default") == {WORKFLOW}
    assert await second.renew("w-8", 5_000)


async def test_a_worker_of_the_second_version_goes_on_beside_us(
    second: SqliteStore, tmp_path: Path, clock: FakeClock
) -> None:
    """It has the file open while a newer process brings it up to date, and joins under its old statement."""
    db = database(tmp_path / "second.db")
    db.execute(OLD_JOIN, ("w-7", LATER + 9_000, "default", "[]"))
    db.close()
    assert {member.owner for member in await second.members("default")} == {"w-7", "w-8"}
    clock.advance(1_000)
    assert await second.rescue(10) == ["running"]
    assert [member.owner for member in await second.members("default")] == ["w-7"]


async def test_what_is_to_be_done_in_an_old_file_is_counted(second: SqliteStore) -> None:
    backlog = await second.backlog("default")
    assert sum(backlog.statuses.values()) == len(RUNS)
    assert [(depth.workflow, depth.ready, depth.oldest_at_ms) for depth in backlog.depths] == [(WORKFLOW, 2, LATER)]
