"""A run does not end over an effect in flight: it is waited for and recorded, or recorded as begun.

So a retry does not perform again what had been performed when the run failed, without any process having died.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, NotPerformed, Pack, Retry, Run, RunCancelled, RunFailed, effect_key, hook, shield
from holdfast.errors import UnknownOutcome
from holdfast.events import EffectBegan
from holdfast.kernel import hooks
from holdfast.kernel.journal import Dropped, Failed, GaveUp, Late, Received
from holdfast.kernel.runs import ENDED
from holdfast.ports.store import Store
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, heard
from tests.integration.wrappers import StoreWrapper

ONE = Retry(attempts=1)


class World:
    """Charges that wait in the middle until they are let go, and a step that fails at first."""

    def __init__(self) -> None:
        self.pack = Pack("world")
        self.charged: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.gate = threading.Event()
        self.opened = asyncio.Event()
        self.breaks = True
        self.charge_breaks = False

        async def slow(name: str) -> str:
            self._began()
            await self.opened.wait()
            return self._charged(name)

        def slow_in_thread(name: str) -> str:
            self._began()
            assert self.gate.wait(PATIENCE_SECONDS)
            return self._charged(name)

        self.charges: dict[str, Any] = {
            "async": self.pack.effect(slow, retry=ONE),
            "sync": self.pack.effect(slow_in_thread, retry=ONE),
            "once": self.pack.effect(_named(slow, "slow_once"), retry=ONE, safety="once", reconcile=self._reconcile),
        }

        @self.pack.effect(retry=ONE)
        async def fragile() -> str:
            await eventually(lambda: self.begun)
            if self.breaks:
                raise OSError("broken")
            return "whole"

        self.fragile = fragile

    def _began(self) -> None:
        self.begun[effect_key()] += 1

    def _charged(self, name: str) -> str:
        if self.charge_breaks:
            raise OSError("declined")
        self.charged[effect_key()] += 1
        return f"charged {name}"

    async def _reconcile(self, key: str) -> str:
        if self.charged[key]:
            return "charged, they say"
        raise NotPerformed

    def let_go(self) -> None:
        self.gate.set()
        self.opened.set()


def _named(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    async def named(name: str) -> str:
        return await fn(name)

    named.__name__ = named.__qualname__ = name
    return named


async def failed(run: Run[Any]) -> None:
    with pytest.raises(RunFailed):
        await run.result(timeout=PATIENCE_SECONDS)


async def gather(*calls: Any) -> list[Any]:
    return await asyncio.gather(*calls)


async def group(*calls: Any) -> list[Any]:
    async def one(call: Any) -> Any:
        return await call

    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(one(call)) for call in calls]
    return [task.result() for task in made]


async def left_behind(*calls: Any) -> list[Any]:
    first = asyncio.ensure_future(calls[0])
    second = await calls[1]
    return [await first, second]


@pytest.mark.parametrize("kind", ["async", "sync", "once"])
@pytest.mark.parametrize("together", [gather, left_behind])
async def test_what_is_under_way_when_a_run_fails_is_recorded_and_not_repeated(
    home: Home, kind: str, together: Callable[..., Any]
) -> None:
    world = World()
    charge = world.charges[kind]

    @world.pack.workflow
    async def order() -> list[str]:
        return await together(charge("a"), world.fragile())

    async with home.holdfast(world.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _has_failed(run))
        world.let_go()
        await failed(run)
        assert sum(world.charged.values()) == 1
        [late] = [entry for entry in await run.journal() if isinstance(entry, Late)]
        assert late.value is not None
        world.breaks = False
        await run.retry()
        assert await run.result(timeout=PATIENCE_SECONDS) == ["charged a", "whole"]
    assert list(world.begun.values()) == list(world.charged.values()) == [1]


async def _has_failed(run: Run[Any]) -> bool:
    """Whether the failure of the fragile step is recorded, and the run still waits for the other one."""
    recorded = any(isinstance(entry, GaveUp) for entry in await run.journal())
    return recorded and (await run.refresh()).status == "running"


async def test_a_thread_that_a_group_no_longer_waits_for_is_seen_through(home: Home) -> None:
    """The group cancels its other tasks; a thread cannot be cancelled."""
    world = World()

    @world.pack.workflow
    async def order() -> list[str]:
        return await group(world.charges["sync"]("a"), world.fragile())

    async with home.holdfast(world.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _has_failed(run))
        world.let_go()
        await failed(run)
        world.breaks = False
        await run.retry()
        assert await run.result(timeout=PATIENCE_SECONDS) == ["charged a", "whole"]
    assert list(world.charged.values()) == [1]


async def test_two_that_end_together_are_both_recorded_though_one_fails_the_run(home: Home) -> None:
    world = World()

    @world.pack.effect(retry=ONE)
    async def fails() -> str:
        await world.opened.wait()
        if world.breaks:
            raise OSError("broken")
        return "whole"

    @world.pack.workflow
    async def order() -> list[str]:
        return await asyncio.gather(fails(), world.charges["async"]("a"))

    async with home.holdfast(world.pack) as hf:
        run = (await hf.start(order())).run
        await heard(hf).until(EffectBegan, count=2, run_id=run.id)
        world.let_go()
        await failed(run)
        world.breaks = False
        await run.retry()
        assert await run.result(timeout=PATIENCE_SECONDS) == ["whole", "charged a"]
    assert list(world.charged.values()) == [1]


@pytest.mark.parametrize("kind", ["async", "sync", "once"])
async def test_one_that_fails_while_its_run_ends_is_tried_again_by_a_retry(home: Home, kind: str) -> None:
    world = World()
    world.charge_breaks = True

    @world.pack.workflow
    async def order() -> list[str]:
        return await asyncio.gather(world.charges[kind]("a"), world.fragile())

    async with home.holdfast(world.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _has_failed(run))
        world.let_go()
        await failed(run)
        world.breaks = world.charge_breaks = False
        await run.retry()
        assert await run.result(timeout=PATIENCE_SECONDS) == ["charged a", "whole"]
    assert list(world.charged.values()) == [1]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_cancellation_of_a_run_that_waits_for_the_last_effect_is_over_by_its_deadline(
    home: Home, kind: str
) -> None:
    world = World()

    @world.pack.workflow
    async def order() -> list[str]:
        return await asyncio.gather(world.charges[kind]("a"), world.fragile())

    async with home.holdfast(world.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _has_failed(run))
        receipt = await run.cancel(deadline="50ms")
        assert (await run.refresh()).status in {"failed", "cancelled"}  # whoever was first at the deadline
        assert [left.state for left in receipt.effects] in (["unknown"], [])
        world.let_go()


async def test_a_blocked_run_has_recorded_what_was_under_way(home: Home) -> None:
    world = World()

    async def unknown(key: str) -> str:
        raise OSError("they do not say")

    @world.pack.effect(retry=ONE, safety="once", timeout="10ms", reconcile=unknown)
    async def doubtful() -> str:
        if world.breaks:
            await asyncio.sleep(3600)
        return "whole"

    @world.pack.workflow
    async def order() -> list[str]:
        return await asyncio.gather(world.charges["async"]("a"), doubtful())

    async with home.holdfast(world.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: world.begun)
        world.let_go()
        with pytest.raises(UnknownOutcome):
            await run.result(timeout=PATIENCE_SECONDS)
        assert list(world.charged.values()) == [1]
        with pytest.raises(UnknownOutcome):
            await (await run.retry()).result(timeout=PATIENCE_SECONDS)
    assert (list(world.begun.values()), list(world.charged.values())) == ([1], [1])


async def test_what_a_run_that_returned_has_left_under_way_is_recorded_as_begun(home: Home) -> None:
    world = World()

    @world.pack.workflow
    async def hedged() -> str:
        asyncio.ensure_future(world.charges["async"]("a"))  # noqa: RUF006 - the loser of a race
        return await world.charges["sync"]("b")

    async with home.holdfast(world.pack) as hf:
        run = (await hf.start(hedged())).run
        await heard(hf).until(EffectBegan, count=2, run_id=run.id)
        world.gate.set()
        assert await run.result(timeout=PATIENCE_SECONDS) == "charged b"
        journal = await run.journal()
        assert [entry.step for entry in journal if isinstance(entry, Dropped)] == ["0/slow#1"]
        assert not any(isinstance(entry, Failed) for entry in journal)


class SignalBeforeTheEnd(StoreWrapper):
    """Has a signal arrive just before the first end of a run is committed: that end is taken back."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.sent = False

    async def called(self, name: str, verb: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        ends = (
            [change.run for change in args[0] if change.run and change.run.status in ENDED] if name == "commit" else []
        )
        if ends and not self.sent:
            self.sent = True
            message = hooks.signal("word", b"1", dedupe="d", nonce="n")
            await self.inner.commit([hooks.to_run(ends[0].id, message)])
        return await verb(*args)


@pytest.mark.parametrize("kind", ["async", "sync", "once"])
async def test_what_is_under_way_when_an_end_is_taken_back_is_not_begun_beside_itself(home: Home, kind: str) -> None:
    world = World()

    @world.pack.effect
    async def quick() -> str:
        await eventually(lambda: world.begun)
        return "quick"

    @world.pack.workflow
    async def order() -> str:
        slow = asyncio.ensure_future(world.charges[kind]("a"))
        word = asyncio.ensure_future(_word())
        fast = asyncio.ensure_future(quick())
        done, _ = await asyncio.wait({fast, word}, return_when=asyncio.FIRST_COMPLETED)
        return await slow if word in done else "without the word"

    async with home.holdfast(world.pack, through=SignalBeforeTheEnd) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _is_signalled(hf, run))
        world.let_go()
        assert await run.result(timeout=PATIENCE_SECONDS) == "charged a"
    assert list(world.begun.values()) == list(world.charged.values()) == [1]


