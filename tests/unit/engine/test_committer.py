from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.engine.committer import Committer
from holdfast.engine.events import BatchCommitted, Event
from holdfast.errors import StoreUnavailable
from holdfast.kernel.changes import Answer, Change, Committed, KeyFree, Refused
from holdfast.ports.store import Batches
from tests.builders import a_run

OK = Committed(None)
SIZE = 512


class GatedStore:
    """Answers each commit when the test says so, with what the test says."""

    def __init__(self) -> None:
        self.portions = Batches(size=SIZE, at_once=1)
        self.offered: list[list[str]] = []
        self.arrived = asyncio.Event()
        self._gates: asyncio.Queue[BaseException | Sequence[Answer] | None] = asyncio.Queue()

    @property
    def batches(self) -> Batches:
        return self.portions

    async def commit(self, changes: Sequence[Change]) -> list[Answer]:
        self.offered.append([change.id for change in changes])
        self.arrived.set()
        gate = await self._gates.get()
        if isinstance(gate, BaseException):
            raise gate
        return [OK] * len(changes) if gate is None else list(gate)

    def answer(self, *answers: Answer) -> None:
        self._gates.put_nowait(answers or None)

    def fail(self, error: BaseException) -> None:
        self._gates.put_nowait(error)

    async def next_batch(self) -> list[str]:
        """The batch that arrives next."""
        async with asyncio.timeout(5):
            await self.arrived.wait()
        self.arrived.clear()
        return self.offered[-1]


class Desk:
    def __init__(self) -> None:
        self.store = GatedStore()
        self.events: list[Event] = []
        self.told: list[list[str]] = []
        self.changed: list[str] = []
        self.committer = Committer(
            self.store,  # pyright: ignore[reportArgumentType]
            emit=self.events.append,
            on_told=lambda told: self.told.append(list(told)),
            on_changed=self.changed.append,
        )

    def offer(self, *names: str, **options: Any) -> list[asyncio.Future[Answer]]:
        return [self.committer.commit(Change(name, KeyFree()), **options) for name in names]


@pytest.fixture
async def desk() -> Desk:
    return Desk()


async def _answers(futures: Sequence[asyncio.Future[Answer]]) -> list[Any]:
    async with asyncio.timeout(5):
        return await asyncio.gather(*futures, return_exceptions=True)


async def test_a_lone_change_leaves_at_once(desk):
    [answer] = desk.offer("a")
    assert await desk.store.next_batch() == ["a"]
    desk.store.answer()
    assert await _answers([answer]) == [OK]
    assert desk.events == [BatchCommitted(1)]


async def test_a_lone_change_is_not_held_back_for_company(desk):
    """It is with the store by the end of the present turn of the loop: after one step of whoever else is ready."""
    desk.offer("a")
    await asyncio.sleep(0)
    assert desk.store.offered == [["a"]]
    desk.store.answer()
    await desk.committer.drained()


async def test_what_is_ready_together_travels_together(desk):
    answers = desk.offer("a", "b", "c")
    assert await desk.store.next_batch() == ["a", "b", "c"]
    refused = Refused(a_run())
    desk.store.answer(OK, refused, OK)
    assert await _answers(answers) == [OK, refused, OK]
    assert desk.events == [BatchCommitted(3)]


async def test_what_becomes_ready_while_a_batch_is_written_leaves_as_the_next_one(desk):
    first = desk.offer("a")
    await desk.store.next_batch()
    later = desk.offer("b") + desk.offer("c")
    await asyncio.sleep(0)
    assert desk.store.offered == [["a"]]  # one after the other
    desk.store.answer()
    assert await desk.store.next_batch() == ["b", "c"]
    assert first[0].done()
    desk.store.answer()
    assert await _answers(first + later) == [OK] * 3


async def test_a_batch_is_bounded_and_the_rest_follows_in_order(desk):
    names = [str(number) for number in range(SIZE + 3)]
    answers = desk.offer(*names)
    assert await desk.store.next_batch() == names[:SIZE]
    desk.store.answer()
    assert await desk.store.next_batch() == names[SIZE:]
    desk.store.answer()
    assert await _answers(answers) == [OK] * len(names)


async def test_an_unavailable_store_reaches_every_waiter_of_the_batch_and_no_other(desk):
    answers = desk.offer("a", "b")
    await desk.store.next_batch()
    later = desk.offer("c")
    trouble = StoreUnavailable("locked")
    desk.store.fail(trouble)
    assert await desk.store.next_batch() == ["c"]
    desk.store.answer()
    assert await _answers(answers + later) == [trouble, trouble, OK]
    assert desk.events == [BatchCommitted(1)]


