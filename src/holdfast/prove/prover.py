"""Proves cases one after the other, and reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from holdfast.adapters.machine import SystemClock
from holdfast.engine.replay_check import prepare
from holdfast.kernel import exports
from holdfast.kernel.units import utc_of
from holdfast.pack import Pack
from holdfast.prove import evidence, hash_seeds, processes, report
from holdfast.prove.cases import Case, Unproved
from holdfast.prove.explorer import Explored, Explorer, Found
from holdfast.prove.report import CaseReport, FoundReport, ProveReport, Repeatable
from holdfast.prove.samples import CODEC
from holdfast.prove.schedules import CLEAN
from holdfast.prove.worlds.performing import performed_here
from holdfast.prove.worlds.trace import BrokenRule

HAPPENINGS_MAX = 400  # of a failing world, in the report


class ProveOptions(Struct, frozen=True, kw_only=True):
    """How much is tried, and where what comes of it is written."""

    target: tuple[str, ...]
    seed: int
    budget: int
    directory: Path = Path()
    with_processes: bool = False


async def prove(
    cases: Sequence[Case | Unproved],
    packs: Sequence[Pack],
    options: ProveOptions,
    tell: Callable[[str, Explored], None] = lambda _, __: None,
) -> ProveReport:
    """Explore every case; write the evidence of what is proved, and a file for each mistake that was found."""
    clock = SystemClock()
    began_ms, began_at = float(clock.steady_ms()), utc_of(clock.wall_ms())
    explored: dict[str, Explored] = {}
    with quiet(), performed_here(packs):
        for case in cases:
            if isinstance(case, Case):
                explorer = Explorer(
                    case, seed=options.seed, budget=options.budget, tell=lambda out, name=case.name: tell(name, out)
                )
                explored[case.name] = explorer.explore()
    for out in explored.values():
        await _replay_elsewhere(out, packs)
    cases_told = tuple(
        _case_report(explored[case.name], options)
        if isinstance(case, Case)
        else CaseReport(name=case.workflow, workflow=case.workflow, verdict="not proved", problem=case.problem)
        for case in cases
    )
    if options.with_processes:
        cases_told = tuple([await _with_processes(each, explored.get(each.name), options) for each in cases_told])
    return ProveReport(
        target=options.target,
        seed=options.seed,
        budget=options.budget,
        at=began_at.isoformat(timespec="seconds"),
        seconds=(float(clock.steady_ms()) - began_ms) / 1000,
        versions=evidence.versions(),
        cases=cases_told,
        evidence=tuple(_write_evidence(cases_told, packs, options, began_at.isoformat(timespec="seconds"))),
    )


def repeat(case: Case, packs: Sequence[Pack], world: Repeatable) -> Found | None:
    """Live one world again."""
    with quiet(), performed_here(packs):
        explorer = Explorer(case, seed=world.seed, budget=1, lease_seconds=world.lease_seconds)
        return explorer.judged(world.schedule)


@contextmanager
def quiet() -> Generator[None]:
    """Nothing is logged meanwhile: worlds are full of trouble that was made on purpose."""
    prepare()
    logger = logging.getLogger("holdfast")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


async def _replay_elsewhere(out: Explored, packs: Sequence[Pack]) -> None:
    """Replay the clean run of a case in other processes, unless something is wrong with the case already."""
    world = out.clean
    if world is None or out.found:
        return
    journals = [exports.export(run, world.journals[run.id], world.blobs[run.id]) for run in world.runs]
    told = await hash_seeds.divergences(journals, packs)
    wrong = [(run, told[run.id]) for run in world.runs if run.id in told]
    if wrong:
        run, words = wrong[0]
        what = (
            f"in another process the code of {run.workflow} does something else, without any fault. The usual "
            f"cause is the order of a set: {words.strip()}"
        )
        violation = BrokenRule(rule="it depends on its process", what=what, line=_line_in(words))
        out.found.append(Found(schedule=CLEAN, violations=[violation], outcome=world))


def _line_in(words: str) -> str:
    """The first line of code that a divergence names."""
    return next((word.strip("(),.;") for word in words.split() if ".py:" in word), "")


def _case_report(out: Explored, options: ProveOptions) -> CaseReport:
    call = out.case.call
    found = tuple(_found_report(out, each, number, options) for number, each in enumerate(out.found, 1))
    return CaseReport(
        name=out.case.name,
        workflow=call.target.name,
        verdict=out.verdict,
        problem=out.problem,
        input=CODEC.encode(call.arguments, what="its input").decode(),
        worlds=out.worlds,
        worlds_known=max(out.worlds_known, out.worlds),
        boundaries=out.boundaries,
        seconds_lived=round(out.seconds_lived, 3),
        found=found,
    )


async def _with_processes(case: CaseReport, out: Explored | None, options: ProveOptions) -> CaseReport:
    """The same case with real processes, unless its clean run takes long."""
    if out is None or out.clean is None or out.clean.lasted_seconds > processes.SECONDS_MAX:
        return case
    worlds, found = await processes.prove_with_processes(options.target, case.name, seed=options.seed)
    return replace(
        case,
        verdict="failed" if found else case.verdict,
        worlds=case.worlds + worlds,
        worlds_known=case.worlds_known + worlds,
        found=(*case.found, *found),
    )


def _found_report(out: Explored, found: Found, number: int, options: ProveOptions) -> FoundReport:
    first, *others = found.violations
    again = Repeatable(
        target=options.target,
        case=out.case.name,
        seed=options.seed,
        lease_seconds=out.lease_seconds,
        schedule=found.schedule,
        rule=first.rule,
        what=first.what,
    )
    file = options.directory / report.DIRECTORY / f"{out.case.call.target.name}-{number}.json"
    again.write(file)
    return FoundReport(
        rule=first.rule,
        what=first.what,
        step=first.step,
        line=first.line,
        schedule=found.schedule,
        told=report.told(found.schedule, found.outcome.faults_met),
        others=tuple(dict.fromkeys(f"{each.rule}: {each.what}" for each in others)),
        happenings=tuple(found.outcome.happenings[:HAPPENINGS_MAX]),
        file=str(file),
    )


def _write_evidence(
    cases: Sequence[CaseReport], packs: Sequence[Pack], options: ProveOptions, at: str
) -> Generator[str]:
    """Of each workflow all cases of which are proved. What a failed one had before is no evidence any more."""
    directory = options.directory / evidence.DIRECTORY
    for pack in packs:
        for name, workflow in pack.workflows.items():
            mine = [case for case in cases if case.workflow == name]
            if not mine:
                continue
            if any(case.verdict != "proved" for case in mine):
                evidence.file_of(name, directory).unlink(missing_ok=True)
                continue
            made = evidence.ProofEvidence(
                workflow=name,
                digest=evidence.digest_of(workflow, pack),
                worlds=sum(case.worlds for case in mine),
                worlds_known=sum(case.worlds_known for case in mine),
                boundaries=sum(case.boundaries for case in mine),
                seed=options.seed,
                budget=options.budget,
                at=at,
                versions=evidence.versions(),
                with_processes=options.with_processes,
            )
            yield str(evidence.write(made, directory))
