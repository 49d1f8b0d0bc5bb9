from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.errors import RunTimedOut
from holdfast.kernel import attributes, timeouts
from holdfast.kernel.documents import Document
from holdfast.kernel.timeouts import TimeLimit
from holdfast.kernel.units import utc_of
from tests.builders import NOW_MS

LIMIT = TimeLimit("default", "run-1", NOW_MS + 60_000, 60_000, "fail", 30_000)
AT = utc_of(LIMIT.at_ms)


def kept(limit: TimeLimit = LIMIT) -> Document:
    return timeouts.begin(limit, now_ms=NOW_MS).document


def test_a_limit_is_a_document_of_its_run_that_is_due_when_the_time_is_up():
    writing = timeouts.begin(LIMIT, now_ms=NOW_MS)
    document = writing.document
    assert writing.replaces is None
    assert (document.namespace, document.kind, document.id) == ("", "time_limit", f"run-1.{LIMIT.at_ms}")
    assert (document.due_at_ms, document.expires_at_ms, document.version) == (LIMIT.at_ms, None, NOW_MS)
    assert timeouts.of(document) == LIMIT


def test_a_limit_that_is_over_is_removed():
    writing = timeouts.go_on(kept(), None, grace_ms=500, now_ms=LIMIT.at_ms)
    assert (writing.replaces, writing.document.due_at_ms) == (NOW_MS, None)
    assert writing.document.expires_at_ms == LIMIT.at_ms


def test_an_owner_that_is_asked_has_time_to_clean_up_and_a_grace():
    limit = timeouts.asked(LIMIT, now_ms=LIMIT.at_ms)
    assert limit.asked_until_ms == LIMIT.at_ms + 30_000
    assert timeouts.asked(limit, now_ms=LIMIT.at_ms + 7) == limit  # once
    document = timeouts.go_on(kept(), limit, grace_ms=500, now_ms=LIMIT.at_ms).document
    assert (document.due_at_ms, timeouts.of(document)) == (LIMIT.at_ms + 30_500, limit)


def test_a_limit_whose_run_is_not_there_yet_is_looked_at_again_soon():
    document = timeouts.go_on(kept(), LIMIT, grace_ms=500, now_ms=LIMIT.at_ms).document
    assert (document.due_at_ms, timeouts.of(document)) == (LIMIT.at_ms + 500, LIMIT)


@pytest.mark.parametrize(("on_timeout", "fails"), [("fail", True), ("cancel", False)])
def test_how_a_run_ends_is_declared(on_timeout, fails):
    failure = replace(LIMIT, on_timeout=on_timeout).failure
    assert (failure is not None) is fails
    if failure is not None:
        assert failure.type == f"{RunTimedOut.__module__}.RunTimedOut"
        assert failure.message == "run run-1 took longer than 60 s"
    assert LIMIT.reason == "it took longer than 60 s"


def test_a_run_shows_its_limit_as_an_attribute():
    shown = timeouts.shown_with(attributes.encode({"customer": "ada"}), LIMIT.at_ms)
    known = attributes.decode(shown)
    assert known == {"customer": "ada", "holdfast.times_out_at": AT}
    assert timeouts.shown_by(known) == AT
    assert attributes.decode(timeouts.shown_without(shown)) == {"customer": "ada"}


def test_a_run_without_a_limit_shows_none():
    known = attributes.encode({"customer": "ada"})
    assert timeouts.shown_without(known) is known
    assert timeouts.shown_by({"customer": "ada"}) is None
    assert timeouts.shown_by({"holdfast.times_out_at": "soon"}) is None
