"""Key fields of several types: refused where two values could have one text."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar, Union
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import UsageError
from holdfast.kernel import key_types
from holdfast.kernel.keys import parse, text_of

T = TypeVar("T")
UserId = NewType("UserId", int)


class Colour(enum.Enum):
    RED = "red"
    NONE = None  # has no text: refused when a key is filled with it


class Shade(enum.Enum):
    RED = "red"


class Size(enum.Enum):
    SMALL = 1


class Level(enum.IntEnum):
    HIGH = 3


class Mood(enum.StrEnum):
    GOOD = "good"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Mixed(enum.Enum):
    NUMBER = 1
    TEXT = "1"


class Box(Generic[T]):
    content: T


@dataclass
class Order:
    id: int
    note: str | int
    customer: Customer


@dataclass
class Customer:
    id: str


@dataclass
class Invoice:
    id: str


class Alias:
    """As `type Alias = ...` makes it where Python has that."""

    __value__ = int | str


def shown(value: object) -> str:
    """As a test is named: the same in every process, so without an address."""
    return "an alias of int | str" if "Alias" in str(value) else str(value)


def check(annotation: Any, field: str = "x") -> None:
    template = parse(f"k:{{{field}}}", parameters=frozenset({"x"}), owner="workflow 'shop.checkout'")
    annotations = {} if annotation is None else {"x": annotation}
    key_types.check(template, annotations, owner="workflow 'shop.checkout'")


@pytest.mark.parametrize(
    "annotation",
    [
        *(str, int, bool, float, Decimal, UUID, date, datetime, Colour, Level, Mood, Rights),
        *(
            str | None,
            Optional[int],  # noqa: UP045 - this is what is tested
            Union[date, None],  # noqa: UP007 - this is what is tested
            Annotated[str, "a name"],
            UserId,
            Annotated[UserId, "u"] | None,
        ),
        *(
            int | float,
            int | bool,
            float | bool,
            date | datetime,
            int | UUID,
            UUID | date,
            Decimal | date,
            int | UserId,
        ),
        *(
            int | Level,
            str | Mood,
            Level | bool,
            Literal["a", "b"],
            Literal[1, True],
            Literal["a"] | str,  # noqa: PYI051 - this is what is tested
            Literal["a", 1],
        ),
        *(
            Colour | int,
            Colour | Level,
            Colour | Mood,
            Literal[Colour.RED],
            Colour | Literal[Colour.RED],
            Literal[None],  # noqa: PYI061 - this is what is tested
        ),
        *(Literal[b"no text"], Literal[1] | None, Rights | float, Size | bool),
        # Where the annotation leaves it open, nothing is said.
        *(None, Any, object, T, Any | None, list[int] | str, dict[str, int] | str, "a name that is not resolved"),
    ],
    ids=shown,
)
def test_a_field_of_one_type_or_of_types_that_never_look_alike_is_good(annotation):
    check(annotation)


@pytest.mark.parametrize(
    ("annotation", "one", "other"),
    [
        (int | str, "int", "str"),
        (str | bool, "str", "bool"),
        (str | float | None, "str", "float"),
        (date | str, "date", "str"),
        (datetime | str, "datetime", "str"),
        (UUID | str, "UUID", "str"),
        (Decimal | str, "Decimal", "str"),
        (Decimal | int, "Decimal", "int"),
        (Decimal | float, "Decimal", "float"),
        (Colour | str, "Colour", "str"),
        (Colour | Shade, "Colour", "Shade"),
        (Size | int, "Size", "int"),
        (Size | Decimal, "Size", "Decimal"),
        (Rights | int, "Rights", "int"),
        (Rights | str, "Rights", "str"),
        (Level | str, "Level", "str"),
        (Mood | Literal[Colour.RED] | Shade, "Colour", "Shade"),
        (Literal[1, "1"], "int", "str"),
        (Literal[True, "true"], "bool", "str"),
        (Literal["3"] | Level, "str", "Level"),
        (Literal["2024-02-29"] | date, "str", "date"),
        (Union[int, str | None], "int", "str"),  # noqa: UP007 - this is what is tested
        (Annotated[UserId | str, "who"], "int", "str"),
        (Annotated[Alias(), "of several"], "int", "str"),
    ],
    ids=shown,
)
def test_a_field_of_types_that_may_look_alike_is_refused_and_named(annotation, one, other):
    with pytest.raises(
        UsageError, match=rf"the field 'x' of key template 'k:{{x}}' .* may be {one} or {other}"
    ) as caught:
        check(annotation)
    assert "workflow 'shop.checkout'" in str(caught.value)
    assert "Annotate it with one type" in caught.value.hint


def test_an_enum_whose_members_look_alike_is_refused():
    with pytest.raises(UsageError, match="is of Mixed, which has members that look alike"):
        check(Mixed | None)


@pytest.mark.parametrize(
    ("annotation", "field"),
    [
        *((Order, "x.id"), (Order, "x.customer.id"), (Order | Customer, "x.missing"), (Customer | Invoice, "x.id")),
        *((Any, "x.id"), (list[Order], "x.id"), (Box[int], "x.content"), (Order | None, "x.customer.id")),
    ],
    ids=shown,
)
def test_a_dotted_field_is_looked_up_as_far_as_it_is_annotated(annotation, field):
    check(annotation, field)


@pytest.mark.parametrize(
    ("annotation", "field"),
    [(Order, "x.note"), (Order | Invoice, "x.id"), (Order | Customer | None, "x.id")],
    ids=shown,
)
def test_a_dotted_field_of_types_that_may_look_alike_is_refused(annotation, field):
    with pytest.raises(UsageError, match=f"the field '{field}'"):
        check(annotation, field)


VALUES = {
    int: st.integers(),
    bool: st.booleans(),
    float: st.floats(),
    Decimal: st.decimals(),
    UUID: st.uuids(),
    date: st.dates(),
    datetime: st.datetimes(timezones=st.just(UTC)),
}


@given(st.data())
def test_two_types_that_are_good_together_never_give_one_text(data):
    one, other = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=2, max_size=2, unique=True))
    try:
        check(one | other)
    except UsageError:
        return
    assert text_of(data.draw(VALUES[one])) != text_of(data.draw(VALUES[other]))


@given(st.data())
def test_the_texts_of_a_type_look_as_it_is_said(data):
    of_type = data.draw(st.sampled_from(list(VALUES)))
    text = text_of(data.draw(VALUES[of_type]))
    assert key_types._LOOKS[of_type.__name__].fullmatch(text), text
