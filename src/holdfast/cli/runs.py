"""Looking at runs: `runs`, `show`, `explain`, `journal`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from msgspec.structs import replace
from rich.console import Group

from holdfast.adapters.machine import SystemClock
from holdfast.cli import render
from holdfast.cli.arguments import RunReference, Watch
from holdfast.cli.output import plain
from holdfast.cli.run_filters import (
    AttributeOption,
    InstantOption,
    KeyPrefixOption,
    OldestFirstOption,
    RootsOnlyOption,
    RunFilters,
    StatusOption,
    WordsArgument,
    WorkflowOption,
)
from holdfast.cli.session import Session, find_run
from holdfast.cli.steps import tree_of
from holdfast.cli.watch import View, keep_showing
from holdfast.client import PAGE, Caller, Page, Run
from holdfast.errors import UsageError
from holdfast.kernel.explanations import worded
from holdfast.kernel.runs import ENDED, Status
from holdfast.kernel.units import utc_of
from holdfast.wire import outbound, run_queries
from holdfast.wire.times import exact


async def runs(
    session: Session,
    words: WordsArgument = None,
    *,
    workflow: WorkflowOption = None,
    status: StatusOption = None,
    attribute: AttributeOption = None,
    key_prefix: KeyPrefixOption = None,
    created_after: InstantOption = None,
    created_before: InstantOption = None,
    finished_after: InstantOption = None,
    finished_before: InstantOption = None,
    oldest_first: OldestFirstOption = False,
    roots_only: RootsOnlyOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many on a page.")] = PAGE,
    after: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    watch: Watch = False,
) -> None:
    """List runs, newest first, a page at a time."""
    async with session.caller() as caller:
        filters = RunFilters(
            workflow=workflow,
            status=status,
            attribute=attribute,
            key_prefix=key_prefix,
            created_after=created_after,
            created_before=created_before,
            finished_after=finished_after,
            finished_before=finished_before,
            oldest_first=oldest_first,
            roots_only=roots_only,
        )
        if words and filters != RunFilters(roots_only=roots_only):
            raise UsageError("words and options cannot both say what is searched for", hint="Write all of it as words.")
        query = run_queries.parse_each(words or (), now=utc_of(SystemClock().wall_ms()))

        async def found() -> Page[Any]:
            if words:
                return await run_queries.find(caller, query, roots_only=roots_only, after=after, limit=limit)
            return await filters.runs(caller).page(after=after, limit=limit)

        async def look() -> View:
            page = await found()
            if not page.runs and not watch and query.misspelt:
                session.out.note(f"hint: {query.misspelt}")
            return View(outbound.page(page), render.runs(page.runs, page.next, width=session.out.console.width))

        if watch:
            await keep_showing(session.out, look)
        else:
            view = await look()
            session.out.show(view.document, view.shown)


async def show(
    session: Session,
    run: RunReference,
    *,
    watch: Watch = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Tell what happens, line by line, to the end.")
    ] = False,
    inputs: Annotated[bool, typer.Option("--inputs", help="With the arguments of effects, where recorded.")] = False,
    all: Annotated[bool, typer.Option("--all", help="A row for each step, however many there are.")] = False,
) -> None:
    """Show a run: what it is, why it waits, what may be done now, and its steps with their attempts."""
    async with session.caller() as caller:
        found = await find_run(caller, run)
        if follow:
            await _follow(session, found)
        elif watch:

            async def look() -> View:
                return await _view(caller, await found.refresh(), inputs=inputs, every_row=all)

            await keep_showing(session.out, look)
        else:
            view = await _view(caller, found, inputs=inputs, every_row=all)
            session.out.show(view.document, view.shown)


async def explain(session: Session, run: RunReference) -> None:
    """Tell the story of a run: its journal in words, why it waits, what may be done now."""
    async with session.caller() as caller:
        story = await (await find_run(caller, run)).explain()
        session.out.show(outbound.story(story), render.story(story))


async def journal(session: Session, run: RunReference) -> None:
    """Print the journal of a run, one JSON object per line: what it has recorded, in order."""
    async with session.caller() as caller:
        for entry in await (await find_run(caller, run)).journal():
            session.out.record(entry)


async def _view(caller: Caller, run: Run[Any], *, inputs: bool, every_row: bool) -> View:
    tree = await tree_of(caller, run, inputs=inputs, every_row=every_row)
    possible = (await run.explain()).next_actions  # the snapshot's own go by its status: some of them are refused
    document = replace(outbound.run(run), next_actions=list(possible))
    return View(document, Group(render.headline(run, possible), "", tree), over=Status(run.status) in ENDED)


async def _follow(session: Session, run: Run[Any]) -> None:
    async for event in run.events():
        document = {"cursor": event.cursor, "entry": event.entry}
        session.out.line(document, plain(f"{event.cursor:>4}  {exact(event.entry.at)}  {worded(event.entry)}"))
