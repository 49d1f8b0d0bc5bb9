"""A message is received once, in order, and remembered as long as its run; a run ends over an empty inbox."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.kernel import cancels, hooks, transitions
from holdfast.kernel.changes import Alive, Change, Committed
from holdfast.kernel.messages import CancelRequest, Envelope, KeyTaken
from holdfast.kernel.runs import Run, Status
from holdfast.ports.store import Store
from tests.builders import FakeClock, a_failure, performed
from tests.contract.conftest import Backend
from tests.contract.helpers import (
    a_signal,
    admitted,
    blockage,
    claim,
    committed,
    completion,
    ended,
    everything,
    held,
    history,
    let_go,
    offer,
    progress,
    refused,
    retry,
    sending,
    signalled,
    stop,
    takeover,
    unread,
)

SCOPE = "key/7/default/shop.checkout/order:1"


async def _count(store: Store, run_id: str = "run-1") -> int:
    [run] = await store.runs([run_id])
    return run.unread


async def test_a_message_comes_back_as_it_was_sent(store: Store) -> None:
    await held(store)
    payload: dict[str, object] = {"ü": ["🎈", None, 1.5, {"deep": []}]}
    sent = (
        a_signal(payload),
        CancelRequest("cancel/1", 1_700_000_000_123, "ordered by 🎈"),
        CancelRequest("cancel/2", 0),
        KeyTaken("key_taken/1", "a person"),
    )
    for message in sent:
        change = Change(f"run-1/{message.id}", Alive("run-1"), envelopes=(Envelope("run-1", message),))
        await committed(store, change)
    assert await unread(store) == sent
    assert await store.messages("w-1") == {"run-1": list(sent)}


async def test_messages_are_read_in_the_order_in_which_they_came(store: Store, clock: FakeClock) -> None:
    await held(store)
    numbers = [3, 1, 9, 2, 7, 5]
    for number in numbers:
        await signalled(store, "run-1", number)
        clock.advance(1)
    assert await unread(store) == tuple(map(a_signal, numbers))
    assert await store.messages("w-1") == {"run-1": list(map(a_signal, numbers))}
    assert await _count(store) == 6


async def test_messages_of_one_commit_keep_their_order(store: Store) -> None:
    await held(store)
    answers = await store.commit([sending("run-1", number) for number in range(20)])
    assert all(isinstance(answer, Committed) and answer.told == ("run-1",) for answer in answers)
    assert await unread(store) == tuple(map(a_signal, range(20)))


async def test_the_answer_tells_who_got_it_and_shows_the_run_as_it_is(store: Store) -> None:
    await held(store)
    answer = await offer(store, sending())
    [run] = await store.runs(["run-1"])
    assert answer == Committed(run, ("run-1",))
    assert run.unread == 1


async def test_a_message_is_received_once_by_a_run(store: Store) -> None:
    await held(store)
    await signalled(store)
    before = await everything(store)
    answer = await offer(store, sending())
    assert isinstance(answer, Committed)
    assert (answer.told, answer.run) == ((), before[0].history.run)
    assert await everything(store) == before


async def test_of_64_equal_messages_at_once_one_is_received(backend: Backend) -> None:
    stores = [await backend.another() for _ in range(4)]
    await held(stores[0])
    answers = await asyncio.gather(*(offer(stores[n % 4], sending()) for n in range(64)))
    assert sum(isinstance(answer, Committed) and answer.told == ("run-1",) for answer in answers) == 1
    assert all(isinstance(answer, Committed) for answer in answers)
    assert await unread(stores[0]) == (a_signal(),)
    assert await _count(stores[0]) == 1


async def test_two_hooks_and_two_runs_have_ids_of_their_own(store: Store) -> None:
    await held(store, "run-1", key="1")
    await held(store, "run-2", key="2")
    same = [a_signal(1, hook="a"), a_signal(1, hook="b")]
    for message in same:
        await committed(store, hooks.to_run("run-1", message))
    await committed(store, hooks.to_run("run-2", same[0]))
    assert await unread(store, "run-1") == tuple(same)
    assert await unread(store, "run-2") == (same[0],)


async def test_what_has_been_read_is_gone_and_still_known(store: Store) -> None:
    run = await held(store)
    await signalled(store, "run-1", 1)
    await signalled(store, "run-1", 2)
    await committed(store, progress(store, run, performed(), read=(a_signal(1).id,)))
    assert await unread(store) == (a_signal(2),)
    assert await _count(store) == 1
    assert (await signalled(store, "run-1", 1)).unread == 1
    assert await unread(store) == (a_signal(2),)
    assert await store.messages("w-1") == {"run-1": [a_signal(2)]}


async def test_what_came_after_the_owner_looked_stays_unread(store: Store) -> None:
    run = await held(store)
    await signalled(store, "run-1", 1)
    change = progress(store, run, performed(), read=(a_signal(1).id,))
    await signalled(store, "run-1", 2)
    await committed(store, change)
    assert await unread(store) == (a_signal(2),)
    assert await _count(store) == 1


async def test_a_message_is_known_after_its_run_has_ended(store: Store) -> None:
    """The sender who repeats itself learns that it was received, not that it came too late."""
    run = await held(store)
    await signalled(store)
    recorded = transitions.Recorded((performed(),), read=(a_signal().id,))
    done = await committed(store, completion(store, run, recorded=recorded))
    answer = await offer(store, sending())
    assert answer == Committed(await store.run("default", "run-1"))
    assert await refused(store, sending("run-1", "new")) == await store.run("default", "run-1")
    assert done.status is Status.COMPLETED
    assert await unread(store) == ()


async def test_a_message_is_known_until_its_run_is_pruned(store: Store, clock: FakeClock) -> None:
    run = await held(store, retention_ms=1_000)
    await signalled(store, scope=SCOPE)
    await committed(store, completion(store, run, recorded=transitions.Recorded(read=(a_signal().id,))))
    clock.advance(1_000)
    assert await store.prune(10) == 1
    assert await refused(store, sending(scope=SCOPE)) is None
    await held(store)
    assert (await signalled(store, scope=SCOPE)).unread == 1


async def test_a_message_is_received_once_in_its_scope(store: Store) -> None:
    """The same request to the next owner of a key or a token meets the first one, whichever run got it."""
    first = await held(store, "run-1", key="1")
    await signalled(store, "run-1", 1, scope=SCOPE)
    await committed(store, takeover(store, first, "run-2", key="1"))
    answer = await offer(store, sending("run-2", 1, scope=SCOPE))
    assert answer == Committed(await store.run("default", "run-1"))
    await committed(store, completion(store, first, recorded=transitions.Recorded(read=(a_signal(1).id,))))
    answer = await offer(store, sending("run-2", 1, scope=SCOPE))
    assert answer == Committed(await store.run("default", "run-1"))
    assert await unread(store, "run-2") == ()
    assert await _count(store, "run-2") == 0


async def test_scopes_do_not_meet_each_other_nor_the_absence_of_one(store: Store) -> None:
    for number in range(4):
        await held(store, f"run-{number}", key=f"{number}")
    for number, scope in enumerate(["", SCOPE, f"{SCOPE}0", ""]):
        assert (await signalled(store, f"run-{number}", 1, scope=scope)).id == f"run-{number}"
    assert [await _count(store, f"run-{number}") for number in range(4)] == [1, 1, 1, 1]


async def test_an_ended_and_an_unknown_run_receive_nothing(store: Store) -> None:
    done = await ended(store)
    before = await everything(store)
    assert await refused(store, sending()) == done
    assert await refused(store, sending("nobody")) is None
    assert await refused(store, cancels.request("nobody", nonce="n", reason="", deadline_at_ms=1)) is None
    assert await everything(store) == before


async def test_a_refused_message_can_be_received_later_by_somebody_else(store: Store) -> None:
    """A refusal is no receipt: its id is not remembered."""
    await ended(store, "run-1", key="1")
    await refused(store, sending(scope=SCOPE))
    await held(store, "run-2", key="2")
    assert (await signalled(store, "run-2", scope=SCOPE)).unread == 1


@pytest.mark.parametrize("status", ["pending", "delayed", "running", "waiting", "blocked"])
async def test_whoever_lives_receives(store: Store, status: str) -> None:
    run = await (
        admitted(store, delay_ms=60_000 if status == "delayed" else 0)
        if status in {"pending", "delayed"}
        else held(store)
    )
    if status == "waiting":
        run = await committed(store, let_go(store, run))
    if status == "blocked":
        run = await committed(store, blockage(store, run))
    received = await signalled(store)
    assert received.status == run.status
    assert received.unread == 1
    if status != "waiting":
        assert received.wake_at_ms == run.wake_at_ms


async def test_a_message_wakes_a_waiting_run_and_nobody_else(store: Store, clock: FakeClock) -> None:
    for number in (1, 2):
        waiting = await held(store, f"run-{number}", key=f"{number}")
        await committed(store, let_go(store, waiting, wake_at_ms=store.now_ms() + 3_600_000))
    clock.advance(10)
    told = await signalled(store, "run-2")
    assert told.wake_at_ms == store.now_ms()
    assert await store.next_wake_at_ms("default", ("shop.checkout",)) == store.now_ms()
    assert [run.id for run in await claim(store, "w-2")] == ["run-2"]
    assert await unread(store, "run-2") == (a_signal(),)


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "stopped"])
async def test_a_run_ends_only_over_an_empty_inbox(store: Store, end: str) -> None:
    """What came before the last commit is seen by the code."""
    run = await held(store)
    change = await _end(store, run, end)
    await signalled(store)
    before = await everything(store)
    assert await refused(store, change) == before[0].history.run
    assert await everything(store) == before
    again = await _end(store, run, end, read=(a_signal().id,))
    await committed(store, again)
    [done] = await store.runs(["run-1"])
    assert (done.status, done.unread) == (Status.CANCELLED if end == "stopped" else end, 0)


async def _end(store: Store, run: Run, end: str, *, read: tuple[str, ...] = ()) -> Change:
    now_ms, recorded = store.now_ms(), transitions.Recorded(read=read)
    match end:
        case "completed":
            return completion(store, run, recorded=recorded)
        case "failed":
            return transitions.decide(run, transitions.RunRaised(a_failure()), recorded=recorded, now_ms=now_ms)
        case "cancelled":
            return transitions.decide(run, transitions.CancelledItself(), recorded=recorded, now_ms=now_ms)
        case _:
            return await stop(store, run, read=read)


async def test_a_run_does_not_end_over_the_second_of_two_messages(store: Store) -> None:
    run = await held(store)
    await signalled(store, "run-1", 1)
    await signalled(store, "run-1", 2)
    await refused(store, completion(store, run, recorded=transitions.Recorded(read=(a_signal(1).id,))))
    assert await unread(store) == (a_signal(1), a_signal(2))
    both = (a_signal(1).id, a_signal(2).id)
    await committed(store, completion(store, run, recorded=transitions.Recorded(read=both)))


async def test_a_message_that_was_read_meanwhile_does_not_stand_for_another_one(store: Store) -> None:
    """A process that ends a run of another one has read its inbox before: the owner may have done so, too."""
    run = await held(store)
    await signalled(store, number=1)
    stopping = await stop(store, run, read=(a_signal(1).id,))
    await committed(store, let_go(store, run, read=(a_signal(1).id,)))
    await signalled(store, number=2)
    current = await refused(store, stopping)
    assert current is not None
    assert (current.status, current.unread) == (Status.WAITING, 1)
    assert await unread(store) == (a_signal(2),)
    again = await stop(store, current, read=(a_signal(1).id, a_signal(2).id))
    assert (await committed(store, again)).status is Status.CANCELLED
    assert (await _count(store), await unread(store)) == (0, ())


async def test_a_blocked_run_may_have_mail(store: Store) -> None:
    run = await held(store)
    await signalled(store)
    await committed(store, blockage(store, run))
    assert await unread(store) == (a_signal(),)


async def test_a_message_and_an_end_at_once_never_lose_the_message(backend: Backend) -> None:
    """Either it is received, and the end is refused, or it is refused, and the run has ended."""
    store, other = await backend.another(), await backend.another()
    for number in range(30):
        run = await held(store, f"run-{number}", key=None)
        change, message = completion(store, run), sending(run.id)
        end, sent = await asyncio.gather(offer(store, change), offer(other, message))
        assert isinstance(end, Committed) != isinstance(sent, Committed), (end, sent)
        [now] = await store.runs([run.id])
        assert now.unread == len(await unread(store, run.id)) == isinstance(sent, Committed)


async def test_a_run_that_is_tried_again_remembers_what_it_received(store: Store) -> None:
    run = await held(store)
    await signalled(store)
    change = await _end(store, run, "failed", read=(a_signal().id,))
    await committed(store, await retry(store, await committed(store, change)))
    assert (await signalled(store)).unread == 0
    assert (await signalled(store, "run-1", 2)).unread == 1
    assert (await history(store)).messages == (a_signal(2),)


async def test_unread_messages_go_with_the_run_to_its_next_owner(store: Store) -> None:
    await store.join("w-1", 1_000)
    await held(store)
    await signalled(store)
    await store.leave("w-1")
    assert await store.messages("w-1") == {}
    [run] = await claim(store, "w-2")
    assert run.unread == 1
    assert await store.messages("w-2") == {"run-1": [a_signal()]}


async def test_a_request_to_cancel_is_delivered_once(store: Store) -> None:
    await held(store)
    change = cancels.request("run-1", nonce="n-1", reason="too late", deadline_at_ms=5)
    for _ in range(2):
        await committed(store, change)
    assert await unread(store) == (CancelRequest("cancel/n-1", 5, "too late"),)


async def test_the_mail_of_some_runs_can_be_asked_for_alone(store: Store) -> None:
    for number in range(3):
        await held(store, f"run-{number}", key=f"{number}", owner="w-1")
        await signalled(store, f"run-{number}", number)
    await held(store, "another's", key="4", owner="w-2")
    await signalled(store, "another's", 4)
    found = await store.messages("w-1", ["run-2", "another's", "nobody"])
    assert found == {"run-2": [a_signal(2)]}
    assert sorted(await store.messages("w-1")) == ["run-0", "run-1", "run-2"]
