"""After a cancellation: children are stopped, then effects are undone in reverse order, whatever becomes of each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import Pack, hook, shield, spawn
from holdfast.engine.code.commands import CodeCancelled, CodeRaised
from holdfast.errors import ReplayDiverged, TimedOut
from holdfast.kernel import cancels
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.journal import Cancelled, Forked, Late, Performed
from holdfast.kernel.runs import Status
from holdfast.pack import Workflow
from tests.builders import a_run
from tests.unit.engine.driving import Play, assert_same_from_every_prefix
from tests.unit.engine.shop import pay

shop = Pack("store")


@shop.effect
async def refund(amount: int, result: str = "") -> None: ...


@shop.effect(undo=refund)
async def buy(amount: int, note: str = "") -> str: ...


@shop.effect(key="cancel:{item}")
async def call_back(item: str) -> None: ...


@shop.effect(key="send:{item}", undo=call_back)
async def send(item: str) -> str: ...


@shop.effect
async def look(item: str) -> str: ...


def code_of(fn: Any) -> Workflow[..., Any]:
    return Pack("shop").workflow(fn)


def receipt_of(play: Play) -> Receipt:
    """What the journal of a cancelled play says."""
    journal = (play.first, *play.journal, Cancelled(play.now_ms))
    run = a_run(
        status=Status.CANCELLED, length=len(journal), started_at_ms=play.first.at_ms, finished_at_ms=play.now_ms
    )
    return cancels.receipt(run, journal)


@code_of
async def selling() -> None:
    await buy(1)
    await send("lamp")
    await look("lamp")  # cannot be undone
    await buy(2, note="gift")
    await look("bulb")


def sold() -> Play:
    """`selling`, cancelled while it looks at the last thing."""
    play = (
        Play(selling).perform("buy#1", "p-1").perform("send#1", "s-1").perform("look#1", "ok").perform("buy#2", "p-2")
    )
    play.cancel("no longer wanted")
    assert play.dropped() == ["look#2"]
    return play


def test_effects_are_undone_in_reverse_order_one_after_the_other():
    """C1."""
    play = sold()
    assert play.waits_for == []
    assert play.machine.ended == CodeCancelled()
    play.stopped()
    assert play.machine.is_unwinding
    for step in ("undo:buy#2", "undo:send#1", "undo:buy#1"):
        assert play.waits_for == [step]
        assert not play.is_cancelled
        play.perform(step)
    assert play.is_cancelled
    assert_same_from_every_prefix(play)


def test_an_undo_gets_the_arguments_that_it_names_and_the_result():
    play = sold().stopped().perform("undo:buy#2").perform("undo:send#1").perform("undo:buy#1")
    undone = {command.step: command for command in play.begun if command.step.startswith("undo:")}
    arguments = {step: command.call and command.call.arguments for step, command in undone.items()}
    assert arguments == {
        "undo:buy#2": {"amount": 2, "result": "p-2"},
        "undo:send#1": {"item": "lamp"},
        "undo:buy#1": {"amount": 1, "result": "p-1"},
    }


def test_an_undo_is_an_effect_with_a_key_of_its_own():
    """The world recognises it however often it is called; where it declares none, it is that of what it undoes."""
    play = sold().stopped().perform("undo:buy#2").perform("undo:send#1")
    intents = {command.step: command.intent for command in play.begun}
    assert [(intents[step].kind, intents[step].name, intents[step].key) for step in list(intents)[-3:]] == [
        ("undo", "store.refund", "undo:run-1/buy#2"),
        ("undo", "store.call_back", "cancel:lamp"),
        ("undo", "store.refund", "undo:run-1/buy#1"),
    ]
    assert all(play.machine.open[step].touches_the_world for step in play.waits_for)


def test_an_undo_that_fails_does_not_stop_the_others():
    play = sold().stopped()
    play.attempt("undo:buy#2", OSError("net"), delay_ms=10)
    assert play.waits_for == ["undo:buy#2"]
    play.give_up("undo:buy#2", OSError("net")).perform("undo:send#1").give_up("undo:buy#1", ValueError("too late"))
    assert play.is_cancelled
    assert_same_from_every_prefix(play)
    left = {each.step: (each.state, each.problem) for each in receipt_of(play).effects}
    assert left["buy#2"] == ("performed", "OSError: net")
    assert left["send#1"] == ("undone", "")
    assert left["buy#1"] == ("performed", "ValueError: too late")


def test_an_undo_that_cannot_even_be_called_does_not_stop_the_others():
    pack = Pack("store")

    @pack.effect(key="take-back:{result}")
    async def take_back(result: Any) -> None: ...

    @pack.effect(undo=take_back)
    async def give(amount: int) -> Any: ...

    @pack.workflow
    async def code() -> None:
        for amount in range(4):
            await give(amount)

    play = Play(code).perform("give#1", "p-1").perform("give#2", {"no": "key"}).perform("give#3", "p-3").cancel()
    play.dropped()
    play.stopped().perform("undo:give#3")
    assert play.waits_for == ["undo:give#1"]
    assert play.perform("undo:give#1").is_cancelled
    [note] = [note for note in play.notes if isinstance(note, Late)]
    assert note.step == "undo:give#2"
    assert note.error is not None
    assert "take-back:{result}" in note.error.message
    left = {each.step: (each.state, bool(each.problem)) for each in receipt_of(play).effects}
    assert left["give#2"] == ("performed", True)
    assert left["give#1"] == left["give#3"] == ("undone", False)
    assert_same_from_every_prefix(play)


def test_a_stored_result_that_no_longer_fits_does_not_stop_the_others():
    def version(returns: Any) -> Workflow[..., Any]:
        pack = Pack("store")

        async def take_back(result: Any) -> None: ...

        async def give(amount: int) -> Any: ...

        give.__annotations__["return"] = returns
        undo = pack.effect(take_back)
        effect = pack.effect(undo=undo)(give)

        @pack.workflow
        async def code() -> None:
            for amount in range(3):
                try:
                    await effect(amount)
                except holdfast.UsageError:
                    await asyncio.sleep(0)

        return code

    play = Play(version("str")).perform("give#1", "p-1").perform("give#2", "p-2")
    life = play.again(code=version("int")).cancel()
    life.dropped()
    assert life.stopped().is_cancelled
    assert [note.step for note in life.notes if isinstance(note, Late)] == ["undo:give#2", "undo:give#1"]


def test_an_effect_that_failed_is_not_undone():
    @code_of
    async def code() -> None:
        try:
            await buy(1)
        except ValueError:
            await buy(2)
        await look("x")

    play = Play(code).give_up("buy#1", ValueError("no")).perform("buy#2", "p-2").cancel()
    play.dropped()
    assert play.stopped().waits_for == ["undo:buy#2"]


def test_an_effect_in_flight_is_undone_if_that_needs_no_result():
    @code_of
    async def code() -> None:
        await asyncio.gather(buy(1), send("lamp"))

    play = Play(code).cancel()
    assert sorted(play.dropped()) == ["0/buy#1", "1/send#1"]
    play.stopped()
    assert play.waits_for == ["undo:1/send#1"]  # whether it was bought, nobody knows, nor what to refund
    assert play.perform("undo:1/send#1").is_cancelled
    assert {each.step: each.state for each in receipt_of(play).effects} == {"0/buy#1": "unknown", "1/send#1": "undone"}
    assert_same_from_every_prefix(play)


def test_an_effect_that_returns_late_is_undone_with_its_result():
    @code_of
    async def code() -> None:
        await buy(1)

    play = Play(code).cancel()
    assert play.dropped() == ["buy#1"]
    play.late("buy#1", "p-1").stopped()
    command = play.machine.open["undo:buy#1"]
    assert command.call is not None
    assert command.call.arguments == {"amount": 1, "result": "p-1"}
    assert play.perform("undo:buy#1").is_cancelled
    assert_same_from_every_prefix(play)


def test_an_effect_that_fails_late_did_not_happen():
    @code_of
    async def code() -> None:
        await asyncio.gather(send("lamp"), buy(1))

    play = Play(code).cancel()
    play.dropped()
    play.late("0/send#1", error=OSError("net")).late("1/buy#1", "p-1").stopped()
    assert play.waits_for == ["undo:1/buy#1"]
    assert play.perform("undo:1/buy#1").is_cancelled
    assert_same_from_every_prefix(play)


def test_an_attempt_that_timed_out_may_have_happened_though_a_later_one_failed_late():
    @code_of
    async def code() -> None:
        await send("lamp")

    play = Play(code).attempt("send#1", TimedOut("slow"), delay_ms=5).cancel()
    play.dropped()
    play.late("send#1", error=OSError("net")).stopped()
    assert play.waits_for == ["undo:send#1"]
    assert play.perform("undo:send#1").is_cancelled
    assert_same_from_every_prefix(play)


def test_effects_are_undone_in_the_order_of_their_records_not_of_their_asking():
    @code_of
    async def code() -> None:
        await asyncio.gather(buy(1), buy(2), buy(3))
        await look("x")

    play = Play(code).perform("1/buy#1", "b").perform("2/buy#1", "c").perform("0/buy#1", "a").cancel()
    play.dropped()
    play.stopped()
    undone = []
    while not play.is_cancelled:
        [step] = play.waits_for
        undone.append(step)
        play.perform(step)
    assert undone == ["undo:0/buy#1", "undo:2/buy#1", "undo:1/buy#1"]


def test_what_cleanup_did_in_a_shield_is_undone_too():
    @code_of
    async def code() -> None:
        try:
            await buy(1)
            await look("x")
        except asyncio.CancelledError:
            async with shield("10s"):
                await send("apology")
            raise

    play = Play(code).perform("buy#1", "p-1").cancel()
    play.dropped()
    play.perform("send#1", "").stopped().perform("undo:send#1").perform("undo:buy#1")
    assert play.is_cancelled
    assert_same_from_every_prefix(play)


def test_code_that_ends_in_an_answer_of_its_own_keeps_what_it_did():
    @code_of
    async def code() -> str:
        await buy(1)
        try:
            await look("x")
        except asyncio.CancelledError:
            return "kept"
        return "done"

    play = Play(code).perform("buy#1", "p-1").cancel()
    assert play.result == "kept"
    assert play.waits_for == []


def test_code_that_ends_in_an_error_is_unwound_before_it_fails():
    @code_of
    async def code() -> None:
        await buy(1)
        try:
            await look("x")
        finally:
            raise ValueError("broken cleanup")

    play = Play(code).perform("buy#1", "p-1").cancel()
    play.dropped()
    play.stopped().perform("undo:buy#1")
    with pytest.raises(ValueError, match="broken cleanup"):
        _ = play.result


def test_code_that_swallows_everything_is_unwound_all_the_same():
    @code_of
    async def code() -> None:
        await buy(1)
        while True:
            try:
                await look("x")
            except asyncio.CancelledError:
                continue

    play = Play(code).perform("buy#1", "p-1").cancel()
    assert play.dropped() == ["look#1"]
    play.stopped().perform("undo:buy#1")
    assert play.is_cancelled


def test_a_run_without_a_cancellation_undoes_nothing():
    @code_of
    async def code() -> None:
        await buy(1)
        raise ValueError("no stock")

    play = Play(code).perform("buy#1", "p-1")
    with pytest.raises(ValueError, match="no stock"):
        _ = play.result
    assert play.steps == ["buy#1"]


def test_signals_that_come_while_it_is_unwound_change_nothing():
    @code_of
    async def code() -> None:
        await buy(1)
        task = asyncio.create_task(_listen())
        await look("x")
        await task

    async def _listen() -> None:
        async for item in hook("items"):
            await send(item)

    play = Play(code).perform("buy#1", "p-1").cancel()
    play.dropped()
    play.stopped().signal("items", "lamp")
    assert play.waits_for == ["undo:buy#1"]
    assert play.perform("undo:buy#1").is_cancelled
    assert_same_from_every_prefix(play)


@pytest.mark.parametrize(("beside", "undone"), [(True, ["undo:buy#2"]), (False, ["undo:buy#2", "undo:buy#1"])])
def test_a_fork_undoes_what_it_did_itself_and_what_it_took_over(beside, undone):
    """C10: beside its source it leaves the source's effects alone."""

    @code_of
    async def code() -> None:
        await buy(1)
        await buy(2)
        await look("x")

    source = Play(code).perform("buy#1", "p-1")
    forked = Forked(source.now_ms, "run-1", "run-1", "buy#2", beside=beside)
    fork = Play.of(code, [source.first, *source.journal, forked], run_id="run-2").perform("buy#2", "p-2").cancel()
    fork.dropped()
    fork.stopped()
    steps = []
    while not fork.is_cancelled:
        [step] = fork.waits_for
        steps.append(step)
        fork.perform(step)
    assert steps == undone
    assert_same_from_every_prefix(fork, since=2)


