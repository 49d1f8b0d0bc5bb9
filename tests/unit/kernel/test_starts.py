from __future__ import annotations

import pytest
from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.kernel import hooks
from holdfast.kernel.changes import Blob, HolderOf, KeyFree, KeyHeldBy
from holdfast.kernel.journal import Started
from holdfast.kernel.lanes import Entering
from holdfast.kernel.messages import CancelRequest, Envelope, Watcher
from holdfast.kernel.runs import Fenced, Status
from holdfast.kernel.starts import (
    SUPERSEDED_DEADLINE_MS,
    Again,
    Busy,
    Joining,
    Mine,
    Mismatch,
    NoPlace,
    Overtook,
    Tell,
    Theirs,
    admission,
    first_guard,
    joins,
    look,
    resolve,
    successor,
)
from tests.builders import NOW_MS, STARTED, a_hand, a_run, a_signal, continued, running, wanted

ENDED_AND_OVER = {"status": Status.COMPLETED, "finished_at_ms": NOW_MS - 2, "expires_at_ms": NOW_MS}
MINE = {"request_id": "request-of-run-2"}
OTHER_INPUT = {"digest": "another"}


@pytest.mark.parametrize(
    ("holder", "answer"),
    [
        ({}, Theirs),
        (MINE, Mine),
        (OTHER_INPUT, Mismatch),
        (MINE | OTHER_INPUT, Mismatch),  # one request cannot have two inputs
        ({"status": Status.RUNNING}, Theirs),
        ({"status": Status.BLOCKED}, Theirs),
        ({"status": Status.COMPLETED, "expires_at_ms": NOW_MS + 1}, Theirs),  # K4
        ({"status": Status.FAILED, "expires_at_ms": NOW_MS + 1}, Theirs),
        ({"status": Status.FAILED, "expires_at_ms": NOW_MS + 1} | OTHER_INPUT, Mismatch),  # K11
        (ENDED_AND_OVER, Again),
        (ENDED_AND_OVER | MINE, Mine),  # a repetition starts nothing, however short the retention was
        (ENDED_AND_OVER | OTHER_INPUT, Again),
    ],
)
def test_what_a_start_answers_whose_key_is_taken(holder, answer):
    found = a_run("run-1", **holder)
    resolution = resolve(wanted("run-2"), found, now_ms=NOW_MS)
    assert isinstance(resolution, answer)
    if isinstance(resolution, Again):
        assert resolution.guard == KeyHeldBy("run-1", found.fence)
    else:
        assert isinstance(resolution, Mine | Theirs | Mismatch)
        assert resolution.run is found


@pytest.mark.parametrize(
    ("holder", "answer"),
    [
        ({}, Again),
        ({"status": Status.RUNNING}, Again),
        (OTHER_INPUT, Again),  # never a mismatch with the run that is replaced
        ({"status": Status.COMPLETED, "expires_at_ms": NOW_MS + 1} | OTHER_INPUT, Again),
        (MINE, Mine),  # the reply was lost
        (ENDED_AND_OVER, Again),
        ({"id": "run-9"}, Overtook),
        ({"id": "run-9"} | OTHER_INPUT, Overtook),
        ({"id": "run-9"} | MINE, Mine),
        ({"id": "run-9"} | MINE | OTHER_INPUT, Overtook),
        ({"id": "run-9", "status": Status.COMPLETED, "expires_at_ms": NOW_MS + 1}, Overtook),
        ({"id": "run-9"} | ENDED_AND_OVER, Again),
    ],
)
def test_what_a_start_answers_that_replaces_the_owner(holder, answer):
    """K7"""
    found = a_run(**{"run_id": holder.get("id", "run-1")} | {key: holder[key] for key in holder if key != "id"})
    resolution = resolve(wanted("run-2", replaces="run-1"), found, now_ms=NOW_MS)
    assert isinstance(resolution, answer)
    if isinstance(resolution, Again):
        # The one to be replaced loses its key wherever it stands; another one only as it was seen.
        fence = found.fence if "expires_at_ms" in holder and found.expires_at_ms == NOW_MS else None
        assert resolution.guard == KeyHeldBy(found.id, fence)
    elif isinstance(resolution, Mine | Overtook):
        assert resolution.run is found


