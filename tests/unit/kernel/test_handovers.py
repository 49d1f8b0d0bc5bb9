from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.errors import ReplayDiverged
from holdfast.kernel import handovers, transitions
from holdfast.kernel.changes import Change, HandedOver
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.handovers import (
    ANNOUNCED_MS,
    CALL_MS,
    PINNED_MS,
    TRIED_MS,
    Code,
    ExecuteHere,
    HandTo,
    NoCodeFits,
    Peer,
    WaitForVersion,
)
from holdfast.kernel.journal import Blocked, Entry, Failed, Failure, Retried
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.starts import Hand
from tests.builders import NOW_MS, STARTED, a_failure, running

OURS = Code("ours")
OTHER = Hand("w-2", "nonce-2")


def claimed(version: str = "", **fields: Any) -> Run:
    return replace(running(), version=version, epoch=3, length=4, **fields)


def peer(owner: str, digest: str, version: str = "", *, room: int = 1) -> Peer:
    return Peer(owner, Code(digest, version), room)


def tried(run: Run, *digests: str) -> Document:
    body = msgspec.json.encode({"length": run.length, "digests": digests})
    return Document("default", handovers.TRIED, run.id, NOW_MS - 5, body, expires_at_ms=NOW_MS + 5)


def digests_in(writing: Writing | None, run: Run) -> set[str]:
    assert writing is not None
    return set(handovers.tried_in(run, writing.document))


# -- what workers announce


def test_an_announcement_has_the_code_of_each_workflow_and_expires():
    codes = {"shop.checkout": Code("d1", "2", pinned=True), "shop.refund": Code("d2")}
    writing = handovers.announce("default", "w-1", codes, last=None, now_ms=NOW_MS)
    assert writing is not None
    document = writing.document
    assert (document.namespace, document.kind, document.id) == ("default", "code", "w-1")
    assert (writing.replaces, document.expires_at_ms) == (None, NOW_MS + ANNOUNCED_MS)
    assert handovers.codes_in(document) == codes


