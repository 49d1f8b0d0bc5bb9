from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from holdfast.adapters.payloads import JsonCodec
from holdfast.engine.failures import described
from holdfast.errors import NotAllowedNow, TimedOut
from holdfast.kernel import cancels
from holdfast.kernel.cancels import ChildLeft, Left, Way, receipt, taken_back, way
from holdfast.kernel.changes import Alive
from holdfast.kernel.journal import (
    Blocked,
    Cancelled,
    Closed,
    Completed,
    Entry,
    Failed,
    Failure,
    Forked,
    Marked,
    Opened,
    Other,
    Patched,
    Resumed,
    Retried,
    Stopped,
    Tagged,
)
from holdfast.kernel.messages import CancelRequest, Envelope
from holdfast.kernel.runs import ENDED, NOT_BEGUN, Run, Status
from tests.builders import (
    CANCELLED,
    NOW_MS,
    STARTED,
    a_failure,
    a_run,
    an_intent,
    an_undo,
    attempted,
    cancel_asked,
    continued,
    dropped,
    elapsed,
    gave_up,
    intended,
    joined,
    late,
    late_failure,
    not_undone,
    performed,
    received,
    running,
    spawned,
    undone,
    with_journal,
)

STOPPED = Stopped(NOW_MS)
FAILED_STOP = Stopped(NOW_MS, error=a_failure(), deadline_at_ms=NOW_MS + 60_000)
END = Cancelled(NOW_MS)
PAUSED = Stopped(NOW_MS, paused=True)
SHIP = an_intent("shop.ship", key="ship:o-1")
CHILD = ChildLeft("child-1", "shop.pay", "no_effects")


def cancelled(*entries: Entry, first: int = 0) -> tuple[Run, tuple[Entry, ...]]:
    return with_journal(a_run(status=Status.CANCELLED, finished_at_ms=NOW_MS), *entries, first=first)


# -- how it is asked for


@pytest.mark.parametrize(
    ("run", "how"),
    [
        (a_run(), Way.AT_ONCE),
        (a_run(started_at_ms=NOW_MS), Way.AT_ONCE),  # a fork: the time is its source's
        (a_run(epoch=2, waits=NOT_BEGUN), Way.AT_ONCE),  # no worker serves the version that it is pinned to
        (a_run(status=Status.RUNNING, epoch=2, waits=NOT_BEGUN), Way.BY_ITS_OWNER),
        (a_run(epoch=2, waits=b"[]"), Way.BY_ITS_OWNER),  # it stood still, and no worker may go on with it
        (a_run(epoch=2), Way.BY_ITS_OWNER),  # it was begun before: only its code can clean up
        (a_run(status=Status.RUNNING), Way.BY_ITS_OWNER),
        (a_run(status=Status.WAITING, epoch=1), Way.BY_ITS_OWNER),
        (a_run(status=Status.BLOCKED, epoch=1), Way.AT_ONCE),
        *((a_run(status=status), Way.ENDED) for status in ENDED),
    ],
)
def test_how_a_run_is_cancelled(run, how):
    assert way(run) is how


def test_the_owner_of_a_live_run_is_asked_by_a_message():
    change = cancels.request("run-1", nonce="n-1", reason="no longer wanted", deadline_at_ms=NOW_MS + 5)
    assert change.guard == Alive("run-1")
    assert change.envelopes == (Envelope("run-1", CancelRequest("cancel/n-1", NOW_MS + 5, "no longer wanted")),)
    assert change.run is None


def test_a_repeated_request_is_the_same_and_another_one_another():
    def asked(run_id: str, nonce: str) -> str:
        return cancels.request(run_id, nonce=nonce, reason="", deadline_at_ms=NOW_MS).id

    assert asked("run-1", "n-1") == asked("run-1", "n-1")
    assert len({asked("run-1", "n-1"), asked("run-1", "n-2"), asked("run-2", "n-1")}) == 3


