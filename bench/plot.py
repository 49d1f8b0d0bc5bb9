"""The ratios as one picture: how many times better than each opponent, on a logarithmic scale."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # before pyplot is imported, which may look for a screen

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

from bench import wording
from bench.findings import Finding
from bench.targets import Comparison, Sense

COLOURS = {None: "#8a99a8", True: "#2e8b57", False: "#c0392b"}
RATIOS = {Sense.RATE, Sense.LATENCY}
LABELS = {None: "no target", True: "target met", False: "target missed"}


def draw(path: Path, found: Sequence[Finding]) -> None:
    """One bar per ratio; a black tick is its target. The p99 and what is counted in ms are not drawn."""
    bars = [f for f in found if f.comparison.sense in RATIOS and f.comparison.figure != "p99_ms"]
    if not bars:
        return
    figure, axes = plt.subplots(figsize=(11, 1.4 + 0.3 * len(bars)), layout="constrained")
    for row, finding in enumerate(bars):
        comparison = finding.comparison
        better = _better(comparison, finding.value)
        axes.barh(row, better - 1, left=1, height=0.7, color=COLOURS[finding.met])
        axes.text(
            max(better, 1) * 1.06,
            row,
            wording.ratio(comparison, finding.value),
            va="center",
            fontsize=8,
            zorder=4,
        )
        if comparison.bound is not None:
            tick = _better(comparison, comparison.bound)
            axes.vlines(tick, row - 0.42, row + 0.42, color="black", linewidth=2, zorder=3)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(
        range(len(bars)),
        [f"{wording.opponents(b.comparison)}   {wording.subject(b.comparison)}" for b in bars],
        fontsize=8,
    )
    axes.invert_yaxis()
    axes.margins(x=0.12, y=0.02)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("times better (rates as they are, latencies inverted); black: target")
    axes.set_title("Holdfast against its peers, the sketch and the floor", loc="left")
    axes.grid(visible=True, axis="x", alpha=0.3)
    handles = [Patch(color=COLOURS[met]) for met in LABELS]
    axes.legend(handles, LABELS.values(), fontsize=8, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _better(comparison: Comparison, value: float) -> float:
    return value if comparison.sense is Sense.RATE else 1 / value
