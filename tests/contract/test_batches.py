"""Items go into a batch as long as it has room and has not begun."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec import Raw

from holdfast.kernel import batches, hooks, starts, transitions, waits
from holdfast.kernel.changes import Committed, Refused
from holdfast.kernel.messages import Envelope, SignalMessage, size
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.starts import Again, Tell, Wanted
from holdfast.ports.store import Store
from tests.builders import FakeClock, wanted
from tests.contract.conftest import Backend
from tests.contract.helpers import WORKFLOW, claim, committed, completion, history, offer

KEY = "batch:t"


def an_item(name: str, *, room: int = 3, payload: object = None) -> Wanted:
    """The wish of an item, which has the run of a batch if it opens one."""
    message = hooks.signal(
        batches.ITEM, msgspec.json.encode(name if payload is None else payload), dedupe=name, nonce="", by_key=True
    )
    return wanted(f"batch-of-{name}", key=KEY, input={"items": []}, delay_ms=2000, gathers=room, signal=message)


async def start(store: Store, wish: Wanted) -> tuple[Run, bool]:
    """Start as the engine does: offer, and do what the kernel says to a refusal."""
    guard = starts.first_guard(wish)
    for _ in range(100):
        answer = await offer(store, starts.admission(wish, now_ms=store.now_ms(), hand=None, guard=guard))
        if isinstance(answer, Committed):
            assert answer.run is not None
            return answer.run, answer.run.id == wish.run_id
        match starts.resolve(wish, answer.current, now_ms=store.now_ms()):
            case Tell(change):
                told = await offer(store, change)
                if isinstance(told, Committed):
                    assert told.run is not None
                    return told.run, bool(told.told)
                guard = starts.after_refusal(wish, told.current)
            case Again(again):
                guard = again
            case other:
                raise AssertionError(other)
    raise AssertionError("it goes on and on")


async def items_of(store: Store, run_id: str) -> list[object]:
    found = await history(store, run_id)
    return [msgspec.json.decode(each.payload) for each in found.messages if isinstance(each, SignalMessage)]


async def test_items_go_into_the_batch_in_the_order_in_which_they_come(store: Store, clock: FakeClock) -> None:
    for name in ("a", "b"):
        run, created = await start(store, an_item(name))
        assert (run.id, created) == ("batch-of-a", True)
    assert await claim(store) == []
    clock.advance(2000)
    [begun] = await claim(store)
    assert (begun.id, begun.unread) == ("batch-of-a", 2)
    assert await items_of(store, "batch-of-a") == ["a", "b"]


async def test_the_last_item_that_there_is_room_for_lets_it_go(store: Store) -> None:
    for name in ("a", "b", "c"):
        await start(store, an_item(name))
    assert [run.id for run in await claim(store)] == ["batch-of-a"]


async def test_the_next_item_opens_the_next_batch(store: Store) -> None:
    for name in ("a", "b", "c", "d"):
        run, _ = await start(store, an_item(name))
    assert run.id == "batch-of-d"
    assert (await store.run_of_key("default", WORKFLOW, KEY)) == run
    [full] = await store.runs(["batch-of-a"])
    assert (full.holds_key, full.status) == (False, Status.PENDING)
    assert [run.id for run in await claim(store)] == ["batch-of-a"]
    assert await items_of(store, "batch-of-d") == ["d"]


async def test_one_that_has_begun_gets_no_more(store: Store, clock: FakeClock) -> None:
    await start(store, an_item("a"))
    clock.advance(2000)
    [begun] = await claim(store)
    run, created = await start(store, an_item("b"))
    assert (run.id, created) == ("batch-of-b", True)
    assert await items_of(store, begun.id) == ["a"]


async def test_one_that_has_ended_gets_no_more(store: Store, clock: FakeClock) -> None:
    await start(store, an_item("a"))
    clock.advance(2000)
    [begun] = await claim(store)
    [message] = (await history(store, begun.id)).messages
    await committed(store, completion(store, begun, recorded=transitions.Recorded(read=(message.id,))))
    run, _ = await start(store, an_item("b"))
    assert run.id == "batch-of-b"


async def test_an_item_is_in_a_batch_once(store: Store, clock: FakeClock) -> None:
    await start(store, an_item("a"))
    await start(store, an_item("b"))
    for name in ("a", "b"):
        run, created = await start(store, msgspec.structs.replace(an_item(name), run_id="another"))
        assert (run.id, created) == ("batch-of-a", False)
    clock.advance(2000)
    await claim(store)
    run, created = await start(store, msgspec.structs.replace(an_item("b"), run_id="another"))
    assert (run.id, created) == ("batch-of-a", False)
    assert await store.runs(["another"]) == []


async def test_bytes_count(store: Store) -> None:
    half = "x" * (batches.BYTES_MAX // 2)
    first = await start(store, an_item("a", payload=half))
    second = await start(store, an_item("b", payload=half))
    third = await start(store, an_item("c", payload="y"))
    assert [run.id for run, _ in (first, second, third)] == ["batch-of-a", "batch-of-b", "batch-of-b"]


@pytest.mark.parametrize("more", [0, 1])
async def test_to_the_byte(store: Store, more: int) -> None:
    await start(store, an_item("a"))
    [held] = (await history(store, "batch-of-a")).messages
    message = hooks.signal(batches.ITEM, b'"b"', dedupe="b", nonce="", by_key=True)
    room = size(held) + size(message) - more
    guard = msgspec.structs.replace(
        batches.add(*(await store.runs(["batch-of-a"])), Envelope("batch-of-a", message), size=3).guard, bytes_max=room
    )
    change = batches.add(*(await store.runs(["batch-of-a"])), Envelope("batch-of-a", message), size=3)
    answer = await offer(store, msgspec.structs.replace(change, guard=guard))
    assert isinstance(answer, Refused if more else Committed)


async def test_a_change_that_is_offered_again_writes_nothing_more(store: Store) -> None:
    first, _ = await start(store, an_item("a"))
    resolution = starts.resolve(an_item("b"), first, now_ms=store.now_ms())
    assert isinstance(resolution, Tell)
    once = await committed(store, resolution.change)
    answer = await offer(store, resolution.change)
    assert isinstance(answer, Committed)
    assert (answer.run, answer.told) == (once, ())
    assert await items_of(store, "batch-of-a") == ["a", "b"]


async def test_a_batch_that_is_not_there_is_refused(store: Store) -> None:
    first, _ = await start(store, an_item("a"))
    message = SignalMessage("signal/x", batches.ITEM, Raw(b"1"))
    ghost = msgspec.structs.replace(first, id="ghost")
    assert await offer(store, batches.add(ghost, Envelope("ghost", message), size=3)) == Refused(None)


async def test_it_says_how_many_it_has(store: Store) -> None:
    await start(store, an_item("a"))
    run, _ = await start(store, an_item("b"))
    [wait] = waits.waits_of(run, served={WORKFLOW}, now_ms=store.now_ms())
    assert (wait.kind, wait.ahead, wait.until_ms) == ("batch", 2, run.wake_at_ms)


async def test_many_processes_fill_batches_to_the_last_place(backend: Backend) -> None:
    stores = [await backend.another() for _ in range(3)]
    await asyncio.gather(*(start(stores[n % 3], an_item(f"i{n}", room=7)) for n in range(60)))
    found = await claim(stores[0])
    backend.clock.advance(2000)
    found += await claim(stores[0])
    items = [item for run in found for item in await items_of(stores[0], run.id)]
    assert sorted(map(str, items)) == sorted(f"i{n}" for n in range(60))
    assert max(run.unread for run in found) == 7
    assert len(found) == 9
