"""The report: one document, for programs as JSON and for people as a page."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import datetime
from importlib import metadata

from msgspec import Struct, field

from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import utc_of
from holdfast.lab.gate.evidence import InjectedFault, Violation
from holdfast.lab.gate.scenario import Findings, Recovery, Verdict
from holdfast.lab.gate.verdict import Counts, Proof, together

POINTS_MAX = 600  # of the curve
WIDTH_MS_MIN = Millis(1_000)
VIOLATIONS_SHOWN = 200  # of one scenario; the number of all of them is told anyway


class ScenarioResult(Struct, frozen=True, kw_only=True):
    """One scenario, as it came out."""

    name: str
    words: str
    verdict: Verdict
    began_at_ms: Instant = field(name="began_ms")
    ended_at_ms: Instant = field(name="ended_ms")
    counts: Counts
    violations: tuple[Violation, ...]
    violations_total: int
    proofs: tuple[Proof, ...]
    recoveries: tuple[Recovery, ...]
    completions: tuple[Instant, ...]


class Curve(Struct, frozen=True):
    """How many orders were completed in each stretch of `width_ms`, from `began_at_ms` on."""

    began_at_ms: Instant = field(name="began_ms")
    width_ms: Millis
    completed: tuple[int, ...]


class Percentiles(Struct, frozen=True):
    """Of the recoveries of one role, or of all."""

    role: str
    count: int
    next_p50_ms: Millis
    next_p99_ms: Millis
    caught_up_p50_ms: Millis
    caught_up_p99_ms: Millis


class Report(Struct, frozen=True, kw_only=True):
    """All of it. `proved` is what --strict asks for: nothing failed, and nothing is unproved."""

    version: str
    python: str
    system: str
    began_at: datetime
    began_at_ms: Instant = field(name="began_ms")
    ended_at_ms: Instant = field(name="ended_ms")
    proved: bool
    counts: Counts
    scenarios: tuple[ScenarioResult, ...]
    recoveries: tuple[Percentiles, ...]
    throughput: Curve
    faults: tuple[InjectedFault, ...]


def result_of(
    name: str, words: str, findings: Findings, *, began_at_ms: Instant, ended_at_ms: Instant
) -> ScenarioResult:
    """What a scenario comes to."""
    found = (*findings.violations, *(each for checked in findings.checked for each in checked.violations))
    verdict: Verdict = "passed"
    if found:
        verdict = "failed"
    elif not findings.proofs or not all(proof.holds for proof in findings.proofs):
        verdict = "not proved"
    return ScenarioResult(
        name=name,
        words=words,
        verdict=verdict,
        began_at_ms=began_at_ms,
        ended_at_ms=ended_at_ms,
        counts=together(checked.counts for checked in findings.checked),
        violations=found[:VIOLATIONS_SHOWN],
        violations_total=len(found),
        proofs=findings.proofs,
        recoveries=findings.recoveries,
        completions=tuple(sorted(at_ms for checked in findings.checked for at_ms in checked.completions)),
    )


def make_report(
    results: Sequence[ScenarioResult], faults: Sequence[InjectedFault], *, began_at_ms: Instant, ended_at_ms: Instant
) -> Report:
    """The report on scenarios that have ended."""
    return Report(
        version=metadata.version("holdfast"),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        began_at=utc_of(began_at_ms),
        began_at_ms=began_at_ms,
        ended_at_ms=ended_at_ms,
        proved=bool(results) and all(result.verdict == "passed" for result in results),
        counts=together(result.counts for result in results),
        scenarios=tuple(results),
        recoveries=percentiles([each for result in results for each in result.recoveries]),
        throughput=curve(
            [at for each in results for at in each.completions], began_at_ms=began_at_ms, ended_at_ms=ended_at_ms
        ),
        faults=tuple(faults),
    )


def curve(completions: Sequence[Instant], *, began_at_ms: Instant, ended_at_ms: Instant) -> Curve:
    """Completed orders over time. What was completed outside of that time is not part of it."""
    width_ms = max(WIDTH_MS_MIN, -(-(ended_at_ms - began_at_ms) // POINTS_MAX))
    counts = [0] * max(1, -(-(ended_at_ms - began_at_ms) // width_ms))
    for at_ms in completions:
        at = (at_ms - began_at_ms) // width_ms
        if 0 <= at < len(counts):
            counts[at] += 1
    return Curve(began_at_ms, width_ms, tuple(counts))


def percentiles(recoveries: Sequence[Recovery]) -> tuple[Percentiles, ...]:
    """For each role, and for all of them together."""
    roles = sorted({each.role for each in recoveries})
    groups = [(role, [each for each in recoveries if each.role == role]) for role in roles]
    return tuple(
        Percentiles(
            role,
            len(those),
            rank([each.next_ms for each in those], 50),
            rank([each.next_ms for each in those], 99),
            rank([each.caught_up_ms for each in those], 50),
            rank([each.caught_up_ms for each in those], 99),
        )
        for role, those in ([*groups, ("all", list(recoveries))] if recoveries else [])
    )


def rank(values: Sequence[Millis], percent: int) -> Millis:
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
