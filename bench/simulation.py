"""A small simulation of Holdfast on many processes: which of its parts is full first, and how fast it goes then.

So many runs are in flight all the time. Each passes through

    client   processor time to start it
    store    the change that admits it is committed
    worker   it is claimed, and executed: processor time
    store    the change that ends it is committed
    client   processor time to hear of it; then the next one is started

- A process does one thing at a time, and needs a core for it. Cores are shared by all processes of a machine.
- SQLite: each process commits what has gathered as one transaction. One transaction at a time holds the write lock: for
  the changes in it, which need a core, and for the sync, which does not.
- Redis: a primary executes the scripts that have gathered, syncs once, and replies to all of them. A run belongs to a
  shard, a shard to a primary.
- Times are drawn from the exponential distribution around their means: much less regular than they are.

It is deterministic: one seed, one course.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

CLAIM_MAX = 16  # as `Pace.claim_max`
BATCH_MAX = 512  # as the store's
WARM_UP = 10  # times as many runs as are in flight: not counted, since queues are still growing


@dataclass(frozen=True)
class Costs:
    """Microseconds per run, and of a commit."""

    client_us: float
    worker_us: float
    change_us: float  # of the store's processor, per change or script
    sync_us: float  # of a transaction, or of all scripts that a primary has executed in one go
    claim_is_a_change: bool = True  # besides the one that admits a run, and the one that ends it


@dataclass(frozen=True)
class Shape:
    """How many of what. `machines` are the cores of each; processes are dealt out to them in turn."""

    clients: int
    workers: int
    machines: tuple[int, ...]
    in_flight: int
    placement: tuple[int, ...] = ()  # which primary of Redis has each shard; none is a SQLite file
    store_machines: tuple[int, ...] = ()  # where the primaries are; none are with the processes
    hop_us: float = 0.0  # how long a message between two machines is on its way
    batch_max: int = BATCH_MAX
    claim_max: int = CLAIM_MAX

    @property
    def primaries(self) -> int:
        return max(self.placement, default=-1) + 1

    @property
    def busiest(self) -> float:
        """The share of all runs that the busiest primary has."""
        shards = [self.placement.count(primary) for primary in range(self.primaries)]
        return max(shards) / len(self.placement)


Step = Generator["float | Resource | Signal", None, None]


class Resource:
    """So many at a time; who comes first is served first."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Step] = deque()

    def ask(self, step: Step, sim: "Simulation") -> None:
        if self._free:
            self._free -= 1
            sim.resume(step)
        else:
            self._waiting.append(step)

    def give_back(self, sim: "Simulation") -> None:
        if self._waiting:
            sim.resume(self._waiting.popleft())
        else:
            self._free += 1


class Signal:
    """Who waits for it goes on when it is sent."""

    def __init__(self) -> None:
        self._waiting: list[Step] = []
        self._is_sent = False

    def ask(self, step: Step, sim: "Simulation") -> None:
        if self._is_sent:
            sim.resume(step)
        else:
            self._waiting.append(step)

    def send(self, sim: "Simulation") -> None:
        self._is_sent = True
        for step in self._waiting:
            sim.resume(step)
        self._waiting.clear()


class Simulation:
    """Time, and what happens next."""

    def __init__(self, seed: int) -> None:
        self.now_us = 0.0
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self._coming: list[tuple[float, int, Step]] = []

    def about(self, mean_us: float) -> float:
        return self._chance.expovariate(1 / mean_us) if mean_us > 0 else 0.0

    def choose(self, count: int) -> int:
        return self._chance.randrange(count)

    def resume(self, step: Step, after_us: float = 0.0) -> None:
        heapq.heappush(self._coming, (self.now_us + after_us, next(self._numbers), step))

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            self.now_us, _, step = heapq.heappop(self._coming)
            try:
                wanted = next(step)
            except StopIteration:
                continue
            if isinstance(wanted, float | int):
                self.resume(step, wanted)
            else:
                wanted.ask(step, self)


class Worker:
    """A process: one thread of Python, on one of the cores of its machine."""

    def __init__(self, sim: Simulation, cores: Resource) -> None:
        self._sim = sim
        self._turn = Resource(1)
        self.cores = cores

    def work(self, mean_us: float) -> Step:
        yield self._turn
        yield self.cores
        yield self._sim.about(mean_us)
        self.cores.give_back(self._sim)
        self._turn.give_back(self._sim)


class Batches:
    """What gathers while a batch is under way is the next one."""

    def __init__(self, sim: Simulation, size_max: int, commit: Callable[[int], Step]) -> None:
        self._sim = sim
        self._size_max = size_max
        self._commit = commit
        self._gathered: deque[Signal] = deque()
        self._is_at_work = False

    def add(self) -> Step:
        """Until it is committed."""
        done = Signal()
        self._gathered.append(done)
        if not self._is_at_work:
            self._is_at_work = True
            self._sim.resume(self._work())
        yield done

    def _work(self) -> Step:
        while self._gathered:
            size = min(len(self._gathered), self._size_max)
            batch = [self._gathered.popleft() for _ in range(size)]
            yield from self._commit(size)
            for done in batch:
                done.send(self._sim)
        self._is_at_work = False


