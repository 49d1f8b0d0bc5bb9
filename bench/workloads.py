"""The workloads, written once: they reach every contender through the same five verbs.

W1       keyed starts of a one-effect workflow, 50 at a time, to the last completion       runs/s
W2       runs of 40 sequential effects each, 50 runs at a time                             effects/s
W3       one start-to-result after the other                                               p50, p99
W4       5,000 starts over 100 keys: all but the first of each key are duplicates          starts/s
W5       a due timer to its result, one every 20 ms                                        p50, p99
W6       a signal to a run that has just begun to wait, to its result, one every 100 ms    p50, p99
W6-long  the same with runs that have waited for two seconds, and were let go              p50, p99
W7       a page of 50 runs in a file of 1,000,000, for several searches                    medians
W7-small the same in a file of 10,000, measured in turns with it                           medians
W8       keyed starts over HTTP that wait for the result, 50 at a time                     runs/s, p50, p99
W9       keyed one-effect runs, 200 at a time, by 1 worker process beside the client       runs/s, processor time
W9-2     the same by 2 worker processes; W9-4 by 4; W9-core by one, all on one core        runs/s, processor time
lanes    1,000 lanes with 100 one-effect runs each, in the order of their starts        runs/s
unlaned  the same runs without lanes, measured in turns with it                          runs/s
next     runs of one lane, from the effect of one to that of the next                    p50, p99
crowded  W1, longer, on a file that already holds 100,000 finished runs                    runs/s
empty    the same on an empty file, measured in turns with it                              runs/s
depth    one run of 10,000 sequential effects: the last hundred against those round the 100th
limits   a request to a gateway that limits, in turns with one that does not               p50, p99
startup  processes that begin: the interpreter, an import, `holdfast --help`                processor time
fill     no measurement: makes the file that `crowded` starts from
"""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol, runtime_checkable

from bench.busy import Watch
from bench.shapes import PAGE, SHAPES, Wanted
from bench.startup import start_ups
from bench.write_lock import Share

Figures = dict[str, float]
Wait = Callable[[], Awaitable[object]]
Job = Callable[[], Awaitable[object]]

CONCURRENCY = 50
SPREAD_WARM_UPS = 8
SPREAD_CONCURRENCY = 200  # so that no process waits for another one to send it something
EFFECTS_PER_RUN = 40
KEYS = 100
WARM_UP_RUNS = 50
TIMER_SPACING_S = 0.02
# Half a spacing past a multiple of it, so that no run falls due at the instant at which another one starts.
TIMER_DELAY_S = 0.51
DEPTH_WINDOW = 100
# Slow enough for every contender to keep up: W6 asks how long a signal takes, not how long it queues.
SIGNAL_SPACING_S = 0.1
# Half a spacing past a multiple of it, so that no run is signalled at the instant at which another one starts.
WAITED_S = 0.15
WAITED_LONG_S = 2.05
PAGES_PER_SHAPE = 50
RUNS_PER_LANE = 100
STARTS_AT_ONCE = 200
PAGES_WARM_UP = 5

# Instants at which effects ran, noted by contenders that run theirs in the measuring process (for `depth`).
effect_instants: list[float] = []
# The orders of these effects, for `lanes`.
effect_orders: list[str] = []


class Contender(Protocol):
    """What an engine has to do here. Every start is keyed by its order."""

    async def one(self, order: str) -> None:
        """Start the workflow of one effect and wait for its result."""

    async def many(self, order: str, effects: int) -> None:
        """Start the workflow of that many sequential effects and wait for its result."""

    async def start(self, order: str) -> Wait:
        """Start the workflow of one effect, which may exist already; the answer waits for its result."""
        ...

    async def timer(self, order: str, due: float) -> None:
        """Start the workflow that sleeps until `due` (seconds since the epoch) and wait for its result."""

    async def listener(self, order: str) -> Wait:
        """Start the workflow that waits for a signal; the answer signals it and waits for its result."""
        ...


@runtime_checkable
class Searchable(Protocol):
    """What a contender has to do besides to take part in W7."""

    async def page(self, wanted: Wanted) -> int:
        """Read the first page of the runs that are wanted; returns how many are on it."""
        ...


@runtime_checkable
class LimitsRequests(Protocol):
    """What a contender has to do besides to take part in `limits`."""

    async def plain(self) -> None:
        """One request that nothing limits."""

    async def limited(self) -> None:
        """The same, held against limits that it keeps to."""


