"""The predictions as one picture: one machine by its cores, and a Redis Cluster by its primaries."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # before pyplot is imported, which may look for a screen

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from bench.capacity_page import STORES, primaries_of

COLOURS = {"sqlite": "#2e6da4", "redis": "#c0392b"}
SHADES = ("#c0392b", "#e59866", "#7d3c98")


def draw(path: Path, whole: Mapping[str, Any]) -> None:
    """Lines are ceilings, dots simulated, crosses measured."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    _machine(left, whole)
    _cluster(right, [each for each in whole["predictions"] if "Cluster" in each["name"]])
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.set_ylabel("runs per second")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=8, loc="best")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


def _machine(axes: Axes, whole: Mapping[str, Any]) -> None:
    for store, title in STORES.items():
        ours = [
            each for each in whole["predictions"] if each["name"].startswith("1 machine") and each["store"] == store
        ]
        cores = [each["cores"] for each in ours]
        axes.plot(cores, [each["ceiling"] for each in ours], color=COLOURS[store], label=f"{title}: ceiling")
        axes.plot(cores, [each["simulated"] for each in ours], "o", color=COLOURS[store], label=f"{title}: simulated")
        measured = [each for each in whole["checks"] if each["store"] == store]
        axes.plot(
            [each["cores"] for each in measured],
            [each["measured"] for each in measured],
            "x",
            color=COLOURS[store],
            label=f"{title}: measured here (cores to be had)",
        )
    axes.set_xlabel("cores of one machine")
    axes.set_title("One machine", loc="left")


def _cluster(axes: Axes, predictions: Sequence[Mapping[str, Any]]) -> None:
    for shards, colour in zip(sorted({each["shards"] for each in predictions}), SHADES, strict=False):
        ours = [each for each in predictions if each["shards"] == shards]
        primaries = [primaries_of(each) for each in ours]
        axes.plot(primaries, [each["ceiling"] for each in ours], color=colour, label=f"{shards} shards: ceiling")
        axes.plot(
            primaries, [each["simulated"] for each in ours], "o", color=colour, label=f"{shards} shards: simulated"
        )
    axes.set_xlabel("primaries of a Redis Cluster")
    axes.set_title("Redis Cluster", loc="left")
