"""One process of the engine: its parts put together, started and stopped in order.

Stop: take no more work → let effects in flight end, within the grace → give the rest back, and the leases of duties →
close. All within 15 s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from holdfast import events
from holdfast.engine import bulk_pack
from holdfast.engine.api.admission import Admission
from holdfast.engine.api.apikeys import ApiKeys
from holdfast.engine.api.at_work import StepsAtWork
from holdfast.engine.api.documents import Documents
from holdfast.engine.api.lanes import LaneVerbs
from holdfast.engine.api.operations import Operations
from holdfast.engine.api.queries import Queries
from holdfast.engine.api.rate_limits import RateLimits
from holdfast.engine.api.registry import Registry
from holdfast.engine.api.scope import Scope
from holdfast.engine.api.service import Service
from holdfast.engine.api.subscriptions import Subscriptions
from holdfast.engine.api.waiters import Waiters
from holdfast.engine.code.sandbox import forbid_blocking_calls, keep_order, keep_the_collector_out
from holdfast.engine.committer import Committer
from holdfast.engine.duties.announcer import Announcer
from holdfast.engine.duties.hangs import Hangs
from holdfast.engine.duties.leaders import DUTIES, Leaders
from holdfast.engine.duties.limiters import Limiters
from holdfast.engine.duties.periodic import Duty, Periodic, name_of
from holdfast.engine.duties.pruner import Pruner
from holdfast.engine.duties.relay import Relay
from holdfast.engine.duties.rescuer import Rescuer
from holdfast.engine.duties.timeouts import Timeouts
from holdfast.engine.duties.uptake import Uptake
from holdfast.engine.ports import Ports
from holdfast.engine.remote.task_watch import TaskWatch
from holdfast.engine.remote.tasks import Tasks
from holdfast.engine.replay_check import ReplayCheck
from holdfast.engine.wakeups import Wakeups, Woken
from holdfast.engine.worker.codes import Codes
from holdfast.engine.worker.held import HeldRuns
from holdfast.engine.worker.lease import WorkerLease
from holdfast.engine.worker.waker import Waker
from holdfast.engine.worker.watchdog import Watchdog
from holdfast.engine.worker.worker import Worker
from holdfast.errors import HoldfastError, UsageError
from holdfast.kernel import leaders
from holdfast.kernel.leaders import Holder
from holdfast.kernel.timeouts import TimeLimit
from holdfast.kernel.times import Millis, Steady
from holdfast.ports.store import Serves

Part = Callable[[], Coroutine[Any, Any, None]]


class Replica:
    """A client of the store; with `worker` an executor of runs, with `duties` a candidate for what one does for all."""

    def __init__(
        self,
        ports: Ports,
        registry: Registry,
        *,
        serves: Serves,
        worker: bool,
        duties: bool,
        instance: str,
        lease_ms: Millis,
        strict: bool,
        record_inputs: bool,
    ) -> None:
        self.store = ports.store
        self._ports = ports
        self._registry = registry
        self._strict = strict
        self._record_inputs = record_inputs
        self._tasks: list[asyncio.Task[Any]] = []
        self._started = False
        self._winding_since_steady_ms: Steady | None = None
        self._services: dict[str, Service] = {}
        self._periodic: list[Periodic] = []
        self._worker: Worker | None = None
        self._codes: Codes | None = None
        self._watchdog: Watchdog | None = None
        self.lease: WorkerLease | None = None
        self.leaders: Leaders | None = None
        self.is_open = False

        held = self._held = HeldRuns()
        self.api_keys = ApiKeys(ports.store, pace=ports.pace)
        self._limiters = Limiters(ports.store, instance=instance, on_counted=self._on_limiters_counted, pace=ports.pace)
        self.limits = RateLimits(
            ports.store, clock=ports.clock, emit=ports.emit, pace=ports.pace, on_first_use=self._count_limiters
        )
        self.subscriptions = Subscriptions()
        self._task_watch = TaskWatch(ports.store, clock=ports.clock, emit=ports.emit, pace=ports.pace)
        self._waiters = Waiters(ports.store, clock=ports.clock, emit=ports.emit, pace=ports.pace, held_here=held.holds)
        self._wakeups = Wakeups(
            now_ms=ports.store.now_ms,
            emit=ports.emit,
            waiters=self._waiters,
            subscriptions=self.subscriptions,
            task_watch=self._task_watch,
            api_keys=self.api_keys,
        )
        self._committer = Committer(
            ports.store,
            emit=ports.emit,
            on_told=self._wakeups.on_told,
            on_changed=self._wakeups.on_changed,
            on_unsure=self._wakeups.on_unsure,
        )
        if worker:
            self._employ(held, serves, instance, lease_ms)
        if duties:
            self._lead(Holder(instance, ports.ids.nonce()), lease_ms)
        self.service = self.service_in(serves.namespace)
        if self._worker is not None:
            self._worker.performer.provide(bulk_pack.runs, self.service.bulk)

    def _employ(self, held: HeldRuns, serves: Serves, instance: str, lease_ms: Millis) -> None:
        """Execute runs here."""
        ports, wakeups = self._ports, self._wakeups
        codes = self._codes = Codes(
            ports.store,
            namespace=serves.namespace,
            workflows=self._registry.served_workflows(),
            owner=lambda: "" if self.lease is None else self.lease.owner,
        )
        lease = self.lease = WorkerLease(
            ports.store,
            clock=ports.clock,
            ids=ports.ids,
            instance=instance,
            ttl_ms=lease_ms,
            serves=serves,
            emit=ports.emit,
            pace=ports.pace,
            on_lost=wakeups.on_lease_lost,
            on_reliable=wakeups.on_lease_reliable,
            on_renewed=wakeups.on_lease_renewed,
            announce=codes.announce,
        )
        worker = self._worker = Worker(
            ports,
            self._committer,
            lease=lease,
            registry=self._registry,
            task_watch=self._task_watch,
            held=held,
            wakeups=wakeups,
            serves=serves,
            strict=self._strict,
            record_inputs=self._record_inputs,
            codes=codes,
            limits=self.limits,
        )
        waker = Waker(
            ports.store,
            namespace=serves.namespace,
            workflows=serves.workflows,
            emit=ports.emit,
            pace=ports.pace,
            on_due=wakeups.on_due,
        )
        waking = self._attend(waker)
        self._attend(
            Hangs(
                ports.store,
                namespace=serves.namespace,
                owner=lambda: lease.owner,
                threads=lambda: worker.performer.threads_given_up,
                pace=ports.pace,
            )
        )
        self._attend(
            Announcer(
                ports.store,
                namespace=serves.namespace,
                owner=lambda: lease.owner,
                at_work=lambda: held.at_work,
                ttl_ms=lease_ms,
            )
        )
        self._attend(
            Uptake(
                ports.store,
                namespace=serves.namespace,
                codes=codes.here,
                owner=lambda: lease.owner if lease.is_reliable() else "",
                room=lambda: worker.slots.free,
                commit=self._committer.commit,
                renew=codes.renew,
                on_taken=worker.claims.make_sure,
                ids=ports.ids,
                emit=ports.emit,
                pace=ports.pace,
            )
        )
        wakeups.attach(Woken(worker, lease, waker, waking, serves.namespace, frozenset(serves.workflows)))

    def _lead(self, holder: Holder, lease_ms: Millis) -> None:
        """Attend to duties that one process does for all, while it is this one."""
        ports, wakeups = self._ports, self._wakeups
        self.leaders = Leaders(
            ports.store,
            DUTIES,
            holder=holder,
            clock=ports.clock,
            ttl_ms=leaders.ttl_ms(lease_ms),
            emit=ports.emit,
        )
        duties: tuple[Duty, ...] = (
            Rescuer(ports.store, ttl_ms=lease_ms, emit=ports.emit, pace=ports.pace, ring=wakeups.on_rescued),
            Pruner(ports.store, emit=ports.emit, pace=ports.pace),
            Relay(ports.store, ttl_ms=lease_ms, emit=ports.emit, pace=ports.pace, ring=wakeups.on_relayed),
            Timeouts(ports.store, emit=ports.emit, pace=ports.pace, end=self._time_out),
        )
        assert tuple(map(name_of, duties)) == DUTIES
        for duty in duties:
            self._attend(duty, partial(self.leaders.until_leads, name_of(duty)))

    def _count_limiters(self) -> None:
        """From the first use on: a process that limits nothing says nothing."""
        self._run(Periodic(self._limiters, emit=self._ports.emit, pace=self._ports.pace).attend)

    def _on_limiters_counted(self, replicas: int) -> None:
        self.limits.replicas = replicas

    async def _time_out(self, limit: TimeLimit) -> TimeLimit | None:
        return await self.service_in(limit.namespace).operations.time_out(limit)

    def _attend(self, duty: Duty, allowed: Callable[[], Awaitable[None]] | None = None) -> Periodic:
        periodic = Periodic(duty, emit=self._ports.emit, pace=self._ports.pace, allowed=allowed)
        self._periodic.append(periodic)
        return periodic

    @property
    def threads_given_up(self) -> int:
        """How many threads of this process hang in calls that are not waited for any more."""
        return 0 if self._worker is None else self._worker.performer.threads_given_up

    def documents_in(self, namespace: str) -> Documents:
        """The documents of a namespace, or of `COMMON`."""
        return Documents(self._scope(namespace), self.subscriptions)

    def tasks_in(self, namespace: str) -> Tasks:
        """The verbs of remote workers, on the tasks of a namespace."""
        return Tasks(self._scope(namespace), self._task_watch)

    def service_in(self, namespace: str) -> Service:
        """The verbs on the runs of a namespace. A run of another one than the worker's is not executed here."""
        if (service := self._services.get(namespace)) is not None:
            return service
        ports, worker = self._ports, self._worker if not self._services else None
        scope = self._scope(namespace)
        taker = (
            worker.admission if worker else Admission(ports.store, self._committer, emit=self._ports.emit, taker=None)
        )
        lanes = LaneVerbs(scope, on_set=self._wakeups.on_lane_set)
        service = self._services[namespace] = Service(
            scope,
            admission=taker,
            waiters=self._waiters,
            operations=Operations(
                scope, waiters=self._waiters, strict=self._strict, on_pending=self._wakeups.on_pending
            ),
            queries=Queries(
                scope,
                self.subscriptions,
                lanes=lanes,
                served_here=frozenset(self._registry.served if worker else ()),
                at_work=StepsAtWork(ports.store, namespace, self._held.at_work_for if worker else None),
            ),
            lanes=lanes,
            replayer=ReplayCheck(scope),
            limits=self.limits,
            on_pending=self._wakeups.on_pending,
            on_rules_changed=self._wakeups.on_rules_changed,
        )
        return service

    def _scope(self, namespace: str) -> Scope:
        return Scope(
            self._ports.store,
            self._committer,
            registry=self._registry,
            codec=self._ports.codec,
            ids=self._ports.ids,
            emit=self._ports.emit,
            pace=self._ports.pace,
            namespace=namespace,
            is_open=lambda: self.is_open,
            tracing=self._ports.tracing,
            open_value=self._ports.open_value,
        )

    async def start(self) -> None:
        """Open the store and begin to work."""
        if self._started:
            raise UsageError("this Holdfast has been used already", hint="Make a new Holdfast for each `async with`.")
        self._started = True
        await self._ports.store.open()
        try:
            if caution := self._ports.store.caution:
                self._ports.emit(events.StoreMayLose(caution))
            if reason := self._ports.store.poll_reason:
                self._ports.emit(events.NoticesPolled(reason))
            await self._begin()
        except BaseException:
            await self._ports.store.close()
            raise

    async def _begin(self) -> None:
        if self._worker is not None and self.lease is not None:
            forbid_blocking_calls()
            keep_order()
            keep_the_collector_out()
            self._worker.loop = asyncio.get_running_loop()
            self._watchdog = Watchdog(self._ports.pace.code_seconds_max)
            self._watchdog.start()
            await self.lease.join()
            self._run(self.lease.keep, self._worker.claims.claim, self._worker.mail.deliver, self._worker.gate.watch)
            self._ports.emit(events.ReplicaStarted(self.lease.owner, self._registry.served))
        if self.leaders is not None:
            self._run(self.leaders.keep)
        self._run(*(periodic.attend for periodic in self._periodic))
        self._run(self._waiters.watch, self._task_watch.watch)
        self._ports.store.watch(self._wakeups.on_notice)
        self.is_open = True

    def wind_down(self) -> None:
        """Begin nothing more. The grace for what is under way begins now, and not when `stop` is called."""
        if self._winding_since_steady_ms is None:
            self._winding_since_steady_ms = self._ports.clock.steady_ms()
            if self._worker is not None:
                self._worker.wind_down()

    async def stop(self) -> None:
        """Stop in order; loses nothing. Whatever cannot be said to the store, the lease's expiry will."""
        left = 0
        self.is_open = False
        self.wind_down()
        if self._worker is not None and self._winding_since_steady_ms is not None:
            gone_seconds = (self._ports.clock.steady_ms() - self._winding_since_steady_ms) / 1000
            left = await self._worker.stop(max(0.0, self._ports.pace.grace_seconds - gone_seconds))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._ports.pace.last_words_seconds):
                await self._committer.drained()
        if self._watchdog is not None:
            self._watchdog.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._leave(left)
        finally:
            await self._ports.store.close()

    async def _leave(self, left: int) -> None:
        goodbyes: list[Coroutine[Any, Any, None]] = [self._said(self._limiters.withdraw())]
        if self.leaders is not None:
            goodbyes.append(self._said(self.leaders.release()))
        if self.lease is not None and not self._is_in_a_once_effect():
            goodbyes.append(self._said(self._ports.store.leave(self.lease.owner)))
        if self._codes is not None:
            goodbyes.append(self._said(self._codes.withdraw()))
        await asyncio.gather(*goodbyes)
        if self.lease is not None:
            self._ports.emit(events.ReplicaStopped(self.lease.owner, left))

    def _is_in_a_once_effect(self) -> bool:
        """Whether its thread, or code that takes no cancellation, is still at a `once` effect.

        Then the lease is left to expire. Given back, the run would be another's at once, who would ask what became of
        the effect while it is still going on here.
        """
        return self._worker is not None and self._worker.performer.is_in_a_once_effect

    async def _said(self, goodbye: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._ports.pace.last_words_seconds):
                await goodbye
        except (HoldfastError, TimeoutError) as error:
            limit = f"{self._ports.pace.last_words_seconds:g} s"
            why = str(error) or f"leaving was not answered within {limit}; the lease will expire instead"
            self._ports.emit(events.StoreTroubled(why))

    def _run(self, *parts: Part) -> None:
        self._tasks += [asyncio.create_task(self._forever(part)) for part in parts]

    async def _forever(self, part: Part) -> None:
        """A part works forever. One that raises is a fault of ours: an event says so, and the part is started again."""
        while True:
            try:
                await part()
            except Exception as error:  # noqa: BLE001 - see above
                name = getattr(part, "__qualname__", "?")
                self._ports.emit(events.PartFailed(name, f"{type(error).__name__}: {error}"))
            await self._ports.clock.pause(self._ports.pace.fault_pause_seconds)