@pytest.mark.parametrize(
    ("holder", "answer"),
    [
        ({}, Tell),
        ({"status": Status.RUNNING}, Tell),
        ({"status": Status.WAITING}, Tell),
        ({"status": Status.BLOCKED}, Tell),
        (OTHER_INPUT, Mismatch),  # nothing is delivered
        (MINE, Tell),  # the store would have known the signal that this request brought before
        ({"status": Status.COMPLETED, "expires_at_ms": NOW_MS + 1}, Again),  # though its retention is not over
        ({"status": Status.FAILED, "expires_at_ms": NOW_MS + 1} | OTHER_INPUT, Again),
        ({"status": Status.CANCELLED, "expires_at_ms": NOW_MS + 1}, Again),
        ({"status": Status.COMPLETED, "expires_at_ms": NOW_MS + 1} | MINE, Again),
        (ENDED_AND_OVER, Again),
    ],
)
def test_what_a_start_answers_that_brings_a_signal(holder, answer):
    """K8"""
    found, wish = a_run("run-1", **holder), wanted("run-2", signal=a_signal())
    resolution = resolve(wish, found, now_ms=NOW_MS)
    assert isinstance(resolution, answer)
    if isinstance(resolution, Tell):
        assert resolution.change == hooks.to_owner("run-1", a_signal(), scope=wish.scope)
    elif isinstance(resolution, Again):
        assert resolution.guard == KeyHeldBy("run-1", found.fence)  # a retry of it must not land beside


@pytest.mark.parametrize("signal", [None, a_signal()])
@pytest.mark.parametrize(
    ("holder", "answer"),
    [
        ({}, Busy),
        ({"status": Status.RUNNING}, Busy),
        ({"status": Status.BLOCKED}, Busy),
        (MINE, Mine | Tell),  # the reply was lost
        (OTHER_INPUT, Mismatch),
        (ENDED_AND_OVER, Again),
    ],
)
def test_what_a_start_answers_that_joins_nobody(holder, answer, signal):
    found = a_run("run-1", **holder)
    assert isinstance(resolve(wanted("run-2", join=False, signal=signal), found, now_ms=NOW_MS), answer)


def test_an_ended_holder_is_no_reason_to_come_back_later():
    found = a_run("run-1", status=Status.COMPLETED, expires_at_ms=NOW_MS + 1)
    assert resolve(wanted("run-2", join=False), found, now_ms=NOW_MS) == Theirs(found)


def test_a_holder_that_has_gone_leaves_the_key_free():
    assert resolve(wanted(), None, now_ms=NOW_MS) == Again(KeyFree())


@pytest.mark.parametrize("why", ["full", "busy"])
def test_a_lane_without_room_refuses_the_start_whatever_its_first_run_is(why):
    first = a_run("run-0", key="order:1")
    assert resolve(wanted("run-2"), first, now_ms=NOW_MS, no_room=why) == NoPlace(why, first)


def test_a_run_is_admitted_into_the_lane_that_it_shall_enter():
    entering = Entering("deploy:api", 2)
    change = admission(wanted(enters=entering), now_ms=NOW_MS, hand=a_hand())
    assert change.enters is entering
    assert change.run is not None
    assert change.run.lane == "deploy:api"


@pytest.mark.parametrize("status", [Status.PENDING, Status.RUNNING, Status.WAITING, Status.BLOCKED])
def test_a_key_never_expires_while_its_run_has_not_ended(status):
    """K4: however old it is."""
    holder = a_run(status=status, created_at_ms=0, retention_ms=0)
    assert isinstance(resolve(wanted("run-2"), holder, now_ms=NOW_MS * 1000), Theirs)


