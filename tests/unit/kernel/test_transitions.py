from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow
from holdfast.kernel import starts, transitions
from holdfast.kernel.changes import Alive, Blob, HookOpen, Shown
from holdfast.kernel.journal import (
    Blocked,
    CancelAsked,
    Cancelled,
    Completed,
    Entry,
    Failed,
    Failure,
    KeyReleased,
    Resumed,
    Retried,
    Spawned,
    Stopped,
    Value,
)
from holdfast.kernel.messages import Envelope, KeyTaken
from holdfast.kernel.runs import ENDED, NOT_BEGUN, Status
from holdfast.kernel.transitions import (
    NOTHING,
    CancelledItself,
    ContinuedAsNew,
    LetGo,
    Postponed,
    Progressed,
    Recorded,
    RunRaised,
    RunReturned,
    Stuck,
)
from tests.builders import (
    CANCELLED,
    DAY_MS,
    NOW_MS,
    STARTED,
    a_failure,
    a_run,
    a_signal,
    a_value,
    an_intent,
    attempted,
    cancel_asked,
    continued,
    gave_up,
    intended,
    joined,
    performed,
    received,
    running,
    with_journal,
)

LATER_MS = NOW_MS + 1_000
EVENTS = [
    (Progressed(), Status.RUNNING, None),
    (LetGo(LATER_MS), Status.WAITING, None),
    (LetGo(None, b'[{"kind":"hook","name":"approval"}]'), Status.WAITING, None),
    (RunReturned(a_value("done")), Status.COMPLETED, Completed(NOW_MS)),
    (RunRaised(a_failure()), Status.FAILED, Failed(NOW_MS, a_failure())),
    (CancelledItself(), Status.CANCELLED, Cancelled(NOW_MS)),
    (Stuck("replay_diverged", "why"), Status.BLOCKED, Blocked(NOW_MS, "replay_diverged", "why")),
    (Postponed(LATER_MS), Status.PENDING, None),
]
NAMES = [type(event).__name__ for event, _, _ in EVENTS]


@pytest.mark.parametrize(("event", "becomes", "last"), EVENTS, ids=NAMES)
def test_what_an_event_makes_of_a_running_run(event, becomes, last):
    run = running(unread=2)
    recorded = Recorded((performed(),), (Blob("d", b"x"),), ("m-1",))
    change = transitions.decide(run, event, recorded=recorded, now_ms=NOW_MS)
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
    after = transitions.decide(running(), event, now_ms=NOW_MS).run
    assert after is not None
    assert (after.owner == "w-1") is (becomes is Status.RUNNING)


@pytest.mark.parametrize(
    ("event", "wake_at_ms"),
    [(LetGo(LATER_MS), LATER_MS), (LetGo(None), None), (Postponed(LATER_MS), LATER_MS)]
    + [(event, None) for event, _, _ in EVENTS[3:-1]],
)
def test_only_a_run_with_a_timer_wakes_by_itself(event, wake_at_ms):
    after = transitions.decide(running(), event, now_ms=NOW_MS).run
    assert after is not None
    assert after.wake_at_ms == wake_at_ms


@pytest.mark.parametrize(("event", "becomes", "last"), EVENTS, ids=NAMES)
def test_retention_is_counted_from_the_end_and_from_nothing_else(event, becomes, last):
    """K4: the key never expires while its run has not ended."""
    after = transitions.decide(running(retention_ms=DAY_MS), event, now_ms=LATER_MS).run
    assert after is not None
    has_ended = becomes in {Status.COMPLETED, Status.FAILED, Status.CANCELLED}
    assert after.finished_at_ms == (LATER_MS if has_ended else None)
    assert after.expires_at_ms == (LATER_MS + DAY_MS if has_ended else None)
    assert after.holds_key


@pytest.mark.parametrize(("event", "becomes", "last"), EVENTS, ids=NAMES)
def test_what_a_run_waits_for_is_known_exactly_while_it_waits(event, becomes, last):
    after = transitions.decide(running(epoch=2, waits=b"[]"), event, now_ms=NOW_MS).run
    assert after is not None
    if becomes is not Status.RUNNING:
        # One that is given back before anything of it was executed is as it was.
        given_back = b"[]" if isinstance(event, Postponed) else None
        assert after.waits == (event.waits if isinstance(event, LetGo) else given_back)


@pytest.mark.parametrize(
    ("epoch", "waits", "after"),
    [(1, None, NOT_BEGUN), (2, NOT_BEGUN, NOT_BEGUN), (2, None, None), (3, b"[]", b"[]")],
)
def test_a_run_that_is_given_back_by_its_first_holder_has_not_begun(epoch, waits, after):
    change = transitions.decide(running(epoch=epoch, waits=waits), Postponed(LATER_MS), now_ms=NOW_MS)
    assert change.run is not None
    assert change.run.waits == after


