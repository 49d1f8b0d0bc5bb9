"""Plans: all that a seed decides about a world before it begins. A plan that is cut shorter is a plan, too.

    fault         what happens
    ────────────  ──────────────────────────────────────────────────────────────────────────────────────────
    kill          the host is dead at once, and started again after `seconds`
    stop          it stands still for `seconds`, as after SIGSTOP
    roll          it is stopped in order, and started again
    clock         its wall clock is set, by `seconds`
    call lost     of its next `count` calls the store never hears
    reply lost    its next `count` calls are applied, and it never hears
    late          its next `count` calls arrive after `seconds`, long after it has given up
    slow          for `seconds`, every call of every host takes up to a limit longer
    down          for `seconds`, the store is reached by no host
    failover      for `seconds`, what is written is confirmed to no host; then it is gone
    left          of the next `count` commits that have something to say to another shard, that stays in the outbox

Each kind is allowed in some of the seeds only: a plan of all kinds at once would test none of them alone.
"""

from __future__ import annotations

from random import Random

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engine.pace import Pace
from holdfast.kernel.times import Millis
from tests.simulation.programs import HOOKS, TOKENS, ProgramMaker

FAULTS = ("kill", "stop", "roll", "clock", "call lost", "reply lost", "late", "slow", "down", "failover", "left")
LASTING = ("stop", "slow", "down", "failover")  # while one is under way, what it has held up is still to come
BUS_FAULTS = ("lost", "late", "double")
TINY_SHARE = 0.1
LOAD_SECONDS = 16.0
LANES_EVERY = 7  # seeds


