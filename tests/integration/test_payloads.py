"""Large, deep and unserializable values: stored, or refused at the call with the path; never a wedged run (E14)."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from holdfast import Pack, Retry, RunFailed, UsageError, sleep
from holdfast.errors import EngineFault, NotSerializable, PayloadTooLarge
from holdfast.events import EffectBegan, PartFailed
from tests.integration.conftest import Home, heard

MIB = 1024 * 1024


class Thing:
    """What nobody can store."""

    def __repr__(self) -> str:
        return "<Thing>"


class Rude:
    """What cannot even be described."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


@dataclasses.dataclass
class Item:
    name: str
    cents: int
    extra: Any = None


class Box(msgspec.Struct):
    items: list[Item]


class Model(pydantic.BaseModel):
    when: datetime
    price: Decimal


class Colour(Enum):
    RED = "red"


def _echo(pack: Pack) -> Any:
    @pack.effect
    async def echo(value: Any) -> Any:
        return value

    @pack.workflow
    async def work(value: Any) -> Any:
        return await echo(value)

    return work


@pytest.mark.parametrize("size", [256 * 1024 - 2, 256 * 1024 - 1, MIB, 15 * MIB])
async def test_large_values_go_in_and_come_out_whole(home: Home, size: int) -> None:
    """E14: around the size at which they are kept beside the journal, and well beyond."""
    pack = Pack("p")
    work = _echo(pack)
    text = "x" * size
    async with home.holdfast(pack) as hf:
        run = (await hf.start(work(text))).run
        assert await run.result(timeout=60) == text
    async with home.holdfast(pack) as hf:
        run = await hf.get(run.id)
        assert await run.result(timeout=60) == text
        assert await run.input() == {"value": text}
        assert all(len(msgspec.json.encode(entry)) < 300_000 for entry in await run.journal())


async def test_large_values_survive_a_restart_in_the_middle(home: Home) -> None:
    pack = Pack("p")
    text = "x" * MIB

    @pack.effect
    async def echo(value: str) -> str:
        return value + "!"

    @pack.workflow(key="k")
    async def work(value: str) -> int:
        first = await echo(value)
        await sleep(0.2)
        return len(first) + len(await echo(first))

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work(text))).run
        await heard(hf).until(EffectBegan)
    async with home.holdfast(pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=60) == 2 * MIB + 3


async def test_an_input_is_there_however_large_it_is(home: Home) -> None:
    pack = Pack("p")
    work = _echo(pack)
    async with home.holdfast(pack) as hf:
        run = (await hf.start(work("x" * MIB))).run
        assert await run.input() == {"value": "x" * MIB}
        small = (await hf.start(work("x"))).run
        assert await small.input() == {"value": "x"}
        await run.result(timeout=60)
        await small.result(timeout=60)


async def test_an_input_over_the_limit_is_refused_at_the_start(home: Home) -> None:
    pack = Pack("p")
    work = _echo(pack)
    async with home.holdfast(pack) as hf:
        with pytest.raises(PayloadTooLarge) as caught:
            await hf.start(work("x" * (16 * MIB)))
        assert "the input of p.work" in caught.value.message
        assert "HOLDFAST_PAYLOAD_MAX" in caught.value.hint
        rows = home.rows()
        assert rows.get("runs", rows.get("_runs")) == 0


async def test_the_limit_may_be_set(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PAYLOAD_MAX", "100")
    pack = Pack("p")
    work = _echo(pack)
    async with home.holdfast(pack) as hf:
        with pytest.raises(PayloadTooLarge):
            await hf.start(work("x" * 100))
        assert await (await hf.start(work("x" * 80))).run.result(timeout=30) == "x" * 80


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (Thing(), ".value"),
        ({"a": {"b": [1, Thing()]}}, "['a']['b'][1]"),
        ([1, 2, Item("book", 5, extra={"x": Thing()})], "[2].extra['x']"),
        (Box([Item("book", 5, extra=Thing())]), ".items[0].extra"),
        ({"a": float("nan")}, "['a']"),
        ({"a": [float("inf")]}, "['a'][0]"),
        ({"a": "\ud800"}, "['a']"),
        ({"rude": Rude()}, "['rude']"),
        ({"f": open}, "['f']"),
    ],
    ids=["plain", "nested", "dataclass", "struct", "nan", "infinity", "surrogate", "no-repr", "function"],
)
async def test_what_cannot_be_stored_is_refused_at_the_start_with_the_path(home: Home, value: Any, where: str) -> None:
    pack = Pack("p")
    work = _echo(pack)
    async with home.holdfast(pack) as hf:
        with pytest.raises(NotSerializable) as caught:
            await hf.start(work(value))
        assert where.removeprefix(".value") in caught.value.message
        assert "the input of p.work" in caught.value.message
        assert "value" in caught.value.message
        assert caught.value.hint
        rows = home.rows()
        assert rows.get("runs", rows.get("_runs")) == 0


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def _cyclic() -> list[Any]:
    value: list[Any] = []
    value.append({"me": value})
    return value


@pytest.mark.parametrize("levels", [50, 500, 100_000])
async def test_deep_values_are_stored_or_refused(home: Home, levels: int) -> None:
    pack = Pack("p")
    work = _echo(pack)
    value = _deep(levels)
    async with home.holdfast(pack) as hf:
        try:
            run = (await hf.start(work(value))).run
        except NotSerializable as error:
            assert levels > 100
            assert "deep" in error.message  # noqa: PT017
        else:
            assert await run.result(timeout=30) == value