def test_a_request_counts_until_it_is_taken_back():
    first, second = cancel_asked("first"), cancel_asked("second")
    assert cancels.request_in(*cancelled(performed())) is None
    assert cancels.request_in(*cancelled(first, second, *CANCELLED)) is first
    assert cancels.request_in(*cancelled(first, *CANCELLED, Resumed(NOW_MS, (1, 2, 3)))) is None
    assert cancels.request_in(*cancelled(first, *CANCELLED, Resumed(NOW_MS, (1, 2, 3)), second)) is second
    assert cancels.request_in(*cancelled(continued(), first, first=40)) is first
    resumed = (continued(), first, *CANCELLED, Resumed(NOW_MS, (41, 42, 43)))
    assert cancels.request_in(*cancelled(*resumed, first=40)) is None


@pytest.mark.parametrize(
    ("run", "unsure"),
    [
        (a_run(), False),
        (a_run(epoch=1), True),  # whoever had it before may have been lost
        (a_run(status=Status.RUNNING, epoch=1), True),
        (a_run(epoch=2, waits=NOT_BEGUN), False),
        (a_run(epoch=3, waits=b"[]"), False),  # it stood still when it was given back
        (a_run(status=Status.RUNNING, epoch=3, waits=b"[]"), True),
        (a_run(status=Status.WAITING, epoch=1), False),  # it was let go in order
        (a_run(status=Status.BLOCKED, epoch=1), True),
        (
            a_run(status=Status.BLOCKED, epoch=1, error=msgspec.json.encode(a_failure("replay_diverged"))),
            True,
        ),
        (
            a_run(
                status=Status.BLOCKED,
                epoch=1,
                error=msgspec.json.encode(Failure("waits_for_nothing", "it waits for nothing")),
            ),
            False,
        ),
    ],
)
def test_whether_something_may_be_under_way_that_no_journal_shows(run, unsure):
    assert cancels.is_unsure(run) is unsure


# -- what it leaves behind

ASKED = cancel_asked()
TIMEOUT = a_failure(cancels.TIMED_OUT, "charge#1 took longer than 5 s")


def timed_out() -> Entry:
    return replace(attempted(), error=TIMEOUT)


def test_a_timeout_is_recognised_as_the_engine_records_it():
    assert described(TimedOut("charge#1 took longer than 5 s"), JsonCodec()).type == cancels.TIMED_OUT