@pytest.mark.parametrize(("event", "becomes", "last"), EVENTS, ids=NAMES)
def test_what_a_run_shows_changes_with_what_it_records(event, becomes, last):
    run = running(attributes=b'{"a":1}', markers=b'[["x",1]]')
    shown = Shown(b'{"a":2}', b'[["y",2]]')
    opens, closes = (HookOpen("approval", "token-1"),), (HookOpen("items"),)
    change = transitions.decide(run, event, recorded=Recorded(shown=shown, opens=opens, closes=closes), now_ms=NOW_MS)
    assert change.run is not None
    assert (change.shown, change.opens, change.closes) == (shown, opens, closes)
    assert (change.run.attributes, change.run.markers) == (shown.attributes, shown.markers)
    kept = transitions.decide(run, event, now_ms=NOW_MS)
    assert kept.run is not None
    assert kept.shown is None
    assert (kept.run.attributes, kept.run.markers) == (run.attributes, run.markers)


def test_the_output_and_the_error_are_kept_in_the_row():
    done = transitions.decide(running(), RunReturned(a_value([1])), now_ms=NOW_MS).run
    failed = transitions.decide(running(), RunRaised(a_failure(step="charge#1")), now_ms=NOW_MS).run
    stuck = transitions.decide(running(), Stuck("unknown_outcome", "why"), now_ms=NOW_MS).run
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
        transitions.decide(a_run(status=status), Progressed(), now_ms=NOW_MS)


def test_a_repeated_decision_has_the_same_id_and_another_decision_another():
    run = running()
    recorded = Recorded((performed(),))
    ids = [
        transitions.decide(run, event, recorded=what, now_ms=now_ms).id
        for event in (Progressed(), LetGo(None), RunReturned(a_value()), Stuck("a", "b"))
        for what in (recorded, Recorded((performed(), performed("charge#2"))))
        for now_ms in (NOW_MS, LATER_MS)
    ]
    assert len(set(ids)) == 8
    assert transitions.decide(replace(run, epoch=2), Progressed(), recorded=recorded, now_ms=NOW_MS).id not in ids
    assert transitions.decide(replace(run, id="run-2"), Progressed(), recorded=recorded, now_ms=NOW_MS).id not in ids


# -- continue as new


def test_a_run_that_continues_as_new_stays_what_it_is_with_a_new_journal():
    run = running(length=40, unread=3, markers=b'[["charged",1]]', attributes=b'{"a":1}')
    recorded = Recorded((performed(),), (Blob("d", b"x"),), ("m-1",))
    unheard = (received("items"), received("approval"))
    change = transitions.decide(run, ContinuedAsNew(continued(), unheard), recorded=recorded, now_ms=NOW_MS)
    assert change.replaces_journal
    assert change.entries == (continued(), *unheard)  # signals that nobody has taken go along
    assert (change.blobs, change.read, change.guard) == (recorded.blobs, ("m-1",), run.fence)
    after = change.run
    assert after is not None
    assert (after.status, after.owner, after.fence, after.key) == (Status.RUNNING, "w-1", run.fence, "order:1")
    assert after.length == 43  # positions go on, so that they name one entry for ever
    assert (after.input, after.digest) == (continued().input, run.digest)
    assert (after.markers, after.attributes) == (b"", run.attributes)


def test_beginning_anew_is_a_decision_of_its_own():
    ids = [
        transitions.decide(running(length=length), ContinuedAsNew(continued()), now_ms=NOW_MS).id
        for length in range(40, 45)
    ]
    assert len(set(ids)) == 5


# -- signals to the key that nobody took


def test_a_run_that_returns_over_signals_to_its_key_leaves_them_to_a_successor():
    """K8: whoever sends to a key wants the payload to be seen by some run."""
    run, signals, blobs = running(), (a_signal(), a_signal(dedupe="d-2")), (Blob("d", b"x"),)
    change = transitions.decide(run, RunReturned(a_value(), STARTED, signals, ("m-9",), blobs), now_ms=LATER_MS)
    then = change.then
    assert then is not None
    assert change.moves == ("m-9",)
    assert then == starts.successor(change.run or run, STARTED, signals, blobs=blobs, now_ms=LATER_MS)


@pytest.mark.parametrize("event", [RunReturned(a_value()), RunReturned(a_value(), STARTED)])
def test_a_run_that_has_heard_everything_has_no_successor(event):
    change = transitions.decide(running(), event, now_ms=NOW_MS)
    assert (change.then, change.moves) == (None, ())


