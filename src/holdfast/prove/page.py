"""The report as one page for people: nothing is loaded from elsewhere, so it can be kept beside a release.

Of each mistake there is a drawing of the world that shows it: a column for each process, time downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from holdfast.prove.report import CaseReport, FoundReport, ProveReport
from holdfast.prove.worlds.trace import Happening
from holdfast.testing.report_pages import document, number, table, verdict_mark

ROWS_MAX = 60  # of one drawing
ROW, LANE, TIME, TOP = 24, 110, 80, 34
WIDTH, LETTERS_MAX = 1040, 96
KINDS = {
    "call": "an effect is called",
    "commit": "the store has recorded it",
    "refused": "the store has refused it",
    "fault": "a fault",
    "sent": "a caller is acknowledged",
}


def page(report: ProveReport) -> str:
    """The whole document."""
    style = (files("holdfast.prove") / "page.css").read_text(encoding="utf-8")
    versions = " · ".join(f"{name} {number}" for name, number in report.versions.items())
    made = f"{report.at} · {report.seconds:,.1f} s · seed {report.seed} · at most {report.budget:,} worlds of each"
    body = (
        f"<h1>Holdfast prove: {escape(', '.join(report.target))}</h1>",
        f'<p class="faint">{escape(made)} · {escape(versions)}</p>',
        f"<p>{_headline(report)}</p>",
        "<h2>Workflows</h2>",
        table(("workflow", "verdict", "boundaries", "worlds", "of", "input"), map(_case, report.cases)),
        *(_mistake(case, found) for case in report.cases for found in case.found),
    )
    return document("Holdfast prove", style=style, body=body)


def _headline(report: ProveReport) -> str:
    mistakes = sum(len(case.found) for case in report.cases)
    worlds = sum(case.worlds for case in report.cases)
    verdict = "failed" if mistakes else "proved" if report.is_proved else "not proved"
    found = "1 mistake was" if mistakes == 1 else f"{mistakes:,} mistakes were"
    words = f"{worlds:,} worlds were lived, and {found} found."
    return f"{verdict_mark(verdict)} {escape(words)}"


def _case(case: CaseReport) -> Sequence[str]:
    problem = f'<br><span class="faint">{escape(case.problem)}</span>' if case.problem else ""
    return (
        f"<b>{escape(case.name)}</b>{problem}",
        verdict_mark(case.verdict),
        number(case.boundaries),
        number(case.worlds),
        number(case.worlds_known),
        f"<code>{escape(case.input)}</code>",
    )


def _mistake(case: CaseReport, found: FoundReport) -> str:
    where = f" · {escape(found.line)}" if found.line else ""
    steps = "".join(f"<li>{escape(words)}</li>" for words in found.told)
    others = "".join(f'<p class="faint">also: {escape(words)}</p>' for words in found.others[:3])
    again = f"<p>Live it again: <code>holdfast prove --repeat {escape(found.file)}</code></p>"
    return (
        f"<h3>{escape(case.name)}: {escape(found.rule)}{where}</h3><p>{escape(found.what)}</p><ol>{steps}</ol>"
        f'{again}{others}<figure><div class="scroll">{draw(found.happenings, found.step)}</div>{_legend()}</figure>'
    )


def draw(happenings: Sequence[Happening], step: str) -> str:
    """A world: a column for each process, a row for each thing that happened; what concerns the step stands out."""
    shown = happenings[:ROWS_MAX]
    hosts = list(dict.fromkeys(_column(each) for each in shown))
    words_at = TIME + LANE * len(hosts) + 8
    height = TOP + ROW * len(shown) + 8
    columns = {host: TIME + LANE * at + LANE // 2 for at, host in enumerate(hosts)}
    parts = [
        f'<text class="faint" x="{x}" y="16" text-anchor="middle">{escape(host)}</text>'
        f'<line class="lane" x1="{x}" y1="{TOP - 10}" x2="{x}" y2="{height}"/>'
        for host, x in columns.items()
    ]
    for row, each in enumerate(shown):
        y = TOP + ROW * row + ROW // 2
        x = columns[_column(each)]
        kind = each.kind if each.kind in KINDS else "commit"
        if (step and each.step == step) or kind == "fault":
            band = "again" if kind == "fault" else "row"
            parts.append(f'<rect class="{band}" x="0" y="{y - ROW // 2}" width="{WIDTH}" height="{ROW}"/>')
        words = each.words if len(each.words) <= LETTERS_MAX else f"{each.words[: LETTERS_MAX - 1]}…"
        parts.append(
            f'<text class="faint" x="{TIME - 10}" y="{y + 4}" text-anchor="end">{each.after_ms / 1000:,.3f} s</text>'
            f'<circle class="{kind}" cx="{x}" cy="{y}" r="5"/><text x="{words_at}" y="{y + 4}">{escape(words)}</text>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="what happened, in order">{"".join(parts)}</svg>'


def _column(happening: Happening) -> str:
    return "caller" if happening.host.startswith("caller") else happening.host


def _legend() -> str:
    keys = (f'<span class="key {kind}"></span>{words}' for kind, words in KINDS.items())
    return f'<p class="faint">{"".join(keys)}</p>'
