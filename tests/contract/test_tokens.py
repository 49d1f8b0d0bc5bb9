"""A token belongs to one live run, and is free when that run has ended, closed it, or is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.kernel import hooks, transitions
from holdfast.kernel.changes import Change, Committed, HookOpen, Refused, TokenFree
from holdfast.kernel.messages import SignalMessage
from holdfast.kernel.runs import Run
from holdfast.ports.store import KnownHook, Store
from tests.builders import FakeClock, performed
from tests.contract.conftest import Backend
from tests.contract.helpers import (
    a_signal,
    admission,
    admitted,
    blockage,
    claim,
    committed,
    completion,
    everything,
    failure,
    held,
    let_go,
    offer,
    opening,
    refused,
    signalled,
    unread,
)

TOKEN = "payment:77"
HOOK = HookOpen("paid", TOKEN, b'{"type":"string"}')


def _closing(store: Store, run: Run, hook: HookOpen = HOOK) -> Change:
    recorded = transitions.Recorded((performed(f"close-{run.length}#1"),), closes=(hook,))
    return transitions.decide(run, transitions.Progressed(), recorded=recorded, now_ms=store.now_ms())


async def _two(store: Store) -> tuple[Run, Run]:
    """Two runs; the first has the token."""
    first, second = await held(store, "run-1", key="1"), await held(store, "run-2", key="2")
    assert await committed(store, opening(first, HOOK)) == first
    return first, second


async def _owner(store: Store, token: str = TOKEN) -> str | None:
    known = await store.hook_of_token("default", token)
    return None if known is None else known.run.id


async def _resumed(store: Store, run_id: str, signal: SignalMessage, token: str = TOKEN) -> Run:
    return await committed(store, hooks.to_token(run_id, "default", token, signal))


async def test_the_token_names_its_hook_its_run_and_the_shape_of_its_payload(store: Store) -> None:
    first, _ = await _two(store)
    assert await store.hook_of_token("default", TOKEN) == KnownHook(first, HOOK)
    assert await store.hook("run-1", "paid") == HOOK
    assert await store.hook_of_token("default", "another") is None
    assert await store.hook_of_token("tenant", TOKEN) is None
    assert await store.hook("run-1", "another") is None
    assert await store.hook("run-2", "paid") is None


async def test_a_live_owner_refuses_everybody_else_and_is_named(store: Store) -> None:
    first, second = await _two(store)
    before = await everything(store, "run-1", "run-2")
    assert await refused(store, opening(second, HOOK)) == first
    assert await everything(store, "run-1", "run-2") == before
    assert await store.hook_of_token("default", TOKEN) == KnownHook(first, HOOK)


@pytest.mark.parametrize("state", ["pending", "waiting", "blocked"])
async def test_an_owner_that_only_waits_is_alive(store: Store, state: str) -> None:
    first, second = await _two(store)
    if state == "pending":
        await store.leave("w-1")
        [_, second] = sorted(await claim(store, "w-2"), key=lambda run: run.id)
    else:
        await committed(store, let_go(store, first) if state == "waiting" else blockage(store, first))
    assert await refused(store, opening(second, HOOK)) == await store.run("default", "run-1")


async def test_of_64_claims_one_is_granted(backend: Backend) -> None:
    """K12, from several stores on the same data."""
    stores = [await backend.another() for _ in range(4)]
    runs_ = [await held(stores[0], f"run-{n}", key=None) for n in range(64)]
    answers = await asyncio.gather(*(offer(stores[n % 4], opening(run, HOOK)) for n, run in enumerate(runs_)))
    [winner] = [answer.run for answer in answers if isinstance(answer, Committed)]
    assert winner is not None
    assert {answer.current and answer.current.id for answer in answers if isinstance(answer, Refused)} == {winner.id}
    assert await _owner(stores[1]) == winner.id


async def test_the_same_token_in_two_namespaces_is_two_tokens(store: Store) -> None:
    await _two(store)
    foreign = await held(store, "run-3", key="1", namespace="tenant")
    await committed(store, opening(foreign, HOOK))
    assert await _owner(store) == "run-1"
    assert await store.hook_of_token("tenant", TOKEN) == KnownHook(foreign, HOOK)


async def test_an_owner_may_open_its_token_again(store: Store) -> None:
    """After a crash it asks again, and the shape may have changed with a new version of the code."""
    first, _ = await _two(store)
    newer = replace(HOOK, schema=b'{"type":"integer"}')
    for hook in (HOOK, newer):
        await committed(store, opening(first, hook))
        assert await store.hook_of_token("default", TOKEN) == KnownHook(first, hook)
        assert await store.hook("run-1", "paid") == hook


async def test_an_owner_may_open_its_token_under_another_name(store: Store) -> None:
    first, second = await _two(store)
    moved = replace(HOOK, name="settled")
    await committed(store, opening(first, moved))
    assert await store.hook_of_token("default", TOKEN) == KnownHook(first, moved)
    closed = await committed(store, _closing(store, first, HOOK))  # the old name has it no longer
    assert await store.hook_of_token("default", TOKEN) == KnownHook(await _now(store), moved)
    assert isinstance(await offer(store, opening(second, HOOK)), Refused)
    await committed(store, _closing(store, closed, moved))
    assert await _owner(store) is None


async def _now(store: Store, run_id: str = "run-1") -> Run:
    [run] = await store.runs([run_id])
    return run


async def test_one_run_may_hold_many_tokens(store: Store) -> None:
    first, _ = await _two(store)
    more = [HookOpen("paid", f"payment:{n}") for n in range(3)]
    for hook in more:
        await committed(store, opening(first, hook))
    assert [await _owner(store, hook.token or "") for hook in more] == ["run-1"] * 3
    assert await store.hook("run-1", "paid") == more[-1]  # the newest
    await committed(store, _closing(store, first, more[1]))
    assert [await _owner(store, hook.token or "") for hook in more] == ["run-1", None, "run-1"]
    assert await _owner(store) == "run-1"


@pytest.mark.parametrize("end", [completion, failure])
async def test_the_token_of_an_ended_run_is_free(store: Store, end: Callable[[Store, Run], Change]) -> None:
    first, second = await _two(store)
    done = await committed(store, end(store, first))
    assert await store.hook_of_token("default", TOKEN) == KnownHook(done, HOOK)  # known, as long as no run wants it
    assert await refused(store, hooks.to_token("run-1", "default", TOKEN, a_signal())) == done
    await committed(store, opening(second, HOOK))
    assert await store.hook_of_token("default", TOKEN) == KnownHook(second, HOOK)
    assert (await _resumed(store, "run-2", a_signal())).unread == 1


async def test_a_closed_token_is_free(store: Store) -> None:
    first, second = await _two(store)
    await committed(store, _closing(store, first))
    assert await store.hook_of_token("default", TOKEN) is None
    assert await store.hook("run-1", "paid") is None
    await refused(store, hooks.to_token("run-1", "default", TOKEN, a_signal()))
    await committed(store, opening(second, HOOK))
    assert await _owner(store) == "run-2"


async def test_whoever_lost_its_token_takes_nothing_back_by_closing_it(store: Store) -> None:
    first, second = await _two(store)
    closed = await committed(store, _closing(store, first))
    await committed(store, opening(second, HOOK))
    await committed(store, _closing(store, closed))
    assert await _owner(store) == "run-2"
    assert (await _resumed(store, "run-2", a_signal())).id == "run-2"


async def test_the_token_of_a_pruned_run_is_free_and_that_of_its_successor_stays(
    store: Store, clock: FakeClock
) -> None:
    gone, follower = HookOpen("paid", "gone"), HookOpen("paid", "handed on")
    first = await held(store, "run-1", key="1", retention_ms=0)
    for hook in (gone, follower):
        await committed(store, opening(first, hook))
    await committed(store, completion(store, first))
    second = await held(store, "run-2", key="2")
    await committed(store, opening(second, follower))
    clock.advance(1)
    assert await store.prune(10) == 1
    assert (await _owner(store, "gone"), await _owner(store, "handed on")) == (None, "run-2")
    await committed(store, opening(second, gone))
    assert await _owner(store, "gone") == "run-2"


async def test_a_run_that_has_been_taken_away_claims_no_token(store: Store) -> None:
    stale = await held(store)
    await store.leave("w-1")
    [current] = await claim(store, "w-2")
    assert await refused(store, opening(stale, HOOK)) == current
    assert await _owner(store) is None
    await committed(store, opening(current, HOOK))


async def test_nobody_claims_a_token_for_a_run_that_is_not_there(store: Store) -> None:
    run = await held(store)
    change = Change("x", TokenFree(replace(run.fence, run_id="nobody"), "default", TOKEN), opens=(HOOK,))
    assert await refused(store, change) is None
    assert await _owner(store) is None


async def test_a_signal_by_token_reaches_the_owner_once(store: Store) -> None:
    await _two(store)
    await signalled(store, "run-2", 9)
    for _ in range(2):
        assert (await _resumed(store, "run-1", a_signal())).unread == 1
    assert await unread(store, "run-1") == (a_signal(),)
    assert await unread(store, "run-2") == (a_signal(9),)


async def test_a_signal_by_token_to_somebody_else_is_refused(store: Store) -> None:
    """The token moved between the look and the commit."""
    first, second = await _two(store)
    assert await refused(store, hooks.to_token("run-2", "default", TOKEN, a_signal())) == second
    assert await refused(store, hooks.to_token("run-1", "default", "another", a_signal())) == first
    assert await refused(store, hooks.to_token("run-1", "tenant", TOKEN, a_signal())) == first
    assert await refused(store, hooks.to_token("nobody", "default", TOKEN, a_signal())) is None
    assert (await unread(store, "run-1"), await unread(store, "run-2")) == ((), ())


async def test_a_repeated_signal_by_token_meets_the_first_one_though_the_token_moved(store: Store) -> None:
    first, second = await _two(store)
    await _resumed(store, "run-1", a_signal())
    recorded = transitions.Recorded(read=(a_signal().id,))
    await committed(store, completion(store, first, recorded=recorded))
    await committed(store, opening(second, HOOK))
    assert (await _resumed(store, "run-2", a_signal())).id == "run-1"
    assert await unread(store, "run-2") == ()


async def test_a_signal_by_token_that_an_earlier_version_sent_is_known_under_its_token(store: Store) -> None:
    await _two(store)
    message = hooks.token_signal(TOKEN, "paid", b"1", dedupe="d", nonce="")
    former = replace(message, id=hooks.signal_id(f"token {TOKEN}", "d"))
    await _resumed(store, "run-1", former)
    before = await everything(store)
    assert (await _resumed(store, "run-1", message)).id == "run-1"
    assert await everything(store) == before
    # What was sent to a hook of this name is another signal, and stands in no one's way.
    other = hooks.signal(f"token {TOKEN}", b"1", dedupe="e", nonce="")
    await committed(store, hooks.to_run("run-1", other))
    by_token = hooks.token_signal(TOKEN, "paid", b"1", dedupe="e", nonce="")
    assert (await _resumed(store, "run-1", by_token)).unread == 3
    assert await unread(store, "run-1") == (former, other, by_token)


async def test_a_hook_without_a_token_is_known_by_its_run_alone(store: Store) -> None:
    run = await held(store)
    plain = HookOpen("approved", None, b'{"type":"boolean"}')
    recorded = transitions.Recorded((performed(),), opens=(plain,))
    run = await committed(
        store, transitions.decide(run, transitions.Progressed(), recorded=recorded, now_ms=store.now_ms())
    )
    assert await store.hook("run-1", "approved") == plain
    await admitted(store, "run-2", key="2")
    assert await store.hook("run-2", "approved") is None
    again = replace(plain, schema=b'{"type":"string"}')
    recorded = transitions.Recorded((performed("x#1"),), opens=(again,))
    run = await committed(
        store, transitions.decide(run, transitions.Progressed(), recorded=recorded, now_ms=store.now_ms())
    )
    assert await store.hook("run-1", "approved") == again
    await committed(store, _closing(store, run, again))
    assert await store.hook("run-1", "approved") is None


async def test_a_token_outlives_its_owners_worker(store: Store) -> None:
    await store.join("w-1", 1_000)
    first, _ = await _two(store)
    await store.leave("w-1")
    assert await _owner(store) == first.id
    assert (await _resumed(store, first.id, a_signal())).unread == 1


async def test_an_admission_brings_the_hooks_whose_tokens_are_free(store: Store) -> None:
    """A fork goes on with the hooks of its source, as far as they are not another run's by now."""
    await _two(store)
    free, ended_, plain = HookOpen("a", "free"), HookOpen("b", "ended"), HookOpen("c", None, b"{}")
    gone = await held(store, "run-3", key=None)
    await committed(store, opening(gone, ended_))
    await committed(store, completion(store, gone))
    change = replace(admission(store, "fork", key="3"), opens=(free, HOOK, ended_, plain))
    fork = await committed(store, change)
    assert [await _owner(store, token) for token in ("free", TOKEN, "ended")] == ["fork", "run-1", "fork"]
    assert [await store.hook("fork", hook.name) for hook in (free, HOOK, ended_, plain)] == [free, None, ended_, plain]
    assert await store.hook_of_token("default", "free") == KnownHook(fork, free)


async def test_a_repeated_admission_takes_no_token_back(store: Store) -> None:
    change = replace(admission(store, "fork", key="3", owner="w-1"), opens=(HOOK,))
    fork = await committed(store, change)
    await committed(store, _closing(store, fork))
    second = await held(store, "run-2", key="2")
    await committed(store, opening(second, HOOK))
    await committed(store, change)
    assert await _owner(store) == "run-2"


async def test_a_refused_admission_opens_nothing(store: Store) -> None:
    await held(store)
    await refused(store, replace(admission(store, "run-2"), opens=(HOOK,)))
    assert await _owner(store) is None
