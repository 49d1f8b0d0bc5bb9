"""What larger machines would do: from what W9 measures here, by formula and by simulation.

    python -m bench.capacity                     what the published constants predict
    python -m bench.capacity --measure           measure again (some minutes), publish, write page and picture again
    python -m bench.capacity --measure --quick   small sizes, shown and not published

A run costs processor time in the client, in a worker and in the store, and it holds what only one can have: the write
lock of a SQLite file, or a Redis primary. The resource that is full first is the ceiling:

    ceiling = min( cores   / (client + worker + changes × change),
                   clients / client,
                   workers / worker,
                   1 / (changes × change),                      SQLite: one writer
                   1 / (changes × change × busiest share) )     Redis: the primary with the most shards

What the formula leaves out is waiting: for the sync of the disk, for messages, for a batch that is under way. The
simulation (`simulation.py`) has that too.
"""

import argparse
import asyncio
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import busy, capacity_page
from bench.findings import circumstances
from bench.runner import SCRATCH, Sample, plan, take
from bench.simulation import Costs, Shape, simulate
from bench.workloads import SPREAD_CONCURRENCY, WORKLOADS
from bench.write_costs import write_costs
from holdfast.stores.redis.net.topologies import SLOTS, slot_of
from holdfast.stores.redis.shards import Shards

PUBLISHED = Path(__file__).parent / "results" / "published" / "capacity.json"
CHANGES = 3  # of a run of one effect that another process executes: it is admitted, claimed, ended
CONTENDERS = {"sqlite": "holdfast_processes", "redis": "holdfast_redis_processes"}
OF_W9 = ("W9-core", "W9", "W9-2", "W9-4")
MOST = "W9-4"  # smaller batches in each process cost more: what is larger than this machine is reckoned with these
HOP_US = 100.0  # from one machine to another
CORES = 8
MACHINES = 6
PRIMARIES = (3, 6, 9, 12, 16, 24, 30)
SHARDS = (16, 64, 256)
IN_FLIGHT = 30  # for each process that starts or executes runs
SEED = 1
RUNS = 10_000


@dataclass(frozen=True)
class Prediction:
    """What is to be expected of so many of everything."""

    name: str
    store: str
    cores: int  # of all machines on which clients and workers are
    clients: int
    workers: int
    primaries: int
    shards: int
    ceiling: float
    limit: str
    simulated: float


@dataclass(frozen=True)
class Check:
    """What was measured here, and what the model makes of the same. `cores` are those that were to be had."""

    store: str
    workload: str
    workers: int
    cores: float
    measured: float
    least: float
    greatest: float
    ceiling: float
    limit: str
    simulated: float


# -- the model


def ceilings(costs: Costs, shape: Shape) -> dict[str, float]:
    """Runs per second that each resource allows."""
    store_us = CHANGES * costs.change_us
    processes_us = costs.client_us + costs.worker_us
    bounds = {
        "cores": sum(shape.machines) / (processes_us + (0.0 if shape.store_machines else store_us)),
        "clients": shape.clients / costs.client_us,
        "workers": shape.workers / costs.worker_us,
    }
    if shape.placement:
        bounds["Redis"] = 1 / (store_us * shape.busiest)
    else:
        bounds["SQLite's writer"] = 1 / store_us
    return {resource: bound * 1e6 for resource, bound in bounds.items()}


def limit_of(bounds: Mapping[str, float]) -> str:
    return min(bounds, key=lambda resource: bounds[resource])


