from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import UsageError
from holdfast.kernel.searches import Range
from holdfast.wire.run_queries import RunQuery, parse, parse_each, text_of, with_field, with_status, words_of

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("", RunQuery()),
        ("  ", RunQuery()),
        ("failed", RunQuery(statuses=("failed",))),
        ("failed blocked", RunQuery(statuses=("failed", "blocked"))),
        ("status:failed,blocked", RunQuery(statuses=("failed", "blocked"))),
        ("status:failed failed", RunQuery(statuses=("failed",))),
        ("workflow:shop.checkout", RunQuery(workflow="shop.checkout")),
        ("key:order:", RunQuery(key="order:")),
        ("order:o-1", RunQuery(lookup="order:o-1")),  # no field is called so: it is a key
        ("01a1eed", RunQuery(lookup="01a1eed")),
        ("id:01a1eed", RunQuery(id="01a1eed")),
        ("customer=ada", RunQuery(attributes={"customer": "ada"})),
        ("cents>=500 cents<900", RunQuery(attributes={"cents": Range(ge=500, lt=900)})),
        ('customer="ada lovelace" failed', RunQuery(statuses=("failed",), attributes={"customer": "ada lovelace"})),
        ('order="42"', RunQuery(attributes={"order": "42"})),
        ('holdfast.parent="r-1"', RunQuery(attributes={"holdfast.parent": "r-1"})),
        ('due={"at": "2026-11-16T12:00:00Z"}', RunQuery(attributes={"due": NOW})),
        ('key:"a b"', RunQuery(key="a b")),
        ("created_after:2h", RunQuery(created_after=NOW - timedelta(hours=2))),
        ("finished_before:2026-11-16T12:00", RunQuery(finished_before=NOW)),
        ("status=failed", RunQuery(attributes={"status": "failed"})),  # a sign makes it an attribute
        (
            "o-1 waiting workflow:checkout vip=true created_before:2026-11-16T12:00Z",
            RunQuery(
                lookup="o-1",
                statuses=("waiting",),
                workflow="checkout",
                attributes={"vip": True},
                created_before=NOW,
            ),
        ),
    ],
)
def test_what_a_line_means(text: str, means: RunQuery):
    assert parse(text, now=NOW) == means


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("status:odd", "'odd' is not a status"),
        ("status:", "says no status"),
        ("key:a key:b", "cannot both be meant"),
        ("one two", "'one' and 'two' cannot both be meant"),
        ("created_after:soon", "'soon' is not an instant"),
        ('customer="ada', "a quote that is not closed"),
        ("a>b", "no number and no instant"),
        ("a=1 a=2", "one condition too many"),
    ],
)
def test_what_cannot_be_meant_is_told(text: str, why: str):
    with pytest.raises(UsageError, match=why):
        parse(text, now=NOW)


def test_what_a_shell_has_parted_needs_no_quotes():
    assert parse_each(["failed", "customer=ada lovelace", "key:a b"], now=NOW) == RunQuery(
        statuses=("failed",), key="a b", attributes={"customer": "ada lovelace"}
    )
    assert parse_each([], now=NOW) == RunQuery()


@pytest.mark.parametrize("text", ["order:o-1 failed", 'key:"a b" customer=ada', 'x={"at": "2026-01-01T00:00:00Z"}'])
def test_words_make_the_line_again(text: str):
    again = text_of(words_of(text))
    assert parse(again, now=NOW) == parse(text, now=NOW)


def test_a_click_adds_a_status_or_takes_it_away():
    assert with_status("customer=ada", "failed") == "customer=ada status:failed"
    assert with_status("failed customer=ada", "blocked") == "customer=ada status:failed,blocked"
    assert with_status("customer=ada status:failed,blocked", "failed") == "customer=ada status:blocked"
    assert with_status("failed", "failed") == ""


def test_a_click_replaces_a_field():
    assert with_field("created_after:1h failed", "created_after", "7d") == "status:failed created_after:7d"
    assert with_field("workflow:a o-1", "workflow", "") == "o-1"


def test_one_run_is_meant_if_nothing_else_is_said():
    assert parse("01a1eed", now=NOW).means_one_run
    assert parse("id:01a1eed", now=NOW).means_one_run
    assert not parse("01a1eed failed", now=NOW).means_one_run
    assert not parse("failed", now=NOW).means_one_run


@pytest.mark.parametrize("word", ["staus:failed", "created-after:2h", "wokflow:a", "creatd_after:2h"])
def test_a_word_that_may_be_a_misspelt_field_is_told(word):
    query = parse_each([word], now=NOW)
    assert query.lookup == word
    assert bool(query.misspelt) == ("-" not in word)  # a field has no dash: it is the beginning of a key


@pytest.mark.parametrize("word", ["order:o-1", "bake:loaf", "failed", "o-1042", "key:a"])
def test_a_key_is_not_taken_for_a_misspelt_field(word):
    assert parse_each([word], now=NOW).misspelt == ""
