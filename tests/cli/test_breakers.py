"""`holdfast breakers` and `holdfast slots`: what stands before effects, seen and changed by hand."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Breaker, Holdfast, Limit, Pack
from tests.cli.conftest import Cli

URL = "sqlite:///shop.db"
shop = Pack("shop")


@shop.effect(breaker=Breaker("stripe"), limit=Limit("slots", width=3))
async def charge(order: str) -> str:
    return f"paid {order}"


@shop.workflow
async def buy(order: str) -> str:
    return await charge(order)


@pytest.fixture
def used(cli: Cli) -> Cli:
    """Commands on a store in which an effect with rules has begun before."""

    async def use() -> None:
        async with Holdfast(URL, packs=[shop]) as hf:
            await (await hf.start(buy("o-1"))).run.result(30)

    asyncio.run(use())
    return lambda *arguments: cli(*arguments, "--url", URL)  # pyright: ignore[reportReturnType]


def test_a_breaker_is_opened_and_closed_by_hand(used: Cli):
    [listed] = used("breakers", "list", "--json").json["breakers"]
    assert (listed["name"], listed["state"]) == ("stripe", "closed")
    said = used("breakers", "open", "stripe", "--by", "ada", "--lasts", "10m")
    assert "breaker stripe is open, until " in said.out
    assert "opened by ada at " in said.out
    shown = used("breakers", "show", "stripe", "--json").json
    assert (shown["state"], shown["by"], shown["did"]) == ("open", "ada", "opened")
    assert "breaker stripe is closed" in used("breakers", "close", "stripe").out
    assert "until it is closed by hand" in used("breakers", "open", "stripe").out
    assert "opened by hand" in used("breakers", "list").out


def test_a_name_that_is_misspelt_is_refused_with_a_hint(used: Cli):
    said = used("breakers", "open", "strpie", "--json")
    assert (said.code != 0, said.problem["code"]) == (True, "unknown_breaker")
    assert "holdfast breakers list" in used("breakers", "show", "strpie").err


def test_the_slots_of_a_limit_are_listed(used: Cli):
    [limit] = used("slots", "--json").json["limits"]
    assert (limit["name"], limit["width"]) == ("slots", 3)
    assert "slots" in used("slots").out


def test_where_no_effect_has_begun_there_is_nothing(cli: Cli):
    async def use() -> None:
        async with Holdfast(URL, packs=[shop]):
            pass

    asyncio.run(use())
    assert "No breakers yet." in cli("breakers", "list", "--url", URL).out
    assert "No limits yet." in cli("slots", "--url", URL).out
