"""`matches` is what every store is measured by; here it is measured by a plainer reading of the rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import attributes, searches
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import ALWAYS, Range, Search, Span, conditions_of, cursor_of, matches, place_of, span
from tests.builders import NOW_MS, a_run

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
EVERYTHING = Search(namespace="default", limit=50)


def found(search: Search, run: Run, **fields: Any) -> bool:
    return matches(replace(search, **fields), run)


# -- one attribute

VALUES: list[Any] = ["", "a", "b", "1", 0, 1, 2, -1, 1.0, 1.5, True, False, NOON, NOON + timedelta(microseconds=1)]
BOUNDS: list[Any] = [0, 1, 1.5, 2, NOON, NOON + timedelta(microseconds=1), None]


def plain_kind(value: Any) -> str:
    return "number" if type(value) in {int, float} else type(value).__name__


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("low_side", "high_side"), list(product(["ge", "gt"], ["le", "lt"])))
def test_a_range_holds_what_lies_in_it(value, low_side, high_side):
    run = a_run(attributes=attributes.encode({"x": value}))
    for low, high in product(BOUNDS, BOUNDS):
        bounds = [bound for bound in (low, high) if bound is not None]
        if len({plain_kind(bound) for bound in bounds}) != 1:
            continue
        holds = plain_kind(value) == plain_kind(bounds[0])
        if holds and low is not None:
            holds = value > low or (low_side == "ge" and value == low)
        if holds and high is not None:
            holds = value < high or (high_side == "le" and value == high)
        conditions = conditions_of({"x": Range(**{low_side: low, high_side: high})})
        assert found(EVERYTHING, run, conditions=conditions) is holds, (low, high)


@pytest.mark.parametrize("wanted", VALUES)
def test_equality_is_strict_about_types(wanted):
    conditions = conditions_of({"x": wanted})
    assert conditions[0].is_equality
    for value in VALUES:
        same = plain_kind(value) == plain_kind(wanted) and value == wanted
        assert found(EVERYTHING, a_run(attributes=attributes.encode({"x": value})), conditions=conditions) is same


def test_a_search_may_leave_out_what_other_runs_have_started():
    child = a_run(attributes=attributes.encode({attributes.PARENT: "r-1", attributes.ROOT: "r-1"}))
    fork = a_run(attributes=attributes.encode({attributes.FORKED_FROM: "r-1"}))
    assert found(EVERYTHING, child)
    assert not found(EVERYTHING, child, roots_only=True)
    assert found(EVERYTHING, fork, roots_only=True)
    assert found(EVERYTHING, a_run(), roots_only=True)


def test_all_conditions_must_hold():
    run = a_run(attributes=attributes.encode({"customer": "c-1", "total": 12}))
    assert found(EVERYTHING, run, conditions=conditions_of({"customer": "c-1", "total": Range(ge=10, lt=20)}))
    assert not found(EVERYTHING, run, conditions=conditions_of({"customer": "c-1", "total": Range(ge=13)}))
    assert not found(EVERYTHING, run, conditions=conditions_of({"customer": "c-1", "colour": "red"}))
    assert not found(EVERYTHING, a_run(), conditions=conditions_of({"customer": "c-1"}))


def test_what_belongs_to_the_engine_can_be_searched():
    run = a_run(attributes=attributes.encode({attributes.PARENT: "run-0"}))
    assert found(EVERYTHING, run, conditions=conditions_of({attributes.PARENT: "run-0"}))


def test_a_range_of_one_point_is_an_equality_and_an_open_one_is_empty():
    [point] = conditions_of({"x": Range(ge=3, le=3)})
    [empty] = conditions_of({"x": Range(ge=3, lt=3)})
    [half] = conditions_of({"x": Range(ge=3)})
    assert (point.is_equality, empty.is_equality, half.is_equality) == (True, False, False)
    assert point.holds("number", 3)
    assert not empty.holds("number", 3)


def test_a_range_is_the_same_in_every_zone():
    east = timezone(timedelta(hours=14))
    assert conditions_of({"x": Range(ge=NOON)}) == conditions_of({"x": Range(ge=NOON.astimezone(east))})


def test_a_range_has_a_bound():
    with pytest.raises(UsageError, match="0 lower and 0 upper bounds"):
        Range()


@pytest.mark.parametrize("bounds", [{"ge": 10, "gt": 5}, {"le": 5, "lt": 10}, {"ge": 1, "gt": 1, "lt": 3}])
def test_a_range_has_one_bound_on_each_side(bounds):
    """Neither is passed over in silence."""
    with pytest.raises(UsageError, match="a Range with"):
        Range(**bounds)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"ge": True}, "bounds of kind flag"),
        ({"ge": "a", "lt": "b"}, "bounds of kind text"),
        ({"ge": 1, "lt": NOON}, "bounds of kind instant, number"),
        ({"ge": float("nan")}, "cannot be float"),
        ({"ge": NOON.replace(tzinfo=None)}, "cannot be datetime"),
        ({"lt": 2**63}, "cannot be int"),
    ],
)
def test_bounds_are_numbers_or_aware_instants(bounds, message):
    with pytest.raises(UsageError, match=message):
        conditions_of({"x": Range(**bounds)})


@pytest.mark.parametrize("wanted", [None, "customer", ["customer"]])
def test_conditions_are_a_mapping(wanted):
    with pytest.raises(UsageError, match="not a mapping"):
        conditions_of(wanted)


@pytest.mark.parametrize("value", [None, ["c-1"], float("inf"), "x" * 256])
def test_a_value_that_no_attribute_can_have_is_refused(value):
    with pytest.raises(UsageError, match="attribute 'customer' cannot be"):
        conditions_of({"customer": value})


# -- the rest of the row


@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        ({}, True),
        ({"namespace": "other"}, False),
        ({"workflow": "shop.checkout"}, True),
        ({"workflow": "shop.check"}, False),
        ({"statuses": frozenset({Status.PENDING, Status.FAILED})}, True),
        ({"statuses": frozenset({Status.FAILED})}, False),
        ({"statuses": frozenset()}, False),
        ({"key_prefix": "order:"}, True),
        ({"key_prefix": "order:1"}, True),
        ({"key_prefix": "order:12"}, False),
        ({"key_prefix": "rder"}, False),
        ({"created": Span(NOW_MS, NOW_MS + 1)}, True),
        ({"created": Span(NOW_MS + 1)}, False),
        ({"created": Span(until_ms=NOW_MS)}, False),
        ({"finished": Span(0)}, False),  # it has not ended
        ({"finished": Span(until_ms=NOW_MS * 2)}, False),
    ],
)
def test_every_condition_on_the_row_counts(fields, holds):
    assert found(EVERYTHING, a_run(), **fields) is holds


def test_a_run_without_a_key_has_no_prefix():
    assert not found(EVERYTHING, a_run(key=None), key_prefix="o")


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "finished_at_ms", "holds"),
    [
        (10, 20, 9, False),
        (10, 20, 10, True),
        (10, 20, 19, True),
        (10, 20, 20, False),
        (None, 20, 0, True),
        (10, None, 10, True),
        (10, None, 9, False),
        (10, None, None, False),
        (None, None, None, True),
    ],
)
def test_a_span_begins_with_its_lower_bound_and_ends_before_its_upper_one(since_ms, until_ms, finished_at_ms, holds):
    assert Span(since_ms, until_ms).holds(finished_at_ms) is holds


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.integers(0, 5))
def test_bounds_between_two_milliseconds_are_as_true_as_others(after_us, before_us, created_at_ms):
    """Rows count whole milliseconds; people's instants do not."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    wanted = span(epoch + timedelta(microseconds=after_us), epoch + timedelta(microseconds=before_us))
    assert wanted.holds(created_at_ms) is (after_us <= created_at_ms * 1000 < before_us)


