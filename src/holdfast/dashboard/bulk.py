"""One verb on all runs that the filters mean: the page that says what will happen, and the form that makes it happen.

A form that is sent twice starts one bulk run: its nonce is the request id.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.responses import RedirectResponse

from holdfast.client import BulkPreview, BulkVerb, Run, Runs
from holdfast.dashboard import filters
from holdfast.dashboard.context import HtmlPage, Problem, Visit, problem_of, see
from holdfast.dashboard.filters import Filters
from holdfast.errors import HoldfastError, UsageError
from holdfast.kernel import bulks
from holdfast.kernel.bulks import TAKES, VERBS
from holdfast.wire.run_queries import RunQuery

SHOWN = 10
PARAMETERS = ("verb", *Filters.__struct_fields__)


class BulkProgress(NamedTuple):
    """How far a bulk run is, as its attributes say."""

    verb: str
    matched: int
    done: int
    skipped: int
    failed: int
    reasons: Mapping[str, int]

    @property
    def seen(self) -> int:
        return self.done + self.skipped + self.failed


def progress_of(run: Run[Any]) -> BulkProgress | None:
    """How far it is; None if it is no bulk run, or has not begun."""
    shown = run.attributes
    if run.workflow != bulks.WORKFLOW or "matched" not in shown:
        return None
    numbers = {name: value for name, value in shown.items() if isinstance(value, int)}
    reasons = {name.partition(".")[2]: value for name, value in numbers.items() if name.startswith("skipped.")}
    return BulkProgress(
        str(shown["verb"]), numbers["matched"], numbers["done"], numbers["skipped"], numbers["failed"], reasons
    )


def verbs_for(meant: RunQuery) -> list[BulkVerb]:
    """The verbs that make sense for what a search means."""
    return [verb for verb in VERBS if all(status in TAKES[verb] for status in meant.statuses)]


async def page(visit: Visit) -> HtmlPage | RedirectResponse:
    """What a verb would do, and the form for it. Without a verb: the list, where one is chosen."""
    query = visit.request.query_params
    wanted = filters.from_query(query)
    if not query.get("verb"):
        return see(f"/runs?{wanted.query(after='')}")
    return await _page(visit, query["verb"], wanted)


async def start(visit: Visit) -> HtmlPage | RedirectResponse:
    form = visit.form
    wanted = filters.from_query(QueryParams(form["filters"]))
    try:
        verb = _verb_of(form["verb"])
        run, created = await wanted.runs(visit.caller, visit.now).bulk(
            verb,
            rate=form["rate"] or None,
            reason=form["reason"] or None,
            request_id=form["nonce"] or None,
            deadline=form["deadline"] or "30s",
            hook=form["hook"] or None,
            payload=form.json("payload"),
        )
    except HoldfastError as error:
        return await _page(visit, form["verb"], wanted, problem=problem_of(error))
    return see(f"/runs/{quote(run.id, safe='')}?done={'bulk' if created else 'joined'}")


async def _page(visit: Visit, name: str, wanted: Filters, *, problem: Problem | None = None) -> HtmlPage:
    verb = _verb_of(name)
    preview: BulkPreview | None = None
    try:
        wanted = wanted.settled(visit.now)
        preview = await _preview(wanted.runs(visit.caller, visit.now), verb)
    except UsageError as error:
        problem = problem or problem_of(error)
    return HtmlPage(
        "bulk.html",
        f"{verb.capitalize()} many runs",
        {
            "verb": verb,
            "past": bulks.PAST[verb],
            "filters": wanted,
            "preview": preview,
            "problem": problem,
            "form": visit.form,
            "nonce": visit.form["nonce"] or secrets.token_hex(8),
        },
        status=200 if problem is None else problem.status,
    )


async def _preview(found: Runs[Any], verb: BulkVerb) -> BulkPreview:
    # Which hook a signal is for is asked on the page; the runs that are meant are those that could be cancelled.
    return await found.dry_run("cancel" if verb == "signal" else verb, first=SHOWN)


def _verb_of(name: str) -> BulkVerb:
    for verb in VERBS:
        if verb == name:
            return verb
    raise UsageError(f"{name!r:.40} is not a bulk verb", hint=f"Use one of: {', '.join(VERBS)}.")