def test_an_admission_writes_the_run_and_its_first_entry():
    watcher, blob = Watcher("parent", "pay#1"), Blob("d1", b"x")
    wish = wanted(priority=3, watcher=watcher, blobs=(blob,))
    change = admission(wish, now_ms=NOW_MS, hand=None)
    assert change.id == wish.run_id  # so a repetition is recognised
    assert change.guard == KeyFree()
    assert change.entries == (Started(NOW_MS, wish.input),)
    assert (change.watcher, change.blobs) == (watcher, (blob,))
    run = change.run
    assert run is not None
    assert (run.status, run.epoch, run.owner, run.nonce) == (Status.PENDING, 0, None, "")
    assert (run.wake_at_ms, run.started_at_ms, run.length) == (NOW_MS, None, 1)
    assert (run.key, run.holds_key, run.priority, run.digest) == ("order:1", True, 3, wish.digest)
    assert run.expires_at_ms is None


def test_a_worker_at_hand_gets_the_run_in_the_admitting_commit():
    run = admission(wanted(), now_ms=NOW_MS, hand=a_hand("w-1")).run
    assert run is not None
    assert (run.status, run.epoch, run.owner, run.nonce) == (Status.RUNNING, 1, "w-1", "nonce-of-w-1")
    assert (run.wake_at_ms, run.started_at_ms) == (None, NOW_MS)


def test_a_delayed_run_is_handed_to_nobody():
    run = admission(wanted(delay_ms=5_000), now_ms=NOW_MS, hand=a_hand()).run
    assert run is not None
    assert (run.status, run.owner, run.nonce, run.wake_at_ms) == (Status.PENDING, None, "", NOW_MS + 5_000)


def test_a_run_without_a_key_holds_none():
    run = admission(wanted(key=None), now_ms=NOW_MS, hand=None).run
    assert run is not None
    assert not run.holds_key


def test_a_takeover_is_guarded_by_the_holder_it_has_seen():
    guard = KeyHeldBy("run-1", Fenced("run-1", 4, "n"))
    assert admission(wanted("run-2"), now_ms=NOW_MS, hand=None, guard=guard).guard is guard


@pytest.mark.parametrize("join", [True, False])
@pytest.mark.parametrize("request_id", ["request-1", "request-2"])
@pytest.mark.parametrize("digest", ["digest-1", "digest-2"])
@pytest.mark.parametrize("expires_at_ms", [None, NOW_MS, NOW_MS + 1])
@pytest.mark.parametrize("status", [Status.RUNNING, Status.COMPLETED])
def test_a_start_that_only_looks_joins_whom_a_start_that_was_refused_would_join(
    join: bool, request_id: str, digest: str, expires_at_ms: int | None, status: Status
):
    holder = replace(a_run(), request_id="request-1", digest="digest-1", expires_at_ms=expires_at_ms, status=status)
    wish = wanted("run-2", key="order:1", request_id=request_id, digest=digest, join=join)
    looking = Joining("run-2", "default", "shop.checkout", "order:1", digest, request_id, join)
    assert joins(looking, holder, now_ms=NOW_MS) == isinstance(resolve(wish, holder, now_ms=NOW_MS), Theirs)


def test_a_look_at_the_holder_of_the_key_writes_nothing():
    change = look(wanted("run-2", key="order:1"))
    assert change.guard == HolderOf("run-2", "default", "shop.checkout", "order:1")
    assert (change.run, change.entries, change.envelopes) == (None, (), ())


def test_a_supersede_moves_the_key_asks_the_owner_and_admits_in_one_change():
    """K7: there is no instant without an owner."""
    wish = wanted("run-2", replaces="run-1")
    change = admission(wish, now_ms=NOW_MS, hand=None)
    assert change.guard == first_guard(wish) == KeyHeldBy("run-1")
    deadline_at_ms = NOW_MS + SUPERSEDED_DEADLINE_MS
    request = CancelRequest("superseded/run-2", deadline_at_ms, "superseded by run run-2")
    assert change.envelopes == (Envelope("run-1", request),)
    assert change.run is not None
    assert change.run.holds_key


