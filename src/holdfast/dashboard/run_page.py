"""The page of one run: how it stands, why it waits, what it did, and what may be done with it now."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import UNSET
from starlette.responses import Response

from holdfast.client import Run
from holdfast.dashboard.context import HtmlPage, Problem, Visit
from holdfast.dashboard.formats import clipped, encoded, kept, pretty
from holdfast.dashboard.forms import NOTHING
from holdfast.dashboard.timeline import timeline
from holdfast.errors import HoldfastError, UnknownWorkflow, UsageError
from holdfast.kernel import explanations
from holdfast.kernel.apikeys import Scope
from holdfast.kernel.attributes import FORKED_FROM, PARENT, RESERVED, ROOT
from holdfast.kernel.cancels import UNDO, Receipt
from holdfast.kernel.journal import CancelAsked, Continued, Entry, Failed, Failure, Started, Stopped, void_positions
from holdfast.kernel.times import Instant
from holdfast.kernel.units import utc_of

JOURNAL_LENGTH = 200


class ShownValue(NamedTuple):
    """A value, laid out. `is_whole` says whether all of it is there."""

    text: str
    is_whole: bool = True


class Written(NamedTuple):
    """A line of the journal."""

    position: int
    at: datetime
    entry: Entry
    words: str
    value: str
    counts: bool


async def run(visit: Visit, *, problem: Problem | None = None, refused: str = "") -> HtmlPage:
    """The page. After an action that was refused its form holds what was typed, and the page says why."""
    found = await visit.caller.get(visit.part("run_id"))
    journal = await found.journal()
    story = await found.explain()
    first = story.lines[0].position if story.lines else 0
    ended_at_ms = visit.now_ms if found.finished_at is None else Instant(int(found.finished_at.timestamp() * 1_000))
    attributes = found.attributes
    own = {name: value for name, value in attributes.items() if not name.startswith(RESERVED)}
    return HtmlPage(
        "run.html",
        f"{found.key or found.id} · {found.workflow}",
        {
            "run": found,
            "waits": story.waiting_on,
            "actions": _allowed(visit, story.next_actions),
            "hidden_actions": bool(story.next_actions) and not _allowed(visit, story.next_actions),
            "timeline": timeline(journal, story.waiting_on, until_ms=max(ended_at_ms, journal[-1].at_ms)),
            "journal": _written(journal, first, whole=visit.request.query_params.get("journal") == "all"),
            "journal_length": len(journal),
            "input": await _input_of(found, journal),
            "output": await _output_of(found),
            "failure": _failure_in(journal) if found.status == "failed" else None,
            "receipt": await _receipt_of(found, journal),
            "declared_markers": await _declared_markers(visit, found),
            "attributes": own,
            "relatives": {
                label: str(attributes[name])
                for name, label in ((PARENT, "Parent"), (ROOT, "Root"), (FORKED_FROM, "Forked from"))
                if name in attributes
            },
            "steps": fork_points(journal),
            "hooks": [wait.name for wait in story.waiting_on if wait.kind == "hook"],
            "nonce": visit.form["nonce"] or secrets.token_hex(8),
            "done": visit.request.query_params.get("done", ""),
            "form": visit.form,
            "nothing": NOTHING,
            "problem": problem,
            "refused": refused,
        },
        status=200 if problem is None else problem.status,
    )


async def raw_input(visit: Visit) -> Response:
    found = await visit.caller.get(visit.part("run_id"))
    return Response(encoded(await found.input()), media_type="application/json")


async def raw_output(visit: Visit) -> Response:
    found = await visit.caller.get(visit.part("run_id"))
    if found.status != "completed":
        raise UsageError(f"run {found.id} is {found.status} and has no result", hint="Wait until it has completed.")
    return Response(encoded(await found.result()), media_type="application/json")


def scope_of(action: str) -> Scope:
    """What a visitor's key must allow for an action on a run."""
    return "admin" if action == "release_key" else "write"


def fork_points(journal: Sequence[Entry]) -> list[str]:
    """The steps from which the run can be forked, in the order of their records: those before any cancellation."""
    void = void_positions(tuple(journal))
    steps: dict[str, None] = {}
    for position, entry in enumerate(journal):
        if position in void:
            continue
        if isinstance(entry, CancelAsked) or (isinstance(entry, Stopped) and entry.error is not None):
            break
        step: str = getattr(entry, "step", "")
        if step and not step.startswith(UNDO):
            steps[step] = None
    return list(steps)


def _allowed(visit: Visit, actions: Sequence[str]) -> list[str]:
    return [each for each in actions if visit.may(scope_of(each))]


def _written(journal: Sequence[Entry], first: int, *, whole: bool) -> list[Written]:
    void = void_positions(tuple(journal))
    skipped = 0 if whole else max(0, len(journal) - JOURNAL_LENGTH)
    return [
        Written(
            position,
            utc_of(entry.at_ms),
            entry,
            explanations.worded(entry),
            kept(getattr(entry, "value", None)),
            position not in void,
        )
        for position, entry in enumerate(journal[skipped:], first + skipped)
    ]


async def _input_of(run: Run[Any], journal: Sequence[Entry]) -> ShownValue:
    """A large input is not loaded for the page: it has a place of its own."""
    first = journal[0]
    if isinstance(first, Started | Continued) and first.input.json is UNSET:
        return ShownValue(f"the input of run {run.id} has {first.input.size:,} bytes", is_whole=False)
    try:
        return _shown(await run.input())
    except HoldfastError as error:
        return ShownValue(error.message, is_whole=False)


async def _output_of(run: Run[Any]) -> ShownValue | None:
    if run.status != "completed":
        return None
    try:
        return _shown(await run.result())
    except HoldfastError as error:
        return ShownValue(error.message, is_whole=False)


def _shown(value: Any) -> ShownValue:
    text, is_clipped = clipped(pretty(encoded(value)))
    return ShownValue(text, not is_clipped)


def _failure_in(journal: Sequence[Entry]) -> Failure | None:
    return next((entry.error for entry in reversed(journal) if isinstance(entry, Failed)), None)


async def _receipt_of(run: Run[Any], journal: Sequence[Entry]) -> Receipt | None:
    unwound = any(isinstance(entry, CancelAsked | Stopped) for entry in journal)
    return await run.receipt() if run.finished_at is not None and (unwound or run.status == "cancelled") else None


async def _declared_markers(visit: Visit, run: Run[Any]) -> list[str]:
    """The markers of its workflow, if that is defined here; else those that it has reached."""
    try:
        return list((await visit.caller.workflow(run.workflow)).markers)
    except UnknownWorkflow:
        return [marker.name for marker in run.markers]
