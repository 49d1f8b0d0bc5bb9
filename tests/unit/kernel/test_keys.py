from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import assume, example, given, strategies as st

from holdfast.errors import ReservedKey, UsageError
from holdfast.kernel.keys import KEY_LENGTH_MAX, Template, check_start, checked, of_request, of_run, parse


def template(text: str, *parameters: str) -> Template:
    return parse(text, parameters=frozenset(parameters), owner="workflow 'shop.checkout'")


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Customer:
    id: str


@dataclass
class Order:
    id: int
    customer: Customer


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("o-1", "o-1"),
        ("", ""),
        ("a:b", "a%3Ab"),
        ("50%", "50%25"),
        ("a/b{c}", "a%2Fb%7Bc%7D"),
        ("a b\n\x00\x7f", "a%20b%0A%00%7F"),
        ("grün 木", "grün%20木"),
        (0, "0"),
        (-17, "-17"),
        (10**30, "1" + "0" * 30),
        (True, "true"),
        (False, "false"),
        (1.5, "1.5"),
        (1e100, "1e+100"),
        (Decimal("10.50"), "10.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (Level.HIGH, "3"),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 2, 29, 12, 30, tzinfo=UTC), "2024-02-29T12%3A30%3A00+00%3A00"),
        (datetime(2024, 2, 29, 14, 30, tzinfo=timezone(timedelta(hours=2))), "2024-02-29T12%3A30%3A00+00%3A00"),
    ],
)
def test_the_text_of_a_field(value, text):
    """K18."""
    assert template("k:{x}", "x").fill({"x": value}) == f"k:{text}"


@pytest.mark.parametrize("value", [None, b"x", [1], {"a": 1}, (1,), object(), 1j, Customer("c")])
def test_a_field_without_one_obvious_text_is_refused_and_named(value):
    with pytest.raises(UsageError, match=rf"'k:{{x}}' got {type(value).__name__} for 'x'") as caught:
        template("k:{x}", "x").fill({"x": value})
    assert "UUID" in caught.value.hint


def test_a_naive_datetime_is_refused_because_it_means_another_instant_elsewhere():
    with pytest.raises(UsageError, match="without time zone for 'x'") as caught:
        template("k:{x}", "x").fill({"x": datetime(2024, 1, 1)})
    assert "tzinfo" in caught.value.hint


def test_dotted_fields_reach_into_a_parameter():
    checkout = template("{order.customer.id}:{order.id}", "order")
    assert checkout.fill({"order": Order(7, Customer("c-1"))}) == "c-1:7"
    assert checkout.parameters == {"order"}


def test_a_dotted_field_that_is_not_there_is_named():
    with pytest.raises(UsageError, match=r"needs 'order.number', but Order has no 'number'"):
        template("{order.number}", "order").fill({"order": Order(7, Customer("c-1"))})


def test_a_template_without_fields_is_a_constant():
    assert template("nightly", "x").fill({"x": 1}) == "nightly"
    assert template("nightly").parameters == frozenset()


def test_literal_text_is_kept_as_it_is():
    assert template("100% of/{x}:ok", "x").fill({"x": "y"}) == "100% of/y:ok"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("order:{x", "unmatched brace"),
        ("order:x}", "unmatched brace"),
        ("order:{{x}}", "unmatched brace"),
        ("{x}{y}", "two fields side by side"),
        ("{}", "has the field ''"),
        ("{x!r}", "has the field 'x!r'"),
        ("{x:>10}", "has the field 'x:>10'"),
        ("{x[0]}", "has the field 'x\\[0\\]'"),
        ("{0}", "has the field '0'"),
        ("{x.}", "has the field 'x.'"),
        ("{ x }", "has the field ' x '"),
        ("{z}", "names 'z', which is not a parameter"),
        ("{z.x}", "names 'z.x', which is not a parameter"),
    ],
)
def test_a_bad_template_is_refused_when_it_is_parsed(text, says):
    with pytest.raises(UsageError, match=says) as caught:
        template(text, "x", "y")
    assert repr(text) in str(caught.value)
    assert "workflow 'shop.checkout'" in str(caught.value)


@pytest.mark.parametrize(("parameters", "listed"), [((), "none"), (("b", "a"), "a, b")])
def test_an_unknown_field_lists_the_parameters_there_are(parameters, listed):
    with pytest.raises(UsageError) as caught:
        template("{z}", *parameters)
    assert caught.value.hint == f"Its parameters are: {listed}."


def test_a_key_of_255_characters_is_the_longest():
    assert checked("k" * KEY_LENGTH_MAX) == "k" * KEY_LENGTH_MAX
    with pytest.raises(UsageError, match=r"is 256 characters long; the limit is 255"):
        checked("k" * 256)
    with pytest.raises(UsageError, match=r"characters long"):
        template("{x}", "x").fill({"x": ":" * 86})  # it is the escaped key that counts


