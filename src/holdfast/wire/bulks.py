"""Bulk operations over HTTP, both ways: an order of a client becomes a body, and a body becomes the runs it means."""

from __future__ import annotations

from typing import Any

from holdfast.client import BulkPreview, Caller, Runs
from holdfast.engine.api.start_options import StartOptions
from holdfast.kernel.bulks import BulkFilter, BulkOrder, Preview, Previewed
from holdfast.kernel.units import utc_or_none
from holdfast.wire import inbound, outbound
from holdfast.wire.types import BulkBody, BulkPreviewView, BulkRunsBody, DryRunBody, PreviewedRunView


def runs_of(caller: Caller, wanted: BulkRunsBody) -> Runs[Any]:
    """The runs that a body means. Raises `UsageError`, or `UnknownWorkflow`."""
    return caller.runs(
        wanted.workflow,
        wanted.status,
        attributes=None if wanted.attributes is None else inbound.conditions(wanted.attributes),
        key_prefix=wanted.key_prefix,
        created_after=wanted.created_after,
        created_before=wanted.created_before,
        finished_after=wanted.finished_after,
        finished_before=wanted.finished_before,
        newest_first=wanted.newest_first,
        roots_only=wanted.roots_only,
        limit=wanted.limit,
    )


def body(order: BulkOrder, options: StartOptions, payload: Any, request_id: str) -> BulkBody:
    """What a client sends to start a bulk run."""
    return BulkBody(
        verb=order.verb,
        runs=_runs(order.runs, order.limit),
        rate=None if order.rate is None else f"{order.rate.count}/{order.rate.per_ms}ms",
        reason=order.reason or None,
        deadline=order.deadline_ms / 1000,
        hook=order.hook or None,
        payload=payload,
        key=options.key,
        request_id=options.request_id or request_id,
    )


def dry_run_body(order: BulkOrder, payload: Any, first: int) -> DryRunBody:
    """What a client sends to ask what a bulk run would do."""
    return DryRunBody(
        verb=order.verb, runs=_runs(order.runs, order.limit), hook=order.hook or None, payload=payload, first=first
    )


def preview(found: BulkPreview) -> BulkPreviewView:
    """What a gateway says about what a bulk run would do."""
    return BulkPreviewView(
        verb=found.verb,
        matched=found.matched,
        is_all=found.is_all,
        first=[PreviewedRunView(outbound.run(each.run), each.refusal) for each in found.first],
    )


def previewed(shown: BulkPreviewView, namespace: str) -> Preview:
    """The same, as a client reads it."""
    first = [Previewed(inbound.run(each.run, namespace), each.refusal) for each in shown.first]
    return Preview(shown.matched, shown.is_all, tuple(first))


def _runs(wanted: BulkFilter, limit: int | None) -> BulkRunsBody:
    return BulkRunsBody(
        workflow=wanted.workflow,
        status=[status.value for status in wanted.status],
        attributes=outbound.conditions_of(wanted.conditions) or None,
        key_prefix=wanted.key_prefix,
        created_after=utc_or_none(wanted.created.since_ms),
        created_before=utc_or_none(wanted.created.until_ms),
        finished_after=utc_or_none(wanted.finished.since_ms),
        finished_before=utc_or_none(wanted.finished.until_ms),
        newest_first=wanted.newest_first,
        roots_only=wanted.roots_only,
        limit=limit,
    )
