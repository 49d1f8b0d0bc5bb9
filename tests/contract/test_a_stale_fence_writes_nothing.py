"""A fence once refused stays refused, and what came under it leaves no trace: journal, blobs, beats, messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from holdfast.kernel import attributes, transitions
from holdfast.kernel.changes import Change, HookOpen, Refused, Shown, TokenFree
from holdfast.kernel.runs import Fenced, Run
from holdfast.ports.store import Store
from tests.builders import FakeClock, performed
from tests.contract.helpers import (
    A_BEAT,
    ANOTHER_BLOB,
    HOOK,
    Everything,
    beat,
    blockage,
    claim,
    committed,
    completion,
    everything,
    failure,
    held,
    let_go,
    message_of_child,
    offer,
    opening,
    progress,
    replaces_journal,
    retry,
    rich,
    token_of,
)

MESSAGE = message_of_child("run-1")


def _changes(store: Store, run: Run) -> list[Change]:
    """Every kind of write that an owner makes."""
    entry = performed()
    recorded = transitions.Recorded((entry,), (ANOTHER_BLOB,), (MESSAGE,))
    shown = Shown(attributes.encode({"customer": "another"}), b"[]")
    hooks = transitions.Recorded((entry,), opens=(HookOpen("other"),), closes=(HookOpen(HOOK, token_of("run-1")),))
    kinds = [
        progress(store, run, entry, blobs=(ANOTHER_BLOB,), read=(MESSAGE,)),
        let_go(store, run, wake_at_ms=1, read=(MESSAGE,)),
        completion(store, run, recorded=recorded),
        failure(store, run),
        blockage(store, run),
        transitions.decide(
            run, transitions.Progressed(), recorded=replace(recorded, shown=shown), now_ms=store.now_ms()
        ),
        transitions.decide(run, transitions.Progressed(), recorded=hooks, now_ms=store.now_ms()),
        replaces_journal(store, run, recorded=recorded),
        beat(run, replace(A_BEAT, details=b"99"), count=2),
    ]
    beaten = replace(kinds[0], beats=(replace(A_BEAT, details=b"98"),))
    return [*kinds, beaten, opening(run, HookOpen("other", "another token"))]


def _row(found: list[Everything], run_id: str) -> Run:
    [run] = [each.history.run for each in found if each.history.run.id == run_id]
    return run


@pytest.mark.parametrize("nth", range(11))
@pytest.mark.parametrize("wrong", ["older epoch", "newer epoch", "other nonce"])
async def test_a_write_at_another_fence_leaves_no_trace(store: Store, nth: int, wrong: str) -> None:
    await held(store, "parent", key=None, owner="w-0")
    run = await rich(store)
    fence = {
        "older epoch": Fenced(run.id, run.epoch - 1, run.nonce),
        "newer epoch": Fenced(run.id, run.epoch + 1, run.nonce),
        "other nonce": Fenced(run.id, run.epoch, "another"),
    }[wrong]
    before = await everything(store, "run-1", "parent")
    change = _changes(store, run)[nth]
    guard = replace(change.guard, fence=fence) if isinstance(change.guard, TokenFree) else fence
    answer = await offer(store, replace(change, guard=guard))
    assert answer == Refused(_row(before, "run-1")), answer
    assert await everything(store, "run-1", "parent") == before


@pytest.mark.parametrize("nth", range(8))
@pytest.mark.parametrize("off_by", [-1, 1])
async def test_a_write_that_does_not_follow_the_journals_end_leaves_no_trace(
    store: Store, nth: int, off_by: int
) -> None:
    """Two writers at one fence: a fork of the process, or a commit whose reply never came."""
    await held(store, "parent", key=None, owner="w-0")
    run = await rich(store)
    await committed(store, progress(store, run, performed("first#1")))
    before = await everything(store, "run-1", "parent")
    elsewhere = replace(run, length=run.length + 1 + off_by)
    answer = await offer(store, replace(_changes(store, elsewhere)[nth], id="of the other writer"))
    assert isinstance(answer, Refused), answer
    assert await everything(store, "run-1", "parent") == before


async def _leave(store: Store, clock: FakeClock, run: Run) -> None:
    await store.leave("w-1")


async def _rescue(store: Store, clock: FakeClock, run: Run) -> None:
    clock.advance(2_000)
    assert await store.rescue(10) == ["run-1"]


async def _reclaim(store: Store, clock: FakeClock, run: Run) -> None:
    await store.leave("w-1")
    assert len(await claim(store, "w-2")) == 1


async def _end_and_retry(store: Store, clock: FakeClock, run: Run) -> None:
    await committed(store, await retry(store, await committed(store, failure(store, run))))


@pytest.mark.parametrize("how", [_leave, _rescue, _reclaim, _end_and_retry])
async def test_whoever_lost_a_run_is_refused_from_then_on(
    store: Store, clock: FakeClock, how: Callable[[Store, FakeClock, Run], Awaitable[None]]
) -> None:
    await store.join("w-1", 1_000)
    run = await held(store)
    await how(store, clock, run)
    before = await everything(store)
    for change in (
        progress(store, run, performed()),
        completion(store, run),
        let_go(store, run),
        beat(run),
        opening(run, HookOpen(HOOK, "token")),
    ):
        assert isinstance(await offer(store, change), Refused)
    assert await everything(store) == before


async def test_the_epoch_only_ever_grows(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", 1_000)
    await store.join("w-2", 1_000)
    epochs = [(await held(store)).epoch]
    await store.leave("w-1")
    [run] = await claim(store, "w-2")
    epochs.append(run.epoch)
    clock.advance(2_000)
    await store.rescue(10)
    await store.join("w-3", 100_000)
    [run] = await claim(store, "w-3")
    epochs.append(run.epoch)
    await committed(store, await retry(store, await committed(store, failure(store, run))))
    [run] = await claim(store, "w-3")
    epochs.append(run.epoch)
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("how", ["goes on", "lets go", "completes", "fails", "is blocked"])
async def test_of_two_holders_to_whom_one_epoch_was_issued_the_second_learns_that_it_lost(
    store: Store, how: str
) -> None:
    """A failover of the store may forget a claim, and issue its epoch again. Only the nonce tells the two apart."""
    winner = await held(store)
    loser = replace(winner, nonce="of a claim that was forgotten")
    write = {
        "goes on": lambda run, step: progress(store, run, performed(step)),
        "lets go": lambda run, _: let_go(store, run, wake_at_ms=1),
        "completes": lambda run, step: completion(store, run, step),
        "fails": lambda run, _: failure(store, run),
        "is blocked": lambda run, _: blockage(store, run),
    }[how]
    await committed(store, write(winner, "charge#1"))
    before = await everything(store, "run-1")
    assert isinstance(await offer(store, write(loser, "refund#1")), Refused)
    assert await everything(store, "run-1") == before
