"""What is compared with what, and what Holdfast aims for.

A comparison sets a figure of Holdfast against the same figure of another contender. More is better for a
rate, less for a latency. Two kinds are no ratios: W5 is counted in milliseconds over the floor of one commit, and
what people feel between two processes has a limit in milliseconds.
"""

from dataclasses import dataclass
from enum import Enum

from bench.shapes import SHAPES


class Sense(Enum):
    """How two figures are set against each other, and which way is better."""

    RATE = "rate"
    LATENCY = "latency"
    EXCESS = "excess"
    AMOUNT = "amount"


@dataclass(frozen=True)
class Comparison:
    """`ours` against `theirs`; `bound` is the least ratio of rates, or greatest of latencies, that does."""

    workload: str
    ours: str
    theirs: str
    figure: str
    sense: Sense
    bound: float | None = None
    # What `theirs` is read from, where that is another workload or another figure of the same one.
    workload_theirs: str | None = None
    figure_theirs: str | None = None
    # A contender whose figure is taken off ours first: what is compared is what we need beyond it.
    beyond: str | None = None

    def value(self, ours: float, theirs: float, beyond: float = 0.0) -> float:
        match self.sense:
            case Sense.EXCESS:
                return ours - theirs
            case Sense.AMOUNT:
                return ours
            case _:
                return (ours - beyond) / theirs

    def met(self, value: float) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.bound is None:
            return None
        return value >= self.bound if self.sense is Sense.RATE else value <= self.bound


def _against(ours: str, theirs: str, **bounds: float) -> list[Comparison]:
    return [
        Comparison("W1", ours, theirs, "rate", Sense.RATE, bounds.get("W1")),
        Comparison("W2", ours, theirs, "rate", Sense.RATE, bounds.get("W2")),
        Comparison("W3", ours, theirs, "p50_ms", Sense.LATENCY, bounds.get("W3")),
        Comparison("W3", ours, theirs, "p99_ms", Sense.LATENCY),
        Comparison("W4", ours, theirs, "rate", Sense.RATE, bounds.get("W4")),
        Comparison("W5", ours, theirs, "p50_ms", Sense.LATENCY),
        Comparison("W5", ours, theirs, "p99_ms", Sense.LATENCY),
        *_signals_against(ours, theirs, bounds.get("W6")),
    ]


def _signals_against(ours: str, theirs: str, bound: float | None = None) -> list[Comparison]:
    return [
        Comparison(workload, ours, theirs, figure, Sense.LATENCY, bound if figure == "p50_ms" else None)
        for workload in ("W6", "W6-long")
        for figure in ("p50_ms", "p99_ms")
    ]


KEPT = 0.6  # of a sketch: the rest may go to what an engine or a store does besides
# Of trivial scripts through redis-py, pipelined. With `everysec` it is what a bare sketch of a store on them reached of
# their rate (one script admits, one commits; a run of W1 is both, an effect of W2 is one), less what it need not keep.
# How long lone scripts took beside that sketch is not known: two lone scripts are taken for a lone run of it, which
# asks a little more.
SCRIPTS = {"W1": 0.5, "W2": 0.5, "W3": 1 / KEPT}
SCRIPTS_EVERYSEC = {"W1": 9_000 / (27_000 / 2) * KEPT, "W2": 22_000 / 27_000 * KEPT, "W3": 1 / KEPT}
WAKE_UP = 5.0


def _against_scripts(ours: str, theirs: str, bounds: dict[str, float]) -> list[Comparison]:
    rates = [Comparison(w, ours, theirs, "rate", Sense.RATE, bound=bounds[w]) for w in ("W1", "W2")]
    return [*rates, Comparison("W3", ours, theirs, "p50_ms", Sense.LATENCY, bound=bounds["W3"])]


def _by_itself(ours: str, **bounds_ms: float) -> list[Comparison]:
    return [Comparison(w, ours, ours, "p50_ms", Sense.AMOUNT, bound) for w, bound in bounds_ms.items()]


def _wake_ups(ours: str) -> list[Comparison]:
    """Against a bare request-reply over NATS: all of it, and what is left when the commits are taken off."""
    theirs = "nats_echo"
    return [
        *(Comparison(w, ours, theirs, "p50_ms", Sense.LATENCY, WAKE_UP, beyond="floor_redis") for w in ("W5", "W6")),
        *(Comparison(w, ours, theirs, "p50_ms", Sense.LATENCY) for w in ("W5", "W6")),
        Comparison("W6-long", ours, theirs, "p50_ms", Sense.LATENCY, workload_theirs="W6"),
    ]


IMPORT = 2.0  # 100 ms where `import asyncio` takes 50
HELP = 3.0


