from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.kernel import explanations, timeouts
from holdfast.kernel.explanations import next_actions, story, under_way, worded
from holdfast.kernel.journal import Blocked, Completed, Dropped, Entry, Failed, Resumed, Retried, Stopped
from holdfast.kernel.runs import Status
from holdfast.kernel.waits import Wait
from tests.builders import (
    CANCELLED,
    NOW_MS,
    a_failure,
    a_run,
    an_intent,
    attempted,
    cancel_asked,
    continued,
    gave_up,
    intended,
    performed,
    running,
    spawned,
    undone,
    with_journal,
)
from tests.unit.kernel.entries import ENTRIES

AT = "2023-11-14T22:13:20.000+00:00"


def test_every_entry_is_worded_in_a_way_of_its_own():
    """A journal can be read by somebody who does not know its format."""
    texts = [worded(entry) for entry in ENTRIES]
    assert all(texts)
    kinds = {type(entry): worded(entry) for entry in ENTRIES}
    assert len(set(kinds.values())) == len(kinds)


def test_a_run_that_a_bulk_run_has_moved_says_so():
    assert worded(Retried(NOW_MS, (), "b-1")) == "was retried by bulk run b-1"
    assert worded(Resumed(NOW_MS, (), "b-1")) == "was resumed by bulk run b-1; the cancellation no longer counts"
    assert worded(Retried(NOW_MS)) == "was retried"
    assert worded(Retried(NOW_MS, reason="other code has come")) == "was taken up again: other code has come"


def said(what: str) -> list[str]:
    return [worded(entry) for entry in ENTRIES if entry.what == what]


@pytest.mark.parametrize(
    ("what", "texts"),
    [
        (
            "attempted",
            [f"attempt 1 of charge#1 failed with ValueError: boom; to be tried again at {AT[:-10]}.500+00:00"],
        ),
        (
            "performed",
            [
                "performed charge#1 under key 'charge:o-1', in attempt 1",
                "undid charge#1 under key 'undo:charge:o-1', in attempt 1",
            ],
        ),
        ("joined", ["child run child-1 (pay#1) ended", "child run child-1 (pay#1) ended with ValueError: boom"]),
        (
            "opened",
            [
                "opened hook 'approval' with token 'token-1'",
                "could not open hook 'approval': token 'token-1' is held by run run-2",
            ],
        ),
        (
            "cancel_asked",
            [
                "was asked to cancel: no longer wanted",
                "was asked to cancel",
                "has taken too long, and is to fail with ValueError: boom",
            ],
        ),
        (
            "late",
            [
                "charge#1 still returned",
                "charge#1 still failed with ValueError: boom",
                "charge#1 still started child run child-1",
            ],
        ),
        (
            "stopped",
            [
                "its code has ended; what it left behind is being undone",
                "stands still, to be resumed",
                "was stopped by the deadline, without further cleanup",
                "its code has failed with ValueError: boom; what it left behind is being undone",
                "its code has ended; what it left behind stays",
                "was ended where it stood: no live code could go on with it, and nothing more is undone",
            ],
        ),
        (
            "received",
            ["received a signal to hook 'items'", "ended with a signal to hook 'items' left unread"],
        ),
        ("tagged", ["set attributes {'stage': None}"]),
        ("key_released", ["lost its key: by hand"]),
        ("continued", ["continued as new, for the 2. time"] * 2),
        ("blocked", ["is blocked (replay_diverged): both sides"]),
    ],
)
def test_an_entry_in_words(what, texts):
    assert said(what) == texts


def test_a_child_that_was_found_is_not_said_to_be_started():
    assert worded(spawned()) == "started child run child-1 as pay#1"
    assert worded(spawned(created=False)) == "joined child run child-1 as pay#1"


# -- the whole story


def told(run, *entries: Entry, first: int = 0) -> explanations.Story:
    run, journal = with_journal(run, *entries, first=first)
    return story(run, journal, waiting_on=(Wait("hook", "approval"),), next_actions=("signal", "cancel"))


def test_a_story_says_what_happened_why_it_waits_and_what_may_be_done():
    text = str(told(running(), performed()))
    assert text.splitlines() == [
        "run run-1 of shop.checkout under key 'order:1': running; starts under this key join it",
        f"    0  {AT}  was admitted",
        f"    1  {AT}  performed charge#1 under key 'charge:o-1', in attempt 1",
        "it waits for a signal to hook 'approval'",
        "possible now: signal, cancel",
    ]


