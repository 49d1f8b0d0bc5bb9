"""Metrics for Prometheus, counted from the engine's events.

Rules
- `METRICS` is the one table of names, labels and help; the reference page is generated from it.
- Labels are names that a person has given (workflows, effects, queues) or a closed set of words. A run's id or key is
  never one: each would be a series of its own.
- Everything belongs to one Holdfast, in a registry of its own. Nothing is global. Every series has its name as the
  label `instance_id`: the label `instance`, which Prometheus adds, is an address, and several may share one.
- What the store knows (how much there is to do) is asked when metrics are read, and at most once a second. If it does
  not answer, those numbers are missing: an old one would be taken for a new one.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

from msgspec import Struct

from holdfast import events
from holdfast.errors import HoldfastError, InvalidConfig
from holdfast.events import Event
from holdfast.kernel.times import Instant
from holdfast.ports.bus import Bus
from holdfast.ports.store import COUNT_MAX, Backlog, Member

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric as LibraryMetric

__all__ = ["METRICS", "Metric", "Metrics", "Rendered"]

LOOK_EVERY_MS = 1_000
LOOK_SECONDS_MAX = 2.0


class Metric(Struct, frozen=True):
    """A line of the table."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


_RUN_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400, 604_800)
_EFFECT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_CLAIM_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

