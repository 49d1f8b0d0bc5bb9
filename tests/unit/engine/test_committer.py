from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.engine.committer import Committer
from holdfast.errors import StoreUnavailable
from holdfast.events import BatchCommitted, Event
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


class RunHost:
    def __init__(self) -> None:
        self.store = GatedStore()
        self.events: list[Event] = []
        self.told: list[list[str]] = []
        self.changed: list[str] = []
        self.committer = Committer(
            self.store,  # pyright: ignore[reportArgumentType]
            emit=self.events.append,
            on_told=lambda told: self.told.append(list(told)),
            on_changed=self.changed.extend,
            on_unsure=lambda: self.told.append(["everything"]),
        )

    def offer(self, *names: str, **options: Any) -> list[asyncio.Future[Answer]]:
        return [self.committer.commit(Change(name, KeyFree()), **options) for name in names]


@pytest.fixture
async def host() -> RunHost:
    return RunHost()


async def _answers(futures: Sequence[asyncio.Future[Answer]]) -> list[Any]:
    async with asyncio.timeout(5):
        return await asyncio.gather(*futures, return_exceptions=True)


async def test_a_lone_change_leaves_at_once(host):
    [answer] = host.offer("a")
    assert await host.store.next_batch() == ["a"]
    host.store.answer()
    assert await _answers([answer]) == [OK]
    assert host.events == [BatchCommitted(1)]


async def test_a_lone_change_is_not_held_back_for_company(host):
    """It is with the store by the end of the present turn of the loop: after one step of whoever else is ready."""
    host.offer("a")
    await asyncio.sleep(0)
    assert host.store.offered == [["a"]]
    host.store.answer()
    await host.committer.drained()


async def test_what_is_ready_together_travels_together(host):
    answers = host.offer("a", "b", "c")
    assert await host.store.next_batch() == ["a", "b", "c"]
    refused = Refused(a_run())
    host.store.answer(OK, refused, OK)
    assert await _answers(answers) == [OK, refused, OK]
    assert host.events == [BatchCommitted(3)]


async def test_what_becomes_ready_while_a_batch_is_written_leaves_as_the_next_one(host):
    first = host.offer("a")
    await host.store.next_batch()
    later = host.offer("b") + host.offer("c")
    await asyncio.sleep(0)
    assert host.store.offered == [["a"]]  # one after the other
    host.store.answer()
    assert await host.store.next_batch() == ["b", "c"]
    assert first[0].done()
    host.store.answer()
    assert await _answers(first + later) == [OK] * 3


async def test_a_batch_is_bounded_and_the_rest_follows_in_order(host):
    names = [str(number) for number in range(SIZE + 3)]
    answers = host.offer(*names)
    assert await host.store.next_batch() == names[:SIZE]
    host.store.answer()
    assert await host.store.next_batch() == names[SIZE:]
    host.store.answer()
    assert await _answers(answers) == [OK] * len(names)


async def test_an_unavailable_store_reaches_every_waiter_of_the_batch_and_no_other(host):
    answers = host.offer("a", "b")
    await host.store.next_batch()
    later = host.offer("c")
    trouble = StoreUnavailable("locked")
    host.store.fail(trouble)
    assert await host.store.next_batch() == ["c"]
    host.store.answer()
    assert await _answers(answers + later) == [trouble, trouble, OK]
    assert host.events == [BatchCommitted(1)]


async def test_after_an_error_the_next_change_is_written(host):
    answers = host.offer("a")
    host.store.fail(StoreUnavailable("locked"))
    await _answers(answers)
    await host.committer.drained()
    again = host.offer("a")
    host.store.answer()
    assert await _answers(again) == [OK]


async def test_one_change_that_cannot_be_written_does_not_take_the_others_along(host):
    answers = host.offer("a", "bad", "c")
    await host.store.next_batch()
    host.store.fail(ValueError("bad"))
    host.store.answer()
    host.store.fail(ValueError("bad"))
    host.store.answer()
    a, bad, c = await _answers(answers)
    assert (a, c) == (OK, OK)
    assert isinstance(bad, ValueError)
    assert host.store.offered == [["a", "bad", "c"], ["a"], ["bad"], ["c"]]


