"""Values to begin with, by their types."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from holdfast import Pack
from holdfast.calls import Call
from holdfast.prove.samples import call_of, result_of
from holdfast.prove.worlds.signals import SIGNALS_MAX, has_more, payload_of
from holdfast.testing import FakeWorld

pack = Pack("prover_samples")


class Parcel(Struct):
    id: str
    grams: int
    note: str | None = None


@pack.effect
async def weigh(parcel: Parcel) -> Parcel:
    return parcel


@pack.effect
async def say(words: str) -> None:
    pass


@pack.workflow
async def ship(parcel: Parcel, fast: bool = False) -> None:
    await weigh(parcel)


def test_the_result_of_an_effect_is_a_value_of_its_type():
    assert isinstance(result_of(weigh), Parcel)
    assert result_of(say) is None


def test_a_call_has_arguments_of_the_types_of_the_workflow():
    call = call_of(ship)
    assert isinstance(call, Call)
    assert isinstance(call.arguments["parcel"], Parcel)
    call.is_taken = True


def test_where_no_sample_fits_the_reason_is_returned(monkeypatch):
    monkeypatch.setattr("holdfast.prove.samples.sample", lambda _: {"parcel": 1})
    assert str(call_of(ship)).startswith("no sample fits its parameters: ")
    assert result_of(weigh) is None


@pytest.mark.parametrize(
    ("declared", "sent", "more"),
    [
        (None, 0, True),
        (None, SIGNALS_MAX - 1, True),
        (None, SIGNALS_MAX, False),
        (["yes"], 0, True),
        (["yes"], 1, False),
        ([], 0, False),
    ],
)
def test_a_hook_gets_what_is_declared_or_a_few_samples(declared, sent, more):
    assert has_more(a_world(declared), "word", sent=sent) is more


@pytest.mark.parametrize(
    ("declared", "schema", "payload"),
    [
        (["yes", "no"], b'{"type": "integer"}', "no"),
        (None, b'{"type": "string", "enum": ["red"]}', "red"),
        (None, None, None),
    ],
)
def test_a_declared_payload_comes_before_a_sample_of_the_type_of_the_hook(declared, schema, payload):
    assert payload_of(a_world(declared), "word", sent=1, schema=schema) == payload


def a_world(declared: list[Any] | None) -> FakeWorld:
    world = FakeWorld()
    if declared is not None:
        world.signal("word", *declared)
    return world