@pytest.mark.parametrize(
    ("entries", "outcome", "left"),
    [
        ((ASKED, *CANCELLED), "no_effects", {}),
        ((elapsed(), received(), ASKED, *CANCELLED), "no_effects", {}),
        ((gave_up(), ASKED, *CANCELLED), "no_effects", {}),  # what failed for good did not happen
        ((attempted(), ASKED, *CANCELLED), "no_effects", {}),
        ((intended(), attempted(), ASKED, *CANCELLED), "no_effects", {}),
        # What did not answer in time may have happened, whatever comes of the next attempt.
        ((timed_out(), ASKED, *CANCELLED), "unknown", {"charge:o-1": "unknown"}),
        ((timed_out(), gave_up(), ASKED, *CANCELLED), "unknown", {"charge:o-1": "unknown"}),
        ((replace(gave_up(), error=TIMEOUT), ASKED, *CANCELLED), "unknown", {"charge:o-1": "unknown"}),
        ((timed_out(), performed(), ASKED, *CANCELLED), "partial", {"charge:o-1": "performed"}),
        # A late failure says what came of the last call, and nothing about one that timed out before.
        ((timed_out(), ASKED, dropped(), late_failure(), *CANCELLED), "unknown", {"charge:o-1": "unknown"}),
        ((timed_out(), ASKED, STOPPED, undone(), END), "compensated", {"charge:o-1": "undone"}),
        ((performed(), ASKED, *CANCELLED), "partial", {"charge:o-1": "performed"}),
        ((ASKED, performed(), *CANCELLED), "partial", {"charge:o-1": "performed"}),  # in a shield
        ((performed(), ASKED, STOPPED, undone(), END), "compensated", {"charge:o-1": "undone"}),
        ((performed(), ASKED, STOPPED, not_undone(), END), "partial", {"charge:o-1": "performed"}),
        ((performed(), ASKED, STOPPED, attempted("undo:charge#1", intent=an_undo()), END), "partial", None),
        (
            (performed(), performed("ship#1", intent=SHIP), ASKED, STOPPED, undone(), END),
            "partial",
            {"charge:o-1": "undone", "ship:o-1": "performed"},
        ),
        ((intended(), ASKED, *CANCELLED), "unknown", {"charge:o-1": "unknown"}),
        ((ASKED, dropped(), *CANCELLED), "unknown", {"charge:o-1": "unknown"}),
        ((ASKED, dropped(), STOPPED, undone(), END), "compensated", {"charge:o-1": "undone"}),
        ((ASKED, dropped(), late(), *CANCELLED), "partial", {"charge:o-1": "performed"}),
        ((ASKED, dropped(), late_failure(), *CANCELLED), "no_effects", {}),
        ((ASKED, dropped(), STOPPED, late_failure(), undone(), END), "no_effects", {}),  # there was nothing to undo
        ((ASKED, dropped(), late(), STOPPED, undone(), END), "compensated", {"charge:o-1": "undone"}),
        ((intended(), dropped(), performed(), ASKED, *CANCELLED), "partial", {"charge:o-1": "performed"}),
        # An undo that was cut short may or may not have happened.
        (
            (performed(), ASKED, STOPPED, dropped("undo:charge#1", intent=an_undo()), END),
            "unknown",
            {"charge:o-1": "unknown"},
        ),
        (
            (performed(), ASKED, STOPPED, late_failure("undo:charge#1", intent=an_undo()), END),
            "partial",
            {"charge:o-1": "performed"},
        ),
        (
            (
                *(performed(), ASKED, STOPPED, dropped("undo:charge#1", intent=an_undo())),
                *(late("undo:charge#1", intent=an_undo()), END),
            ),
            "compensated",
            {"charge:o-1": "undone"},
        ),
        ((performed(), ASKED, PAUSED, END), "resumable", {"charge:o-1": "performed"}),
        ((dropped(), ASKED, PAUSED, END), "resumable", {"charge:o-1": "unknown"}),
        ((ASKED, PAUSED, END), "no_effects", {}),
        ((performed(), ASKED, Stopped(NOW_MS, unsure=True), END), "unknown", {"charge:o-1": "performed"}),
        ((ASKED, Stopped(NOW_MS, unsure=True), END), "unknown", {}),
        ((performed("pay#1", intent=an_intent(kind="child")), ASKED, *CANCELLED), "no_effects", {}),
        ((performed(), END), "partial", {"charge:o-1": "performed"}),  # it cancelled itself
        ((END,), "no_effects", {}),
    ],
)
def test_what_a_receipt_says_of_a_cancelled_run(entries, outcome, left):
    """C1"""
    run, journal = cancelled(*entries)
    said = receipt(run, journal)
    assert said.outcome == outcome
    assert said.outcome in cancels.OUTCOMES
    if left is not None:
        assert {str(effect): effect.state for effect in said.effects} == left
    assert receipt(run, journal) == said  # asked for again, it is the same


@pytest.mark.parametrize(
    ("stop", "problems"),
    [
        (Stopped(NOW_MS, unsure=True), ["", cancels.NO_CODE_TO_UNDO, cancels.NO_CODE_TO_UNDO]),
        # The deadline has come, and the receipt says that already.
        (Stopped(NOW_MS, unsure=True, by_deadline=True), ["", "", ""]),
        (Stopped(NOW_MS), ["", "", ""]),
    ],
)
def test_what_was_left_since_no_code_could_undo_it_says_so(stop, problems):
    begun = (performed(), performed("ship#1", intent=SHIP), intended("ship#2", intent=SHIP))
    entries = (*begun, ASKED, STOPPED, undone(), stop, END)
    run, journal = cancelled(*entries)
    assert [left.problem for left in receipt(run, journal).effects] == problems


