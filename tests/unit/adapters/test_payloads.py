from __future__ import annotations

import enum
import itertools
import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

from holdfast.adapters.payloads import PAYLOAD_MAX, JsonCodec
from holdfast.errors import NotSerializable, PayloadTooLarge, UsageError
from holdfast.kernel import json_schema
from holdfast.pack import Pack

CODEC = JsonCodec()


def encoded(value: object) -> bytes:
    return CODEC.encode(value, what="the input")


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Item:
    name: str
    tags: set[str] = field(default_factory=set)
    parent: Item | None = None


class Point(msgspec.Struct):
    x: int
    y: float | None = None


class Circle(msgspec.Struct, tag=True):
    radius: int


class Square(msgspec.Struct, tag=True):
    side: int


class Address(pydantic.BaseModel):
    street: str
    at: datetime | None = None


class Customer(pydantic.BaseModel):
    name: str
    homes: list[Address] = []
    balance: Decimal = Decimal(0)


class Pair(NamedTuple):
    one: int
    two: str


class Options(TypedDict, total=False):
    fast: bool


OrderId = NewType("OrderId", str)
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "as_type"),
    [
        (None, None),
        (True, bool),
        (2**63, int),
        (-(10**30), int),
        ([10**30], list[Any]),
        (1.5, float),
        (-0.0, float),
        ("grün 木 \x00 \U0001f600", str),
        (b"\x00\xff", bytes),
        (bytearray(b"x"), bytearray),
        ([1, [2, [3]]], list[Any]),
        ((1, "a"), tuple[int, str]),
        ({"a": 1, "b": None}, dict[str, int | None]),
        ({1: "a", 2: "b"}, dict[int, str]),
        ({1.5: "a"}, dict[float, str]),
        ({UUID(int=1): 1}, dict[UUID, int]),
        ({Colour.RED: 1}, dict[Colour, int]),
        ({date(2024, 1, 1): 1}, dict[date, int]),
        ({1: {2: {3: NOON}}}, dict[int, dict[int, dict[int, datetime]]]),
        ({3, 1, 2}, set[int]),
        (frozenset({"b", "a"}), frozenset[str]),
        (Decimal("10.50"), Decimal),
        (UUID(int=7), UUID),
        (NOON, datetime),
        (datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))), datetime),
        (datetime(2024, 1, 1), datetime),
        (date(2024, 2, 29), date),
        (time(12, 30), time),
        (timedelta(days=1, seconds=2, microseconds=3), timedelta),
        (Colour.RED, Colour),
        (Level.HIGH, Level),
        (Item("lamp", {"b", "a"}, Item("box")), Item),
        ([Item("lamp")], list[Item]),
        (Point(1, None), Point),
        (Square(2), Circle | Square),
        (Customer(name="Ann", homes=[Address(street="x", at=NOON)], balance=Decimal("1.10")), Customer),
        ({"a": [Address(street="x")]}, dict[str, list[Address]]),
        (Address(street="x"), Address | None),
        (None, Address | None),
        ({1: Address(street="x")}, dict[int, Address]),
        (Pair(1, "b"), Pair),
        ({"fast": True}, Options),
        ("o-1", OrderId),
        ("fast", Literal["fast", "slow"]),
        (5, Annotated[int, msgspec.Meta(ge=1)]),
        (OrderedDict(b=1, a=2), dict[str, int]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_read_back_as_it_was_stored(value, as_type):
    """E14."""
    again = CODEC.decode(encoded(value), as_type)
    assert again == value
    assert type(again) is type(value) or isinstance(value, OrderedDict)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_read_back_as_it_was_stored(value):
    try:
        data = encoded(value)
    except NotSerializable:
        assert _has_surrogate_key(value)
        return
    assert CODEC.decode(data, Any) == value


def _has_surrogate_key(value: object) -> bool:
    return "\\ud" in ascii(value)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), st.integers(), max_size=8))
def test_equal_mappings_have_equal_bytes_whatever_their_order(value):
    """Equal inputs must give equal digests, in every process."""
    assert encoded(value) == encoded(dict(reversed(value.items())))


@given(st.sets(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=6))
def test_equal_sets_have_equal_bytes(value):
    other = set[str]()
    for member in sorted(value, reverse=True):
        other.add(member)
    assert encoded(value) == encoded(other)
    assert CODEC.decode(encoded(value), set[str]) == value