def test_no_bounds_are_no_span():
    assert span(None, None) == ALWAYS
    assert not ALWAYS.is_set


@pytest.mark.parametrize("instant", [NOON.replace(tzinfo=None), NOON.date(), 1_700_000_000, "2026-01-01"])
def test_a_span_is_between_aware_instants(instant):
    with pytest.raises(UsageError, match="is not a datetime with a time zone"):
        span(instant, None)


@pytest.mark.parametrize(
    ("wanted", "statuses"),
    [
        (None, None),
        ("failed", {Status.FAILED}),
        (Status.FAILED, {Status.FAILED}),
        ({"failed", "blocked"}, {Status.FAILED, Status.BLOCKED}),
        (["pending", "pending"], {Status.PENDING}),
        ([], set()),
    ],
)
def test_statuses_by_name(wanted, statuses):
    assert searches.statuses_of(wanted) == statuses


@pytest.mark.parametrize("wanted", ["done", ["failed", "done"], "", 5])
def test_a_status_that_is_none_is_refused_with_those_that_are(wanted):
    with pytest.raises(UsageError) as refused:
        searches.statuses_of(wanted)
    assert "pending, running, waiting, blocked, completed, failed, cancelled" in str(refused.value.hint)


# -- pages

ROWS = st.lists(
    st.builds(
        lambda number, created_at_ms, done: a_run(
            f"run-{number:02}", created_at_ms=created_at_ms, status=Status.COMPLETED if done else Status.PENDING
        ),
        st.integers(0, 40),
        st.integers(0, 5),
        st.booleans(),
    ),
    unique_by=lambda run: run.id,
    max_size=25,
)


@given(ROWS, st.booleans(), st.integers(1, 7), ROWS)
def test_pages_show_everything_once_in_order_whatever_comes_meanwhile(rows, newest_first, limit, later):
    """A page shows nothing twice and leaves out nothing that was there before."""
    search = replace(EVERYTHING, newest_first=newest_first, limit=limit, statuses=frozenset({Status.PENDING}))
    table = {run.id: run for run in rows}
    meant = {run.id for run in rows if run.status is Status.PENDING}
    seen: list[Run] = []
    while len(seen) <= 50:  # no more rows than that are there
        page = sorted(
            (run for run in table.values() if matches(search, run)),
            key=lambda run: (run.created_at_ms, run.id),
            reverse=newest_first,
        )[:limit]
        if not page:
            break
        seen += page
        search = replace(search, after=place_of(cursor_of(page[-1])))
        for run in later[:3]:  # others are admitted while one turns the pages
            table.setdefault(run.id, run)
        later = later[3:]
    places = [(run.created_at_ms, run.id) for run in seen]
    assert places == sorted(set(places), reverse=newest_first)
    assert meant <= {run.id for run in seen}


@given(st.integers(0, 10**17), st.text(max_size=40))
def test_a_cursor_names_its_place_whatever_the_id_looks_like(created_at_ms, run_id):
    assert place_of(cursor_of(a_run(run_id, created_at_ms=created_at_ms))) == (created_at_ms, run_id)


@pytest.mark.parametrize(
    "cursor", ["", "run-1", ".run-1", "x.run-1", "-1.run-1", "1e3.run-1", "²3.run-1", "9" * 19 + ".r"]
)
def test_what_is_no_cursor_is_refused(cursor):
    with pytest.raises(UsageError, match="is not a cursor"):
        place_of(cursor)
