from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow
from holdfast.kernel import runs
from holdfast.kernel.changes import Blob, Status
from holdfast.kernel.journal import (
    Blocked,
    Cancelled,
    Completed,
    Entry,
    Failed,
    Failure,
    Retried,
    Spawned,
    Started,
    Value,
)
from holdfast.kernel.runs import CancelledItself, LetGo, Progressed, Raised, Recorded, Returned, Stuck
from tests.builders import (
    DAY_MS,
    NOW_MS,
    a_failure,
    a_run,
    a_value,
    an_intent,
    attempted,
    gave_up,
    intended,
    joined,
    performed,
    running,
)

LATER_MS = NOW_MS + 1_000
EVENTS = [
    (Progressed(), Status.RUNNING, None),
    (LetGo(LATER_MS), Status.WAITING, None),
    (LetGo(None), Status.WAITING, None),
    (Returned(a_value("done")), Status.COMPLETED, Completed(NOW_MS)),
    (Raised(a_failure()), Status.FAILED, Failed(NOW_MS, a_failure())),
    (CancelledItself(), Status.CANCELLED, Cancelled(NOW_MS)),
    (Stuck("replay_diverged", "why"), Status.BLOCKED, Blocked(NOW_MS, "replay_diverged", "why")),
]
NAMES = [type(event).__name__ for event, _, _ in EVENTS]


@pytest.mark.parametrize(("event", "becomes", "last"), EVENTS, ids=NAMES)
def test_what_an_event_makes_of_a_running_run(event, becomes, last):
    run = running(unread=2)
    recorded = Recorded((performed(),), (Blob("d", b"x"),), ("m-1",))
    change = runs.decide(run, event, recorded=recorded, now_ms=NOW_MS)
    assert change.run is not None
    assert change.run.status is becomes
    assert change.entries == (performed(),) + ((last,) if last else ())
    assert change.guard == run.fence
    assert change.run.fence == run.fence  # an owner never moves the fence itself
    assert (change.blobs, change.read) == (recorded.blobs, recorded.read)
    assert change.run.length == run.length + len(change.entries)
    assert change.run.unread == run.unread  # messages are counted by the store, which gets them
    assert change.run.change_id == change.id


@pytest.mark.parametrize(("event", "becomes", "last"), EVENTS, ids=NAMES)
def test_only_a_running_run_has_an_owner(event, becomes, last):
    after = runs.decide(running(), event, now_ms=NOW_MS).run
    assert after is not None
    assert (after.owner == "w-1") is (becomes is Status.RUNNING)


@pytest.mark.parametrize(
    ("event", "wake_ms"),
    [(LetGo(LATER_MS), LATER_MS), (LetGo(None), None), *((event, None) for event, _, _ in EVENTS[3:])],
)
def test_only_a_run_with_a_timer_wakes_by_itself(event, wake_ms):
    after = runs.decide(running(), event, now_ms=NOW_MS).run
    assert after is not None
    assert after.wake_ms == wake_ms


@pytest.mark.parametrize(("event", "becomes", "last"), EVENTS, ids=NAMES)
def test_retention_is_counted_from_the_end_and_from_nothing_else(event, becomes, last):
    """K4: the key never expires while its run has not ended."""
    after = runs.decide(running(retention_ms=DAY_MS), event, now_ms=LATER_MS).run
    assert after is not None
    has_ended = becomes in {Status.COMPLETED, Status.FAILED, Status.CANCELLED}
    assert after.finished_ms == (LATER_MS if has_ended else None)
    assert after.expires_ms == (LATER_MS + DAY_MS if has_ended else None)
    assert after.holds_key


def test_the_output_and_the_error_are_kept_in_the_row():
    done = runs.decide(running(), Returned(a_value([1])), now_ms=NOW_MS).run
    failed = runs.decide(running(), Raised(a_failure(step="charge#1")), now_ms=NOW_MS).run
    stuck = runs.decide(running(), Stuck("unknown_outcome", "why"), now_ms=NOW_MS).run
    assert done is not None
    assert failed is not None
    assert stuck is not None
    assert done.output is not None
    assert msgspec.json.decode(done.output, type=Value) == a_value([1])
    assert done.error is None
    assert failed.error is not None
    assert msgspec.json.decode(failed.error, type=Failure) == a_failure(step="charge#1")
    assert failed.output is None
    assert stuck.error is not None
    assert msgspec.json.decode(stuck.error, type=Failure) == Failure("unknown_outcome", "why")


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.RUNNING])
def test_nothing_reaches_a_run_that_is_not_running(status):
    with pytest.raises(AssertionError):
        runs.decide(a_run(status=status), Progressed(), now_ms=NOW_MS)


