"""A run that has not begun gets the input of the newest start; one that has begun keeps its own."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.kernel import debounces, starts, waits
from holdfast.kernel.changes import Committed, KeyHeldBy, Refused
from holdfast.kernel.debounces import Debouncing
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.starts import Again, Renew, Wanted
from holdfast.ports.store import Store
from tests.builders import FakeClock, wanted
from tests.contract.conftest import Backend
from tests.contract.helpers import A_BLOB, WORKFLOW, claim, committed, completion, history, offer

QUIET = Debouncing(5000, 60_000)
KEY = "order:1"


def a_start(n: int, *, debounce: Debouncing = QUIET, **fields: object) -> Wanted:
    """The wish of the n-th start under one key."""
    entering = debounces.entering(WORKFLOW, KEY)
    given = {"input": {"n": n}, "delay_ms": debounce.quiet_ms, "enters": entering, **fields}
    return wanted(f"run-{n}", debounce=debounce, **given)


async def start(store: Store, wish: Wanted) -> tuple[Run, bool]:
    """Start as the engine does: offer, and do what the kernel says to a refusal."""
    guard = starts.first_guard(wish)
    while True:
        answer = await offer(store, starts.admission(wish, now_ms=store.now_ms(), hand=None, guard=guard))
        if isinstance(answer, Committed):
            assert answer.run is not None
            return answer.run, True
        match starts.resolve(wish, answer.current, now_ms=store.now_ms()):
            case Renew(change):
                renewed = await offer(store, change)
                if isinstance(renewed, Committed):
                    assert renewed.run is not None
                    return renewed.run, False
            case Again(again):
                guard = again
            case other:
                raise AssertionError(other)


async def input_of(store: Store, run_id: str) -> bytes:
    found = await history(store, run_id)
    [first] = found.journal[:1]
    assert first.input == found.run.input  # type: ignore[union-attr]
    return bytes(first.input.json)  # type: ignore[union-attr]


async def test_the_newest_input_is_that_of_the_run(store: Store) -> None:
    first, created = await start(store, a_start(0))
    assert created
    for n in (1, 2):
        run, created = await start(store, a_start(n))
        assert (run.id, created) == (first.id, False)
    assert await input_of(store, "run-0") == b'{"n":2}'
    found = await history(store, "run-0")
    assert (found.run.digest, len(found.journal), found.run.length) == (a_start(2).digest, 1, 1)
    assert (found.run.status, found.run.epoch) == (Status.PENDING, 0)
    assert await store.runs(["run-1", "run-2"]) == []


async def test_each_start_puts_it_off_until_the_latest(store: Store, clock: FakeClock) -> None:
    began_ms = store.now_ms()
    run, _ = await start(store, a_start(0))
    assert run.wake_at_ms == began_ms + 5000
    for n in range(1, 20):
        clock.advance(4000)
        run, _ = await start(store, a_start(n))
        [kept] = await store.runs(["run-0"])
        assert kept.wake_at_ms == run.wake_at_ms == began_ms + min(n * 4000 + 5000, 60_000)
        if n * 4000 >= 60_000:
            break
    assert [each.id for each in await claim(store)] == ["run-0"]


async def test_nothing_is_claimed_before(store: Store, clock: FakeClock) -> None:
    await start(store, a_start(0))
    clock.advance(4999)
    await start(store, a_start(1))
    clock.advance(4999)
    assert await claim(store) == []
    clock.advance(1)
    [run] = await claim(store)
    assert bytes(run.input.json) == b'{"n":1}'  # type: ignore[union-attr]


async def test_one_that_has_begun_keeps_its_input_and_the_start_is_the_next(store: Store, clock: FakeClock) -> None:
    await start(store, a_start(0))
    clock.advance(5000)
    [begun] = await claim(store)
    run, created = await start(store, a_start(1))
    assert (run.id, created, run.holds_key) == ("run-1", True, True)
    run, created = await start(store, a_start(2))
    assert (run.id, created) == ("run-1", False)
    clock.advance(100_000)
    assert await claim(store) == []  # it waits for the one before
    assert await input_of(store, "run-0") == b'{"n":0}'
    assert await input_of(store, "run-1") == b'{"n":2}'
    [begun] = await store.runs([begun.id])
    await committed(store, completion(store, begun))
    assert [each.id for each in await claim(store)] == ["run-1"]


async def test_one_that_waits_for_the_one_before_is_put_off_all_the_same(store: Store, clock: FakeClock) -> None:
    await start(store, a_start(0))
    clock.advance(5000)
    [begun] = await claim(store)
    await start(store, a_start(1))
    clock.advance(10_000)
    await start(store, a_start(2))
    await committed(store, completion(store, begun))
    assert await claim(store) == []
    clock.advance(5000)
    assert [each.id for each in await claim(store)] == ["run-1"]


async def test_one_that_has_ended_gives_its_key_up(store: Store, clock: FakeClock) -> None:
    await start(store, a_start(0))
    clock.advance(5000)
    [begun] = await claim(store)
    await committed(store, completion(store, begun))
    run, created = await start(store, a_start(0, request_id="another"))
    assert (run.id, created) == ("run-0", True)  # the same start, offered again
    run, created = await start(store, a_start(1))
    assert (run.id, created) == ("run-1", True)


async def test_a_change_that_is_offered_again_writes_nothing_more(store: Store, clock: FakeClock) -> None:
    first, _ = await start(store, a_start(0))
    resolution = starts.resolve(a_start(1), first, now_ms=store.now_ms())
    assert isinstance(resolution, Renew)
    once = await committed(store, resolution.change)
    clock.advance(1000)
    assert await committed(store, resolution.change) == once
    await start(store, a_start(2))
    assert isinstance(await offer(store, resolution.change), Refused)
    assert await input_of(store, "run-0") == b'{"n":2}'


async def test_what_was_kept_of_the_former_input_goes(store: Store) -> None:
    await start(store, a_start(0, blobs=(A_BLOB,)))
    assert await store.blob("run-0", A_BLOB.digest) == A_BLOB.data
    await start(store, a_start(1))
    assert await store.blob("run-0", A_BLOB.digest) is None
    await start(store, a_start(2, blobs=(A_BLOB,)))
    assert await store.blob("run-0", A_BLOB.digest) == A_BLOB.data


async def test_it_says_what_it_waits_for(store: Store) -> None:
    await start(store, a_start(0))
    run, _ = await start(store, a_start(1))
    [kept] = await store.runs([run.id])
    for each in (run, kept):
        [wait] = waits.waits_of(each, served={WORKFLOW}, now_ms=store.now_ms())
        assert (wait.kind, wait.until_ms) == ("debounce", each.wake_at_ms)


async def test_a_key_that_was_taken_keeps_what_its_run_has(store: Store) -> None:
    first, _ = await start(store, a_start(0))
    resolution = starts.resolve(a_start(1), first, now_ms=store.now_ms())
    assert isinstance(resolution, Renew)
    await committed(
        store, starts.admission(a_start(7), now_ms=store.now_ms(), hand=None, guard=KeyHeldBy(first.id, first.fence))
    )
    assert isinstance(await offer(store, resolution.change), Refused)
    assert await input_of(store, "run-0") == b'{"n":0}'


@pytest.mark.parametrize("rounds", [5])
async def test_raced_by_claims_no_start_is_lost(backend: Backend, rounds: int) -> None:
    """Every input is that of a run that began after it, or of an older one of the same round that was replaced."""
    stores = [await backend.another() for _ in range(3)]
    quiet = Debouncing(1, None)
    begun: list[int] = []
    for round_ in range(rounds):
        numbers = [round_ * 10 + n for n in range(6)]
        held: list[Run] = []

        async def claims(held: list[Run] = held) -> None:
            for _ in range(6):
                backend.clock.advance(1)
                held += await claim(stores[2], "w-1")

        await asyncio.gather(
            *(start(stores[n % 2], a_start(n, debounce=quiet)) for n in numbers),
            claims(),
        )
        while True:
            for run in held:
                begun.append(int(bytes(run.input.json)[5:-1]))  # type: ignore[union-attr]
                await committed(stores[2], completion(stores[2], run))
            backend.clock.advance(10)
            held = await claim(stores[2], "w-1")
            if not held:
                break
        assert begun[-1] in numbers
    assert len(begun) == len(set(begun))
