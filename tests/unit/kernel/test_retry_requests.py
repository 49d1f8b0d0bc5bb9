"""Which steps wait for their next attempt, what is sent to their run, and what its owner records."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow
from holdfast.kernel import doubts, retry_requests, waits
from holdfast.kernel.doubts import SaidNotPerformed
from holdfast.kernel.explanations import next_actions, story
from holdfast.kernel.journal import (
    Attempted,
    Blocked,
    ByHand,
    CancelAsked,
    Entry,
    Failure,
    Intent,
    Performed,
    Retried,
    Value,
)
from holdfast.kernel.messages import KeyTaken, SignalMessage
from holdfast.kernel.retry_requests import RetryRequest
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant
from holdfast.kernel.waits import Wait
from tests.builders import a_run, with_journal

INTENT = Intent("effect", "bank.charge", "charge:5")
STEP, NOW, LATER, EVE = "charge#1", Instant(100), Instant(900), ByHand("eve", "it is back")
NO = Failure("OSError", "closed", traceback="frames")
FAILED = Attempted(Instant(50), STEP, INTENT, 2, NO, LATER)
OTHER = replace(FAILED, step="charge#2")
ASKED = replace(EVE, retry_now=True)
AT_ONCE = Attempted(NOW, STEP, INTENT, 2, NO, NOW, ASKED)
DONE = Performed(Instant(60), STEP, INTENT, 3, Value(Raw(b"1")))


def at(*entries: Entry, status: Status = Status.RUNNING, **fields: Any) -> tuple[Run, tuple[Entry, ...]]:
    return with_journal(a_run(status=status, **fields), *entries)


def let_go(*entries: Entry, steps: tuple[str, ...]) -> tuple[Run, tuple[Entry, ...]]:
    return at(*entries, status=Status.WAITING, waits=waits.encode([Wait("retry", "x", LATER, step) for step in steps]))


@pytest.mark.parametrize(
    ("run", "steps"),
    [
        (at(FAILED), [STEP]),
        (at(FAILED, OTHER, status=Status.PENDING), [STEP, "charge#2"]),
        (let_go(FAILED, OTHER, steps=("charge#2",)), ["charge#2"]),  # the code has left the other one
        (at(FAILED, status=Status.WAITING), [STEP]),
        (at(FAILED, DONE), []),
        (at(AT_ONCE), [STEP]),
        (at(FAILED, Retried(Instant(60), (1,))), []),
        (at(FAILED, CancelAsked(Instant(60), LATER, pausing=True)), []),
        (at(FAILED, CancelAsked(Instant(60), LATER)), [STEP]),
        (at(FAILED, Blocked(Instant(60), "a", "b"), status=Status.BLOCKED), []),
        (at(FAILED, status=Status.CANCELLED), []),
    ],
)
def test_a_step_waits_if_its_last_record_that_counts_says_so(
    run: tuple[Run, tuple[Entry, ...]], steps: list[str]
) -> None:
    assert list(retry_requests.waiting(*run)) == steps


def sent(run: tuple[Run, tuple[Entry, ...]], step: str | None = None) -> dict[str, RetryRequest | None]:
    changes = retry_requests.requests(*run, step, EVE, now_ms=NOW)
    return {name: retry_requests.request_in(change.envelopes[0].message) for name, change in changes.items()}


def test_a_request_has_the_attempt_that_failed_and_who_asks() -> None:
    with_input = replace(FAILED, input=Value(Raw(b"{}")))
    assert sent(at(with_input)) == {STEP: RetryRequest(FAILED, ASKED)}


@pytest.mark.parametrize(("step", "names"), [(None, {STEP, "charge#2"}), (STEP, {STEP}), ("charge#2", {"charge#2"})])
def test_one_step_is_meant_or_all(step: str | None, names: set[str]) -> None:
    assert sent(at(FAILED, OTHER), step).keys() == names


@pytest.mark.parametrize("step", [None, STEP])
def test_what_is_due_needs_no_request(step: str | None) -> None:
    assert sent(at(FAILED, AT_ONCE), step) == {}


def test_the_same_request_is_one_change_and_that_about_the_next_failure_is_another() -> None:
    again = replace(FAILED, attempt=3)
    [first], [second], [third] = (
        retry_requests.requests(*run, None, EVE, now_ms=NOW).values()
        for run in (at(FAILED), at(FAILED, DONE_BESIDE), at(FAILED, again))
    )
    assert first.id == second.id
    assert first.id != third.id


DONE_BESIDE = replace(DONE, step="quote#1")


@pytest.mark.parametrize(
    ("run", "step", "what", "hint"),
    [
        (at(FAILED), "other#1", "step 'other#1' does not wait", "charge#1"),
        (at(DONE), STEP, "step 'charge#1' does not wait", "after one that failed"),
        (at(DONE), None, "no step waits", "after one that failed"),
        (at(FAILED, status=Status.BLOCKED), STEP, "is blocked", "Retry the run"),
        (at(FAILED, status=Status.FAILED), None, "is failed", "Retry the run"),
    ],
)
def test_what_does_not_wait_is_refused_with_what_does(
    run: tuple[Run, tuple[Entry, ...]], step: str | None, what: str, hint: str
) -> None:
    with pytest.raises(NotAllowedNow, match=what) as refused:
        retry_requests.requests(*run, step, EVE, now_ms=NOW)
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("attempts", "retry_at_ms", "entry"),
    [
        (2, LATER, AT_ONCE),
        (2, NOW, None),  # it is due anyway
        (2, None, None),  # it is being tried
        (3, LATER, None),  # it has failed once more
    ],
)
def test_the_owner_records_it_if_the_step_still_waits(
    attempts: int, retry_at_ms: Instant | None, entry: Attempted | None
) -> None:
    request = RetryRequest(FAILED, ASKED)
    assert retry_requests.entry_of(request, attempts=attempts, retry_at_ms=retry_at_ms, now_ms=NOW) == entry


def test_other_messages_are_no_requests() -> None:
    assert retry_requests.request_in(KeyTaken("retry_now/1")) is None
    assert retry_requests.request_in(SignalMessage("signal/1/a/1", retry_requests.HOOK, Raw(b"1"))) is None


def test_it_is_offered_while_the_attempt_is_not_due() -> None:
    assert next_actions(*at(FAILED), now_ms=NOW)[0] == "retry_now"
    assert "retry_now" not in next_actions(*at(FAILED), now_ms=LATER)


def test_the_story_tells_who_asked_and_shows_the_traceback_once() -> None:
    run, journal = at(FAILED, AT_ONCE)
    told = story(run, journal, waiting_on=(), next_actions=()).lines
    assert told[2].text == "attempt 3 of charge#1 was to begin at once; asked for by eve, since it is back"
    assert [line.traceback for line in told] == ["", "frames\n", ""]


def test_it_is_no_decision_about_an_outcome() -> None:
    run, journal = at(FAILED, AT_ONCE)
    with pytest.raises(NotAllowedNow, match="not in doubt"):
        doubts.decide(run, journal, STEP, SaidNotPerformed(NO), EVE, nonce="n", now_ms=NOW)
