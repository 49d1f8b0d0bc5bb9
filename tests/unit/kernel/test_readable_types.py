from __future__ import annotations

import enum
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from holdfast.kernel.readable_types import unreadable


class Plain:
    pass


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Tree:
    name: str
    branches: list[Tree]


@dataclass
class Holder:
    tree: Tree
    thing: Plain


@dataclass
class Loose:
    fields: dict[str, object]


class Row(NamedTuple):
    a: int
    b: Colour


class Typed(TypedDict):
    a: int


class Struct(msgspec.Struct):
    a: Row


class Model(pydantic.BaseModel):
    a: dict[str, object]


@pytest.mark.parametrize(
    "annotation",
    [
        Any,
        object,
        None,
        str,
        int | None,
        list[int],
        dict[str, Any],
        Mapping[str, Sequence[float]],
        tuple[int, ...],
        set[str],
        Tree,
        Row,
        Typed,
        Struct,
        Model,
        list[Model],
        Model | None,
        datetime,
        timedelta,
        Decimal,
        uuid.UUID,
        bytes,
        Colour,
        Literal["a", "b"],
        NewType("OrderId", str),
        TypeVar("T"),
        Annotated[int, msgspec.Meta(gt=0)],
    ],
    ids=str,
)
def test_what_says_what_is_in_it_can_be_read_back(annotation: Any) -> None:
    assert unreadable(annotation) is None


@pytest.mark.parametrize(
    ("annotation", "part"),
    [
        (dict[str, object], "object"),
        (list[object], "object"),
        (dict[str, list[tuple[int, object]]], "object"),
        (Mapping[str, object] | None, "object"),
        (Plain, "Plain"),
        (list[Plain], "Plain"),
        (Plain | None, "Plain"),
        (Holder, "Plain in Holder.thing"),
        (list[Loose], "object in Loose.fields"),
        (Iterable[str], "Iterable"),
        (AsyncIterator[str], "AsyncIterator"),
        (Callable[[], int], "Callable"),
        (type[int], "type"),
        (Exception, "Exception"),
        (complex, "complex"),
    ],
    ids=str,
)
def test_what_says_nothing_about_its_values_cannot(annotation: Any, part: str) -> None:
    found = unreadable(annotation)
    assert found is not None
    assert found.part == part
    assert found.cure.endswith(("Any where it may be anything that JSON holds.", "or Any for whatever JSON holds."))
    assert ("object" in part) == found.cure.startswith("Write Any")


def test_a_type_that_cannot_be_looked_at_is_not_refused_for_it() -> None:
    assert unreadable(list["Unknown"]) is None  # noqa: F821 - that is the case