class Fault(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that is done to the world at a time. `host` is the number of a worker, then of a client."""

    at: float
    kind: str
    host: int = 0
    seconds: float = 0.0
    count: int = 1
    commits_only: bool = False

    @property
    def end(self) -> float:
        """When it is over: a clock stays as it was set."""
        return self.at + (0.0 if self.kind == "clock" else self.seconds)


class Act(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a client does when it has done the one before, and has paused for `pause` seconds."""

    client: int
    pause: float
    verb: str
    workflow: int = 0
    key: str = ""
    program: str = ""
    pick: int = 0  # which of the runs that are known by then
    retention: float | None = None
    delay: float = 0.0
    timeout: float | None = None
    hook: str = ""
    token: str = ""
    dedupe: str = ""
    join: bool = True
    lane: str = ""
    width: int = 0
    paused: bool | None = None  # of "set lane"
    is_bold: bool = False  # it is not repeated under the same request id if its outcome is unknown


class Plan(Struct, frozen=True, kw_only=True):
    """One world."""

    seed: int
    workers: int
    clients: int
    inside: tuple[int, ...]  # clients that live in the process of a worker
    lease: float
    concurrency: tuple[int, ...]
    limit: float  # for the reply of the store
    latency: float
    bus_latency: float
    bus_faults: tuple[str, ...]
    bus_chance: float
    shards: int
    idle: float
    claim_max: int
    rescue_max: int
    poll: float
    is_tiny: bool
    stops_in_order: bool
    strikes_idle: bool  # faults go on when there is nothing left to do, as long as there are some
    faults: tuple[Fault, ...]
    acts: tuple[Act, ...]

    @property
    def pace(self) -> Pace:
        """How often the engine looks by itself, in this world."""
        return Pace(
            wake_poll_seconds=self.poll,
            mail_poll_seconds=self.poll,
            waiters_poll_seconds=self.poll,
            tasks_poll_seconds=self.poll,
            code_seconds_max=0.0,
            idle_ms=Millis(round(self.idle * 1000)),
            claim_max=self.claim_max,
            rescue_max=self.rescue_max,
            prune_seconds=2.0,
            timeouts_seconds=2.0,
            grace_seconds=self.lease,
        )


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    chance = Random(f"{seed}/plan")
    is_tiny = chance.random() < TINY_SHARE
    lease = chance.choice((0.6, 1.0)) if is_tiny else chance.choice((3.0, 6.0, 6.0, 10.0))
    workers = chance.choice((2, 3, 3, 3, 3, 4))
    clients = chance.choice((3, 4, 4, 4, 4, 5))
    allowed = tuple(kind for kind in FAULTS if chance.random() < 0.4)
    bus_faults = tuple(kind for kind in BUS_FAULTS if chance.random() < 0.3)
    plan = Plan(
        seed=seed,
        workers=workers,
        clients=clients,
        inside=tuple(client for client in range(clients) if chance.random() < 0.25),
        lease=lease,
        concurrency=tuple(chance.choice((1, 2, 8, 50)) for _ in range(workers)),
        limit=lease / chance.choice((3, 5, 10)),
        latency=chance.choice((0.0005, 0.005, 0.05)) * (0.2 if is_tiny else 1),
        bus_latency=chance.choice((0.0, 0.001, 0.02)),
        bus_faults=bus_faults,
        bus_chance=chance.choice((0.05, 0.5)),
        shards=chance.choice((1, 2, 3, 3)),
        idle=chance.choice((0.0, 0.2, 1.0, 1.0)),
        claim_max=chance.choice((1, 2, 16)),
        rescue_max=chance.choice((1, 100, 100)),
        poll=900.0 if not bus_faults and chance.random() < 0.5 else 5.0,
        is_tiny=is_tiny,
        stops_in_order=chance.random() < 0.2,
        faults=_faults(chance, allowed, hosts=workers + clients, workers=workers, lease=lease),
        acts=_acts(chance, clients=clients, lease=lease),
        strikes_idle=chance.random() < 0.1,
    )
    if seed % LANES_EVERY < LANES_EVERY - 1:
        return plan
    return replace(plan, acts=_with_lanes(plan.acts, seed, clients=clients))


def _faults(chance: Random, allowed: tuple[str, ...], *, hosts: int, workers: int, lease: float) -> tuple[Fault, ...]:
    if not allowed:
        return ()
    drawn = [
        _fault(chance, chance.choice(allowed), hosts=hosts, workers=workers, lease=lease)
        for _ in range(chance.randint(1, 10))
    ]
    return tuple(sorted(drawn, key=lambda fault: fault.at))


def _fault(chance: Random, kind: str, *, hosts: int, workers: int, lease: float) -> Fault:
    at = round(chance.uniform(0.05, LOAD_SECONDS), 3)
    worker = chance.randrange(workers)
    anyone = chance.randrange(hosts) if chance.random() < 0.3 else worker
    match kind:
        case "kill":
            return Fault(at=at, kind=kind, host=anyone, seconds=round(chance.uniform(0.1, 2 * lease), 3))
        case "stop":
            return Fault(at=at, kind=kind, host=anyone, seconds=round(chance.uniform(0.3, 3 * lease), 3))
        case "clock":
            return Fault(at=at, kind=kind, host=anyone, seconds=chance.choice((-3600.0, -5.0, 5.0, 3600.0)))
        case "call lost" | "reply lost":
            count, commits = chance.randint(1, 4), chance.random() < 0.6
            return Fault(at=at, kind=kind, host=anyone, count=count, commits_only=commits)
        case "late":
            seconds, count = round(chance.uniform(lease / 2, 5 * lease), 3), chance.randint(1, 4)
            return Fault(
                at=at, kind=kind, host=anyone, seconds=seconds, count=count, commits_only=chance.random() < 0.8
            )
        case "slow" | "down":
            return Fault(at=at, kind=kind, seconds=round(chance.uniform(0.2, 1.5 * lease), 3))
        case "failover":
            return Fault(at=at, kind=kind, seconds=round(chance.uniform(0.1, lease), 3))
        case "left":
            return Fault(at=at, kind=kind, count=chance.randint(1, 5))
        case _:
            return Fault(at=at, kind=kind, host=worker)


_VERBS = {
    "start": 30,
    "again": 9,  # a start that was made before, once more
    "other": 4,  # the key of an earlier start, with another input
    "supersede": 7,
    "signal or start": 9,
    "signal": 14,
    "signal again": 7,
    "token": 4,
    "cancel": 10,
    "result": 8,
    "find": 8,
    "get": 3,
    "resume": 4,
    "retry": 6,
    "retry now": 2,
    "decide": 4,
    "fork": 3,
    "release": 4,
}


def _with_lanes(acts: tuple[Act, ...], seed: int, *, clients: int) -> tuple[Act, ...]:
    """The same acts, whose starts go into a few lanes; and some that set these lanes.

    It has chance of its own, and is for each seventh seed: the other worlds are what they are without lanes.
    """
    chance = Random(f"{seed}/lanes")
    lanes = {f"lane {number}": chance.choice((1, 1, 1, 2)) for number in range(chance.choice((1, 1, 2)))}
    drawn: list[Act] = []
    for act in acts:
        lane = chance.choice(tuple(lanes)) if chance.random() < 0.7 else ""
        drawn.append(replace(act, lane=lane, width=lanes.get(lane, 0) * (chance.random() < 0.5)))
        if chance.random() < 0.15:
            client, pause = chance.randrange(clients), round(chance.random(), 4)
            paused, width = chance.choice((None, True, False, False)), chance.choice((1, 2, 3))
            lane = chance.choice(tuple(lanes))
            drawn.append(Act(client=client, pause=pause, verb="set lane", lane=lane, width=width, paused=paused))
    drawn += [Act(client=0, pause=1.0, verb="set lane", lane=lane, width=1, paused=False) for lane in lanes]
    return tuple(drawn)


def _acts(chance: Random, *, clients: int, lease: float) -> tuple[Act, ...]:
    programs = ProgramMaker(chance, seconds=lease)
    keys = [f"k{number}" for number in range(chance.choice((2, 4, 8)))]
    verbs, weights = tuple(_VERBS), tuple(_VERBS.values())
    acts: list[Act] = []
    for client in range(clients):
        for number in range(chance.randint(3, 7)):
            verb = "start" if number == 0 else chance.choices(verbs, weights)[0]
            acts.append(
                Act(
                    client=client,
                    pause=round(chance.choice((0.0, 0.05, 0.5, 2.0, lease)) * chance.random(), 4),
                    verb=verb,
                    workflow=chance.choice((0, 0, 1, 2)),
                    key=chance.choice(keys),
                    program=programs.program(),
                    pick=chance.randrange(1000),
                    retention=chance.choice((None, None, 0.5, 3.0)),
                    delay=chance.choice((0.0, 0.0, 0.0, 1.0)),
                    timeout=chance.choice((None, None, None, 4.0)),
                    hook=chance.choice(HOOKS),
                    token=chance.choice(TOKENS),
                    dedupe=chance.choice(("", "a", "b")),
                    join=chance.random() < 0.9,
                    is_bold=chance.random() < 0.2,
                )
            )
    return tuple(acts)
