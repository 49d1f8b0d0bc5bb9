"""The board: writes travel together and are never left half known; those who wait are told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from holdfast.adapters.machine import SystemClock
from holdfast.engine.board import Board
from holdfast.errors import StoreUnavailable
from holdfast.kernel import tasks
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.tasks import Place, Task
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
def board(store: SlowStore) -> Board:
    return Board(store, clock=SystemClock(), emit=lambda event: None)


def offer(n: int = 1, *, now_ms: int = NOW_MS) -> Writing:
    task = Task("run-1", "key", 1, "{}")
    writing = tasks.offer(None, Place("default", "shop.charge", str(n)), task, in_doubt=False, now_ms=now_ms)
    assert writing is not None
    return writing


async def test_writes_that_are_ready_together_travel_together(store: SlowStore, board: Board) -> None:
    first = asyncio.create_task(board.write([offer(0)]))
    await store.asked.wait()
    others = [asyncio.create_task(board.write([offer(n), offer(n)])) for n in range(1, 4)]
    await asyncio.sleep(0)
    store.gate.set()
    assert await first == [True]
    assert await asyncio.gather(*others) == [[True, True]] * 3
    assert store.written == [1, 6]


async def test_whoever_is_cancelled_learns_it_when_the_store_has_answered(store: SlowStore, board: Board) -> None:
    writing = offer()
    with board.following(tasks.place_of(writing.document)) as follower:
        task = asyncio.create_task(board.write([writing]))
        await store.asked.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        store.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert follower.current == writing.document


async def test_trouble_of_the_store_is_told_to_all_who_wait(store: SlowStore, board: Board) -> None:
    store.broken = StoreUnavailable("the disk is full")
    store.gate.set()
    answers = await asyncio.gather(*(board.write([offer(n)]) for n in range(3)), return_exceptions=True)
    assert answers == [store.broken] * 3


async def test_nobody_waits_for_a_writer_that_is_gone(store: SlowStore, board: Board) -> None:
    """As when the loop is closed: what is written, and what has gathered meanwhile."""
    first = asyncio.create_task(board.write([offer(0)]))
    await store.asked.wait()
    second = asyncio.create_task(board.write([offer(1)]))
    await asyncio.sleep(0)
    assert board._writer is not None
    board._writer.cancel()
    for waiting in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_what_is_older_than_what_was_seen_does_not_count(store: SlowStore, board: Board) -> None:
    old, new = (Document("default", "task/shop.charge", "1", version, b"{}") for version in (1, 2))
    with board.following(Place("default", "shop.charge", "1")) as follower:
        for document in (new, old, None):
            follower.sees(document)
        assert follower.current == new


async def test_one_seeker_is_rung_for_per_task_and_passes_it_on_if_it_leaves(store: SlowStore, board: Board) -> None:
    store.gate.set()
    with (
        board.seeking("default", ["shop.charge"]) as first,
        board.seeking("default", ["shop.charge"]) as second,
        board.seeking("default", ["shop.ship"]) as other,
        board.seeking("another", ["shop.charge"]) as stranger,
    ):
        await board.write([offer()])
        assert [each.rung.is_set() for each in (first, second, other, stranger)] == [True, False, False, False]
        assert not board._news.is_set()
    assert board._news.is_set()


async def test_all_that_are_followed_are_looked_up_in_few_reads(
    store: SlowStore, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has written two of three; each read takes two at most."""
    monkeypatch.setattr("holdfast.engine.board.LOOK_UP_MAX", 2)
    store.gate.set()
    posted = [offer(n, now_ms=store.now_ms()) for n in range(3)]
    with ExitStack() as stack:
        followers = [stack.enter_context(board.following(tasks.place_of(each.document))) for each in posted]
        await store.write(posted[1:])
        watching = asyncio.create_task(board.watch())
        board.look()
        async with asyncio.timeout(30):
            await asyncio.gather(*(follower.changed(None) for follower in followers[1:]))
        watching.cancel()
        assert [follower.current for follower in followers] == [None, *(each.document for each in posted[1:])]
    assert store.looks == [2, 1]
