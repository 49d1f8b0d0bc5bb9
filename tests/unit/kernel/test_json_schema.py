from __future__ import annotations

import enum
import functools
import json
import uuid
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Meta, Struct

from holdfast.kernel.json_schema import misfit


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Approval(Struct):
    by: str
    level: Level = Level.LOW
    note: str | None = None


class Closed(Struct, forbid_unknown_fields=True, rename="camel"):
    how_many: int
    colours: dict[str, Colour] = {}


class Cash(Struct, tag=True):
    amount: int


class Card(Struct, tag=True):
    number: str
    limit: float | None = None


class First(Struct, tag=1, tag_field="version"):
    name: str


class Second(Struct, tag=2, tag_field="version"):
    name: str
    age: int = 0


class Point(Struct, array_like=True):
    x: int
    y: float = 0.0


class Move(Struct, array_like=True, tag=True):
    to: Point


class Stop(Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    why: str = ""


class Node(Struct):
    value: int
    next: Node | None = None


class Tree(Struct):
    kind: Literal["leaf", "branch"]
    children: list[Tree] = []


@dataclass
class Basket:
    owner: Approval
    items: list[tuple[str, int]] = field(default_factory=list)


class Options(TypedDict):
    fast: bool
    retries: NotRequired[Annotated[int, Meta(ge=0, le=5)]]


class Pair(NamedTuple):
    left: int
    right: str = ""


class Bill(Struct):
    total: Decimal
    due: date
    id: uuid.UUID | None = None
    blob: bytes = b""
    grace: timedelta | None = None


# What msgspec refuses of these, their schemas refuse too.
PLAIN: tuple[Any, ...] = (
    None,
    bool,
    int,
    float,
    str,
    Any,
    int | None,
    int | float,
    str | bool | None,
    Literal["a", "b"],
    Literal[1, 2, "a"] | None,
    Colour,
    Level,
    Level | str,
    Colour | None,
    list[int],
    list[Any],
    set[str],
    tuple[int, str],
    tuple[float, ...],
    tuple[()],
    dict[str, int],
    dict[str, list[str | None]],
    list[int] | dict[str, int] | None,
    Annotated[int, Meta(ge=-1, lt=3)],
    Annotated[int, Meta(gt=-1, le=3, multiple_of=2)],
    Annotated[float, Meta(gt=0, le=1)],
    Annotated[float, Meta(multiple_of=0.5)],
    Annotated[str, Meta(min_length=1, max_length=2)],
    Annotated[str, Meta(pattern="^[a-c]+$")],
    Annotated[list[int], Meta(min_length=1, max_length=2)],
    Annotated[dict[str, int], Meta(min_length=1, max_length=2)],
    Approval,
    Closed,
    Cash | Card,
    Cash | Card | int | None,
    list[Cash | Card],
    First | Second,
    Point,
    Move | Stop,
    Node,
    list[Node] | None,
    Tree,
    Basket,
    Options,
    Pair,
)
# Of these msgspec refuses more, since it reads dates and the like, or less than their schemas do.
OTHERS: tuple[Any, ...] = (
    datetime,
    date,
    Decimal,
    Decimal | None,
    Decimal | int,
    uuid.UUID,
    Annotated[bytes, Meta(min_length=1, max_length=4)],
    Bill,
    list[Bill],
    Cash,
    Card | None,
    dict[str, Second],
    dict[int, str],
    dict[Colour, int],
    dict[Annotated[str, Meta(min_length=2)], int],
    Annotated[float, Meta(le=2.0**53)],
    Annotated[float, Meta(ge=2**53 + 1)],
    Annotated[int, Meta(le=2**53)],
)

TEXTS = st.sampled_from(["", "a", "ab", "abcd", "é", "red", "1.5", "YQ==", "2024-02-29T12:30:00Z", "P1D", "Cash"])
WHOLE = st.integers(-3, 4) | st.sampled_from([10**30, 2**53, 2**53 + 1, -(2**63) - 1])
REAL = st.sampled_from([-1.0, -0.0, 0.5, 1.0, 2.0, 1e300]) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | WHOLE | REAL | TEXTS
KEYS = st.sampled_from(["by", "type", "1", "red", "next", "a b", ""])
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
FORMATS = {
    "decimal": WHOLE | REAL | st.just("1.5"),
    "date": st.dates().map(str),
    "duration": st.just("P1D"),
    "uuid": st.uuids().map(str),
}
SIMPLE = {"integer": WHOLE, "number": WHOLE | REAL, "string": TEXTS, "boolean": st.booleans(), "null": st.none()}


def near(schema: Any, named: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Values that fit the schema, or miss it somewhere by a little."""
    fitting = _fitting(schema, named)
    return st.integers(0, 11).flatmap(lambda luck: JSON if luck == 11 else fitting)


def _fitting(schema: Any, named: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    match schema:
        case {"$ref": ref}:
            return st.deferred(lambda: named[ref])
        case {"anyOf": forms}:
            return st.one_of(*(near(form, named) for form in forms))
        case {"enum": literals}:
            return st.sampled_from(literals)
        case {"type": "object"}:
            fields = {name: near(inner, named) for name, inner in schema.get("properties", {}).items()}
            required = {name: fields.pop(name) for name in schema.get("required", ())}
            whole = st.fixed_dictionaries(required, optional=fields)
            others = st.dictionaries(KEYS, near(schema.get("additionalProperties") or {}, named), max_size=3)
            return whole | st.builds(lambda more, own: more | own, others, whole) | others
        case {"type": "array"}:
            first = st.tuples(*(near(inner, named) for inner in schema.get("prefixItems", ()))).map(list)
            rest = st.lists(near(schema.get("items") or {}, named), max_size=3)
            return first | rest | st.builds(lambda head, tail: head[: 1 + len(tail)] + tail, first, rest)
        case {"format": form}:
            return FORMATS[form] | SCALARS
        case {"type": kind}:
            return SIMPLE[kind]
        case _:
            return JSON


FEWER = settings(max_examples=settings().max_examples // 2)  # for each of many types
schema_of = functools.cache(msgspec.json.schema)


@functools.cache
def sent(kind: Any) -> st.SearchStrategy[Any]:
    schema = schema_of(kind)
    named: dict[str, st.SearchStrategy[Any]] = {}
    named.update((f"#/$defs/{name}", near(inner, named)) for name, inner in schema.get("$defs", {}).items())
    return near(schema, named)


def decodes(value: object, kind: Any) -> bool:
    try:
        msgspec.json.decode(json.dumps(value), type=kind)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", OTHERS, ids=str)
@FEWER
@given(data=st.data())
def test_what_msgspec_decodes_is_not_refused(kind, data):
    value = data.draw(sent(kind))
    why = misfit(value, schema_of(kind))
    assert why is None or not decodes(value, kind)


@pytest.mark.parametrize("kind", PLAIN, ids=str)
@FEWER
@given(data=st.data())
def test_of_a_plain_type_exactly_that_is_refused_which_msgspec_refuses(kind, data):
    value = data.draw(sent(kind))
    why = misfit(value, schema_of(kind))
    assert (why is None) is decodes(value, kind)
    assert why is None or why.startswith("$")


@given(value=JSON)
def test_a_schema_that_says_nothing_fits_everything(value):
    assert misfit(value, {}) is None
    assert misfit(value, {"title": "x", "format": "uuid", "x-unknown": 1, "$ref": "elsewhere.json"}) is None


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (Approval, {"by": 5}, "$.by: expected string, got 5 (an integer)"),
        (Approval, {}, "$.by: expected string, got nothing"),
        (Approval, [], "$: expected object, got an array"),
        (Approval, None, "$: expected object, got null"),
        (Approval, {"by": "ann", "level": 3}, "$.level: expected 1 or 2, got 3 (an integer)"),
        (Approval, {"by": "ann", "level": True}, "$.level: expected 1 or 2, got true (a boolean)"),
        (Approval, {"by": "ann", "note": 1.5}, "$.note: expected string or null, got 1.5 (a number)"),
        (Closed, {"howMany": 1, "other": "x"}, "$.other: expected nothing here, got 'x' (a string)"),
        (
            Closed,
            {"howMany": 1, "colours": {"a b": "x"}},
            "$.colours['a b']: expected 'blue' or 'red', got 'x' (a string)",
        ),
        (
            Basket,
            {"owner": {"by": "a"}, "items": [["x", 1], ["y", {}]]},
            "$.items[1][1]: expected integer, got an object",
        ),
        (tuple[int, str], [1], "$: expected 2 or more items, got 1"),
        (tuple[int, str], [1, "a", 2], "$: expected 2 or fewer items, got 3"),
        (int, True, "$: expected integer, got true (a boolean)"),
        (int, 1.0, "$: expected integer, got 1.0 (a number)"),
        (float, "1", "$: expected number, got '1' (a string)"),
        (str, "x", None),
        (float, 1, None),
        (Literal["a"] | None, "b", "$: expected 'a' or null, got 'b' (a string)"),
        (Annotated[int, Meta(ge=3)], 2, "$: expected at least 3, got 2 (an integer)"),
        (Annotated[int, Meta(le=3)], 4, "$: expected at most 3, got 4 (an integer)"),
        (Annotated[float, Meta(gt=3)], 3, "$: expected more than 3, got 3 (an integer)"),
        (Annotated[float, Meta(lt=3)], 3.5, "$: expected less than 3, got 3.5 (a number)"),
        (Annotated[int, Meta(multiple_of=5)], 12, "$: expected a multiple of 5, got 12 (an integer)"),
        (Annotated[str, Meta(min_length=2)], "x", "$: expected 2 or more characters, got 1"),
        (Annotated[str, Meta(max_length=2)], "xyz", "$: expected 2 or fewer characters, got 3"),
        (Annotated[str, Meta(pattern="^a$")], "b", "$: expected text that matches '^a$', got 'b' (a string)"),
        (Annotated[dict[str, int], Meta(min_length=1)], {}, "$: expected 1 or more fields, got 0"),
        (Annotated[dict[str, int], Meta(max_length=1)], {"a": 1, "b": 2}, "$: expected 1 or fewer fields, got 2"),
    ],
)
def test_the_reason_names_the_place_what_was_expected_and_what_was_sent(kind, value, why):
    assert misfit(value, msgspec.json.schema(kind)) == why


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (Cash | Card, {"amount": 1}, "$.type: expected 'Cash' or 'Card', got nothing"),
        (Cash | Card, {"type": "Coin"}, "$.type: expected 'Cash' or 'Card', got 'Coin' (a string)"),
        (Cash | Card, {"type": "Card", "number": 5}, "$.number: expected string, got 5 (an integer)"),
        (Cash | Card, 5, "$: expected object, got 5 (an integer)"),
        (Cash | Card | int | None, "x", "$: expected integer or object or null, got 'x' (a string)"),
        (First | Second, {"version": 2, "age": 1}, "$.name: expected string, got nothing"),
        (Move | Stop, ["Move", ["x"]], "$[1][0]: expected integer, got 'x' (a string)"),
        (Move | Stop, ["Halt", [1]], "$[0]: expected 'Move' or 'Stop', got 'Halt' (a string)"),
        (Annotated[str, Meta(min_length=2)] | None, "x", "$: expected 2 or more characters, got 1"),
        (Node, {"value": 1, "next": {"value": 2, "next": {}}}, "$.next.next.value: expected integer, got nothing"),
        (list[int] | dict[str, int], {"a": "x"}, "$.a: expected integer, got 'x' (a string)"),
    ],
)
def test_of_a_union_the_fault_of_the_closest_form_is_told(kind, value, why):
    assert misfit(value, msgspec.json.schema(kind)) == why


def test_a_struct_may_leave_out_its_tag_except_in_a_union():
    assert misfit({"amount": 1}, msgspec.json.schema(Cash)) is None
    assert misfit({"amount": 1}, msgspec.json.schema(Cash | None)) is None
    assert misfit({"amount": 1, "type": "Card"}, msgspec.json.schema(Cash)) == (
        "$.type: expected 'Cash', got 'Card' (a string)"
    )
    assert misfit({"amount": 1}, msgspec.json.schema(Cash | Card)) is not None


@pytest.mark.parametrize("value", [1, 1.5, "1.5", 10**400])
def test_a_decimal_may_be_sent_as_text_or_as_a_number(value):
    assert misfit(value, msgspec.json.schema(Decimal)) is None
    assert misfit(True, msgspec.json.schema(Decimal)) == "$: expected string, got true (a boolean)"


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"type": "number", "maximum": 2.0**53}, 2**53 + 1, True),  # as a float it is 2**53
        ({"type": "integer", "maximum": 2**53}, 2**53 + 1, False),
        ({"type": "number", "maximum": 1}, 10**400, False),
        ({"type": "number", "maximum": 1}, -(10**400), True),
        ({"type": "number", "multipleOf": 2}, 10**400, False),
        ({"type": "integer", "multipleOf": 2}, 10**400, True),
        ({"type": "integer", "multipleOf": 0.5}, 10**400, False),
        ({"type": "integer", "minimum": 0.5}, 1, True),
        ({"minimum": 3}, "not a number", True),
        ({"minimum": 3}, False, True),
    ],
)
def test_large_and_small_numbers(schema, value, fits):
    assert (misfit(value, schema) is None) is fits


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"type": ["string", "null"]}, None, True),
        ({"type": ["string", "null"]}, 1, False),
        ({"const": 1}, 1, True),
        ({"const": 1}, 1.0, False),
        ({"const": 1}, True, False),
        ({"const": 1.0}, 1, True),
        ({"const": 1.0}, True, False),
        ({"const": False}, 0, False),
        ({"const": [1]}, [1], True),
        ({"const": None}, None, True),
        ({"const": None}, 0, False),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 3, True),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 2, False),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1, True),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, "x", False),
        ({"anyOf": []}, 1, True),
        ({"items": False}, [], True),
        ({"items": False}, [1], False),
        ({"prefixItems": [{"type": "null"}]}, [None, 1], True),
        ({"additionalProperties": True}, {"a": 1}, True),
        ({"required": ["a"]}, {}, False),
        ({"required": ["a"], "properties": {"a": True}}, {}, False),
        ({"required": ["a"]}, [], True),
        ({"type": "string", "pattern": r"^\p{L}+$"}, "é", True),  # Rust's, unknown to Python
        ({"type": "string", "pattern": "a{99999999999}"}, "b", True),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, 1, True),
        ({"anyOf": [{"type": "null"}, {"type": "object"}], "discriminator": {"propertyName": "k"}}, {}, False),
        ({"type": "string"}, (1,), False),
    ],
)
def test_the_keywords(schema, value, fits):
    assert (misfit(value, schema) is None) is fits


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = pydantic.Field(default=9, gt=0)


class Dog(pydantic.BaseModel):
    kind: Literal["dog", "wolf"]
    owner: Dog | None = None


class Home(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    pet: Cat | Dog = pydantic.Field(discriminator="kind")
    guests: list[Cat | Dog] = []
    rent: Decimal = Decimal(0)
    rooms: tuple[int, str] = (1, "")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"pet": {"kind": "cat"}, "guests": [{"kind": "wolf", "owner": {"kind": "dog"}}], "rent": "1.50"}, None),
        ({"pet": {"kind": "cat"}, "rent": 1.5, "rooms": [2, "x"]}, None),
        ({"pet": {"kind": "cow"}}, "$.pet.kind: expected 'cat' or 'dog' or 'wolf', got 'cow' (a string)"),
        ({"pet": {}}, "$.pet.kind: expected 'cat' or 'dog' or 'wolf', got nothing"),
        ({"pet": {"kind": "cat", "lives": 0}}, "$.pet.lives: expected more than 0, got 0 (an integer)"),
        ({"pet": {"kind": "dog", "owner": 1}}, "$.pet.owner: expected object or null, got 1 (an integer)"),
        (
            {"pet": {"kind": "cat"}, "guests": [{"kind": "dog", "owner": {}}]},
            "$.guests[0].owner.kind: expected 'dog' or 'wolf', got nothing",
        ),
        ({"pet": {"kind": "cat"}, "cellar": None}, "$.cellar: expected nothing here, got null"),
    ],
)
def test_a_value_for_a_pydantic_model(value, why):
    assert misfit(value, Home.model_json_schema()) == why


def nested(depth: int, *, innermost: object) -> object:
    value = innermost
    for _ in range(depth):
        value = {"value": 1, "next": value}
    return value


def test_a_very_deep_value_is_judged_like_any_other():
    schema = msgspec.json.schema(Node)
    assert misfit(nested(5_000, innermost=None), schema) is None
    assert misfit(nested(5_000, innermost="x"), schema) == (
        f"$…{'.next' * 20}: expected object or null, got 'x' (a string)"
    )


def test_a_recursive_union_whose_forms_look_alike_takes_no_exponential_time():
    def form(tag: str) -> dict[str, Any]:
        return {"properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/Any"}}, "title": tag}

    schema = {"$ref": "#/$defs/Any", "$defs": {"Any": {"type": "object", "anyOf": [form("a"), form("b"), form("c")]}}}
    assert misfit(nested(60, innermost=5), schema) == f"$…{'.next' * 20}: expected object, got 5 (an integer)"


def test_the_reason_is_short_whatever_was_sent_or_expected():
    long = "x" * 10_000
    assert len(misfit(long, {"type": "integer"}) or "") < 150
    assert len(misfit({long: 1}, {"additionalProperties": False}) or "") < 150
    assert len(misfit(1, {"enum": [f"option {number}" for number in range(1_000)]}) or "") < 300
