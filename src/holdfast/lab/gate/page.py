"""The report as one page for people: nothing is loaded from elsewhere, so it can be kept beside a release."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from msgspec.structs import asdict

from holdfast.lab.gate import timeline
from holdfast.lab.gate.report import Report, ScenarioResult
from holdfast.lab.gate.scenario import Verdict
from holdfast.lab.gate.verdict import Counts
from holdfast.testing.report_pages import document, number, table, verdict_mark

COUNTED = {
    "orders": "keyed runs asked for",
    "completed": "keyed runs completed",
    "starts": "starts that succeeded",
    "joined": "starts that joined a run by its key (created = False)",
    "tried_again": "starts that succeeded at a second try or later",
    "recorded": "effects recorded",
    "calls": "calls of effects that the ledger saw",
    "repeated": "repeated calls, under the same key, that a fault explains",
    "late": "calls by a process that had lost the run before",
    "faults": "faults",
    "rescued": "runs rescued from processes whose lease had expired",
    "refused": "times that a process was told that it had lost its lease or a run",
    "stale": "late writes to a run of another process that the store refused",
    "taken_back": "ends of runs that the store refused, since a message had not been read",
    "taken_over": "runs in which several processes called effects, one after the other",
    "timers": "timers measured by the ledger's clock",
    "timer_early_ms": "the earliest of them came too early by so many ms (1 is the resolution of the clock)",
    "timer_late_ms": "the latest of them came too late by so many ms",
    "signals": "signals received",
    "events": "events told to readers that came back with Last-Event-ID",
    "terms": "terms of leaders that began",
}
MISSING = '<b class="not-proved">missing</b> '
assert tuple(COUNTED) == Counts.__struct_fields__


def page(report: Report) -> str:
    """The whole document."""
    style = (files("holdfast.lab.gate") / "page.css").read_text(encoding="utf-8")
    seconds = (report.ended_at_ms - report.began_at_ms) / 1000
    made = f"{report.began_at:%Y-%m-%d %H:%M:%S} UTC · {seconds:,.0f} s · Holdfast {report.version}"
    where = f"Python {report.python} · {report.system}"
    body = (
        "<h1>Holdfast gate</h1>",
        f'<p class="faint">{escape(made)} · {escape(where)}</p>',
        f"<p>{_headline(report)}</p>",
        "<h2>Faults against throughput</h2>",
        f'<figure><div class="scroll">{timeline.draw(report)}</div>{_legend()}</figure>',
        "<h2>Scenarios</h2>",
        table(("scenario", "verdict", "seconds", "violations", "what was seen"), map(_scenario, report.scenarios)),
        *_violations(report.scenarios),
        *_recoveries(report),
        "<h2>Counts</h2>",
        table(("", "number"), [(escape(COUNTED[name]), number(n)) for name, n in asdict(report.counts).items()]),
    )
    return document("Holdfast gate", style=style, body=body)


def _headline(report: Report) -> str:
    verdict: Verdict = "passed" if report.proved else "not proved"
    if any(result.verdict == "failed" for result in report.scenarios):
        verdict = "failed"
    counts = report.counts
    words = (
        f"{counts.completed:,} of {counts.orders:,} keyed runs completed under {counts.faults:,} faults. "
        f"{counts.recorded:,} effects were recorded, {counts.repeated:,} calls were repeated."
    )
    return f"{verdict_mark(verdict)} {escape(words)}"


def _legend() -> str:
    names = {"flow": "orders completed per second", "kill": "SIGKILL", "stop": "SIGSTOP", "terminate": "SIGTERM"}
    keys = (f'<span class="key {name}"></span>{words}' for name, words in names.items())
    return f'<p class="faint">{"".join(keys)}. A bar lasts until the part is ready again.</p>'


def _scenario(result: ScenarioResult) -> Sequence[str]:
    seen = "<br>".join(f"{MISSING * (not proof.holds)}{escape(proof.what)}: {proof.seen:,}" for proof in result.proofs)
    return (
        f'<b>{escape(result.name)}</b><br><span class="faint">{escape(result.words)}</span>',
        verdict_mark(result.verdict),
        number((result.ended_at_ms - result.began_at_ms) / 1000, digits=1),
        number(result.violations_total),
        seen,
    )


def _violations(results: Iterable[ScenarioResult]) -> list[str]:
    rows = [
        (escape(result.name), _code(each.kind), _code(each.about), escape(each.detail))
        for result in results
        for each in result.violations
    ]
    return ["<h2>Violations</h2>", table(("scenario", "kind", "about", "detail"), rows)] if rows else []


def _recoveries(report: Report) -> list[str]:
    if not report.recoveries:
        return []
    columns = ("killed", "times", "next run, p50 ms", "p99 ms", "caught up, p50 ms", "p99 ms")
    rows = [
        (
            escape(each.role),
            *map(
                number,
                (each.count, each.next_p50_ms, each.next_p99_ms, each.caught_up_p50_ms, each.caught_up_p99_ms),
            ),
        )
        for each in report.recoveries
    ]
    words = (
        "From the fault until the first run that was started after it was done, and until all runs that were under way "
        "were done, too. The patience of the clients, and the lease of the process that died, are part of it."
    )
    return ["<h2>Recovery</h2>", f'<p class="faint">{words}</p>', table(columns, rows)]


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"