METRICS = (
    Metric("holdfast_runs_started_total", "counter", ("workflow",), "Runs that were admitted here."),
    Metric(
        "holdfast_runs_joined_total",
        "counter",
        ("workflow",),
        "Starts that met a live key, so that nothing was created.",
    ),
    Metric(
        "holdfast_runs_parked_total",
        "counter",
        ("workflow",),
        "Runs that were admitted here and had to wait for their turn in a lane.",
    ),
    Metric(
        "holdfast_runs_debounced_total",
        "counter",
        ("workflow",),
        "Starts that gave their arguments to a run which had not begun.",
    ),
    Metric(
        "holdfast_runs_throttled_total",
        "counter",
        ("workflow",),
        "Runs that were admitted here and go later, as their throttle says.",
    ),
    Metric(
        "holdfast_runs_finished_total",
        "counter",
        ("workflow", "status"),
        "Runs that were ended here: completed, failed or cancelled. One that is retried ends once more.",
    ),
    Metric(
        "holdfast_run_duration_seconds",
        "histogram",
        ("workflow",),
        "From the admission of a run to its end, waits included.",
        _RUN_SECONDS,
    ),
    Metric(
        "holdfast_runs_blocked_total",
        "counter",
        ("workflow", "code"),
        "Runs that cannot go on without a person, by why.",
    ),
    Metric(
        "holdfast_effect_attempts_total",
        "counter",
        ("effect", "outcome"),
        "Attempts of effects by what came of them: performed, retried or gave_up.",
    ),
    Metric(
        "holdfast_effect_duration_seconds",
        "histogram",
        ("effect",),
        "How long an attempt took; of a remote effect, from when it was offered.",
        _EFFECT_SECONDS,
    ),
    Metric(
        "holdfast_effect_threads_given_up_total",
        "counter",
        ("effect",),
        "Times that a thread was left to itself in the middle of a sync effect: its time was over, or its run gone.",
    ),
    Metric(
        "holdfast_effect_threads_hanging",
        "gauge",
        (),
        "Threads of this process that still run sync effects which were given up. Each was replaced.",
    ),
    Metric(
        "holdfast_claim_latency_seconds",
        "histogram",
        (),
        "From when a run was ready until a worker here took it up; the longest of each batch. A run that is taken up "
        "in the commit that admits it has not waited, and is not counted.",
        _CLAIM_SECONDS,
    ),
    Metric("holdfast_commit_batch_size", "histogram", (), "How many changes shared a commit.", _BATCH_SIZES),
    Metric(
        "holdfast_idle_reads_total",
        "counter",
        ("part",),
        "Questions of a worker to the store that brought nothing. An idle worker has almost none: it is told.",
    ),
    Metric(
        "holdfast_lease_losses_total", "counter", (), "Times that this worker lost its lease, and with it its runs."
    ),
    Metric(
        "holdfast_calls_dropped_total",
        "counter",
        ("workflow",),
        "Calls of effects and workflows that code executed here did not await, so that nothing was performed.",
    ),
    Metric(
        "holdfast_runs_suspected_total",
        "counter",
        ("workflow",),
        "Runs that were executed here, one at a time, after several of their workers had died without progress.",
    ),
    Metric(
        "holdfast_runs_handed_over_total",
        "counter",
        ("workflow",),
        "Runs that this worker handed over to a worker whose code fits them better.",
    ),
    Metric(
        "holdfast_runs_taken_up_total",
        "counter",
        ("workflow",),
        "Blocked runs that this worker took up by itself, as its code had not been tried.",
    ),
    Metric("holdfast_runs_rescued_total", "counter", (), "Runs that were freed here from workers whose lease expired."),
    Metric("holdfast_runs_pruned_total", "counter", (), "Runs and documents that were removed here as they were over."),
    Metric(
        "holdfast_messages_relayed_total",
        "counter",
        (),
        "Messages between shards that were delivered here because the process that committed them had died.",
    ),
    Metric("holdfast_leads", "gauge", ("duty",), "1 if this process attends to the duty, 0 if it only would."),
    Metric(
        "holdfast_elections_total",
        "counter",
        ("duty", "outcome"),
        "Times that this process came to lead a duty (elected), and that it lost it against its will (deposed).",
    ),
    Metric(
        "holdfast_bus_connected",
        "gauge",
        (),
        "1 if the bus that carries notices can be reached, 0 if not, NaN if the store needs none.",
    ),
    Metric(
        "holdfast_notices_pushed",
        "gauge",
        (),
        "1 if this process is told what others commit, 0 if it looks for that every few milliseconds.",
    ),
    Metric(
        "holdfast_limit_checks_total",
        "counter",
        ("limit", "verdict"),
        "Limits that were asked here, by what they said: granted or refused.",
    ),
    Metric(
        "holdfast_limit_fallback",
        "gauge",
        (),
        "1 if the store does not count, so that this process limits by itself to its share; else 0.",
    ),
    Metric(
        "holdfast_effects_held_total",
        "counter",
        ("kind", "rule"),
        "Times that an effect had to wait here for a breaker or a limit.",
    ),
    Metric(
        "holdfast_breaker_state",
        "gauge",
        ("breaker",),
        "How this process sees a circuit breaker: 0 closed, 1 half-open, 2 open. Absent until it first changes.",
    ),
    Metric(
        "holdfast_breaker_changes_total",
        "counter",
        ("breaker", "state"),
        "Times that this process saw a circuit breaker become open, half-open or closed.",
    ),
    Metric("holdfast_breaker_probes_total", "counter", ("breaker",), "Calls that were tried here as probes."),
    Metric("holdfast_limit_slots", "gauge", ("limit",), "Slots of a limit at effects that this process has."),
    Metric(
        "holdfast_rules_decided_alone_total",
        "counter",
        ("kind", "rule"),
        "Times that this process went on by what it knew of a breaker or a limit, since the store was away.",
    ),
    Metric("holdfast_store_troubles_total", "counter", (), "Store calls that failed, and were made again."),
    Metric(
        "holdfast_part_failures_total",
        "counter",
        ("part",),
        "Parts and duties of this process that raised and were started again.",
    ),
    Metric(
        "holdfast_runs",
        "gauge",
        ("status",),
        f"Runs in the store by status. It is counted up to {COUNT_MAX:,}.",
    ),
    Metric(
        "holdfast_queue_ready_runs",
        "gauge",
        ("queue", "workflow"),
        f"Runs that are ready and that no worker has taken up. It is counted up to {COUNT_MAX:,}.",
    ),
    Metric(
        "holdfast_queue_oldest_seconds",
        "gauge",
        ("queue", "workflow"),
        "How long the first of the ready runs has been ready.",
    ),
    Metric("holdfast_workers", "gauge", (), "Live workers."),
    Metric("holdfast_build_info", "gauge", ("version", "python"), "Always 1; the labels say what runs here."),
)
OF_THE_PROCESS = (  # gauges; the others: the store's
    "holdfast_leads",
    "holdfast_bus_connected",
    "holdfast_notices_pushed",
    "holdfast_build_info",
    "holdfast_effect_threads_hanging",
    "holdfast_limit_fallback",
    "holdfast_breaker_state",
    "holdfast_limit_slots",
)