def test_the_order_of_insertion_never_shows():
    orders = itertools.permutations(["a", "b", "c"])
    assert {encoded({"outer": dict.fromkeys(order, 1)}) for order in orders} == {b'{"outer":{"a":1,"b":1,"c":1}}'}
    assert encoded({3: 1, 1: {2: 1, 10: 2}}) == encoded({1: {10: 2, 2: 1}, 3: 1})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "the input is object"),
        ({"a": object()}, "the input['a'] is object"),
        ({"a": [1, {"b": object()}]}, "the input['a'][1]['b'] is object"),
        ([object()], "the input[0] is object"),
        ((1, object()), "the input[1] is object"),
        (Item("x", parent=Item("y", tags={object()})), "the input.parent.tags{...} is object"),
        (Point(1, lambda: None), "the input.y is function"),
        ({"k": 1j}, "the input['k'] is complex"),
        ([open], "the input[0] is builtin_function_or_method"),
        ({1: {2: object()}}, "the input[1][2] is object"),
        ("\ud800", "the input is str '\\ud800'"),
        ({"a": ["x\udfff"]}, "the input['a'][0] is str"),
        ({"a": {"x\ud800": 1}}, "the input['a'] has the key 'x\\ud800'"),
        ({"a": {(1, 2): 1}}, "the input['a'] has the key (1, 2)"),
        ({"a": {None: 1}}, "the input['a'] has the key None"),
        ({"a": namedtuple("P", "x")(object())}, "the input['a'][0] is object"),  # noqa: PYI024
    ],
    ids=lambda value: value if isinstance(value, str) and "input" in value else "",
)
def test_what_cannot_be_stored_is_refused_with_the_path_to_it(value, path):
    """E14."""
    with pytest.raises(NotSerializable) as caught:
        encoded(value)
    assert path in caught.value.message
    assert "dataclasses" in caught.value.hint


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda number: number, "the input is"),
        (lambda number: [1, number], "the input[1] is"),
        (lambda number: {"a": {"b": number}}, "the input['a']['b'] is"),
        (lambda number: Point(1, number), "the input.y is"),
        (lambda number: {1: number}, "the input[1] is"),
        (lambda number: pydantic.create_model("M", x=(float, ...))(x=number), "the input.x is"),
        (lambda number: [{"deep": pydantic.create_model("M", x=(list[float], ...))(x=[number])}], "x[0] is"),
    ],
    ids=["bare", "list", "dict", "struct", "int keys", "model", "deep model"],
)
def test_nan_and_infinity_are_refused_wherever_they_are(number, wrap, path):
    """JSON cannot hold them, and null is not what was passed."""
    with pytest.raises(NotSerializable, match="JSON cannot hold") as caught:
        encoded(wrap(number))
    assert path in caught.value.message


def test_nan_is_found_below_any_depth():
    value: Any = math.nan
    for _ in range(200):
        value = [value]
    with pytest.raises(NotSerializable, match="nan"):
        encoded(value)


def test_none_is_no_nan():
    assert encoded([None, "null", {"null": None}]) == b'[null,"null",{"null":null}]'


def test_keys_that_look_the_same_as_text_are_refused_and_not_merged():
    with pytest.raises(NotSerializable, match="look the same"):
        encoded({"a": {1: "x", "1": "y"}})


def test_a_value_that_contains_itself_is_refused():
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotSerializable, match="nested too deeply, or contains itself"):
        encoded(value)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("bad", [object(), {1: object()}, {(1, 2): 3}])
def test_a_value_that_contains_itself_and_something_else_that_is_wrong_is_refused_too(bad):
    value: list[Any] = [bad]
    value.append(value)
    with pytest.raises(NotSerializable):
        encoded(value)
    loop: dict[Any, Any] = {"bad": bad}
    loop["self"] = loop
    with pytest.raises(NotSerializable):
        encoded(loop)