def test_a_repeated_decision_has_the_same_id_and_another_decision_another():
    run = running()
    recorded = Recorded((performed(),))
    ids = [
        runs.decide(run, event, recorded=what, now_ms=now_ms).id
        for event in (Progressed(), LetGo(None), Returned(a_value()), Stuck("a", "b"))
        for what in (recorded, Recorded((performed(), performed("charge#2"))))
        for now_ms in (NOW_MS, LATER_MS)
    ]
    assert len(set(ids)) == 8
    assert runs.decide(replace(run, epoch=2), Progressed(), recorded=recorded, now_ms=NOW_MS).id not in ids
    assert runs.decide(replace(run, id="run-2"), Progressed(), recorded=recorded, now_ms=NOW_MS).id not in ids


# -- retry

STARTED = Started(NOW_MS, a_value())


def failed_with(*entries: Entry, step: str) -> tuple[Entry, ...]:
    return (STARTED, *entries, Failed(NOW_MS, a_failure(step=step)))


@pytest.mark.parametrize(
    ("status", "allowed"),
    [(status, status in {Status.FAILED, Status.BLOCKED}) for status in Status],
)
def test_only_a_failed_or_blocked_run_is_retried(status, allowed):
    run = a_run(status=status)
    if allowed:
        assert runs.retry(run, failed_with(step=""), now_ms=NOW_MS).guard == run.fence
    else:
        with pytest.raises(NotAllowedNow, match=f"run-1 is {status}"):
            runs.retry(run, (STARTED,), now_ms=NOW_MS)


def test_a_retried_run_is_pending_with_a_new_fence_and_without_an_end():
    run = a_run(status=Status.FAILED, epoch=4, nonce="n", length=3, finished_ms=1, expires_ms=2, error=b"{}")
    change = runs.retry(run, failed_with(gave_up(), step="charge#1"), now_ms=LATER_MS)
    after = change.run
    assert after is not None
    assert (after.status, after.epoch, after.nonce, after.owner) == (Status.PENDING, 5, "", None)
    assert (after.wake_ms, after.finished_ms, after.expires_ms, after.error) == (LATER_MS, None, None, None)
    assert after.length == 4
    assert change.entries == (Retried(LATER_MS, (1,)),)


@pytest.mark.parametrize(("key", "allowed"), [("order:1", False), (None, True)])
def test_a_run_whose_key_was_taken_over_is_not_retried(key, allowed):
    run = a_run(key=key, status=Status.FAILED, holds_key=False)
    if allowed:
        assert runs.retry(run, failed_with(step=""), now_ms=NOW_MS).run is not None
    else:
        with pytest.raises(NotAllowedNow, match="no longer holds its key 'order:1'"):
            runs.retry(run, failed_with(step=""), now_ms=NOW_MS)


CHILD = Spawned(NOW_MS, "pay#1", an_intent("shop.pay", kind="child"), "child-1")


@pytest.mark.parametrize(
    ("journal", "void"),
    [
        (failed_with(step=""), ()),  # the workflow's own exception: nothing recorded caused it
        (failed_with(performed(), step=""), ()),
        (failed_with(intended(), attempted(), intended(attempt=2), gave_up(), step="charge#1"), (1, 2, 3, 4)),
        (failed_with(performed("ship#1"), gave_up(), step="charge#1"), (2,)),
        (failed_with(gave_up("charge#1"), gave_up("charge#2"), step="charge#2"), (2,)),
        (failed_with(CHILD, joined("pay#1"), step="pay#1"), (2,)),  # the child exists; only its outcome is asked anew
        ((STARTED, gave_up(), Blocked(NOW_MS, "a", "b")), ()),
        (
            (
                *failed_with(gave_up(), step="charge#1"),
                Retried(NOW_MS, (1,)),
                gave_up(),
                Failed(NOW_MS, a_failure(step="charge#1")),
            ),
            (4,),  # what an earlier retry voided is void already
        ),
        (
            (*failed_with(gave_up(), step="charge#1"), Retried(NOW_MS, (1,)), Blocked(NOW_MS, "a", "b")),
            (),  # blocked after a failure that was retried
        ),
    ],
)
def test_a_retry_voids_the_records_of_the_failed_step_and_nothing_else(journal, void):
    status = Status.BLOCKED if isinstance(journal[-1], Blocked) else Status.FAILED
    [retried] = runs.retry(a_run(status=status), journal, now_ms=NOW_MS).entries
    assert retried == Retried(NOW_MS, void)
