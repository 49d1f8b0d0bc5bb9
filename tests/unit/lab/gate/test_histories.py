"""What the gate has seen, as a history: the same checker that judges simulations finds what is wrong with it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.kernel import hooks
from holdfast.kernel.journal import Completed, Received, Started
from holdfast.lab.gate.evidence import FailedCall, LogNotice
from holdfast.lab.gate.histories import history_of, violations_of_history
from holdfast.lab.gate.pack import KNOCK, WORD
from holdfast.lab.gate.verdict import judge
from holdfast.testing.histories import files
from holdfast.testing.histories.checker import check
from holdfast.testing.histories.history import FaultApplied, FinalRun, HistoryHead, OperationCalled
from tests.unit.lab.gate.evidences import CANDIDATE, CHAT, LEADER, OTHER, WORKER, flawless, value, with_final
from tests.unit.lab.gate.test_checker import KILLED, PLANTED, REPLICA, lost_before_its_record

# What the checker of histories says about the bugs that are planted for the gate's own rules, if it finds them too.
FOUND = {
    "a run was lost": "lost",
    "a child was lost": "lost",
    "an answered run is not there": "no_legal_order",
    "a run that nobody asked for": "unasked",
    "two gateways answer with two runs": "no_legal_order",
    "two requests were told that they created it": "created_twice",
    "an effect was recorded twice": "recorded_twice",
    "a signal was taken twice": "signal_twice",
    "a journal goes on behind its end": "after_the_end",
    "a run came back from its end": "never_ended",
    "an effect was called under another key": "another_key",
    "an effect was recorded under another key": "another_key",
    "a crash used up an attempt": "attempts_miscounted",
    "an effect was called again for nothing": "repeated_for_nothing",
    "an effect was called again before its caller was killed": "repeated_for_nothing",
    "an effect was called again long before its caller lost anything": "repeated_for_nothing",
    "an effect was called again long after its caller had been stopped": "repeated_for_nothing",
    "an effect was called long after its record": "called_after_record",
    "an effect was called again after the death of whoever had recorded it": "called_after_record",
    "an accepted signal is in no journal": "signal_lost",
    "the signals of a sender were received in another order": "signal_order",
}


def kinds(seen) -> set[str]:
    return {violation.kind for violation in violations_of_history(seen)}


def test_a_flawless_scenario_is_a_legal_history() -> None:
    assert violations_of_history(flawless()) == ()
    assert judge(flawless()).violations == ()


@pytest.mark.parametrize("bug", FOUND)
def test_what_is_planted_in_evidence_is_found_in_its_history(bug) -> None:
    seen = PLANTED[bug][1](flawless())
    assert FOUND[bug] in kinds(seen)


def test_what_the_history_shows_besides_is_part_of_the_verdict() -> None:
    two_runs = PLANTED["two gateways answer with two runs"][1](flawless())
    found = [violation.kind for violation in judge(two_runs).violations]
    assert found.count("lost") == 1, "said once, though both say it"
    assert {"two_runs", "no_legal_order"} <= set(found)


def test_a_repeated_call_is_explained_here_as_there() -> None:
    assert violations_of_history(lost_before_its_record(faults=(KILLED,))) == ()
    assert (
        violations_of_history(lost_before_its_record(notices=(LogNotice(14_500, "overtaken", WORKER, ("r",)),))) == ()
    )
    assert kinds(lost_before_its_record(faults=(replace(KILLED, pid=OTHER),))) == {"repeated_for_nothing"}
    forgot = replace(REPLICA, at_ms=12_000, deed="forget")
    assert violations_of_history(lost_before_its_record(faults=(forgot,))) == ()


def test_terms_are_judged_unless_the_store_was_harmed() -> None:
    elected = tuple(LogNotice(20_000 + pid, "elected", pid, duty="rescuer", term=7) for pid in (LEADER, CANDIDATE))
    assert kinds(replace(flawless(), notices=elected)) == {"two_leaders"}
    harmed = (replace(REPLICA, at_ms=20_000 + LEADER + 1, deed="kill"),)
    assert kinds(replace(flawless(), notices=elected, faults=harmed)) == set()


def test_the_history_is_in_order_between_its_head_and_the_ends_of_all_runs(tmp_path) -> None:
    history = history_of(flawless())
    instants = [record.at_ms for record in history[1:]]
    assert isinstance(history[0], HistoryHead)
    assert instants == sorted(instants)
    assert isinstance(history[-1], FinalRun)
    assert [record.host for record in history if isinstance(record, FaultApplied)] == [str(OTHER)]
    files.write(tmp_path / "history.jsonl", history)
    assert check(files.read(tmp_path / "history.jsonl")) == ()


def test_a_start_that_failed_may_have_started_something() -> None:
    seen = flawless()
    unheard = tuple(answer for answer in seen.accepted_starts if answer.order != seen.orders[0])
    seen = replace(seen, accepted_starts=unheard, failed=(FailedCall(seen.orders[0], "start", "still after 40 tries"),))
    assert violations_of_history(seen) == ()
    asked = [each for each in history_of(seen) if isinstance(each, OperationCalled) and each.key == seen.orders[0]]
    assert [each.verb for each in asked] == ["start"]


def test_a_key_whose_runs_are_started_by_signals_may_have_one_after_the_other() -> None:
    seen = flawless()
    chat = next(final for final in seen.finals if final.key == CHAT)
    other = replace(chat, id="run-later", journal=(Started(14_030, value({})), Completed(14_031)))
    again = tuple(replace(each, again=each.key == CHAT) for each in seen.others)
    assert violations_of_history(replace(seen, finals=(*seen.finals, other), others=again, sent=())) == ()


@pytest.mark.parametrize(
    ("hook", "message", "again"),
    [
        (WORD, hooks.signal_id(WORD, "a/1"), False),
        (WORD, hooks.key_signal_id(WORD, "a/1"), True),
        (KNOCK, hooks.token_signal_id(CHAT, "a/1"), False),
    ],
)
def test_a_signal_is_known_by_its_id(hook, message, again) -> None:
    seen = flawless()
    others = tuple(replace(each, again=again) if each.key == CHAT else each for each in seen.others)
    seen = replace(seen, sent=(replace(seen.sent[0], hook=hook),), others=others)
    chat = next(final for final in seen.finals if final.key == CHAT)
    known = (chat.journal[0], Received(14_010, hook, message, value("another word")), chat.journal[-1])
    assert violations_of_history(with_final(seen, CHAT, journal=known)) == ()
    assert kinds(with_final(seen, CHAT, journal=(known[0], known[-1]))) == {"signal_lost"}
