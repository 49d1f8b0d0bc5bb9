"""Documents: a record changes hands by compare-and-set, one writer at a time, and a version never comes twice."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.ports.store import Store
from holdfast.stores.sqlite.pace import SqlitePace
from tests.builders import NOW_MS, FakeClock
from tests.contract.conftest import Backend, SqliteBackend
from tests.contract.helpers import a_document, admitted, ended, stored, successor, writes
from tests.rivals import ALIKE, RIVALRIES, Rivalry

RIVALS = 16


async def _found(store: Store, id: str = "d-1") -> Document | None:
    return await store.document("default", "note", id)


# -- compare and set


async def test_what_is_written_is_read_as_it_was(backend: Backend) -> None:
    store, other = await backend.another(), await backend.another()
    odd = a_document(
        store, "é/\0 '\"", body=bytes(range(256)), kind="task/shop.pay", due_at_ms=7, expires_at_ms=NOW_MS * 2
    )
    assert await writes(store, odd) == [True]
    for each in (store, other):
        assert await each.document("default", "task/shop.pay", odd.id) == odd


async def test_an_empty_body_and_a_large_one_are_kept(store: Store) -> None:
    empty, large = await stored(store, "empty", body=b""), await stored(store, "large", body=b"x" * 3_000_000)
    assert await store.documents("default", "note") == [empty, large]


async def test_none_is_made_where_one_is(store: Store) -> None:
    first = await stored(store)
    rival = a_document(store, body=b"rival", version=first.version + 1)
    assert await writes(store, rival) == [False]
    assert await _found(store) == first


async def test_only_the_stored_version_is_replaced(store: Store) -> None:
    first = await stored(store)
    second = successor(store, first, body=b"2")
    assert await writes(store, second) == [True]
    assert await writes(store, successor(store, first, body=b"late")) == [False]
    skipping = Writing(
        replace(second.document, version=second.document.version + 5, body=b"ahead"), replaces=NOW_MS * 2
    )
    assert await writes(store, skipping) == [False]
    assert await _found(store) == second.document


async def test_what_is_not_there_cannot_be_replaced(store: Store) -> None:
    assert await writes(store, successor(store, a_document(store))) == [False]
    assert await _found(store) is None


@pytest.mark.parametrize("step", [0, -1])
async def test_a_version_that_does_not_rise_is_refused(store: Store, step: int) -> None:
    first = await stored(store)
    back = Writing(replace(first, version=first.version + step, body=b"back"), replaces=first.version)
    assert await writes(store, back) == [False]
    assert await _found(store) == first


async def test_each_of_many_writings_is_answered_for_itself(store: Store) -> None:
    kept = await stored(store, "kept")
    new, late = a_document(store, "new"), Writing(replace(kept, body=b"late"), replaces=kept.version - 1)
    follows = successor(store, new, body=b"2")  # those before it in the call count
    assert await writes(store, late, new, a_document(store, "kept", body=b"rival"), follows) == [
        False,
        True,
        False,
        True,
    ]
    assert await store.documents("default", "note") == [kept, follows.document]
    assert await writes(store) == []


async def test_of_many_who_make_a_document_one_succeeds(backend: Backend) -> None:
    stores = [await backend.another(), await backend.another()]
    rivals = [a_document(stores[0], body=b"%d" % n, version=NOW_MS + n % 3) for n in range(RIVALS)]
    answers = await asyncio.gather(*(writes(stores[n % 2], rival) for n, rival in enumerate(rivals)))
    assert sorted(answers) == [[False]] * (RIVALS - 1) + [[True]]
    assert await _found(stores[1]) == rivals[answers.index([True])]


async def test_of_many_who_replace_a_version_one_succeeds_each_time(backend: Backend) -> None:
    stores = [await backend.another(), await backend.another()]
    current = await stored(stores[0])
    for turn in range(5):
        rivals = [successor(stores[0], current, body=b"%d/%d" % (turn, n)) for n in range(RIVALS)]
        answers = await asyncio.gather(*(writes(stores[n % 2], rival) for n, rival in enumerate(rivals)))
        assert sorted(answers) == [[False]] * (RIVALS - 1) + [[True]]
        current = rivals[answers.index([True])].document
        assert await _found(stores[turn % 2]) == current


async def test_many_who_look_again_when_refused_all_have_their_turn(backend: Backend) -> None:
    """No increment is lost: the reason for compare-and-set."""
    stores = [await backend.another(), await backend.another()]
    await stored(stores[0], body=b"0")

    async def add_one(store: Store) -> None:
        while True:
            current = await _found(store)
            assert current is not None
            # A writer that must know whether it was its own makes its document unlike all others.
            body = b"%d by %d" % (int(current.body.split()[0]) + 1, id(asyncio.current_task()))
            if await writes(store, successor(store, current, body=body)) == [True]:
                return

    await asyncio.gather(*(add_one(stores[n % 2]) for n in range(RIVALS)))
    last = await _found(stores[0])
    assert last is not None
    assert int(last.body.split()[0]) == RIVALS


# -- lost replies


async def test_a_writing_offered_again_after_a_lost_reply_answers_as_the_first_time(backend: Backend) -> None:
    store, other = await backend.another(), await backend.another()
    first = await stored(store)
    assert await writes(other, first) == [True]
    second = successor(store, first, body=b"2", due_at_ms=store.now_ms())
    assert await writes(store, second) == await writes(other, second) == [True]
    assert await _found(store) == second.document


@pytest.mark.parametrize("fields", [{"body": b"other"}, {"due_at_ms": 1}, {"expires_at_ms": NOW_MS * 2}])
async def test_a_rival_with_the_same_version_is_no_repetition(store: Store, fields: dict[str, object]) -> None:
    first = await stored(store)
    assert await writes(store, replace(first, **fields)) == [False]
    second = successor(store, first, body=b"2")
    assert await writes(store, second) == [True]
    assert await writes(store, replace(second, document=replace(second.document, **fields))) == [False]
    assert await _found(store) == second.document


@pytest.mark.parametrize("rivalry", RIVALRIES, ids=lambda each: each.name)
async def test_of_two_rivals_in_one_millisecond_the_second_learns_that_it_was_too_late(
    store: Store, rivalry: Rivalry
) -> None:
    for earlier in rivalry.before:
        assert await writes(store, earlier) == [True]
    one, other = rivalry.rivals
    assert await writes(store, one) == [True]
    assert await writes(store, other) == [False]
    assert await writes(store, one) == [True]  # offered again after a lost reply


@pytest.mark.parametrize("alike", ALIKE, ids=lambda each: each.name)
async def test_of_two_that_want_the_same_in_one_millisecond_both_have_it(store: Store, alike: Rivalry) -> None:
    for earlier in alike.before:
        assert await writes(store, earlier) == [True]
    one, other = alike.rivals
    assert await writes(store, one) == await writes(store, other) == [True]


async def test_a_repetition_after_somebody_else_went_on_is_told_so(store: Store) -> None:
    first = await stored(store)
    second = successor(store, first, body=b"2")
    third = successor(store, second.document, body=b"3")
    assert await writes(store, second, third) == [True, True]
    assert await writes(store, second) == [False]
    assert await writes(store, first) == [False]
    assert await _found(store) == third.document


async def test_the_repetition_of_a_removal_is_harmless(store: Store) -> None:
    first = await stored(store)
    removal = successor(store, first, expires_at_ms=store.now_ms())
    assert await writes(store, removal) == [True]
    assert await writes(store, removal) == [True]
    assert await _found(store) is None


# -- expiry


async def test_an_expired_document_counts_as_absent(store: Store, clock: FakeClock) -> None:
    document = await stored(store, expires_at_ms=store.now_ms() + 100, due_at_ms=store.now_ms())
    clock.advance(99)
    assert await _found(store) == document
    assert await store.documents("default", "note") == [document]
    assert await store.due("default", ["note"], 10) == [document]
    clock.advance(1)
    assert await _found(store) is None
    assert await store.documents("default", "note") == []
    assert await store.due("default", ["note"], 10) == []
    assert await writes(store, successor(store, document)) == [False]


async def test_an_expired_document_can_be_made_anew(store: Store, clock: FakeClock) -> None:
    old = await stored(store, expires_at_ms=store.now_ms() + 100)
    clock.advance(100)
    new = await stored(store, body=b"new")
    assert new.version > old.version
    assert await _found(store) == new
    assert await writes(store, successor(store, old, body=b"asleep")) == [False]
    assert await writes(store, old) == [False]
    assert await _found(store) == new


async def test_the_version_of_an_expired_document_is_never_used_again(store: Store, clock: FakeClock) -> None:
    """Several changes within a millisecond let the version run ahead of the clock."""
    current = await stored(store)
    for n in range(5):
        change = successor(store, current, body=b"%d" % n, expires_at_ms=store.now_ms() if n == 4 else None)
        assert await writes(store, change) == [True]
        current = change.document
    assert current.version == store.now_ms() + 5
    for _ in range(5):
        assert await writes(store, a_document(store, body=b"anew")) == [False]
        assert await store.prune(100) == 0  # it would be forgotten which versions there were
        clock.advance(1)
    assert await writes(store, a_document(store, body=b"anew")) == [False]
    clock.advance(1)
    again = await stored(store, body=b"anew")
    assert again.version > current.version


async def test_a_writer_who_slept_while_it_was_removed_and_made_anew_is_refused(store: Store, clock: FakeClock) -> None:
    """Removed, pruned and made again within as few milliseconds as possible, twice."""
    seen = [await stored(store)]
    for _ in range(2):
        removal = successor(store, seen[-1], expires_at_ms=store.now_ms())
        assert await writes(store, removal) == [True]
        while not await store.prune(100):
            clock.advance(1)
        seen.append(await stored(store, body=b"anew"))
    for asleep in seen[:-1]:
        assert await writes(store, successor(store, asleep, body=b"late")) == [False]
    assert await _found(store) == seen[-1]


async def test_a_document_may_be_given_more_time(store: Store, clock: FakeClock) -> None:
    first = await stored(store, expires_at_ms=store.now_ms() + 100)
    clock.advance(99)
    second = successor(store, first, expires_at_ms=None)
    assert await writes(store, second) == [True]
    clock.advance(1_000_000)
    assert await store.prune(100) == 0
    assert await _found(store) == second.document


async def test_versions_rise_however_the_clocks_stand() -> None:
    assert next_version(None, now_ms=5) == 5
    assert next_version(3, now_ms=5) == 5
    assert next_version(5, now_ms=5) == 6
    assert next_version(9, now_ms=5) == 10


# -- pruning


async def test_pruning_removes_expired_documents_and_no_others(store: Store, clock: FakeClock) -> None:
    for n in range(3):
        await stored(store, f"short-{n}", expires_at_ms=store.now_ms() + 100)
    kept = [await stored(store, "long", expires_at_ms=store.now_ms() + 101), await stored(store, "unending")]
    clock.advance(99)
    assert await store.prune(100) == 0
    clock.advance(1)
    assert await store.prune(100) == 3
    assert await store.prune(100) == 0
    assert await store.documents("default", "note") == kept


async def test_pruning_counts_runs_and_documents_and_comes_in_bites(store: Store, clock: FakeClock) -> None:
    for n in range(3):
        await ended(store, f"run-{n}", key=None, retention_ms=100)
        await stored(store, f"d-{n}", expires_at_ms=store.now_ms() + 100)
    live = await admitted(store, "live", key="live")
    clock.advance(200)
    assert [await store.prune(2) for _ in range(4)] == [2, 2, 2, 0]
    assert await store.runs([f"run-{n}" for n in range(3)] + ["live"]) == [live]
    assert await writes(store, *(a_document(store, f"d-{n}", version=1) for n in range(3))) == [True] * 3  # gone


# -- finding


async def test_namespaces_and_kinds_are_apart(store: Store) -> None:
    now_ms = store.now_ms()
    places = [("default", "note"), ("default", "task/a"), ("tenant", "note"), ("", "note")]
    documents = [
        a_document(store, namespace=namespace, kind=kind, body=f"{namespace}/{kind}".encode(), due_at_ms=now_ms)
        for namespace, kind in places
    ]
    assert await writes(store, *documents) == [True] * 4
    for document in documents:
        namespace, kind = document.namespace, document.kind
        assert await store.document(namespace, kind, "d-1") == document
        assert await store.documents(namespace, kind) == [document]
        assert await store.due(namespace, [kind], 10) == [document]
    assert await store.document("tenant", "task/a", "d-1") is None
    assert await store.documents("other", "note") == []
    assert await store.due("tenant", ["task/a"], 10) == []


async def test_many_are_read_at_once_from_wherever_they_are(store: Store, clock: FakeClock) -> None:
    fleeting = await stored(store, "fleeting", expires_at_ms=store.now_ms() + 100)
    here = await stored(store, "here", kind="task/a", body=b"here")
    there = a_document(store, "there", namespace="tenant", body=b"there")
    assert await writes(store, there) == [True]
    every = {(each.namespace, each.kind, each.id): each for each in (fleeting, here, there)}
    missing = [("default", "note", "nobody"), ("tenant", "task/a", "here"), ("default", "task/a", "there")]

    async def named(*places: tuple[str, str, str]) -> list[Document]:
        return sorted(await store.named(places), key=lambda document: document.id)

    assert await named(*missing[:1], *every, *missing[1:]) == [fleeting, here, there]
    assert await named(*missing) == await named() == []
    clock.advance(100)
    assert await named(*every) == [here, there]


async def test_they_are_listed_by_id_in_pages(store: Store) -> None:
    ids = ["10", "2", "Z", "a", "é", "\U0001f388"]
    await writes(store, *(a_document(store, each) for each in reversed(ids)))
    listed: list[str] = []
    while page := await store.documents("default", "note", after=listed[-1] if listed else "", limit=4):
        assert len(page) <= 4
        listed += [document.id for document in page]
    assert listed == ids
    assert await store.documents("default", "note", limit=0) == []


async def test_what_is_due_comes_earliest_first(store: Store, clock: FakeClock) -> None:
    now_ms = store.now_ms()
    for each, kind, due_at_ms in [
        ("d", "task/a", now_ms + 2),
        ("c", "task/b", now_ms + 1),
        ("b", "task/a", now_ms),
        ("a", "task/a", now_ms),
        ("e", "task/c", now_ms - 9),
        ("f", "task/a", None),
        ("g", "task/a", now_ms + 3),
    ]:
        await stored(store, each, kind=kind, due_at_ms=due_at_ms)
    clock.advance(2)

    async def due(*kinds: str, limit: int = 10) -> list[str]:
        return [document.id for document in await store.due("default", kinds, limit)]

    assert await due("task/a", "task/b") == ["a", "b", "c", "d"]
    assert await due("task/b", "task/a", "task/b") == ["a", "b", "c", "d"]
    assert await due("task/a", "task/b", "task/c", limit=3) == ["e", "a", "b"]
    assert await due("task/a", limit=0) == await due() == await due("task") == []
    clock.advance(1)
    assert await due("task/a") == ["a", "b", "d", "g"]


async def test_a_document_moves_within_its_queue(store: Store, clock: FakeClock) -> None:
    first = await stored(store, due_at_ms=store.now_ms())
    claimed = successor(store, first, due_at_ms=store.now_ms() + 100)
    assert await writes(store, claimed) == [True]
    assert await store.due("default", ["note"], 10) == []
    clock.advance(100)
    assert await store.due("default", ["note"], 10) == [claimed.document]
    assert await writes(store, successor(store, claimed.document, due_at_ms=None)) == [True]
    assert await store.due("default", ["note"], 10) == []


# -- notices, clock


async def test_a_write_of_another_process_is_noticed_as_a_commit_is(backend: Backend) -> None:
    watcher, other = await backend.another(), await backend.another()
    told: list[int] = []
    watcher.watch(lambda _: not told.append(1))

    async def until_told_of(count: int) -> None:
        async with asyncio.timeout(60):
            while len(told) < count:
                backend.clock.advance(SqlitePace().notice_seconds * 1000)
                await asyncio.sleep(0.001)

    document = await stored(other)
    await until_told_of(1)
    for n in range(5):
        before = len(told)
        change = successor(other, document, body=b"%d" % n)
        assert await writes(other, change) == [True]
        await until_told_of(before + 1)
        document = change.document


async def test_documents_outlive_the_process(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    document = await stored(store)
    await store.close()
    again = await sqlite.another()
    assert await _found(again) == document


async def test_a_restart_with_the_wall_clock_behind_repeats_no_version(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    sqlite.clock.advance(5_000)
    document = await stored(store)
    await store.close()
    sqlite.clock.boot, sqlite.clock.steady, sqlite.clock.wall = "boot-2", 10.0, NOW_MS
    again = await sqlite.another()
    assert again.now_ms() >= document.version
    other = await stored(again, "d-2")
    assert other.version >= document.version
