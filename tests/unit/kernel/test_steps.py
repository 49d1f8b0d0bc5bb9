"""The life of a step, as a table: what is known of it, what happens, what follows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import NotPerformed, Permanent, TimedOut, UnknownOutcome
from holdfast.kernel.journal import (
    Attempted,
    Dropped,
    GaveUp,
    Intended,
    Joined,
    Late,
    Opened,
    Other,
    Performed,
    Spawned,
)
from holdfast.kernel.retries import ONCE, Retry
from holdfast.kernel.steps import (
    AT_ONCE_MS,
    CODE_LEFT,
    DENIED,
    RUN_LEFT,
    STOPPING,
    TO_BEGIN,
    WATCHING,
    Act,
    AwaitedRunEnded,
    Block,
    ChildAdmitted,
    Confirmed,
    Decision,
    Event,
    Expired,
    Interrupted,
    NotAdmitted,
    Raised,
    Repeated,
    Returned,
    Step,
    TokenClaimed,
    Undecided,
    decide,
)
from holdfast.kernel.units import utc_of
from tests.builders import NOW_MS, a_failure, a_value, an_intent

LATER = NOW_MS + 5
EFFECT, UNDO = an_intent(), an_intent(kind="undo")
CHILD, SPAWN = an_intent("shop.pay", kind="child"), an_intent("shop.pay", kind="spawn")
HOOK, JOIN = an_intent("approval", kind="hook"), an_intent("shop.pay", kind="join")
VALUE, FAILURE = a_value(), a_failure()
OTHER = Other("run-2", "shop.pay", "pay:2")
BOOM, SLOW, NEVER = ValueError("boom"), TimedOut("slow"), NotPerformed("no worker claimed it")


class Policy(Struct, frozen=True, kw_only=True):
    retry: Retry = Retry()
    safety: str = "keyed"
    reconcile: object | None = None


KEYED = Policy()
BLIND = Policy(safety="once")
ASKING = Policy(safety="once", reconcile=print)

CHARGE = Step("charge#1", EFFECT, NOW_MS)
REMOTE = replace(CHARGE, remote=True)
PAY = Step("pay#1", CHILD, NOW_MS)
OPEN = Step("hook:approval#1", HOOK, NOW_MS)
AWAIT = Step("pay.result#1", JOIN, NOW_MS)


def known(step: Step, **facts: Any) -> Step:
    return replace(step, **facts)


def left(step: Step, **facts: Any) -> Step:
    """A step that the code does not wait for any more."""
    return replace(step, waited=False, **facts)


def performed(attempt: int = 1) -> Performed:
    return Performed(LATER, "charge#1", EFFECT, attempt, VALUE)


def gave_up(attempt: int = 1) -> GaveUp:
    return GaveUp(LATER, "charge#1", EFFECT, attempt, FAILURE)


def attempted(attempt: int = 1, *, delay_ms: int = 250) -> Attempted:
    return Attempted(LATER, "charge#1", EFFECT, attempt, FAILURE, LATER + delay_ms)


def intended(attempt: int = 1) -> Intended:
    return Intended(LATER, "charge#1", EFFECT, attempt)


def spawned(*, created: bool = True, detached: bool = False) -> Spawned:
    return Spawned(LATER, "pay#1", CHILD, "child-1", "pay:1", created=created, detached=detached)


def late(attempt: int = 1, **what: Any) -> Late:
    return Late(LATER, "charge#1", EFFECT, attempt, **what)


LATE_CHILD = Late(LATER, "pay#1", CHILD, 1, run_id="child-1")
DROPPED = Dropped(LATER, "charge#1", EFFECT)
OPENED = Opened(LATER, "hook:approval#1", HOOK)


def blocked(why: str) -> Block:
    return Block(
        UnknownOutcome.code,
        f"effect shop.charge (charge#1, key 'charge:o-1') was begun and {why}; whether it happened is not known",
    )


def decided(step: Step, event: Event, policy: Policy | None = None) -> Decision:
    return decide(step, event, policy, now_ms=LATER, chance=0.5)


@pytest.mark.parametrize(
    ("step", "policy", "becomes"),
    [
        (CHARGE, KEYED, Act.CALL),
        (known(CHARGE, failures=1), KEYED, Act.CALL),
        (PAY, None, Act.CALL),
        (CHARGE, BLIND, intended()),
        (CHARGE, ASKING, intended()),
        (REMOTE, BLIND, intended()),
        (known(CHARGE, failures=2), BLIND, intended(3)),  # each attempt has an intent of its own
        (known(CHARGE, intended=True, may_call=True), BLIND, Act.CALL),  # recorded by this very process
        (known(CHARGE, intended=True), ASKING, Act.RECONCILE),  # by one that has died since
        (known(CHARGE, intended=True), BLIND, blocked("the process died after it was begun")),
        # It was `once` when it was begun, whatever the code of today declares.
        (known(CHARGE, intended=True), KEYED, blocked("the process died after it was begun")),
        (known(REMOTE, intended=True), BLIND, Act.CALL),  # its task is there to be joined
        (known(REMOTE, intended=True), ASKING, Act.CALL),
    ],
)
def test_what_begins_a_step(step, policy, becomes):
    assert decided(step, TO_BEGIN, policy) == becomes


@pytest.mark.parametrize(
    ("step", "event", "policy", "becomes"),
    [
        (CHARGE, Returned(VALUE), KEYED, performed()),
        (known(CHARGE, failures=1), Returned(VALUE), KEYED, performed(2)),
        (CHARGE, Raised(BOOM, FAILURE), KEYED, attempted()),
        (known(CHARGE, failures=1), Raised(BOOM, FAILURE), KEYED, attempted(2, delay_ms=500)),
        (known(CHARGE, failures=2), Raised(BOOM, FAILURE), KEYED, gave_up(3)),
        (CHARGE, Raised(Permanent("no"), FAILURE), KEYED, gave_up()),
        (CHARGE, Raised(BOOM, FAILURE), Policy(retry=ONCE), gave_up()),
        (
            CHARGE,
            Raised(BOOM, FAILURE),
            Policy(retry=Retry(deadline="4ms")),
            gave_up(),
        ),  # counted from when it was asked
        (CHARGE, Raised(SLOW, FAILURE), KEYED, attempted()),
        (CHARGE, Raised(BOOM, FAILURE), BLIND, attempted()),  # it has said itself that it did not happen
        (CHARGE, Raised(SLOW, FAILURE), ASKING, Act.RECONCILE),
        (CHARGE, Raised(SLOW, FAILURE), BLIND, blocked("it did not answer in time")),
        (CHARGE, Raised(NEVER, FAILURE), KEYED, attempted()),
        (CHARGE, Raised(NEVER, FAILURE, interrupted=True), KEYED, None),  # asked for again when the run goes on
        (CHARGE, Raised(BOOM, FAILURE, interrupted=True), KEYED, attempted()),
        (CHARGE, Confirmed(VALUE), ASKING, performed()),
        (CHARGE, DENIED, ASKING, Act.CALL),
        (CHARGE, Undecided("reconcile raised OSError"), ASKING, blocked("reconcile raised OSError")),
        (CHARGE, Expired(FAILURE), KEYED, gave_up(0)),
        (known(CHARGE, failures=2), Expired(FAILURE), KEYED, gave_up(2)),
        (CHARGE, Interrupted(begun=True), KEYED, DROPPED),
        (CHARGE, Interrupted(begun=False), KEYED, None),
        (PAY, ChildAdmitted("child-1", "pay:1", created=True), None, spawned()),
        (PAY, ChildAdmitted("child-1", "pay:1", created=False), None, spawned(created=False)),
        (known(PAY, detached=True), ChildAdmitted("child-1", "pay:1", created=True), None, spawned(detached=True)),
        (PAY, NotAdmitted(FAILURE), None, GaveUp(LATER, "pay#1", CHILD, 1, FAILURE)),
        (PAY, WATCHING, None, None),
        (OPEN, TokenClaimed(None), None, OPENED),
        (OPEN, TokenClaimed(OTHER), None, replace(OPENED, holder=OTHER)),
        (AWAIT, AwaitedRunEnded("run-2", value=VALUE), None, Joined(LATER, "pay.result#1", "run-2", VALUE)),
        (AWAIT, AwaitedRunEnded("run-2", error=FAILURE), None, Joined(LATER, "pay.result#1", "run-2", error=FAILURE)),
    ],
)
def test_what_comes_of_a_step_that_the_code_waits_for(step, event, policy, becomes):
    assert decided(step, event, policy) == becomes


@pytest.mark.parametrize(
    ("step", "event", "becomes"),
    [
        (left(CHARGE), Returned(VALUE), late(value=VALUE)),
        (left(CHARGE, failures=1), Returned(VALUE), late(2, value=VALUE)),
        (left(CHARGE), Confirmed(VALUE), late(value=VALUE)),
        (left(CHARGE), Raised(BOOM, FAILURE), late(error=FAILURE)),
        (left(CHARGE), Raised(SLOW, FAILURE), late(error=FAILURE)),
        (left(CHARGE), Raised(KeyboardInterrupt(), FAILURE), None),  # it was stopped from outside: that says nothing
        (left(CHARGE), Raised(NEVER, FAILURE), late(error=FAILURE)),
        (left(CHARGE), Raised(NEVER, FAILURE, interrupted=True), None),
        (left(CHARGE), DENIED, None),
        (left(CHARGE), Undecided("?"), None),
        (left(CHARGE), Expired(FAILURE), None),
        (left(CHARGE), Interrupted(begun=True), None),  # noted when the code stopped waiting
        (left(PAY), ChildAdmitted("child-1", "pay:1", created=True), LATE_CHILD),
        (left(PAY), ChildAdmitted("child-1", "pay:1", created=False), None),  # another run's child
        (left(PAY, detached=True), ChildAdmitted("child-1", "pay:1", created=True), None),  # it goes its own way
        (left(PAY), NotAdmitted(FAILURE), None),
        (left(PAY), WATCHING, None),
        (left(OPEN), TokenClaimed(None), Act.CLOSE_HOOK),
        (left(OPEN), TokenClaimed(OTHER), None),
        (left(AWAIT), AwaitedRunEnded("run-2", value=VALUE), None),
    ],
)
def test_what_comes_of_a_step_too_late(step, event, becomes):
    assert decided(step, event, KEYED if step.is_effect else None) == becomes


@pytest.mark.parametrize(
    ("step", "entry", "becomes"),
    [
        (CHARGE, performed(), performed()),
        (CHARGE, gave_up(), gave_up()),
        (CHARGE, attempted(), attempted()),
        (PAY, spawned(), spawned()),
        (OPEN, OPENED, OPENED),
        (CHARGE, late(2, value=VALUE), performed(2)),  # the code waits for it this time
        (CHARGE, late(error=FAILURE), late(error=FAILURE)),
        (left(CHARGE), performed(2), late(2, value=VALUE)),
        (left(CHARGE), gave_up(3), late(3, error=FAILURE)),
        (left(CHARGE), attempted(1), late(1, error=FAILURE)),
        (left(CHARGE, intent=UNDO), replace(gave_up(), intent=UNDO), replace(late(error=FAILURE), intent=UNDO)),
        (left(PAY), GaveUp(LATER, "pay#1", CHILD, 1, FAILURE), None),  # no child exists: there is nothing to know
        (left(PAY), spawned(), LATE_CHILD),
        (left(PAY), spawned(created=False), None),
        (left(PAY), spawned(detached=True), None),
        (left(OPEN), OPENED, None),
        (left(CHARGE), late(value=VALUE), late(value=VALUE)),
        (left(PAY), LATE_CHILD, LATE_CHILD),
    ],
)
def test_what_was_refused_with_its_change_is_recorded_again_as_far_as_it_has_happened(step, entry, becomes):
    before = replace(entry, at_ms=NOW_MS - 7)
    assert decided(step, Repeated(before)) == becomes


@pytest.mark.parametrize(
    ("step", "of_code", "of_run"),
    [
        (CHARGE, None, None),
        (known(CHARGE, begun=True), DROPPED, DROPPED),
        (known(CHARGE, begun=True, intended=True), DROPPED, None),  # its intent says as much
        (known(PAY, begun=True), None, None),
    ],
)
def test_what_may_have_begun_is_noted_when_it_is_left(step, of_code, of_run):
    assert decided(replace(step, waited=False), CODE_LEFT) == of_code
    assert decided(step, RUN_LEFT) == of_run


@pytest.mark.parametrize(
    ("step", "becomes"),
    [
        (known(CHARGE, under_way=True), Act.INTERRUPT),
        (known(AWAIT, under_way=True), Act.INTERRUPT),
        (known(PAY, under_way=True), None),  # it may have been admitted: what comes of that must be known
        (known(PAY, under_way=True, in_doubt=True), None),
        (CHARGE, None),
        (known(CHARGE, in_doubt=True), None),  # whoever had begun it is gone
        (known(REMOTE, in_doubt=True), Act.TAKE_BACK),
        (REMOTE, None),
        (PAY, None),
        (known(PAY, in_doubt=True), Act.ADMIT),
        (Step("pay#1", SPAWN, in_doubt=True), Act.ADMIT),
        (known(PAY, in_doubt=True, detached=True), None),
        (known(OPEN, in_doubt=True), None),
    ],
)
def test_how_a_step_is_stopped(step, becomes):
    assert decided(replace(step, waited=False), STOPPING) == becomes


def test_an_effect_that_raised_has_a_policy():
    with pytest.raises(AssertionError):
        decided(CHARGE, Raised(BOOM, FAILURE), None)


QUEUED = AT_ONCE_MS + 1  # later than it was asked for
TOOK = 20.4


def ended_after(queued_ms: int) -> int:
    """The present, when an attempt ends that began so long after it was asked for."""
    return NOW_MS + queued_ms + 21


@pytest.mark.parametrize(
    ("event", "policy", "kind"),
    [
        (Returned(VALUE), KEYED, Performed),
        (Confirmed(VALUE), ASKING, Performed),
        (Raised(BOOM, FAILURE), KEYED, Attempted),
        (Raised(BOOM, FAILURE), Policy(retry=ONCE), GaveUp),
    ],
)
@pytest.mark.parametrize(
    ("took_ms", "now_ms", "recorded_ms"),
    [
        (TOOK, ended_after(QUEUED), 20),
        (TOOK, ended_after(30_000), 20),
        (0.2, ended_after(30_000), 1),  # so short that it would look as if nothing was recorded
        (TOOK, ended_after(0), 0),
        (TOOK, ended_after(AT_ONCE_MS - 1), 0),
        (None, ended_after(30_000), 0),  # what came of it was not measured
    ],
)
def test_how_long_an_attempt_took_is_recorded_if_it_began_later_than_it_was_asked_for(
    event, policy, kind, took_ms, now_ms, recorded_ms
):
    entry = decide(known(CHARGE, told_at_ms=NOW_MS, took_ms=took_ms), event, policy, now_ms=now_ms, chance=0.5)
    assert isinstance(entry, kind)
    assert entry.took_ms == recorded_ms
    assert entry.began_at_ms == (now_ms - recorded_ms if recorded_ms else None)
    assert entry.began_at == (utc_of(now_ms - recorded_ms) if recorded_ms else None)
