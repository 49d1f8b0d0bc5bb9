"""Tables and trees for people. Ids and keys are never cut: people copy them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.adapters.machine import SystemClock
from holdfast.cli.output import plain
from holdfast.client import Lane, Run
from holdfast.engine.api.registry import Description
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.explanations import Story
from holdfast.kernel.units import utc_of
from holdfast.kernel.waits import Wait
from holdfast.ports.store import COUNT_MAX, Backlog, Finding, Member
from holdfast.wire import times
from holdfast.wire.samples import parameters
from holdfast.wire.times import duration, exact

STYLES = {
    "pending": "dim",
    "running": "cyan",
    "waiting": "yellow",
    "blocked": "bold red",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
}
_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "bold red")}
WIDE = 110  # columns
_clock = SystemClock()


def status(word: str) -> Text:
    return Text(word, style=STYLES.get(word, ""))


def ago(instant: datetime) -> str:
    """How long ago an instant was, in its largest unit."""
    return times.ago(instant, utc_of(_clock.wall_ms()))


def table(*columns: str, rows: Iterable[Sequence[RenderableType]], nothing: str) -> RenderableType:
    """A table whose first two columns are never cut; or a sentence, if there is nothing to show."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        drawn.add_column(name, overflow="fold", no_wrap=index < 2)
    for row in rows:
        drawn.add_row(*row)
    return drawn if drawn.row_count else Text(nothing, style="dim")


def lanes(found: Sequence[Lane], more: str | None) -> RenderableType:
    """A page of lanes."""
    names = ("lane", "width", "active", "parked", "", "first run")
    rows = [
        (
            plain(each.name),
            str(each.width),
            str(each.active),
            str(each.parked),
            Text("paused", style="yellow") if each.paused else "",
            "" if each.head is None else plain(f"{each.head.id} {each.head.status}"),
        )
        for each in found
    ]
    drawn = table(*names, rows=rows, nothing="No lanes.")
    return drawn if more is None else Group(drawn, plain(f"There are more: --after {more}", "dim"))


def lane(lane: Lane) -> RenderableType:
    """A lane, and the first of its runs in order."""
    paused = ", paused" if lane.paused else ""
    head = plain(f"lane {lane.name}: width {lane.width}, {lane.active} active, {lane.parked} parked{paused}")
    places = [(run_id, "active") for run_id in lane.active_runs] + [(run_id, "parked") for run_id in lane.parked_runs]
    lines = [Text(f"{number:>4}  {run_id}  {place}") for number, (run_id, place) in enumerate(places, 1)]
    left = lane.active + lane.parked - len(places)
    return Group(head, *lines, *([Text(f"      and {left:,} more", style="dim")] if left > 0 else []))


def runs(found: Sequence[Run[Any]], more: str | None, *, width: int) -> RenderableType:
    """A page of runs: a line for each, or two where there is no room for one."""
    if width < WIDE:
        drawn: RenderableType = Group(*(_two_lines(run) for run in found)) if found else Text("No runs.", style="dim")
    else:
        names = ("run", "status", "workflow", "key", "created", "waits for")
        rows = [
            (run.id, status(run.status), plain(run.workflow), plain(run.key or ""), ago(run.created_at), _why(run))
            for run in found
        ]
        drawn = table(*names, rows=rows, nothing="No runs.")
    return drawn if more is None else Group(drawn, Text(f"There are more: --after {more}", style="dim"))


def _two_lines(run: Run[Any]) -> Text:
    """Status first and the reason below it: what one looks for is never cut."""
    head = Text.assemble(run.id, "  ", status(run.status), "  ", plain(ago(run.created_at), "dim"), overflow="fold")
    key = "" if run.key is None else f"  {run.key}"
    below = Text.assemble("  ", plain(run.workflow), plain(key), overflow="fold")
    why = _why(run)
    return Text("\n").join([head, below, *([Text.assemble("  waits for ", why, style="dim")] if why else [])])


def _why(run: Run[Any]) -> Text:
    if run.status == "failed" and run.error is not None:
        return plain(f"{run.error.type}: {run.error.message}", "red")
    return plain("; ".join(str(wait) for wait in run.waiting_on if wait.kind != "running" or wait.effect), "dim")