# -- stop


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize(
    ("run", "unsure"),
    [(a_run(), False), (running(), True), (a_run(status=Status.WAITING, epoch=1), False)],
)
def test_a_run_that_is_stopped_by_another_hand_is_cancelled_at_once(run, unsure, asked):
    run, journal = with_journal(run, *((cancel_asked("before"),) if asked else ()))
    recorded = Recorded((received(),), (Blob("d", b"x"),), ("m-1",))
    change = transitions.stop(run, journal, reason="why", late=asked, recorded=recorded, now_ms=LATER_MS)
    request = () if asked else (CancelAsked(LATER_MS, LATER_MS, "why"),)
    stopped = Stopped(LATER_MS, by_deadline=asked, unsure=unsure)
    # It must not end over unread messages; if it is resumed some day, it sees its signals.
    assert change.entries == (received(), *request, stopped, Cancelled(LATER_MS))
    assert (change.guard, change.read, change.blobs) == (run.fence, ("m-1",), recorded.blobs)
    after = change.run
    assert after is not None
    assert (after.status, after.owner, after.wake_at_ms, after.nonce) == (Status.CANCELLED, None, None, "")
    assert after.epoch == run.epoch + 1  # whoever held it is refused from now on
    assert (after.finished_at_ms, after.expires_at_ms) == (LATER_MS, LATER_MS + run.retention_ms)
    assert after.length == run.length + len(change.entries)


def test_a_stop_is_never_taken_for_what_its_owner_decides_at_the_same_time():
    """Both may record as many entries; whoever comes second must be refused, or it would believe it has written."""
    run, journal = with_journal(running(), cancel_asked())
    stopped = transitions.stop(run, journal, reason="", late=True, recorded=NOTHING, now_ms=NOW_MS)
    own = transitions.decide(run, CancelledItself(), recorded=Recorded((performed(),)), now_ms=NOW_MS)
    assert len(stopped.entries) == len(own.entries)
    assert stopped.id != own.id
    assert stopped.run is not None
    assert stopped.run.change_id == stopped.id


@pytest.mark.parametrize("status", sorted(ENDED))
def test_what_has_ended_is_not_stopped(status):
    with pytest.raises(AssertionError):
        transitions.stop(a_run(status=status), (STARTED,), reason="", late=False, recorded=NOTHING, now_ms=NOW_MS)


def test_a_run_that_was_stopped_before_any_code_ran_can_be_resumed():
    change = transitions.stop(a_run(), (STARTED,), reason="why", late=False, recorded=NOTHING, now_ms=NOW_MS)
    assert change.run is not None
    [resumed] = transitions.resume(change.run, (STARTED, *change.entries), now_ms=LATER_MS).entries
    assert resumed == Resumed(LATER_MS, (1, 2, 3))


def test_a_run_that_took_too_long_fails_without_its_owner():
    error = a_failure()
    change = transitions.stop(
        a_run(), (STARTED,), reason="why", late=True, recorded=NOTHING, now_ms=NOW_MS, error=error
    )
    assert change.run is not None
    assert (change.run.status, change.run.error) == (Status.FAILED, msgspec.json.encode(error))
    asked, _, end = change.entries
    assert (asked, end) == (CancelAsked(NOW_MS, NOW_MS, "why", error=error), Failed(NOW_MS, error))


# -- resume


def test_a_resumed_run_is_pending_with_a_new_fence_and_without_an_end():
    run, journal = with_journal(
        a_run(status=Status.CANCELLED, epoch=4, nonce="n", finished_at_ms=1, expires_at_ms=2),
        cancel_asked(),
        *CANCELLED,
    )
    change = transitions.resume(run, journal, now_ms=LATER_MS)
    after = change.run
    assert after is not None
    assert change.guard == run.fence
    assert (after.status, after.epoch, after.nonce, after.owner) == (Status.PENDING, 5, "", None)
    assert (after.wake_at_ms, after.finished_at_ms, after.expires_at_ms) == (LATER_MS, None, None)
    assert change.entries == (Resumed(LATER_MS, (1, 2, 3)),)


def test_a_run_whose_key_was_taken_over_is_not_resumed():
    run, journal = with_journal(a_run(status=Status.CANCELLED, holds_key=False), cancel_asked(), *CANCELLED)
    with pytest.raises(NotAllowedNow, match="no longer holds its key 'order:1'"):
        transitions.resume(run, journal, now_ms=NOW_MS)


def test_only_a_cancelled_run_is_resumed():
    with pytest.raises(NotAllowedNow, match="is failed"):
        transitions.resume(a_run(status=Status.FAILED), (STARTED,), now_ms=NOW_MS)


# -- release_key


@pytest.mark.parametrize("status", sorted(ENDED))
def test_the_key_of_an_ended_run_is_released_at_once(status):
    run = a_run(status=status, finished_at_ms=NOW_MS, epoch=2)
    change = transitions.release_key(run, reason="by hand", nonce="n-1", now_ms=LATER_MS)
    assert change.takes_key
    assert change.guard == run.fence
    assert change.entries == (KeyReleased(LATER_MS, "by hand"),)
    assert change.run is not None
    assert (change.run.status, change.run.holds_key, change.run.epoch) == (status, False, 3)
    assert change.run.key == "order:1"  # it is still shown


