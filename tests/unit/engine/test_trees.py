"""Random programs, random orders of completion, random crashes: a replay of the journal is the same run (E12)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, note, settings, strategies as st
from msgspec import Struct

import holdfast
from holdfast.engine.failures import described
from holdfast.engine.machine import CodeRaised, CodeReturned, Machine
from holdfast.kernel import runs
from holdfast.kernel.changes import Status
from holdfast.kernel.journal import (
    Elapsed,
    Entry,
    Failed,
    GaveUp,
    Joined,
    Performed,
    Spawned,
    Started,
    Value,
    to_replay,
)
from holdfast.workflow import Current
from tests.builders import NOW_MS, a_run, a_value
from tests.unit.engine.driving import CODEC, workflow_of
from tests.unit.engine.shop import charge, notify, pay

Tree = list[Any]

# -- programs

LEAVES = st.one_of(
    st.tuples(st.just("effect"), st.integers(0, 3)),
    st.tuples(st.just("careful"), st.integers(0, 3)),
    st.tuples(st.just("child"), st.integers(0, 3)),
    st.tuples(st.just("sleep"), st.integers(0, 90)),
    st.just(("draw",)),
)


def _branches(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(children, min_size=1, max_size=4)
    return st.one_of(
        st.tuples(st.sampled_from(["sequence", "gather", "group", "race", "each", "queue"]), several),
        st.tuples(st.just("within"), st.integers(1, 60), children),
        st.tuples(st.just("finally"), children, children),
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


class Life(Struct):
    """A machine, and what it has asked for so far."""

    machine: Machine
    asked: list[Any] = []

    def look(self) -> None:
        for command in self.machine.take_fresh():
            self.asked.append((command.step, command.intent, command.arguments, command.asked_ms))

    @property
    def waits_for(self) -> list[str]:
        return [*self.machine.open, *self.machine.timers]

    @property
    def outcome(self) -> Any:
        match self.machine.outcome:
            case CodeReturned(value):
                return value
            case CodeRaised(error):
                return _failure(error)
            case other:
                return other


LIVES: list[Life] = []


@contextmanager
def all_evicted() -> Iterator[None]:
    """Whatever was begun is let go at the end, as the engine does."""
    try:
        yield
    finally:
        while LIVES:
            LIVES.pop().machine.evict()


def lived(tree: Tree, journal: list[Entry]) -> Life:
    """A life from its start through `journal`, whose first entry is the input."""
    life = Life(Machine(program, Current("run-1", None, program.name), codec=CODEC, blobs={}), [])
    LIVES.append(life)
    life.machine.start(CODEC.encode({"tree": tree}, what="the tree"), at_ms=NOW_MS)
    life.look()
    for position, entry, strict in to_replay(tuple(journal)):
        life.machine.apply(entry, position, strict=strict)
        life.look()
    return life


def _failure(error: BaseException) -> Any:
    if isinstance(error, BaseExceptionGroup):
        return [type(error).__name__, *map(_failure, error.exceptions)]
    return [type(error).__name__, str(error)]


def _completion(life: Life, data: st.DataObject, now_ms: int) -> Entry:
    """Something that the code waits for happens: which, and how it ends, is drawn."""
    step = data.draw(st.sampled_from(life.waits_for), label="step")
    timer = life.machine.timers.get(step)
    if timer is not None:
        return Elapsed(max(now_ms, timer.due_ms), step, timer.due_ms)
    command = life.machine.open[step]
    failure = described(ValueError(f"{step} failed"), CODEC)
    fails = data.draw(st.sampled_from([False, False, False, True]), label="fails")
    if command.intent.kind == "child":
        if not command.child_id:
            return Spawned(now_ms, step, command.intent, f"child of {step}")
        if fails:
            return Joined(now_ms, step, command.child_id, error=failure)
        return Joined(now_ms, step, command.child_id, _value(7))
    if fails:
        return GaveUp(now_ms, step, command.intent, 3, failure)
    return Performed(
        now_ms, step, command.intent, 1, _value(str(now_ms) if command.intent.name == "shop.notify" else 9)
    )


def _value(value: object) -> Value:
    return a_value(value)


def _played(life: Life, journal: list[Entry], tree: Tree, data: st.DataObject) -> Life:
    """Play on to the end; now and then the process dies and another one goes on."""
    now_ms = max(entry.at_ms for entry in journal)
    while life.machine.outcome is None:
        assert life.waits_for, "it waits for nothing"
        now_ms += data.draw(st.integers(0, 40_000), label="ms")
        entry = _completion(life, data, now_ms)
        now_ms = max(now_ms, entry.at_ms)
        life.machine.apply(entry, len(journal))
        journal.append(entry)
        life.look()
        if data.draw(st.integers(0, 3), label="crash") == 0:
            before = (life.waits_for, life.outcome)
            life = lived(tree, journal)
            assert (life.waits_for, life.outcome) == before
    return life


@settings(max_examples=2 * settings().max_examples)
@given(TREES, st.data())
@all_evicted()
def test_a_replay_reproduces_the_result_and_the_commands_of_any_program(tree, data):
    """E12."""
    journal: list[Entry] = [Started(NOW_MS, a_value())]
    first = _played(lived(tree, journal), journal, tree, data)
    whole = lived(tree, journal)
    assert whole.outcome == first.outcome
    steps = [step for step, *_ in whole.asked]
    assert len(set(steps)) == len(steps)
    recorded = [entry.step for entry in journal if isinstance(entry, Performed | GaveUp)]
    assert len(set(recorded)) == len(recorded), "an effect was recorded twice"
    for length in range(1, len(journal)):
        prefix = lived(tree, journal[:length])
        assert prefix.asked == whole.asked[: len(prefix.asked)]


@settings(max_examples=2 * settings().max_examples)
@given(TREES, st.data())
@all_evicted()
def test_a_failed_program_that_is_retried_repeats_nothing_that_was_performed(tree, data):
    journal: list[Entry] = [Started(NOW_MS, a_value())]
    life = _played(lived(tree, journal), journal, tree, data)
    for _ in range(3):
        if not isinstance(life.machine.outcome, CodeRaised):
            break
        journal.append(Failed(journal[-1].at_ms, described(life.machine.outcome.error, CODEC)))
        change = runs.retry(a_run(status=Status.FAILED), tuple(journal), now_ms=journal[-1].at_ms)
        journal += change.entries
        note(f"retried: {change.entries}")
        life = lived(tree, journal)
        life = _played(life, journal, tree, data)
        assert lived(tree, journal).outcome == life.outcome
    performed = [entry.step for entry in journal if isinstance(entry, Performed)]
    assert len(set(performed)) == len(performed)
