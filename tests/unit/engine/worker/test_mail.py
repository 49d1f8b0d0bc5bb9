"""Mail reaches the runs in memory, by every way in which it can become known."""

from __future__ import annotations

import contextlib

import pytest

from holdfast.errors import TransientError
from holdfast.events import AskedInVain
from holdfast.kernel import hooks
from tests.builders import a_signal
from tests.unit.engine.worker.conftest import WORKFLOW, FakeExecution, World


async def executed(world: World, run_id: str) -> FakeExecution:
    change, run = await world.admit(run_id, world.claims.reserve(WORKFLOW, run_id))
    world.claims.adopt_fresh(change, run)
    return world.executions[run_id]


async def send(world: World, run_id: str, word: str = "d-1") -> str:
    message = a_signal(dedupe=word)
    await world.store.commit([hooks.to_run(run_id, message)])
    return message.id


def reads(world: World) -> int:
    return world.store.asked.count("messages")


@pytest.mark.parametrize("source", ["commit", "notice", "all"])
async def test_each_source_delivers_what_has_come(world: World, source: str) -> None:
    one, other = await executed(world, "one"), await executed(world, "other")
    sent = await send(world, "one")
    match source:
        case "commit":
            world.mail.note_commit(["one"])
        case "notice":
            world.mail.note_notice(["one", "of another worker"])
        case _:
            world.mail.look_at_all()
    await world.settle()
    assert (one.arrived, other.arrived, reads(world)) == ([sent], [], 1)


async def test_only_those_that_are_named_are_looked_at(world: World) -> None:
    one, other = await executed(world, "one"), await executed(world, "other")
    for run_id in ("one", "other"):
        await send(world, run_id)
    world.mail.note_commit(["one"])
    await world.settle()
    assert (len(one.arrived), len(other.arrived)) == (1, 0)


async def test_a_notice_about_runs_of_other_workers_costs_no_look(world: World) -> None:
    await executed(world, "one")
    world.mail.note_notice(["of another worker"])
    await world.settle()
    assert reads(world) == 0


async def test_with_no_run_in_memory_nothing_is_looked_at(world: World) -> None:
    world.mail.look_at_all()
    await world.settle()
    assert reads(world) == 0


async def test_a_run_that_was_let_go_and_got_a_message_by_a_commit_here_is_claimed(world: World) -> None:
    await world.admit("let go")
    world.mail.note_commit(["let go"])
    await world.settle()
    assert list(world.executions) == ["let go"]


async def test_it_is_known_whether_a_run_leaves_with_messages_that_it_has_not_seen(world: World) -> None:
    await executed(world, "one")
    world.mail.note_commit(["one"])
    assert world.mail.forget("one")
    assert not world.mail.forget("one")
    await send(world, "one")
    world.mail.note_commit(["one"])
    await world.settle()
    assert not world.mail.forget("one")


@pytest.mark.parametrize("brings_histories", [False, True])
@pytest.mark.parametrize("source", ["commit", "notice", "all"])
async def test_what_comes_while_a_run_is_adopted_is_looked_for_afterwards(
    world: World, source: str, brings_histories: bool
) -> None:
    world.store.brings_histories = brings_histories
    await world.admit("a")
    tell = {
        "commit": lambda: world.mail.note_commit(["a"]),
        "notice": lambda: world.mail.note_notice(["a"]),
        "all": world.mail.look_at_all,
    }[source]
    world.store.between.append(tell)
    world.claims.ring()
    await world.settle()
    assert list(world.executions) == ["a"]
    assert reads(world) >= 1


async def test_what_comes_is_looked_for_even_if_the_store_fails_in_the_middle_of_an_adoption(world: World) -> None:
    one = await executed(world, "one")
    sent = await send(world, "one")
    with contextlib.suppress(TransientError), world.mail.adopting():
        world.mail.note_notice(["a run that is about to be adopted"])
        raise TransientError("the store is gone")
    await world.settle()
    assert one.arrived == [sent]


async def test_nothing_is_looked_for_after_an_adoption_during_which_nothing_came(world: World) -> None:
    await world.admit("a")
    world.claims.ring()
    await world.settle()
    assert (list(world.executions), reads(world)) == (["a"], 0)


async def test_an_answer_that_is_older_than_an_execution_is_not_delivered_to_it(world: World) -> None:
    """The run was let go and taken up again while the store was asked: its history has what the answer shows."""
    former = await executed(world, "a")
    await send(world, "a")
    messages = world.store.messages

    async def slow(owner: str, among: set[str] | None = None) -> object:
        found = await messages(owner, among)
        world.held.adopted += 1
        world.held.remove("a")
        world.held.begin("a", world.execute(former.history, {}, world.held.adopted, was_cut_short=False), id)
        return found

    world.store.messages = slow  # type: ignore[method-assign]
    world.mail.look_at_all()
    await world.settle()
    assert world.executions["a"] is not former
    assert (former.arrived, world.executions["a"].arrived) == ([], [])


async def test_after_trouble_all_are_looked_at(world: World) -> None:
    one = await executed(world, "one")
    sent = await send(world, "one")
    world.store.troubles = 1
    world.mail.note_notice(["one"])
    await world.settle()
    assert (one.arrived, reads(world)) == ([sent], 2)


async def test_a_look_that_found_nothing_is_told(world: World) -> None:
    await executed(world, "one")
    world.mail.look_at_all()
    await world.settle()
    assert world.events == [AskedInVain("mail")]
