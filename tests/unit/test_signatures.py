"""What makes a call this call: the arguments that were given, and not what defaults say."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from holdfast.adapters.payloads import JsonCodec
from holdfast.signatures import Essence, Signature

CODEC = JsonCodec()
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Limits:
    most: float


class Unequal:
    """Compares as arrays do."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"mode": mode}


def signature_with(default: Any) -> Signature:
    def work(order: str, limit: Any = default) -> None: ...

    return Signature(work, owner="effect 'shop.work'")


def essence(signature: Signature, *args: Any) -> bytes:
    arguments = signature.bind(args, {})
    return signature.essence(arguments, CODEC.encode(arguments, what="it"), CODEC).given


LEFT_OUT = b'{"order":"o-1"}'  # as earlier versions wrote it: digests of calls are in journals


@pytest.mark.parametrize(
    "default",
    [
        *(None, True, 0, 1, "", "a", b"a", 0.0, -0.0, 1.5, [], [1, [2]], {}, {"a": {"b": 1}}, (1, 2), NOON),
        *(Decimal("1.50"), Colour.RED, Limits(1.0), frozenset({1, 2})),
    ],
    ids=repr,
)
def test_an_argument_that_has_its_default_value_counts_as_left_out(default):
    signature = signature_with(default)
    assert essence(signature, "o-1") == LEFT_OUT
    again = signature_with(default)
    assert essence(again, "o-1", CODEC.decode(CODEC.encode(default, what="it"), type(default))) == LEFT_OUT


@pytest.mark.parametrize(
    ("default", "given"),
    [
        (0.0, -0.0),
        (-0.0, 0.0),
        ([1], [True]),
        ([0], [False]),
        ([1], [1.0]),
        ({"limit": 1}, {"limit": 1.0}),
        ({"limit": 1}, {"limit": True}),
        ({"a": [{"b": 0.0}]}, {"a": [{"b": -0.0}]}),
        ((1, 2), (1, 2.0)),
        (Limits(1), Limits(1.0)),
        (Decimal("1.0"), Decimal("1.00")),
        (NOON, NOON.astimezone(timezone(timedelta(hours=2)))),
        # These were told apart before.
        (1, True),
        (1, 1.0),
        (0, None),
        ("", None),
        ([], ()),
        ("red", Colour.RED),
    ],
    ids=repr,
)
def test_what_only_python_calls_equal_to_the_default_is_another_input(default, given):
    signature = signature_with(default)
    arguments = signature.bind(("o-1", given), {})
    encoded = CODEC.encode(arguments, what="it")
    assert signature.essence(arguments, encoded, CODEC) == Essence(encoded, {})
    assert essence(signature, "o-1", given) != essence(signature, "o-1")


def test_a_default_that_was_changed_in_place_is_another_input():
    default = [1]
    signature = signature_with(default)
    assert essence(signature, "o-1") == LEFT_OUT
    default.append(2)
    assert essence(signature, "o-1") == b'{"limit":[1,2],"order":"o-1"}'


def test_values_that_cannot_be_compared_are_given():
    signature = signature_with(Unequal())
    assert essence(signature, "o-1", Unequal()) == b'{"limit":{"mode":"json"},"order":"o-1"}'
    assert essence(signature, "o-1") == LEFT_OUT


def test_a_default_that_cannot_be_stored_does_not_matter_to_calls_that_do_not_use_it():
    assert essence(signature_with(object()), "o-1", 5) == b'{"limit":5,"order":"o-1"}'


def test_what_is_left_out_is_told_with_a_digest_of_its_value():
    def left_out(default: Any, *args: Any) -> dict[str, str]:
        signature = signature_with(default)
        arguments = signature.bind(args, {})
        return signature.essence(arguments, CODEC.encode(arguments, what="it"), CODEC).left_out

    assert left_out(100, "o-1").keys() == {"limit"}
    assert left_out(100, "o-1") == left_out(100, "o-1", 100) != left_out(200, "o-1")
    assert left_out(100, "o-1", 200) == {}
    assert left_out(0.0, "o-1") != left_out(-0.0, "o-1")


def test_another_codec_writes_defaults_for_itself():
    class Shouting(JsonCodec):
        def encode(self, value: object, *, what: str) -> bytes:
            return super().encode(value, what=what).upper()

    signature = signature_with(["a"])
    arguments = signature.bind(("o-1",), {})
    first = signature.essence(arguments, b"", CODEC)
    assert signature.essence(arguments, b"", Shouting()).left_out != first.left_out
    assert signature.essence(arguments, b"", CODEC) == first
