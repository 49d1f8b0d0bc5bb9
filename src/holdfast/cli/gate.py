"""`gate`: start a whole installation on this machine, do it harm, and prove that nothing was lost or done twice."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Literal, cast

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.extras import require_lab
from holdfast.cli.output import Output, encoded, plain
from holdfast.cli.session import Session
from holdfast.errors import InvalidConfig
from holdfast.kernel.times import NO_TIME
from holdfast.kernel.units import milliseconds

if TYPE_CHECKING:  # other commands need none of it
    from holdfast.lab.gate.report import Report
    from holdfast.lab.gate.scenario import Progress, Tell
    from holdfast.lab.gate.verdict import Counts

PACK = "holdfast.lab.gate.replica"
FAILED = 1
VIOLATIONS_SHOWN = 10  # of each scenario; the report has more
STYLES = {"passed": "green", "failed": "bold red", "not proved": "yellow"}
MARKS = {"passed": "✓", "failed": "✗", "not proved": "?"}


async def gate(
    session: Session,
    *,
    redis: Annotated[
        Literal["single", "cluster", "sentinel"], typer.Option(help="One server; nine in a Cluster; or with Sentinels.")
    ] = "single",
    nats: Annotated[Literal["1", "3"], typer.Option(help="How many NATS servers.")] = "1",
    replicas: Annotated[int, typer.Option(min=2, max=6, help="How many of each role.")] = 2,
    runs: Annotated[
        int, typer.Option("--runs", "-n", min=10, help="How many keyed runs, at least, while it kills.")
    ] = 400,
    only: Annotated[list[str] | None, typer.Option("--only", help="Only this scenario; may be repeated.")] = None,
    soak: Annotated[str | None, typer.Option(help="Faults at random for so long, too: 5m, 2h.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 unless everything passed and was proved.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the report to this file, as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report to this file, as a page.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data and the logs of all processes.")] = False,
) -> None:
    """Kill, stop and restart every part of an installation on this machine, and prove that nothing goes wrong."""
    require_lab("gate")
    from holdfast.lab.cluster.local_cluster import Plan  # noqa: PLC0415
    from holdfast.lab.gate import installation, suite  # noqa: PLC0415
    from holdfast.lab.gate.page import page  # noqa: PLC0415
    from holdfast.lab.gate.scenario import GateOptions, Progress  # noqa: PLC0415

    for file in (report, html):
        if file is not None and not file.absolute().parent.is_dir():
            raise InvalidConfig(f"{file} cannot be written: there is no such directory")
    soak_ms = NO_TIME if soak is None else milliseconds(soak)
    scenarios = suite.choose(only or (), soak_ms=soak_ms, redis=redis)
    options = GateOptions(runs=runs, soak_ms=soak_ms)
    plan = Plan(
        redis=redis,
        nats=cast("Literal[1, 3]", int(nats)),
        gateways=replicas,
        workers=replicas,
        schedulers=replicas,
        packs=(PACK,),
    )
    with _directory(session.out, keep=keep) as directory, _told(session.out, scenarios) as tell:
        tell(Progress(scenario="", words="starting servers and replicas"))
        async with installation.up(directory, plan, lease_ms=options.lease_ms) as (cluster, ledger):
            found = await suite.run(cluster, scenarios, ledger_file=ledger, options=options, tell=tell)
    if report is not None:
        report.write_bytes(msgspec.json.format(encoded(found), indent=2) + b"\n")
    if html is not None:
        html.write_text(page(found), encoding="utf-8")
    session.out.show(found, _view(found))
    if strict and not found.proved:
        raise typer.Exit(FAILED)


@contextmanager
def _directory(out: Output, *, keep: bool) -> Generator[Path]:
    """Where everything lies while it runs."""
    directory = Path(mkdtemp(prefix="holdfast-gate-"))
    try:
        yield directory
    finally:
        if keep:
            out.note(f"Data and logs are in {directory}.")
        else:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _told(out: Output, scenarios: Sequence[str]) -> Generator[Tell]:
    """People see how far it is: drawn in place on a terminal, else a line for each step."""
    if not out.is_watched:
        yield lambda progress: out.note(_line(progress))
        return
    last: dict[str, Progress] = {}
    with Live(console=out.errors, transient=True, auto_refresh=False) as live:

        def draw(progress: Progress) -> None:
            last[progress.scenario] = progress
            live.update(_board(scenarios, last), refresh=True)

        yield draw


def _line(progress: Progress) -> str:
    done = f" ({progress.done:,} done)" if progress.done else ""
    return f"{progress.scenario or 'gate'}: {progress.verdict or progress.words}{done}"


def _board(scenarios: Sequence[str], last: dict[str, Progress]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for name in ("", *scenarios):
        at = last.get(name)
        verdict = None if at is None else at.verdict
        mark = Text(" " if at is None else "·", style="dim") if verdict is None else _mark(verdict)
        if name or len(last) == 1:
            words = "" if at is None else at.words
            grid.add_row(
                mark, name, Text(f"{at.done:,}" if at and at.done else "", justify="right"), plain(words, "dim")
            )
    return grid


def _mark(verdict: str) -> Text:
    return Text(MARKS[verdict], style=STYLES[verdict])


def _view(found: Report) -> RenderableType:
    """What came out, at a glance."""
    rows = [
        (
            Text.assemble(_mark(each.verdict), " ", each.name),
            Text(each.verdict, style=STYLES[each.verdict]),
            f"{(each.ended_at_ms - each.began_at_ms) / 1000:.1f} s",
            f"{each.counts.completed:,} of {each.counts.orders:,}",
            f"{each.counts.repeated:,}",
            plain("; ".join(f"{proof.what}: {proof.seen}" for proof in each.proofs if not proof.holds), "yellow"),
        )
        for each in found.scenarios
    ]
    columns = ("scenario", "verdict", "time", "runs", "repeated calls", "missing")
    wrong = [
        plain(f"{each.name}: {one.kind}: {one.about}: {one.detail}", "red")
        for each in found.scenarios
        for one in each.violations[:VIOLATIONS_SHOWN]
    ]
    recoveries = [
        Text(
            f"Recovery of {each.role}: the next run was done after {each.next_p50_ms:,} ms (p50) and "
            f"{each.next_p99_ms:,} ms (p99), all of them after {each.caught_up_p99_ms:,} ms (p99).",
            style="dim",
        )
        for each in found.recoveries
    ]
    seen = Text(_evidence(found.counts), style="dim")
    return Group(render.table(*columns, rows=rows, nothing="Nothing was done."), seen, *recoveries, *wrong)


def _evidence(counts: Counts) -> str:
    """What was seen besides: without it, "no violation" would mean little."""
    return (
        f"Seen: {counts.stale:,} stale writes refused, {counts.taken_over:,} runs taken over; "
        f"{counts.timers:,} timers, at most {counts.timer_early_ms:,} ms early and {counts.timer_late_ms:,} ms late; "
        f"{counts.signals:,} signals, {counts.events:,} events told to readers, {counts.terms:,} terms of leaders."
    )