@pytest.mark.parametrize("status", [status for status in Status if status not in ENDED])
def test_a_live_run_is_told_that_its_key_is_gone(status):
    change = transitions.release_key(a_run(status=status), reason="by hand", nonce="n-1", now_ms=NOW_MS)
    assert change.takes_key
    assert change.guard == Alive("run-1")
    assert change.envelopes == (Envelope("run-1", KeyTaken("key_taken/n-1", "by hand")),)
    assert change.run is None  # its owner goes on, and records it


@pytest.mark.parametrize("fields", [{"key": None, "holds_key": False}, {"holds_key": False}])
def test_a_key_that_a_run_does_not_hold_is_not_released(fields):
    with pytest.raises(NotAllowedNow, match="holds no key"):
        transitions.release_key(a_run(**fields), reason="", nonce="n-1", now_ms=NOW_MS)


# -- retry


def failed_with(*entries: Entry, step: str) -> tuple[Entry, ...]:
    return (STARTED, *entries, Failed(NOW_MS, a_failure(step=step)))


@pytest.mark.parametrize(
    ("status", "allowed"),
    [(status, status in {Status.FAILED, Status.BLOCKED}) for status in Status],
)
def test_only_a_failed_or_blocked_run_is_retried(status, allowed):
    run = a_run(status=status)
    if allowed:
        assert transitions.retry(run, failed_with(step=""), now_ms=NOW_MS).guard == run.fence
    else:
        with pytest.raises(NotAllowedNow, match=f"run-1 is {status}"):
            transitions.retry(run, (STARTED,), now_ms=NOW_MS)


def test_a_retried_run_is_pending_with_a_new_fence_and_without_an_end():
    run = a_run(status=Status.FAILED, epoch=4, nonce="n", length=3, finished_at_ms=1, expires_at_ms=2, error=b"{}")
    change = transitions.retry(run, failed_with(gave_up(), step="charge#1"), now_ms=LATER_MS)
    after = change.run
    assert after is not None
    assert (after.status, after.epoch, after.nonce, after.owner) == (Status.PENDING, 5, "", None)
    assert (after.wake_at_ms, after.finished_at_ms, after.expires_at_ms, after.error) == (LATER_MS, None, None, None)
    assert after.length == 4
    assert change.entries == (Retried(LATER_MS, (1,)),)


@pytest.mark.parametrize(("key", "allowed"), [("order:1", False), (None, True)])
def test_a_run_whose_key_was_taken_over_is_not_retried(key, allowed):
    run = a_run(key=key, status=Status.FAILED, holds_key=False)
    if allowed:
        assert transitions.retry(run, failed_with(step=""), now_ms=NOW_MS).run is not None
    else:
        with pytest.raises(NotAllowedNow, match="no longer holds its key 'order:1'"):
            transitions.retry(run, failed_with(step=""), now_ms=NOW_MS)


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
    [retried] = transitions.retry(a_run(status=status, length=len(journal)), journal, now_ms=NOW_MS).entries
    assert retried == Retried(NOW_MS, void)


def test_a_retry_of_a_later_generation_names_positions_of_the_run():
    failed = Failed(NOW_MS, a_failure(step="g1/charge#1"))
    run, journal = with_journal(a_run(status=Status.FAILED), continued(), gave_up("g1/charge#1"), failed, first=40)
    [retried] = transitions.retry(run, journal, now_ms=NOW_MS).entries
    assert retried == Retried(NOW_MS, (41,))


def test_one_entry_is_recorded_as_any_progress_is():
    run, entry = running(), performed()
    assert transitions.step(run, entry) == transitions.progress(run, transitions.Recorded((entry,)))


def test_a_run_that_waits_is_woken_unless_it_has_changed_hands():
    let_go = transitions.decide(running(), LetGo(LATER_MS, b'[{"kind":"limit","name":"stripe"}]'), now_ms=NOW_MS)
    assert let_go.run is not None
    woken = transitions.wake(let_go.run, now_ms=NOW_MS)
    assert woken.run is not None
    assert woken.guard == let_go.run.fence
    assert replace(woken.run, change_id="", wake_at_ms=LATER_MS) == replace(let_go.run, change_id="")
    assert (woken.run.wake_at_ms, woken.run.change_id, woken.entries) == (NOW_MS, woken.id, ())
    # It leaves the run as long as it was, waiting: as a change it must be another one all the same.
    assert woken.id not in {let_go.id, transitions.wake(let_go.run, now_ms=LATER_MS).id}