class Rendered(NamedTuple):
    """The response to a scrape."""

    body: bytes
    content_type: str


class Sight(Protocol):
    """Who can say how much there is to do, what is led here, whether notices travel, and who counts limits."""

    @property
    def duties_led(self) -> dict[str, bool]: ...
    @property
    def bus(self) -> Bus | None: ...
    @property
    def poll_reason(self) -> str: ...
    @property
    def threads_given_up(self) -> int: ...
    @property
    def limits_by_itself(self) -> bool: ...

    async def backlog(self) -> Backlog: ...
    async def workers(self) -> list[Member]: ...


class Metrics:
    """The metrics of one Holdfast: a listener of its events, and what a scrape reads."""

    def __init__(
        self,
        sight: Sight,
        *,
        instance: str,
        now_ms: Callable[[], Instant],
        look_seconds_max: float = LOOK_SECONDS_MAX,
    ) -> None:
        try:
            import prometheus_client as library  # noqa: PLC0415 - it is not part of the core install
        except ImportError as error:
            raise InvalidConfig(
                "metrics need prometheus-client, which is not installed",
                hint="Install Holdfast with its extra `server`.",
            ) from error
        self.registry: CollectorRegistry = library.CollectorRegistry()
        self._sight = sight
        self._instance = instance
        self._now_ms = now_ms
        self._look_seconds_max = look_seconds_max
        self._looked_at_ms: Instant | None = None
        counters: dict[str, Counter] = {}
        histograms: dict[str, Histogram] = {}
        self._gauges: dict[str, Gauge] = {}
        for each in METRICS:
            match each.kind:
                case "counter":
                    counters[each.name] = library.Counter(each.name, each.help, each.labels, registry=self.registry)
                case "histogram":
                    histograms[each.name] = library.Histogram(
                        each.name, each.help, each.labels, registry=self.registry, buckets=each.buckets
                    )
                case "gauge":
                    self._gauges[each.name] = library.Gauge(each.name, each.help, each.labels, registry=self.registry)
        self._gauges["holdfast_build_info"].labels(metadata.version("holdfast"), platform.python_version()).set(1)
        self._heard = _hearing(counters, histograms) | _hearing_of_rules(counters, self._gauges)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        heard = self._heard.get(type(event))
        if heard is not None:
            heard(event)

    async def render(self, accept: str = "") -> Rendered:
        """All of it, in the format that the `Accept` header of a scrape asks for."""
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - see above

        await self._look()
        for duty, is_led in self._sight.duties_led.items():
            self._gauges["holdfast_leads"].labels(duty).set(is_led)
        bus = self._sight.bus
        self._gauges["holdfast_bus_connected"].set(float("nan") if bus is None else bus.connected)
        self._gauges["holdfast_notices_pushed"].set(not self._sight.poll_reason)
        self._gauges["holdfast_effect_threads_hanging"].set(self._sight.threads_given_up)
        self._gauges["holdfast_limit_fallback"].set(self._sight.limits_by_itself)
        encode, content_type = choose_encoder(accept)
        named = cast("CollectorRegistry", cast("object", _Named(self.registry, self._instance)))
        return Rendered(encode(named), content_type)

    async def _look(self) -> None:
        """Ask the store, unless it was asked within the last second."""
        now_ms = self._now_ms()
        if self._looked_at_ms is not None and now_ms - self._looked_at_ms < LOOK_EVERY_MS:
            return
        self._looked_at_ms = now_ms
        try:
            async with asyncio.timeout(self._look_seconds_max):
                backlog, workers = await self._sight.backlog(), await self._sight.workers()
        except (HoldfastError, TimeoutError):
            backlog, workers = None, []
        runs, ready = self._gauges["holdfast_runs"], self._gauges["holdfast_queue_ready_runs"]
        oldest = self._gauges["holdfast_queue_oldest_seconds"]
        for gauge in (runs, ready, oldest):
            gauge.clear()
        self._gauges["holdfast_workers"].set(len(workers) if backlog else float("nan"))
        if backlog is None:
            return
        for status, count in backlog.statuses.items():
            runs.labels(status.value).set(count)
        for depth in backlog.depths:
            ready.labels(depth.queue, depth.workflow).set(depth.ready)
            age_ms = 0 if depth.oldest_at_ms is None else max(0, now_ms - depth.oldest_at_ms)
            oldest.labels(depth.queue, depth.workflow).set(age_ms / 1000)