@cache
def placement(primaries: int, shards: int) -> tuple[int, ...]:
    """Which primary has each shard of a store, if the slots are divided as `redis-cli --cluster create` does."""
    keys = (Shards("default", shards).index(shard) for shard in range(shards))
    return tuple(slot_of(key) * primaries // SLOTS for key in keys)


def dealt(cores: int, costs: Costs) -> tuple[int, int]:
    """Clients and workers for so many cores: as many clients as they need, and a worker for each core."""
    return math.ceil(cores * costs.client_us / (costs.client_us + costs.worker_us)), cores


# -- the constants


def costs_of(constants: Mapping[str, Any], store: str, workload: str = MOST) -> Costs:
    """What a run costs in each part, as it was measured with this workload."""
    figures = constants[store][workload]
    if store == "redis":
        own = {"change_us": figures["store_us"] / CHANGES, "sync_us": constants["writer"]["sync_us"]}
        bus_us = figures["bus_us"]  # NATS is shared by many; here it is carried by those who use it
        return Costs(figures["client_us"] + bus_us / 2, figures["workers_us"] + bus_us / 2, **own)
    # What the store's threads do beside the lock is done by the process that has them: a third of it in the client.
    change_us = min(constants["writer"]["change_us"], figures["store_us"] / CHANGES)
    beside_us = figures["store_us"] - CHANGES * change_us
    return Costs(
        figures["client_us"] + beside_us / CHANGES,
        figures["workers_us"] + beside_us * (CHANGES - 1) / CHANGES,
        change_us=change_us,
        sync_us=constants["writer"]["sync_us"],
    )


def constants_of(samples: Sequence[Sample], writer: Mapping[str, float]) -> dict[str, Any]:
    """Medians of what was measured, by store and workload."""
    found: dict[str, Any] = {"writer": dict(writer)}
    for store, contender in CONTENDERS.items():
        found[store] = {}
        for workload in OF_W9:
            ours = [
                each.figures for each in samples if (each.job.contender, each.job.workload) == (contender, workload)
            ]
            names = [name for name in (ours[0] if ours else ()) if name.endswith("_us")]
            found[store][workload] = {name: statistics.median(each[name] for each in ours) for name in names}
    return found


def had_cores(figures: Mapping[str, float], cores: int) -> float:
    """How many cores we had: what we used of them, and what was idle. On a machine that does nothing else, all."""
    return min(float(cores), busy.all_cores(figures) + figures[f"cores{busy.IDLE}"] * cores)


# -- predictions


def check(store: str, workload: str, figures: Sequence[Mapping[str, float]], constants: Mapping[str, Any]) -> Check:
    """Measured against predicted, at a size that fits here."""
    wanted = WORKLOADS[workload]
    cores = wanted.cores_of(busy.usable_cores())
    had = statistics.median(had_cores(each, cores) for each in figures)
    costs = slowed(costs_of(constants, store, workload), cores / had)
    shape = Shape(
        1, wanted.workers, (cores,), SPREAD_CONCURRENCY, placement=placement(1, 16) if store == "redis" else ()
    )
    rates = [each["rate"] for each in figures]
    bounds = ceilings(costs, shape)
    return Check(
        store,
        workload,
        wanted.workers,
        had,
        statistics.median(rates),
        min(rates),
        max(rates),
        min(bounds.values()),
        limit_of(bounds),
        simulate(costs, shape, runs=RUNS, seed=SEED).rate,
    )


def slowed(costs: Costs, times: float) -> Costs:
    """As if other processes took the cores for the rest of the time."""
    return replace(
        costs,
        client_us=costs.client_us * times,
        worker_us=costs.worker_us * times,
        change_us=costs.change_us * times,
    )


def predictions(constants: Mapping[str, Any]) -> Iterator[Prediction]:
    """For a machine of 8 cores, for 6 machines, and for a Redis Cluster of 3 to 30 primaries."""
    for store in CONTENDERS:
        costs = costs_of(constants, store)
        for cores in (1, 2, 4, CORES):
            clients, workers = dealt(cores, costs)
            place = placement(1, 16) if store == "redis" else ()
            shape = Shape(clients, workers, (cores,), IN_FLIGHT * (clients + workers), placement=place)
            yield _predicted(f"1 machine of {cores}", store, costs, shape)
    costs = costs_of(constants, "redis")
    for primaries in (1, 3, 6):
        cores = CORES * MACHINES
        clients, workers = dealt(cores, costs)
        shape = Shape(
            clients,
            workers,
            (CORES,) * MACHINES,
            IN_FLIGHT * (clients + workers),
            placement=placement(primaries, SHARDS[-1]),
            hop_us=HOP_US,
        )
        yield _predicted(f"{MACHINES} machines of {CORES}", "redis", costs, shape)
    for shards in SHARDS:
        for primaries in PRIMARIES:
            yield _predicted(f"Redis Cluster of {primaries}", "redis", costs, cluster(costs, primaries, shards))


def cluster(costs: Costs, primaries: int, shards: int) -> Shape:
    """Each primary has a machine of its own, and there are as many other cores as they can make use of."""
    places = placement(primaries, shards)
    share = max(places.count(primary) for primary in range(primaries)) / shards
    rate = 1 / (CHANGES * costs.change_us * share)
    cores = math.ceil(1.2 * rate * (costs.client_us + costs.worker_us))
    clients, workers = dealt(cores, costs)
    machines = (CORES,) * math.ceil(cores / CORES)
    in_flight = IN_FLIGHT * (clients + workers)
    return Shape(
        clients, workers, machines, in_flight, placement=places, store_machines=(1,) * primaries, hop_us=HOP_US
    )


def _predicted(name: str, store: str, costs: Costs, shape: Shape) -> Prediction:
    bounds = ceilings(costs, shape)
    runs = max(RUNS, 4 * shape.in_flight)
    return Prediction(
        name,
        store,
        sum(shape.machines),
        shape.clients,
        shape.workers,
        shape.primaries,
        len(shape.placement),
        min(bounds.values()),
        limit_of(bounds),
        simulate(costs, shape, runs=runs, seed=SEED).rate,
    )


# -- the command


def measure(console: Console, *, repetitions: int, quick: bool) -> dict[str, Any]:
    """W9 on both stores, and the costs of a commit; then everything that follows from them."""
    jobs = plan(["W9"], list(CONTENDERS.values()), repetitions=repetitions, quick=quick)
    samples: list[Sample] = []
    for sample in take(jobs, quick=quick, tell=console.print):
        if sample.error:
            raise SystemExit(f"{sample.job.contender}, {sample.job.workload}: {sample.error}")
        console.print(f"{sample.job.workload:8} {sample.job.contender:26} {sample.figures['rate']:7,.0f} runs/s")
        samples.append(sample)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    writers = [asyncio.run(write_costs(SCRATCH, quick=quick)) for _ in range(repetitions)]
    writer = {
        "change_us": statistics.median(each["change_us"] for each in writers),
        "sync_us": min(each["sync_us"] for each in writers),  # what else the machine does can only lengthen it
    }
    console.print(f"a change {writer['change_us']:.0f} µs, a sync {writer['sync_us']:.0f} µs")
    return concluded(constants_of(samples, writer), samples)


def concluded(constants: dict[str, Any], samples: Sequence[Sample]) -> dict[str, Any]:
    """Constants, checks and predictions, to be published."""
    checks = [
        check(
            store,
            workload,
            [each.figures for each in samples if (each.job.contender, each.job.workload) == (contender, workload)],
            constants,
        )
        for store, contender in CONTENDERS.items()
        for workload in OF_W9
    ]
    return {
        "circumstances": circumstances(),
        "constants": constants,
        "checks": [asdict(each) for each in checks],
        "predictions": [asdict(each) for each in predictions(constants)],
        "samples": [asdict(each.job) | {"figures": each.figures} for each in samples],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure the constants again, and publish them")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is published")
    parser.add_argument("--publish", action="store_true", help="publish even what was measured with small sizes")
    wanted = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    if wanted.measure:
        whole = measure(console, repetitions=wanted.repetitions, quick=wanted.quick)
        if not wanted.quick or wanted.publish:
            PUBLISHED.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
            capacity_page.write(whole)
            console.print("published: bench/results/published/capacity.json, docs/operating/scaling.md, its picture")
    else:
        whole = json.loads(PUBLISHED.read_text())
    for line in capacity_page.lines(whole):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
