"""The page of one run: how it stands, why it waits, what it did, and what may be done with it now."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import UNSET
from starlette.responses import Response

from holdfast.client import Run
from holdfast.dashboard import action_forms, shown_waits
from holdfast.dashboard.bulk import progress_of
from holdfast.dashboard.children import family_of
from holdfast.dashboard.context import HtmlPage, Problem, Visit
from holdfast.dashboard.formats import clipped, encoded, kept, pretty
from holdfast.dashboard.forms import NOTHING
from holdfast.dashboard.timeline import tracks_of
from holdfast.dashboard.timeline_view import view, wanted_of
from holdfast.errors import HoldfastError, UnknownWorkflow, UsageError
from holdfast.kernel import explanations
from holdfast.kernel.apikeys import Scope
from holdfast.kernel.attributes import FORKED_FROM, PARENT, RESERVED, ROOT
from holdfast.kernel.cancels import UNDO, Receipt
from holdfast.kernel.journal import (
    CancelAsked,
    Continued,
    EffectEntry,
    Entry,
    Failed,
    Failure,
    Spawned,
    Started,
    Stopped,
    void_positions,
)
from holdfast.kernel.times import Instant
from holdfast.kernel.units import utc_of

JOURNAL_LENGTH = 50


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
    input: str = ""  # of an effect, where it is recorded


class JournalPage(NamedTuple):
    """Some lines of the journal, and the positions at which the pages before, behind and at the end begin."""

    lines: list[Written]
    total: int
    earlier: int | None
    later: int | None
    last: int


async def run(visit: Visit, *, problem: Problem | None = None, refused: str = "") -> HtmlPage:
    """The page. After an action that was refused its form holds what was typed, and the page says why."""
    found = await visit.caller.get(visit.part("run_id"))
    query = visit.request.query_params
    journal = await found.journal()
    story = await found.explain()
    first = story.lines[0].position if story.lines else 0
    ended_at_ms = visit.now_ms if found.finished_at is None else Instant(int(found.finished_at.timestamp() * 1_000))
    attributes = found.attributes
    until_ms = max(ended_at_ms, journal[-1].at_ms)
    origin_at_ms, tracks = tracks_of(journal, story.waiting_on, until_ms=until_ms)
    hooks = await action_forms.awaited_hooks(found, story.waiting_on, visit)
    names = _allowed(visit, story.next_actions)
    points = fork_points(journal)
    family = await family_of(visit, found.id) if _may_have_children(journal) else None
    keys = {} if family is None else {child.id: child.key for child in (*family.troubled, *family.runs)}
    own = {name: value for name, value in attributes.items() if not name.startswith(RESERVED)}
    return HtmlPage(
        "run.html",
        f"{found.key or found.id} · {found.workflow}",
        {
            "run": found,
            "waits": shown_waits.shown(story.waiting_on, keys),
            "actions": action_forms.actions(found, names, refused=refused, waits_for_signal=bool(hooks)),
            "hidden_actions": bool(story.next_actions) and not names,
            "timeline": view(tracks, wanted_of(query), origin_at_ms=origin_at_ms, until_ms=until_ms),
            "origin_at_ms": origin_at_ms,
            "journal": journal_page(journal, first, query.get("journal", "")),
            "input": await _input_of(found, journal),
            "output": await _output_of(found),
            "failure": _failure_in(journal) if found.status == "failed" else None,
            "blockage": found.error if found.status == "blocked" else None,
            "doubts": action_forms.doubts_of(found, journal, visit) if "decide" in names else [],
            "retries": action_forms.retries_of(found, journal, visit) if "retry_now" in names else [],
            "family": family,
            "receipt": await _receipt_of(found, journal),
            "declared_markers": await _declared_markers(visit, found),
            "attributes": own,
            "bulk": progress_of(found),
            "relatives": {
                label: str(attributes[name])
                for name, label in ((PARENT, "Parent"), (ROOT, "Root"), (FORKED_FROM, "Forked from"))
                if name in attributes
            },
            "steps": points,
            "steps_are_few": len(points) <= action_forms.OPTIONS_MAX,
            "hooks": hooks,
            "who": visit.who,
            "nonce": visit.form["nonce"] or secrets.token_hex(8),
            "done": query.get("done", ""),
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


def journal_page(journal: Sequence[Entry], first: int, wanted: str) -> JournalPage:
    """A page of the journal: the last one, or that which begins at the position `wanted`."""
    void = void_positions(tuple(journal))
    end = first + len(journal)
    begin = end - JOURNAL_LENGTH if not wanted else int(wanted) if wanted.isascii() and wanted.isdigit() else first
    begin = max(first, min(begin, end - 1))
    lines = [
        Written(
            position,
            utc_of(entry.at_ms),
            entry,
            explanations.worded(entry),
            kept(getattr(entry, "value", None)),
            position not in void,
            kept(entry.input) if isinstance(entry, EffectEntry) else "",
        )
        for position, entry in enumerate(journal[begin - first : begin - first + JOURNAL_LENGTH], begin)
    ]
    after = begin + len(lines)
    return JournalPage(
        lines,
        len(journal),
        None if begin == first else max(first, begin - JOURNAL_LENGTH),
        None if after >= end else after,
        end - JOURNAL_LENGTH,
    )


def _may_have_children(journal: Sequence[Entry]) -> bool:
    """Whether it has started a run; what it did before it continued as new is no longer there."""
    return any(isinstance(entry, Spawned | Continued) for entry in journal)


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