async def test_a_waiter_that_has_gone_away_harms_nobody(host):
    gone, stays = host.offer("a", "b")
    gone.cancel()
    await host.store.next_batch()
    host.store.answer()
    assert await _answers([stays]) == [OK]


async def test_whoever_must_know_first_learns_even_if_the_waiter_has_gone_away(host):
    learned: list[Answer | None] = []
    [gone] = host.offer("a", on_answer=learned.append)
    gone.cancel()
    await host.store.next_batch()
    host.store.answer()
    await host.committer.drained()
    assert learned == [OK]


async def test_whoever_must_know_first_is_told_if_the_answer_is_not_known(host):
    learned: list[Answer | None] = []
    answers = host.offer("a", on_answer=learned.append)
    host.store.fail(StoreUnavailable("reply lost"))
    await _answers(answers)
    assert learned == [None]


async def test_runs_that_got_a_message_are_announced_once_per_batch(host):
    answers = host.offer("a", "b", "c")
    host.store.answer(Committed(None, ("parent",)), OK, Committed(None, ("other",)))
    await _answers(answers)
    await host.committer.drained()
    assert host.told == [["parent", "other"]]
    answers = host.offer("d")
    host.store.answer(OK)
    await _answers(answers)
    await host.committer.drained()
    assert host.told == [["parent", "other"]]


async def test_every_run_that_was_changed_is_announced(host):
    answers = host.offer("a", "b", "c", "d")
    host.store.answer(Committed(a_run("run-1")), Refused(a_run("run-2")), OK, Committed(a_run("run-3")))
    await _answers(answers)
    assert host.changed == ["run-1", "run-3"]


async def test_being_drained_is_waited_for(host):
    await host.committer.drained()  # nothing to wait for
    host.offer("a")
    drained = asyncio.create_task(host.committer.drained())
    await host.store.next_batch()
    await asyncio.sleep(0)
    assert not drained.done()
    host.store.answer()
    async with asyncio.timeout(5):
        await drained


async def test_a_stop_of_the_writer_reaches_every_waiter(host):
    answers = host.offer("a", "b")
    await host.store.next_batch()
    host.store.fail(asyncio.CancelledError())
    results = await _answers(answers)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    again = host.offer("c")
    host.store.answer()
    assert await _answers(again) == [OK]


async def test_a_store_that_can_gets_the_next_batch_while_one_is_under_way():
    host = RunHost()
    host.store.portions = Batches(size=2, at_once=2)
    first = host.offer("a")
    await host.store.next_batch()
    second = host.offer("b", "c")
    assert await host.store.next_batch() == ["b", "c"]
    third = host.offer("d", "e", "f")
    await asyncio.sleep(0)
    assert host.store.offered == [["a"], ["b", "c"]]  # no more than two
    for _ in range(4):
        host.store.answer()
    await host.committer.drained()
    assert host.store.offered == [["a"], ["b", "c"], ["d", "e"], ["f"]]
    assert await _answers([*first, *second, *third]) == [OK] * 6


async def test_what_is_ready_together_fills_as_many_batches_as_may_be_under_way():
    host = RunHost()
    host.store.portions = Batches(size=2, at_once=2)
    answers = host.offer(*"abcde")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert host.store.offered == [["a", "b"], ["c", "d"]]
    for _ in range(3):
        host.store.answer()
    assert await _answers(answers) == [OK] * 5
    assert host.store.offered[2:] == [["e"]]


async def test_what_may_have_been_made_in_trouble_is_told_when_it_is_over(host):
    """A change that is offered again does not say again whom it has told: so all look."""
    failed = host.offer("a")
    await host.store.next_batch()
    host.store.fail(StoreUnavailable("reply lost"))
    await _answers(failed)
    assert host.told == []
    again = host.offer("a")
    host.store.answer()
    await _answers(again)
    calm = host.offer("b")
    host.store.answer()
    await _answers(calm)
    assert host.told.count(["everything"]) == 1
