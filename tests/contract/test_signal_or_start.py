"""A signal that travels with an admission: some run receives it, and one only. What no run took begins the next run."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.kernel import hooks, starts, transitions
from holdfast.kernel.changes import Change, Committed, KeyHeldBy, Refused
from holdfast.kernel.journal import Started
from holdfast.kernel.messages import Message, SignalMessage
from holdfast.kernel.runs import Run, Status
from holdfast.ports.store import Store
from tests.builders import FakeClock, a_hand, a_value, performed, wanted
from tests.contract.conftest import Backend
from tests.contract.helpers import (
    A_BLOB,
    WATCHER,
    WORKFLOW,
    a_signal,
    claim,
    committed,
    completion,
    ended,
    everything,
    held,
    history,
    offer,
    refused,
    sending,
    signalled,
    takeover,
    unread,
)

SCOPE = hooks.key_scope("default", WORKFLOW, "order:1")


def _start(
    store: Store, run_id: str = "run-1", number: object = 1, *, holder: Run | None = None, owner: str | None = None
) -> Change:
    guard = None if holder is None else KeyHeldBy(holder.id, holder.fence)
    hand = None if owner is None else a_hand(owner)
    return starts.admission(wanted(run_id, signal=a_signal(number)), now_ms=store.now_ms(), hand=hand, guard=guard)


async def test_the_run_is_admitted_with_the_signal_in_its_inbox(store: Store) -> None:
    answer = await offer(store, _start(store))
    assert answer == Committed(await store.run("default", "run-1"), ("run-1",))
    assert isinstance(answer, Committed)
    assert answer.run is not None
    assert (answer.run.status, answer.run.unread) == (Status.PENDING, 1)
    assert await unread(store) == (a_signal(),)


async def test_a_run_that_is_handed_to_a_worker_has_its_signal_too(store: Store) -> None:
    run = await committed(store, _start(store, owner="w-1"))
    assert (run.status, run.owner, run.unread) == (Status.RUNNING, "w-1", 1)
    assert await store.messages("w-1") == {"run-1": [a_signal()]}


async def test_under_a_live_owner_nothing_is_admitted_and_nothing_delivered(store: Store) -> None:
    owner = await held(store)
    assert await refused(store, _start(store, "run-2")) == owner
    assert await store.runs(["run-2"]) == []
    assert await unread(store) == ()
    told = await signalled(store, "run-1", 1, scope=SCOPE)  # what the kernel does then
    assert told.unread == 1


async def test_an_ended_owner_makes_room_for_the_next(store: Store) -> None:
    done = await ended(store)
    successor = await committed(store, _start(store, "run-2", holder=done))
    assert (successor.id, successor.unread) == ("run-2", 1)
    assert await store.run_of_key("default", WORKFLOW, "order:1") == successor


async def test_a_signal_received_before_admits_nobody(store: Store) -> None:
    """The same request again, after its receiver has ended: it was received, by that run."""
    run = await committed(store, _start(store, owner="w-1"))
    done = await committed(store, completion(store, run, recorded=transitions.Recorded(read=(a_signal().id,))))
    answer = await offer(store, _start(store, "run-2", holder=done))
    assert answer == Committed(await store.run("default", "run-1"))
    assert await store.runs(["run-2"]) == []
    [former] = await store.runs(["run-1"])
    assert former.holds_key


async def test_a_signal_received_by_a_live_owner_admits_nobody(store: Store) -> None:
    await held(store)
    await signalled(store, "run-1", 1, scope=SCOPE)
    answer = await offer(store, _start(store, "run-2"))
    assert isinstance(answer, Committed)
    assert answer.run is not None
    assert (answer.run.id, answer.told) == ("run-1", ())
    assert await store.runs(["run-2"]) == []


async def test_a_signal_to_the_key_that_an_earlier_version_sent_is_known_under_its_key(store: Store) -> None:
    message = hooks.signal("items", b"1", dedupe="d", nonce="", by_key=True)
    former = replace(message, id=hooks.signal_id("items", "d"))
    run = await held(store)
    await committed(store, hooks.to_owner("run-1", former, scope=SCOPE))
    before = await everything(store)
    assert (await committed(store, hooks.to_owner("run-1", message, scope=SCOPE))).id == "run-1"
    again = starts.admission(wanted("run-2", signal=message), now_ms=store.now_ms(), hand=None)
    assert (await committed(store, again)).id == "run-1"
    assert await everything(store) == before
    # Its receiver has ended, and another run has the key; a successor that inherits it is its receiver then.
    await committed(store, _end_over(store, run, unread=(former,)))
    successor = await _successor(store)
    assert (await committed(store, again)).id == successor.id
    assert await store.runs(["run-2"]) == []
    assert await unread(store, successor.id) == (former,)


async def test_what_was_sent_to_the_run_does_not_stand_in_the_way_of_what_is_sent_to_its_key(store: Store) -> None:
    await held(store)
    to_run = hooks.signal("items", b"1", dedupe="d", nonce="")
    to_key = hooks.signal("items", b"2", dedupe="d", nonce="", by_key=True)
    for change in (hooks.to_run("run-1", to_run), hooks.to_owner("run-1", to_key, scope=SCOPE)) * 2:
        await committed(store, change)
    assert await unread(store) == (to_run, to_key)


async def test_the_id_counts_under_its_own_key_only(store: Store) -> None:
    await committed(store, _start(store))
    for number, fields in enumerate(({"key": "order:2"}, {"workflow": "shop.refund"}, {"namespace": "tenant"})):
        wish = wanted(f"other-{number}", signal=a_signal(), **fields)
        run = await committed(store, starts.admission(wish, now_ms=store.now_ms(), hand=None))
        assert (run.id, run.unread) == (f"other-{number}", 1)


async def test_a_repeated_start_with_its_signal_is_harmless(store: Store, clock: FakeClock) -> None:
    change = _start(store)
    first = await committed(store, change)
    before = await everything(store)
    clock.advance(5)
    assert await committed(store, change) == first
    assert await everything(store) == before


async def test_of_64_equal_calls_one_admits_and_all_name_the_same_run(backend: Backend) -> None:
    stores = [await backend.another() for _ in range(4)]
    answers = await asyncio.gather(*(offer(stores[n % 4], _start(stores[n % 4], f"run-{n}")) for n in range(64)))
    named = {answer.run and answer.run.id for answer in answers if isinstance(answer, Committed)}
    assert len(named) == 1
    assert all(isinstance(answer, Committed) for answer in answers)
    rows = await stores[0].runs([f"run-{n}" for n in range(64)])
    assert {run.id for run in rows} == named
    assert [run.unread for run in rows] == [1]


async def test_of_64_different_calls_one_admits_and_the_others_learn_its_owner(backend: Backend) -> None:
    stores = [await backend.another() for _ in range(4)]
    answers = await asyncio.gather(*(offer(stores[n % 4], _start(stores[n % 4], f"run-{n}", n)) for n in range(64)))
    [winner] = [answer.run for answer in answers if isinstance(answer, Committed)]
    assert winner is not None
    assert {answer.current and answer.current.id for answer in answers if isinstance(answer, Refused)} == {winner.id}


# -- what the owner of the key did not take


def _end_over(
    store: Store,
    run: Run,
    *unheard: SignalMessage,
    unread: tuple[SignalMessage, ...] = (),
    read: tuple[SignalMessage, ...] = (),
) -> Change:
    """The run returns. It has recorded `unheard`, and not taken it; `unread` is not even recorded."""
    first = Started(store.now_ms(), a_value({"order": "o-1"}))
    event = transitions.RunReturned(a_value("done"), first, unheard, tuple(message.id for message in unread), (A_BLOB,))
    recorded = transitions.Recorded((performed(),), read=tuple(message.id for message in read))
    return transitions.decide(run, event, recorded=recorded, now_ms=store.now_ms())


def _recorded(store: Store, run: Run, *messages: Message) -> Change:
    read = transitions.Recorded((performed("mail#1"),), read=tuple(message.id for message in messages))
    return transitions.decide(run, transitions.Progressed(), recorded=read, now_ms=store.now_ms())


async def _with_mail(store: Store, *numbers: int) -> Run:
    run = await held(store)
    for number in numbers:
        await signalled(store, "run-1", number, scope=SCOPE)
    return run


async def _successor(store: Store) -> Run:
    run = await store.run_of_key("default", WORKFLOW, "order:1")
    assert run is not None
    assert run.id != "run-1"
    return run


async def test_a_run_that_ends_over_signals_to_its_key_has_a_successor_that_begins_with_them(store: Store) -> None:
    """K8."""
    run = await _with_mail(store, 1, 2)
    answer = await offer(store, _end_over(store, run, unread=(a_signal(1), a_signal(2))))
    assert isinstance(answer, Committed), answer
    successor = await _successor(store)
    assert (successor.status, successor.unread, successor.wake_at_ms) == (Status.PENDING, 2, store.now_ms())
    assert answer.told == (successor.id,)
    assert await unread(store, successor.id) == (a_signal(1), a_signal(2))
    found = await history(store, successor.id)
    assert [type(entry) for entry in found.journal] == [Started]
    assert await store.blob(successor.id, A_BLOB.digest) == A_BLOB.data
    former = await history(store)
    assert (former.run.status, former.run.holds_key, former.run.unread) == (Status.COMPLETED, False, 0)
    assert former.messages == ()
    assert [found.id for found in await claim(store)] == [successor.id]


@pytest.mark.parametrize("recorded", [True, False])
async def test_the_successor_is_the_one_who_received_them(store: Store, recorded: bool) -> None:
    """The sender repeats itself: no third run, nothing twice."""
    run = await _with_mail(store, 1)
    if recorded:
        run = await committed(store, _recorded(store, run, a_signal(1)))
        await committed(store, _end_over(store, run, a_signal(1)))
    else:
        await committed(store, _end_over(store, run, unread=(a_signal(1),)))
    successor = await _successor(store)
    assert await unread(store, successor.id) == (a_signal(1),)
    assert (await committed(store, _start(store, "run-9", 1))).id == successor.id
    assert (await signalled(store, successor.id, 1, scope=SCOPE)).unread == 1
    assert await store.runs(["run-9"]) == []


async def test_what_is_inherited_keeps_its_order(store: Store) -> None:
    """What was recorded came before what was not."""
    run = await _with_mail(store, 3, 1, 4, 2)
    run = await committed(store, _recorded(store, run, a_signal(3), a_signal(1)))
    await committed(store, _end_over(store, run, a_signal(3), a_signal(1), unread=(a_signal(4), a_signal(2))))
    successor = await _successor(store)
    assert successor.unread == 4
    assert await unread(store, successor.id) == tuple(map(a_signal, (3, 1, 4, 2)))


async def test_what_the_owner_took_stays_its_own(store: Store) -> None:
    run = await _with_mail(store, 1, 2)
    assert await refused(store, _end_over(store, run, unread=(a_signal(2),))) == await store.run("default", "run-1")
    assert await store.run_of_key("default", WORKFLOW, "order:1") == await store.run("default", "run-1")
    assert await unread(store) == (a_signal(1), a_signal(2))
    await committed(store, _end_over(store, run, unread=(a_signal(2),), read=(a_signal(1),)))
    assert await unread(store, (await _successor(store)).id) == (a_signal(2),)
    assert (await committed(store, _start(store, "run-9", 1))).id == "run-1"


async def test_a_signal_that_another_run_received_begins_no_successor(store: Store) -> None:
    """A fork has it in its journal, and not in its inbox: a run that is admitted for it would wait forever."""
    run = await _with_mail(store, 1)
    source = await committed(store, completion(store, run, recorded=transitions.Recorded(read=(a_signal(1).id,))))
    fork = await committed(store, takeover(store, source, "fork", owner="w-1"))
    change = _end_over(store, fork, a_signal(1))
    answer = await offer(store, change)
    assert isinstance(answer, Committed)
    assert answer.told == ()
    assert change.then is not None
    assert await store.runs([change.then.id]) == []
    done = await store.run_of_key("default", WORKFLOW, "order:1")
    assert done is not None
    assert (done.id, done.status, done.holds_key) == ("fork", Status.COMPLETED, True)
    assert await unread(store) == ()


async def test_the_end_and_the_successor_come_together_or_not_at_all(store: Store) -> None:
    run = await _with_mail(store, 1)
    change = _end_over(store, run, unread=(a_signal(1),))
    await store.leave("w-1")
    before = await everything(store)
    assert isinstance(await offer(store, change), Refused)
    assert await everything(store) == before
    assert change.then is not None
    assert await store.runs([change.then.id]) == []


async def test_a_repeated_end_makes_no_second_successor(store: Store, clock: FakeClock) -> None:
    run = await committed(store, _recorded(store, await _with_mail(store, 1, 2), a_signal(1)))
    change = _end_over(store, run, a_signal(1), unread=(a_signal(2),))
    await committed(store, change)
    successor = await _successor(store)
    before = await everything(store, "run-1", successor.id)
    clock.advance(5)
    await committed(store, change)
    assert await everything(store, "run-1", successor.id) == before
    assert [run.id for run in await claim(store)] == [successor.id]


async def test_watchers_learn_the_end_of_the_run_they_watch(store: Store) -> None:
    await held(store, "parent", key=None)
    run = await held(store, watcher=WATCHER)
    await signalled(store, "run-1", 1, scope=SCOPE)
    answer = await offer(store, _end_over(store, run, unread=(a_signal(1),)))
    assert isinstance(answer, Committed)
    assert sorted(answer.told) == sorted(["parent", (await _successor(store)).id])


@pytest.mark.parametrize("lost", ["superseded", "released", "released and used again"])
async def test_what_no_successor_can_take_over_stays_unread_and_the_run_does_not_end_over_it(
    store: Store, lost: str
) -> None:
    """A run that has lost its key has no second successor: what was sent to it must be in its own journal first."""
    run = await _with_mail(store, 1, 2)
    if "released" in lost:
        await committed(store, transitions.release_key(run, reason="", nonce="n", now_ms=store.now_ms()))
    if lost != "released":
        wish = wanted("run-2", replaces="run-1" if lost == "superseded" else None)
        await committed(store, starts.admission(wish, now_ms=store.now_ms(), hand=None))
    [request] = [message for message in await unread(store) if not isinstance(message, SignalMessage)]
    run = await committed(store, _recorded(store, run, request, a_signal(1)))
    before = await everything(store)
    current = await refused(store, _end_over(store, run, a_signal(1), unread=(a_signal(2),)))
    assert current == await store.run("default", "run-1")
    assert current is not None
    assert (current.fence, current.holds_key, current.unread) == (run.fence, False, 1)
    assert await everything(store) == before
    assert await unread(store) == (a_signal(2),)

    answer = await offer(store, _end_over(store, run, a_signal(1), read=(a_signal(2),)))
    assert isinstance(answer, Committed)
    assert answer.told == ()
    former = await history(store)
    assert (former.run.status, former.run.unread, former.messages) == (Status.COMPLETED, 0, ())
    owner = await store.run_of_key("default", WORKFLOW, "order:1")
    assert (None if owner is None else (owner.id, owner.unread)) == (None if lost == "released" else ("run-2", 0))
    assert [found.id for found in await claim(store)] == ([] if owner is None else ["run-2"])
    assert (await committed(store, _start(store, "run-9", 2))).id == "run-1"  # its id is still known


async def test_a_signal_to_the_key_does_not_reach_a_run_that_has_lost_it(store: Store) -> None:
    run = await held(store)
    await committed(store, starts.admission(wanted("run-2", replaces="run-1"), now_ms=store.now_ms(), hand=None))
    assert await refused(store, sending("run-1", 1, scope=SCOPE)) == await store.run("default", "run-1")
    assert (await signalled(store, "run-1", 1)).fence == run.fence  # to the run itself it does
    assert (await signalled(store, "run-2", 1, scope=SCOPE)).unread == 1