def merged(bodies: Sequence[bytes]) -> bytes:
    """What several processes have said in one format, as if one had: each metric once, with the series of all."""
    metrics: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
    end = b""
    for body in bodies:
        about, series = [], list[bytes]()
        for line in body.splitlines(keepends=True):
            if line.startswith(b"# HELP "):
                about, series = metrics.setdefault(line.split(b" ", 3)[2], ([], []))
                about.clear()  # all say the same about it
            if line.startswith(b"# EOF"):
                end = line
            else:
                (about if line.startswith(b"#") else series).append(line)
    return b"".join(line for parts in metrics.values() for part in parts for line in part) + end


class _Named:
    """A registry whose series all have the instance as a label. The library has no constant labels."""

    def __init__(self, registry: CollectorRegistry, instance: str) -> None:
        self._registry = registry
        self._label = {"instance_id": instance}

    def collect(self) -> Iterator[LibraryMetric]:
        for metric in self._registry.collect():
            metric.samples = [sample._replace(labels=sample.labels | self._label) for sample in metric.samples]
            yield metric


def _hearing_of_rules(
    counters: dict[str, Counter], gauges: dict[str, Gauge]
) -> dict[type[Event], Callable[[Any], None]]:
    """What is heard of breakers and limits."""
    held = cache(counters["holdfast_effects_held_total"].labels)
    probes = cache(counters["holdfast_breaker_probes_total"].labels)
    alone = cache(counters["holdfast_rules_decided_alone_total"].labels)
    slots = cache(gauges["holdfast_limit_slots"].labels)

    def changed(event: events.BreakerChanged) -> None:
        counters["holdfast_breaker_changes_total"].labels(event.name, event.state).inc()
        number = ("closed", "half-open", "open").index(event.state)
        gauges["holdfast_breaker_state"].labels(event.name).set(number)

    return {
        events.EffectHeld: lambda event: held(event.rule, event.name).inc(),
        events.BreakerChanged: changed,
        events.BreakerProbed: lambda event: probes(event.name).inc(),
        events.SlotsMoved: lambda event: slots(event.name).set(event.slots),
        events.DecidesAlone: lambda event: alone(event.rule, event.name).inc(),
    }


