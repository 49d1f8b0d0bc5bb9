"""How figures and ratios are written, in the tables and in the plot alike."""

from bench.findings import Finding
from bench.targets import Comparison, Sense

NAMES = {
    "holdfast": "Holdfast",
    "holdfast_split": "Holdfast, 2 processes",
    "holdfast_processes": "Holdfast --processes",
    "sketch": "sketch",
    "dbos": "DBOS",
    "dbos_tuned": "DBOS, tuned",
    "holdfast_http": "Holdfast over HTTP",
    "echo": "JSON echo",
    "holdfast_limited": "limits on SQLite",
    "holdfast_redis_limited": "limits on Redis",
    "holdfast_redis_limited_everysec": "limits on Redis, everysec",
    "floor": "floor",
    "restate": "Restate",
    "restate_tuned": "Restate, tuned",
    "holdfast_redis": "Holdfast on Redis",
    "holdfast_redis_everysec": "Holdfast on Redis, everysec",
    "holdfast_redis_split": "Holdfast on Redis, 1 worker",
    "holdfast_redis_workers": "Holdfast on Redis, 2 workers",
    "holdfast_redis_processes": "Holdfast on Redis --processes",
    "floor_redis": "bare scripts",
    "floor_redis_everysec": "bare scripts, everysec",
    "floor_redis_py": "bare scripts by redis-py",
    "floor_redis_py_everysec": "bare scripts by redis-py, everysec",
    "nats_echo": "NATS request-reply",
}
FIGURES = {
    "rate": "rate",
    "p50_ms": "p50",
    "p99_ms": "p99",
    "plain_p50_ms": "p50 without limits",
    "plain_p99_ms": "p99 without limits",
    "early_us": "effect 100",
    "late_us": "last effects",
    "equal_us": "one customer",
    "common_us": "one region",
    "two_equal_us": "region and stage",
    "range_us": "range of 200",
    "wide_range_us": "range of 2 %",
    "statuses_us": "two statuses",
    "prefix_us": "key prefix of 100",
    "wide_prefix_us": "key prefix of 1 %",
    "pass_ms": "python -c pass",
    "asyncio_ms": "import asyncio",
    "import_ms": "import holdfast",
    "names_ms": "from holdfast import Holdfast, Pack",
    "help_ms": "holdfast --help",
}
SMALL = 0.5
LARGE = 100


def amount(value: float) -> str:
    return f"{value:,.0f}" if value >= LARGE else f"{value:.3g}"


def ratio(comparison: Comparison, value: float) -> str:
    """`62x`, `0.41x`, `1/17` for a latency that is a fraction, `+0.80 ms` for a difference, `2.10 ms` for itself."""
    if comparison.sense is Sense.EXCESS:
        return f"{value:+.2f} ms"
    if comparison.sense is Sense.AMOUNT:
        return f"{value:.2f} ms"
    if comparison.sense is Sense.LATENCY and value < SMALL:
        return f"1/{amount(1 / value)}"
    return f"{amount(value)}x"


def target(comparison: Comparison) -> str:
    if comparison.bound is None:
        return ""
    sign = "≥" if comparison.sense is Sense.RATE else "≤"
    return f"{sign} {ratio(comparison, comparison.bound).lstrip('+')}"


def share(figure: str) -> str:
    """`redis_cores` is what Redis used, `disk_waited` how long some process waited for the disk."""
    name, _, kind = figure.rpartition("_")
    words = {"cores": name.replace("_", " "), "waited": f"waited for a {name}", "idle": f"{name} idle"}
    return words.get(kind, f"{name} {kind}")


def verdict(finding: Finding) -> str:
    return {None: "", True: "met", False: "missed"}[finding.met]


def subject(comparison: Comparison) -> str:
    """`W1 rate`, `W5 p50`: what is compared."""
    named = f"{comparison.workload} {FIGURES[comparison.figure]}"
    if comparison.sense is Sense.EXCESS:
        return f"{named} above it"
    if comparison.beyond:
        return f"{named} beyond {NAMES[comparison.beyond]}"
    if comparison.workload_theirs:
        return f"{comparison.workload} : {comparison.workload_theirs} {FIGURES[comparison.figure]}"
    return f"{named} : {FIGURES[comparison.figure_theirs]}" if comparison.figure_theirs else named


def opponents(comparison: Comparison) -> str:
    if comparison.sense is Sense.AMOUNT:
        return NAMES[comparison.ours]
    itself = comparison.ours == comparison.theirs
    return f"{NAMES[comparison.ours]} : {'itself' if itself else NAMES[comparison.theirs]}"