class SqliteFile:
    """One write lock for all processes."""

    def __init__(self, sim: Simulation, costs: Costs, shape: Shape) -> None:
        self._sim = sim
        self._costs = costs
        self._shape = shape
        self._lock = Resource(1)
        self.busy_us = 0.0

    def of(self, process: Worker) -> Callable[[int], Batches]:
        """Where a process puts the changes of a run. A file has no shards."""
        batches = Batches(self._sim, self._shape.batch_max, lambda size: self.transact(process, size))
        return lambda _: batches

    def transact(self, process: Worker, size: int) -> Step:
        yield self._lock
        begin_us = self._sim.now_us
        if self._costs.change_us:
            yield process.cores
            yield sum(self._sim.about(self._costs.change_us) for _ in range(size))
            process.cores.give_back(self._sim)
        yield self._sim.about(self._costs.sync_us)
        self.busy_us += self._sim.now_us - begin_us
        self._lock.give_back(self._sim)


class RedisPrimaries:
    """Each executes the scripts of its shards, one after the other, and syncs before it replies."""

    def __init__(self, sim: Simulation, costs: Costs, shape: Shape, machines: list[Resource]) -> None:
        self._sim = sim
        self._costs = costs
        self._shape = shape
        self.busy_us = 0.0
        cores = [machines[number % len(machines)] for number in range(shape.primaries)]
        self._primaries = [Batches(sim, shape.batch_max, self._executing(each)) for each in cores]

    def of(self, process: Worker) -> Callable[[int], Batches]:  # noqa: ARG002 - all processes share them
        return lambda shard: self._primaries[self._shape.placement[shard]]

    def _executing(self, cores: Resource) -> Callable[[int], Step]:
        def execute(size: int) -> Step:
            begin_us = self._sim.now_us
            yield cores
            yield sum(self._sim.about(self._costs.change_us) for _ in range(size))
            cores.give_back(self._sim)
            yield self._sim.about(self._costs.sync_us)
            self.busy_us += self._sim.now_us - begin_us

        return execute


@dataclass(frozen=True)
class Outcome:
    """Runs per second, and how busy the store was: its lock, or its primaries at the mean."""

    rate: float
    store_busy: float


class _Course:
    """One simulation."""

    def __init__(self, costs: Costs, shape: Shape, seed: int) -> None:
        self._sim = sim = Simulation(seed)
        self._costs = costs
        self._shape = shape
        machines = [Resource(cores) for cores in shape.machines]
        places = itertools.cycle(machines)
        self._clients = [Worker(sim, next(places)) for _ in range(shape.clients)]
        self._workers = [Worker(sim, next(places)) for _ in range(shape.workers)]
        if shape.placement:
            beside = [Resource(cores) for cores in shape.store_machines] or machines
            self._store: SqliteFile | RedisPrimaries = RedisPrimaries(sim, costs, shape, beside)
        else:
            self._store = SqliteFile(sim, costs, shape)
        self._batches = {each: self._store.of(each) for each in (*self._clients, *self._workers)}
        self._ready: deque[tuple[int, Signal]] = deque()
        self._idle: deque[Worker] = deque(self._workers)
        self._completed = 0

    def go(self, runs: int) -> Outcome:
        for number in range(self._shape.in_flight):
            self._sim.resume(self._life(self._clients[number % len(self._clients)]))
        warm = WARM_UP * self._shape.in_flight
        self._sim.run(lambda: self._completed >= warm)
        begin_us, busy_us = self._sim.now_us, self._store.busy_us
        self._sim.run(lambda: self._completed >= warm + runs)
        took_us = self._sim.now_us - begin_us
        stores = max(1, self._shape.primaries)
        return Outcome(runs / took_us * 1e6, (self._store.busy_us - busy_us) / took_us / stores)

    def _life(self, client: Worker) -> Step:
        while True:
            shard = self._sim.choose(len(self._shape.placement) or 1)
            yield from client.work(self._costs.client_us / 2)
            yield self._shape.hop_us
            yield from self._batches[client](shard).add()
            yield self._shape.hop_us
            ended = Signal()
            self._ready.append((shard, ended))
            self._wake()
            yield ended
            yield self._shape.hop_us
            yield from client.work(self._costs.client_us / 2)
            self._completed += 1

    def _wake(self) -> None:
        if self._idle and self._ready:
            self._sim.resume(self._claim(self._idle.popleft()))

    def _claim(self, worker: Worker) -> Step:
        while self._ready:
            count = min(len(self._ready), self._shape.claim_max)
            claimed = [self._ready.popleft() for _ in range(count)]
            self._wake()  # what is left is for the others
            if self._costs.claim_is_a_change:
                yield from [self._added(worker, shard) for shard, _ in claimed]
            for shard, ended in claimed:
                self._sim.resume(self._execute(worker, shard, ended))
        self._idle.append(worker)

    def _added(self, worker: Worker, shard: int) -> Signal:
        done = Signal()

        def add() -> Step:
            yield from self._batches[worker](shard).add()
            done.send(self._sim)

        self._sim.resume(add())
        return done

    def _execute(self, worker: Worker, shard: int, ended: Signal) -> Step:
        yield from worker.work(self._costs.worker_us)
        yield self._shape.hop_us
        yield from self._batches[worker](shard).add()
        yield self._shape.hop_us
        ended.send(self._sim)


def simulate(costs: Costs, shape: Shape, *, runs: int = 20_000, seed: int = 1) -> Outcome:
    """So many runs, after some to warm up."""
    return _Course(costs, shape, seed).go(runs)


def exact_rate(demands_us: list[float], in_flight: int) -> float:
    """Runs per second of a closed network of queues with these demands: by mean value analysis, which is exact if all
    times are exponential, each station serves one at a time, and what comes first is served first."""
    queues = [0.0] * len(demands_us)
    rate = 0.0
    for count in range(1, in_flight + 1):
        times = [demand * (1 + queue) for demand, queue in zip(demands_us, queues, strict=True)]
        rate = count / sum(times)
        queues = [rate * each for each in times]
    return rate * 1e6