async def test_a_value_that_contains_itself_is_refused(home: Home) -> None:
    pack = Pack("p")
    work = _echo(pack)
    async with home.holdfast(pack) as hf:
        with pytest.raises(NotSerializable, match="contains itself"):
            await hf.start(work(_cyclic()))


BAD: list[tuple[str, Any, type[Exception]]] = [
    ("thing", Thing(), NotSerializable),
    ("large", "x" * (17 * MIB), PayloadTooLarge),
    ("cyclic", _cyclic(), NotSerializable),
    ("nan", float("nan"), NotSerializable),
]


@pytest.mark.parametrize(("value", "error"), [pytest.param(v, e, id=name) for name, v, e in BAD])
async def test_a_result_that_cannot_be_stored_fails_the_effect_at_once(
    home: Home, value: Any, error: type[Exception]
) -> None:
    pack = Pack("p")
    calls = 0

    @pack.effect
    async def make() -> Any:
        nonlocal calls
        calls += 1
        return value

    @pack.workflow
    async def work() -> str:
        try:
            await make()
        except UsageError as caught:
            return type(caught).__name__
        return "unreachable"

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(work())).run.result(timeout=60) == error.__name__
    assert calls == 1


@pytest.mark.parametrize(("value", "error"), [pytest.param(v, e, id=name) for name, v, e in BAD])
async def test_a_workflows_result_that_cannot_be_stored_fails_the_run(
    home: Home, value: Any, error: type[Exception]
) -> None:
    pack = Pack("p")

    @pack.workflow
    async def work() -> Any:
        return value

    async with home.holdfast(pack) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(work())).run.result(timeout=60)
        assert isinstance(caught.value.__cause__, error)
        assert "the result of p.work" in str(caught.value)


@pytest.mark.parametrize(("value", "error"), [pytest.param(v, e, id=name) for name, v, e in BAD])
async def test_an_argument_that_cannot_be_stored_is_refused_where_the_workflow_asks(
    home: Home, value: Any, error: type[Exception]
) -> None:
    pack = Pack("p")
    calls = 0

    @pack.effect
    async def take(value: Any) -> None:
        nonlocal calls
        calls += 1

    @pack.workflow
    async def work() -> str:
        try:
            await take(value)
        except UsageError as caught:
            return type(caught).__name__
        return "unreachable"

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(work())).run.result(timeout=60) == error.__name__
    assert calls == 0


async def test_types_come_back_as_what_the_annotation_says(home: Home) -> None:
    pack = Pack("p")

    @pack.effect
    async def fetch(item: Item, box: Box, model: Model) -> tuple[Item, Box, Model]:
        assert isinstance(model.price, Decimal)
        return item, box, model

    @pack.workflow
    async def work(
        item: Item, box: Box, model: Model, when: datetime, id: UUID, colour: Colour, raw: bytes, tags: set[int]
    ) -> tuple[Item, Box, Model, datetime, UUID, Colour, bytes, set[int]]:
        first, second, third = await fetch(item, box, model)
        return first, second, third, when, id, colour, raw, tags

    item, when = Item("book", 5), datetime(2024, 1, 2, tzinfo=UTC)
    values = (
        item,
        Box([item]),
        Model(when=when, price=Decimal("1.10")),
        when,
        UUID(int=7),
        Colour.RED,
        b"\x00\xff",
        {3, 1},
    )
    async with home.holdfast(pack) as hf:
        run = (await hf.start(work(*values))).run
        assert await run.result(timeout=30) == values
        assert tuple((await (await run.refresh()).input()).values()) == values


async def test_an_argument_of_the_wrong_type_is_refused_at_the_start(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def work(item: Item, count: int) -> None: ...

    async with home.holdfast(pack) as hf:
        with pytest.raises(UsageError) as caught:
            await hf.start(work(Item("book", "five"), 1))  # pyright: ignore[reportArgumentType]
        assert "cents" in caught.value.message
        with pytest.raises(UsageError):
            await hf.start(work(Item("book", 5), "many"))  # pyright: ignore[reportArgumentType]


class Strange(BaseException):
    """No Exception: what catches only those lets it through."""


class Rotten:
    """What cannot be stored, and says so in a way of its own."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def model_dump(self, mode: str) -> object:
        raise self.error


@pytest.mark.parametrize(
    "error", [KeyError("k"), Strange("odd"), SystemExit(3)], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("place", ["effect", "workflow"])
async def test_whatever_is_raised_while_a_value_is_stored_wedges_no_run_and_harms_no_other(
    home: Home, error: BaseException, place: str
) -> None:
    pack = Pack("p")

    @pack.effect(retry=Retry(attempts=1))
    async def rot() -> Any:
        return Rotten(error)

    @pack.workflow
    async def work() -> Any:
        return await rot() if place == "effect" else Rotten(error)

    @pack.workflow
    async def fine() -> str:
        return "fine"

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        fails = place == "effect" or isinstance(
            error, Exception
        )  # what else is raised there may be meant for the process
        with pytest.raises(RunFailed if fails else EngineFault):
            await run.result(timeout=30)
        assert await (await hf.start(fine())).run.result(timeout=30) == "fine"
        assert not heard(hf).all(PartFailed)