@runtime_checkable
class Laned(Protocol):
    """What a contender has to do besides to take part in `lanes`."""

    async def start_in(self, order: str, lane: str) -> Wait:
        """Start the workflow of one effect, behind those that are in this lane; the answer waits for its result."""
        ...


@runtime_checkable
class Spread(Protocol):
    """A contender that is spread over several processes: their ids, by what they are. Rates show who was busy."""

    processes: dict[str, int]


@runtime_checkable
class Accounted(Protocol):
    """A contender that can say what each of its parts has used of the processor so far: for W9."""

    def cpu_seconds(self) -> dict[str, float]:
        """By part: client, workers, store."""
        ...

    def write_lock(self) -> AbstractAsyncContextManager[Share | None]:
        """A function that says for which share of the time the store's only writer was at work; None if it has many."""
        ...


@dataclass(frozen=True)
class Workload:
    """One measurement. `size` is the number of runs, or of starts, or of effects: what `unit` counts."""

    title: str
    unit: str
    size: int
    size_quick: int
    measure: Callable[[Contender, int], Awaitable[Figures]]
    # For contenders that consist of as many worker processes as are wanted; and how many cores they all may use.
    workers: int = 1
    cores: int | None = None

    def cores_of(self, machine: int) -> int:
        """How many cores it may use on a machine that has so many."""
        return self.cores or machine


async def swarm(jobs: Iterable[Job], *, width: int = CONCURRENCY) -> float:
    """Do the jobs, `width` at a time; returns the seconds it took to the end of the last one."""
    remaining = iter(jobs)

    async def work() -> None:
        for job in remaining:
            await job()

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(work())
    return time.perf_counter() - begin


async def warm_up(contender: Contender, turn: int = 0) -> None:
    """Imports, thread pools, connections and statement caches are filled before the clock starts."""
    await swarm(lambda order=f"warm-{turn}-{i}": contender.one(order) for i in range(WARM_UP_RUNS))


def runs_of_one(contender: Contender, size: int) -> Iterable[Job]:
    """As many runs of one effect."""
    return (lambda order=f"o-{i}": contender.one(order) for i in range(size))