@pytest.mark.parametrize(
    ("key", "says"), [("", "must not be empty"), (7, "not int"), (None, "not NoneType"), ("a\ud800", "lone surrogate")]
)
def test_what_is_no_key_is_refused(key, says):
    with pytest.raises(UsageError, match=says):
        checked(key)


def test_an_empty_field_that_leaves_no_key_is_refused():
    with pytest.raises(UsageError, match="must not be empty"):
        template("{x}", "x").fill({"x": ""})


# -- injective: distinct values never give one key

LITERALS = st.text(st.characters(exclude_characters="{}", exclude_categories=["Cs"]), min_size=1, max_size=3)
# Characters that escaping is about are drawn often, and so are the digits that escapes are written with.
TRICKY = st.text(
    st.one_of(st.sampled_from("%:/{}-– 0123456789ABCDEFabc\n•,"), st.characters(exclude_categories=["Cs"])), max_size=5
)
NAMES = [f"f{number}" for number in range(5)]


@st.composite
def templates(draw: st.DrawFn) -> tuple[Template, list[str]]:
    """A template of one to three fields parted by literals of any text."""
    names = NAMES[: draw(st.integers(1, 3))]
    between = [draw(LITERALS) for _ in names[1:]]
    before, after = draw(LITERALS), draw(st.one_of(st.just(""), LITERALS))
    text = before + names[0].join("{}")
    for literal, name in zip(between, names[1:], strict=True):
        text += literal + name.join("{}")
    return template(text + after, *names), names


@given(templates(), st.data())
def test_distinct_values_never_give_one_key(made, data):
    """K18."""
    parsed, names = made
    first = {name: data.draw(TRICKY) for name in names}
    second = {name: data.draw(st.one_of(st.just(first[name]), TRICKY)) for name in names}
    assume(first != second)
    assert parsed.fill(first) != parsed.fill(second)


@given(templates(), st.data())
def test_a_field_may_not_reach_into_its_neighbour(made, data):
    """K18: text is moved over the border between two fields, with and without the literal between them."""
    parsed, names = made
    assume(len(names) > 1)
    values = {name: data.draw(TRICKY) for name in names}
    literal = parsed.fields[1].before
    moved = dict(values)
    cut = data.draw(st.integers(0, len(values["f1"])))
    moved["f0"] = values["f0"] + data.draw(st.sampled_from([literal, ""])) + values["f1"][:cut]
    moved["f1"] = values["f1"][cut:]
    assume(moved != values)
    assert parsed.fill(moved) != parsed.fill(values)


# Every character that may stand behind a field must be told apart from every text that a field may hold.
@given(
    st.characters(exclude_characters="{}", exclude_categories=["Cs"]),
    st.lists(st.one_of(TRICKY, st.just("\x00")), min_size=2, max_size=2, unique=True),
)
@example("–", ["–", " 13"])
@example("2", ["2", "%32"])
@example("\U0001f600", ["\U0001f600", "\x1f600"])
@example("٣", ["٣", "\x0663"])
def test_no_character_behind_a_field_makes_two_values_one(literal, values):
    """K18."""
    parsed = template(f"{{a}}{literal}{{b}}", "a", "b")
    one, other = (parsed.fill({"a": value, "b": "x"}) for value in values)
    assert one != other


@given(st.dictionaries(st.sampled_from(NAMES[:2]), TRICKY, min_size=2, max_size=2))
def test_the_same_arguments_always_give_the_same_key(values):
    assert template("k{f0}:{f1}", *NAMES).fill(values) == template("k{f0}:{f1}", *NAMES).fill(
        dict(reversed(values.items()))
    )


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), st.integers(-12 * 60, 14 * 60))
def test_an_instant_gives_one_key_in_whatever_zone_it_is_told(moment, minutes):
    """K18."""
    utc = moment.replace(tzinfo=UTC)
    elsewhere = utc.astimezone(timezone(timedelta(minutes=minutes)))
    at = template("{at}", "at")
    assert at.fill({"at": utc}) == at.fill({"at": elsewhere})


# -- keys that Holdfast makes


def test_a_key_that_holdfast_makes_is_taken_from_nobody_else():
    made = of_request("caller:1")
    assert of_run(made) == "idem:caller:1"  # as it was before callers were kept from it
    assert type(of_run(made)) is str
    for key in ("idem:caller:1", "idem:", "idem:another"):
        with pytest.raises(ReservedKey, match="begins with 'idem:'"):
            of_run(key)
    assert [of_run(key) for key in ("idem", "idempotent:1", " idem:1", "IDEM:1")]


def test_the_key_of_a_run_that_is_succeeded_or_forked_may_stay():
    assert of_run("idem:caller:1", owned="idem:caller:1") == "idem:caller:1"
    with pytest.raises(ReservedKey):
        of_run("idem:caller:2", owned="idem:caller:1")


def test_a_template_that_gives_nothing_but_reserved_keys_is_refused():
    with pytest.raises(ReservedKey):
        check_start(template("idem:{order}", "order"))
    check_start(template("{a}:{b}", "a", "b"))