@pytest.mark.parametrize(
    ("entries", "steps"),
    [
        ([], []),
        ([intended("charge#1")], ["charge#1"]),
        ([intended("charge#1"), intended("ship#1")], ["charge#1", "ship#1"]),
        ([intended("charge#1"), performed("charge#1")], []),
        ([intended("charge#1"), gave_up("charge#1")], []),
        ([intended("charge#1"), attempted("charge#1")], []),
        ([intended("charge#1"), Dropped(NOW_MS, "charge#1", an_intent())], []),
        ([intended("charge#1"), attempted("charge#1"), intended("charge#1")], ["charge#1"]),
        ([intended("charge#1"), Failed(NOW_MS, a_failure()), Retried(NOW_MS, void=(1, 2))], []),
    ],
)
def test_the_story_of_a_running_run_names_the_once_effects_whose_outcome_is_not_known(entries, steps):
    run, journal = with_journal(running(), *entries)
    waits = under_way(run, journal)
    assert [wait.step for wait in waits] == steps
    assert [str(wait) for wait in waits] == [f"the outcome of {step}, which was begun" for step in steps]
    assert under_way(replace(run, status=Status.BLOCKED), journal) == ()


def test_giving_up_before_any_attempt_is_said_as_that():
    assert worded(gave_up("charge#1", attempt=0)).startswith("gave up on charge#1 before the first attempt: ")
    assert worded(gave_up("charge#1", attempt=2)).startswith("gave up on charge#1 after attempt 2: ")


def test_what_was_taken_back_is_marked():
    failed = Failed(NOW_MS, a_failure(step="charge#1"))
    run = told(running(), performed("ship#1"), gave_up(), failed, Retried(NOW_MS, (2,)), performed())
    assert [line.counts for line in run.lines] == [True, True, False, True, True, True]
    assert str(run).splitlines()[3].startswith("~   2  ")


def test_a_later_generation_goes_on_counting():
    assert [line.position for line in told(running(), continued(), performed(), first=40).lines] == [40, 41]


@pytest.mark.parametrize(
    ("run", "headline"),
    [
        (a_run(key=None), "run run-1 of shop.checkout without a key: pending"),
        (a_run(), "under key 'order:1': pending; starts under this key join it"),
        (a_run(status=Status.COMPLETED, finished_at_ms=NOW_MS), f"under key 'order:1': completed, ended {AT}"),
        (
            a_run(status=Status.FAILED, finished_at_ms=NOW_MS, holds_key=False),
            f"under key 'order:1', which it has lost since: failed, ended {AT}",
        ),
    ],
)
def test_the_headline_says_whose_the_key_is(run, headline):
    assert told(run).headline.endswith(headline)


def test_nobody_joins_a_run_that_has_lost_its_key():
    assert "join" not in told(running(holds_key=False)).headline


@pytest.mark.parametrize(
    ("status", "entries", "actions"),
    [
        (Status.CANCELLED, (cancel_asked(), *CANCELLED), ("resume", "fork", "release_key")),
        (Status.FAILED, (performed(), Stopped(NOW_MS, error=a_failure()), undone()), ("fork", "release_key")),
        (Status.FAILED, (performed(), Stopped(NOW_MS, error=a_failure())), ("retry", "fork", "release_key")),
        (Status.CANCELLED, (cancel_asked(), performed(), *CANCELLED), ("fork", "release_key")),  # it did something
        (Status.CANCELLED, CANCELLED[1:], ("fork", "release_key")),  # it cancelled itself
        (Status.COMPLETED, (Completed(NOW_MS),), ("fork", "release_key")),
        (Status.BLOCKED, (Blocked(NOW_MS, "a", "b"),), ("retry", "cancel", "signal", "release_key")),
        (
            Status.BLOCKED,  # an outcome is not known: a person may say it
            (intended("transfer#1"), Blocked(NOW_MS, "unknown_outcome", "transfer#1")),
            ("decide", "retry", "cancel", "signal", "release_key"),
        ),
    ],
)
def test_the_journal_says_more_exactly_what_may_be_done(status, entries, actions):
    assert next_actions(*with_journal(a_run(status=status), *entries)) == actions


def test_a_run_that_has_continued_as_new_cannot_be_forked():
    run, journal = with_journal(a_run(status=Status.COMPLETED), continued(), Completed(NOW_MS), first=40)
    assert next_actions(run, journal) == ("release_key",)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (performed(), "performed charge#1 under key 'charge:o-1', in attempt 1, which began at {}"),
        (gave_up(), "gave up on charge#1 after attempt 3, which began at {}: "),
        (attempted(), "attempt 1 of charge#1, which began at {}, failed with "),
    ],
)
def test_an_attempt_that_began_later_than_it_was_asked_for_says_when(entry, text):
    late = replace(entry, took_ms=20)
    assert late.began_at is not None
    said = text.format(late.began_at.isoformat(timespec="milliseconds"))
    assert explanations.worded(late).startswith(said)
    assert "began" not in explanations.worded(entry)


def test_the_headline_of_a_live_run_names_its_time_limit():
    shown = timeouts.shown_with(b"", NOW_MS)
    assert told(running(attributes=shown)).headline.endswith(f"; its time limit is {AT}")
    assert "time limit" not in told(a_run(status=Status.FAILED, finished_at_ms=NOW_MS, attributes=shown)).headline
