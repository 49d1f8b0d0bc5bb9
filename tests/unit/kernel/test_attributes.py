from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import UsageError
from holdfast.kernel.attributes import (
    COUNT_MAX,
    FORKED_FROM,
    PARENT,
    ROOT,
    checked,
    decode,
    encode,
    encode_changes,
    indexed,
    merged,
    micros,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))

TEXTS = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=255)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
INSTANTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.sampled_from([UTC, EAST, WEST]))
SCALARS = TEXTS | NUMBERS | st.booleans() | INSTANTS
NAMES = st.text("abcXYZ_", min_size=1, max_size=9)
ATTRIBUTES = st.dictionaries(NAMES, SCALARS, max_size=4)


class Grade(StrEnum):
    GOLD = "gold"


class Level(IntEnum):
    HIGH = 3


@given(ATTRIBUTES)
def test_attributes_are_read_back_as_they_were_set(attributes):
    assert checked(attributes) == attributes
    read = decode(encode(attributes))
    assert read == attributes
    assert {name: type(value) for name, value in read.items()} == {
        name: type(value) for name, value in attributes.items()
    }


def test_a_run_without_attributes_stores_nothing():
    assert (encode({}), decode(b"")) == (b"", {})


@pytest.mark.parametrize("value", ["", "c-1", "Köln", "x" * 255, 0, -(2**63), 2**63 - 1, 0.5, True, False, NOON])
def test_what_can_be_an_attribute(value):
    assert checked({"a": value}) == {"a": value}


@pytest.mark.parametrize(
    "value",
    [
        "x" * 256,
        "two\nlines",
        "\x00",
        "\ud800",
        2**63,
        -(2**63) - 1,
        math.nan,
        math.inf,
        NOON.replace(tzinfo=None),
        NOON.date(),
        timedelta(1),
        b"bytes",
        ["list"],
        {"at": 1},
        object(),
    ],
)
def test_what_cannot_be_an_attribute_is_said_by_name(value):
    with pytest.raises(UsageError, match="attribute 'a' cannot be") as refused:
        checked({"a": value})
    assert "64-bit whole number" in str(refused.value.hint)


@pytest.mark.parametrize("name", ["customer", "_x", "a.b-c_9", "x" * 64, "holdfast"])
def test_what_can_be_a_name(name):
    assert checked({name: 1})


@pytest.mark.parametrize("name", ["", "9lives", "x" * 65, "a b", "a\n", "ä", ".a", 7, None])
def test_what_cannot_be_a_name(name):
    with pytest.raises(UsageError, match="is not an attribute name"):
        checked({name: 1})


@pytest.mark.parametrize("name", [PARENT, ROOT, FORKED_FROM, "holdfast.anything"])
def test_nobody_sets_what_belongs_to_the_engine(name):
    with pytest.raises(UsageError, match="belongs to the engine"):
        checked({name: "run-1"})


@pytest.mark.parametrize("wanted", [None, "customer", [("customer", 1)], 7])
def test_attributes_are_a_mapping(wanted):
    with pytest.raises(UsageError, match="not a mapping"):
        checked(wanted)


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Number(float):
    pass


@pytest.mark.parametrize(
    ("value", "stored"),
    [(Grade.GOLD, "gold"), (Level.HIGH, 3), (Text("x"), "x"), (Whole(7), 7), (Number(0.5), 0.5)],
)
def test_a_value_of_a_derived_type_is_stored_as_what_it_is(value, stored):
    """Enums, and the numbers of numerical libraries: what passes the check can be stored."""
    [(_, read)] = decode(encode(checked({"a": value}))).items()  # pyright: ignore[reportArgumentType]
    assert read == stored
    assert type(read) is type(stored)


@pytest.mark.parametrize("value", [datetime.min.replace(tzinfo=EAST), datetime.max.replace(tzinfo=WEST)])
def test_an_instant_that_could_not_be_read_back_is_refused(value):
    with pytest.raises(UsageError, match="attribute 'a' cannot be"):
        checked({"a": value})


# -- changes


def test_none_removes_and_the_rest_stays():
    before = {"customer": "c-1", "stage": "paid"}
    assert merged(before, {"stage": None, "total": 3, "never": None}) == {"customer": "c-1", "total": 3}
    assert before == {"customer": "c-1", "stage": "paid"}
    assert checked({"stage": None}) == {"stage": None}


def test_a_run_has_few_attributes():
    full = {f"a{number}": number for number in range(COUNT_MAX)}
    assert len(merged({}, full)) == COUNT_MAX
    assert len(merged(full, {"a0": None, "new": 1})) == COUNT_MAX
    with pytest.raises(UsageError, match="a run cannot have 33 attributes"):
        merged(full, {"new": 1})
    merged({**full, "holdfast.parent": "run-1"}, {"a0": 1})  # the engine's own take nobody's place


def test_the_journal_keeps_removals_too():
    assert encode_changes({"stage": None, "due": NOON, "total": 3}) == (
        b'{"stage":null,"due":{"at":%d},"total":3}' % micros(NOON)
    )


# -- as they are indexed


@pytest.mark.parametrize(
    ("value", "kind"),
    [("x", "text"), ("1", "text"), (1, "number"), (1.0, "number"), (True, "flag"), (False, "flag"), (NOON, "instant")],
)
def test_values_of_different_kinds_are_never_compared(value, kind):
    assert indexed(value)[0] == kind


def test_types_are_strict_where_python_is_not():
    assert indexed(True) != indexed(1)
    assert indexed("1") != indexed(1)
    assert indexed(1) == indexed(1.0)


def test_an_instant_is_the_same_in_every_zone():
    assert indexed(NOON) == indexed(NOON.astimezone(EAST)) == ("instant", micros(NOON))
    assert micros(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1


@given(st.lists(INSTANTS, max_size=4))
def test_instants_sort_as_they_come(instants):
    assert sorted(instants) == sorted(instants, key=lambda instant: indexed(instant)[1])
