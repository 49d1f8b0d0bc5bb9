"""One world from beginning to end: a cluster, its clients, its faults; then everything heals, and all comes to rest.

    outcome = simulate(draw(seed))

The history that it returns is judged by `tests.simulation.judging`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import hashlib
import logging
import warnings
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import msgspec
from msgspec import Struct

from holdfast import Holdfast, Pack, assembly
from holdfast.engine.api.registry import Registry
from holdfast.engine.worker import codes
from holdfast.errors import HoldfastError
from holdfast.events import Elected, Event, LeaseWasLost, PartFailed, RunOvertaken
from holdfast.kernel import waits
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.journal import Value
from holdfast.kernel.runs import ENDED, SETTLED, Run, Status
from holdfast.kernel.times import Millis
from holdfast.ports.codec import Codec
from holdfast.testing.histories.history import (
    FinalKey,
    HistoryHead,
    LeaderActed,
    LeaseChanged,
    Record,
    SometimesCount,
)
from holdfast.testing.histories.recording import final_run
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.world import World
from tests.simulation.clients import Acts, Client
from tests.simulation.nemesis import STRIKES, Nemesis
from tests.simulation.plans import LASTING, Act, Fault, Plan
from tests.simulation.programs import PRESENT, pack
from tests.simulation.stores import ClusterStore

DRAIN_SECONDS = 240.0
LOOK_SECONDS = 0.5
HEARD = (Elected, LeaseWasLost, RunOvertaken, PartFailed)
ROUNDS_MAX = 1_000  # code that never waits takes many turns of these, and is noticed


class Simulated(Struct, frozen=True):
    """What came of a world."""

    plan: Plan
    history: tuple[Record, ...]
    sometimes: dict[str, int]
    seconds: float  # of virtual time
    is_drained: bool
    restless: str  # what has not come to rest
    failures: tuple[str, ...]  # of the hosts themselves: none is expected

    @property
    def digest(self) -> str:
        """Equal worlds have equal ones."""
        digest = hashlib.sha256()
        for record in self.history:
            digest.update(_encode(record))
        return digest.hexdigest()[:16]


def _text_of(output: bytes) -> str:
    """What a workflow of ours returned, which is text."""
    return str(msgspec.json.decode(msgspec.json.decode(output, type=Value).json))  # pyright: ignore[reportArgumentType]


_encode = msgspec.json.Encoder(order="deterministic").encode


def simulate(plan: Plan) -> Simulated:
    """Let the world of a plan happen."""
    with _quiet():
        cluster = Cluster(plan)
        try:
            return cluster.play()
        finally:
            cluster.close()


# What a process finds out about its workflows when it starts is the same in each, and takes a tenth of a world.
_digest_once = functools.cache(codes.digest_of_code)
_codec_once = functools.cache(assembly.JsonCodec)
_registry_once = functools.cache(assembly.Registry)


def _registry(packs: Sequence[Pack], *, codec: Codec, queues: None, own: tuple[Pack, ...]) -> Registry:
    return _registry_once(tuple(packs), codec=codec, queues=queues, own=own)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """No log lines, no warnings to callers, and no collector that would finish coroutines at its own times."""
    loggers = [logging.getLogger(name) for name in ("holdfast", "asyncio")]
    levels, collects = [logger.level for logger in loggers], gc.isenabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    gc.disable()
    try:
        with (
            warnings.catch_warnings(),
            mock.patch.object(codes, "digest_of_code", _digest_once),
            mock.patch.object(assembly, "JsonCodec", _codec_once),
            mock.patch.object(assembly, "Registry", _registry),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if collects:
            gc.enable()


class Member:
    """A process of the cluster, in all its lives. Those below `plan.workers` execute runs."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.lives = 0
        self.host: Host | None = None
        self.stopping: asyncio.Event | None = None