# -- children


@code_of
async def with_children() -> None:
    await buy(1)
    own = await spawn(pay(1))
    await spawn(pay(2), detached=True)
    await spawn(pay(3))  # the key is taken: it is somebody else's
    joined = await spawn(pay(4))
    await joined.result()
    await asyncio.gather(pay(5), own.result())


def test_children_are_stopped_before_anything_is_undone():
    """C7: those that the run created, unless they are detached or have ended."""
    play = Play(with_children).perform("buy#1", "p-1")
    play.spawned("pay#1", "child-1").spawned("pay#2", "child-2").spawned("pay#3", "child-3", created=False)
    play.spawned("pay#4", "child-4").joined("pay.result#1", 4).spawned("0/pay#1", "child-5")
    play.cancel()
    assert sorted(play.dropped()) == ["0/pay#1", "1/pay.result#1"]
    play.stopped()
    stopped = []
    while (step := play.waits_for[0]).startswith("stop:"):
        command = play.machine.open[step]
        assert (command.intent.kind, command.awaits_a_run) == ("stop", True)
        stopped.append((step, command.child_id))
        play.child_stopped(step)
    assert stopped == [("stop:pay#1", "child-1"), ("stop:0/pay#1", "child-5")]
    assert play.waits_for == ["undo:buy#1"]
    assert play.perform("undo:buy#1").is_cancelled
    assert_same_from_every_prefix(play)


