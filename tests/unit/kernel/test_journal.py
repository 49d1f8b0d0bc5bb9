from __future__ import annotations

import typing
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.kernel.journal import (
    TIMED_OUT,
    Attempted,
    Blocked,
    Entry,
    Failed,
    Late,
    Note,
    Resumed,
    Retried,
    Value,
    input_of,
    original_input,
    to_replay,
    void_positions,
)
from tests.builders import (
    CANCELLED,
    NOW_MS,
    STARTED,
    a_failure,
    an_intent,
    attempted,
    cancel_asked,
    continued,
    dropped,
    elapsed,
    gave_up,
    late,
    late_failure,
    performed,
)
from tests.unit.kernel.entries import ENTRIES


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_is_read_back_as_it_was_written(entry):
    assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry


def test_each_kind_of_entry_was_tried():
    assert {type(entry) for entry in ENTRIES} == set(typing.get_args(Entry))


@pytest.mark.parametrize("kind", typing.get_args(Entry), ids=lambda kind: kind.__name__)
def test_entries_are_tagged_in_lower_case_past_participles(kind):
    words = {"GaveUp": "gave_up", "CancelAsked": "cancel_asked", "KeyReleased": "key_released"}
    assert kind.__struct_config__.tag == words.get(kind.__name__, kind.__name__.lower())
    assert kind.__struct_config__.tag_field == "what"


def test_a_value_in_a_blob_carries_no_text():
    assert msgspec.json.encode(Value(blob="d1", size=300_000)) == b'{"blob":"d1","size":300000}'


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({}, True),
        ({"line": "elsewhere.py:99"}, True),  # code moves
        ({"kind": "child"}, False),
        ({"name": "shop.refund"}, False),
        ({"key": "charge:o-2"}, False),
        ({"digest": "d2"}, False),
    ],
)
def test_two_intents_are_the_same_whatever_their_line(other, same):
    assert an_intent().same_as(replace(an_intent(), **other)) is same


FAILED = Failed(NOW_MS, a_failure(step="charge#1"))


def test_notes_are_entries():
    assert set(typing.get_args(Note)) < set(typing.get_args(Entry))


@pytest.mark.parametrize("first", [ENTRIES[0], continued(2)])
def test_a_journal_begins_with_its_input(first):
    assert input_of((first, performed())) is first
    with pytest.raises(AssertionError):
        input_of((performed(), first))


def test_the_input_of_the_first_generation_is_never_forgotten():
    assert original_input(STARTED) == original_input(continued(7)) == STARTED.input
    assert input_of((continued(7),)).input != STARTED.input


def replayed(*journal: Entry) -> list[tuple[int, bool]]:
    """The positions of the entries that are replayed, and whether each is strict."""
    to_be = to_replay(journal)
    assert all(journal[recorded.position] is recorded.entry for recorded in to_be)
    return [(recorded.position, recorded.strict) for recorded in to_be]


def test_everything_counts_but_the_input_until_a_retry_voids_it():
    journal = (ENTRIES[0], attempted(), gave_up(), FAILED)
    assert replayed(*journal) == [(1, True), (2, True), (3, True)]
    assert void_positions(journal) == set()
    assert replayed(ENTRIES[0]) == []


def test_what_a_retry_voids_is_not_replayed():
    journal = (ENTRIES[0], performed("ship#1"), attempted(), gave_up(), FAILED, Retried(NOW_MS, (2, 3)), performed())
    assert void_positions(journal) == {2, 3}
    assert replayed(*journal) == [(1, True), (4, False), (5, True), (6, True)]


def test_what_the_code_did_about_a_voided_failure_may_or_may_not_be_asked_for_again():
    notice = performed("notify#1")
    journal = (ENTRIES[0], gave_up(), notice, FAILED, Retried(NOW_MS, (1,)), performed())
    assert replayed(*journal) == [(2, False), (3, False), (4, True), (5, True)]


def test_a_retry_that_voids_nothing_loosens_nothing():
    journal = (ENTRIES[0], performed(), Blocked(NOW_MS, "a", "b"), Retried(NOW_MS))
    assert replayed(*journal) == [(1, True), (2, True), (3, True)]


