"""The pages that list things: overview, runs, workflows, lanes, workers. The page of one run is `run_page`."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from holdfast.client import Page, Run
from holdfast.dashboard import bulk, filters
from holdfast.dashboard.context import HtmlPage, Problem, Visit, problem_of, see
from holdfast.dashboard.search_box import EXAMPLES, search_box
from holdfast.dashboard.series import bars
from holdfast.dashboard.tallies import EVERYTHING
from holdfast.errors import UsageError
from holdfast.kernel.runs import Status
from holdfast.kernel.units import utc_of
from holdfast.ports.store import COUNT_MAX
from holdfast.wire import run_queries, samples

RECENT = 6
PAGE = 50
NO_RUNS = Page((), None)


async def overview(visit: Visit) -> HtmlPage:
    caller = visit.caller
    backlog, workers, failed, blocked, recent = await asyncio.gather(
        caller.backlog(),
        caller.workers(),
        caller.runs(status="failed").page(limit=RECENT),
        caller.runs(status="blocked").page(limit=RECENT),
        caller.runs(roots_only=True).page(limit=RECENT),
    )
    figures = await visit.throughput.figures(caller, workers, now_ms=visit.now_ms)
    oldest_at_ms = min((depth.oldest_at_ms for depth in backlog.depths if depth.oldest_at_ms is not None), default=None)
    return HtmlPage(
        "overview.html",
        "Overview",
        {
            "figures": figures,
            "throughput": bars(figures.finished),
            "failures": bars(figures.failed, top=max(figures.finished)),
            "latency": bars(figures.typical_ms),
            "statuses": [(status.value, backlog.statuses.get(status, 0)) for status in Status],
            "count_max": COUNT_MAX,
            "depths": [depth for depth in backlog.depths if depth.ready],
            "ready": sum(depth.ready for depth in backlog.depths),
            "oldest": None if oldest_at_ms is None else utc_of(oldest_at_ms),
            "workers": workers,
            "failed": failed.runs,
            "blocked": blocked.runs,
            "recent": recent.runs,
        },
    )


async def runs(visit: Visit) -> HtmlPage | Response:
    wanted = filters.from_query(visit.request.query_params)
    problem: Problem | None = None
    page, tally, meant = NO_RUNS, None, EVERYTHING
    try:
        meant = wanted.meant(visit.now)
        page = await run_queries.find(
            visit.caller, meant, roots_only=wanted.roots_only, after=wanted.after or None, limit=PAGE
        )
        if meant.means_one_run and len(page.runs) == 1 and run_queries.is_id_of(meant, page.runs[0]):
            return see(f"/runs/{quote(page.runs[0].id, safe='')}")
        if not meant.id and not (meant.lookup and page.runs and run_queries.is_id_of(meant, page.runs[0])):
            tally = await visit.tallies.of(
                visit.caller, meant.by_key, roots_only=wanted.roots_only, now_ms=visit.now_ms
            )
    except UsageError as error:
        problem = problem_of(error)
    workflows = [each.name for each in await visit.caller.workflows()]
    return HtmlPage(
        "runs.html",
        "Runs",
        {
            "filters": wanted.in_one_line,
            "box": search_box(wanted, workflows=workflows, tally=tally),
            "examples": EXAMPLES,
            "page": page,
            "problem": problem,
            "bulk_verbs": bulk.verbs_for(meant) if tally is not None and page.runs and visit.may("write") else [],
        },
        status=200 if problem is None else 422,
    )


async def workflows(visit: Visit) -> HtmlPage:
    described = await visit.caller.workflows()
    backlog, workers = await asyncio.gather(visit.caller.backlog(), visit.caller.workers())
    return HtmlPage(
        "workflows.html",
        "Workflows",
        {
            "workflows": described,
            "ready": {depth.workflow: depth.ready for depth in backlog.depths},
            "served": Counter(name for worker in workers for name in worker.serves.workflows),
        },
    )


async def workflow(visit: Visit, *, problem: Problem | None = None) -> HtmlPage:
    """One workflow. After a start that was refused the form holds what was typed, and the page says why."""
    found = await visit.caller.workflow(visit.part("name"))
    latest = await visit.caller.runs(found.name).page(limit=RECENT)
    return HtmlPage(
        "workflow.html",
        found.name,
        {
            "workflow": found,
            "input_schema": _laid_out(found.input_schema),
            "result_schema": _laid_out(found.result_schema),
            "sample": samples.form_input(found.input_schema),
            "form": visit.form,
            "nonce": visit.form["nonce"] or secrets.token_hex(8),
            "problem": problem,
            "recent": latest.runs,
        },
        status=200 if problem is None else problem.status,
    )


async def lanes(visit: Visit) -> HtmlPage:
    page = await visit.caller.lanes().page(after=visit.request.query_params.get("after") or None, limit=PAGE)
    return HtmlPage("lanes.html", "Lanes", {"page": page})


async def one_lane(visit: Visit) -> HtmlPage:
    return await lane(visit, visit.request.query_params.get("name", ""))


async def lane(visit: Visit, name: str, *, problem: Problem | None = None) -> HtmlPage:
    """One lane. After a form that was refused the page says why."""
    found = await visit.caller.lane(name)
    places = [*found.active_runs, *found.parked_runs]
    rows = await asyncio.gather(*(visit.caller.get(run_id) for run_id in places), return_exceptions=True)
    return HtmlPage(
        "lane.html",
        f"Lane {found.name}",
        {
            "lane": found,
            "runs": [row for row in rows if isinstance(row, Run)],
            "left": found.active + found.parked - len(places),
            "may_set": visit.may("write"),
            "form": visit.form,
            "problem": problem,
        },
        status=200 if problem is None else problem.status,
    )


async def workers(visit: Visit) -> HtmlPage:
    found = await visit.caller.workers()
    return HtmlPage("workers.html", "Workers", {"workers": found})


def _laid_out(schema: Mapping[str, Any] | None) -> str:
    return "" if schema is None else msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
