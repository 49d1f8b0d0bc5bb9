"""Code that Python runs when it frees memory: it belongs to the run in which it began, and reaches no other.

By its last reference, an object is freed at the same place of the code every time. The collector of cycles frees it at
any moment, in whatever happens to be executed then: so what it runs reaches no run at all.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest

import holdfast
from tests.unit.engine.driving import PLAYS, Play, workflow_of
from tests.unit.engine.shop import charge, notify, ship


class Cycle:
    """Refers to itself, so that only the collector frees what it holds."""

    def __init__(self, held: object) -> None:
        self.held = held
        self.itself = self


finalized: list[str] = []
refused: list[str] = []  # what Python would print


async def _async_generator() -> AsyncIterator[int]:
    try:
        yield 1
        yield 2
    finally:
        finalized.append("async generator")
        holdfast.random()
        await notify("clean-up")
        await asyncio.sleep(60)


def _sync(clean_up: Callable[[], object]) -> Generator[int]:
    try:
        yield 1
        yield 2
    finally:
        finalized.append("sync generator")
        clean_up()


@workflow_of
async def leaves_an_async_generator() -> None:
    numbers = _async_generator()
    await anext(numbers)
    Cycle(numbers)
    del numbers
    await charge(1)
    await asyncio.gather(charge(2), ship())


@workflow_of
async def leaves_an_async_generator_in_a_frame() -> None:
    async def helper() -> None:
        numbers = _async_generator()
        await anext(numbers)
        try:
            raise ValueError
        except ValueError as error:
            kept = error  # the frame holds the error, whose traceback holds the frame
            assert kept

    await helper()
    await charge(1)
    await asyncio.gather(charge(2), ship())


def _leaving(clean_up: Callable[[], Callable[[], object]]) -> Any:
    """A workflow that leaves a sync generator, whose `finally` does this."""

    @workflow_of
    async def code() -> None:
        numbers = _sync(clean_up())
        next(numbers)
        Cycle(numbers)
        del numbers
        await charge(1)
        await asyncio.gather(charge(2), ship())

    return code


def _closing_a_hook() -> Callable[[], object]:
    return holdfast.hook("orders", type=int).close


def _taking_from_a_hook() -> Callable[[], object]:
    orders = holdfast.hook("orders", type=int)

    def take() -> None:
        orders.__await__().send(None)

    return take


def _beginning_a_task() -> Callable[[], object]:
    loop = asyncio.get_running_loop()
    return lambda: loop.create_task(_helper())


def _setting_a_timer() -> Callable[[], object]:
    loop = asyncio.get_running_loop()
    return lambda: loop.call_later(60, print)


def _calling_soon() -> Callable[[], object]:
    loop = asyncio.get_running_loop()

    return lambda: loop.call_soon(loop.create_task, _helper())


def _cancelling_a_timer() -> Callable[[], object]:
    return asyncio.get_running_loop().call_later(60, print).cancel


async def _helper() -> None:
    await notify("helper")


@workflow_of
async def leaves_a_coroutine() -> None:
    async def careful() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            finalized.append("coroutine")
            await notify("clean-up")

    coroutine = careful()
    coroutine.send(None)
    Cycle(coroutine)
    del coroutine
    await charge(1)
    await asyncio.gather(charge(2), ship())


class _Deleted:
    def __del__(self) -> None:
        finalized.append("object")
        holdfast.uuid4()


@workflow_of
async def leaves_an_object() -> None:
    Cycle(_Deleted())
    await charge(1)
    await asyncio.gather(charge(2), ship())


@workflow_of
async def leaves_a_weak_reference() -> None:
    def freed(_: object) -> None:
        finalized.append("weak reference")
        asyncio.get_running_loop().create_task(_helper())

    cycle = Cycle(None)
    watching = weakref.ref(cycle, freed)
    del cycle
    await charge(1)
    await asyncio.gather(charge(2), ship())
    assert watching


CULPRITS = {
    "async generator": leaves_an_async_generator,
    "async generator in a frame": leaves_an_async_generator_in_a_frame,
    "time, chance": _leaving(lambda: lambda: (holdfast.now(), holdfast.random(), holdfast.uuid4())),
    "patched": _leaving(lambda: lambda: holdfast.patched("clean-up")),
    "opens a hook": _leaving(lambda: lambda: holdfast.hook("late", type=int)),
    "closes a hook": _leaving(_closing_a_hook),
    "takes from a hook": _leaving(_taking_from_a_hook),
    "a task": _leaving(lambda: lambda: asyncio.create_task(_helper())),
    "a task of its loop": _leaving(_beginning_a_task),
    "soon": _leaving(_calling_soon),
    "sets a timer": _leaving(_setting_a_timer),
    "cancels a timer": _leaving(_cancelling_a_timer),
    "awaits": _leaving(lambda: lambda: charge(9).__await__().send(None)),
    "coroutine": leaves_a_coroutine,
    "object": leaves_an_object,
    "weak reference": leaves_a_weak_reference,
}


collect: Callable[[], object] = gc.collect


@workflow_of
async def victim() -> list[Any]:
    seen: list[Any] = [await asyncio.create_task(charge(1))]
    collect()
    holdfast.hook("orders", type=int)
    seen += [holdfast.random(), str(holdfast.uuid4())]
    seen += await asyncio.gather(charge(2), notify("victim"))
    await asyncio.sleep(5)
    return seen


@pytest.fixture(autouse=True, scope="module")
def _only_what_tests_make_is_collected() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """A collection of all that the test process has ever made takes a tenth of a second, and each test collects."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """It works when the test says so. What it runs is refused, and Python would print that."""
    gc.collect()
    finalized.clear()
    refused.clear()
    monkeypatch.setattr(sys, "unraisablehook", lambda told: refused.append(told.exc_type.__name__))
    yield
    while PLAYS:
        PLAYS[-1].evict()
    gc.collect()


def _asked(play: Play) -> Any:
    """All that a run has done so far, but for the collector's work."""
    notes = [type(entry).__name__ for entry in play.journal]
    return [(each.step, each.intent.digest) for each in play.begun], play.waits_for, notes