def test_a_child_that_is_being_stopped_may_end_in_any_way():
    @code_of
    async def code() -> None:
        await asyncio.gather(pay(1), pay(2), pay(3))

    play = Play(code)
    for n in range(3):
        play.spawned(f"{n}/pay#1", f"child-{n}")
    play.cancel()
    play.dropped()
    play.stopped().joined("stop:0/pay#1", 7).joined("stop:1/pay#1", error=ValueError("failed"))
    play.give_up("stop:2/pay#1", holdfast.UnknownRun("it is gone"))
    assert play.is_cancelled
    assert_same_from_every_prefix(play)


def test_a_child_that_was_admitted_late_is_stopped_too():
    """Its admission was under way when the run was cancelled."""

    @code_of
    async def code() -> None:
        await spawn(pay(1))

    play = Play(code).cancel()
    assert play.dropped() == ["pay#1"]
    play.late("pay#1", run_id="child-1").stopped()
    assert play.machine.open["stop:pay#1"].child_id == "child-1"
    assert play.child_stopped("stop:pay#1").is_cancelled
    assert_same_from_every_prefix(play)


# -- from every prefix


def test_a_cancellation_at_any_place_undoes_just_what_was_done_before():
    """C2."""
    steps = ["buy#1", "send#1", "look#1", "buy#2", "look#2"]
    for performed in range(len(steps)):
        play = Play(selling)
        for step in steps[:performed]:
            play.perform(step, "p")
        play.cancel()
        play.dropped()
        play.stopped()
        while not play.is_cancelled:
            [step] = play.waits_for
            play.perform(step)
        undone = [entry.step for entry in play.journal if isinstance(entry, Performed) and entry.intent.kind == "undo"]
        done = [step for step in steps[:performed] if not step.startswith("look")]
        if steps[performed] == "send#1":
            done.append("send#1")  # it was in flight, and needs no result to be undone
        assert undone == [f"undo:{step}" for step in reversed(done)]
        assert_same_from_every_prefix(play)