class Cluster:
    """The processes of one world."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(plan.seed, rounds_max=ROUNDS_MAX)
        self.nemesis = Nemesis(self.world, plan)
        self.store = ClusterStore(self.world, self.nemesis, shards=plan.shards, limit_seconds=plan.limit)
        self.nemesis.now_ms = self.store.inner.now_ms
        self.nemesis.alive = self._is_alive
        self.nemesis.lose_call = self.store.lost
        self.acts = Acts(self.nemesis.record, self.store.inner.now_ms, self.nemesis.was_performed)
        self.members = [Member(number, f"w{number}") for number in range(plan.workers)]
        self.members += [Member(plan.workers + number, f"c{number}") for number in range(plan.clients)]
        self.left: dict[int, list[Act]] = {
            client: [act for act in plan.acts if act.client == client] for client in range(plan.clients)
        }
        self.acts_left = len(plan.acts)  # of all clients
        self.failures: list[str] = []
        self.is_healed = False
        self.is_ending = False
        PRESENT.world = self.nemesis

    def close(self) -> None:
        PRESENT.world = None
        self.world.close()

    # -- from beginning to end

    def play(self) -> Simulated:
        plan, world, nemesis = self.plan, self.world, self.nemesis
        nemesis.record(
            HistoryHead(
                source="simulation",
                lease_ms=Millis(round(plan.lease * 1000)),
                drain_ms=Millis(round(DRAIN_SECONDS * 1000)),
                seed=plan.seed,
            )
        )
        for member in self.members:
            self.boot(member)
        for fault in plan.faults:
            world.after(fault.at, partial(self.apply, fault))
        end = max((fault.end for fault in plan.faults), default=0.0)
        world.run(lambda: not self.acts_left, seconds=max(end, 60.0))
        self._run_until(self._is_idle, end - world.now())
        self.heal()
        is_drained = self.drain()
        self.read()
        if plan.stops_in_order and is_drained:
            self.stop_all()
        for label, count in sorted(nemesis.sometimes.items()):
            nemesis.record(SometimesCount(label=label, count=count))
        return Simulated(
            plan,
            tuple(nemesis.history),
            dict(nemesis.sometimes),
            world.now(),
            is_drained,
            "" if is_drained else self._restless(),
            tuple(self.failures),
        )

    def heal(self) -> None:
        """No more faults: the dead are started, the stopped go on."""
        self.is_healed = True
        self.store.fail_over()
        self.nemesis.heal()
        for member in self.members:
            if member.host is None or not member.host.is_alive:
                self.boot(member)
            else:
                member.host.go_on()

    def drain(self) -> bool:
        """Whether all comes to rest in time: acts are done, runs have ended or are blocked, nothing is under way."""
        return self._run_until(self._is_at_rest, DRAIN_SECONDS)

    def _run_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Let the world go on until this is so, which is looked at now and then. Whether it is, within this time."""
        is_over = [False]

        def look() -> None:
            is_over[0] = is_over[0] or is_so()
            if not is_over[0]:
                self.world.after(LOOK_SECONDS, look)

        look()
        was_so = self.world.run(lambda: is_over[0], seconds=max(0.0, seconds))
        is_over[0] = True
        return was_so

    def _is_idle(self) -> bool:
        """Whether the faults that are to come would hit nothing: all rests, and those that have begun are over."""
        if self.plan.strikes_idle:
            return False
        now, lasting = self.world.now(), [fault for fault in self.plan.faults if fault.kind in LASTING]
        return not any(fault.at <= now < fault.end + self.plan.limit for fault in lasting) and self._is_at_rest()

    def _is_at_rest(self) -> bool:
        tables = self.store.memory.tables
        if self._arrivals_left() or self.acts_left or tables.outbox:
            return False
        return all(self._rests(run) for run in tables.runs.values())

    def _rests(self, run: Run) -> bool:
        """Whether nothing more happens to it by itself: it may wait for a child that waits for a person."""
        if run.status in SETTLED:
            return True
        if waits.may_be_parked(run):
            return self._rests_in_lane(run)
        if run.status is not Status.WAITING or run.wake_at_ms is not None or run.unread or run.waits is None:
            return False
        children = [
            self.store.memory.tables.runs.get(wait.name) for wait in waits.decode(run.waits) if wait.kind == "child"
        ]
        return any(child is not None and child.status not in ENDED and self._rests(child) for child in children)

    def _rests_in_lane(self, run: Run) -> bool:
        """Whether no run before it gives its place up: a person has to look at all of them, or at the lane itself."""
        tables, name = self.store.memory.tables, (run.namespace, run.lane)
        active = [tables.runs[place.run_id] for place in tables.places.get(name, {}).values() if place.active]
        return tables.lanes[name].paused or (bool(active) and all(map(self._rests, active)))

    def _restless(self) -> str:
        tables = self.store.memory.tables
        runs = [f"{run.id} {run.status}" for run in tables.runs.values() if not self._rests(run)]
        acts = [f"{len(left)} acts of client {client}" for client, left in self.left.items() if left]
        return ", ".join([*runs, *acts, *(["the outbox"] if tables.outbox else [])])

    def _arrivals_left(self) -> bool:
        """Whether calls are on their way that were sent long ago."""
        return self.nemesis.last_arrival > self.world.now()

    def stop_all(self) -> None:
        """Every process ends in order."""
        self.is_ending = True
        for member in self.members:
            if member.stopping is not None and member.host is not None:
                member.host.deliver(member.stopping.set)
        self.world.run(lambda: all(member.host is None for member in self.members), seconds=60)

    # -- processes

    def boot(self, member: Member) -> None:
        """Start a process, for the first time or again."""
        member.lives += 1
        host = self.world.host(f"{member.name}.{member.lives}")
        member.host = host
        self.nemesis.numbers[host.name] = member.number
        if member.lives > 1:
            self.nemesis.applied_fault("started", host.name)
        host.loop.set_exception_handler(partial(self._hear_of_exception, host))
        host.spawn(self._live(member, host))

    def _hear_of_exception(self, host: Host, _loop: object, context: dict[str, Any]) -> None:
        self.failures.append(f"{host.name}: {context.get('message')}: {context.get('exception')!r}")

    async def _live(self, member: Member, host: Host) -> None:
        plan = self.plan
        is_worker = member.number < plan.workers
        member.stopping = asyncio.Event()
        try:
            async with Holdfast(
                self.store.seen_from(host),
                packs=[pack],
                worker=is_worker,
                lease=plan.lease,
                concurrency=plan.concurrency[member.number] if is_worker else 50,
                strict=False,
                _pace=plan.pace,
                _platform=host.platform,
            ) as hf:
                hf.listen(partial(self._hear, host))
                tasks = [asyncio.create_task(self._act(hf, client)) for client in self._clients_in(member.number)]
                await member.stopping.wait()
                for task in tasks:
                    task.cancel()
        except Exception as error:
            if not isinstance(error, HoldfastError):
                self.failures.append(f"{host.name}: {type(error).__name__}: {error}")
            self.world.after(0.5, partial(self._start_again, member, host))
            return
        self.nemesis.applied_fault("ended", host.name)
        self.world.after(0, partial(self._ended, member, host))

    def _hear(self, host: Host, event: Event) -> None:
        if not isinstance(event, HEARD):  # most are not
            return
        at_ms = self.store.inner.now_ms()
        match event:
            case Elected(duty, term):
                self.nemesis.record(LeaderActed(at_ms=at_ms, how="elected", host=host.name, duty=duty, term=term))
            case LeaseWasLost():
                self.nemesis.record(LeaseChanged(at_ms=at_ms, how="lost", host=host.name))
            case RunOvertaken(run_id):
                self.nemesis.record(LeaseChanged(at_ms=at_ms, how="lost", host=host.name, run=run_id))
            case PartFailed(part, message):
                self.failures.append(f"{host.name}: {part}: {message}")
            case _:
                pass

    def _clients_in(self, number: int) -> list[int]:
        """The clients that live in this process."""
        plan = self.plan
        if number < plan.workers:
            return [client for client in plan.inside if client % plan.workers == number]
        client = number - plan.workers
        return [] if client in plan.inside else [client]

    async def _act(self, hf: Holdfast, number: int) -> None:
        left = self.left[number]
        client = Client(self.acts, f"client-{number}", patience=self.plan.lease)
        while left:
            act = left[0]
            try:
                await client.do(hf, act)
            except Exception as error:
                self.failures.append(f"client {number}: {act.verb}: {type(error).__name__}: {error}")
                raise
            finally:
                left.pop(0)
                self.acts_left -= 1

    def _start_again(self, member: Member, host: Host) -> None:
        host.kill()
        if member.host is host:
            self.boot(member)

    def _ended(self, member: Member, host: Host) -> None:
        host.kill()
        if member.host is host:
            member.host = None

    def _is_alive(self, instance: str) -> bool:
        return any(
            member.host is not None and member.host.is_alive and instance.startswith(f"{member.host.name}-")
            for member in self.members
        )

    # -- faults

    def apply(self, fault: Fault) -> None:
        if self.is_healed:
            return
        member = self.members[fault.host % len(self.members)]
        host, nemesis = member.host, self.nemesis
        match fault.kind:
            case "kill" if host is not None and host.is_alive:
                nemesis.applied_fault("killed", host.name)
                self.nemesis.sometimes["killed"] += 1
                host.kill()
                self.world.after(fault.seconds, partial(self._revive, member, host))
            case "stop" if host is not None and host.is_running:
                nemesis.applied_fault("paused", host.name)
                host.stop()
                self.world.after(fault.seconds, partial(self._go_on, host))
            case "roll" if host is not None and host.is_running and member.stopping is not None:
                host.deliver(member.stopping.set)
                self.world.after(self.plan.lease * 1.5, partial(self._revive, member, host))
            case "clock" if host is not None:
                nemesis.applied_fault("clock stepped", host.name)
                host.clock.set_forward_ms = Millis(host.clock.set_forward_ms + round(fault.seconds * 1000))
            case kind if kind in STRIKES:
                nemesis.strike(fault)
            case "slow":
                nemesis.applied_fault("store slow")
                nemesis.be_slow(fault.seconds)
            case "down":
                nemesis.applied_fault("store down")
                nemesis.be_down(fault.seconds)
            case "failover":
                self.store.begin_losing()
                self.world.after(fault.seconds, self.store.fail_over)
            case "left":
                nemesis.leave_behind(fault)
            case _:
                pass

    def _revive(self, member: Member, host: Host) -> None:
        """Start a process again, if this one is gone or takes too long to end."""
        if member.host not in {host, None} or self.is_ending:
            return  # it was started again when all healed, or is not needed any more
        host.kill()
        self.boot(member)

    def _go_on(self, host: Host) -> None:
        if host.is_alive and host.is_stopped:
            self.nemesis.applied_fault("continued", host.name)
            host.go_on()

    # -- the end

    def read(self) -> None:
        """Record what is stored, now that everything is quiet."""
        tables = self.store.memory.tables
        receipts = self._receipts(
            [run for run in tables.runs.values() if run.status in {Status.CANCELLED, Status.FAILED}]
        )
        for run in tables.runs.values():
            self.nemesis.record(
                final_run(
                    run,
                    tuple(tables.journals[run.id]),
                    at_ms=self.store.inner.now_ms(),
                    result="" if run.output is None else _text_of(run.output),
                    receipt=receipts.get(run.id),
                )
            )
        for (namespace, workflow, key), run_id in tables.keys.items():
            self.nemesis.record(
                FinalKey(at_ms=self.store.inner.now_ms(), namespace=namespace, workflow=workflow, key=key, run=run_id)
            )

    def _receipts(self, runs: list[Run]) -> dict[str, Receipt]:
        if not runs:
            return {}
        reader = self.world.host("reader")
        found: dict[str, Receipt] = {}

        async def ask() -> None:
            async with Holdfast(
                self.store.seen_from(reader),
                packs=[pack],
                worker=False,
                _pace=self.plan.pace,
                _platform=reader.platform,
            ) as hf:
                for run in runs:
                    with contextlib.suppress(HoldfastError):
                        found[run.id] = await (await hf.get(run.id)).receipt()

        task = reader.spawn(ask())
        self.world.run(task.done, seconds=60)
        reader.kill()
        return found