def test_each_of_several_retries_voids_its_own():
    journal = (
        ENTRIES[0],
        gave_up(),
        FAILED,
        Retried(NOW_MS, (1,)),
        performed("ship#1"),
        gave_up(),
        FAILED,
        Retried(NOW_MS, (5,)),
    )
    assert replayed(*journal) == [(2, False), (3, True), (4, True), (6, False), (7, True)]


# -- what was taken back


def test_a_cancellation_that_was_taken_back_is_not_replayed():
    journal = (
        ENTRIES[0],
        performed(),
        cancel_asked(),
        elapsed(),
        *CANCELLED,
        Resumed(NOW_MS, (2, 3, 4, 5)),
        performed("ship#1"),
    )
    assert void_positions(journal) == {2, 3, 4, 5}
    assert replayed(*journal) == [(1, True), (6, True), (7, True)]


def test_an_effect_that_came_late_in_a_cancellation_is_not_called_again_after_a_resumption():
    """It was performed; the code may ask for it, and then gets what it returned."""
    journal = (ENTRIES[0], cancel_asked(), dropped(), late(value=7), *CANCELLED, Resumed(NOW_MS, (1, 2, 3, 4, 5)))
    [counting, resumed] = to_replay(journal)
    assert (counting.position, counting.strict) == (3, False)
    assert counting.entry == performed(value=7)
    assert resumed.entry == journal[-1]


def test_a_late_failure_leaves_the_effect_to_be_called_again():
    """The attempt has been made: if the code asks for the effect again, the next one follows."""
    journal = (ENTRIES[0], cancel_asked(), dropped(), late_failure(), *CANCELLED, Resumed(NOW_MS, (1, 2, 3, 4, 5)))
    [counting, resumed] = to_replay(journal)
    failed = journal[3]
    assert isinstance(failed, Late)
    assert failed.error is not None
    assert counting == (3, Attempted(NOW_MS, "charge#1", failed.intent, 1, failed.error, NOW_MS), False)
    assert resumed.entry == journal[-1]


def test_a_late_timeout_says_nothing_about_the_effect():
    """It may have been performed, or be under way still."""
    timed_out = replace(late_failure(), error=a_failure(TIMED_OUT, "too slow"))
    journal = (ENTRIES[0], cancel_asked(), dropped(), timed_out, *CANCELLED, Resumed(NOW_MS, (1, 2, 3, 4, 5)))
    assert replayed(*journal) == [(6, True)]


def test_a_late_effect_counts_as_a_note_and_as_its_outcome_only_if_the_code_waits_for_it_again():
    journal = (ENTRIES[0], cancel_asked(), dropped(), late(), *CANCELLED)
    to_be = to_replay(journal)
    assert [recorded.entry for recorded in to_be if recorded.strict] == list(journal[1:])
    assert [recorded[:2] for recorded in to_be if not recorded.strict] == [(3, performed())]


def test_an_effect_that_was_under_way_when_its_run_failed_is_not_called_again_by_a_retry():
    journal = (ENTRIES[0], gave_up("ship#1"), late(), FAILED, Retried(NOW_MS, (1,)))
    assert (2, performed(), False) in to_replay(journal)


def test_positions_go_on_when_a_run_begins_anew():
    """The journal of a later generation begins where the last one ended; what is void in it is named by position."""
    journal = (continued(2), gave_up(), FAILED, Retried(NOW_MS, (41,)), performed())
    to_be = to_replay(journal, first=40)
    assert [(recorded.position, recorded.strict) for recorded in to_be] == [(42, False), (43, True), (44, True)]


def test_entries_say_their_instants_as_datetimes():
    at = datetime(2026, 11, 16, 12, 0, 0, 250_000, tzinfo=UTC)
    at_ms = int(at.timestamp() * 1_000)
    entry = Attempted(at_ms, "pay#1", an_intent(), 1, a_failure(), at_ms + 1_000)
    assert (entry.at, entry.retry_at - entry.at) == (at, timedelta(seconds=1))