def _hearing(
    counters: dict[str, Counter], histograms: dict[str, Histogram]
) -> dict[type[Event], Callable[[Any], None]]:
    """What each event adds to which metric. Looking a label up costs more than counting, so it is remembered."""
    started = cache(counters["holdfast_runs_started_total"].labels)
    joined = cache(counters["holdfast_runs_joined_total"].labels)
    parked = cache(counters["holdfast_runs_parked_total"].labels)
    debounced = cache(counters["holdfast_runs_debounced_total"].labels)
    throttled = cache(counters["holdfast_runs_throttled_total"].labels)
    finished = cache(counters["holdfast_runs_finished_total"].labels)
    run_seconds = cache(histograms["holdfast_run_duration_seconds"].labels)
    blocked = cache(counters["holdfast_runs_blocked_total"].labels)
    attempts = cache(counters["holdfast_effect_attempts_total"].labels)
    effect_seconds = cache(histograms["holdfast_effect_duration_seconds"].labels)
    threads = cache(counters["holdfast_effect_threads_given_up_total"].labels)
    claim_seconds = histograms["holdfast_claim_latency_seconds"]
    batches = histograms["holdfast_commit_batch_size"]
    idle_reads = cache(counters["holdfast_idle_reads_total"].labels)
    lease_losses = counters["holdfast_lease_losses_total"]
    handed_over = cache(counters["holdfast_runs_handed_over_total"].labels)
    taken_up = cache(counters["holdfast_runs_taken_up_total"].labels)
    suspected = cache(counters["holdfast_runs_suspected_total"].labels)
    calls_dropped = cache(counters["holdfast_calls_dropped_total"].labels)
    rescued = counters["holdfast_runs_rescued_total"]
    pruned = counters["holdfast_runs_pruned_total"]
    relayed = counters["holdfast_messages_relayed_total"]
    elections = cache(counters["holdfast_elections_total"].labels)
    limits = cache(counters["holdfast_limit_checks_total"].labels)
    troubles = counters["holdfast_store_troubles_total"]
    failures = cache(counters["holdfast_part_failures_total"].labels)

    def ended(event: events.RunEnded) -> None:
        finished(event.workflow, event.status).inc()
        run_seconds(event.workflow).observe(event.elapsed_ms / 1000)

    def tried(outcome: str) -> Callable[[Any], None]:
        def count(event: events.EffectPerformed | events.EffectWillRetry | events.EffectGaveUp) -> None:
            attempts(event.effect, outcome).inc()
            if event.took_ms is not None:
                effect_seconds(event.effect).observe(event.took_ms / 1000)

        return count

    return {
        events.RunAdmitted: lambda event: started(event.workflow).inc(),
        events.RunForked: lambda event: started(event.workflow).inc(),
        events.RunJoined: lambda event: joined(event.workflow).inc(),
        events.RunParked: lambda event: parked(event.workflow).inc(),
        events.RunDebounced: lambda event: debounced(event.workflow).inc(),
        events.RunThrottled: lambda event: throttled(event.workflow).inc(),
        events.RunEnded: ended,
        events.RunBlocked: lambda event: blocked(event.workflow, event.code).inc(),
        events.EffectPerformed: tried("performed"),
        events.EffectWillRetry: tried("retried"),
        events.EffectGaveUp: tried("gave_up"),
        events.ThreadGivenUp: lambda event: threads(event.effect).inc(),
        events.RunsClaimed: lambda event: claim_seconds.observe(event.waited_ms / 1000),
        events.BatchCommitted: lambda event: batches.observe(event.changes),
        events.AskedInVain: lambda event: idle_reads(event.part).inc(),
        events.LeaseWasLost: lambda _: lease_losses.inc(),
        events.RunsRescued: lambda event: rescued.inc(len(event.run_ids)),
        events.RunSuspected: lambda event: suspected(event.workflow).inc(),
        events.CallDropped: lambda event: calls_dropped(event.workflow).inc(),
        events.RunHandedOver: lambda event: handed_over(event.workflow).inc(),
        events.RunTakenUp: lambda event: taken_up(event.workflow).inc(),
        events.RunsPruned: lambda event: pruned.inc(event.count),
        events.MessagesRelayed: lambda event: relayed.inc(event.count),
        events.Elected: lambda event: elections(event.duty, "elected").inc(),
        events.Deposed: lambda event: elections(event.duty, "deposed").inc(),
        events.LimitChecked: lambda event: limits(event.limit, event.verdict).inc(),
        events.StoreTroubled: lambda _: troubles.inc(),
        events.DutyFailed: lambda event: failures(event.duty).inc(),
        events.PartFailed: lambda event: failures(event.part).inc(),
    }