def _start_ups(*pairs: tuple[str, str, float]) -> list[Comparison]:
    itself = ("startup", "holdfast", "holdfast")
    return [Comparison(*itself, ours, Sense.LATENCY, bound, figure_theirs=theirs) for ours, theirs, bound in pairs]


def _more_processes(ours: str) -> list[Comparison]:
    """What more worker processes, or a second core, bring. No targets: the table of who was busy says what is full."""
    return [
        *(Comparison(w, ours, ours, "rate", Sense.RATE, workload_theirs="W9") for w in ("W9-2", "W9-4")),
        Comparison("W9", ours, ours, "rate", Sense.RATE, workload_theirs="W9-core"),
    ]


LIMITED_MS = 0.3  # what limits may add to a request on Redis


def _limits(ours: str, bound: float | None = None) -> list[Comparison]:
    return [
        Comparison(
            "limits", ours, ours, f"{p}_ms", Sense.EXCESS, bound if p == "p50" else None, figure_theirs=f"plain_{p}_ms"
        )
        for p in ("p50", "p99")
    ]


COMPARISONS = [
    # What the design allows, and what Holdfast keeps of it.
    *_against("holdfast", "sketch", W1=KEPT, W2=KEPT, W3=1.6, W4=KEPT),
    *_against("holdfast", "dbos", W1=60, W2=50, W3=1 / 10, W4=50, W6=1 / 10),
    *_signals_against("holdfast", "dbos_tuned"),
    *_against("holdfast", "floor", W1=1 / 4),
    Comparison("W5", "holdfast", "floor", "p50_ms", Sense.EXCESS, bound=2.0),
    Comparison("W5", "holdfast", "floor", "p99_ms", Sense.EXCESS),
    Comparison("W1", "holdfast_split", "holdfast", "rate", Sense.RATE, bound=0.7),
    *_by_itself("holdfast_split", W3=2.5, W6=3.0),
    # A peer with a server has its client and its worker in separate processes, so there ours are too ...
    *_against("holdfast_split", "restate", W1=5, W2=5, W3=1 / 2),
    *_against("holdfast_split", "restate_tuned"),
    # ... and what its users gain by needing no server is shown beside it.
    *_against("holdfast", "restate"),
    *_against("holdfast", "restate_tuned", W1=5, W2=3, W4=3),
    Comparison("W8", "holdfast_http", "holdfast", "rate", Sense.RATE, bound=0.6),
    Comparison("W8", "holdfast_http", "echo", "p50_ms", Sense.LATENCY, bound=2.0, beyond="holdfast"),
    Comparison("W8", "holdfast_http", "echo", "p99_ms", Sense.LATENCY, beyond="holdfast"),
    Comparison("W8", "holdfast_http", "echo", "rate", Sense.RATE),
    Comparison("crowded", "holdfast", "holdfast", "rate", Sense.RATE, bound=0.9, workload_theirs="empty"),
    *_limits("holdfast_limited"),
    *_limits("holdfast_redis_limited"),
    *_limits("holdfast_redis_limited_everysec", LIMITED_MS),
    *(
        each
        for ours in ("holdfast", "holdfast_redis")
        for each in (
            Comparison("lanes", ours, ours, "rate", Sense.RATE, bound=0.7, workload_theirs="unlaned"),
            Comparison("next", ours, ours, "p50_ms", Sense.AMOUNT, bound=5.0),
        )
    ),
    *_start_ups(("import_ms", "asyncio_ms", IMPORT), ("names_ms", "asyncio_ms", IMPORT), ("help_ms", "pass_ms", HELP)),
    Comparison("depth", "holdfast", "holdfast", "late_us", Sense.LATENCY, bound=1.5, figure_theirs="early_us"),
    *(
        Comparison("W7", "holdfast", "holdfast", f"{shape}_us", Sense.LATENCY, bound=1.5, workload_theirs="W7-small")
        for shape in SHAPES
    ),
    *_against("holdfast_redis", "holdfast", W1=0.7, W2=0.7, W4=0.8),
    *_against("holdfast_redis_everysec", "holdfast"),
    *_against_scripts("holdfast_redis", "floor_redis_py", SCRIPTS),
    *_against_scripts("holdfast_redis_everysec", "floor_redis_py_everysec", SCRIPTS_EVERYSEC),
    *_against("holdfast_redis", "floor_redis"),
    # Whether a client of our own is worth it.
    *_against("floor_redis", "floor_redis_py"),
    *_against("floor_redis_everysec", "floor_redis_py_everysec"),
    *_wake_ups("holdfast_redis"),
    *_wake_ups("holdfast_redis_split"),
    *(
        Comparison(w, "holdfast_redis_workers", "holdfast_redis_split", "rate", Sense.RATE, bound=1.5)
        for w in ("W1", "W2")
    ),
    *_more_processes("holdfast_processes"),
    *_more_processes("holdfast_redis_processes"),
]
