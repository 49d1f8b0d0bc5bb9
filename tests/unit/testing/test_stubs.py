from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from holdfast import Pack, UsageError
from holdfast.testing.stubs import Stub, StubFailure, stub_of

shop = Pack("shop")


@shop.effect
async def charge(order: str) -> str:
    return order


@shop.effect(remote=True)
async def far(order: str) -> str: ...


def stub(effect: object = charge, **options: Any) -> Stub:
    nothing = {"returns": UNSET, "then": UNSET, "fails": None, "loses_reply": False, "latency": None, "calls": None}
    return stub_of(effect, **{**nothing, **options})


@pytest.mark.parametrize(
    ("options", "replaces"),
    [
        ({}, False),
        ({"latency": "1s"}, False),
        ({"fails": 2}, False),
        ({"loses_reply": True}, False),
        ({"returns": None}, True),
        ({"calls": print}, True),
        ({"fails": 2, "then": None}, True),
        ({"fails": ValueError}, True),
    ],
)
def test_the_function_of_the_effect_is_called_unless_something_else_says_what_comes_back(options, replaces):
    assert stub(**options).replaces is replaces


def test_failures_are_counted_under_each_key():
    two = stub(fails=2)
    assert [type(two.failure("a")) for _ in range(3)] == [StubFailure, StubFailure, type(None)]
    assert str(two.failure("b")) == "failure 1 of 2"
    error = ValueError("no")
    always, first = stub(fails=error), stub(fails=error, then=1)
    assert [always.failure("a") for _ in range(3)] == [error] * 3
    assert [first.failure("a") for _ in range(3)] == [error, None, None]
    assert isinstance(stub(fails=KeyError).failure("a"), KeyError)
    assert stub().failure("a") is None


def test_replies_are_lost_under_each_key_as_often_as_is_said():
    once, twice = stub(loses_reply=True), stub(loses_reply=2)
    assert [once.loses("a") for _ in range(3)] == [True, False, False]
    assert once.loses("b")
    assert [twice.loses("a") for _ in range(3)] == [True, True, False]


def test_an_effect_that_another_process_performs_is_not_stubbed():
    with pytest.raises(UsageError, match="is remote"):
        stub(far, returns="a")
