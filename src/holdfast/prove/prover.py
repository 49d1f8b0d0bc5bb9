"""Proves cases one after the other, and reports."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from msgspec import Struct
from msgspec.structs import replace

from holdfast.adapters.machine import SystemClock
from holdfast.engine.replay_check import prepare
from holdfast.errors import HoldfastError, InvalidConfig, UsageError
from holdfast.kernel import exports
from holdfast.kernel.units import utc_of
from holdfast.pack import Pack
from holdfast.prove import evidence, hash_seeds, processes, report
from holdfast.prove.cases import Case, Unproved
from holdfast.prove.explorer import Explored, Explorer, Found
from holdfast.prove.report import CaseReport, FoundReport, ProveReport, Repeatable
from holdfast.prove.samples import CODEC
from holdfast.prove.schedules import CLEAN, Schedule
from holdfast.prove.world_limits import SECONDS_MAX, WorldLimits, WorldOverran
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
    world_seconds_max: float = SECONDS_MAX  # of the processor, for one world

    def check(self) -> None:
        """Whether what comes of it can be written. Raises `InvalidConfig`: better now than after minutes of work."""
        for directory in (self.directory / report.DIRECTORY, self.directory / evidence.DIRECTORY):
            try:
                directory.mkdir(parents=True, exist_ok=True)
                with TemporaryFile(dir=directory):
                    pass
            except OSError as error:
                raise InvalidConfig(
                    f"{directory} cannot be written: {error.strerror}",
                    hint="Evidence and worlds to repeat are kept there: prove where this user may write.",
                ) from error


async def prove(
    cases: Sequence[Case | Unproved],
    packs: Sequence[Pack],
    options: ProveOptions,
    tell: Callable[[str, Explored], None] = lambda _, __: None,
    finished: Callable[[CaseReport], None] = lambda _: None,
) -> ProveReport:
    """Explore every case; write the evidence of what is proved, and a file for each mistake that was found.

    `tell` is told how far each case is, `finished` what came of it. What is written of a case is there by then, and
    the evidence of a workflow after its last case. Raises `ProvingStopped` after SIGINT.
    """
    clock, limits = SystemClock(), WorldLimits(options.world_seconds_max)
    began_ms, began_at = float(clock.steady_ms()), utc_of(clock.wall_ms()).isoformat(timespec="seconds")
    reports, kept = list[CaseReport](), list[str]()
    for number, case in enumerate(cases, 1):
        done = await _prove_case(case, packs, options, limits, tell)
        reports.append(done)
        if all(_workflow_of(other) != done.workflow for other in cases[number:]):
            kept += _write_evidence(done.workflow, reports, packs, options, began_at)
        finished(done)
    return ProveReport(
        target=options.target,
        seed=options.seed,
        budget=options.budget,
        at=began_at,
        seconds=(float(clock.steady_ms()) - began_ms) / 1000,
        versions=evidence.versions(),
        cases=tuple(reports),
        evidence=tuple(kept),
    )


async def _prove_case(
    case: Case | Unproved,
    packs: Sequence[Pack],
    options: ProveOptions,
    limits: WorldLimits,
    tell: Callable[[str, Explored], None],
) -> CaseReport:
    if isinstance(case, Unproved):
        return CaseReport(name=case.workflow, workflow=case.workflow, verdict="not proved", problem=case.problem)
    out = _explore(case, packs, options, limits, tell)
    await _replay_elsewhere(out, packs)
    done = _case_report(out, options)
    return await _with_processes(done, out, options) if options.with_processes else done


def _explore(
    case: Case,
    packs: Sequence[Pack],
    options: ProveOptions,
    limits: WorldLimits,
    tell: Callable[[str, Explored], None],
) -> Explored:
    so_far = Explored(case=case, found=[])

    def note(out: Explored) -> None:
        nonlocal so_far
        so_far = out
        tell(case.name, out)

    tell(case.name, so_far)
    limits.begin_case()
    explorer = Explorer(case, seed=options.seed, budget=options.budget, tell=note, live=limits.live)
    with quiet(), performed_here(packs), limits.in_force():
        try:
            return explorer.explore()
        except WorldOverran as over:
            so_far.problem = f"{over.words}; {_where(over.schedule, so_far)}"
            return so_far


def _where(schedule: Schedule, out: Explored) -> str:
    """Which world a schedule is, as far as it is known: boundaries after a first fault are numbered otherwise."""
    if schedule == CLEAN or out.clean is None:
        return "in the clean run"
    first = replace(schedule, faults=schedule.faults[:1])
    more = ("the worker is killed once more",) if len(schedule.faults) > 1 else ()
    return ", then ".join((*report.told(first, out.clean.boundaries), *more))


def _workflow_of(case: Case | Unproved) -> str:
    return case.workflow if isinstance(case, Unproved) else case.call.target.name


def repeat(case: Case, packs: Sequence[Pack], world: Repeatable) -> Found | None:
    """Live one world again."""
    limits = WorldLimits()
    with quiet(), performed_here(packs), limits.in_force():
        explorer = Explorer(case, seed=world.seed, budget=1, lease_seconds=world.lease_seconds, live=limits.live)
        try:
            return explorer.judged(world.schedule)
        except WorldOverran as over:
            raise UsageError(f"{case.name} cannot be lived again: {over.words}") from None


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
    try:
        told = await hash_seeds.divergences(journals, packs)
    except HoldfastError as error:
        out.problem = str(error)
        return
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
    file = options.directory / report.DIRECTORY / f"{_as_file_name(out.case.name)}-{number}.json"
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


def _as_file_name(case: str) -> str:
    """`shop.checkout (bank, run 2)` as `shop.checkout-bank-run-2`: each run of a proof has files of its own."""
    return re.sub(r"[^\w.]+", "-", case).strip("-")


def _write_evidence(
    workflow: str, reports: Sequence[CaseReport], packs: Sequence[Pack], options: ProveOptions, at: str
) -> Generator[str]:
    """Of a workflow all cases of which are proved. What a failed one had before is no evidence any more."""
    directory = options.directory / evidence.DIRECTORY
    mine = [case for case in reports if case.workflow == workflow]
    if any(case.verdict != "proved" for case in mine):
        evidence.file_of(workflow, directory).unlink(missing_ok=True)
        return
    for pack in packs:
        if workflow in pack.workflows:
            made = evidence.ProofEvidence(
                workflow=workflow,
                digest=evidence.digest_of(pack.workflows[workflow], pack),
                worlds=sum(case.worlds for case in mine),
                worlds_known=sum(case.worlds_known for case in mine),
                boundaries=sum(case.boundaries for case in mine),
                seed=options.seed,
                budget=options.budget,
                at=at,
                versions=evidence.versions(),
                with_processes=options.with_processes,
                cases=tuple(evidence.CaseEvidence(case.name, case.worlds, case.worlds_known) for case in mine),
            )
            yield str(evidence.write(made, directory))
