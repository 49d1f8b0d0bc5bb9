"""Bulk operations: which runs are meant, and what becomes of each when its turn comes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import bulks, transitions
from holdfast.kernel.bulks import (
    CHANGED,
    BulkCounts,
    BulkError,
    BulkOrder,
    BulkRate,
    BulkReport,
    BulkState,
    SelectedRun,
)
from holdfast.kernel.journal import CancelAsked, Received, Resumed, Retried, Value
from holdfast.kernel.runs import Status
from holdfast.kernel.searches import Search, Span, matches
from holdfast.kernel.times import Instant, Millis
from tests.builders import NOW_MS, a_run

SEARCH = Search(namespace="default", limit=50)
FAILED = a_run(status=Status.FAILED, finished_at_ms=NOW_MS, epoch=3, length=5)
SELECTED = SelectedRun(FAILED.id, 3, 5)
RETRY = BulkOrder(verb="retry")


def order(verb: Any = "retry", search: Search = SEARCH, **options: Any) -> BulkOrder:
    given = {"limit": None, "rate": None, "reason": "", "deadline_ms": Millis(30_000), "hook": None, "payload": None}
    return bulks.order(verb, search, **(given | options))


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50/1s", BulkRate(50, Millis(1000))),
        ("50/s", BulkRate(50, Millis(1000))),
        (" 1000 / m ", BulkRate(1000, Millis(60_000))),
        ("3/200ms", BulkRate(3, Millis(200))),
        ("1/1.5h", BulkRate(1, Millis(5_400_000))),
        (None, None),
    ],
)
def test_a_rate_is_read_as_people_write_it(text: str | None, rate: BulkRate | None) -> None:
    assert bulks.rate_of(text) == rate


@pytest.mark.parametrize("text", ["", "50", "fast", "0/1s", "5/0s", "5/", "/1s", "-5/1s", "5/1s/1s", "1.5/s", 50])
def test_what_is_no_rate_is_refused(text: Any) -> None:
    with pytest.raises(UsageError):
        bulks.rate_of(text)


@pytest.mark.parametrize(
    ("rate", "count", "page", "pause_ms"),
    [("50/1s", 50, 50, 1000), ("50/1s", 1, 50, 20), ("500/1s", 100, 100, 200), ("3/1s", 1, 3, 334), ("3/1s", 0, 3, 0)],
)
def test_a_page_is_followed_by_the_time_that_it_takes_at_that_rate(
    rate: str, count: int, page: int, pause_ms: int
) -> None:
    wanted = order(rate=rate)
    assert wanted.page == page
    assert wanted.pause_ms(BulkCounts(done=count, skipped={"gone": 7})) == pause_ms


def test_without_a_rate_there_is_no_pause() -> None:
    assert (RETRY.page, RETRY.pause_ms(BulkCounts(done=100))) == (bulks.PAGE, 0)


@pytest.mark.parametrize("verb", bulks.VERBS)
def test_left_out_the_status_is_what_the_verb_takes(verb: Any) -> None:
    wanted = order(verb, hook="approval" if verb == "signal" else None)
    assert set(wanted.runs.status) == set(bulks.TAKES[verb])
    for status in Status:
        search = replace(SEARCH, statuses=frozenset({status}))
        if status in bulks.TAKES[verb]:
            assert order(verb, search, hook="approval" if verb == "signal" else None).runs.status == (status,)
        else:
            with pytest.raises(UsageError, match=f"a run that is {status} cannot be"):
                order(verb, search, hook="approval" if verb == "signal" else None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verb": "burn"}, "not a bulk verb"),
        ({"limit": 0}, "leaves no run"),
        ({"search": replace(SEARCH, workflow="holdfast.bulk")}, "bulk runs are not moved"),
        ({"verb": "signal"}, "signal names no hook"),
        ({"verb": "cancel", "hook": "approval"}, "cancel takes no hook, and was given 'approval'"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        order(**options)


@pytest.mark.parametrize(
    ("created_until_ms", "until_ms"), [(None, NOW_MS + 1), (NOW_MS + 5, NOW_MS + 1), (NOW_MS - 5, NOW_MS - 5)]
)
def test_runs_that_were_created_later_are_not_found(created_until_ms: Instant | None, until_ms: int) -> None:
    wanted = order(search=replace(SEARCH, created=Span(None, created_until_ms), key_prefix="order"))
    found = bulks.search(wanted, namespace="default", began_at_ms=NOW_MS, limit=7, after=(NOW_MS, "r"))
    assert (found.created.until_ms, found.limit, found.after) == (until_ms, 7, (NOW_MS, "r"))
    assert found.key_prefix == "order"
    ours = replace(found, after=None)
    assert matches(ours, FAILED) is (until_ms > NOW_MS)
    assert not matches(ours, replace(FAILED, created_at_ms=Instant(NOW_MS + 1)))


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({}, True),
        ({"finished_at_ms": None, "status": Status.BLOCKED}, True),
        ({"finished_at_ms": NOW_MS + 1}, False),
        ({"workflow": "holdfast.bulk"}, False),
    ],
)
def test_a_run_is_meant_if_it_matched_at_the_beginning(fields: dict[str, Any], meant: bool) -> None:
    assert bulks.is_meant(replace(FAILED, **fields), began_at_ms=NOW_MS) is meant


CANCEL, RESUME = BulkOrder(verb="cancel", reason="why"), BulkOrder(verb="resume")
SIGNAL = BulkOrder(verb="signal", hook="approval")
VALUE = Value(Raw(b"1"))


@pytest.mark.parametrize(
    ("wanted", "fields", "entries", "skip"),
    [
        (RETRY, {}, (), None),
        (RETRY, {"status": Status.BLOCKED}, (), None),
        (RETRY, {"epoch": 4}, (), CHANGED),
        (RETRY, {"length": 6}, (), CHANGED),
        (RETRY, {"status": Status.RUNNING}, (), CHANGED),
        (RETRY, {"epoch": 5, "length": 9}, (Retried(NOW_MS, (), "b-1"),), ""),
        (RETRY, {"epoch": 5, "length": 9}, (Retried(NOW_MS, (), "b-2"),), CHANGED),
        (RETRY, {}, (Retried(NOW_MS, (), "b-2"),), None),
        (RESUME, {"status": Status.CANCELLED}, (), None),
        (RESUME, {"status": Status.CANCELLED, "epoch": 7}, (), CHANGED),
        (RESUME, {"status": Status.RUNNING}, (Resumed(NOW_MS, (), "b-1"),), ""),
        (RESUME, {"status": Status.RUNNING}, (Resumed(NOW_MS, (), ""),), CHANGED),
        (CANCEL, {"status": Status.WAITING, "epoch": 9, "length": 30}, (), None),
        (CANCEL, {"status": Status.COMPLETED}, (), CHANGED),
        (CANCEL, {"status": Status.CANCELLED}, (CancelAsked(NOW_MS, NOW_MS, "why (bulk run b-1)"),), ""),
        (CANCEL, {"status": Status.WAITING}, (CancelAsked(NOW_MS, NOW_MS, "why (bulk run b-2)"),), None),
        (SIGNAL, {"status": Status.WAITING, "epoch": 9}, (), None),
        (SIGNAL, {"status": Status.COMPLETED}, (), CHANGED),
        (
            SIGNAL,
            {"status": Status.COMPLETED},
            (Received(NOW_MS, "approval", "signal/8/approval/bulk/b-1", VALUE),),
            "",
        ),
        (
            SIGNAL,
            {"status": Status.WAITING},
            (Received(NOW_MS, "approval", "signal/8/approval/bulk/b-2", VALUE),),
            None,
        ),
    ],
)
def test_what_becomes_of_a_run_when_its_turn_comes(
    wanted: BulkOrder, fields: dict[str, Any], entries: tuple[Any, ...], skip: str | None
) -> None:
    assert bulks.skip_of(wanted, "b-1", SELECTED, replace(FAILED, **fields), entries) == skip


def test_a_reason_names_the_bulk_run() -> None:
    assert bulks.reason_of(CANCEL, "b-1") == "why (bulk run b-1)"
    assert bulks.reason_of(BulkOrder(verb="cancel"), "b-1") == "bulk run b-1"


def test_two_bulk_runs_do_not_take_each_others_change_for_their_own() -> None:
    changes = [transitions.retry(FAILED, (), now_ms=NOW_MS, bulk=bulk) for bulk in ("", "b-1", "b-2")]
    assert len({change.id for change in changes}) == 3
    assert all(change.run is not None and change.run.change_id == change.id for change in changes)


def test_counts_add_up_and_keep_the_first_errors() -> None:
    one = bulks.failed("r-1", "boom") + bulks.skipped(bulks.REFUSED, "r-2", "no") + bulks.DONE
    assert one == BulkCounts(1, {"refused": 1}, 1, (BulkError("r-1", "boom"), BulkError("r-2", "no")))
    assert (one.seen, one.tried) == (3, 2)
    many = sum((bulks.failed(f"r-{n}", "boom") for n in range(50)), one)
    assert (many.failed, many.seen, len(many.errors)) == (51, 53, bulks.ERRORS_MAX)
    assert many.errors[:2] == one.errors


@pytest.mark.parametrize(
    ("matched", "report"),
    [
        (3, BulkReport("retry", 3, 2, {"gone": 1}, 0, ())),
        (5, BulkReport("retry", 5, 2, {"gone": 1, "left": 2}, 0, ())),
        (2, BulkReport("retry", 3, 2, {"gone": 1}, 0, ())),  # more were found than were counted at first
    ],
)
def test_a_report_accounts_for_every_run_that_matched(matched: int, report: BulkReport) -> None:
    state = BulkState(NOW_MS, matched, BulkCounts(2, {"gone": 1}))
    assert bulks.report(RETRY, state) == report
    assert bulks.attributes(state) == {"matched": matched, "done": 2, "skipped": 1, "failed": 0, "skipped.gone": 1}


def test_an_order_is_stored_without_what_it_does_not_say() -> None:
    search = replace(
        SEARCH, workflow="shop.checkout", statuses=frozenset({Status.FAILED}), created=Span(), finished=Span()
    )
    wanted = order("retry", search)
    data = msgspec.json.encode(wanted)
    assert data == b'{"verb":"retry","runs":{"workflow":"shop.checkout","status":["failed"]}}'
    assert msgspec.json.decode(data, type=BulkOrder) == wanted
    until = order("cancel", replace(SEARCH, created=Span(None, NOW_MS), finished=Span(NOW_MS)))
    assert (until.runs.created, until.runs.finished) == (Span(None, NOW_MS), Span(NOW_MS))
    assert msgspec.json.decode(msgspec.json.encode(until), type=BulkOrder) == until
