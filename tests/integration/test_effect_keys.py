"""The declared keys of effects inside one run: another input is refused, and what was undone has a key of its own."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Pack, RunFailed, effect_key, hook
from holdfast.engine.code.effect_keys import EffectKeys
from holdfast.errors import EffectKeyReused
from holdfast.events import RunLetGo
from tests.integration.conftest import Home, heard

shop = Pack("shop")
performed: list[tuple[str, object]] = []


@pytest.fixture(autouse=True)
def nothing_was_performed():
    performed.clear()


@shop.effect(key="refund:{order}")
async def refund(order: str, result: str) -> None:
    performed.append((effect_key(), result))


@shop.effect(key="charge:{order}", undo=refund)
async def charge(order: str, cents: int) -> str:
    performed.append((effect_key(), cents))
    return f"ch-{len(performed)}"


@shop.effect(key="charge:{order}")
async def reserve(order: str, cents: int) -> None:
    performed.append((effect_key(), cents))


@shop.effect(key="status:{order}", safety="natural")
async def show(order: str, status: str) -> None:
    performed.append((effect_key(), status))


@shop.effect(key="print:{order}")
def print_label(order: str, *, copies: int = 1) -> None:
    performed.append((effect_key(), copies))


@shop.workflow
async def charges_twice(order: str, first: int, second: int) -> None:
    await charge(order, first)
    await charge(order, second)


async def test_the_same_key_with_another_input_is_refused_at_the_await(home: Home) -> None:
    async with home.holdfast(shop) as hf:
        with pytest.raises(RunFailed) as failed:
            await (await hf.start(charges_twice("o-1", 1, 2))).run.result("30s")
    cause = failed.value.__cause__
    assert isinstance(cause, EffectKeyReused)
    assert "effect 'shop.charge' was awaited with another input under the key 'charge:o-1'" in cause.message
    assert performed == [("charge:o-1", 1)]


async def test_the_same_input_is_a_repetition_as_ever(home: Home) -> None:
    async with home.holdfast(shop) as hf:
        await (await hf.start(charges_twice("o-1", 1, 1))).run.result("30s")
    assert performed == [("charge:o-1", 1)] * 2


@shop.workflow
async def is_no_mistake(order: str) -> None:
    await charge(order, 1)
    await reserve(order, 2)  # another effect: what its key is told to is another side
    await show(order, "paid")
    await show(order, "sent")
    await print_label(order)
    await print_label(order, copies=1)  # its default value, written out


async def test_other_effects_natural_ones_and_defaults_are_no_mistake(home: Home) -> None:
    async with home.holdfast(shop) as hf:
        await (await hf.start(is_no_mistake("o-1"))).run.result("30s")
    assert len(performed) == 6


@shop.workflow
async def goes_on_after_it(order: str) -> str:
    await charge(order, 1)
    try:
        await asyncio.gather(charge(order, 2), charge(f"{order}-b", 2))
    except EffectKeyReused:
        await show(order, "mended")
    said = await hook("go", type=str)
    await charge(order, 1)
    return said


async def test_code_that_handles_the_refusal_replays_alike(home: Home) -> None:
    home.paced(idle_ms=0)
    async with home.holdfast(shop) as hf:
        run = (await hf.start(goes_on_after_it("o-1"))).run
        await heard(hf).until(RunLetGo)
    async with home.holdfast(shop) as hf:
        await (await hf.get(run.id)).signal("go", "on")
        assert await (await hf.get(run.id)).result("30s") == "on"
    assert [each for each in performed if each[0] == "charge:o-1"] == [("charge:o-1", 1)] * 2


# -- performed again after an undo


@shop.workflow
async def undoes_by_hand(order: str, rounds: int) -> str:
    for cents in range(rounds):
        charged = await charge(order, cents)
        await refund(order, charged)
    await hook("go", type=str)
    return await charge(order, 100)


async def test_what_is_performed_again_after_its_undo_has_a_key_of_its_own(home: Home) -> None:
    home.paced(idle_ms=0)
    async with home.holdfast(shop) as hf:
        run = (await hf.start(undoes_by_hand("o-1", 2))).run
        await heard(hf).until(RunLetGo)
    async with home.holdfast(shop) as hf:
        await (await hf.get(run.id)).signal("go", "on")
        await (await hf.get(run.id)).result("30s")
    assert performed == [
        ("charge:o-1", 0),
        ("refund:o-1", "ch-1"),
        ("charge:o-1{2}", 1),
        ("refund:o-1{2}", "ch-3"),
        ("charge:o-1{3}", 100),
    ]


@shop.workflow
async def is_cancelled(order: str) -> None:
    await refund(order, await charge(order, 1))
    await charge(order, 2)
    await hook("never")


async def test_a_cancellation_undoes_the_second_one_under_its_own_key(home: Home) -> None:
    home.paced(idle_ms=0)
    async with home.holdfast(shop) as hf:
        run = (await hf.start(is_cancelled("o-1"))).run
        await heard(hf).until(RunLetGo)
        await run.cancel()
    assert performed[:3] == [("charge:o-1", 1), ("refund:o-1", "ch-1"), ("charge:o-1{2}", 2)]
    assert performed[3] == ("refund:o-1{2}", "ch-3")


@shop.workflow
async def undoes_another(order: str) -> None:
    await charge(order, 1)
    await refund("other", "ch-9")
    await charge(order, 1)


async def test_the_undo_of_another_order_changes_no_key(home: Home) -> None:
    async with home.holdfast(shop) as hf:
        await (await hf.start(undoes_another("o-1"))).run.result("30s")
    assert [key for key, _ in performed] == ["charge:o-1", "refund:other", "charge:o-1"]


# -- what earlier versions have recorded


def _as_before(keys: EffectKeys, effect: object, key: str, step: str, digest: str, mark: str) -> str:
    del keys, effect, step, digest, mark
    return key


@shop.workflow
async def of_earlier(order: str) -> str:
    await charge(order, 1)
    await charge(order, 2)  # another input: nothing was compared then
    await refund(order, "ch-2")
    await charge(order, 3)
    await hook("go", type=str)
    try:
        await charge(order, 4)
    except EffectKeyReused:
        return "refused"
    return performed[-1][0]


async def test_what_is_recorded_stays_and_only_new_steps_are_looked_at(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.paced(idle_ms=0)
    with monkeypatch.context() as earlier:
        earlier.setattr(EffectKeys, "claim", _as_before)
        async with home.holdfast(shop) as hf:
            run = (await hf.start(of_earlier("o-1"))).run
            await heard(hf).until(RunLetGo)
    assert [key for key, _ in performed] == ["charge:o-1", "charge:o-1", "refund:o-1", "charge:o-1"]
    async with home.holdfast(shop) as hf:
        await (await hf.get(run.id)).signal("go", "on")
        assert await (await hf.get(run.id)).result("30s") == "charge:o-1{2}"
    assert len(performed) == 5