def headline(run: Run[Any], next_actions: Sequence[str]) -> Table:
    """What there is to know about a run at a glance; `next_actions` are those of its story."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("run", run.id)
    grid.add_row("workflow", plain(run.workflow + (f" (version {run.version})" if run.version else "")))
    if run.key is not None:
        grid.add_row("key", plain(run.key + ("" if run.holds_key else " (no longer its own)")))
    grid.add_row("status", status(run.status))
    grid.add_row("created", f"{exact(run.created_at)} ({ago(run.created_at)})")
    if run.finished_at is not None:
        took = duration((run.finished_at - run.created_at).total_seconds() * 1_000)
        grid.add_row("ended", f"{exact(run.finished_at)} (after {took})")
    if run.times_out_at is not None:
        grid.add_row("times out", exact(run.times_out_at))
    if run.error is not None:
        at = f" ({run.error.line})" if run.error.line else ""
        grid.add_row("error", plain(f"{run.error.type}: {run.error.message}{at}", "red"))
        if run.error.traceback:
            grid.add_row("traceback", plain(run.error.traceback.rstrip(), "dim"))
    for marker in run.markers:
        grid.add_row("marker", plain(f"{marker.name} at {exact(marker.at)}"))
    for name, value in run.attributes.items():
        grid.add_row("attribute", plain(f"{name} = {value}"))
    for wait in run.waiting_on:
        grid.add_row("waits for", plain(wait_of(wait), "yellow"))
    grid.add_row("possible", ", ".join(action.replace("_", "-") for action in next_actions))
    return grid


def wait_of(wait: Wait) -> str:
    """What is waited for; why a run is blocked is told once, as its error."""
    return "a person: see error" if wait.kind == "blocked" else str(wait)


def story(told: Story) -> RenderableType:
    lines, shown = list[Text](), told.last_failure
    for line in told.lines:
        lines.append(plain(f"{exact(line.at)}  {line.text}", "" if line.counts else "dim strike"))
        if line is shown:
            lines += [plain(f"    {frame}", "dim") for frame in line.traceback.splitlines()]
    waits = [plain(f"It waits for {wait}.", "yellow") for wait in told.waiting_on]
    possible = ", ".join(action.replace("_", "-") for action in told.next_actions)
    return Group(plain(told.headline, "bold"), *lines, *waits, Text(f"Possible now: {possible}."))


def receipt(left: Receipt) -> RenderableType:
    """What a cancelled or failed run left behind."""
    reason = f" ({left.reason})" if left.reason else ""
    words = [Text.assemble(f"run {left.run_id}: ", (left.outcome, "bold"), plain(reason))]
    if left.stopped:
        words.append(Text("The deadline cut its cleanup short.", style="yellow"))
    styles = {"performed": "yellow", "undone": "green", "unknown": "red"}
    words += [
        Text.assemble("  ", (effect.state, styles[effect.state]), " ", plain(f"{effect} ({effect.step})"))
        + plain(f": {effect.problem}" if effect.problem else "")
        for effect in left.effects
    ]
    words += [plain(f"  child run {child.run_id} of {child.workflow}: {child.outcome}") for child in left.children]
    return Group(*words)


def workflows(described: Sequence[Description]) -> RenderableType:
    rows = [
        (
            plain(each.name),
            plain(each.key or ""),
            plain(", ".join(parameters(each))),
            plain(each.queue),
            duration(each.retention.total_seconds() * 1_000),
            plain("\n".join(each.rules)),
            plain(each.doc.partition("\n")[0]),
        )
        for each in described
    ]
    names = ("workflow", "key", "input", "queue", "retention", "rules", "")
    return table(*names, rows=rows, nothing="No workflows: name a pack with --pack.")


def workers(members: Sequence[Member], backlog: Backlog) -> RenderableType:
    """Who works, and how much there is to do."""
    rows = [
        (
            plain(member.instance),
            plain(f"{member.serves.host}:{member.serves.pid}"),
            f"{member.holds} of {member.serves.concurrency}",
            ago(member.joined_at),
            plain(", ".join(member.serves.workflows)),
        )
        for member in members
    ]
    counts = ", ".join(f"{_count(number)} {word}" for word, number in backlog.statuses.items() if number)
    waiting = [
        plain(f"{_count(depth.ready)} runs of {depth.workflow} wait for a worker of queue {depth.queue!r}", "yellow")
        for depth in backlog.depths
        if depth.ready
    ]
    return Group(
        table("worker", "process", "holds", "joined", "serves", rows=rows, nothing="No live workers."),
        Text(f"Runs: {counts or 'none'}.", style="dim"),
        *waiting,
    )


def findings(found: Sequence[Finding]) -> RenderableType:
    """What a look at the surroundings has found; hints where something is to be done."""
    grid = Table.grid(padding=(0, 1))
    for finding in found:
        mark, style = _MARKS[finding.level]
        hint = f"\n{finding.hint}" if finding.hint and finding.level != "ok" else ""
        grid.add_row(Text(mark, style=style), plain(finding.what, "bold"), plain(finding.detail + hint))
    return grid


def _count(number: int) -> str:
    return f"{number:,} or more" if number >= COUNT_MAX else f"{number:,}"
