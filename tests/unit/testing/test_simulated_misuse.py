"""What a simulation refuses, so that no test is green for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Pack, UsageError
from holdfast.testing import Simulated
from holdfast.testing.proofs import FakeWorld

shop = Pack("misused")
other = Pack("misused_elsewhere")


@shop.effect(key="charge:{order}")
async def charge(order: str) -> str:
    return order


@other.effect
async def think() -> str:
    return "hm"


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    return await charge(order)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"packs": shop}, "is no list"),
        ({"packs": 7}, "is no list"),
        ({"packs": [7]}, "7 is no pack"),
        ({"replicas": "2"}, "replicas='2' is no number"),
        ({"replicas": True}, "is no number"),
        ({"url": "x"}, "no option 'url'"),
    ],
)
def test_a_simulation_that_makes_no_sense_is_refused(options: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        Simulated(**{"packs": [shop], **options})


def test_a_simulation_is_entered_by_async_with():
    hf: Any = Simulated(packs=[shop])
    with pytest.raises(UsageError, match="async with"), hf:
        pass


async def test_nothing_can_be_asked_outside_of_its_block():
    hf = Simulated(packs=[shop])
    with pytest.raises(UsageError, match="has not begun"):
        await hf.kill()
    async with hf:
        pass
    with pytest.raises(UsageError, match="is over"):
        await hf.advance("1s")
    with pytest.raises(UsageError, match="is over"):
        await hf.pause()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fails": -1}, "less than nothing"),
        ({"loses_reply": -1}, "less than nothing"),
        ({"fails": "x"}, "neither a number nor an error"),
        ({"fails": int}, "neither a number nor an error"),
        ({"returns": 5}, r"'misused\.charge' cannot return 5"),
        ({"fails": 1, "then": 5}, r"'misused\.charge' cannot return 5"),
        ({"returns": object()}, r"'misused\.charge' cannot return <object"),
    ],
)
async def test_a_stub_that_makes_no_sense_is_refused(options: dict[str, Any], words: str):
    async with Simulated(packs=[shop]) as hf:
        with pytest.raises(UsageError, match=words):
            hf.stub(charge, **options)
    with pytest.raises(UsageError, match=words):
        FakeWorld().stub(charge, **options)


async def test_an_effect_of_no_pack_here_is_refused():
    async with Simulated(packs=[shop]) as hf:
        for misuse in (lambda: hf.stub(think, returns="x"), lambda: hf.kill_at(think), lambda: hf.pause_at(think)):
            with pytest.raises(UsageError, match=r"'misused_elsewhere\.think' is in none of the packs"):
                misuse()


async def test_a_place_that_an_effect_does_not_have_is_refused():
    during: Any = "during"
    async with Simulated(packs=[shop]) as hf:
        for misuse in (hf.kill_at, hf.pause_at):
            with pytest.raises(UsageError, match="'during' is no place"):
                misuse(charge, during)


async def test_a_misspelt_argument_counts_nothing_and_is_refused():
    async with Simulated(packs=[shop]) as hf:
        run, _ = await hf.start(checkout("o-1"))
        await run.result()
        assert hf.ledger.count(charge, order="o-1") == hf.ledger.count("charge", order="o-1") == 1
        for asked in (charge, "charge", None):
            with pytest.raises(UsageError, match="argument 'ordr'"):
                hf.ledger.count(asked, ordr="o-1")


async def test_a_condition_may_be_async_and_must_be_callable():
    async with Simulated(packs=[shop]) as hf:
        run, _ = await hf.start(checkout("o-1"))
        asked: list[str] = []

        async def has_ended() -> bool:
            asked.append((await run.refresh()).status)
            return asked[-1] == "completed"

        await hf.until(has_ended)
        assert asked[-1] == "completed"
        with pytest.raises(UsageError, match="cannot ask again"):
            await hf.until(False)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
