"""`python -m bench`: measure, compare, show. README.md says what the numbers mean."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import busy, plot, report, wording
from bench.findings import by_subject, findings
from bench.runner import Job, Sample, plan, take
from bench.workloads import WORKLOADS

HERE = Path(__file__).parent
RESULTS = HERE / "results"
RESULTS_QUICK = HERE / ".cache" / "results-quick"
OF_W9 = ("W9-core", "W9-2", "W9-4")
MEASURED = [name for name in WORKLOADS if name not in ("fill", "empty", "unlaned", "W6-long", "W7-small", *OF_W9)]
WIDTH_OF_A_FILE = 160
WIDTH_OF_A_NAME = max(map(len, wording.NAMES.values()))
PEERS = {"restate": ["restate", "restate_tuned"]}
# With STORE=redis: how another store does, against SQLite and against what its servers allow.
STORES = {
    "redis": [
        "holdfast",
        "holdfast_redis",
        "holdfast_redis_everysec",
        "holdfast_redis_split",
        "holdfast_redis_workers",
        "holdfast_redis_processes",
        "floor_redis",
        "floor_redis_everysec",
        "floor_redis_py",
        "floor_redis_py_everysec",
        "nats_echo",
    ]
}
OF_STORES = ["W1", "W2", "W3", "W4", "W5", "W6", "W9", "lanes", "next"]


def main() -> int:
    wanted = _arguments()
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    jobs = plan(wanted.only, wanted.contenders, repetitions=wanted.repetitions, quick=wanted.quick)
    samples = _measure(console, jobs, quick=wanted.quick)
    values = by_subject(samples)
    found = findings(values)
    console.print()
    report.print_figures(console, values)
    report.print_busy(console, values)
    console.print()
    report.print_ratios(console, found)
    results = RESULTS_QUICK if wanted.quick else RESULTS
    report.write_json(results / "latest.json", samples, found)
    plot.draw(results / "ratios.png", found)
    console.print(f"\n{results.relative_to(HERE.parent)}: latest.json, ratios.png")
    if wanted.quick:
        console.print("Quick sizes: this shows that the benchmark works, not how fast anything is.")
    return 1 if any(sample.error for sample in samples) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    store = os.environ.get("STORE", "")
    parser.add_argument(
        "--only",
        type=_names(MEASURED),
        default=OF_STORES if store in STORES else MEASURED,
        metavar="W1,W3",
        help=", ".join(MEASURED),
    )
    parser.add_argument(
        "--contenders",
        type=_names(list(wording.NAMES)),
        default=STORES.get(store) or _default_contenders(),
        metavar="holdfast,floor",
        help=f"{', '.join(wording.NAMES)}; those of Restate join in by themselves with PEERS=restate, "
        "those of Redis take over with STORE=redis",
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, not how fast")
    return parser.parse_args()


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in known]:
            message = f"unknown: {', '.join(unknown)} (there are {', '.join(known)})"
            raise argparse.ArgumentTypeError(message)
        return chosen

    return names


def _default_contenders() -> list[str]:
    peers = [name for peer in os.environ.get("PEERS", "").split(",") for name in PEERS.get(peer, [])]
    return [
        "holdfast",
        "holdfast_split",
        "holdfast_processes",
        "sketch",
        "floor",
        "dbos",
        "dbos_tuned",
        "holdfast_http",
        "echo",
        *peers,
    ]


def _measure(console: Console, jobs: Sequence[Job], *, quick: bool) -> list[Sample]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    samples: list[Sample] = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(jobs))
        said = ""

        def tell(text: str) -> None:
            progress.update(task, description=f"{said}, {text}")

        taken = take(jobs, quick=quick, tell=tell)
        for job in jobs:
            said = f"{job.workload} {wording.NAMES[job.contender]}"
            progress.update(task, description=said)
            sample = next(taken)
            samples.append(sample)
            progress.console.print(_line(sample))
            progress.advance(task)
    return samples


def _line(sample: Sample) -> str:
    job = sample.job
    figures = "  ".join(
        f"{figure.replace('_', ' ')} {wording.amount(value)}"
        for figure, value in sample.figures.items()
        if not busy.is_share(figure)
    )
    said = f"[red]failed[/]\n{escape(sample.error)}" if sample.error else figures
    return f"{job.workload:8} {job.repetition}  {wording.NAMES[job.contender]:{WIDTH_OF_A_NAME}} {said}"


if __name__ == "__main__":
    sys.exit(main())
