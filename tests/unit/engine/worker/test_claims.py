"""Runs come into memory by a claim, by the commit that admits them, or because the store has them under our name."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.events import AskedInVain, RunsClaimed, StoreTroubled
from holdfast.kernel import transitions
from holdfast.kernel.changes import Committed
from holdfast.kernel.starts import Hand
from holdfast.kernel.takeovers import ALONE_MS, DEADLY_AT, POSTPONED_MS, SUSPECT_AT
from tests.unit.engine.worker.conftest import LIMIT, WORKFLOW, World


def claimed(world: World) -> list[int]:
    return [event.count for event in world.events if isinstance(event, RunsClaimed)]


# -- claiming


async def test_nothing_is_claimed_before_the_bell_rings(world: World) -> None:
    await world.admit("a")
    await world.settle()
    assert world.store.asked == []
    world.claims.ring()
    await world.settle()
    assert list(world.executions) == ["a"]
    assert (world.slots.taken, world.told) == (1, ["claimed"])


async def test_batches_are_claimed_until_there_is_no_room_and_a_slot_that_becomes_free_rings(world: World) -> None:
    for n in range(5):
        await world.admit(f"r{n}")
    world.claims.ring()
    await world.settle()
    assert claimed(world) == [2, 1]
    assert (world.slots.taken, len(world.held)) == (LIMIT, LIMIT)
    next(iter(world.executions.values())).ended.set()
    await world.settle()
    assert claimed(world) == [2, 1, 1]
    assert (world.slots.taken, len(world.held)) == (LIMIT, LIMIT)


async def test_a_history_that_came_with_the_claim_is_not_asked_for(world: World) -> None:
    world.store.brings_histories = True
    for n in range(2):
        await world.admit(f"r{n}")
    world.claims.ring()
    await world.settle()
    assert set(world.executions) == {"r0", "r1"}
    assert world.store.histories_read == 0


async def test_a_question_that_brought_nothing_is_told(world: World) -> None:
    world.claims.ring()
    await world.settle()
    assert world.events == [AskedInVain("claim")]
    assert world.told == []


@pytest.mark.parametrize("why", ["lease", "stop"])
async def test_nothing_is_claimed_without_a_lease_or_while_it_stops(world: World, why: str) -> None:
    await world.admit("a")
    world.lease.is_good = why != "lease"
    world.slots.is_closed = why == "stop"
    world.claims.ring()
    await world.settle()
    assert "claim" not in world.store.asked
    assert world.claims.reserve(WORKFLOW, "b") is None


async def test_after_trouble_it_asks_again_and_makes_sure_of_what_it_holds(world: World) -> None:
    await world.admit("a")
    world.store.troubles = 2
    world.claims.ring()
    await world.settle()
    assert world.store.asked == ["claim", "held", "held", "claim"]
    assert [type(event) for event in world.events] == [StoreTroubled, StoreTroubled, RunsClaimed]
    assert list(world.executions) == ["a"]


async def test_a_journal_that_cannot_be_read_is_set_aside_and_the_others_are_adopted(world: World) -> None:
    for run_id in ("odd", "fine"):
        await world.admit(run_id)
    world.store.unreadable = {"odd"}
    world.claims.ring()
    await world.settle()
    assert world.set_aside_runs == ["odd"]
    assert list(world.executions) == ["fine"]
    assert world.slots.taken == 1


async def test_a_run_whose_lease_is_lost_while_it_is_read_is_not_adopted(world: World) -> None:
    await world.admit("a")
    world.store.between.append(lambda: setattr(world.lease, "owner", "w-2"))
    world.claims.ring()
    await world.settle()
    assert (world.executions, world.slots.taken) == ({}, 0)


# -- what the store has under our name


async def test_a_run_that_is_held_and_not_executed_is_adopted_without_a_claim(world: World) -> None:
    await world.admit("a", Hand("w-1", "nonce"))
    world.claims.make_sure()
    await world.settle()
    assert list(world.executions) == ["a"]
    assert world.store.asked == ["held"]


async def test_a_run_that_is_executed_or_being_admitted_is_not_adopted_beside_that(world: World) -> None:
    hand = world.claims.reserve(WORKFLOW, "reserved")
    await world.admit("reserved", hand)
    change, run = await world.admit("executed", world.claims.reserve(WORKFLOW, "executed"))
    world.claims.adopt_fresh(change, run)
    world.claims.make_sure()
    await world.settle()
    assert list(world.executions) == ["executed"]


async def test_a_run_that_is_claimed_again_while_it_is_executed_is_adopted_when_that_execution_has_gone(
    world: World,
) -> None:
    change, run = await world.admit("a", world.claims.reserve(WORKFLOW, "a"))
    world.claims.adopt_fresh(change, run)
    former = world.executions["a"]
    await world.store.leave("w-1")  # as after a store has forgotten the claim
    await world.store.join("w-1", 3_600_000)
    world.claims.ring()
    await world.settle()
    assert world.executions["a"] is former
    former.ended.set()
    await world.settle()
    assert world.executions["a"] is not former
    assert world.slots.taken == 1


# -- runs under which workers have died


async def suspects(world: World, *run_ids: str, times: int = SUSPECT_AT) -> None:
    """They were all executed by a worker that died, and are free again."""
    await world.store.join("w-dead", 3_600_000)
    for run_id in run_ids:
        await world.admit_taken_over(run_id, times)
    await world.store.leave("w-dead")
    world.claims.ring()
    await world.settle()


async def test_a_run_under_which_too_many_workers_have_died_is_blocked_and_not_executed(world: World) -> None:
    await suspects(world, "deadly", times=DEADLY_AT)
    assert (world.blocked_runs, world.executions) == (["deadly"], {})


async def test_the_next_suspect_waits_until_the_first_has_recorded_something(world: World) -> None:
    await suspects(world, "a", "b")
    [first], [second] = list(world.executions), world.postponed_runs
    execution = world.executions[first]
    execution.run = replace(execution.run, length=execution.run.length + 1)
    world.clock.advance(POSTPONED_MS)
    world.claims.ring()
    await world.settle()
    assert list(world.executions) == [first, second]


async def test_the_next_suspect_waits_for_a_while_and_not_until_a_long_effect_of_the_first_has_ended(
    world: World,
) -> None:
    """The second may be the parent that has to cancel the first."""
    await suspects(world, "a", "b")
    [first], [second] = list(world.executions), world.postponed_runs
    waited = 0
    while waited < ALONE_MS - POSTPONED_MS:
        world.clock.advance(POSTPONED_MS)
        waited += POSTPONED_MS
        world.claims.ring()
        await world.settle()
        assert list(world.executions) == [first]
    world.clock.advance(POSTPONED_MS)
    world.claims.ring()
    await world.settle()
    assert list(world.executions) == [first, second]


# -- fresh runs


async def test_a_fresh_run_is_adopted_from_the_change_that_admitted_it(world: World) -> None:
    hand = world.claims.reserve(WORKFLOW, "a")
    assert hand is not None
    assert (hand.owner, world.slots.taken) == ("w-1", 1)
    change, run = await world.admit("a", hand)
    world.claims.adopt_fresh(change, run)
    assert world.executions["a"].history.journal == change.entries
    assert (world.slots.taken, world.store.asked) == (1, [])
    world.executions["a"].ended.set()
    await world.settle()
    assert (world.slots.taken, len(world.held), world.told) == (0, 0, ["gone"])


async def test_there_is_no_slot_for_a_workflow_that_is_not_served_nor_when_all_are_taken(world: World) -> None:
    assert world.claims.reserve("shop.other", "a") is None
    for n in range(LIMIT):
        assert world.claims.reserve(WORKFLOW, f"r{n}") is not None
    assert world.claims.reserve(WORKFLOW, "one more") is None


@pytest.mark.parametrize("is_unsure", [False, True])
async def test_a_slot_that_is_given_back_is_free_and_if_nothing_is_known_the_store_is_asked(
    world: World, is_unsure: bool
) -> None:
    await world.admit("a", world.claims.reserve(WORKFLOW, "a"))
    world.claims.give_back("a", is_unsure=is_unsure)
    assert world.slots.taken == 0
    await world.settle()
    assert list(world.executions) == (["a"] if is_unsure else [])


@pytest.mark.parametrize("why", ["stop", "another owner", "held already"])
async def test_a_fresh_run_that_cannot_be_adopted_any_more_gives_its_slot_back(world: World, why: str) -> None:
    change, run = await world.admit("a", world.claims.reserve(WORKFLOW, "a"))
    world.slots.is_closed = why == "stop"
    if why == "another owner":
        world.lease.owner = "w-2"
    if why == "held already":
        assert world.claims.reserve(WORKFLOW, "a") is not None  # two callers admit the same run
        world.claims.adopt_fresh(change, run)
    world.claims.adopt_fresh(change, run)
    assert world.slots.taken == (1 if why == "held already" else 0)


async def test_runs_that_others_have_handed_to_it_wait_for_a_slot(world: World) -> None:
    for n in range(LIMIT + 2):
        await world.admit(f"run-{n}", Hand("w-1", f"nonce-{n}"))  # as if by another process
    world.claims.make_sure()
    await world.settle()
    assert len(world.executions) == LIMIT
    first, *_ = world.executions.values()
    let_go = transitions.decide(first.run, transitions.LetGo(None), now_ms=world.store.now_ms())
    await world.store.commit([let_go])
    first.ended.set()
    await world.settle()
    assert len(world.executions) == LIMIT + 1


async def test_a_run_of_another_version_is_left_to_those_that_serve_it(world: World) -> None:
    world.elsewhere.add("run-1")
    await world.admit("run-1")
    await world.admit("run-2")
    world.claims.ring()
    await world.settle()
    assert set(world.executions) == {"run-2"}


# -- runs whose execution here ended before them


async def test_a_run_that_was_cut_short_is_told_so_when_it_is_adopted_again_under_the_same_fence(world: World) -> None:
    await world.admit("a")
    world.claims.ring()
    await world.settle()
    first = world.executions["a"]
    assert not first.was_cut_short
    first.ended.set()  # an execution ends so if the lease seems to be lost: it has let go of nothing
    await world.settle()
    world.claims.make_sure()
    await world.settle()
    again = world.executions["a"]
    assert again is not first
    assert (again.run.fence, again.was_cut_short) == (first.run.fence, True)


async def test_a_run_that_was_let_go_or_has_changed_hands_since_was_not_cut_short(world: World) -> None:
    for run_id in ("a", "b"):
        await world.admit(run_id)
    world.claims.ring()
    await world.settle()
    first = dict(world.executions)
    let_go = transitions.decide(first["a"].run, transitions.LetGo(world.store.now_ms()), now_ms=world.store.now_ms())
    [answer] = await world.store.commit([let_go])
    assert isinstance(answer, Committed)
    assert answer.run is not None
    first["a"].run = answer.run
    for execution in first.values():
        execution.ended.set()
    await world.settle()
    await world.store.leave("w-1")
    await world.store.join("w-1", 3_600_000)
    world.claims.ring()
    await world.settle()
    for run_id, execution in world.executions.items():
        assert execution is not first[run_id]
        assert (execution.run.fence != first[run_id].run.fence, execution.was_cut_short) == (True, False)
