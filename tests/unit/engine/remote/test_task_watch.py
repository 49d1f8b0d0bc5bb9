"""The board: writes travel together and are never left half known; those who wait are told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from holdfast.adapters.machine import SystemClock
from holdfast.engine.pace import Pace
from holdfast.engine.remote.task_watch import TaskWatch
from holdfast.errors import StoreUnavailable
from holdfast.kernel import tasks
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.tasks import Task, TaskPlace
from holdfast.stores.memory import MemoryStore

NOW_MS = 1_700_000_000_000


class SlowStore(MemoryStore):
    """Writes when the gate is open; counts how often it is asked to."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()
        self.written: list[int] = []
        self.looks: list[int] = []
        self.broken: Exception | None = None

    async def write(self, writings: Sequence[Writing]) -> list[bool]:
        self.written.append(len(writings))
        self.asked.set()
        await self.gate.wait()
        if self.broken is not None:
            raise self.broken
        return await super().write(writings)

    async def named(self, places: Sequence[tuple[str, str, str]]) -> list[Document]:
        self.looks.append(len(places))
        return await super().named(places)


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def task_watch(store: SlowStore) -> TaskWatch:
    return TaskWatch(store, clock=SystemClock(), emit=lambda event: None, pace=Pace())


def offer(n: int = 1, *, now_ms: int = NOW_MS) -> Writing:
    task = Task("run-1", "key", 1, "{}")
    writing = tasks.offer(None, TaskPlace("default", "shop.charge", str(n)), task, in_doubt=False, now_ms=now_ms)
    assert writing is not None
    return writing


async def test_writes_that_are_ready_together_travel_together(store: SlowStore, task_watch: TaskWatch) -> None:
    first = asyncio.create_task(task_watch.write([offer(0)]))
    await store.asked.wait()
    others = [asyncio.create_task(task_watch.write([offer(n), offer(n)])) for n in range(1, 4)]
    await asyncio.sleep(0)
    store.gate.set()
    assert await first == [True]
    assert await asyncio.gather(*others) == [[True, True]] * 3
    assert store.written == [1, 6]


async def test_whoever_is_cancelled_learns_it_when_the_store_has_answered(
    store: SlowStore, task_watch: TaskWatch
) -> None:
    writing = offer()
    with task_watch.subscribe(tasks.place_of(writing.document)) as follower:
        task = asyncio.create_task(task_watch.write([writing]))
        await store.asked.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        store.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert follower.current == writing.document


async def test_trouble_of_the_store_is_told_to_all_who_wait(store: SlowStore, task_watch: TaskWatch) -> None:
    store.broken = StoreUnavailable("the disk is full")
    store.gate.set()
    answers = await asyncio.gather(*(task_watch.write([offer(n)]) for n in range(3)), return_exceptions=True)
    assert answers == [store.broken] * 3


async def test_nobody_waits_for_a_writer_that_is_gone(store: SlowStore, task_watch: TaskWatch) -> None:
    """As when the loop is closed: what is written, and what has gathered meanwhile."""
    first = asyncio.create_task(task_watch.write([offer(0)]))
    await store.asked.wait()
    second = asyncio.create_task(task_watch.write([offer(1)]))
    await asyncio.sleep(0)
    assert task_watch._writer is not None
    task_watch._writer.cancel()
    for waiting in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_what_is_older_than_what_was_seen_does_not_count(store: SlowStore, task_watch: TaskWatch) -> None:
    old, new = (Document("default", "task/shop.charge", "1", version, b"{}") for version in (1, 2))
    with task_watch.subscribe(TaskPlace("default", "shop.charge", "1")) as follower:
        for document in (new, old, None):
            follower.update(document)
        assert follower.current == new


async def test_one_seeker_is_rung_for_per_task_and_passes_it_on_if_it_leaves(
    store: SlowStore, task_watch: TaskWatch
) -> None:
    store.gate.set()
    with (
        task_watch.seek("default", ["shop.charge"]) as first,
        task_watch.seek("default", ["shop.charge"]) as second,
        task_watch.seek("default", ["shop.ship"]) as other,
        task_watch.seek("another", ["shop.charge"]) as stranger,
    ):
        await task_watch.write([offer()])
        assert [each.woken.is_set() for each in (first, second, other, stranger)] == [True, False, False, False]
        assert not task_watch._news.is_set()
    assert task_watch._news.is_set()


async def test_all_that_are_followed_are_looked_up_in_few_reads(store: SlowStore) -> None:
    """Another process has written two of three; each read takes two at most."""
    task_watch = TaskWatch(store, clock=SystemClock(), emit=lambda event: None, pace=Pace(look_up_max=2))
    store.gate.set()
    posted = [offer(n, now_ms=store.now_ms()) for n in range(3)]
    with ExitStack() as stack:
        subscriptions = [stack.enter_context(task_watch.subscribe(tasks.place_of(each.document))) for each in posted]
        await store.write(posted[1:])
        watching = asyncio.create_task(task_watch.watch())
        task_watch.look()
        async with asyncio.timeout(30):
            await asyncio.gather(*(follower.changed(None) for follower in subscriptions[1:]))
        watching.cancel()
        assert [follower.current for follower in subscriptions] == [None, *(each.document for each in posted[1:])]
    assert store.looks == [2, 1]
