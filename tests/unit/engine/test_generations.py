"""continue_as_new: the same run with an empty journal; what was not taken yet goes along."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import Pack, continue_as_new, hook, mark, set_attributes, spawn
from holdfast.engine.code.commands import CodeContinued
from holdfast.errors import NotSerializable, UsageError
from holdfast.kernel import attributes
from holdfast.kernel.journal import Continued, Marked, Patched
from tests.unit.engine.driving import Play, assert_same_from_every_prefix, workflow_of
from tests.unit.engine.shop import charge, pay, ship


@workflow_of
async def counter(total: int = 0) -> int:
    """The entity pattern: one run, which loops over its hook."""
    numbers = hook("numbers")
    taken = 0
    while (number := await numbers) is not None:
        total += await charge(number)
        taken += 1
        if taken == 2:
            continue_as_new(counter(total))
    return total


def test_a_run_goes_on_with_its_new_arguments_and_an_empty_journal():
    """K19."""
    play = Play(counter).signal("numbers", 1).perform("charge#1", 1).signal("numbers", 2).perform("charge#2", 2)
    outcome = play.machine.outcome
    assert isinstance(outcome, CodeContinued)
    assert outcome.call.arguments == {"total": 3}
    assert_same_from_every_prefix_but_for_the_call(play)
    second = play.anew().signal("numbers", None)
    assert second.result == 3


def assert_same_from_every_prefix_but_for_the_call(whole: Play) -> None:
    for life in whole.prefixes():
        life.go_on_as(whole)
        assert life.journal == whole.journal
        assert life.steps == whole.steps
        assert isinstance(life.machine.outcome, CodeContinued)


def test_the_steps_of_every_generation_have_ids_and_keys_of_their_own():
    play = Play(counter)
    steps: list[str] = []
    effect_keys: list[str] = []
    for generation in range(3):
        prefix = f"g{generation}/" if generation else ""
        for n in (1, 2):
            play.signal("numbers", n).perform(f"{prefix}charge#{n}", n)
        steps += play.steps
        effect_keys += [command.intent.key for command in play.begun]
        play = play.anew()
        assert isinstance(play.first, Continued)
        assert play.first.generation == generation + 1
    assert steps == ["charge#1", "charge#2", "g1/charge#1", "g1/charge#2", "g2/charge#1", "g2/charge#2"]
    assert effect_keys == [f"run-1/{step}" for step in steps]


def test_tasks_of_a_generation_are_numbered_below_it():
    @workflow_of
    async def code(again: bool = True) -> Any:
        await asyncio.gather(charge(1), holdfast.sleep(1))
        if again:
            continue_as_new(code(again=False))

    play = Play(code).perform("0/charge#1", 1).elapse("1/sleep#1").anew()
    assert play.waits_for == ["g1.0/charge#1", "g1.1/sleep#1"]
    assert_same_from_every_prefix(play.perform("g1.0/charge#1", 1).elapse("g1.1/sleep#1"))


def test_chance_differs_between_generations_and_is_the_same_on_replay():
    @workflow_of
    async def code(drawn: list[float] = []) -> list[float]:  # noqa: B006 - as users do
        drawn = [*drawn, holdfast.random()]
        await charge(len(drawn))
        if len(drawn) < 2:
            continue_as_new(code(drawn))
        return drawn

    second = Play(code).perform("charge#1", 1).anew().perform("g1/charge#1", 1)
    assert len(set(second.result)) == 2
    assert second.again().result == second.result


def test_signals_that_were_not_taken_go_along_in_their_order():
    """K19."""
    play = Play(counter).signal("numbers", 1).signal("numbers", 2)
    play.signal("numbers", 3).signal("others", "x").signal("numbers", None)
    play.perform("charge#1", 1).perform("charge#2", 2)
    second = play.anew()
    assert [entry.hook for entry in second.journal] == ["numbers", "others", "numbers"]  # pyright: ignore[reportAttributeAccessIssue]
    assert second.waits_for == ["g1/charge#1"]
    assert second.perform("g1/charge#1", 3).result == 6
    assert_same_from_every_prefix(second, since=3)


def test_signals_that_come_while_it_begins_anew_go_along_too():
    """K19: they were recorded after the code had ended, and before the new generation began."""
    play = Play(counter).signal("numbers", 1).perform("charge#1", 1).signal("numbers", 2).perform("charge#2", 2)
    play.signal("numbers", 4).signal("numbers", None)
    second = play.anew().perform("g1/charge#1", 4)
    assert second.result == 7


def test_attributes_stay_and_markers_begin_anew():
    @Pack("shop").workflow(markers=("new", "old"))
    async def code(round: int = 0) -> None:
        await set_attributes(round=round)
        await mark("old")
        if round == 0:
            continue_as_new(code(1))
        await charge(1)

    second = Play(code, attributes={"customer": "c-1"}).anew()
    assert second.first.attributes == Play(code, attributes={"customer": "c-1"}).machine.notes.attributes_now()
    shown = second.machine.notes.take_shown()
    assert shown is not None
    assert attributes.decode(shown.attributes) == {"customer": "c-1", "round": 1}
    assert [note.step for note in second.notes if isinstance(note, Marked)] == ["g1/mark#1"]


def test_a_patch_is_decided_anew_by_every_generation():
    """The old way ends with the generation that had to keep to it."""

    @workflow_of
    async def old(round: int = 0) -> Any:
        await charge(round)
        await charge(round)
        continue_as_new(old(round + 1))

    @workflow_of
    async def code(round: int = 0) -> Any:
        seen = holdfast.patched("new")
        await charge(round)
        await charge(round)
        if not round:
            continue_as_new(code(round + 1))
        return seen

    first = Play(old).perform("charge#1", 1).again(code=code).perform("charge#2", 1)
    assert not [note for note in first.notes if isinstance(note, Patched)]
    second = first.anew().perform("g1/charge#1", 1).perform("g1/charge#2", 1)
    assert second.result is True


def test_cleanup_comes_before_the_new_beginning():
    @workflow_of
    async def code() -> None:
        try:
            await charge(1)
            continue_as_new(code())
        except Exception:
            await ship("never")
        finally:
            await ship("last")

    play = Play(code).perform("charge#1", 1)
    assert play.waits_for == ["ship#1"]
    assert isinstance(play.perform("ship#1", "").machine.outcome, CodeContinued)


@pytest.mark.parametrize("how", ["gather", "group"])
def test_a_task_may_begin_the_run_anew(how):
    @workflow_of
    async def code() -> None:
        async def work() -> None:
            await charge(1)
            continue_as_new(code())

        if how == "gather":
            await asyncio.gather(work())
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(work())
                group.create_task(ship("never"))

    assert isinstance(Play(code).perform("0/charge#1", 1).machine.outcome, CodeContinued)


def test_only_the_same_workflow_can_be_continued_and_only_with_what_can_be_stored():
    @workflow_of
    async def other() -> None: ...

    @workflow_of
    async def code(wrong: Any = None) -> list[str]:
        said: list[str] = []
        for call in (other(), charge(1), code, None, code(object())):
            try:
                continue_as_new(call)  # pyright: ignore[reportArgumentType]
            except NotSerializable:
                said.append("cannot be stored")
            except UsageError as error:
                said.append(error.hint)
        return said

    *hints, last = Play(code).result
    assert last == "cannot be stored"
    assert all("call shop.code with its new arguments" in hint for hint in hints)


def test_a_run_that_is_being_cancelled_does_not_begin_anew():
    @workflow_of
    async def code() -> None:
        try:
            await charge(1)
        except asyncio.CancelledError:
            continue_as_new(code())

    play = Play(code).cancel()
    assert play.dropped() == ["charge#1"]
    assert play.stopped().is_cancelled


def test_children_of_earlier_generations_are_stopped_with_the_run():
    """C7: those that have not been joined, and are not detached."""

    @workflow_of
    async def code(round: int = 0) -> None:
        await spawn(pay(round))
        await spawn(pay(7), detached=True)
        joined = await spawn(pay(8))
        await joined.result()
        if round < 2:
            continue_as_new(code(round + 1))
        await charge(1)

    play = Play(code)
    for generation in range(3):
        prefix = f"g{generation}/" if generation else ""
        if generation:
            play = play.anew()
        for n in (1, 2, 3):
            play.spawned(f"{prefix}pay#{n}", f"child-{generation}-{n}")
        play.joined(f"{prefix}pay.result#1", 8)
    play.cancel()
    play.dropped()
    play.stopped()
    stopped = []
    while not play.is_cancelled:
        [step] = play.waits_for
        stopped.append(play.machine.open[step].child_id)
        play.child_stopped(step)
    assert stopped == ["child-0-1", "child-1-1", "child-2-1"]
    assert_same_from_every_prefix(play)


def test_outside_a_workflow_it_is_refused():
    with pytest.raises(UsageError, match="outside a workflow"):
        continue_as_new(counter(1))
