"""Acting on many runs: `bulk retry`, `bulk cancel`, `bulk resume`, `bulk signal`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.arguments import Reason, json_or_text
from holdfast.cli.output import plain
from holdfast.cli.run_filters import RunFilters, WordsArgument, filtered
from holdfast.cli.session import Session
from holdfast.cli.starts import with_created
from holdfast.cli.watch import View, keep_showing
from holdfast.client import BulkPreview, BulkReport, BulkVerb, Run, Runs
from holdfast.errors import UsageError
from holdfast.kernel.bulks import PAST
from holdfast.wire import bulks, outbound

Rate = Annotated[str | None, typer.Option(help="How many at most in which time: 50/1s.")]
BulkKey = Annotated[str | None, typer.Option("--key", help="Start it once per this key.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen. Changes nothing.")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Show how far it is, to the end. Exit code 1 if a run failed.")
]
All = Annotated[bool, typer.Option("--all", help="Mean every run, if no filter is given.")]
SHOWN = 10
_HOLDS_UP = {"worker", "no_worker", "blocked"}


class BulkCommand:
    """What all of these commands do alike."""

    def __init__(
        self,
        session: Session,
        filters: RunFilters,
        verb: BulkVerb,
        *,
        all: bool,
        dry_run: bool,
        follow: bool,
        words: list[str] | None = None,
    ) -> None:
        self._session = session
        self._words = words or []
        self._filters = filters
        self._verb: BulkVerb = verb
        self._all = all
        self._dry_run = dry_run
        self._follow = follow

    async def carry_out(self, *, hook: str | None = None, payload: Any = None, **options: Any) -> None:
        """Start the bulk run and, if that is wanted, see it to its end; or say what it would do."""
        if not (self._words or self._filters.is_set or self._all or self._dry_run):
            raise UsageError(
                "no filter is given, so every run is meant",
                hint="Say which ones: --workflow, --status, --attribute ...; or --all if you mean it.",
            )
        async with self._session.caller() as caller:
            found = self._filters.runs_of(caller, self._words) if self._words else self._filters.runs(caller)
            if self._dry_run:
                preview = await found.dry_run(self._verb, hook=hook, payload=payload, first=SHOWN)
                self._session.out.show(bulks.preview(preview), _preview(preview))
            else:
                await self._start(found, hook=hook, payload=payload, **options)

    async def _start(self, found: Runs[Any], **options: Any) -> None:
        out = self._session.out
        run, created = await found.bulk(self._verb, **options)
        words = f"{'started' if created else 'joined'} bulk run {run.id}"
        if self._follow:
            out.note(words)
            await self._see_to_its_end(run)
            return
        out.show(with_created(outbound.run(run), created=created), words)
        out.note(f"To see how far it is: holdfast show {run.id}")
        for lacking in (each for each in run.waiting_on if each.kind == "no_worker"):
            out.note(f"It waits for {lacking}.", "yellow")

    async def _see_to_its_end(self, run: Run[BulkReport]) -> None:
        async def look() -> View:
            now = await run.refresh()
            return View(outbound.run(now), progress(now), over=now.is_settled)

        await keep_showing(self._session.out, look)
        report = await run.result()
        for error in report.errors:
            self._session.out.note(f"run {error.run_id}: {error.message}", "red")
        if report.failed:
            raise typer.Exit(1)


def progress(run: Run[Any]) -> Text:
    """How far a bulk run is, in a line; and what it waits for, if that is why it does not get on."""
    shown = run.attributes
    waits = [str(wait) for wait in run.waiting_on if wait.kind in _HOLDS_UP]
    lacking = f"; it waits for {', '.join(waits)}" if waits else ""
    if "matched" not in shown:  # it has not counted them yet
        return Text.assemble(render.status(run.status), "  ", plain(f"{shown.get('verb', 'bulk')}: not begun{lacking}"))
    reasons = [f"{value} {name.partition('.')[2]}" for name, value in shown.items() if name.startswith("skipped.")]
    why = f" ({', '.join(reasons)})" if reasons else ""
    words = (
        f"{shown.get('verb')}: {shown.get('done', 0):,} of {shown.get('matched', 0):,} done, "
        f"{shown.get('skipped', 0):,} skipped{why}, {shown.get('failed', 0):,} failed{lacking}"
    )
    return Text.assemble(render.status(run.status), "  ", plain(words))


def _preview(preview: BulkPreview) -> RenderableType:
    many = f"{preview.matched:,} {'run' if preview.matched == 1 else 'runs'}{'' if preview.is_all else ' or more'}"
    verb = PAST[preview.verb]
    head = Text(f"{many} {_prospects(preview, verb)}. Nothing was changed.")
    rows = [
        (
            each.run.id,
            render.status(each.run.status),
            plain(each.run.workflow),
            plain(each.run.key or ""),
            plain(f"no: {each.refusal}", "red") if each.refusal else plain("yes", "green"),
        )
        for each in preview.first
    ]
    if not rows:
        return head
    return Group(head, render.table("run", "status", "workflow", "key", f"would be {verb}", rows=rows, nothing=""))


def _prospects(preview: BulkPreview, verb: str) -> str:
    """What is known to become of those that match: only the first of them were looked at."""
    looked_at = len(preview.first)
    refused = sum(bool(each.refusal) for each in preview.first)
    if not refused and (looked_at == preview.matched or preview.verb == "signal"):
        return f"would be {verb}"
    match = "matches" if preview.matched == 1 else "match"
    return f"{match}; {refused or 'none'} of the first {looked_at} would be refused"


@filtered
async def retry(
    session: Session,
    filters: RunFilters,
    words: WordsArgument = None,
    *,
    dry_run: DryRun = False,
    follow: Follow = False,
    rate: Rate = None,
    reason: Reason = None,
    key: BulkKey = None,
    all: All = False,
) -> None:
    """Try all failed and blocked runs again that the filters mean."""
    wanted = BulkCommand(session, filters, "retry", words=words, all=all, dry_run=dry_run, follow=follow)
    await wanted.carry_out(rate=rate, reason=reason, key=key)


@filtered
async def cancel(
    session: Session,
    filters: RunFilters,
    words: WordsArgument = None,
    *,
    deadline: Annotated[str, typer.Option(help="How long the cleanup of each may take.")] = "30s",
    dry_run: DryRun = False,
    follow: Follow = False,
    rate: Rate = None,
    reason: Reason = None,
    key: BulkKey = None,
    all: All = False,
) -> None:
    """Ask all live runs to cancel that the filters mean."""
    wanted = BulkCommand(session, filters, "cancel", words=words, all=all, dry_run=dry_run, follow=follow)
    await wanted.carry_out(rate=rate, reason=reason, key=key, deadline=deadline)


@filtered
async def resume(
    session: Session,
    filters: RunFilters,
    words: WordsArgument = None,
    *,
    dry_run: DryRun = False,
    follow: Follow = False,
    rate: Rate = None,
    reason: Reason = None,
    key: BulkKey = None,
    all: All = False,
) -> None:
    """Let all cancelled runs go on that the filters mean."""
    wanted = BulkCommand(session, filters, "resume", words=words, all=all, dry_run=dry_run, follow=follow)
    await wanted.carry_out(rate=rate, reason=reason, key=key)


@filtered
async def signal(
    session: Session,
    filters: RunFilters,
    hook: Annotated[str, typer.Argument(help="Name of the hook.")],
    payload: Annotated[str, typer.Argument(help="JSON, or else text.")] = "null",
    *,
    dry_run: DryRun = False,
    follow: Follow = False,
    rate: Rate = None,
    reason: Reason = None,
    key: BulkKey = None,
    all: All = False,
) -> None:
    """Send a payload to a hook of all live runs that the filters mean."""
    wanted = BulkCommand(session, filters, "signal", all=all, dry_run=dry_run, follow=follow)
    await wanted.carry_out(rate=rate, reason=reason, key=key, hook=hook, payload=json_or_text(payload))
