"""Random programs, random orders of completion, random crashes and cancellations: a replay is the same run (E12)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st
from msgspec import UNSET

import holdfast
from holdfast.engine.code.commands import CodeRaised, CodeReturned
from holdfast.engine.failures import described
from holdfast.kernel import attributes
from holdfast.kernel.journal import (
    CancelAsked,
    Dropped,
    Elapsed,
    Entry,
    GaveUp,
    Joined,
    Late,
    Opened,
    Other,
    Performed,
    Received,
    Spawned,
    Stopped,
    Tagged,
)
from holdfast.pack import Pack
from tests.builders import a_value
from tests.unit.engine.driving import CODEC, PLAYS, Play, workflow_of
from tests.unit.engine.shop import charge, notify, pay

Tree = list[Any]
store = Pack("store")


@store.effect
async def refund(amount: int, result: int) -> None: ...


@store.effect(undo=refund)
async def buy(amount: int) -> int: ...


@store.effect
async def call_back(amount: int) -> None: ...


@store.effect(undo=call_back)
async def send(amount: int) -> int: ...


# -- programs

LEAVES = st.one_of(
    st.tuples(st.just("effect"), st.integers(0, 3)),
    st.tuples(st.just("careful"), st.integers(0, 3)),
    st.tuples(st.just("child"), st.integers(0, 3)),
    st.tuples(st.just("sleep"), st.integers(0, 90)),
    st.tuples(st.sampled_from(["buy", "send"]), st.integers(0, 3)),
    st.tuples(st.just("hook"), st.sampled_from("ab")),
    st.tuples(st.just("typed"), st.sampled_from("ab")),
    st.tuples(st.just("token"), st.sampled_from("ab")),
    st.tuples(st.just("patch"), st.sampled_from("xy")),
    st.tuples(st.just("tag"), st.integers(0, 3)),
    st.just(("draw",)),
)


def _branches(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(children, min_size=1, max_size=4)
    return st.one_of(
        st.tuples(st.sampled_from(["sequence", "gather", "group", "race", "each", "queue"]), several),
        st.tuples(st.just("within"), st.integers(1, 60), children),
        st.tuples(st.just("finally"), children, children),
        st.tuples(st.just("shield"), st.integers(1, 60), children),
    )


TREES = st.recursive(LEAVES, _branches, max_leaves=10)


@workflow_of
async def program(tree: Tree) -> Any:
    """Interprets a tree. Chance and time are drawn on the way, so that they are compared too."""
    return [await _walk(tree), holdfast.random(), holdfast.now().isoformat()]


async def _walk(tree: Tree) -> Any:
    match tree:
        case ["effect", amount]:
            return await charge(amount)
        case ["careful", amount]:
            try:
                return await charge(amount)
            except ValueError as error:
                return [str(error), await notify(f"{amount}")]
        case ["child", amount]:
            return await pay(amount)
        case ["sleep", seconds]:
            await asyncio.sleep(seconds)
            return holdfast.now().isoformat()
        case ["buy", amount]:
            return await buy(amount)
        case ["send", amount]:
            return await send(amount)
        case ["hook" | "typed" | "token" as how, name]:
            return await _hooked(how, name)
        case ["patch", name]:
            return holdfast.patched(name)
        case ["tag", number]:
            return await holdfast.set_attributes(number=number)
        case ["shield", seconds, inner]:
            async with holdfast.shield(seconds):
                return await _walk(inner)
        case ["draw"]:
            return [holdfast.random(), str(holdfast.uuid4())]
        case ["sequence", trees]:
            return [await _walk(each) for each in trees]
        case ["gather", trees]:
            return list(await asyncio.gather(*map(_walk, trees)))
        case ["group", trees]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_walk(each)) for each in trees]
            return [task.result() for task in tasks]
        case ["race", trees]:
            tasks = [asyncio.create_task(_walk(each)) for each in trees]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            return [task.result() for task in done]
        case ["each", trees]:
            return [await each for each in asyncio.as_completed([_walk(each) for each in trees])]
        case ["queue", trees]:
            return await _through_a_queue(trees)
        case ["within", seconds, inner]:
            try:
                async with asyncio.timeout(seconds):
                    return await _walk(inner)
            except TimeoutError:
                return "late"
        case ["finally", inner, last]:
            try:
                return await _walk(inner)
            finally:
                await _walk(last)
    raise AssertionError(tree)


async def _hooked(how: str, name: str) -> Any:
    if how == "typed":
        return await holdfast.hook(name, type=int)
    async with holdfast.hook(name, token=f"t-{name}" if how == "token" else None) as opened:
        return await opened


async def _through_a_queue(trees: list[Tree]) -> list[Any]:
    queue: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)
    lock = asyncio.Lock()

    async def produce(tree: Tree) -> None:
        value = await _walk(tree)
        async with lock:
            await queue.put(value)

    producers = [asyncio.create_task(produce(each)) for each in trees]
    waiting = asyncio.gather(*producers)
    try:
        values = []
        for _ in trees:
            getting = asyncio.ensure_future(queue.get())
            await asyncio.wait([getting, waiting], return_when=asyncio.FIRST_COMPLETED)
            if not getting.done() and queue.empty():
                getting.cancel()
                await waiting  # a producer failed
            values.append(await getting)
        await waiting
        return values
    finally:
        for task in producers:
            task.cancel()


# -- lives


@contextmanager
def all_evicted() -> Iterator[None]:
    """Whatever was begun is let go at the end of each example, as the engine does."""
    try:
        yield
    finally:
        while PLAYS:
            PLAYS[-1].evict()


def asked(play: Play) -> list[Any]:
    return [(command.step, command.intent, command.arguments, command.asked_at_ms) for command in play.begun]


def attributes_of(play: Play) -> dict[str, Any]:
    now = play.machine.notes.attributes_now()
    return {} if now is UNSET else attributes.decode(bytes(now))


def outcome(play: Play) -> Any:
    match play.machine.outcome:
        case CodeReturned(value):
            return value
        case CodeRaised(error):
            return _failure(error)
        case other:
            return other


def _failure(error: BaseException) -> Any:
    if isinstance(error, BaseExceptionGroup):
        return [type(error).__name__, *map(_failure, error.exceptions)]
    return [type(error).__name__, str(error)]


def _completion(play: Play, data: st.DataObject, now_ms: int) -> Entry:
    """Something that the code waits for happens: which, and how it ends, is drawn."""
    hooks = play.machine.inbox.awaited()
    waited_for = [*play.waits_for, *(f"signal {name}" for name in hooks)]
    assert waited_for, "it waits for nothing"
    step = data.draw(st.sampled_from(waited_for), label="step")
    if step.startswith("signal "):
        return _signal(play, step.removeprefix("signal "), data, now_ms)
    timer = play.machine.timers.get(step)
    if timer is not None:
        return Elapsed(max(now_ms, timer.due_at_ms), step, timer.due_at_ms)
    command = play.machine.open[step]
    failure = described(ValueError(f"{step} failed"), CODEC)
    fails = data.draw(st.sampled_from([False, False, False, True]), label="fails")
    match command.intent.kind:
        case "child" if not command.child_id:
            return Spawned(now_ms, step, command.intent, f"child of {step}")
        case "child" | "stop":
            if fails:
                return Joined(now_ms, step, command.child_id, error=failure)
            return Joined(now_ms, step, command.child_id, a_value(7))
        case "hook":
            return Opened(now_ms, step, command.intent, Other("run-9", "shop.other") if fails else None)
        case _ if fails:
            return GaveUp(now_ms, step, command.intent, 3, failure)
        case _:
            value = str(now_ms) if command.intent.name == "shop.notify" else 9
            return Performed(now_ms, step, command.intent, 1, a_value(None if command.intent.kind == "undo" else value))


def _signal(play: Play, name: str, data: st.DataObject, now_ms: int) -> Received:
    payload = data.draw(st.sampled_from([1, 2, "no number"]), label="payload")
    return Received(now_ms, name, f"signal-{len(play.journal)}", a_value(payload))


def _note_what_was_dropped(play: Play, data: st.DataObject, under_way: dict[str, Dropped], now_ms: int) -> None:
    """Of what the code no longer waits for, something may have been under way."""
    for command in play.machine.pending.take_dropped():
        if command.touches_the_world and data.draw(st.booleans(), label=f"{command.step} was under way"):
            under_way[command.step] = Dropped(now_ms, command.step, command.intent)
            play._deliver(under_way[command.step])


def _comes_late(data: st.DataObject, under_way: dict[str, Dropped], now_ms: int) -> Late:
    dropped = under_way.pop(data.draw(st.sampled_from(sorted(under_way)), label="late"))
    if data.draw(st.booleans(), label="fails late"):
        return Late(now_ms, dropped.step, dropped.intent, 1, error=described(ValueError("late"), CODEC))
    return Late(now_ms, dropped.step, dropped.intent, 1, a_value(9))


def _show(play: Play, shown: dict[str, Any]) -> None:
    """What the run shows is written as it changes."""
    now = play.machine.notes.take_shown()
    if now is not None:
        shown.clear()
        shown.update(attributes.decode(now.attributes))


def _played(play: Play, data: st.DataObject, *, cancelled: bool = False, shown: dict[str, Any] | None = None) -> Play:
    """Play on to the end; now and then the process dies and another one goes on. `shown` is what its row shows."""
    now_ms = play.now_ms
    shown = {} if shown is None else shown
    _show(play, shown)
    cancel_in = data.draw(st.integers(0, 8), label="cancelled after") if cancelled else -1
    under_way: dict[str, Dropped] = {}
    play.machine.pending.take_dropped()
    while play.machine.outcome is None:
        now_ms += data.draw(st.integers(0, 40_000), label="ms")
        if cancel_in == 0:
            entry = CancelAsked(now_ms, now_ms + 10**9)
        elif under_way and data.draw(st.integers(0, 2), label="late?") == 2:
            entry = _comes_late(data, under_way, now_ms)
        elif play.machine.ended is not None and not play.machine.is_unwinding:
            entry = Stopped(now_ms)
        elif data.draw(st.integers(0, 7), label="signal?") == 7:
            entry = _signal(play, data.draw(st.sampled_from("ab"), label="hook"), data, now_ms)
        else:
            entry = _completion(play, data, now_ms)
        cancel_in -= 1
        now_ms = max(now_ms, entry.at_ms)
        play._deliver(entry)
        _note_what_was_dropped(play, data, under_way, now_ms)
        _show(play, shown)
        if data.draw(st.integers(0, 3), label="crash") == 0:
            before = (play.waits_for, play.machine.waits(), outcome(play), play.journal)
            play = play.again()
            assert (play.waits_for, play.machine.waits(), outcome(play), play.journal) == before
            play.machine.pending.take_dropped()
            _show(play, shown)
    assert shown == attributes_of(play)
    return play


def _check(play: Play) -> None:
    """A replay, of all or of any prefix, asks for the same, notes the same and ends the same."""
    whole = play.again()
    assert outcome(whole) == outcome(play)
    assert whole.journal == play.journal
    steps = whole.steps
    assert len(set(steps)) == len(steps)
    recorded = [entry.step for entry in play.journal if isinstance(entry, Performed | GaveUp)]
    assert len(set(recorded)) == len(recorded), "an effect was recorded twice"
    tagged = [msgspec.json.decode(entry.attributes) for entry in play.journal if isinstance(entry, Tagged)]
    assert attributes_of(whole) == attributes_of(play) == (tagged[-1] if tagged else {})
    for length in range(len(play.journal)):
        prefix = play.again(play.journal[:length])
        assert asked(prefix) == asked(whole)[: len(prefix.begun)]
        assert prefix.journal == play.journal[: len(prefix.journal)]


@settings(max_examples=2 * settings().max_examples)
@given(TREES, st.data())
@all_evicted()
def test_a_replay_reproduces_the_result_and_the_commands_of_any_program(tree, data):
    """E12."""
    _check(_played(Play(program, tree), data))


@settings(max_examples=2 * settings().max_examples)
@given(TREES, st.data())
@all_evicted()
def test_a_replay_reproduces_the_cancellation_of_any_program(tree, data):
    """C2: at whatever place it comes."""
    play = _played(Play(program, tree), data, cancelled=True)
    _check(play)
    undone = [entry.step for entry in play.journal if isinstance(entry, Performed) and entry.intent.kind == "undo"]
    begun = {entry.step for entry in play.journal if isinstance(entry, Performed | Dropped)}
    assert {step.removeprefix("undo:") for step in undone} <= begun


@settings(max_examples=2 * settings().max_examples)
@given(TREES, st.data())
@all_evicted()
def test_a_failed_program_that_is_retried_repeats_nothing_that_was_performed(tree, data):
    shown: dict[str, Any] = {}
    play = _played(Play(program, tree), data, shown=shown)
    for _ in range(3):
        if not isinstance(play.machine.outcome, CodeRaised):
            break
        play = _played(play.retried(), data, shown=shown)
        assert outcome(play.again()) == outcome(play)
    performed = [entry.step for entry in play.journal if isinstance(entry, Performed)]
    assert len(set(performed)) == len(performed)