async def test_after_an_error_the_next_change_is_written(desk):
    answers = desk.offer("a")
    desk.store.fail(StoreUnavailable("locked"))
    await _answers(answers)
    await desk.committer.drained()
    again = desk.offer("a")
    desk.store.answer()
    assert await _answers(again) == [OK]


async def test_one_change_that_cannot_be_written_does_not_take_the_others_along(desk):
    answers = desk.offer("a", "bad", "c")
    await desk.store.next_batch()
    desk.store.fail(ValueError("bad"))
    desk.store.answer()
    desk.store.fail(ValueError("bad"))
    desk.store.answer()
    a, bad, c = await _answers(answers)
    assert (a, c) == (OK, OK)
    assert isinstance(bad, ValueError)
    assert desk.store.offered == [["a", "bad", "c"], ["a"], ["bad"], ["c"]]


async def test_a_waiter_that_has_gone_away_harms_nobody(desk):
    gone, stays = desk.offer("a", "b")
    gone.cancel()
    await desk.store.next_batch()
    desk.store.answer()
    assert await _answers([stays]) == [OK]


async def test_whoever_must_know_first_learns_even_if_the_waiter_has_gone_away(desk):
    learned: list[Answer | None] = []
    [gone] = desk.offer("a", first=learned.append)
    gone.cancel()
    await desk.store.next_batch()
    desk.store.answer()
    await desk.committer.drained()
    assert learned == [OK]


async def test_whoever_must_know_first_is_told_if_the_answer_is_not_known(desk):
    learned: list[Answer | None] = []
    answers = desk.offer("a", first=learned.append)
    desk.store.fail(StoreUnavailable("reply lost"))
    await _answers(answers)
    assert learned == [None]


async def test_runs_that_got_a_message_are_announced_once_per_batch(desk):
    answers = desk.offer("a", "b", "c")
    desk.store.answer(Committed(None, ("parent",)), OK, Committed(None, ("other",)))
    await _answers(answers)
    await desk.committer.drained()
    assert desk.told == [["parent", "other"]]
    answers = desk.offer("d")
    desk.store.answer(OK)
    await _answers(answers)
    await desk.committer.drained()
    assert desk.told == [["parent", "other"]]


async def test_every_run_that_was_changed_is_announced(desk):
    answers = desk.offer("a", "b", "c", "d")
    desk.store.answer(Committed(a_run("run-1")), Refused(a_run("run-2")), OK, Committed(a_run("run-3")))
    await _answers(answers)
    assert desk.changed == ["run-1", "run-3"]


async def test_being_drained_is_waited_for(desk):
    await desk.committer.drained()  # nothing to wait for
    desk.offer("a")
    drained = asyncio.create_task(desk.committer.drained())
    await desk.store.next_batch()
    await asyncio.sleep(0)
    assert not drained.done()
    desk.store.answer()
    async with asyncio.timeout(5):
        await drained


async def test_a_stop_of_the_writer_reaches_every_waiter(desk):
    answers = desk.offer("a", "b")
    await desk.store.next_batch()
    desk.store.fail(asyncio.CancelledError())
    results = await _answers(answers)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    again = desk.offer("c")
    desk.store.answer()
    assert await _answers(again) == [OK]


async def test_a_store_that_can_gets_the_next_batch_while_one_is_under_way():
    desk = Desk()
    desk.store.portions = Batches(size=2, at_once=2)
    first = desk.offer("a")
    await desk.store.next_batch()
    second = desk.offer("b", "c")
    assert await desk.store.next_batch() == ["b", "c"]
    third = desk.offer("d", "e", "f")
    await asyncio.sleep(0)
    assert desk.store.offered == [["a"], ["b", "c"]]  # no more than two
    for _ in range(4):
        desk.store.answer()
    await desk.committer.drained()
    assert desk.store.offered == [["a"], ["b", "c"], ["d", "e"], ["f"]]
    assert await _answers([*first, *second, *third]) == [OK] * 6


async def test_what_is_ready_together_fills_as_many_batches_as_may_be_under_way():
    desk = Desk()
    desk.store.portions = Batches(size=2, at_once=2)
    answers = desk.offer(*"abcde")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert desk.store.offered == [["a", "b"], ["c", "d"]]
    for _ in range(3):
        desk.store.answer()
    assert await _answers(answers) == [OK] * 5
    assert desk.store.offered[2:] == [["e"]]