@pytest.mark.parametrize(("left_ms", "is_written"), [(ANNOUNCED_MS, False), (ANNOUNCED_MS // 2, True), (1, True)])
def test_an_announcement_is_written_again_before_it_expires(left_ms: int, is_written: bool):
    last = Document("default", "code", "w-1", NOW_MS - 9, b"{}", expires_at_ms=NOW_MS + left_ms)
    writing = handovers.announce("default", "w-1", {}, last=last, now_ms=NOW_MS)
    assert (writing is not None) == is_written
    if writing is not None:
        assert (writing.replaces, writing.document.version) == (NOW_MS - 9, NOW_MS)


def test_a_worker_that_leaves_withdraws_its_announcement():
    last = Document("default", "code", "w-1", NOW_MS, b"{}", expires_at_ms=NOW_MS + 99)
    writing = handovers.withdraw(last, now_ms=NOW_MS)
    assert (writing.replaces, writing.document.version, writing.document.expires_at_ms) == (NOW_MS, NOW_MS + 1, NOW_MS)


# -- when a run was claimed


@pytest.mark.parametrize(
    ("version", "here", "peers", "decision"),
    [
        ("", Code("a", "1"), [peer("w-2", "b")], ExecuteHere()),
        ("1", Code("a", "1"), [peer("w-2", "b", "1")], ExecuteHere()),
        ("2", Code("a", "1"), [peer("w-2", "b", "1"), peer("w-3", "c", "2")], HandTo("w-3")),
        ("2", Code("a", "1", pinned=True), [peer("w-3", "c", "2")], HandTo("w-3")),
        ("2", Code("a", "1"), [peer("w-2", "b", "3")], ExecuteHere()),
        ("2", Code("a"), [], ExecuteHere()),
        ("2", Code("a", "1", pinned=True), [peer("w-2", "b", "3")], WaitForVersion(NOW_MS + PINNED_MS)),
    ],
)
def test_where_a_claimed_run_is_executed(version: str, here: Code, peers: list[Peer], decision: handovers.Route):
    assert handovers.route(claimed(version), here, peers, None, now_ms=NOW_MS) == decision


def test_a_run_is_not_sent_to_a_worker_of_its_version_whose_code_contradicted_it():
    run, peers = claimed("2"), [peer("w-3", "c", "2")]
    assert handovers.route(run, Code("a", "1"), peers, tried(run, "c"), now_ms=NOW_MS) == ExecuteHere()


def test_of_several_workers_the_one_with_most_room_gets_it():
    peers = [peer("w-2", "b", "2"), peer("w-3", "b", "2", room=9), peer("w-4", "b", "2", room=3)]
    assert handovers.route(claimed("2"), OURS, peers, None, now_ms=NOW_MS) == HandTo("w-3")


@pytest.mark.parametrize(
    ("version", "codes", "lacks"),
    [
        ("", [Code("a", "1", pinned=True)], False),
        ("2", [], False),
        ("2", [Code("a", "1")], False),
        ("2", [Code("a", "1", pinned=True)], True),
        ("2", [Code("a", "1", pinned=True), Code("b", "2", pinned=True)], False),
    ],
)
def test_whether_a_run_waits_for_its_version(version: str, codes: list[Code], lacks: bool):
    assert handovers.lacks_version(claimed(version), codes) is lacks


# -- when its journal was replayed


def test_code_that_contradicts_hands_the_run_to_other_code_and_leaves_word_of_it():
    run = claimed()
    decision = handovers.diverged(run, OURS, [peer("w-2", "ours"), peer("w-3", "theirs")], None, now_ms=NOW_MS)
    assert isinstance(decision, HandTo)
    assert decision.owner == "w-3"
    assert decision.tried is not None
    document = decision.tried.document
    assert (document.kind, document.id, document.expires_at_ms) == ("tried", run.id, NOW_MS + TRIED_MS)
    assert (decision.tried.replaces, digests_in(decision.tried, run)) == (None, {"ours"})


def test_all_that_was_tried_since_the_last_progress_is_passed_over():
    run = claimed()
    peers = [peer("w-2", "first"), peer("w-3", "second")]
    decision = handovers.diverged(run, OURS, peers, tried(run, "first"), now_ms=NOW_MS)
    assert isinstance(decision, HandTo)
    assert (decision.owner, digests_in(decision.tried, run)) == ("w-3", {"first", "ours"})
    assert decision.tried is not None
    assert decision.tried.replaces == NOW_MS - 5


def test_after_progress_all_code_may_be_tried_again():
    run = claimed()
    before = tried(replace(run, length=run.length - 1), "first")
    decision = handovers.diverged(run, OURS, [peer("w-2", "first")], before, now_ms=NOW_MS)
    assert isinstance(decision, HandTo)
    assert digests_in(decision.tried, run) == {"ours"}


def test_if_no_live_code_is_left_the_run_is_set_aside():
    run = claimed()
    decision = handovers.diverged(run, OURS, [peer("w-2", "first")], tried(run, "first"), now_ms=NOW_MS)
    assert isinstance(decision, NoCodeFits)
    blocked = replace(run, length=run.length + 1)  # by the entry that says so
    assert digests_in(decision.tried, blocked) == {"first", "ours"}


def test_a_worker_that_announces_nothing_has_other_code():
    decision = handovers.diverged(claimed(), OURS, [Peer("w-2", Code())], None, now_ms=NOW_MS)
    assert isinstance(decision, HandTo)
    assert decision.owner == "w-2"


@pytest.mark.parametrize(("pinned", "owner"), [(False, "w-2"), (True, None)])
def test_a_pinned_run_goes_to_no_other_version(pinned: bool, owner: str | None):
    here = Code("ours", "2", pinned=pinned)
    decision = handovers.diverged(claimed("2"), here, [peer("w-2", "b", "3")], None, now_ms=NOW_MS)
    assert (decision.owner if isinstance(decision, HandTo) else None) == owner


def test_code_of_the_runs_own_version_is_tried_first():
    peers = [peer("w-2", "b", "3", room=9), peer("w-3", "c", "2")]
    decision = handovers.diverged(claimed("2"), OURS, peers, None, now_ms=NOW_MS)
    assert isinstance(decision, HandTo)
    assert decision.owner == "w-3"


def test_a_patch_that_is_not_asked_for_sends_the_run_to_other_code_if_there_is_any():
    run = claimed()
    decision = handovers.prefer_other(run, OURS, [peer("w-2", "b")], None, now_ms=NOW_MS)
    assert isinstance(decision, HandTo)
    assert decision.owner == "w-2"
    assert handovers.prefer_other(run, OURS, [peer("w-2", "ours")], None, now_ms=NOW_MS) == ExecuteHere()


def test_code_that_fits_but_has_given_the_run_away_gets_it_back_before_it_is_blocked():
    run, other = claimed(), Code("other")
    given = handovers.prefer_other(run, OURS, [peer("w-2", "other")], None, now_ms=NOW_MS)
    assert isinstance(given, HandTo)
    told = given.tried.document
    assert (handovers.tried_in(run, told), handovers.reluctant_in(run, told)) == (frozenset(), {"ours"})
    assert handovers.reluctant_in(replace(run, length=9), told) == frozenset()
    # Those that have not seen it come first; then it comes back.
    both = [peer("w-1", "ours"), peer("w-3", "third")]
    decision = handovers.diverged(run, other, both, told, now_ms=NOW_MS + 1)
    assert isinstance(decision, HandTo)
    assert decision.owner == "w-3"
    decision = handovers.diverged(run, other, both[:1], told, now_ms=NOW_MS + 1)
    assert isinstance(decision, HandTo)
    assert decision.owner == "w-1"
    # And it does not give it away once more to code that contradicts it.
    again = handovers.prefer_other(run, OURS, [peer("w-2", "other")], decision.tried.document, now_ms=NOW_MS + 2)
    assert again == ExecuteHere()


def test_for_a_worker_that_notes_nothing_it_is_noted_that_it_was_tried():
    run = claimed()
    decision = handovers.diverged(run, OURS, [peer("w-2", "")], None, now_ms=NOW_MS)
    assert isinstance(decision, HandTo)
    blocked = replace(run, length=run.length + 1)  # with the entry by which that worker blocks it
    assert handovers.tried_in(blocked, decision.tried.document) == {"ours", ""}


def test_the_call_to_a_worker_is_gone_after_a_while():
    document = handovers.call(claimed(), "w-2", now_ms=NOW_MS).document
    assert (document.kind, document.id, document.expires_at_ms) == ("handed", "run-1.3", NOW_MS + CALL_MS)


# -- when a worker has joined


def blocked(code: str = ReplayDiverged.code, **fields: Any) -> Run:
    error = msgspec.json.encode(Failure(code, "m"))
    return replace(claimed(), status=Status.BLOCKED, owner=None, error=error, **fields)


@pytest.mark.parametrize(
    ("run", "here", "told", "may"),
    [
        (blocked(), OURS, None, True),
        (blocked(), OURS, tried(blocked(), "first"), True),
        (blocked(), OURS, tried(blocked(), "ours"), False),
        (blocked(), OURS, tried(replace(blocked(), length=1), "ours"), True),
        (blocked("unknown_outcome"), OURS, None, False),
        (blocked(holds_key=False), OURS, None, False),
        (blocked(key=None, holds_key=False), OURS, None, True),
        (replace(blocked(), error=None), OURS, None, False),
        (claimed(), OURS, None, False),
        (blocked(version="2"), Code("ours", "3"), None, True),
        (blocked(version="2"), Code("ours", "3", pinned=True), None, False),
        (blocked(version="2"), Code("ours", "2", pinned=True), None, True),
    ],
)
def test_which_blocked_runs_a_worker_takes_up(run: Run, here: Code, told: Document | None, may: bool):
    assert handovers.may_take_up(run, here, told) is may


def test_what_was_tried_stays_tried_when_a_run_is_taken_up():
    run = blocked()
    writing = handovers.take_up(run, tried(run, "first"), now_ms=NOW_MS)
    change = transitions.take_up(run, OTHER, now_ms=NOW_MS)
    assert digests_in(writing, _after(change)) == {"first"}
    assert handovers.take_up(run, None, now_ms=NOW_MS) is None


# -- the changes


def _after(change: Change) -> Run:
    assert change.run is not None
    return change.run


def test_a_hand_over_moves_the_fence_and_nothing_else():
    run = claimed(waits=b"[]")
    change = transitions.hand_over(run, OTHER)
    assert (change.guard, change.entries) == (HandedOver(run.fence), ())
    after = _after(change)
    assert after == replace(run, owner="w-2", nonce="nonce-2", epoch=4, change_id=change.id)
    assert transitions.hand_over(run, OTHER).id == change.id != transitions.hand_over(run, Hand("w-2", "n")).id


def test_a_blocked_run_is_taken_up_with_an_entry_that_says_so():
    change = transitions.take_up(blocked(), OTHER, now_ms=NOW_MS)
    after = _after(change)
    assert change.entries == (Retried(NOW_MS, reason=transitions.TAKEN_UP),)
    assert (after.status, after.owner, after.error, after.length) == (Status.RUNNING, "w-2", None, 5)


@pytest.mark.parametrize(
    ("entries", "was"),
    [
        ((), False),
        ((Blocked(NOW_MS, "replay_diverged", "m"),), False),
        ((Blocked(NOW_MS, "replay_diverged", "m"), Retried(NOW_MS)), False),
        ((Blocked(NOW_MS, "replay_diverged", "m"), Retried(NOW_MS, reason=transitions.TAKEN_UP)), True),
        ((Retried(NOW_MS, reason=transitions.TAKEN_UP), Failed(NOW_MS, a_failure())), False),
    ],
)
def test_there_is_nothing_to_be_retried_in_a_run_that_a_worker_has_taken_up(entries: tuple[Entry, ...], was: bool):
    assert transitions.was_taken_up((STARTED, *entries)) is was
