"""`undo=`: what a cancelled run has done is taken back, the last thing first, durably (C1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    NotAllowedNow,
    Pack,
    Permanent,
    Receipt,
    Retry,
    Run,
    UsageError,
    attempt,
    effect_key,
    hook,
    shield,
    sleep,
)
from holdfast.events import EffectBegan, EffectWillRetry
from holdfast.kernel.journal import Dropped, Performed, Stopped
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, heard
from tests.integration.ledgers import (
    MOMENTS_MIN,
    ONCE,
    Ledger,
    Moments,
    Shop,
    ThreadLedger,
    lefts,
    time_is_up,
    until_recorded,
)


async def test_what_was_done_is_undone_in_reverse_order(home: Home) -> None:
    """C1"""
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        for name in "abc":
            await shop.take(name)
        await hook("never")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_done("step:c")
        receipt = await run.cancel("enough")
        assert (receipt.outcome, receipt.reason, receipt.stopped) == ("compensated", "enough", False)
        assert lefts(receipt) == {"step:a": "undone", "step:b": "undone", "step:c": "undone"}
        assert [left.step for left in receipt.effects] == ["take#1", "take#2", "take#3"]
        assert {left.name for left in receipt.effects} == {"shop.take"}
        assert (await run.refresh()).status == "cancelled"
        assert await run.receipt() == receipt
        assert [entry.step for entry in await run.journal() if isinstance(entry, Performed)][3:] == [
            "undo:take#3",
            "undo:take#2",
            "undo:take#1",
        ]
    assert shop.ledger.done == [
        "step:a",
        "step:b",
        "step:c",
        "undo:step:c",
        "undo:step:b",
        "undo:step:a",
    ]


async def test_effects_of_a_gather_are_undone_in_the_reverse_order_of_their_records(home: Home) -> None:
    shop = Shop()
    names = ["a", "b", "c", "d"]
    shop.ledger.hold("step:d")

    @shop.pack.workflow
    async def order() -> None:
        await asyncio.gather(*(shop.take(name) for name in names))

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("step:d")
        recorded = await eventually(lambda: _performed(run, 3))
        receipt = await run.cancel()
        # The one in flight was interrupted: it is undone too, since its undo needs no result.
        assert receipt.outcome == "compensated"
        assert set(lefts(receipt)) == {f"step:{name}" for name in names}
    undone = [key.removeprefix("undo:") for key in shop.ledger.done if key.startswith("undo:")]
    assert undone[0] == "step:d"
    assert undone[1:] == list(reversed(recorded))


async def _performed(run: Run[Any], count: int) -> list[str] | None:
    keys = [entry.intent.key for entry in await run.journal() if isinstance(entry, Performed)]
    return keys if len(keys) == count else None


async def test_an_undo_gets_the_arguments_and_the_result_of_what_it_undoes(home: Home) -> None:
    pack, seen = Pack("shop"), list[tuple[str, int, dict[str, str]]]()

    @pack.effect
    async def refund(order: str, amount: int, result: dict[str, str]) -> None:
        seen.append((order, amount, result))

    @pack.effect(undo=refund)
    async def charge(order: str, amount: int = 7, note: str = "") -> dict[str, str]:
        return {"payment": f"p-{order}-{note}"}

    @pack.workflow
    async def checkout() -> None:
        await charge("o-1", note="x")
        await charge("o-2", 9)
        await hook("never")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(checkout())).run
        await heard(hf).until(EffectBegan, step="charge#2")
        await eventually(lambda: _performed(run, 2))
        receipt = await run.cancel()
        assert receipt.outcome == "compensated"
        assert list(receipt.effects) == [f"{run.id}/charge#1", f"{run.id}/charge#2"]
    assert seen == [("o-2", 9, {"payment": "p-o-2-"}), ("o-1", 7, {"payment": "p-o-1-x"})]


async def test_the_key_of_an_undo_is_its_own_template_or_follows_from_the_key_of_the_effect(home: Home) -> None:
    pack, keys = Pack("shop"), list[str]()

    @pack.effect(key="refund:{order}")
    async def refund(order: str) -> None:
        keys.append(effect_key())

    @pack.effect
    async def release(order: str) -> None:
        keys.append(effect_key())

    @pack.effect(key="charge:{order}", undo=refund)
    async def charge(order: str) -> None: ...

    @pack.effect(key="reserve:{order}", undo=release)
    async def reserve(order: str) -> None: ...

    @pack.effect(undo=release)
    async def nameless(order: str) -> None: ...

    @pack.workflow
    async def checkout() -> None:
        await charge("o")
        await reserve("o")
        await nameless("o")
        await hook("never")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(checkout())).run
        await eventually(lambda: _performed(run, 3))
        assert (await run.cancel()).outcome == "compensated"
    assert keys == [f"undo:{run.id}/nameless#1", "undo:reserve:o", "refund:o"]


async def test_an_undo_that_fails_for_good_is_a_problem_in_the_receipt_and_does_not_stop_the_others(home: Home) -> None:
    pack, ledger = Pack("shop"), Ledger()

    @pack.effect(retry=ONCE)
    async def put_back(name: str) -> None:
        if name == "b":
            raise Permanent("the shelf is full")
        await ledger.act(name)

    @pack.effect(key="{name}", undo=put_back)
    async def take(name: str) -> None: ...

    @pack.workflow
    async def order() -> None:
        for name in "abc":
            await take(name)
        await hook("never")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _performed(run, 3))
        receipt = await run.cancel()
        assert receipt.outcome == "partial"
        assert lefts(receipt) == {"a": "undone", "b": "performed", "c": "undone"}
        [problem] = [left.problem for left in receipt.effects if left.problem]
        assert "the shelf is full" in problem
        assert await run.receipt() == receipt
        assert [left.problem for left in (await run.receipt()).effects] == ["", problem, ""]
        with pytest.raises(NotAllowedNow):
            await run.resume()
    assert ledger.done == ["c", "a"]


async def test_an_undo_that_cannot_even_be_called_does_not_stop_the_others(home: Home) -> None:
    pack, ledger = Pack("shop"), Ledger()

    @pack.effect(key="{note}", retry=ONCE)
    async def put_back(name: str, note: str) -> None:
        await ledger.act(name)

    @pack.effect(key="{name}", undo=put_back)
    async def take(name: str, note: str) -> None: ...

    @pack.workflow
    async def order() -> None:
        await take("a", "A")
        await take("b", "")  # an empty text is no key: its undo has none
        await take("c", "C")
        await hook("never")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _performed(run, 3))
        receipt = await run.cancel(deadline="5s")
        assert lefts(receipt) == {"a": "undone", "b": "performed", "c": "undone"}
        assert receipt.effects[1].problem
        assert (receipt.outcome, receipt.stopped) == ("partial", False)
    assert ledger.done == ["c", "a"]


async def test_an_undo_is_retried_by_its_own_policy(home: Home) -> None:
    pack, attempts = Pack("shop"), list[int]()

    @pack.effect(retry=Retry(attempts=5, base=0))
    async def put_back(name: str) -> None:
        attempts.append(attempt())
        if attempt() < 4:
            raise OSError("not now")

    @pack.effect(undo=put_back)
    async def take(name: str) -> None: ...

    @pack.workflow
    async def order() -> None:
        await take("a")
        await hook("never")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _performed(run, 1))
        assert (await run.cancel()).outcome == "compensated"
    assert attempts == [1, 2, 3, 4]


async def test_an_interrupted_effect_is_undone_if_that_needs_no_result(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:b")

    @shop.pack.workflow
    async def order() -> None:
        await shop.take("a")
        await shop.take("b")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("step:b")
        receipt = await run.cancel()
        assert receipt.outcome == "compensated"
        assert lefts(receipt) == {"step:a": "undone", "step:b": "undone"}
    assert shop.ledger.done == ["step:a", "undo:step:b", "undo:step:a"]


async def test_an_interrupted_effect_whose_undo_needs_the_result_stays_unknown(home: Home) -> None:
    pack, ledger = Pack("shop"), Ledger()
    ledger.hold("charge:2")

    @pack.effect
    async def refund(result: str) -> None:
        await ledger.act(f"refund {result}")

    @pack.effect(key="charge:{n}", undo=refund)
    async def charge(n: int) -> str:
        return await ledger.act()

    @pack.workflow
    async def order() -> None:
        await charge(1)
        await charge(2)

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await ledger.until_begun("charge:2")
        receipt = await run.cancel()
        assert receipt.outcome == "unknown"
        assert lefts(receipt) == {"charge:1": "undone", "charge:2": "unknown"}
    assert ledger.done == ["charge:1", "refund charge:1"]


async def test_the_late_result_of_a_sync_effect_is_what_its_undo_gets(home: Home) -> None:
    pack, thread, refunded = Pack("shop"), ThreadLedger(), list[str]()

    @pack.effect
    async def refund(result: str) -> None:
        refunded.append(result)

    @pack.effect(key="charge", undo=refund)
    def charge() -> str:
        return "paid " + thread.act()

    @pack.workflow
    async def order() -> None:
        await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(thread.begun.is_set)
        cancelling = asyncio.ensure_future(run.cancel())
        await eventually(lambda: _has(run, Dropped))
        assert refunded == []
        thread.gate.set()
        receipt = await cancelling
        assert (receipt.outcome, lefts(receipt)) == ("compensated", {"charge": "undone"})
    assert refunded == ["paid charge"]


async def _has(run: Run[Any], kind: type[object], count: int = 1) -> bool:
    return sum(isinstance(entry, kind) for entry in await run.journal()) >= count


async def test_an_effect_that_was_dropped_before_is_undone_with_the_rest(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:slow")

    @shop.pack.workflow
    async def order() -> None:
        limit = asyncio.timeout(3_600)
        told = asyncio.ensure_future(time_is_up(limit))
        try:
            async with limit:
                await shop.take("slow")
        except TimeoutError:
            await told
            await shop.take("other")
        await hook("never")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("step:slow")
        await run.signal("time is up")
        await until_recorded(run, "take#2")
        receipt = await run.cancel()
        assert receipt.outcome == "compensated"
        assert lefts(receipt) == {"step:slow": "undone", "step:other": "undone"}
    assert shop.ledger.done == ["step:other", "undo:step:other", "undo:step:slow"]


async def test_what_cleanup_does_under_a_shield_is_undone_as_well(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        try:
            await shop.take("a")
            await hook("never")
        finally:
            async with shield("10s"):
                await shop.act("notice")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_done("step:a")
        receipt = await run.cancel()
        assert receipt.outcome == "partial"
        assert lefts(receipt) == {"step:a": "undone", "step:notice": "performed"}
    # Undoing begins when the code has ended.
    assert shop.ledger.done == ["step:a", "step:notice", "undo:step:a"]


async def test_undoing_is_continued_by_another_replica_where_it_stood(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("undo:step:b")

    @shop.pack.workflow
    async def order() -> None:
        for name in "abc":
            await shop.take(name)
        await hook("never")

    async with home.holdfast(shop.pack, worker=False) as client:
        async with home.holdfast(shop.pack) as first:
            run = (await first.start(order())).run
            await shop.ledger.until_done("step:c")
            cancelling = asyncio.ensure_future((await client.get(run.id)).cancel("enough", deadline="60s"))
            await shop.ledger.until_begun("undo:step:b")
            asyncio.get_running_loop().call_later(0.05, shop.ledger.let_go)
        # It has stopped in order; what was under way has ended, the rest has not begun.
        assert "undo:step:a" not in shop.ledger.begun
        assert not cancelling.done()
        async with home.holdfast(shop.pack):
            receipt = await asyncio.wait_for(cancelling, 30)
        assert (receipt.outcome, receipt.stopped) == ("compensated", False)
    assert shop.ledger.done == ["step:a", "step:b", "step:c", "undo:step:c", "undo:step:b", "undo:step:a"]


class Journey:
    """Effects that can be undone: in a row, beside each other and in a thread; then a wait."""

    def __init__(self) -> None:
        self.pack = Pack("journey")
        self.ledger = Ledger()
        self.moments = Moments()

        @self.pack.effect(retry=ONCE)
        async def cancel_booking(name: str) -> None:
            await self.moments()
            await self.ledger.act(f"undo {name}")

        @self.pack.effect(key="{name}", retry=ONCE, undo=cancel_booking)
        async def book(name: str) -> str:
            await self.moments()
            return await self.ledger.act(name)

        @self.pack.effect(key="{name}", retry=ONCE, undo=cancel_booking)
        def book_in_thread(name: str) -> str:
            self.ledger.done.append(name)
            return name

        @self.pack.workflow
        async def travel() -> str:
            await book("flight")
            await asyncio.gather(book("hotel"), book_in_thread("car"), sleep("5ms"))
            await book("dinner")
            await hook("told")
            return "there"

        self.travel = travel

    def check(self, receipt: Receipt, at: int) -> None:
        """What the world has seen is what the receipt says."""
        done = [key for key in self.ledger.done if not key.startswith("undo ")]
        undone = [key.removeprefix("undo ") for key in self.ledger.done if key.startswith("undo ")]
        assert receipt.outcome == ("compensated" if receipt.effects else "no_effects"), (at, receipt)
        assert set(done) <= set(receipt.effects), (at, receipt, self.ledger.done)
        assert undone == list(reversed(receipt.effects)), (at, receipt, self.ledger.done)
        assert self.ledger.most() <= 1, (at, self.ledger.done)


async def test_wherever_the_cancellation_comes_all_that_was_done_is_undone_once(home: Home) -> None:
    """C1, C2"""
    moment, came = 0, True
    while came:
        moment += 1
        journey = Journey()
        async with home.holdfast(journey.pack, through=journey.moments.through) as hf:
            started: asyncio.Future[Run[str]] = asyncio.get_running_loop().create_future()

            async def cancel(started: asyncio.Future[Run[str]] = started) -> Receipt:
                return await (await started).cancel()

            journey.moments.at(moment, cancel)
            started.set_result((await hf.start(journey.travel())).run)
            # The moments after the last one never come: by then the run waits to be told.
            came = await journey.moments.has_come()
            cancelling = journey.moments.happened.result() if came else cancel()
            receipt = await asyncio.wait_for(cancelling, PATIENCE_SECONDS)
            assert not receipt.stopped, (moment, receipt)
            journey.check(receipt, moment)
            assert await started.result().receipt() == receipt
    assert moment > MOMENTS_MIN


async def test_undoing_survives_a_change_of_hands_at_every_moment(home: Home) -> None:
    """C2. The replica that undoes stops at every moment; another one goes on."""
    async with home.holdfast(worker=False) as client:
        for moment in range(1, 14):
            journey = Journey()
            async with home.holdfast(journey.pack, through=journey.moments.through) as first:
                run = (await first.start(journey.travel())).run
                await until_recorded(run, "book#2")
                stopped = asyncio.Event()

                async def stop(stopped: asyncio.Event = stopped) -> None:
                    stopped.set()

                journey.moments.at(journey.moments.count + moment, stop)
                cancelling = asyncio.ensure_future((await client.get(run.id)).cancel())
                await asyncio.wait(
                    [cancelling, asyncio.ensure_future(stopped.wait())],
                    return_when=asyncio.FIRST_COMPLETED,
                    timeout=PATIENCE_SECONDS,
                )
                stopped.set()
            async with home.holdfast(journey.pack):
                receipt = await asyncio.wait_for(cancelling, PATIENCE_SECONDS)
            assert not receipt.stopped, moment
            journey.check(receipt, moment)


async def test_a_deadline_in_the_middle_of_undoing_is_said_in_the_receipt(home: Home) -> None:
    """C7"""
    shop = Shop()
    shop.ledger.hold("undo:step:b")

    @shop.pack.workflow
    async def order() -> None:
        for name in "abc":
            await shop.take(name)
        await hook("never")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_done("step:c")
        receipt = await run.cancel(deadline="300ms")
        assert receipt.stopped
        # The undo of b was cut off: nobody knows whether it has happened. That of a was never begun.
        assert lefts(receipt) == {"step:a": "performed", "step:b": "unknown", "step:c": "undone"}
        assert receipt.outcome == "unknown"
        assert await run.receipt() == receipt
        with pytest.raises(NotAllowedNow):
            await run.resume()
        assert await _has(run, Stopped, 2)
    assert "undo:step:a" not in shop.ledger.begun


async def test_a_deadline_in_the_first_undo_leaves_nothing_to_resume(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("undo:step:a")

    @shop.pack.workflow
    async def order() -> None:
        await shop.take("a")
        await hook("never")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_done("step:a")
        receipt = await run.cancel(deadline="200ms")
        assert (receipt.outcome, receipt.stopped) == ("unknown", True)
        with pytest.raises(NotAllowedNow):  # the undo may have happened
            await run.resume()


async def test_a_deadline_while_an_undo_waits_for_its_retry_is_said_in_the_receipt(home: Home) -> None:
    pack = Pack("shop")

    @pack.effect(retry=Retry(attempts=100, base="60s"))
    async def put_back(name: str) -> None:
        raise OSError("not now")

    @pack.effect(key="{name}", undo=put_back)
    async def take(name: str) -> None: ...

    @pack.workflow
    async def order() -> None:
        await take("a")
        await hook("never")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _performed(run, 1))
        cancelling = asyncio.ensure_future(run.cancel(deadline="400ms"))
        await heard(hf).until(EffectWillRetry, step="undo:take#1")
        receipt = await cancelling
        assert (receipt.stopped, receipt.outcome, lefts(receipt)) == (True, "partial", {"a": "performed"})
        with pytest.raises(NotAllowedNow):  # undoing has begun
            await run.resume()


async def test_a_run_that_fails_or_completes_by_itself_is_not_undone(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order(fail: bool) -> None:
        await shop.take(f"{fail}")
        if fail:
            raise ValueError("no")

    async with home.holdfast(shop.pack) as hf:
        for fail in (False, True):
            run = (await hf.start(order(fail))).run
            async for _ in run.events():
                pass  # they end with the run
            receipt = await run.cancel()
            outcome = "partial" if fail else "completed_first"
            assert (receipt.outcome, lefts(receipt)) == (outcome, {f"step:{fail}": "performed"})
    assert shop.ledger.done == ["step:False", "step:True"]


async def test_a_timer_in_the_code_does_not_hold_up_the_undoing(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        await shop.take("a")
        await sleep("1h")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _waits(run))  # let go from memory: it is replayed to be cancelled
        assert (await run.cancel()).outcome == "compensated"
    assert shop.ledger.done == ["step:a", "undo:step:a"]


async def _waits(run: Run[Any]) -> bool:
    return (await run.refresh()).status == "waiting"


def test_an_undo_that_does_not_fit_is_refused_at_import() -> None:
    pack = Pack("shop")

    @pack.effect
    async def refund(payment: str) -> None: ...

    with pytest.raises(UsageError, match="payment"):

        @pack.effect(undo=refund)
        async def charge(order: str) -> str:
            return order

    with pytest.raises(UsageError, match="not an effect"):
        pack.effect(undo=print)  # pyright: ignore[reportArgumentType]
