"""What is left of a run: a table of ratios, a table of the figures behind them, and both as JSON."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import busy, wording
from bench.findings import Finding, Subject, circumstances
from bench.runner import Sample
from bench.workloads import WORKLOADS

STYLES = {None: "", True: "green", False: "red"}


def print_ratios(console: Console, found: Sequence[Finding]) -> None:
    table = Table(
        title="Holdfast against its peers, the sketch and the floor (ratios of medians)", title_justify="left"
    )
    for heading in ("compared", "what", "ratio", "single repetitions", "target", ""):
        table.add_column(heading, justify="right" if heading in ("ratio", "target") else "left")
    previous = ""
    for finding in found:
        compared = wording.opponents(finding.comparison)
        if previous and compared != previous:
            table.add_section()
        table.add_row(
            compared if compared != previous else "",
            wording.subject(finding.comparison),
            wording.ratio(finding.comparison, finding.value),
            " … ".join(wording.ratio(finding.comparison, end) for end in (finding.least, finding.greatest)),
            wording.target(finding.comparison),
            wording.verdict(finding),
            style=STYLES[finding.met],
        )
        previous = compared
    console.print(table)


def print_figures(console: Console, values: Mapping[Subject, Sequence[float]]) -> None:
    table = Table(title="The figures behind them: medians, true of this machine only", title_justify="left")
    contenders = list(dict.fromkeys(contender for _, contender, _ in values))
    for heading in ("workload", "figure", *(wording.NAMES[c] for c in contenders)):
        table.add_column(heading, justify="left" if heading in ("workload", "figure") else "right")
    previous = ""
    shown = ((workload, figure) for workload, _, figure in values if not busy.is_share(figure))
    for workload, figure in dict.fromkeys(shown):
        cells = [values.get((workload, contender, figure)) for contender in contenders]
        table.add_row(
            f"{workload}  {WORKLOADS[workload].title}" if workload != previous else "",
            WORKLOADS[workload].unit if figure == "rate" else figure.replace("_", " "),
            *(wording.amount(statistics.median(cell)) if cell else "" for cell in cells),
        )
        previous = workload
    console.print(table)


def print_busy(console: Console, values: Mapping[Subject, Sequence[float]]) -> None:
    """What limits a rate, and who takes the cores."""
    shares = {subject: statistics.median(each) for subject, each in values.items() if busy.is_share(subject[2])}
    if not shares:
        return
    table = Table(title="Who was busy meanwhile: cores, and shares of the time", title_justify="left")
    # The processes first, then what was waited for.
    figures = sorted(dict.fromkeys(figure for _, _, figure in shares), key=busy.is_wait)
    for heading in ("workload", "contender", *map(wording.share, figures), "all", "limit"):
        table.add_column(heading, justify="left" if heading in ("workload", "contender", "limit") else "right")
    for workload, contender in dict.fromkeys((workload, contender) for workload, contender, _ in shares):
        cells = {figure: shares.get((workload, contender, figure)) for figure in figures}
        known = {figure: cell for figure, cell in cells.items() if cell is not None}
        table.add_row(
            workload,
            wording.NAMES[contender],
            *("" if cell is None else f"{cell:.2f}" for cell in cells.values()),
            f"{busy.all_cores(known):.2f}",
            busy.limit(known),
        )
    console.print(table)


def write_json(path: Path, samples: Sequence[Sample], found: Sequence[Finding]) -> None:
    comparisons = [
        {
            "what": wording.subject(finding.comparison),
            "compared": wording.opponents(finding.comparison),
            "value": finding.value,
            "least": finding.least,
            "greatest": finding.greatest,
            "target": wording.target(finding.comparison) or None,
            "met": finding.met,
        }
        for finding in found
    ]
    whole = {
        "circumstances": circumstances(),
        "comparisons": comparisons,
        "samples": [asdict(sample.job) | {"figures": sample.figures} for sample in samples if not sample.error],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