async def _word() -> Any:
    return await hook("word")


async def _is_signalled(hf: Holdfast, run: Run[Any]) -> bool:
    [history] = await hf.runtime.store.histories([run.id])
    return bool(history.messages) or any(isinstance(entry, Received) for entry in history.journal)


async def test_what_was_performed_when_an_end_was_taken_back_is_not_repeated_if_the_code_then_fails(home: Home) -> None:
    world = World()
    world.let_go()

    @world.pack.workflow
    async def order() -> str:
        slow = asyncio.ensure_future(world.charges["async"]("a"))
        word = asyncio.ensure_future(_word())
        done, _ = await asyncio.wait({slow, word}, return_when=asyncio.FIRST_COMPLETED)
        if word in done and world.breaks:
            raise ValueError("not that word")
        return await slow

    async with home.holdfast(world.pack, through=SignalBeforeTheEnd) as hf:
        run = (await hf.start(order())).run
        await failed(run)
        world.breaks = False
        await run.retry()
        assert await run.result(timeout=PATIENCE_SECONDS) == "charged a"
    assert list(world.begun.values()) == list(world.charged.values()) == [1]


async def test_a_cancelled_run_that_cannot_go_on_is_over_by_the_deadline_though_a_thread_hangs(home: Home) -> None:
    world = World()

    async def unknown(key: str) -> str:
        raise OSError("they do not say")

    @world.pack.effect(retry=ONE, safety="once", timeout="10ms", reconcile=unknown)
    async def doubtful() -> str:
        await eventually(lambda: world.begun)
        await asyncio.sleep(3600)
        return "never"

    @world.pack.workflow
    async def order() -> list[str]:
        try:
            await hook("never")
        finally:
            async with shield("1m"):
                await asyncio.gather(world.charges["sync"]("a"), doubtful())
        return []

    async with home.holdfast(world.pack) as hf:
        run = (await hf.start(order())).run
        await run.ask_cancel("enough", deadline="300ms")  # nothing but its owner ends it
        with pytest.raises(RunCancelled):
            await run.result(timeout=PATIENCE_SECONDS)
        world.let_go()
