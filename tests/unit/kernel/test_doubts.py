"""What a person may say about a step in doubt, and what is recorded of it."""

from __future__ import annotations

import pytest
from msgspec import Raw

from holdfast.errors import NotAllowedNow
from holdfast.kernel import doubts
from holdfast.kernel.changes import Blob
from holdfast.kernel.doubts import SaidFailed, SaidNotPerformed, SaidReturned, Verdict
from holdfast.kernel.journal import (
    Attempted,
    Blocked,
    ByHand,
    Entry,
    Failure,
    GaveUp,
    Intended,
    Intent,
    Performed,
    Retried,
    Started,
    Value,
)
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant
from tests.builders import a_run

INTENT = Intent("effect", "bank.transfer", "transfer:5")
STEP, NOW, EVE = "transfer#1", Instant(9), ByHand("eve", "statement 7")
NO = Failure("x", "no")
DOUBT = (
    Started(Instant(1), Value(Raw(b"{}"))),
    Intended(Instant(2), STEP, INTENT, 1),
    Blocked(Instant(3), "unknown_outcome", "not known"),
)
RETURNED, LARGE = SaidReturned(Value(Raw(b"1"))), SaidReturned(Value(blob="b", size=9), (Blob("b", b"large"),))
VERDICTS: list[tuple[Verdict, Entry]] = [
    (RETURNED, Performed(NOW, STEP, INTENT, 1, RETURNED.value, EVE)),
    (LARGE, Performed(NOW, STEP, INTENT, 1, LARGE.value, EVE)),
    (SaidFailed(NO), GaveUp(NOW, STEP, INTENT, 1, NO, EVE)),
    (SaidNotPerformed(NO), Attempted(NOW, STEP, INTENT, 1, NO, NOW, EVE)),
]


def run_with(journal: tuple[Entry, ...], status: Status = Status.BLOCKED) -> Run:
    return a_run(status=status, length=len(journal))


@pytest.mark.parametrize(("verdict", "entry"), VERDICTS)
def test_what_is_said_is_recorded_and_the_run_goes_on(verdict: Verdict, entry: Entry) -> None:
    change = doubts.decide(run_with(DOUBT), DOUBT, STEP, verdict, EVE, nonce="n", now_ms=NOW)
    assert change is not None
    assert change.run is not None
    assert (change.entries, change.run.status, change.run.change_id) == ((entry,), Status.PENDING, change.id)
    assert change.blobs == (verdict.blobs if isinstance(verdict, SaidReturned) else ())


def test_two_who_decide_at_once_make_two_changes() -> None:
    first, second = (doubts.decide(run_with(DOUBT), DOUBT, STEP, RETURNED, EVE, nonce=n, now_ms=NOW) for n in "ab")
    assert first is not None
    assert second is not None
    assert first.id != second.id


@pytest.mark.parametrize(("said", "entry"), VERDICTS)
@pytest.mark.parametrize("verdict", [verdict for verdict, _ in VERDICTS])
def test_the_same_again_changes_nothing_and_another_verdict_is_refused(
    said: Verdict, entry: Entry, verdict: Verdict
) -> None:
    journal = (*DOUBT, entry)
    run = run_with(journal, Status.PENDING)
    if verdict == said:
        assert doubts.decide(run, journal, STEP, verdict, EVE, nonce="n", now_ms=NOW) is None
    else:
        with pytest.raises(NotAllowedNow, match="otherwise"):
            doubts.decide(run, journal, STEP, verdict, EVE, nonce="n", now_ms=NOW)


@pytest.mark.parametrize(
    ("journal", "status", "steps"),
    [
        (DOUBT, Status.BLOCKED, {STEP}),
        (DOUBT, Status.RUNNING, set[str]()),
        ((*DOUBT, Performed(NOW, STEP, INTENT, 1, RETURNED.value)), Status.BLOCKED, set[str]()),
        ((*DOUBT, Retried(NOW, (1,))), Status.BLOCKED, set[str]()),  # the intent does not count any more
    ],
)
def test_a_step_is_in_doubt_if_its_run_is_blocked_over_an_intent(
    journal: tuple[Entry, ...], status: Status, steps: set[str]
) -> None:
    run = run_with(journal, status)
    assert set(doubts.in_doubt(run, journal)) == steps
    if not steps:
        with pytest.raises(NotAllowedNow, match="not in doubt"):
            doubts.decide(run, journal, STEP, RETURNED, EVE, nonce="n", now_ms=NOW)
