"""The story of a run shows where it failed, and who has decided what."""

from __future__ import annotations

import pytest

from holdfast.kernel.explanations import story, worded
from holdfast.kernel.journal import Attempted, ByHand, Failed, Failure, Performed, Retried
from holdfast.kernel.runs import Status
from tests.builders import NOW_MS, a_run, a_value, an_intent, with_journal

FRAMES = '  File "shop.py", line 41, in charge\n    raise ValueError("no")\n'


def test_what_was_raised_is_told_with_its_frames_and_the_last_that_counts_is_shown():
    early = Attempted(NOW_MS, "charge#1", an_intent(), 1, Failure("OSError", "gone", traceback="  early\n"), NOW_MS)
    failed = Failed(NOW_MS, Failure("ValueError", "no", traceback=FRAMES))
    run, journal = with_journal(a_run(status=Status.FAILED), early, failed)
    told = story(run, journal, waiting_on=(), next_actions=("retry",))
    assert [line.traceback for line in told.lines] == ["", "  early\n", FRAMES]
    assert told.last_failure is told.lines[-1]
    assert '        File "shop.py", line 41, in charge' in str(told)
    assert "early" not in str(told)


def test_a_failure_that_was_taken_back_is_not_shown():
    failed = Failed(NOW_MS, Failure("ValueError", "no", traceback=FRAMES))
    run, journal = with_journal(a_run(status=Status.RUNNING), failed, Retried(NOW_MS, (1,)))
    told = story(run, journal, waiting_on=(), next_actions=())
    assert told.last_failure is None
    assert "shop.py" not in str(told)


def test_the_frames_of_the_members_of_a_group_are_told_up_to_a_limit():
    members = tuple(Failure("KeyError", f"{n}" * 300, traceback=f"  frame {n}\n") for n in range(12))
    failed = Failed(NOW_MS, Failure("ExceptionGroup", "two", members=(Failure("E", "no frames"), *members)))
    run, journal = with_journal(a_run(status=Status.FAILED), failed)
    text = story(run, journal, waiting_on=(), next_actions=()).lines[-1].traceback
    assert text.startswith(f"KeyError: {'0' * 200}\n  frame 0\n")
    assert ("  frame 8\n" in text, "  frame 9\n" in text, "no frames" in text) == (True, False, False)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (ByHand("eve", "statement 7"), "; decided by eve, since statement 7"),
        (ByHand("eve"), "; decided by eve"),
        (ByHand(), "; decided by hand"),
        (None, ""),
    ],
)
def test_a_decision_of_a_person_is_told(said, words):
    performed = Performed(NOW_MS, "charge#1", an_intent(), 1, a_value("sent"), by_hand=said)
    run, journal = with_journal(a_run(status=Status.COMPLETED), performed)
    assert story(run, journal, waiting_on=(), next_actions=()).lines[-1].text == worded(performed) + words
