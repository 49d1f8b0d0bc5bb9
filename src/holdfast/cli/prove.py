"""`prove`: crash, pause and cancel workflows at every boundary of a run, and compare with the clean one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.cli import packs as pack_names, render
from holdfast.cli.output import plain
from holdfast.cli.prove_progress import MARKS, ProveProgress, users_output_aside
from holdfast.cli.session import INTERRUPTED, Session
from holdfast.errors import InvalidConfig, UsageError

if TYPE_CHECKING:  # other commands need none of it
    from holdfast.pack import Pack
    from holdfast.prove.report import CaseReport, FoundReport, ProveReport

FAILED = 1
STYLES = {"proved": "green", "failed": "bold red", "not proved": "yellow"}


async def prove(
    session: Session,
    target: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", help="Modules with packs or proofs: shop.orders, tests.proofs."),
    ] = None,
    *,
    only: Annotated[str | None, typer.Option(metavar="WORKFLOW", help="Only this workflow.")] = None,
    budget: Annotated[int, typer.Option(min=10, help="How many worlds of each case, at most.")] = 2_000,
    seed: Annotated[int, typer.Option(help="What decides chance, and which worlds beyond the budget are tried.")] = 1,
    processes: Annotated[
        bool, typer.Option("--processes", help="Then again with real processes and kill -9, on SQLite files.")
    ] = False,
    repeat: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Live again the world that this file names.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report to this file, as a page.")] = None,
) -> None:
    """Crash, pause and cancel workflows at every boundary of a run, and prove that nothing is done twice."""
    from holdfast.prove.report import read_repeatable  # noqa: PLC0415

    if html is not None:
        _check_page(html)
    if repeat is not None:
        again = read_repeatable(repeat)
        _repeat(session, tuple(target or again.target), repeat)
        return
    names = tuple(target or session.config.packs)
    if not names:
        raise InvalidConfig("prove has nothing to prove", hint="Name a module: holdfast prove shop.orders")
    from holdfast.prove import cases as found_cases, prover  # noqa: PLC0415
    from holdfast.prove.page import page  # noqa: PLC0415
    from holdfast.prove.world_limits import ProvingStopped  # noqa: PLC0415

    with users_output_aside():
        modules, packs = _loaded(names)
        cases = found_cases.find(modules, packs, only=only)
    if not cases:
        raise InvalidConfig(
            f"{', '.join(names)} has no workflow to prove", hint="A workflow is declared by @pack.workflow."
        )
    options = prover.ProveOptions(target=names, seed=seed, budget=budget, with_processes=processes)
    options.check()
    progress = ProveProgress(session.out, cases=len(cases), budget=budget)
    try:
        with progress.shown(), users_output_aside():
            report = await prover.prove(cases, packs, options, progress.tell, progress.finished)
    except (ProvingStopped, asyncio.CancelledError):
        session.out.note(progress.so_far)
        raise typer.Exit(INTERRUPTED) from None
    if html is not None:
        html.write_text(page(report), encoding="utf-8")
    session.out.show(report, _view(report))
    if not report.is_proved:
        raise typer.Exit(FAILED)


def _check_page(html: Path) -> None:
    """Before the work, which may take long."""
    if html.is_dir():
        problem = "it is a directory"
    elif not html.absolute().parent.is_dir():
        problem = "there is no such directory"
    elif not os.access(html if html.exists() else html.absolute().parent, os.W_OK):
        problem = "this user may not"
    else:
        return
    raise InvalidConfig(f"{html} cannot be written: {problem}", hint="Name a file: --html report.html.")


def _repeat(session: Session, names: tuple[str, ...], file: Path) -> None:
    from holdfast.prove import cases as found_cases, prover, report, world_limits  # noqa: PLC0415

    again = report.read_repeatable(file)
    with users_output_aside():
        modules, packs = _loaded(names)
        known = found_cases.find(modules, packs)
    found = [each for each in known if isinstance(each, found_cases.Case) and each.name == again.case]
    if not found:
        raise UsageError(f"{file} is about {again.case!r}, which {', '.join(names)} does not have")
    try:
        with users_output_aside():
            world = prover.repeat(found[0], packs, again)
    except world_limits.ProvingStopped:
        raise typer.Exit(INTERRUPTED) from None
    if world is None:
        session.out.show({"found": None}, plain(f"{again.case}: nothing is wrong with this world any more.", "green"))
        return
    told = report.told(world.schedule, world.outcome.faults_met)
    document = {
        "case": again.case,
        "told": told,
        "violations": world.violations,
        "happenings": world.outcome.happenings,
    }
    lines = [
        plain(f"✗ {again.case}", "bold red"),
        *(plain(f"    {number}. {words}") for number, words in enumerate(told, 1)),
        *(
            plain(f"  {each.rule}: {each.what}{f' ({each.line})' if each.line else ''}", "red")
            for each in world.violations
        ),
        *(
            plain(f"  {each.after_ms / 1000:9.3f} s  {each.host:<9} {each.words}", "dim")
            for each in world.outcome.happenings
        ),
    ]
    session.out.show(document, Group(*lines))
    raise typer.Exit(FAILED)


def _loaded(names: Sequence[str]) -> tuple[list[ModuleType], tuple[Pack, ...]]:
    from holdfast.prove.cases import packs_of  # noqa: PLC0415

    modules = [pack_names.module_named(name.partition(":")[0]) for name in names]
    chosen = [name for name in names if ":" in name]
    packs = packs_of(modules) if not chosen else tuple(pack_names.load(names))
    if not packs:
        raise InvalidConfig(
            f"{', '.join(names)} has neither a pack nor a proof", hint="A proof is declared by @prove(workflow)."
        )
    return modules, packs


def _view(report: ProveReport) -> RenderableType:
    """What came out, at a glance; then each mistake with its schedule."""
    rows = [
        (
            Text.assemble((MARKS[each.verdict], STYLES[each.verdict]), " ", plain(each.name)),
            Text(each.verdict, style=STYLES[each.verdict]),
            f"{each.boundaries:,}",
            f"{each.worlds:,}" if each.worlds >= each.worlds_known else f"{each.worlds:,} of {each.worlds_known:,}",
            plain(_briefly(each), "" if each.verdict == "proved" else STYLES[each.verdict]),
        )
        for each in report.cases
    ]
    table = render.table(
        "workflow", "verdict", "boundaries", "worlds", "", rows=rows, nothing="There is nothing to prove."
    )
    found = [line for case in report.cases for each in case.found for line in _told_in_words(case, each)]
    return Group(table, *found, plain(_summary(report), "dim"))


def _briefly(case: CaseReport) -> str:
    if case.found:
        return "; ".join(dict.fromkeys(each.rule for each in case.found))
    return case.problem


def _told_in_words(case: CaseReport, found: FoundReport) -> list[Text]:
    where = f" ({found.line})" if found.line else ""
    return [
        Text(""),
        plain(f"✗ {case.name}: {found.rule}{where}", "bold red"),
        plain(f"  {found.what}"),
        *(plain(f"    {number}. {words}") for number, words in enumerate(found.told, 1)),
        *([plain(f"  Live it again: holdfast prove --repeat {found.file}", "dim")] if found.file else []),
    ]


def _summary(report: ProveReport) -> str:
    worlds, known = (sum(getattr(case, name) for case in report.cases) for name in ("worlds", "worlds_known"))
    lived = sum(case.seconds_lived for case in report.cases)
    wrong = sum(len(case.found) for case in report.cases)
    beyond = "" if worlds >= known else f", a sample by seed {report.seed} of {known:,} (--budget takes more)"
    mistakes = "1 mistake" if wrong == 1 else f"{wrong:,} mistakes"
    words = f"{worlds:,} worlds{beyond}, {_long(lived)} of virtual time, {mistakes}, {report.seconds:.1f} s."
    kept = f" Evidence: {', '.join(report.evidence)}" if report.evidence else ""
    return words + kept


def _long(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"