@pytest.mark.parametrize(
    ("status", "entries", "outcome"),
    [
        (Status.COMPLETED, (performed(), Completed(NOW_MS)), "completed_first"),
        (Status.COMPLETED, (performed(), ASKED, Completed(NOW_MS)), "completed_first"),  # it took no notice
        (Status.FAILED, (Failed(NOW_MS, a_failure()),), "no_effects"),
        (Status.FAILED, (performed(), Failed(NOW_MS, a_failure())), "partial"),
        (Status.FAILED, (performed(), FAILED_STOP, undone(), Failed(NOW_MS, a_failure())), "compensated"),
        (Status.FAILED, (performed(), FAILED_STOP, not_undone(), Failed(NOW_MS, a_failure())), "partial"),
        (Status.FAILED, (performed(), ASKED, STOPPED, Failed(NOW_MS, a_failure())), "partial"),  # it was told
        (Status.FAILED, (performed(), ASKED, STOPPED, undone(), Failed(NOW_MS, a_failure())), "compensated"),
    ],
)
def test_what_a_receipt_says_of_a_run_that_came_to_an_end_of_its_own(status, entries, outcome):
    run, journal = with_journal(a_run(status=status), *entries)
    assert receipt(run, journal).outcome == outcome


@pytest.mark.parametrize(
    ("entries", "of_child", "outcome"),
    [
        ((), "no_effects", "no_effects"),
        ((), "partial", "partial"),
        ((), "compensated", "compensated"),
        ((), "completed_first", "partial"),
        ((), "resumable", "partial"),
        ((), "unknown", "unknown"),
        ((performed(),), "no_effects", "partial"),
        ((performed(),), "compensated", "partial"),
    ],
)
def test_what_its_children_left_behind_counts_too(entries, of_child, outcome):
    child = replace(CHILD, outcome=of_child)
    said = receipt(*cancelled(spawned(), *entries, ASKED, *CANCELLED), (child,))
    assert (said.outcome, said.children) == (outcome, (child,))


def test_a_child_that_did_nothing_at_all_leaves_nothing_behind():
    child = ChildLeft("child-1", "shop.pay", "completed_first", is_empty=True)
    assert receipt(*cancelled(spawned(), ASKED, *CANCELLED), (child,)).outcome == "no_effects"


def test_children_are_left_by_a_cancellation_or_a_failure_only():
    run, journal = with_journal(a_run(status=Status.COMPLETED), spawned(), Completed(NOW_MS))
    assert receipt(run, journal, (CHILD,)).children == ()
    run, journal = with_journal(a_run(status=Status.FAILED), spawned(), Failed(NOW_MS, a_failure()))
    assert receipt(run, journal, (CHILD,)).children == (CHILD,)


def test_a_receipt_names_the_reason_and_whether_the_deadline_cut_it_short():
    said = receipt(*cancelled(cancel_asked("no longer wanted"), *CANCELLED))
    assert (said.run_id, said.reason, said.stopped) == ("run-1", "no longer wanted", False)
    assert receipt(*cancelled(ASKED, Stopped(NOW_MS, by_deadline=True), END)).stopped
    # Its code had ended, and the undoing was cut short.
    assert receipt(*cancelled(ASKED, STOPPED, Stopped(NOW_MS, by_deadline=True), END)).stopped
    assert receipt(*cancelled(END)).reason == ""


