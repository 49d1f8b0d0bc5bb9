from __future__ import annotations

import typing

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.kernel.journal import (
    Blocked,
    Cancelled,
    Completed,
    Entry,
    Failed,
    Retried,
    Spawned,
    Started,
    Value,
    to_replay,
    void_positions,
)
from tests.builders import (
    NOW_MS,
    a_failure,
    a_value,
    an_intent,
    attempted,
    elapsed,
    gave_up,
    intended,
    joined,
    performed,
)

ENTRIES = [
    Started(NOW_MS, a_value({"order": "o-1"})),
    intended(),
    attempted(),
    performed(),
    gave_up(),
    elapsed(),
    Spawned(NOW_MS, "pay#1", an_intent("shop.pay", kind="spawn"), "child-1", "pay:1"),
    joined(),
    replace(joined(), value=None, error=a_failure()),
    Completed(NOW_MS),
    Failed(NOW_MS, a_failure(step="charge#1")),
    Cancelled(NOW_MS),
    Blocked(NOW_MS, "replay_diverged", "both sides"),
    Retried(NOW_MS, (1, 2)),
    Retried(NOW_MS),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_is_read_back_as_it_was_written(entry):
    assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry


def test_each_kind_of_entry_was_tried():
    assert {type(entry) for entry in ENTRIES} == set(typing.get_args(Entry))


@pytest.mark.parametrize("kind", typing.get_args(Entry), ids=lambda kind: kind.__name__)
def test_entries_are_tagged_in_lower_case_past_participles(kind):
    words = {"GaveUp": "gave_up"}
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
