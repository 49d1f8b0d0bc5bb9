"""Replay: the same journal gives the same steps, values and time; a journal that the code contradicts is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from msgspec import Raw

import holdfast
from holdfast.engine.code.machine import Machine
from holdfast.errors import NotSerializable, ReplayDiverged
from holdfast.kernel.journal import (
    Blocked,
    Completed,
    Forked,
    Intended,
    Performed,
    Retried,
    Started,
    Value,
)
from holdfast.pack import Pack, Workflow
from holdfast.workflow import Current
from tests.builders import NOW_MS, a_value
from tests.unit.engine.driving import CODEC, Play, workflow_of
from tests.unit.engine.shop import charge, notify, pay, ship


@workflow_of
async def everything(order: str) -> list[Any]:
    """A bit of all: effects, a gather, a race, a timer, a child, chance and time."""
    seen: list[Any] = [order, holdfast.random(), str(holdfast.uuid4()), holdfast.now().isoformat()]
    seen += await asyncio.gather(charge(1), charge(2))
    try:
        async with asyncio.timeout(60):
            seen.append(await ship(order))
    except TimeoutError:
        seen.append("late")
    await holdfast.sleep("1h")
    seen += [holdfast.random(), holdfast.now().isoformat()]

    async def inner() -> list[Any]:
        before = holdfast.random()
        return [before, await pay(3), str(holdfast.uuid4()), holdfast.random()]

    seen += await asyncio.create_task(inner())
    try:
        await notify(order)
    except ValueError as error:
        seen.append(str(error))
    return [*seen, holdfast.current()._asdict(), holdfast.now().isoformat()]


def a_whole_life() -> list[Play]:
    """`everything`, played to its end: one play for each prefix of its journal."""

    def steps() -> list[Callable[[Play], object]]:
        return [
            lambda play: play.perform("1/charge#1", 20),
            lambda play: play.perform("0/charge#1", 10),
            lambda play: play.elapse("timeout#1"),
            lambda play: play.elapse("sleep#1"),
            lambda play: play.spawned("2/pay#1", "child-1"),
            lambda play: play.joined("2/pay#1", 30),
            lambda play: play.attempt("notify#1", OSError("net"), delay_ms=100),
            lambda play: play.give_up("notify#1", ValueError("no address")),
        ]

    plays = []
    for length in range(len(steps()) + 1):
        play = Play(everything, "o-1")
        for step in steps()[:length]:
            step(play)
        plays.append(play)
    return plays


def test_a_replay_from_every_prefix_asks_for_the_same_and_ends_the_same():
    """E12."""
    *prefixes, whole = a_whole_life()
    for play in prefixes:
        life = play.again()
        assert life.waits_for == play.waits_for
        assert [(c.step, c.intent, c.arguments, c.asked_at_ms) for c in life.begun] == [
            (c.step, c.intent, c.arguments, c.asked_at_ms) for c in play.begun
        ]
        assert life.machine.pending.next_due_at_ms() == play.machine.pending.next_due_at_ms()
        for entry in whole.journal[len(play.journal) :]:
            life._deliver(entry)
        assert life.result == whole.result
        assert life.steps == whole.steps


def test_chance_and_time_follow_from_the_run_and_its_records():
    whole = a_whole_life()[-1]
    again = whole.again()
    assert again.result == whole.result
    stranger = Play(everything, "o-1", run_id="run-2")
    for entry in whole.journal[:1]:  # the keys of its effects are its own, so it cannot go far
        with pytest.raises(ReplayDiverged):
            stranger._deliver(entry)


def test_every_run_and_every_task_draws_its_own_chance():
    @workflow_of
    async def code() -> list[Any]:
        async def draw() -> list[Any]:
            return [holdfast.random(), holdfast.uuid4(), holdfast.random(), holdfast.uuid4()]

        parts = [await draw(), *await asyncio.gather(draw(), draw())]
        return [each for part in parts for each in part]

    one, other = Play(code, run_id="run-1").result, Play(code, run_id="run-2").result
    assert len(set(one + other)) == 24
    assert all(0 <= number < 1 for number in one if isinstance(number, float))
    assert all(each.version == 4 for each in one if not isinstance(each, float))
    assert Play(code, run_id="run-1").result == one


def test_a_draw_in_one_task_moves_no_draw_in_another():
    def drawing(count: int) -> Workflow[..., Any]:
        @workflow_of
        async def code() -> float:
            async def busy() -> None:
                for _ in range(count):
                    holdfast.random()

            async def steady() -> float:
                await asyncio.sleep(0)
                return holdfast.random()

            return (await asyncio.gather(busy(), steady()))[1]

        return code

    assert Play(drawing(1)).result == Play(drawing(7)).result


def test_time_is_that_of_the_last_record_and_never_runs_backwards():
    @workflow_of
    async def code() -> list[str]:
        times = [holdfast.now()]
        for amount in range(3):
            await charge(amount)
            times.append(holdfast.now())
        return [each.isoformat() for each in times]

    play = Play(code)
    for number, at_ms in enumerate([NOW_MS + 5, NOW_MS + 3, NOW_MS + 9], start=1):  # the store's clock was set back
        step = f"charge#{number}"
        play._deliver(Performed(at_ms, step, play.machine.open[step].intent, 1, a_value(0)))
    assert play.result == sorted(play.result)
    assert play.again().result == play.result


def test_entries_are_delivered_in_committed_order_even_when_they_come_together():
    """The winner of a race is the same on every replay."""

    @workflow_of
    async def code() -> list[str]:
        order: list[str] = []

        async def one(item: str) -> None:
            order.append(await ship(item))

        await asyncio.gather(*(one(item) for item in "abc"))
        return order

    play = Play(code).perform("1/ship#1", "b").perform("2/ship#1", "c").perform("0/ship#1", "a")
    assert play.result == play.again().result == ["b", "c", "a"]


@dataclass
class Item:
    name: str
    day: date


def test_arguments_and_results_arrive_as_their_annotated_types():
    pack = Pack("types")

    @pack.effect
    async def pick(item: Item) -> Item: ...

    @pack.workflow
    async def code(items: list[Item], *, day: date | None = None) -> list[Any]:
        picked = await pick(items[0])
        return [items, picked, day]

    item = Item("lamp", date(2024, 2, 29))
    play = Play(code, [item], day=date(2024, 1, 1)).perform("pick#1", {"name": "bulb", "day": "2024-03-01"})
    assert play.result == [[item], Item("bulb", date(2024, 3, 1)), date(2024, 1, 1)]


def test_a_recorded_value_of_another_type_is_raised_where_it_is_awaited():
    @workflow_of
    async def code() -> str:
        try:
            await charge(1)
        except NotSerializable:
            return "caught"
        return "missed"

    assert Play(code).perform("charge#1", "not a number").result == "caught"


def test_stored_arguments_that_no_longer_fit_fail_the_run_with_the_reason():
    @workflow_of
    async def code(amount: int) -> None: ...

    machine = Machine(code, Current("run-1", None, code.name), codec=CODEC, blobs={})
    machine.start(Started(NOW_MS, a_value({"amount": "many"})), at_ms=NOW_MS)
    assert machine.outcome is not None
    assert "Expected `int`" in str(getattr(machine.outcome, "error", ""))


def test_a_parameter_with_a_default_may_be_added_under_a_stored_run():
    @workflow_of
    async def code(amount: int, note: str = "none", tags: list[str] = []) -> list[Any]:  # noqa: B006 - as users do
        return [amount, note, tags]

    machine = Machine(code, Current("run-1", None, code.name), codec=CODEC, blobs={})
    machine.start(Started(NOW_MS, a_value({"amount": 3})), at_ms=NOW_MS)
    assert getattr(machine.outcome, "value", None) == [3, "none", []]


def test_a_large_value_is_taken_from_its_blob():
    @workflow_of
    async def code() -> str:
        return await ship()

    play = Play(code)
    play.machine.blobs = {"d1": b'"large"'}
    play._deliver(Performed(NOW_MS, "ship#1", play.machine.open["ship#1"].intent, 1, Value(blob="d1", size=7)))
    assert play.result == "large"


def test_the_place_where_the_code_waits_is_named():
    @workflow_of
    async def code() -> None:
        await asyncio.Event().wait()

    play = Play(code)
    assert play.waits_for == []
    assert play.machine.where().startswith("test_machine.py:")
    assert Machine(code, Current("run-1", None, code.name), codec=CODEC, blobs={}).where() == ""


# -- divergence

Code = Callable[..., Any]


async def charging() -> list[Any]:
    return [await charge(1), await ship("lamp"), await charge(2)]


async def renamed() -> list[Any]:
    return [await notify("o-1"), await ship("lamp"), await charge(2)]


async def other_argument() -> list[Any]:
    return [await charge(1), await ship("bulb"), await charge(2)]


async def removed() -> list[Any]:
    return [await charge(1), await charge(2)]


async def inserted() -> list[Any]:
    return [await charge(1), await notify("o-1"), await ship("lamp"), await charge(2)]


async def ends_early() -> list[Any]:
    return [await charge(1)]


async def raises_early() -> list[Any]:
    await charge(1)
    raise ValueError


async def waits_instead() -> list[Any]:
    return [await charge(1), await asyncio.sleep(3), await ship("lamp")]


async def child_instead() -> list[Any]:
    return [await charge(1), await pay(1)]


async def waits_for_nothing() -> list[Any]:
    await charge(1)
    return [await asyncio.Event().wait()]


async def in_a_task() -> list[Any]:
    return [await charge(1), await asyncio.create_task(ship("lamp"))]


SHIPPED = ("performed ship#1 as entry 2", "effect shop.ship", "test_machine.py:")


@pytest.mark.parametrize(
    ("code", "recorded", "asked"),
    [
        (renamed, ("performed charge#1 as entry 1", "shop.charge", "test_machine.py:"), ("notify#1", "notice:o-1")),
        (other_argument, SHIPPED, ("asks for effect shop.ship", "test_machine.py:")),
        (removed, SHIPPED, ("waits for charge#2", "shop.charge", "test_machine.py:")),
        (inserted, SHIPPED, ("waits for notify#1", "shop.notify", "test_machine.py:")),
        (ends_early, SHIPPED, ("has already ended there",)),
        (raises_early, SHIPPED, ("has already ended there",)),
        (waits_instead, SHIPPED, ("waits for sleep#1", "timer")),
        (child_instead, SHIPPED, ("waits for pay#1", "child shop.pay", "test_machine.py:")),
        (waits_for_nothing, SHIPPED, ("waits for nothing there",)),
        (in_a_task, SHIPPED, ("waits for 0/ship#1", "shop.ship")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_code_that_contradicts_its_journal_is_told_both_sides_with_file_and_line(code, recorded, asked):
    play = Play(workflow_of(charging)).perform("charge#1", 10).perform("ship#1", "sent").perform("charge#2", 20)
    with pytest.raises(ReplayDiverged) as caught:
        play.again(code=workflow_of(code))
    message = caught.value.message
    journal, _, code_side = message.partition("; the code ")
    assert message.startswith("run run-1: the journal has ")
    assert all(part in journal for part in recorded), journal
    assert all(part in code_side for part in asked), code_side
    assert "run.retry()" in caught.value.hint


def keyed(template: str | None) -> Workflow[..., Any]:
    pack = Pack("shop")

    @pack.effect(key=template)
    async def refund(order: str) -> None: ...

    @pack.workflow
    async def code() -> None:
        await refund("o-1")
        await refund("o-2")

    return code


@pytest.mark.parametrize(("before", "after"), [("a:{order}", "b:{order}"), (None, "b:{order}"), ("a:{order}", None)])
def test_a_key_that_has_changed_since_is_a_contradiction(before, after):
    """E9: the world knows the effect under the key that it was called with."""
    play = Play(keyed(before)).perform("refund#1")
    with pytest.raises(ReplayDiverged) as caught:
        play.again(code=keyed(after))
    for template in (before, after):
        assert (template or "run-1/{order}").replace("{order}", "o-1" if template else "refund#1") in str(caught.value)


def test_an_effect_that_became_another_under_the_same_name_is_a_contradiction():
    def named(pack: Pack) -> Workflow[..., Any]:
        @pack.effect
        async def act() -> None: ...

        @pack.workflow
        async def code() -> None:
            await act()
            await act()

        return code

    play = Play(named(Pack("shop"))).perform("act#1")
    with pytest.raises(ReplayDiverged, match=r"effect shop\.act.*effect store\.act"):
        play.again(code=named(Pack("store")))


def test_spawning_where_the_journal_awaited_is_a_contradiction_with_both_lines():
    @workflow_of
    async def before() -> None:
        await pay(1)

    @workflow_of
    async def after() -> None:
        await holdfast.spawn(pay(1))

    with pytest.raises(ReplayDiverged) as caught:
        Play(before).spawned("pay#1", "child-1").again(code=after)
    assert str(caught.value).count("test_machine.py:") == 2


def test_the_outcome_of_one_child_is_never_taken_for_that_of_another():
    @workflow_of
    async def before() -> list[int]:
        one, two = await holdfast.spawn(pay(1)), await holdfast.spawn(pay(2))
        return [await one.result(), await two.result()]

    @workflow_of
    async def after() -> list[int]:
        one, two = await holdfast.spawn(pay(1)), await holdfast.spawn(pay(2))
        second = await two.result()
        return [await one.result(), second]

    play = Play(before).spawned("pay#1", "child-1").spawned("pay#2", "child-2")
    play.joined("pay.result#1", 1).joined("pay.result#2", 2)
    assert play.again().result == [1, 2]
    with pytest.raises(ReplayDiverged, match=r"child-1.*child-2"):
        play.again(code=after)


def test_a_parameter_added_with_a_default_is_no_contradiction():
    """Journals outlive releases; what the new parameter says when nobody gives it must change nothing."""

    def before() -> Workflow[..., Any]:
        pack = Pack("shop")

        @pack.effect
        async def refund(order: str) -> None: ...

        @pack.workflow
        async def code() -> None:
            await refund("o-1")
            await refund("o-2")

        return code

    def after(*, note: str) -> Workflow[..., Any]:
        pack = Pack("shop")

        @pack.effect
        async def refund(order: str, note: str = "", tags: list[str] | None = None) -> None: ...

        @pack.workflow
        async def code() -> None:
            await refund("o-1", note)
            await refund("o-2")

        return code

    play = Play(before()).perform("refund#1")
    assert play.again(code=after(note="")).waits_for == ["refund#2"]
    with pytest.raises(ReplayDiverged, match="input"):
        play.again(code=after(note="urgent"))


def test_an_argument_that_equals_its_default_in_text_only_is_another():
    pack = Pack("shop")

    @pack.effect
    async def refund(order: str, cents: Any = 0) -> None: ...

    @pack.workflow
    async def code(cents: Any) -> None:
        await refund("o-1", cents)

    digests = [Play(code, cents).begun[0].intent.digest for cents in (0, False, 0.0, "0", 1)]
    assert len(set(digests)) == 5


def test_a_once_effect_is_known_to_be_intended_until_its_attempt_has_ended():
    """E8."""
    play = Play(workflow_of(charging))
    command = play.machine.open["charge#1"]
    play._deliver(Intended(NOW_MS, "charge#1", command.intent, 1))
    assert play.machine.open["charge#1"].intended
    assert play.again().machine.open["charge#1"].intended
    play.attempt("charge#1", OSError("net"), delay_ms=10)
    assert not play.machine.open["charge#1"].intended
    assert not play.again().machine.open["charge#1"].intended


def test_a_child_that_exists_needs_no_beginning():
    @workflow_of
    async def code() -> None:
        child = await holdfast.spawn(pay(1))
        await asyncio.gather(pay(2), child.result())

    play = Play(code)
    [spawned] = play.machine.open.values()
    assert (spawned.awaits_a_run, spawned.is_under_way(lambda: NOW_MS)) == (False, False)
    play.spawned("pay#1", "child-1")
    awaited, join = play.machine.open["0/pay#1"], play.machine.open["1/pay.result#1"]
    assert (awaited.awaits_a_run, awaited.is_under_way(lambda: NOW_MS)) == (False, False)
    assert (join.awaits_a_run, join.is_under_way(lambda: NOW_MS)) == (True, False)  # somebody has to watch it
    play.spawned("0/pay#1", "child-2")
    assert (awaited.awaits_a_run, awaited.is_under_way(lambda: NOW_MS)) == (True, True)


def test_a_line_that_moves_is_no_contradiction():
    async def moved() -> list[Any]:
        return [
            # further down, and laid out in another way
            await charge(1),
            await ship("lamp"),
            await charge(2),
        ]

    play = Play(workflow_of(charging)).perform("charge#1", 10).perform("ship#1", "sent").perform("charge#2", 20)
    assert play.again(code=workflow_of(moved)).result == [10, "sent", 20]


def test_steps_of_another_name_may_be_added_where_nothing_was_recorded_yet():
    async def longer() -> list[Any]:
        return [await charge(1), await ship("lamp"), await notify("o-1"), await charge(2)]

    play = Play(workflow_of(charging)).perform("charge#1", 10).perform("ship#1", "sent")
    life = play.again(code=workflow_of(longer))
    assert life.waits_for == ["notify#1"]


def test_records_that_are_no_steps_contradict_nothing():
    play = Play(workflow_of(charging)).perform("charge#1", 10)
    for entry in (Blocked(NOW_MS, "replay_diverged", "why"), Retried(NOW_MS), Completed(NOW_MS)):
        play._deliver(entry)
    assert play.waits_for == ["ship#1"]
    done = play.perform("ship#1", "").perform("charge#2", 0)
    done._deliver(Completed(NOW_MS))
    assert done.result == [10, "", 0]


# -- retry


def test_a_retry_asks_for_the_failed_step_again_and_repeats_nothing_that_was_recorded():
    failed = Play(workflow_of(charging)).perform("charge#1", 10).give_up("ship#1", OSError("no stock"))
    life = failed.retried()
    assert life.waits_for == ["ship#1"]
    assert life.perform("ship#1", "sent").perform("charge#2", 20).result == [10, "sent", 20]


@workflow_of
async def with_notice() -> Any:
    try:
        return await charge(1)
    except OSError:
        await notify("failure")
        raise
    finally:
        await ship("receipt")


def test_a_retry_goes_on_although_the_code_did_something_about_the_failure():
    failed = Play(with_notice).give_up("charge#1", OSError("net")).perform("notify#1", "").perform("ship#1", "")
    life = failed.retried()
    assert life.waits_for == ["charge#1"]
    life.perform("charge#1", 5)
    assert life.result == 5  # the receipt was shipped the first time


def test_a_retry_that_fails_again_does_not_repeat_what_was_done_about_it():
    failed = Play(with_notice).give_up("charge#1", OSError("net")).perform("notify#1", "").perform("ship#1", "")
    life = failed.retried().give_up("charge#1", OSError("net"))
    with pytest.raises(OSError, match="net"):
        _ = life.result
    assert life.steps == ["charge#1"]


def test_what_was_done_about_a_failure_is_never_handed_to_something_else():
    """The fix that was deployed asks for another notice under the same step id."""

    @workflow_of
    async def fixed() -> Any:
        async def announce() -> str:
            return await notify("success")

        return [await charge(1), await announce()]

    failed = Play(with_notice).give_up("charge#1", OSError("net")).perform("notify#1", "failed!").perform("ship#1", "")
    life = failed.retried(code=fixed).perform("charge#1", 5)
    [notice] = life.waits_for
    assert life.perform(notice, "yes").result == [5, "yes"]


def test_a_step_that_is_open_never_gets_the_record_of_another_input():
    @workflow_of
    async def code() -> Any:
        try:
            return await charge(1)
        except OSError:
            await ship("apology")
            raise

    @workflow_of
    async def fixed() -> Any:
        async with asyncio.TaskGroup() as group:
            charged = group.create_task(charge(1))
            shipped = await ship("lamp")  # asked for before the charge is known, as ship#1 too
        return [charged.result(), shipped]

    failed = Play(code).give_up("charge#1", OSError("net")).perform("ship#1", "an apology")
    try:
        life = failed.retried(code=fixed)
    except ReplayDiverged:
        return  # it may be refused; it may not be wrong
    [charged, shipped] = sorted(life.waits_for)
    life.perform(charged, 5)
    assert life.waits_for == [shipped]
    assert life.perform(shipped, "a lamp").result == [5, "a lamp"]


# -- forks


@workflow_of
async def drawing_and_charging() -> list[Any]:
    first = holdfast.random()
    await charge(1)
    second = holdfast.random()
    await charge(2)
    return [first, second, holdfast.current().run_id]


def test_a_fork_keeps_the_chance_and_the_keys_of_what_it_copied():
    """C10: the world knows the copied effects under the keys of the run that performed them."""
    source = Play(drawing_and_charging).perform("charge#1", 1)
    journal = [source.first, *source.journal, Forked(NOW_MS, "run-1", "run-1", "charge#2")]
    fork = Play.of(drawing_and_charging, journal, run_id="run-2")
    assert [command.intent.key for command in fork.begun] == ["run-1/charge#1", "run-2/charge#2"]
    assert fork.perform("charge#2", 2).result == [*source.perform("charge#2", 2).result[:2], "run-2"]
    again = Play.of(drawing_and_charging, [fork.first, *fork.journal], run_id="run-2")
    assert again.result == fork.result
    assert [command.intent.key for command in again.begun] == ["run-1/charge#1", "run-2/charge#2"]


def test_without_the_note_of_its_fork_the_journal_of_another_run_is_a_contradiction():
    source = Play(drawing_and_charging).perform("charge#1", 1)
    with pytest.raises(ReplayDiverged, match="run-1/charge#1"):
        Play.of(drawing_and_charging, [source.first, *source.journal], run_id="run-2")


# -- what it waits for


def test_everything_that_a_run_waits_for_is_named():
    @workflow_of
    async def code() -> None:
        await asyncio.gather(charge(1), pay(1), holdfast.sleep("1h"), holdfast.hook("approval").__anext__(), ship())

    play = Play(code).attempt("0/charge#1", OSError("net"), delay_ms=5_000).spawned("1/pay#1", "child-1")
    waits = {wait.kind: (wait.name, wait.step, wait.until_ms) for wait in play.machine.waits()}
    assert waits == {
        "retry": ("shop.charge", "0/charge#1", NOW_MS + 1 + 5_000),
        "child": ("child-1", "1/pay#1", None),
        "timer": ("2/sleep#1", "2/sleep#1", NOW_MS + 3_600_000),
        "hook": ("approval", "", None),
    }
    assert play.again().machine.waits() == play.machine.waits()


def test_raw_values_compare_by_their_bytes():
    """The tests above rely on it."""
    assert Raw(b"1") == Raw(b"1") != Raw(b"2")
