from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.kernel.changes import Blob, KeyFree, KeyHeldBy, Status, Watcher
from holdfast.kernel.journal import Started
from holdfast.kernel.starts import Again, Mine, Mismatch, Theirs, admission, resolve
from tests.builders import NOW_MS, a_hand, a_run, running, wanted

ENDED_AND_OVER = {"status": Status.COMPLETED, "finished_ms": NOW_MS - 2, "expires_ms": NOW_MS}
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
        ({"status": Status.COMPLETED, "expires_ms": NOW_MS + 1}, Theirs),  # K4
        ({"status": Status.FAILED, "expires_ms": NOW_MS + 1}, Theirs),
        ({"status": Status.FAILED, "expires_ms": NOW_MS + 1} | OTHER_INPUT, Mismatch),  # K11
        (ENDED_AND_OVER, Again),
        (ENDED_AND_OVER | MINE, Again),
        (ENDED_AND_OVER | OTHER_INPUT, Again),
    ],
)
def test_what_a_start_answers_whose_key_is_taken(holder, answer):
    found = a_run("run-1", **holder)
    resolution = resolve(wanted("run-2"), found, now_ms=NOW_MS)
    assert isinstance(resolution, answer)
    if isinstance(resolution, Again):
        assert resolution.guard == KeyHeldBy("run-1", found.epoch, found.nonce)
    else:
        assert resolution.run is found


def test_a_holder_that_has_gone_leaves_the_key_free():
    assert resolve(wanted(), None, now_ms=NOW_MS) == Again(KeyFree())


@pytest.mark.parametrize("status", [Status.PENDING, Status.RUNNING, Status.WAITING, Status.BLOCKED])
def test_a_key_never_expires_while_its_run_has_not_ended(status):
    """K4: however old it is."""
    holder = a_run(status=status, created_ms=0, retention_ms=0)
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
    assert (run.wake_ms, run.started_ms, run.length) == (NOW_MS, None, 1)
    assert (run.key, run.holds_key, run.priority, run.digest) == ("order:1", True, 3, wish.digest)
    assert run.expires_ms is None


def test_a_worker_at_hand_gets_the_run_in_the_admitting_commit():
    run = admission(wanted(), now_ms=NOW_MS, hand=a_hand("w-1")).run
    assert run is not None
    assert (run.status, run.epoch, run.owner, run.nonce) == (Status.RUNNING, 1, "w-1", "nonce-of-w-1")
    assert (run.wake_ms, run.started_ms) == (None, NOW_MS)


def test_a_delayed_run_is_handed_to_nobody():
    run = admission(wanted(delay_ms=5_000), now_ms=NOW_MS, hand=a_hand()).run
    assert run is not None
    assert (run.status, run.owner, run.nonce, run.wake_ms) == (Status.PENDING, None, "", NOW_MS + 5_000)


def test_a_run_without_a_key_holds_none():
    run = admission(wanted(key=None), now_ms=NOW_MS, hand=None).run
    assert run is not None
    assert not run.holds_key


def test_a_takeover_is_guarded_by_the_holder_it_has_seen():
    guard = KeyHeldBy("run-1", 4, "n")
    assert admission(wanted("run-2"), now_ms=NOW_MS, hand=None, guard=guard).guard is guard


def test_the_builders_agree_with_the_kernel():
    assert a_run() == admission(wanted(), now_ms=NOW_MS, hand=None).run
    assert replace(running(), owner="w-1").status is Status.RUNNING