def test_an_effect_knows_what_became_of_it():
    [left] = receipt(*cancelled(performed(), ASKED, STOPPED, not_undone(), END)).effects
    assert isinstance(left, Left)
    assert left == "charge:o-1"
    assert (left.name, left.step, left.state, left.problem) == (
        "shop.charge",
        "charge#1",
        "performed",
        "ValueError: boom",
    )
    assert repr(left) == "<'charge:o-1' performed: ValueError: boom>"
    [left] = receipt(*cancelled(performed(), ASKED, END)).effects
    assert repr(left) == "<'charge:o-1' performed>"


def test_a_receipt_never_vouches_for_what_its_journal_no_longer_shows():
    """Earlier generations of a run that continued as new may have left effects."""
    for entries in ((), (performed(), ASKED, STOPPED, undone())):
        assert receipt(
            *cancelled(continued(), *entries, *(() if entries else (ASKED, STOPPED)), END, first=40)
        ).outcome == ("partial")
    assert receipt(*cancelled(continued(), intended(), ASKED, *CANCELLED, first=40)).outcome == "unknown"


@pytest.mark.parametrize(("beside", "left"), [(True, ("ship:o-1",)), (False, ("charge:o-1", "ship:o-1"))])
def test_a_fork_beside_its_source_answers_for_its_own_work_only(beside, left):
    copied = (performed(), Forked(NOW_MS, "run-0", "run-0", "ship#1", beside=beside))
    assert receipt(*cancelled(*copied, performed("ship#1", intent=SHIP), ASKED, *CANCELLED)).effects == left


def test_what_a_retry_has_voided_did_not_happen():
    failed = Failed(NOW_MS, a_failure(step="charge#1"))
    entries = (intended(), gave_up(), failed, Retried(NOW_MS, (1, 2)), ASKED, *CANCELLED)
    assert receipt(*cancelled(*entries)).outcome == "no_effects"


@pytest.mark.parametrize(
    ("entry", "is_own"),
    [
        (spawned(), True),
        (spawned(kind="child"), True),
        (spawned(created=False), False),  # somebody else's
        (spawned(detached=True), False),
        (replace(late("pay#1"), value=None, run_id="child-1"), True),
        (late(), False),
        (joined(), False),
    ],
)
def test_whose_children_are_cancelled_with_it(entry, is_own):
    assert [child.run_id for child in cancels.children_of((entry,))] == (["child-1"] if is_own else [])


def test_a_child_that_was_joined_has_ended():
    others = (spawned(), spawned("pay#2", run_id="child-2"), joined("pay.result#1", run_id="child-2"))
    assert cancels.children_of(others) == (
        cancels.Child("child-1", "shop.pay", has_ended=False),
        cancels.Child("child-2", "shop.pay", has_ended=True),
    )


def test_children_of_earlier_generations_are_still_its_own():
    first = replace(continued(), children=(Other("child-1", "shop.pay"), Other("child-2", "shop.pay")))
    assert cancels.children_of((first, spawned("g1/pay#1", run_id="child-3"), joined(run_id="child-2"))) == (
        cancels.Child("child-1", "shop.pay", has_ended=False),
        cancels.Child("child-2", "shop.pay", has_ended=True),
        cancels.Child("child-3", "shop.pay", has_ended=False),
    )


def test_a_run_that_stands_still_is_paused():
    assert cancels.is_paused((ASKED, PAUSED, END))
    assert not cancels.is_paused((ASKED, *CANCELLED))


def test_the_children_of_a_run_that_stands_still_count_when_they_have_ended():
    both = (spawned(run_id="child-1"), spawned("pay#2", run_id="child-2"), joined(run_id="child-2"))
    assert [child.run_id for child in cancels.children_left((*both, ASKED, PAUSED, END))] == ["child-2"]
    assert [child.run_id for child in cancels.children_left((*both, ASKED, *CANCELLED))] == ["child-1", "child-2"]