def runs_of_many(contender: Contender, size: int) -> Iterable[Job]:
    """Runs of many effects: as many of those."""
    return (lambda order=f"m-{i}": contender.many(order, EFFECTS_PER_RUN) for i in range(size // EFFECTS_PER_RUN))


def starts_of_the_same(contender: Contender, size: int) -> Iterable[Job]:
    """As many starts that find their runs there: those of the warm-up, which have ended."""
    return (lambda order=f"warm-0-{i % WARM_UP_RUNS}": contender.start(order) for i in range(size))


async def _rate(contender: Contender, size: int, jobs: Iterable[Job]) -> Figures:
    watch = Watch(contender.processes) if isinstance(contender, Spread) else None
    took = await swarm(jobs)
    return {"rate": size / took, **(watch.figures() if watch else {})}


def _latencies(seconds: list[float]) -> Figures:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}


async def one_effect_runs(contender: Contender, size: int) -> Figures:
    """W1, `crowded` and `empty`."""
    await warm_up(contender)
    return await _rate(contender, size, runs_of_one(contender, size))


async def many_effect_runs(contender: Contender, size: int) -> Figures:
    """W2."""
    await warm_up(contender)
    return await _rate(contender, size // EFFECTS_PER_RUN * EFFECTS_PER_RUN, runs_of_many(contender, size))


async def start_to_result(contender: Contender, size: int) -> Figures:
    """W3."""
    await warm_up(contender)
    seconds: list[float] = []
    for i in range(size):
        begin = time.perf_counter()
        await contender.one(f"l-{i}")
        seconds.append(time.perf_counter() - begin)
    return _latencies(seconds)


async def duplicate_starts(contender: Contender, size: int) -> Figures:
    """W4: to the answer to the last start, and to the end of every run that was started."""
    await warm_up(contender)
    waits: dict[str, Wait] = {}

    async def start(order: str) -> None:
        wait = await contender.start(order)
        waits.setdefault(order, wait)

    begin = time.perf_counter()
    await swarm(lambda order=f"d-{i % KEYS}": start(order) for i in range(size))
    await asyncio.gather(*(wait() for wait in waits.values()))
    return {"rate": size / (time.perf_counter() - begin)}


async def due_timers(contender: Contender, size: int) -> Figures:
    """W5: each run sleeps about half a second; its waiter is in place long before it falls due."""
    await warm_up(contender)
    seconds: list[float] = []

    async def sleeper(order: str, due: float) -> None:
        await contender.timer(order, due)
        seconds.append(time.time() - due)

    async with asyncio.TaskGroup() as group:
        for i in range(size):
            # Whole milliseconds, so that an engine which counts in them does not round the instant away.
            group.create_task(sleeper(f"t-{i}", round(time.time() + TIMER_DELAY_S, 3)))
            await asyncio.sleep(TIMER_SPACING_S)
    return _latencies(seconds)


async def signals(contender: Contender, size: int, *, waited_s: float) -> Figures:
    """W6 and W6-long: from the sending of the signal to the result in the hands of the sender."""
    await warm_up(contender)
    seconds: list[float] = []

    async def exchange(order: str) -> None:
        signal = await contender.listener(order)
        await asyncio.sleep(waited_s)
        begin = time.perf_counter()
        await signal()
        seconds.append(time.perf_counter() - begin)

    async with asyncio.TaskGroup() as group:
        for i in range(size):
            group.create_task(exchange(f"s-{i}"))
            await asyncio.sleep(SIGNAL_SPACING_S)
    return _latencies(seconds)


async def pages(contender: Contender, size: int) -> Figures:
    """W7: the shapes take turns, so that a slow moment falls on all of them. Every page is full."""
    assert isinstance(contender, Searchable)
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for turn in range(-PAGES_WARM_UP, PAGES_PER_SHAPE):
        for shape, wanted in SHAPES.items():
            begin = time.perf_counter()
            found = await contender.page(wanted(size, turn))
            took = time.perf_counter() - begin
            assert found == PAGE, (shape, turn, found)
            if turn >= 0:
                seconds[shape].append(took)
    return {f"{shape}_us": statistics.median(taken) * 1e6 for shape, taken in seconds.items()}


async def awaited_starts(contender: Contender, size: int) -> Figures:
    """W8: each latency is that of one of fifty who ask at once, so it counts their company too."""
    await warm_up(contender)
    seconds: list[float] = []

    async def one(order: str) -> None:
        begin = time.perf_counter()
        await contender.one(order)
        seconds.append(time.perf_counter() - begin)

    took = await swarm(lambda order=f"h-{i}": one(order) for i in range(size))
    return {"rate": size / took, **_latencies(seconds)}


async def limited_requests(contender: Contender, size: int) -> Figures:
    """What limits add to a request: one after the other, in turns with requests that nothing limits."""
    assert isinstance(contender, LimitsRequests)
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for turn in range(-WARM_UP_RUNS, size):
        for name, request in (("plain", contender.plain), ("p", contender.limited)):
            begin = time.perf_counter()
            await request()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - begin)
    plain, limited = _latencies(seconds["plain"]), _latencies(seconds["p"])
    return limited | {f"plain_{name}": value for name, value in plain.items()}


async def spread_runs(contender: Contender, size: int) -> Figures:
    """W9: processor time per run of each part, so that it can be said what larger machines would do."""
    assert isinstance(contender, Spread)
    assert isinstance(contender, Accounted)
    for turn in range(SPREAD_WARM_UPS):  # each process must have had its share of it
        await warm_up(contender, turn)
    jobs = (lambda order=f"o-{i}": contender.one(order) for i in range(size))
    async with contender.write_lock() as share:
        if share is not None:
            await share()
        before, watch = contender.cpu_seconds(), Watch(contender.processes)
        took = await swarm(jobs, width=SPREAD_CONCURRENCY)
        figures = {"rate": size / took, **watch.figures()}
        for part, seconds in contender.cpu_seconds().items():
            figures[f"{part}_us"] = (seconds - before[part]) / size * 1e6
        if share is not None:
            figures["writer_held"] = await share() or 0.0
            figures["writer_us"] = figures["writer_held"] * took / size * 1e6
    return figures


async def depth(contender: Contender, size: int) -> Figures:
    """Medians, since one checkpoint of the write-ahead log among a hundred effects says nothing of depth."""
    await warm_up(contender)
    effect_instants.clear()
    await contender.many("deep", size)
    steps = [after - before for before, after in pairwise(effect_instants)]
    early = statistics.median(steps[DEPTH_WINDOW // 2 : DEPTH_WINDOW * 3 // 2])  # effects 51..150
    late = statistics.median(steps[-DEPTH_WINDOW:])
    return {"early_us": early * 1e6, "late_us": late * 1e6}


async def laned_runs(contender: Contender, size: int) -> Figures:
    """`lanes`: the starts of one lane are a round apart, so that each has returned before the next is sent."""
    assert isinstance(contender, Laned)
    await warm_up(contender)
    lanes = max(1, size // RUNS_PER_LANE)
    effect_orders.clear()
    rate = await _started_at_once(size, lanes, lambda n: contender.start_in(f"n-{n}", f"lane-{n % lanes}"))
    numbers = [int(order.removeprefix("n-")) for order in effect_orders]
    for lane in range(lanes):
        of_lane = [number for number in numbers if number % lanes == lane]
        assert of_lane == sorted(of_lane), f"lane {lane} was not in order"
    return rate


async def unlaned_runs(contender: Contender, size: int) -> Figures:
    """`unlaned`."""
    await warm_up(contender)
    return await _started_at_once(size, max(1, size // RUNS_PER_LANE), lambda n: contender.start(f"n-{n}"))


async def _started_at_once(size: int, lanes: int, start: Callable[[int], Awaitable[Wait]]) -> Figures:
    """To the end of the last of these runs, whose starts do not wait for any end."""
    waits: list[Wait] = []

    async def one(number: int) -> None:
        waits.append(await start(number))

    begin = time.perf_counter()
    for first in range(0, size, lanes):
        numbers = range(first, min(first + lanes, size))
        await swarm((lambda number=number: one(number) for number in numbers), width=STARTS_AT_ONCE)
    for wait in waits:
        await wait()
    return {"rate": size / (time.perf_counter() - begin)}


async def next_in_lane(contender: Contender, size: int) -> Figures:
    """`next`: an effect does nothing, so it is from the end of one run to the beginning of the next."""
    assert isinstance(contender, Laned)
    await warm_up(contender)
    waits = [await contender.start_in("first", "lane")]
    effect_instants.clear()
    waits += [await contender.start_in(f"n-{number}", "lane") for number in range(size)]
    for wait in waits:
        await wait()
    return _latencies([after - before for before, after in pairwise(effect_instants[-size // 2 :])])


async def fill(contender: Contender, size: int) -> Figures:
    """Finished runs, and nothing measured."""
    await swarm((lambda order=f"f-{i}": contender.one(order) for i in range(size)), width=4 * CONCURRENCY)
    return {}


WORKLOADS = {
    "W1": Workload("2,000 keyed one-effect runs, 50 at a time", "runs/s", 2_000, 200, one_effect_runs),
    "W2": Workload("50 runs of 40 sequential effects", "effects/s", 2_000, 400, many_effect_runs),
    "W3": Workload("start to result, one after the other", "ms", 500, 50, start_to_result),
    "W4": Workload("5,000 starts over 100 keys", "starts/s", 5_000, 500, duplicate_starts),
    "W5": Workload("due timer to result", "ms", 100, 20, due_timers),
    "W6": Workload("signal to result, just waiting", "ms", 100, 20, partial(signals, waited_s=WAITED_S)),
    "W6-long": Workload("signal to result, let go", "ms", 100, 20, partial(signals, waited_s=WAITED_LONG_S)),
    "W7": Workload("a page among 1,000,000 runs", "µs", 1_000_000, 50_000, pages),
    "W7-small": Workload("a page among 10,000 runs", "µs", 10_000, 10_000, pages),
    "W8": Workload("keyed start to result, 50 at a time", "runs/s", 3_000, 200, awaited_starts),
    "W9": Workload("runs by 1 worker process", "runs/s", 4_000, 800, spread_runs),
    "W9-2": Workload("runs by 2 worker processes", "runs/s", 4_000, 800, spread_runs, workers=2),
    "W9-4": Workload("runs by 4 worker processes", "runs/s", 4_000, 800, spread_runs, workers=4),
    "W9-core": Workload("runs by 1 worker, all on one core", "runs/s", 4_000, 800, spread_runs, cores=1),
    "lanes": Workload("1,000 lanes with 100 runs each", "runs/s", 100_000, 2_000, laned_runs),
    "unlaned": Workload("as many runs without lanes", "runs/s", 100_000, 2_000, unlaned_runs),
    "next": Workload("from one run of a lane to the next", "ms", 1_000, 100, next_in_lane),
    # Longer than W1: what is asked of them is a difference of a tenth.
    "crowded": Workload("W1 among 100,000 finished runs", "runs/s", 10_000, 200, one_effect_runs),
    "empty": Workload("W1 in an empty file", "runs/s", 10_000, 200, one_effect_runs),
    "depth": Workload("one run of 10,000 effects", "effects/s", 10_000, 1_000, depth),
    "limits": Workload("a request that is limited", "ms", 3_000, 300, limited_requests),
    "startup": Workload("processes that begin", "ms", 20, 3, start_ups),
    "fill": Workload("finished runs for `crowded`", "runs/s", 100_000, 2_000, fill),
}
