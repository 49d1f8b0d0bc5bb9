"""The timeline of the page: how many orders were completed per second, above the parts that were down meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain
from typing import NamedTuple

from holdfast.kernel.times import Instant, Millis
from holdfast.lab.gate.evidence import InjectedFault
from holdfast.lab.gate.report import Report

WIDTH, LEFT, RIGHT = 1000, 84, 24
BAND, PLOT, LANE, GAP = 22, 170, 14, 6
STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)
TICKS_MAX = 12
UPWARDS = frozenset({"start", "continue"})


class Outage(NamedTuple):
    """A part that was down, by which deed, from when to when."""

    part: str
    role: str
    deed: str
    began_at_ms: Instant
    ended_at_ms: Instant


def outages(faults: Sequence[InjectedFault], *, ended_at_ms: Instant) -> list[Outage]:
    """From each harm to the moment at which the part was up again."""
    down: dict[str, InjectedFault] = {}
    found: list[Outage] = []
    for fault in faults:
        if fault.deed not in UPWARDS:
            down.setdefault(fault.part, fault)
        elif (harm := down.pop(fault.part, None)) is not None:
            found.append(Outage(harm.part, harm.role, harm.deed, harm.at_ms, fault.at_ms))
    found += [Outage(harm.part, harm.role, harm.deed, harm.at_ms, ended_at_ms) for harm in down.values()]
    return sorted(found, key=lambda outage: outage.began_at_ms)


def draw(report: Report) -> str:
    """The whole figure, as SVG."""
    down = outages(report.faults, ended_at_ms=report.ended_at_ms)
    lanes = sorted({outage.part for outage in down})
    height = BAND + GAP + PLOT + GAP + len(lanes) * (LANE + 3) + 24
    drawings = (
        _bands(report),
        _curve(report),
        _moments(report, down),
        _lanes(report, down, lanes),
        _ticks(report, height),
    )
    label = "Completed orders per second over time, and which parts were down"
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(chain(*drawings))}</svg>'


def _x(report: Report, at_ms: Instant) -> float:
    span = max(1, report.ended_at_ms - report.began_at_ms)
    return round(LEFT + (at_ms - report.began_at_ms) / span * (WIDTH - LEFT - RIGHT), 1)


def _bands(report: Report) -> Iterator[str]:
    shaded = True
    for result in report.scenarios:
        x, end = _x(report, result.began_at_ms), _x(report, result.ended_at_ms)
        if end - x < 7 * len(result.name):  # no room for its name
            continue
        title = f"<title>{escape(result.name)}: {escape(result.verdict)}</title>"
        if shaded := not shaded:
            yield f'<rect class="band" x="{x}" y="0" width="{end - x:.1f}" height="{BAND + GAP + PLOT}">{title}</rect>'
        yield f'<text class="value" x="{x + 4}" y="15">{escape(result.name)}{title}</text>'


def _curve(report: Report) -> Iterator[str]:
    curve, floor = report.throughput, BAND + GAP + PLOT
    rates = [count * 1000 / curve.width_ms for count in curve.completed]
    most = max([1.0, *rates])
    for share in (0.5, 1.0):
        y = floor - share * PLOT
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{most * share:.0f}/s</text>'
    points = [f"{LEFT},{floor}"]
    for at, rate in enumerate(rates):
        y = floor - rate / most * PLOT
        began_at_ms = curve.began_at_ms + curve.width_ms * at
        ended_at_ms = min(began_at_ms + curve.width_ms, report.ended_at_ms)
        points += [f"{_x(report, edge)},{y:.1f}" for edge in (began_at_ms, ended_at_ms)]
    yield f'<polygon class="flow" points="{" ".join([*points, f"{WIDTH - RIGHT},{floor}"])}"/>'
    yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>'


def _moments(report: Report, down: Sequence[Outage]) -> Iterator[str]:
    for outage in down:
        x = _x(report, outage.began_at_ms)
        yield f'<line class="moment {outage.deed}" x1="{x}" x2="{x}" y1="{BAND + GAP}" y2="{BAND + GAP + PLOT}"/>'


def _lanes(report: Report, down: Sequence[Outage], lanes: Sequence[str]) -> Iterator[str]:
    for nth, part in enumerate(lanes):
        y = BAND + GAP + PLOT + GAP + nth * (LANE + 3)
        yield f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{LANE}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 11}" text-anchor="end">{escape(part)}</text>'
        for outage in (each for each in down if each.part == part):
            x, end = _x(report, outage.began_at_ms), _x(report, outage.ended_at_ms)
            seconds = (outage.ended_at_ms - outage.began_at_ms) / 1000
            title = f"<title>{escape(part)}: {outage.deed}, {seconds:.1f} s</title>"
            yield (
                f'<rect class="{outage.deed}" x="{x}" y="{y}" width="{max(2.0, end - x):.1f}" height="{LANE}">'
                f"{title}</rect>"
            )


def _ticks(report: Report, height: int) -> Iterator[str]:
    seconds = (report.ended_at_ms - report.began_at_ms) / 1000
    step = next((each for each in STEPS_S if seconds / each <= TICKS_MAX), STEPS_S[-1])
    for at in range(0, int(seconds) + 1, step):
        words = f"{at} s" if step < 60 else f"{at // 60} min"
        x = _x(report, report.began_at_ms + Millis(at * 1000))
        yield f'<text x="{x}" y="{height - 6}" text-anchor="middle">{words}</text>'