def test_a_cancellation_that_is_taken_back_is_as_if_it_had_not_been():
    """C2: a resumed run ends as one that was never cancelled."""

    @code_of
    async def code() -> list[Any]:
        first = await look("a")
        await holdfast.sleep(5)
        return [first, await look("b"), await hook("last")]

    play = Play(code).perform("look#1", "A").elapse("sleep#1").cancel()
    play.dropped()
    play.stopped()
    life = play.resumed()
    assert life.waits_for == ["look#2"]
    assert not life.machine.cancelling
    assert life.perform("look#2", "B").signal("last", "C").result == ["A", "B", "C"]


# -- undone on failure


@code_of
async def failing_sale() -> None:
    waiting = asyncio.create_task(_more())
    await buy(5)
    await send("book")
    del waiting
    raise ValueError("no stock")


async def _more() -> None:
    await hook("more")
    await send("more")


def failed_sale() -> Play:
    play = Play(failing_sale).perform("buy#1", "receipt").perform("send#1", "sent")
    assert isinstance(play.machine.outcome, CodeRaised)
    return play.failed()


def test_what_failed_code_has_done_is_undone_and_then_it_has_failed() -> None:
    play = failed_sale()
    assert play.machine.outcome is None
    assert play.waits_for == ["undo:send#1"]
    play.signal("more").perform("undo:send#1").perform("undo:buy#1")  # no task of the code goes on
    with pytest.raises(ValueError, match="no stock"):
        _ = play.result
    assert play.steps == ["buy#1", "send#1", "undo:send#1", "undo:buy#1"]
    for life in play.prefixes(since=2):
        life.go_on_as(play)
        assert (life.steps, life.waits_for, life.journal) == (play.steps, [], play.journal)
        assert isinstance(life.machine.outcome, CodeRaised)


def test_code_that_no_longer_fails_contradicts_a_journal_in_which_it_was_undone() -> None:
    @code_of
    async def failing_sale() -> None:
        waiting = asyncio.create_task(_more())
        await buy(5)
        await send("book")
        await hook("stock")
        del waiting

    with pytest.raises(ReplayDiverged, match="stopped after a failure as entry 3; the code has not ended there"):
        failed_sale().again(code=failing_sale)
