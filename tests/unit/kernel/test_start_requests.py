"""Which start an Idempotency-Key belongs to, beside a business key."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.kernel.documents import Document
from holdfast.kernel.start_requests import (
    KIND,
    RETENTION_MS,
    AlreadyStarted,
    BindFirst,
    BoundStart,
    NamedStart,
    OtherStart,
    StartOnce,
    decide,
    named,
    started,
)
from holdfast.kernel.times import Instant

NOW = Instant(1_000_000)


def a_start(**changed: object) -> NamedStart:
    said = {"caller": "c", "header": "h", "workflow": "w", "join": True, "body": b"{}"} | changed
    return named("ns", **said)  # pyright: ignore[reportArgumentType]


def bound(wanted: NamedStart) -> Document:
    decision = decide(None, wanted, now_ms=NOW)
    assert isinstance(decision, BindFirst)
    return decision.writing.document


def test_a_header_that_is_new_is_bound_before_anything_is_started() -> None:
    wanted = a_start()
    decision = decide(None, wanted, now_ms=NOW)
    assert isinstance(decision, BindFirst)
    assert decision.writing.replaces is None
    document = decision.writing.document
    assert (document.namespace, document.kind, document.id) == ("ns", KIND, wanted.id)
    assert document.expires_at_ms == NOW + RETENTION_MS
    assert msgspec.json.decode(document.body, type=BoundStart) == BoundStart(wanted.digest)


def test_a_header_whose_run_is_not_known_may_be_started_once_more() -> None:
    wanted = a_start()
    held = bound(wanted)
    assert decide(held, wanted, now_ms=NOW + 5) == StartOnce(held)


@pytest.mark.parametrize("created", [True, False])
def test_a_header_whose_run_is_known_leads_to_that_run(created: bool) -> None:
    wanted = a_start()
    held = bound(wanted)
    writing = started(held, wanted, "r-1", created=created, now_ms=NOW + 5)
    assert writing.replaces == held.version
    assert writing.document.version > held.version
    assert writing.document.expires_at_ms == NOW + 5 + RETENTION_MS
    assert decide(writing.document, wanted, now_ms=NOW + 9) == AlreadyStarted("r-1", created, writing.document)


@pytest.mark.parametrize("other", [{"workflow": "v"}, {"body": b'{"key":"k"}'}, {"join": False}], ids=str)
@pytest.mark.parametrize("run", ["", "r-1"])
def test_a_header_is_no_good_for_another_start(other: dict[str, object], run: str) -> None:
    wanted = a_start()
    held = bound(wanted)
    found = started(held, wanted, run, created=True, now_ms=NOW).document if run else held
    another = a_start(**other)
    assert another.id == wanted.id
    assert decide(found, another, now_ms=NOW) == OtherStart()


def test_a_header_counts_within_its_caller() -> None:
    assert a_start().id != a_start(caller="d").id
    assert a_start().id != a_start(header="i").id
    assert a_start(caller="ch", header="").id != a_start().id
