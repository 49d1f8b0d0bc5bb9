"""What the code does besides waiting (markers, attributes, patches) is noted once, and is the same on every replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import hook, mark, patched, set_attributes
from holdfast.errors import NotAllowedNow, UsageError
from holdfast.kernel import attributes, markers
from holdfast.kernel.changes import HookOpen
from holdfast.kernel.journal import Marked, Patched, Tagged
from holdfast.pack import Pack, Workflow
from tests.builders import NOW_MS
from tests.unit.engine.driving import Play, assert_same_from_every_prefix, workflow_of
from tests.unit.engine.shop import charge, notify, ship


def marking(declared: Any) -> Callable[[Callable[..., Any]], Workflow[..., Any]]:
    """`workflow_of`, with these markers."""
    return Pack("shop").workflow(markers=declared)


# -- markers


@marking(("pending", "charged", "shipped"))
async def selling() -> str:
    await mark("pending")
    await charge(1)
    await mark("charged")
    await mark("charged")  # a repetition is nothing
    await ship("lamp")
    await mark("shipped")
    return "sold"


def test_markers_are_noted_once_each_with_the_time_of_the_run():
    """C5."""
    play = Play(selling).perform("charge#1", 1).perform("ship#1", "")
    assert play.result == "sold"
    assert play.notes == [
        Marked(NOW_MS, "mark#1", "pending"),
        Marked(NOW_MS + 1, "mark#2", "charged"),
        Marked(NOW_MS + 2, "mark#3", "shipped"),
    ]
    assert_same_from_every_prefix(play)


def test_what_is_shown_after_a_replay_is_what_would_have_been_shown_without():
    """The times of earlier markers come from the journal, not from the clock of the replay."""
    play = Play(selling).perform("charge#1", 1)
    life = play.again()
    assert life.machine.notes.take_shown() is None  # nothing has changed
    for each in (play, life):
        shown = each.perform("ship#1", "").machine.notes.take_shown()
        assert shown is not None
        assert markers.decode(shown.markers) == (
            ("pending", NOW_MS),
            ("charged", NOW_MS + 1),
            ("shipped", NOW_MS + 2),
        )
        assert each.machine.notes.take_shown() is None


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        (["charged", "shipped"], None),
        (["shipped"], "'shipped'"),
        (["charged", "pending"], "'pending'"),
        (["charged", "shipped", "charged"], "'charged'"),
        (["sold"], "no marker 'sold'"),
        ([""], "no marker ''"),
    ],
    ids=str,
)
def test_only_the_next_marker_of_a_sequence_may_follow(path, refused):
    """C5."""

    @marking(("pending", "charged", "shipped"))
    async def code() -> None:
        for name in path:
            await mark(name)

    play = Play(code)
    if refused is None:
        assert play.result is None
    else:
        with pytest.raises(NotAllowedNow, match=refused):
            _ = play.result
    assert [note.marker for note in play.notes if isinstance(note, Marked)] == path[: len(path) - bool(refused)]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (["charged", "pending", "dropped"], True),
        (["dropped"], True),
        (["dropped", "pending"], False),
        (["charged", "dropped"], False),
    ],
    ids=str,
)
def test_a_graph_of_markers_allows_its_edges_and_nothing_else(path, allowed):
    @marking({"pending": ("charged", "dropped"), "charged": ("pending",)})
    async def code() -> bool:
        try:
            for name in path:
                await mark(name)
        except NotAllowedNow:
            return False
        return True

    assert Play(code).result is allowed


def test_a_refused_marker_changes_nothing_and_the_code_may_go_on():
    @marking(("pending", "charged"))
    async def code() -> str:
        try:
            await mark("nowhere")
        except NotAllowedNow as error:
            await mark("charged")
            return error.hint

    play = Play(code)
    assert play.result == "Declared are: pending, charged."
    assert [note.step for note in play.notes if isinstance(note, Marked)] == ["mark#1"]


def test_a_workflow_that_declares_no_markers_has_none():
    @workflow_of
    async def code() -> None:
        await mark("charged")

    with pytest.raises(NotAllowedNow, match="has no marker 'charged'"):
        _ = Play(code).result


# -- attributes


def test_attributes_are_merged_with_those_of_the_start_and_noted_once():
    @workflow_of
    async def code() -> None:
        await set_attributes({"stage": "new", "customer": None}, total=3)
        await charge(1)
        await set_attributes(stage="paid", total=None)
        await ship("lamp")

    play = Play(code, attributes={"customer": "c-1", "vip": True})
    seen = [play.machine.notes.take_shown()]
    play.perform("charge#1", 1)
    seen.append(play.machine.notes.take_shown())
    assert [attributes.decode(shown.attributes) for shown in seen if shown] == [
        {"vip": True, "stage": "new", "total": 3},
        {"vip": True, "stage": "paid"},
    ]
    assert [(note.step, msgspec.json.decode(note.attributes)) for note in play.notes if isinstance(note, Tagged)] == [
        ("set_attributes#1", {"stage": "new", "customer": None, "total": 3}),
        ("set_attributes#2", {"stage": "paid", "total": None}),
    ]
    life = play.again()
    assert life.machine.notes.take_shown() is None
    assert life.machine.notes.attributes_now() == play.machine.notes.attributes_now()
    assert_same_from_every_prefix(play.perform("ship#1", ""))


@pytest.mark.parametrize("wrong", [{"holdfast.parent": "x"}, {"a b": 1}, {"x": [1]}, {"x": float("nan")}], ids=str)
def test_attributes_that_cannot_be_kept_are_refused_where_they_are_set(wrong):
    @workflow_of
    async def code() -> None:
        await set_attributes(wrong)

    play = Play(code)
    with pytest.raises(UsageError):
        _ = play.result
    assert play.notes == []


def test_more_attributes_than_a_run_may_have_are_refused():
    @workflow_of
    async def code() -> str:
        await set_attributes({f"a{n}": n for n in range(32)})
        try:
            await set_attributes(one_more=True)
        except UsageError:
            return "refused"
        return "taken"

    play = Play(code)
    assert play.result == "refused"
    assert len(play.notes) == 1


# -- what a try noted that is taken back


@Pack("shop").workflow(markers={"new": ("failed", "charged"), "charged": ("shipped",)})
async def trying() -> None:
    approval = hook("approval")
    try:
        await charge(1)
    except (OSError, asyncio.CancelledError):
        await mark("failed")
        await set_attributes(stage="failed", error=True)
        await approval.close()
        raise
    await mark("charged")
    await set_attributes(stage="paid")
    await approval.close()
    await ship("lamp")


def test_what_a_try_noted_that_is_taken_back_does_not_hide_what_the_next_one_notes():
    """The new try asks for the same steps as the old one did, and means something else."""
    life = Play(trying).give_up("charge#1", OSError("net")).retried()
    before = len(life.journal)
    life.perform("charge#1", 1)
    assert [entry.what for entry in life.journal[before:]] == ["performed", "marked", "tagged", "closed"]
    shown = life.machine.notes.take_shown()
    assert shown is not None
    assert attributes.decode(shown.attributes) == {"stage": "paid"}
    assert [name for name, _ in markers.decode(shown.markers)] == ["charged"]
    assert life.machine.notes.take_hooks() == ((), (HookOpen("approval"),))
    again = life.again()
    assert again.journal == life.journal
    assert again.machine.notes.take_hooks() == ((), ())


def test_what_a_try_showed_that_is_taken_back_is_shown_no_longer():
    life = Play(trying).give_up("charge#1", OSError("net")).retried()
    shown = life.machine.notes.take_shown()
    assert shown is not None
    assert attributes.decode(shown.attributes) == {}
    assert markers.decode(shown.markers) == ()


def test_a_run_that_noted_something_about_its_cancellation_cannot_be_resumed():
    play = Play(trying).cancel().stopped()
    with pytest.raises(NotAllowedNow, match="went on after it was cancelled: marked"):
        play.resumed()


# -- patches


@workflow_of
async def before_the_patch() -> list[Any]:
    return [await charge(1), await ship("lamp"), await notify("done")]


@workflow_of
async def after_the_patch() -> list[Any]:
    first = await charge(1)
    middle = await notify("shipping") if patched("tell-first") else None
    return [first, middle, await ship("lamp"), patched("tell-first"), await notify("done")]


@pytest.mark.parametrize(
    ("recorded", "takes"),
    [
        ([], True),
        (["charge#1"], True),  # the last record is before the place: the code passes it for the first time
        (["charge#1", "ship#1"], False),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else f"{len(value)} recorded",
)
def test_a_run_takes_the_new_way_unless_it_had_passed_the_place_before(recorded, takes):
    old = Play(before_the_patch)
    for step in recorded:
        old.perform(step, 1 if "charge" in step else "")
    play = old.again(code=after_the_patch)
    while play.machine.outcome is None:
        [step] = play.waits_for
        play.perform(step, 1 if "charge" in step else step)
    _, told_first, _, said_so, _ = play.result
    assert (told_first is not None, said_so) == (takes, takes)
    assert [note.name for note in play.notes if isinstance(note, Patched)] == ["tell-first"] * takes
    assert_same_from_every_prefix(play, since=len(recorded))


def test_a_patch_that_was_taken_is_taken_on_every_replay_wherever_it_is_asked():
    @workflow_of
    async def code() -> list[bool]:
        answers = [patched("new")]
        await charge(1)
        answers.append(patched("new"))
        await asyncio.create_task(holdfast.sleep(1))
        return [*answers, patched("new"), patched("newer")]

    play = Play(code).perform("charge#1", 1).elapse("0/sleep#1")
    assert play.result == [True] * 4
    assert [note.name for note in play.notes if isinstance(note, Patched)] == ["new", "newer"]
    assert_same_from_every_prefix(play)


def test_a_place_inside_a_loop_answers_the_same_in_every_round():
    """A run that began before the change keeps to the old way to its end."""

    @workflow_of
    async def old() -> None:
        for number in range(3):
            await charge(number)

    @workflow_of
    async def new() -> list[bool]:
        answers = []
        for number in range(3):
            answers.append(patched("new"))
            await charge(number)
        return answers

    life = Play(old).perform("charge#1", 1).again(code=new).perform("charge#2", 2)
    assert life.again().perform("charge#3", 3).result == [False] * 3


@pytest.mark.parametrize("name", ["", "x" * 256, 7])
def test_the_name_of_a_patch_is_checked(name):
    @workflow_of
    async def code() -> bool:
        return patched(name)

    with pytest.raises(UsageError):
        _ = Play(code).result


@pytest.mark.parametrize(
    "use", [lambda: patched("x"), lambda: asyncio.run(mark("x")), lambda: asyncio.run(set_attributes(x=1))]
)
def test_outside_a_workflow_they_are_refused(use):
    with pytest.raises(UsageError, match="outside a workflow"):
        use()