def _led_to_the_end(play: Play) -> Play:
    while play.machine.outcome is None:
        step = play.waits_for[0]
        if step in play.machine.timers:
            play.elapse(step)
        else:
            play.perform(step, "" if "ship" in step or "notify" in step else 0)
    return play


def _undisturbed(code: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "collect", lambda: None)
        play = _led_to_the_end(Play(code))
        return _asked(play), play.result


@pytest.mark.parametrize("name", CULPRITS)
def test_what_the_collector_runs_in_another_run_reaches_neither(name, monkeypatch):
    """Both ask for what they ask for without a collection, and the replays of both journals end alike."""
    culprit_alone, victim_alone = _undisturbed(CULPRITS[name], monkeypatch), _undisturbed(victim, monkeypatch)
    finalized.clear()
    gc.collect()
    finalized.clear()
    culprit, other = Play(CULPRITS[name], run_id="run-1"), Play(victim)
    _led_to_the_end(other)
    _led_to_the_end(culprit)
    assert (_asked(other), other.result) == victim_alone
    assert (_asked(culprit), culprit.result) == culprit_alone
    assert other.again().result == other.result
    assert culprit.again().result == culprit.result
    assert bool(finalized) is not name.startswith("async")
    if name.startswith("async"):
        assert refused == []  # it is let go in silence


@pytest.mark.parametrize("name", CULPRITS)
def test_what_the_collector_runs_in_its_own_run_does_not_reach_it(name, monkeypatch):
    """The collector comes at other moments on a replay."""
    alone = _undisturbed(CULPRITS[name], monkeypatch)
    gc.collect()
    play = Play(CULPRITS[name])

    def collected() -> None:
        gc.collect()

    play.machine._loop.call_soon(collected)  # the next activation begins with a collection
    _led_to_the_end(play)
    assert (_asked(play), play.result) == alone
    assert play.again().result == play.result


@pytest.mark.parametrize("name", CULPRITS)
def test_what_the_collector_runs_between_activations_reaches_no_run(name, monkeypatch):
    alone = _undisturbed(CULPRITS[name], monkeypatch)
    gc.collect()
    play = Play(CULPRITS[name])
    gc.collect()
    _led_to_the_end(play)
    assert (_asked(play), play.result) == alone


@pytest.mark.parametrize("name", CULPRITS)
async def test_what_an_evicted_run_left_reaches_no_other(name, monkeypatch):
    alone = _undisturbed(victim, monkeypatch)
    gc.collect()
    before = asyncio.all_tasks()
    culprit = Play(CULPRITS[name])
    culprit.evict()
    del culprit
    other = _led_to_the_end(Play(victim))
    assert (_asked(other), other.result) == alone
    assert {each for each in asyncio.all_tasks() - before if "_helper" not in repr(each)} == set()
    for each in asyncio.all_tasks() - before:
        each.cancel()


def test_the_loop_is_back_in_its_place_after_a_collection():
    places: list[Any] = []

    class Watching:
        def __del__(self) -> None:
            places.append(asyncio._get_running_loop())

    @workflow_of
    async def code() -> bool:
        loop, task, hooks = asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()
        Cycle(Watching())
        gc.collect()
        await asyncio.create_task(charge(1))
        now = asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()
        return (loop, task, hooks) == now

    assert Play(code).perform("0/charge#1", 1).result
    assert places == [None]


def test_what_has_arrived_for_a_hook_is_not_taken_by_what_the_collector_runs():
    play = Play(CULPRITS["takes from a hook"]).signal("orders", 5)
    gc.collect()
    assert finalized == ["sync generator"]
    assert refused == ["UsageError"]
    assert play.machine.inbox.untaken()


def test_a_generator_whose_last_reference_goes_away_in_another_run_reaches_neither():
    """Runs that share an object in memory are asking for trouble, but not for this one."""
    shared: list[Any] = []

    @workflow_of
    async def sharing() -> int:
        shared.append(_async_generator())
        await anext(shared[0])
        return await charge(1)

    @workflow_of
    async def dropping() -> int:
        shared.clear()
        return await asyncio.create_task(charge(2))

    first, second = Play(sharing), Play(dropping)
    assert (first.waits_for, second.waits_for) == (["charge#1"], ["0/charge#1"])
    assert first.perform("charge#1", 1).result == 1
    assert refused == []


def test_the_loop_is_back_in_its_place_after_collections_at_the_end_of_the_stack(capfd):
    """There the callback of the collector may have no room left: it then does all that it has to do, or nothing."""

    def dive() -> None:
        gc.collect()
        dive()

    @workflow_of
    async def code() -> int:
        loop, hooks = asyncio.get_running_loop(), sys.get_asyncgen_hooks()
        with pytest.raises(RecursionError):
            dive()
        assert (asyncio.get_running_loop(), sys.get_asyncgen_hooks()) == (loop, hooks)
        return await asyncio.create_task(charge(1))

    outer = sys.get_asyncgen_hooks()
    assert Play(code).perform("0/charge#1", 7).result == 7
    assert (asyncio._get_running_loop(), sys.get_asyncgen_hooks()) == (None, outer)
    assert "Error" not in capfd.readouterr().out  # Python says on stderr that it could not call it