def test_a_signal_travels_with_the_admission():
    wish = wanted("run-2", signal=a_signal())
    change = admission(wish, now_ms=NOW_MS, hand=None)
    assert change.guard == first_guard(wish) == KeyFree()
    assert change.envelopes == (Envelope("run-2", a_signal(), hooks.key_scope("default", "shop.checkout", "order:1")),)


def test_a_supersede_may_bring_a_signal():
    change = admission(wanted("run-2", replaces="run-1", signal=a_signal()), now_ms=NOW_MS, hand=None)
    assert [envelope.run_id for envelope in change.envelopes] == ["run-1", "run-2"]


def test_a_plain_start_sends_nothing():
    assert admission(wanted(), now_ms=NOW_MS, hand=None).envelopes == ()


def test_a_run_is_admitted_with_its_attributes_and_its_version():
    change = admission(wanted(attributes=b'{"customer":"c-1"}', version="2"), now_ms=NOW_MS, hand=None)
    assert change.run is not None
    assert (change.run.attributes, change.run.version) == (b'{"customer":"c-1"}', "2")
    assert change.entries == (Started(NOW_MS, wanted().input, Raw(b'{"customer":"c-1"}')),)


# -- a successor


@pytest.mark.parametrize(
    "first",
    [STARTED, replace(STARTED, attributes=Raw(b'{"customer":"c-1"}')), continued(7)],
)
def test_a_successor_begins_as_the_first_of_them_did(first):
    run = running(queue="gpu", priority=3, version="2", retention_ms=99, attributes=b'{"stage":"paid"}')
    blobs, signals = (Blob("d", b"x"),), (a_signal(), a_signal(dedupe="d-2"))
    change = successor(run, first, signals, blobs=blobs, now_ms=NOW_MS + 5)
    after = change.run
    assert after is not None
    assert change.entries == (Started(NOW_MS + 5, STARTED.input, first.attributes),)
    assert (after.input, after.digest) == (STARTED.input, run.digest)
    assert after.attributes == (b"" if first.attributes is UNSET else bytes(first.attributes))
    assert (after.workflow, after.key, after.queue, after.priority) == (run.workflow, run.key, "gpu", 3)
    assert (after.version, after.retention_ms, after.created_at_ms) == ("2", 99, NOW_MS + 5)
    assert (after.status, after.wake_at_ms, after.owner, after.epoch) == (Status.PENDING, NOW_MS + 5, None, 0)
    assert (after.length, after.holds_key, after.change_id) == (1, True, change.id)
    assert (change.blobs, change.inherits) == (blobs, run.id)
    scope = hooks.key_scope(run.namespace, run.workflow, run.key or "")
    assert change.envelopes == tuple(Envelope(after.id, signal, scope) for signal in signals)


def test_a_successor_takes_the_key_from_the_run_that_has_just_ended():
    run = running()
    assert successor(run, STARTED, (), blobs=(), now_ms=NOW_MS).guard == KeyHeldBy("run-1", run.fence)


def test_a_run_has_one_successor_however_often_it_is_decided():
    def id_of(run_id: str) -> str:
        return successor(running(run_id), STARTED, (), blobs=(), now_ms=NOW_MS).id

    assert id_of("run-1") == id_of("run-1")
    chain = ["run-1"]
    for _ in range(5):
        chain.append(id_of(chain[-1]))
    assert len({*chain, id_of("run-2")}) == 7


def test_the_builders_agree_with_the_kernel():
    assert a_run() == admission(wanted(), now_ms=NOW_MS, hand=None).run
    assert replace(running(), owner="w-1").status is Status.RUNNING
