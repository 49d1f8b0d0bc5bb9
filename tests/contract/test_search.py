"""Runs are found by what they show: each store returns what `kernel.searches.matches` says, in order, page by page."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec import Struct
from msgspec.structs import replace

from holdfast.kernel import attributes, starts, transitions
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.changes import Shown
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import Condition, Range, Search, Span, conditions_of, cursor_of, matches, place_of
from holdfast.ports.store import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.pace import SqlitePace
from tests.builders import NOW_MS, FakeClock, a_failure, a_hand, a_value, performed, wanted
from tests.contract.helpers import (
    admitted,
    blockage,
    claim,
    committed,
    completion,
    ended,
    failed,
    held,
    let_go,
    offer,
)

# -- random runs, and random questions about them

WORKFLOWS = ("shop.checkout", "shop.refund")
KEYS = ("a", "ab", "abc", "b", "A", "%", "a_", "é", "e\u0301", "a\ud7ff", "a\ue000", "a\U0010ffff", "\U0010ffff", "🎈")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NUMBERS = (0, 1, 2, -1, 1.0, 0.5, -0.0, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63), 9.3e18, -1e300, 5e-324)
INSTANTS = (
    NOON,
    NOON.astimezone(timezone(timedelta(hours=5))),
    NOON + timedelta(microseconds=1),
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
)
VALUES: tuple[Scalar, ...] = (True, False, "", "1", "a", "A", "true", "é🎈", *NUMBERS, *INSTANTS)
NAMES = ("total", "vip", "holdfast.parent")
names: st.SearchStrategy[str] = st.sampled_from(NAMES)
values: st.SearchStrategy[Scalar] = st.sampled_from(VALUES)
instants = st.integers(NOW_MS, NOW_MS + 12)
maybe_instants = st.none() | instants


class Shape(Struct, frozen=True):
    """A run to be made."""

    workflow: str
    key: str | None
    created_at_ms: int
    status: Status
    lasted_ms: int
    attributes: dict[str, Scalar]


shapes = st.builds(
    Shape,
    st.sampled_from(WORKFLOWS),
    st.none() | st.sampled_from(KEYS),
    instants,
    st.sampled_from(Status),
    st.integers(0, 5),
    st.dictionaries(names, values, max_size=3),
)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    """At least one bound of one kind; the low one may be above the high one."""
    bounds = st.sampled_from(draw(st.sampled_from([NUMBERS, INSTANTS])))
    low, high = draw(st.none() | bounds), draw(bounds)
    low_name, high_name = draw(st.sampled_from(["ge", "gt"])), draw(st.sampled_from(["le", "lt"]))
    return Range(**{low_name: low, high_name: high}) if draw(st.booleans()) else Range(**{low_name: high})


def _conditions(wished: Mapping[Any, Scalar | Range]) -> tuple[Condition, ...]:
    return conditions_of(wished)


CONDITIONS: dict[str, st.SearchStrategy[object]] = {
    "workflow": st.sampled_from(WORKFLOWS),
    "statuses": st.frozensets(st.sampled_from(Status), max_size=3),
    "conditions": st.dictionaries(names, values | ranges(), min_size=1, max_size=2).map(_conditions),
    "key_prefix": st.sampled_from(KEYS),
    "created": st.builds(Span, maybe_instants, maybe_instants),
    "finished": st.builds(Span, maybe_instants, maybe_instants),
    "roots_only": st.just(value=True),
}


@st.composite
def questions(draw: st.DrawFn) -> Search:
    """A question in some namespace, with up to three conditions; `limit` is the size of a page."""
    wished = draw(st.lists(st.sampled_from(sorted(CONDITIONS)), unique=True, max_size=3))
    fields: dict[str, Any] = {name: draw(CONDITIONS[name]) for name in wished}
    return Search(namespace="", limit=draw(st.integers(1, 5)), newest_first=draw(st.booleans()), **fields)


async def _make(store: Store, run_id: str, namespace: str, shape: Shape) -> None:
    wish = wanted(
        run_id,
        namespace=namespace,
        workflow=shape.workflow,
        key=shape.key,
        attributes=attributes.encode(shape.attributes),
    )
    hand = None if shape.status is Status.PENDING else a_hand()
    answer = await offer(store, starts.admission(wish, now_ms=shape.created_at_ms, hand=hand))
    if (run := getattr(answer, "run", None)) is None:  # another one has the key
        return
    now_ms = shape.created_at_ms + shape.lasted_ms
    events: dict[Status, transitions.Event] = {
        Status.WAITING: transitions.LetGo(now_ms + 60_000),
        Status.BLOCKED: transitions.Stuck("code", "message"),
        Status.COMPLETED: transitions.RunReturned(a_value()),
        Status.FAILED: transitions.RunRaised(a_failure()),
        Status.CANCELLED: transitions.CancelledItself(),
    }
    if shape.status in events:
        await committed(store, transitions.decide(run, events[shape.status], now_ms=now_ms))


async def _show(store: Store, run: Run, values: dict[str, Scalar]) -> Run:
    """Its owner changes the attributes of a run."""
    shown = Shown(attributes.encode(values), run.markers)
    recorded = transitions.Recorded((performed(f"set-{run.length}#1"),), shown=shown)
    return await committed(
        store, transitions.decide(run, transitions.Progressed(), recorded=recorded, now_ms=store.now_ms())
    )


def _meant(search: Search, rows: Sequence[Run]) -> list[str]:
    """What the kernel says."""
    found = [run for run in rows if matches(search, run)]
    found.sort(key=lambda run: (run.created_at_ms, run.id), reverse=search.newest_first)
    return [run.id for run in found[: search.limit]]


async def _ids(store: Store, search: Search) -> list[str]:
    return [run.id for run in await store.search(search)]


@pytest.mark.parametrize("few", [2, 2_000], ids=["few-are-2", "few-are-2000"])
def test_every_store_answers_what_the_kernel_says(tmp_path: Path, few: int) -> None:
    """K16. All examples share a file: each has a namespace of its own, and none sees the others."""
    numbers = itertools.count()
    stores: list[Store] = [
        MemoryStore(clock=FakeClock()),
        SqliteStore(tmp_path / "search.db", clock=FakeClock(), pace=SqlitePace(few_runs=few)),
    ]

    async def check(
        namespace: str, population: list[Shape], asked: list[Search], changes: list[tuple[int, dict[str, Scalar]]]
    ) -> None:
        run_ids = [f"{namespace}-{number:02}" for number in range(len(population))]
        for store in stores:
            for run_id, shape in zip(run_ids, population, strict=True):
                await _make(store, run_id, namespace, shape)
        for question in asked:
            await pages(replace(question, namespace=namespace), run_ids, changes)

    async def pages(search: Search, run_ids: list[str], changes: list[tuple[int, dict[str, Scalar]]]) -> None:
        turns = itertools.cycle(changes) if changes else None
        while True:
            answers: list[list[Run]] = []
            for store in stores:
                answers.append(await store.search(search))
                rows = await store.runs(run_ids)
                assert [run.id for run in answers[-1]] == _meant(search, rows), (type(store), search)
                assert all(run in rows for run in answers[-1])
            if len(answers[0]) < search.limit:
                return
            search = replace(search, after=place_of(cursor_of(answers[0][-1])))
            if turns is not None:
                await change(run_ids, *next(turns))

    async def change(run_ids: list[str], which: int, values: dict[str, Scalar]) -> None:
        """Between two pages a run changes what it shows, or ends."""
        for store in stores:
            [run, *_] = [*await store.runs([run_ids[which % len(run_ids)]]), None]
            if run is not None and run.status is Status.RUNNING:
                run = await _show(store, run, values)
                if not values:
                    await committed(store, completion(store, run))

    with asyncio.Runner() as runner:
        for store in stores:
            runner.run(store.open())

        @settings(max_examples=40, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
        @given(
            st.lists(shapes, min_size=4, max_size=16),
            st.lists(questions(), min_size=1, max_size=6),
            st.lists(st.tuples(st.integers(0, 15), st.dictionaries(names, values, max_size=2)), max_size=3),
        )
        def every_example(
            population: list[Shape], asked: list[Search], changes: list[tuple[int, dict[str, Scalar]]]
        ) -> None:
            runner.run(check(f"n{next(numbers)}", population, asked, changes))

        try:
            every_example()
        finally:
            for store in stores:
                runner.run(store.close())


async def test_every_value_every_bound_and_every_prefix_is_told_apart(store: Store) -> None:
    """All of them against all of them: what lies on a bound, and just beside it."""
    for number, value in enumerate(VALUES):
        await _make(store, f"value-{number}", "default", _shape(number, attributes={"total": value}))
    for number, key in enumerate(KEYS):
        await _make(store, f"key-{number}", "default", _shape(number, key=key))
    bounds = [(name, bound) for name in ("ge", "gt", "le", "lt") for bound in (*NUMBERS, *INSTANTS)]
    spans = [Span(since_ms, until_ms) for since_ms in (None, NOW_MS + 3) for until_ms in (None, NOW_MS + 7)]
    asked = [
        *(_search(attributes={"total": value}) for value in VALUES),
        *(_search(attributes={"total": Range(**{name: bound})}) for name, bound in bounds),
        *(_search(key_prefix=prefix) for prefix in KEYS),
        *(_search(created=span) for span in spans),
        *(_search(finished=span) for span in spans),
    ]
    rows = await store.runs([f"{kind}-{number}" for kind in ("value", "key") for number in range(len(VALUES))])
    assert len(rows) == len(VALUES) + len(KEYS)
    for search in asked:
        for question in (search, replace(search, newest_first=False)):
            assert await _ids(store, question) == _meant(question, rows), question


async def test_each_namespace_sees_its_own_runs(store: Store) -> None:
    for namespace in ("default", "tenant"):
        for number in range(3):
            shape = _shape(number, key=f"order:{number}", attributes={"customer": "c-1", "total": number})
            await _make(store, f"{namespace}-{number}", namespace, shape)
    always = Span(NOW_MS, NOW_MS + 100)
    for search in (
        _search(),
        _search(workflow=WORKFLOWS[0]),
        _search(statuses=frozenset({Status.COMPLETED})),
        _search(statuses=frozenset({Status.COMPLETED, Status.FAILED})),
        _search(key_prefix="order:"),
        _search(created=always),
        _search(finished=always),
        _search(attributes={"customer": "c-1"}),
        _search(attributes={"total": Range(ge=0)}),
    ):
        for namespace in ("default", "tenant"):
            found = await _ids(store, replace(search, namespace=namespace))
            assert found == [f"{namespace}-{number}" for number in (2, 1, 0)], search
        assert await _ids(store, replace(search, namespace="")) == []


def _shape(number: int, **fields: Any) -> Shape:
    return replace(Shape(WORKFLOWS[0], None, NOW_MS + number % 5, Status.COMPLETED, number % 4, {}), **fields)


# -- the promises, one by one


def _search(**fields: object) -> Search:
    wished = fields.pop("attributes", {})
    return Search(namespace="default", limit=100, conditions=conditions_of(wished), **fields)  # pyright: ignore[reportArgumentType]


async def _with(store: Store, run_id: str, **values: Scalar) -> Run:
    return await held(store, run_id, key=None, attributes=attributes.encode(values))


async def test_a_run_is_found_by_what_it_was_started_with(store: Store) -> None:
    run = await _with(store, "run-1", customer="c-1", total=12)
    await _with(store, "run-2", customer="c-2", total=12)
    assert await store.search(_search(attributes={"customer": "c-1"})) == [run]
    assert await _ids(store, _search(attributes={"customer": "c-1", "total": 12})) == ["run-1"]
    assert await _ids(store, _search(attributes={"customer": "c-1", "total": 13})) == []
    assert await _ids(store, _search(attributes={"Customer": "c-1"})) == []


async def test_what_a_run_sets_is_found_at_once_and_what_it_removed_no_more(store: Store) -> None:
    """K16."""
    run = await _with(store, "run-1", stage="new", customer="c-1")
    run = await _show(store, run, {"stage": "paid", "total": 3})
    assert await _ids(store, _search(attributes={"stage": "paid", "total": Range(ge=3)})) == ["run-1"]
    assert await _ids(store, _search(attributes={"stage": "new"})) == []
    assert await _ids(store, _search(attributes={"customer": "c-1"})) == []
    await _show(store, run, {})
    assert await _ids(store, _search(attributes={"stage": "paid"})) == []
    assert await _ids(store, _search()) == ["run-1"]


async def test_a_refused_change_shows_nothing(store: Store) -> None:
    run = await _with(store, "run-1", stage="new")
    recorded = transitions.Recorded((performed(),), shown=Shown(attributes.encode({"stage": "paid"}), b""))
    stale = replace(run, epoch=run.epoch - 1)
    await offer(store, transitions.decide(stale, transitions.Progressed(), recorded=recorded, now_ms=store.now_ms()))
    assert await _ids(store, _search(attributes={"stage": "new"})) == ["run-1"]
    assert await _ids(store, _search(attributes={"stage": "paid"})) == []


async def test_attributes_are_found_after_the_run_has_ended(store: Store) -> None:
    run = await _with(store, "run-1", stage="new")
    shown = Shown(attributes.encode({"stage": "done"}), b'["shipped"]')
    change = completion(store, run, recorded=transitions.Recorded((performed(),), shown=shown))
    done = await committed(store, change)
    assert done.markers == b'["shipped"]'
    assert await store.search(_search(attributes={"stage": "done"}, statuses=frozenset({Status.COMPLETED}))) == [done]


async def test_a_run_is_found_by_its_status_as_it_is_now(store: Store, clock: FakeClock) -> None:
    await admitted(store, "run-1")
    expected = Status.PENDING

    async def only(status: Status) -> bool:
        found = {each: await _ids(store, _search(statuses=frozenset({each}))) for each in Status}
        return {each for each, ids in found.items() if ids} == {status}

    assert await only(expected)
    [run] = await claim(store)
    assert await only(Status.RUNNING)
    await committed(store, let_go(store, run, wake_at_ms=store.now_ms()))
    assert await only(Status.WAITING)
    [run] = await claim(store)
    await store.leave("w-1")
    assert await only(Status.PENDING)
    [run] = await claim(store)
    await committed(store, blockage(store, run))
    assert await only(Status.BLOCKED)


async def test_an_end_that_is_taken_back_by_a_retry_is_not_found(store: Store) -> None:
    run = await failed(store)
    span = Span(0, store.now_ms() + 1)
    assert await _ids(store, _search(finished=span)) == ["run-1"]
    change = transitions.retry(run, (await store.histories(["run-1"]))[0].journal, now_ms=store.now_ms())
    await committed(store, change)
    assert await _ids(store, _search(finished=span)) == []


async def test_a_run_that_lost_its_key_is_still_found_by_it(store: Store) -> None:
    done = await ended(store)
    await committed(store, transitions.release_key(done, reason="", nonce="n", now_ms=store.now_ms()))
    await admitted(store, "run-2")
    assert sorted(await _ids(store, _search(key_prefix="order:"))) == ["run-1", "run-2"]


async def test_a_pruned_run_is_found_no_more(store: Store, clock: FakeClock) -> None:
    run = await held(store, retention_ms=0, attributes=attributes.encode({"customer": "c-1"}))
    await committed(store, completion(store, run))
    clock.advance(1)
    await store.prune(10)
    for search in (_search(), _search(attributes={"customer": "c-1"}), _search(workflow="shop.checkout")):
        assert await store.search(search) == []


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_show_nothing_twice_and_leave_out_nothing_that_was_there(
    store: Store, clock: FakeClock, newest_first: bool
) -> None:
    """Between pages runs are admitted, end, change what they show, lose their keys and are pruned."""
    for number in range(40):
        await _with(store, f"run-{number:02}", customer="c-1", total=number)
        clock.advance(number % 3)  # some are of the same instant
    before = [run.id for run in await store.search(_search(newest_first=newest_first))]
    assert len(before) == 40
    for wished in ({}, {"customer": "c-1"}, {"total": Range(ge=0)}):
        seen: list[str] = []
        search = replace(_search(attributes=wished, newest_first=newest_first), limit=7)
        for turn in itertools.count():
            page = await store.search(search)
            seen += [run.id for run in page]
            if len(page) < 7:
                break
            search = replace(search, after=(page[-1].created_at_ms, page[-1].id))
            await _with(store, f"new-{len(wished)}-{list(wished)}-{turn}", customer="c-1", total=turn)
            [run] = await store.runs([f"run-{turn:02}"])
            if run.status is Status.RUNNING:
                run = await _show(store, run, {"customer": "c-1", "total": turn + 100})
            await store.prune(10)
            clock.advance(1)
        assert [run_id for run_id in seen if run_id in before] == before
        assert len(set(seen)) == len(seen)


async def test_roots_alone_fill_a_page_and_its_cursor_goes_on(store: Store) -> None:
    for number in range(12):
        values: dict[str, Scalar] = {} if number % 3 == 0 else {attributes.PARENT: "r-00"}
        wish = wanted(f"r-{number:02}", key=None, attributes=attributes.encode(values))
        await offer(store, starts.admission(wish, now_ms=NOW_MS + number, hand=None))
    search = Search(namespace="default", limit=2, roots_only=True)
    assert await _ids(store, search) == ["r-09", "r-06"]
    assert await _ids(store, replace(search, after=(NOW_MS + 6, "r-06"))) == ["r-03", "r-00"]
    assert len(await _ids(store, replace(search, roots_only=False, limit=20))) == 12


async def test_runs_of_one_instant_come_by_id(store: Store) -> None:
    for run_id in ("b", "a", "c"):
        await admitted(store, run_id, key=None)
    assert await _ids(store, _search()) == ["c", "b", "a"]
    assert await _ids(store, _search(newest_first=False)) == ["a", "b", "c"]
    after = (store.now_ms(), "b")
    assert await _ids(store, _search(after=after)) == ["a"]
    assert await _ids(store, _search(after=after, newest_first=False)) == ["c"]


async def test_a_cursor_that_names_no_run_is_a_place_all_the_same(store: Store) -> None:
    """Its run may have been pruned meanwhile."""
    for run_id in ("a", "c"):
        await admitted(store, run_id, key=None)
    assert await _ids(store, _search(after=(store.now_ms(), "b"))) == ["a"]
    assert await _ids(store, _search(after=(store.now_ms() - 1, "z"))) == []
    assert await _ids(store, _search(after=(store.now_ms() + 1, ""))) == ["c", "a"]