@pytest.mark.parametrize(
    ("entries", "children", "is_empty"),
    [
        ((), (), True),
        ((), (replace(CHILD, is_empty=True),), True),
        ((), (replace(CHILD, is_empty=True), CHILD), False),
        ((performed(),), (), False),
    ],
)
def test_a_run_performed_nothing_if_no_run_below_it_did(entries, children, is_empty):
    run, journal = cancelled(*entries, *CANCELLED)
    assert cancels.performed_nothing(receipt(run, journal), journal, children) is is_empty


def test_of_a_run_that_continued_as_new_it_is_not_known_that_it_performed_nothing():
    run, journal = cancelled(*CANCELLED)
    said = receipt(run, journal)
    assert cancels.performed_nothing(said, journal, ())
    assert not cancels.performed_nothing(said, (continued(), *journal), ())


# -- a cancellation compared with a ledger

STEPS = ["a#1", "b#1", "c#1"]
ACTIONS = (
    *("intend", "attempt", "perform", "perform", "give_up", "cancel"),
    *("drop", "late", "fail_late", "stop", "undo", "fail_to_undo", "end", "resume"),
)


class Ledger:
    """A run that does what it is told, if that is possible, and what has happened in the world meanwhile."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.world: dict[str, str] = {}  # step -> performed | unknown | undone; nothing: it did not happen
        self.open = set(STEPS)  # not yet answered
        self.interrupted: set[str] = set()  # by this cancellation
        self.tried: set[str] = set()  # to be undone
        self.phase = "live"

    def do(self, action: str, step: str) -> None:
        intent = an_intent(step, key=f"key of {step}")
        match self.phase, action:
            case "live", "intend" if step in self.open:
                self._happens(step, "unknown", intended(step, intent=intent))
            case "live", "attempt" if step in self.open and step not in self.world:
                self.entries.append(attempted(step, intent=intent))
            case "live", "perform" if step in self.open:
                self.open.discard(step)
                self._happens(step, "performed", performed(step, intent=intent))
            case "live", "give_up" if step in self.open and step not in self.world:
                self.open.discard(step)
                self.entries.append(gave_up(step, intent=intent))
            case "live", "cancel":
                self.phase = "cancelling"
                self.entries.append(cancel_asked())
            case "cancelling", "drop" if step in self.open and step not in self.interrupted:
                self.interrupted.add(step)
                self._happens(step, "unknown", dropped(step, intent=intent))
            case "cancelling", "late" if step in self.interrupted:
                self.interrupted.discard(step)
                self.open.discard(step)
                self._happens(step, "performed", late(step, intent=intent))
            case "cancelling", "fail_late" if step in self.interrupted:
                self.interrupted.discard(step)
                self.world.pop(step)
                self.entries.append(late_failure(step, intent=intent))
            case "cancelling", "stop":
                self.phase = "undoing"
                self.entries.append(STOPPED)
            case "undoing", "undo" if step in self.world and step not in self.tried:
                self.tried.add(step)
                self._happens(step, "undone", undone(step))
            case "undoing", "fail_to_undo" if step in self.world and step not in self.tried:
                self.tried.add(step)
                self.entries.append(not_undone(step))
            case "undoing", "end":
                self.phase = "ended"
                self.entries.append(END)
            case "ended", "resume" if not self.tried:
                self.entries.append(Resumed(NOW_MS, taken_back(*cancelled(*self.entries))))
                self.phase = "live"
                self.interrupted.clear()
            case _:
                pass

    def _happens(self, step: str, state: str, entry: Entry) -> None:
        self.world[step] = state
        self.entries.append(entry)

    def end(self) -> None:
        for action in ("cancel", "stop", "end"):
            self.do(action, "")

    @property
    def outcome(self) -> str:
        states = set(self.world.values())
        if "unknown" in states:
            return "unknown"
        if not states:
            return "no_effects"
        return "compensated" if states == {"undone"} else "partial"


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(STEPS)), max_size=40))
def test_a_receipt_says_what_the_ledger_says(actions):
    """C1, C10: an effect is in the receipt exactly if it was performed, interrupted or came late."""
    ledger = Ledger()
    for action, step in actions:
        ledger.do(action, step)
    ledger.end()
    said = receipt(*cancelled(*ledger.entries))
    assert {effect.step: effect.state for effect in said.effects} == ledger.world
    assert {str(effect) for effect in said.effects} == {f"key of {step}" for step in ledger.world}
    assert said.outcome == ledger.outcome


@pytest.mark.parametrize("again", [attempted(), gave_up()])
def test_what_was_interrupted_stays_unknown_though_a_later_attempt_fails(again):
    """The interrupted call may have happened, whatever became of the next one after a resumption."""
    once = (ASKED, dropped(), *CANCELLED)
    said = receipt(*cancelled(*once, Resumed(NOW_MS, (1, 2, 3, 4)), again, ASKED, *CANCELLED))
    assert said.outcome == "unknown"
    assert said.effects == ("charge:o-1",)


# -- taking it back


@pytest.mark.parametrize(
    ("entries", "positions"),
    [
        ((ASKED, *CANCELLED), (1, 2, 3)),
        ((performed(), ASKED, *CANCELLED), (2, 3, 4)),
        ((ASKED, cancel_asked("again"), *CANCELLED), (1, 2, 3, 4)),
        ((ASKED, dropped(), late(), elapsed(), *CANCELLED), (1, 2, 3, 4, 5, 6)),
        ((ASKED, received(), *CANCELLED), (1, 3, 4)),  # what arrived has arrived
        ((ASKED, PAUSED, END), (1, 2, 3)),
        ((ASKED, performed(), PAUSED, END), (1, 3, 4)),  # it was under way when the run was paused
        ((ASKED, *CANCELLED, Resumed(NOW_MS, (1, 2, 3)), ASKED, *CANCELLED), (5, 6, 7)),
        ((ASKED, Stopped(NOW_MS, unsure=True), END), (1, 2, 3)),  # no code has run since it was asked
    ],
)
def test_a_resumption_takes_back_what_the_cancellation_has_recorded(entries, positions):
    assert taken_back(*cancelled(*entries)) == positions


def test_positions_are_those_of_the_run_though_it_has_begun_anew():
    assert taken_back(*cancelled(continued(), performed(), ASKED, *CANCELLED, first=40)) == (42, 43, 44)


HOOK = an_intent("approval", kind="hook", key="token-1")


@pytest.mark.parametrize(
    "entry",
    [
        performed(),
        gave_up(),
        joined(),
        spawned(),
        attempted(),
        intended(),
        Opened(NOW_MS, "hook:approval#1", HOOK),
        Marked(NOW_MS, "mark#1", "dropped"),
        Tagged(NOW_MS, "set_attributes#1", msgspec.Raw(b'{"stage":"dropped"}')),
        Closed(NOW_MS, "close#1", "approval"),
        Patched(NOW_MS, "with-tax"),
        undone(),
        dropped("undo:charge#1", intent=an_undo()),
    ],
    ids=lambda entry: entry.what,
)
def test_a_run_that_did_something_about_its_cancellation_is_not_resumed(entry):
    with pytest.raises(NotAllowedNow, match=f"went on after it was cancelled: {entry.what}") as refused:
        taken_back(*cancelled(performed("ship#1"), ASKED, entry, *CANCELLED))
    assert "Fork" in str(refused.value.hint)


def test_a_run_that_may_have_done_something_is_not_resumed_either():
    """It was told, and then stopped by its deadline while somebody held it."""
    stopped = Stopped(NOW_MS + 30_000, by_deadline=True, unsure=True)
    with pytest.raises(NotAllowedNow, match="may have been going on"):
        taken_back(*cancelled(ASKED, stopped, END))


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.CANCELLED])
def test_only_a_cancelled_run_is_resumed(status):
    with pytest.raises(NotAllowedNow, match=f"run-1 is {status}"):
        taken_back(*with_journal(a_run(status=status), ASKED))


def test_a_run_that_cancelled_itself_is_not_resumed():
    with pytest.raises(NotAllowedNow, match="cancelled itself"):
        taken_back(*cancelled(performed(), Blocked(NOW_MS, "a", "b"), Retried(NOW_MS), END))


# -- undone on failure


FAILED = Failed(NOW_MS, a_failure(step="charge#1"))


def failed(*entries: Entry) -> tuple[Run, tuple[Entry, ...]]:
    return with_journal(a_run(status=Status.FAILED), *entries, FAILED)


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ((), None),
        ((ASKED, STOPPED), None),
        ((FAILED_STOP,), FAILED_STOP),
        ((FAILED_STOP, FAILED, Retried(NOW_MS, (1,))), None),
        ((FAILED_STOP, FAILED, Retried(NOW_MS, (1,)), FAILED_STOP), FAILED_STOP),
    ],
)
def test_the_record_that_a_run_is_undone_since_it_failed_counts_until_a_retry_takes_it_back(entries, found):
    assert cancels.failure_in(*failed(*entries)) == found


@pytest.mark.parametrize(
    ("since", "void"),
    [
        ((), ()),
        ((FAILED_STOP,), (2,)),
        ((FAILED_STOP, Stopped(NOW_MS, by_deadline=True, error=a_failure())), (2, 3)),
        ((FAILED_STOP, FAILED, Retried(NOW_MS, (2,)), FAILED_STOP), (5,)),
    ],
)
def test_a_retry_takes_back_that_the_run_was_to_be_undone_if_nothing_was(since, void):
    assert cancels.check_not_undone(*failed(performed(), *since)) == void


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (undone(), "has been undone since it failed: performed undo:"),
        (joined(step="stop:pay#1"), "has been undone since it failed: joined stop:pay#1"),
        (not_undone(), "may have been undone since it failed: an undo was begun, and did not return: gave up undo:"),
        (dropped(step="undo:charge#1"), "may have been undone since it failed"),
    ],
    ids=lambda each: getattr(each, "what", None),
)
def test_a_run_that_was_undone_or_may_have_been_is_not_retried(entry, told):
    with pytest.raises(NotAllowedNow, match=told):
        cancels.check_not_undone(*failed(performed(), FAILED_STOP, entry))


def test_a_run_of_which_one_thing_was_undone_was_undone_whatever_became_of_the_rest():
    with pytest.raises(NotAllowedNow, match="has been undone since it failed"):
        cancels.check_not_undone(*failed(performed(), FAILED_STOP, not_undone(), undone()))


def test_a_run_that_took_too_long_is_retried_unless_it_was_undone():
    timed_out = replace(ASKED, error=a_failure())
    assert cancels.check_not_undone(*failed(performed(), timed_out, Stopped(NOW_MS, kept=True))) == (2, 3)
    with pytest.raises(NotAllowedNow):
        cancels.check_not_undone(*failed(performed(), timed_out, STOPPED, undone()))


def test_the_owner_of_a_run_is_told_what_it_shall_fail_with():
    change = cancels.request("run-1", nonce="timeout", reason="", deadline_at_ms=NOW_MS, error=a_failure())
    assert change.envelopes[0].message.error == a_failure()


@pytest.mark.parametrize(
    ("entries", "unread", "counts"),
    [
        ((), (), False),
        ((), ("cancel/timeout",), True),
        ((), ("cancel/other",), False),
        ((cancel_asked(),), (), True),
        ((cancel_asked(), *CANCELLED, Resumed(NOW_MS, (1, 2, 3))), (), False),
        ((Stopped(NOW_MS, error=a_failure()),), (), True),
    ],
)
def test_whether_a_request_to_end_a_run_still_counts(entries, unread, counts):
    journal = (STARTED, *entries)
    run = running(length=len(journal))
    assert cancels.still_asked(run, journal, unread, "timeout") is counts
