"""Hooks: what arrives is kept in order and taken once, whatever the code does meanwhile, and alike on every replay."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import hook
from holdfast.errors import HookTaken, ReplayDiverged, UsageError
from holdfast.kernel import json_schema
from holdfast.kernel.changes import HookOpen
from holdfast.kernel.journal import Closed, Ignored
from tests.unit.engine.driving import Play, assert_same_from_every_prefix, workflow_of
from tests.unit.engine.shop import charge, ship


def test_what_arrives_before_the_code_waits_for_it_is_kept_in_order():
    @workflow_of
    async def code() -> list[Any]:
        inbox = hook("orders")
        await charge(1)
        return [await inbox, await inbox, await hook("orders")]

    play = Play(code).signal("orders", "a").signal("orders", "b")
    assert play.waits_for == ["charge#1"]
    play.perform("charge#1", 1)
    assert play.machine.outcome is None
    assert play.signal("orders", "c").result == ["a", "b", "c"]
    assert_same_from_every_prefix(play)


def test_hooks_of_different_names_do_not_mix():
    @workflow_of
    async def code() -> list[Any]:
        return [await hook("one"), await hook("two")]

    play = Play(code).signal("two", 2).signal("three", 3)
    assert play.machine.inbox.awaited() == ["one"]
    assert play.signal("one", 1).result == [1, 2]


def test_a_run_that_awaits_a_hook_says_so():
    @workflow_of
    async def code() -> None:
        await hook("approval")

    play = Play(code)
    [wait] = play.machine.waits()
    assert (wait.kind, wait.name) == ("hook", "approval")
    assert play.signal("approval").machine.waits() == ()


def test_all_payloads_are_iterated_until_the_code_leaves():
    @workflow_of
    async def code() -> list[int]:
        seen: list[int] = []
        async for number in hook("numbers"):
            seen.append(await charge(number))
            if number == 0:
                break
        return seen

    play = Play(code).signal("numbers", 3).signal("numbers", 0)
    assert play.waits_for == ["charge#1"]
    assert play.perform("charge#1", 30).perform("charge#2", 0).result == [30, 0]
    assert_same_from_every_prefix(play)


def test_closing_ends_the_iteration_and_is_noted_once():
    @workflow_of
    async def code() -> list[Any]:
        orders = hook("orders")

        async def close_after_charge() -> None:
            await charge(1)
            await orders.close()
            orders.close()

        closing = asyncio.create_task(close_after_charge())
        seen = [order async for order in orders]
        await closing
        return seen

    play = Play(code).signal("orders", "a").perform("0/charge#1", 1)
    assert play.result == ["a"]
    [note] = play.notes
    assert isinstance(note, Closed)
    assert (note.hook, note.step) == ("orders", "0/close:orders#1")
    assert play.machine.notes.take_hooks() == ((), (HookOpen("orders"),))
    life = play.again()
    assert life.journal == play.journal
    assert life.machine.notes.take_hooks() == ((), ())
    assert_same_from_every_prefix(play)


def test_whoever_waits_for_a_hook_that_is_closed_is_told():
    @workflow_of
    async def code() -> list[str]:
        orders = hook("orders")

        async def wait() -> str:
            try:
                return await orders
            except UsageError as error:
                return error.message

        waiting = [asyncio.create_task(wait()), asyncio.create_task(wait())]
        await charge(1)
        orders.close()
        return [*await asyncio.gather(*waiting), await wait()]

    first, second, late = Play(code).perform("charge#1", 1).result
    assert first == second == "hook 'orders' was closed while it was awaited"
    assert late == "hook 'orders' has been closed"


def test_a_block_closes_its_hook_and_what_comes_later_is_for_whoever_opens_it_again():
    @workflow_of
    async def code() -> list[Any]:
        async with hook("orders") as orders:
            first = await orders
        await charge(1)
        async with hook("orders") as orders:
            return [first, await orders, await orders]

    play = Play(code).signal("orders", "a").signal("orders", "b").perform("charge#1", 1).signal("orders", "c")
    assert play.result == ["a", "b", "c"]
    assert [note.step for note in play.notes if isinstance(note, Closed)] == ["close:orders#1", "close:orders#2"]
    assert_same_from_every_prefix(play)


def test_a_hook_can_be_opened_again_after_its_waiter_was_cancelled_and_it_was_closed():
    """What a lost race does; nothing of it may reach whoever opens the hook next."""

    @workflow_of
    async def code() -> Any:
        orders = hook("orders")
        waiting = asyncio.ensure_future(orders)
        await charge(1)
        waiting.cancel()
        orders.close()
        return await hook("orders")

    play = Play(code).perform("charge#1", 1)
    assert play.machine.inbox.awaited() == ["orders"]
    assert play.signal("orders", "a").result == "a"


def test_two_waiters_get_one_payload_each_in_the_order_in_which_they_came():
    @workflow_of
    async def code() -> list[Any]:
        async def wait() -> Any:
            return await hook("orders")

        return list(await asyncio.gather(wait(), wait()))

    play = Play(code).signal("orders", "a").signal("orders", "b")
    assert play.result == ["a", "b"]
    assert_same_from_every_prefix(play)


def test_a_waiter_that_is_cancelled_leaves_the_payload_to_the_next():
    @workflow_of
    async def code() -> Any:
        async def wait() -> Any:
            return await hook("orders")

        first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
        await charge(1)
        first.cancel()
        return await second

    assert Play(code).perform("charge#1", 1).signal("orders", "a").result == "a"


@workflow_of
async def patient() -> list[Any]:
    """Waits for two payloads, each for a minute at a time."""
    orders, seen = hook("orders"), []
    while len(seen) < 2:
        try:
            async with asyncio.timeout(60):
                seen.append(await orders)
        except TimeoutError:
            seen += [await charge(len(seen))] if len(seen) == 1 else []
    return seen


def test_a_timeout_around_a_hook_never_loses_a_payload():
    play = Play(patient).elapse("timeout#1").elapse("timeout#2").signal("orders", "a")
    assert play.waits_for == ["timeout#4"]
    assert play.signal("orders", "b").result == ["a", "b"]
    assert_same_from_every_prefix(play)


def test_a_payload_that_comes_after_the_timeout_is_there_for_the_next_wait():
    play = Play(patient).signal("orders", "a").elapse("timeout#2").signal("orders", "b")
    assert play.waits_for == ["charge#1"]
    assert play.perform("charge#1", 7).result == ["a", 7]
    assert [received.hook for received in play.machine.inbox.untaken()] == ["orders"]
    assert_same_from_every_prefix(play)


@workflow_of
async def race() -> list[Any]:
    """A hook against a timer; then the other way round with what is left."""
    waiting = asyncio.ensure_future(hook("approval"))
    sleeping = asyncio.create_task(holdfast.sleep("1h"))
    done, pending = await asyncio.wait([waiting, sleeping], return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    winner = "approval" if waiting in done else "timer"
    return [winner, len(done), await ship(winner)]


@pytest.mark.parametrize("order", [["signal", "elapse"], ["elapse", "signal"]], ids=lambda order: f"{order[0]} first")
def test_a_race_of_hook_and_sleep_has_one_winner_from_every_prefix(order):
    """K14."""
    play = Play(race)
    for what in order:
        if what == "signal":
            play.signal("approval", "yes")
        elif "1/sleep#1" in play.machine.timers:
            play.elapse("1/sleep#1")
    play.perform("ship#1", "sent")
    assert play.result == ["approval" if order[0] == "signal" else "timer", 1, "sent"]
    assert_same_from_every_prefix(play)


# -- types


@dataclass
class Order:
    name: str
    cents: int


@dataclass
class Refund:
    order: str


def test_a_typed_payload_arrives_as_its_type_and_its_shape_is_made_known():
    @workflow_of
    async def code() -> Any:
        return await hook("orders", type=Order)

    play = Play(code)
    [opened], closed = play.machine.notes.take_hooks()
    assert (opened.name, opened.token, closed) == ("orders", None, ())
    assert opened.schema is not None
    schema = msgspec.json.decode(opened.schema)
    assert json_schema.misfit({"name": "lamp", "cents": 5}, schema) is None
    assert "cents" in (json_schema.misfit({"name": "lamp", "cents": "many"}, schema) or "")
    assert play.signal("orders", {"name": "lamp", "cents": 5}).result == Order("lamp", 5)


def test_a_hook_without_a_type_takes_anything_and_nobody_needs_to_know_it():
    @workflow_of
    async def code() -> Any:
        return await hook("orders")

    play = Play(code)
    assert play.machine.notes.take_hooks() == ((), ())
    assert play.signal("orders", [1, {"a": None}]).result == [1, {"a": None}]


def test_a_payload_that_does_not_fit_is_passed_over_and_noted_once():
    @workflow_of
    async def code() -> list[Any]:
        orders = hook("orders", type=Order)
        return [await orders, await orders]

    play = Play(code).signal("orders", "lamp").signal("orders", {"name": "lamp", "cents": 5})
    play.signal("orders", {"name": "bulb", "cents": "many"}).signal("orders", {"name": "bulb", "cents": 6})
    assert play.result == [Order("lamp", 5), Order("bulb", 6)]
    ignored = [note for note in play.notes if isinstance(note, Ignored)]
    assert [(note.hook, note.id) for note in ignored] == [("orders", "signal-1"), ("orders", "signal-3")]
    assert "`object`" in ignored[0].why
    assert "$.cents" in ignored[1].why
    assert_same_from_every_prefix(play)


def test_the_shape_of_a_hook_is_made_known_again_only_if_that_may_have_been_lost():
    @workflow_of
    async def code() -> None:
        await hook("orders", type=Order)
        await charge(1)
        await hook("refunds", type=str)

    play = Play(code).signal("orders", {"name": "lamp", "cents": 5}).perform("charge#1", 1)
    assert [[each.name for each in life.machine.notes.take_hooks()[0]] for life in play.prefixes()] == [
        ["orders"],
        [],
        ["refunds"],
    ]


def test_a_type_that_could_never_be_read_back_is_refused_where_the_hook_is_opened():
    """Otherwise every payload would be passed over."""

    @workflow_of
    async def code() -> Any:
        await hook("orders", type=Order | Refund)

    with pytest.raises(UsageError, match="the payload of hook 'orders'"):
        _ = Play(code).result


@pytest.mark.parametrize("options", [{"name": ""}, {"name": "x" * 256}, {"name": "x", "token": ""}])
def test_names_and_tokens_are_checked_where_the_hook_is_opened(options):
    @workflow_of
    async def code() -> Any:
        return await hook(**options)

    with pytest.raises(UsageError):
        _ = Play(code).result


def test_a_hook_belongs_into_a_workflow():
    with pytest.raises(UsageError, match="outside a workflow"):
        hook("orders")


# -- tokens


@workflow_of
async def with_token() -> Any:
    return await hook("approval", token="t-1")


def test_a_token_is_claimed_before_the_hook_is_awaited():
    play = Play(with_token)
    [command] = play.begun
    assert (command.step, command.intent.kind, command.intent.key) == ("hook:approval#1", "hook", "t-1")
    assert command.hook == HookOpen("approval", "t-1")
    play.signal("approval", "early")
    assert play.machine.outcome is None
    assert play.claimed("hook:approval#1").result == "early"
    assert_same_from_every_prefix(play)


def test_awaiting_a_hook_whose_token_is_taken_says_who_has_it():
    play = Play(with_token).claimed("hook:approval#1", by="run-9")
    with pytest.raises(HookTaken) as caught:
        _ = play.result
    assert (caught.value.token, caught.value.run_id, caught.value.code) == ("t-1", "run-9", "hook_taken")


def test_the_holder_of_a_token_can_be_asked_for_and_waited_for():
    @workflow_of
    async def code() -> Any:
        approval = hook("approval", token="t-1")
        owner = await approval.conflict()
        if owner is not None:
            return [owner.id, owner.workflow, owner.key, await owner.result()]
        return await approval

    taken = Play(code).claimed("hook:approval#1", by="run-9")
    assert taken.waits_for == ["other.result#1"]
    assert taken.joined("other.result#1", "theirs").result == ["run-9", "shop.other", "key-2", "theirs"]
    assert_same_from_every_prefix(taken)
    free = Play(code).claimed("hook:approval#1").signal("approval", "ours")
    assert free.result == "ours"


def test_a_hook_without_a_token_has_no_conflict():
    @workflow_of
    async def code() -> Any:
        return await hook("approval").conflict()

    assert Play(code).result is None


def test_a_token_is_claimed_anew_each_time_in_a_loop():
    """K12."""

    @workflow_of
    async def code() -> list[Any]:
        seen = []
        for _ in range(3):
            async with hook("approval", token="t-1") as approval:
                seen.append(await approval)
        return seen

    play = Play(code)
    for n in (1, 2, 3):
        play.claimed(f"hook:approval#{n}").signal("approval", n)
        assert play.machine.notes.take_hooks() == ((), (HookOpen("approval", "t-1"),))
    assert play.result == [1, 2, 3]
    assert_same_from_every_prefix(play)


def test_a_claim_outlives_the_wait_that_was_cancelled():
    """The token is claimed for the hook, not for one of its waits."""

    @workflow_of
    async def code() -> Any:
        approval = hook("approval", token="t-1")
        try:
            async with asyncio.timeout(1):
                await approval
        except TimeoutError:
            return [await approval.conflict(), await approval]

    play = Play(code).elapse("timeout#1")
    assert play.waits_for == ["hook:approval#1"]
    assert play.dropped() == []
    assert play.claimed("hook:approval#1").signal("approval", "yes").result == [None, "yes"]


def test_closing_a_hook_gives_up_a_claim_that_is_still_under_way():
    """Otherwise the token would be taken by a hook that is closed."""

    @workflow_of
    async def code() -> Any:
        async with hook("approval", token="t-1") as approval:
            try:
                async with asyncio.timeout(1):
                    await approval
            except TimeoutError:
                pass
        return await charge(1)

    play = Play(code).elapse("timeout#1")
    assert play.waits_for == ["charge#1"]
    assert play.dropped() == ["hook:approval#1"]
    assert play.machine.notes.take_hooks() == ((), (HookOpen("approval", "t-1"),))
    assert_same_from_every_prefix(play.perform("charge#1", 1))


def test_another_token_than_the_journal_has_is_a_contradiction():
    @workflow_of
    async def other() -> Any:
        return await hook("approval", token="t-2")

    with pytest.raises(ReplayDiverged, match=r"t-1.*t-2"):
        Play(with_token).claimed("hook:approval#1").again(code=other)


def test_signals_contradict_nothing_when_the_code_no_longer_listens():
    """A signal is recorded when it comes, whether or not anybody waits for it."""

    @workflow_of
    async def before() -> Any:
        return [await hook("orders"), await charge(1)]

    @workflow_of
    async def after() -> Any:
        return await charge(1)

    assert Play(before).signal("orders", "a").again(code=after).waits_for == ["charge#1"]
