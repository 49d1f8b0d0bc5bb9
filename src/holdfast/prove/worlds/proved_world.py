"""One world: the engine on a store model, a caller, stand-ins for effects, and the faults of a schedule.

Workers and caller are hosts in virtual time. A worker that crashes is replaced by a new one; one that stands still
goes on later, when another one has its runs. A world is over when no run can go on by itself, and everything that was
late has arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from holdfast.assembly import Holdfast
from holdfast.engine.pace import Pace
from holdfast.kernel import waits
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.journal import GaveUp, Performed
from holdfast.kernel.runs import SETTLED, Run, Status
from holdfast.kernel.times import Millis
from holdfast.prove.cases import Case
from holdfast.prove.samples import CODEC
from holdfast.prove.schedules import Schedule
from holdfast.prove.worlds.caller import ProofCaller
from holdfast.prove.worlds.effects import StubbedEffects
from holdfast.prove.worlds.faults import FaultInjector
from holdfast.prove.worlds.outcomes import WorldOutcome
from holdfast.prove.worlds.performing import ProvedPerformer
from holdfast.prove.worlds.store_observer import StoreObserver
from holdfast.prove.worlds.trace import WorldTrace
from holdfast.testing.effect_ledger import EffectLedger
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.network import StoreModel
from holdfast.testing.simulation.world import NothingHappens, TimeStandsStill, World

LEASE_SECONDS_MIN = 6.0
STEPS_MAX = 100_000  # of one world; most have some thousands
WORKERS = 2
LATER_SECONDS = 61.234  # another second, and another minute
LEASES_MAX = 60  # that one part of a world may last


class ProvedWorld:
    """Puts a world together, and lets it go on until it is over."""

    def __init__(
        self,
        case: Case,
        schedule: Schedule,
        *,
        seed: int,
        lease_seconds: float = LEASE_SECONDS_MIN,
        slower_seconds: float = 0.0,
    ) -> None:
        """With `slower_seconds` it begins later, and each effect takes so much longer."""
        self._case = case
        self._schedule = schedule
        self._lease_seconds = lease_seconds
        self._slower_seconds = slower_seconds
        self._pace = pace_for(lease_seconds)
        self._world = World(seed)
        self._fake = case.fake_world()
        self._ledger = EffectLedger()
        self._trace = WorldTrace(self._world)
        self._faults = FaultInjector(
            self._world,
            self._trace,
            schedule.faults,
            lease_seconds=lease_seconds,
            kill=self._kill,
            cancel=lambda: self._caller.cancel(),  # noqa: PLW0108 - it is made below
        )
        observer = StoreObserver(
            self._trace,
            self._faults,
            has_ready=self._has_ready,
            on_commit=lambda: self._caller.send_signals(),  # noqa: PLW0108 - it is made below
        )
        self._model = (case.make_store or StoreModel)(self._world, observer)
        self._tables = self._model.inner.tables
        self._caller = ProofCaller(
            self._world,
            case.call,
            schedule,
            fake=self._fake,
            tables=self._tables,
            trace=self._trace,
            connect=partial(self._holdfast, worker=False),
            cancel_seconds=lease_seconds * 20,
        )
        self._workers = 0

    def live(self) -> WorldOutcome:
        """From beginning to end. Whatever happens in it, nothing of the world is left."""
        try:
            return self._live()
        finally:
            self.close()

    def close(self) -> None:
        """End every host. It may be interrupted, and called again."""
        self._world.close()

    def _live(self) -> WorldOutcome:
        before = self._look()
        for _ in range(WORKERS):
            self._boot()
        self._caller.join()
        self._world.run(lambda: self._caller.has_joined, seconds=self._lease_seconds * 10)
        if self._slower_seconds:
            later = self._world.now() + LATER_SECONDS
            self._go_on(lambda: self._world.now() >= later, leases=LEASES_MAX)
        self._faults.is_live = True
        self._caller.start()
        is_over = self._go_on()
        if is_over and "late" in {self._schedule.start, self._schedule.signals}:
            self._caller.repeat_late()
            is_over = self._go_on()
        if is_over and (self._faults.held_back or self._faults.outstanding):
            for call in self._faults.held_back:
                self._model.apply_late(call)
            self._faults.held_back.clear()
            is_over = self._go_on(lambda: False, leases=4) or self._go_on()
        self._faults.is_live = False
        receipts = self._receipts() if is_over else {}
        return self._outcome(before, receipts, is_over=is_over)

    def _go_on(self, until: Callable[[], bool] | None = None, *, leases: int = LEASES_MAX) -> bool:
        """Whether it became so: quiet, if nothing is said. A world that is always busy is given up after some steps."""
        is_so, steps = until or self._is_quiet, itertools.count()
        with contextlib.suppress(NothingHappens, TimeStandsStill):
            self._world.run(lambda: is_so() or next(steps) > STEPS_MAX, seconds=self._lease_seconds * leases)
        return is_so()

    def _is_quiet(self) -> bool:
        """Whether nothing more happens by itself."""
        if not self._caller.is_idle or self._faults.outstanding:
            return False
        return all(map(is_at_rest, self._tables.runs.values()))

    # -- hosts

    def _boot(self) -> None:
        self._workers += 1
        host = self._world.host(f"worker-{self._workers}")

        async def work() -> None:
            async with self._holdfast(host, worker=True):
                await asyncio.Event().wait()

        host.spawn(work())

    def _holdfast(self, host: Host, *, worker: bool) -> Holdfast:
        effects = StubbedEffects(
            host,
            self._fake,
            self._ledger,
            trace=self._trace,
            faults=self._faults,
            is_recorded=self._is_recorded,
            slower_seconds=self._slower_seconds,
        )
        return Holdfast(
            self._model.seen_from(host),
            packs=self._case.packs,
            worker=worker,
            lease=self._lease_seconds,
            _pace=self._pace,
            _platform=replace(host.platform, performer=partial(ProvedPerformer, effects)),
        )

    def _kill(self, host: Host) -> None:
        """Another host takes its place."""
        host.kill()
        if self._caller.is_at(host):
            self._caller.move()
        else:
            self._boot()

    # -- the store, looked at from outside

    def _has_ready(self) -> bool:
        runs, now_ms = self._tables.runs, self._model.inner.now_ms()
        return any((runs[run_id].wake_at_ms or 0) <= now_ms for run_id in self._tables.waking)

    def _is_recorded(self, run_id: str, step: str) -> bool:
        journal = self._tables.journals.get(run_id, ())
        return any(isinstance(entry, Performed | GaveUp) and entry.step == step for entry in journal)

    # -- what came of it

    def _look(self) -> dict[str, str]:
        return {name: CODEC.encode(value, what=name).decode() for name, value in self._fake.look().items()}

    def _receipts(self) -> dict[str, Receipt]:
        found: dict[str, Receipt] = {}
        ended = [run.id for run in self._tables.runs.values() if run.status in {Status.CANCELLED, Status.FAILED}]
        if ended:
            self._go_on(self._caller.ask_receipts(ended, found).done, leases=10)
        return found

    def _outcome(self, before: dict[str, str], receipts: dict[str, Receipt], *, is_over: bool) -> WorldOutcome:
        tables = self._tables
        runs = [run for run in tables.runs.values() if not run.workflow.startswith("holdfast.")]
        return WorldOutcome(
            schedule=self._schedule,
            boundaries=self._faults.boundaries,
            happenings=self._trace.happenings,
            ledger=self._ledger,
            runs=runs,
            journals={run.id: tuple(tables.journals[run.id]) for run in runs},
            blobs={run.id: dict(tables.blobs.get(run.id, {})) for run in runs},
            receipts=receipts,
            root=self._caller.root,
            noted=self._trace.noted,
            seen=self._fake.seen,
            before=before,
            after=self._look(),
            is_over=is_over,
            lasted_seconds=self._world.now(),
            faults_met=self._faults.met,
        )


def is_at_rest(run: Run) -> bool:
    """Whether a run has settled, or only waits for a signal."""
    if run.status in SETTLED:
        return True
    if run.status is not Status.WAITING or run.wake_at_ms is not None or run.unread:
        return False
    return run.waits is None or not any(wait.kind in {"child", "retry", "timer"} for wait in waits.decode(run.waits))


def pace_for(lease_seconds: float) -> Pace:
    """The engine looks as seldom as the lease allows: notices are not lost here, and idle looks only cost time."""
    seldom = lease_seconds * 2
    return Pace(
        code_seconds_max=0.0,
        wake_poll_seconds=seldom,
        mail_poll_seconds=seldom,
        waiters_poll_seconds=seldom,
        tasks_poll_seconds=seldom,
        rules_poll_seconds=seldom,
        events_poll_seconds=seldom,
        prune_seconds=seldom * 50,
        timeouts_seconds=lease_seconds / 2,
        relay_seconds=seldom * 50,
        hangs_seconds=seldom * 50,
        uptake_seconds=seldom,
        idle_ms=Millis(1_000),
    )
