"""Flow rules as authors declare them: what is wrong is said at the import; what is right is shown everywhere."""

from __future__ import annotations

from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console

from holdfast import Batch, Debounce, Pack, Rate, UsageError
from holdfast.adapters.payloads import JsonCodec
from holdfast.calls import ItemCall
from holdfast.cli import render
from holdfast.engine.api.registry import Registry
from holdfast.kernel.waits import Wait
from holdfast.wire import inbound, outbound


class Chunk(msgspec.Struct):
    tenant: str
    text: str


RULES = {"throttle": Rate(100, per="1m", burst=20, by="{tenant}"), "fair": "{tenant}"}


def described() -> Any:
    pack = Pack("shop")

    @pack.workflow(key="{tenant}", debounce=Debounce("5s", at_most="1m"), **RULES)
    async def sync(tenant: str) -> None: ...

    return Registry([pack], codec=JsonCodec()).description("sync")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"throttle": 100}, "is no rate"),
        ({"throttle": Rate(1, per="1s", by="{shop}")}, "names 'shop'"),
        ({"throttle": Rate(1, per="1s", cost="weight")}, "cost='weight'"),
        ({"fair": "{shop}"}, "names 'shop'"),
        ({"fair": "all"}, "names no parameter"),
        ({"debounce": Debounce("5s")}, "no key"),
        ({"debounce": "5s", "key": "{tenant}"}, "is no Debounce"),
        ({"batch": Batch(5)}, "its parameter is of type"),
    ],
)
def test_what_is_wrong_is_said_at_the_import(options: dict[str, Any], message: str) -> None:
    pack = Pack("shop")
    with pytest.raises(UsageError, match=message) as raised:

        @pack.workflow(**options)
        async def sync(tenant: str) -> None: ...

    assert "shop.sync" in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize("rate", [lambda: Rate(0, per="1s"), lambda: Rate(5, per="5"), lambda: Rate(5, per="0s")])
def test_a_rate_of_nothing_or_without_a_unit_is_refused(rate: Any) -> None:
    with pytest.raises(UsageError):
        rate()


def test_the_fields_of_items_are_checked_at_the_import() -> None:
    pack = Pack("shop")
    with pytest.raises(UsageError, match="names 'shop'"):

        @pack.workflow(batch=Batch(5, by="{shop}"))
        async def embed(items: list[Chunk]) -> list[str]: ...


def test_items_whose_type_is_defined_further_down_are_checked_when_the_pack_is_used() -> None:
    pack = Pack("shop")

    @pack.workflow(batch=Batch(5, by="{shop}"))
    async def embed(items: list[Later]) -> list[str]: ...

    global Later  # noqa: PLW0603 - as a module does that defines it further down

    class Later(msgspec.Struct):
        tenant: str

    with pytest.raises(UsageError, match="names 'shop'"):
        Registry([pack], codec=JsonCodec())


def test_an_item_is_made_by_the_workflow_of_a_batch_alone() -> None:
    pack = Pack("shop")

    @pack.workflow(batch=Batch(5, by="{tenant}"))
    async def embed(items: list[Chunk]) -> list[str]: ...

    @pack.workflow
    async def plain(items: list[Chunk]) -> list[str]: ...

    item = embed.item(Chunk("t", "x"))
    assert isinstance(item, ItemCall)
    assert "shop.embed.item" in repr(item)
    with pytest.raises(UsageError, match="has no batch="):
        plain.item(Chunk("t", "x"))
    with pytest.raises(UsageError, match="was awaited"):
        item.__await__()


def test_rules_are_shown_over_http_as_they_are_here() -> None:
    description = described()
    assert len(description.rules) == 3
    assert inbound.description(outbound.workflow(description)) == description


def test_a_workflow_without_rules_says_nothing_of_them() -> None:
    plain = msgspec.structs.replace(described(), rules=())
    assert b"rules" not in msgspec.json.encode(outbound.workflow(plain))
    assert inbound.description(outbound.workflow(plain)) == plain


@pytest.mark.parametrize("wait", [Wait("turn", "acme", ahead=3), Wait("throttle", until_ms=1_700_000_000_000)])
def test_waits_are_shown_over_http_as_they_are_here(wait: Wait) -> None:
    assert inbound.wait_values([outbound._wait(wait)]) == (wait,)


def test_the_command_line_lists_them() -> None:
    out = StringIO()
    Console(file=out, width=200).print(render.workflows([described()]))
    for rule in ("throttle: 100 in 1m", "fair: {tenant} take turns", "debounce: until it is quiet for 5s"):
        assert rule in out.getvalue()