@pytest.mark.parametrize("depth", [10, 200, 500, 100_000])  # how deep is too deep differs between Pythons
def test_deep_values_are_stored_or_refused_and_never_crash(depth):
    """E14."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    if depth > 1_000:
        with pytest.raises(NotSerializable, match="nested too deeply"):
            encoded(value)
        return
    again = CODEC.decode(encoded(value), Any)
    for _ in range(depth):
        [again] = again
    assert again == 1


def test_deep_data_that_cannot_be_read_is_refused_and_not_a_crash():
    with pytest.raises(NotSerializable):
        CODEC.decode(b"[" * 100_000 + b"]" * 100_000, Any)


def test_a_value_over_the_limit_is_refused_with_both_numbers():
    """E14."""
    small = JsonCodec(limit=100)
    assert small.encode("x" * 98, what="the result of shop.checkout")
    with pytest.raises(
        PayloadTooLarge, match=r"the result of shop.checkout is 101 bytes long; the limit is 100"
    ) as caught:
        small.encode("x" * 99, what="the result of shop.checkout")
    assert (caught.value.size, caught.value.limit) == (101, 100)
    assert "HOLDFAST_PAYLOAD_MAX" in caught.value.hint
    assert PAYLOAD_MAX == 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("data", "as_type"),
    [
        (b'"many"', int),
        (b"{}", Item),
        (b'{"street": 7}', Address),
        (b"null", int),
        (b"not json", Any),
        (b"", Any),
        (b'"blue"', Colour),
        (b"1", complex),
        (b"{}", Circle | Square),
    ],
)
def test_a_stored_value_that_does_not_fit_its_annotation_is_refused(data, as_type):
    with pytest.raises(NotSerializable, match="does not fit the type") as caught:
        CODEC.decode(data, as_type)
    assert "annotation" in caught.value.hint


@dataclass
class Other:
    x: int


@dataclass
class Unresolved:
    x: NoSuchType  # noqa: F821 # pyright: ignore[reportUndefinedVariable]


@pytest.mark.parametrize("as_type", [Item | Other, Address | str, set[list[int]] | dict[str, int] | Item, Unresolved])
def test_a_type_that_can_never_be_read_back_is_a_usage_error_that_names_whose_it_is(as_type):
    with pytest.raises(UsageError, match=r"the result of shop\.checkout"):
        CODEC.check(as_type, what="the result of shop.checkout")


@pytest.mark.parametrize("as_type", [int, Item, Address | None, dict[int, Address], Any, Circle | Square])
def test_a_type_that_can_be_read_back_passes(as_type):
    CODEC.check(as_type, what="the result")


@pytest.mark.parametrize(
    ("as_type", "fits", "does_not"),
    [
        (Item, {"name": "lamp"}, {"name": 3}),
        (Point, {"x": 1}, {"x": "one"}),
        (Circle | Square, {"type": "Circle", "radius": 1}, {"type": "Line"}),
        (list[int], [1, 2], [1, "2"]),
        (Colour, "red", "blue"),
        (Address, {"street": "Main"}, {"street": 5}),
        (list[Address], [{"street": "Main"}], [{"street": 5}]),
    ],
    ids=str,
)
def test_the_shape_of_a_type_tells_what_fits_from_what_does_not(as_type, fits, does_not):
    schema = CODEC.schema(as_type)
    assert schema is not None
    assert json_schema.misfit(fits, schema) is None
    assert json_schema.misfit(does_not, schema) is not None
    assert json_schema.misfit(does_not, msgspec.json.decode(msgspec.json.encode(schema))) is not None


@pytest.mark.parametrize("as_type", [Any, object, Address | Customer, type("Strange", (), {})], ids=str)
def test_where_nobody_can_say_what_fits_there_is_no_shape(as_type):
    assert CODEC.schema(as_type) is None


@pytest.mark.parametrize("as_type", [Customer, list[Customer], dict[str, Customer]], ids=str)
def test_the_shape_of_a_model_of_models_refuses_nothing_that_fits(as_type):
    """Its references lead nowhere where it is nested; what is known less is checked less."""
    customer = {"name": "c", "homes": [{"street": "Main"}], "balance": "1.5"}
    value = {Customer: customer, list[Customer]: [customer], dict[str, Customer]: {"a": customer}}[as_type]
    assert json_schema.misfit(value, CODEC.schema(as_type) or {}) is None


def test_decoding_as_any_gives_plain_json():
    assert CODEC.decode(encoded(Item("lamp", {"a"})), Any) == {"name": "lamp", "parent": None, "tags": ["a"]}


def test_a_call_that_was_not_awaited_is_said_to_be_one():
    @Pack("shop").effect
    async def charge(order: str) -> str: ...

    with pytest.raises(NotSerializable, match=r"the input\['paid'\] is the call shop.charge\(order='o-1'\)") as caught:
        encoded({"paid": charge("o-1")})
    assert caught.value.hint == "Await it."


def test_what_cannot_even_be_described_is_refused_all_the_same():
    class Shy:
        def __repr__(self) -> str:
            raise ValueError("no")

    with pytest.raises(NotSerializable, match=r"the input\[0\] is Shy"):
        encoded([Shy()])


def test_a_model_that_fails_while_it_is_dumped_is_refused_with_its_path():
    class Stubborn(pydantic.BaseModel):
        x: Any

    with pytest.raises(NotSerializable, match=r"the input\['a'\]"):
        encoded({"a": Stubborn(x=object())})
