"""One process of the engine: its parts put together, started and stopped in order.

Stop: take no more work → let effects in flight end, within the grace → give the rest back, and the leases of duties →
close. All within 15 s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

from msgspec import Struct

from holdfast import events
from holdfast.engine.api import apikeys
from holdfast.engine.api.admission import Admission
from holdfast.engine.api.apikeys import ApiKeys
from holdfast.engine.api.documents import Documents
from holdfast.engine.api.operations import Operations
from holdfast.engine.api.queries import Queries
from holdfast.engine.api.registry import Registry
from holdfast.engine.api.scope import Scope
from holdfast.engine.api.service import Service
from holdfast.engine.api.subscriptions import Subscriptions
from holdfast.engine.api.waiters import Waiters
from holdfast.engine.code.sandbox import forbid_blocking_calls, keep_order, keep_the_collector_out
from holdfast.engine.committer import Committer
from holdfast.engine.duties.hangs import Hangs
from holdfast.engine.duties.leaders import DUTIES, Leaders
from holdfast.engine.duties.periodic import Duty, Periodic, name_of
from holdfast.engine.duties.pruner import Pruner
from holdfast.engine.duties.relay import Relay
from holdfast.engine.duties.rescuer import Rescuer
from holdfast.engine.pace import Pace
from holdfast.engine.remote.task_watch import TaskWatch
from holdfast.engine.remote.tasks import Tasks
from holdfast.engine.replay_check import ReplayCheck
from holdfast.engine.tracing import Tracing
from holdfast.engine.worker.lease import WorkerLease
from holdfast.engine.worker.waker import Waker
from holdfast.engine.worker.worker import Worker
from holdfast.errors import HoldfastError, UsageError
from holdfast.events import Events
from holdfast.kernel import leaders
from holdfast.kernel.leaders import Holder
from holdfast.kernel.runs import Run
from holdfast.ports.clock import Clock
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.ports.notices import Notice, Ready
from holdfast.ports.store import Serves, Store

Part = Callable[[], Coroutine[Any, Any, None]]


class Ports(Struct, frozen=True):
    """The outside, as this replica sees it."""

    store: Store
    clock: Clock
    ids: Ids
    codec: Codec
    tracing: Tracing | None = None


class Replica:
    """A client of the store; with `worker` an executor of runs, with `duties` a candidate for what one does for all."""

    def __init__(
        self,
        ports: Ports,
        registry: Registry,
        *,
        emit: Events,
        pace: Pace,
        namespace: str,
        worker: bool,
        duties: bool,
        instance: str,
        lease_ms: int,
        concurrency: int,
        strict: bool,
        host: str,
        pid: int,
    ) -> None:
        self.store = ports.store
        self._ports = ports
        self._emit = emit
        self._pace = pace
        self._registry = registry
        self._served = frozenset(registry.served)
        self._tasks: list[asyncio.Task[Any]] = []
        self._started = False
        self._winding_since_ms: float | None = None
        self.subscriptions = Subscriptions()
        committer = self._committer = Committer(
            ports.store, emit=emit, on_told=self._on_told, on_changed=self.subscriptions.changed
        )
        self._worker: Worker | None = None
        self.lease: WorkerLease | None = None
        self.leaders: Leaders | None = None
        self._attendants: list[Periodic] = []
        self._waker: Waker | None = None
        self._waking: Periodic | None = None
        self._waiters = Waiters(ports.store, clock=ports.clock, emit=emit, pace=pace, held_here=self._held_here)
        self._task_watch = TaskWatch(ports.store, clock=ports.clock, emit=emit, pace=pace)
        self.api_keys = ApiKeys(ports.store, pace=pace)
        if worker:
            self.lease = WorkerLease(
                ports.store,
                clock=ports.clock,
                ids=ports.ids,
                ttl_ms=lease_ms,
                serves=Serves(namespace, registry.served, host, pid, concurrency),
                emit=emit,
                pace=pace,
                on_lost=self._on_lease_lost,
                on_reliable=self._on_lease_reliable,
                on_renewed=self._on_lease_renewed,
            )
            self._worker = Worker(
                ports.store,
                committer,
                lease=self.lease,
                registry=registry,
                codec=ports.codec,
                ids=ports.ids,
                clock=ports.clock,
                emit=emit,
                pace=pace,
                task_watch=self._task_watch,
                namespace=namespace,
                concurrency=concurrency,
                on_settled=self._waiters.settled,
                on_wake_at=self._on_wake_at,
                on_claimed=self._on_claimed,
                on_gone=self._waiters.look,
                tracing=ports.tracing,
            )
            self._waker = Waker(
                ports.store,
                namespace=namespace,
                workflows=registry.served,
                emit=emit,
                pace=pace,
                ring=self._worker.ring,
                has_room=lambda: self._worker is not None and self._worker.has_room,
            )
            self._waking = self._attendant(self._waker)
            self._attendant(
                Hangs(
                    ports.store,
                    namespace=namespace,
                    owner=self._owner,
                    threads=lambda: self.threads_given_up,
                    pace=pace,
                )
            )
        if duties:
            self._lead(
                Rescuer(ports.store, ttl_ms=lease_ms, emit=emit, pace=pace, ring=self._on_rescued),
                Pruner(ports.store, emit=emit, pace=pace),
                Relay(ports.store, ttl_ms=lease_ms, emit=emit, pace=pace, ring=self._on_relayed),
                holder=Holder(instance, ports.ids.nonce()),
                lease_ms=lease_ms,
            )
        self._strict = strict
        self._services: dict[str, Service] = {}
        self.is_open = False
        self.service = self.service_in(namespace)

    @property
    def threads_given_up(self) -> int:
        """How many threads of this process hang in calls that are not waited for any more."""
        return 0 if self._worker is None else self._worker.performer.threads_given_up

    def _owner(self) -> str:
        return "" if self.lease is None else self.lease.owner

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
        taker = worker.admission if worker else Admission(ports.store, self._committer, emit=self._emit, taker=None)
        service = self._services[namespace] = Service(
            scope,
            admission=taker,
            waiters=self._waiters,
            operations=Operations(scope, waiters=self._waiters, strict=self._strict, on_pending=self._on_pending),
            queries=Queries(scope, self.subscriptions, served_here=frozenset(self._registry.served if worker else ())),
            replayer=ReplayCheck(scope),
            on_pending=self._on_pending,
        )
        return service

    def _scope(self, namespace: str) -> Scope:
        return Scope(
            self._ports.store,
            self._committer,
            registry=self._registry,
            codec=self._ports.codec,
            ids=self._ports.ids,
            emit=self._emit,
            pace=self._pace,
            namespace=namespace,
            is_open=lambda: self.is_open,
            tracing=self._ports.tracing,
        )

    async def start(self) -> None:
        """Open the store and begin to work."""
        if self._started:
            raise UsageError("this Holdfast has been used already", hint="Make a new Holdfast for each `async with`.")
        self._started = True
        await self._ports.store.open()
        try:
            if caution := self._ports.store.caution:
                self._emit(events.StoreMayLose(caution))
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
            await self.lease.join()
            self._run(self.lease.keep, self._worker.claim, self._worker.deliver)
            self._emit(events.ReplicaStarted(self.lease.owner, self._registry.served))
        if self.leaders is not None:
            self._run(self.leaders.keep)
        self._run(*(attendant.attend for attendant in self._attendants))
        self._run(self._waiters.watch, self._task_watch.watch)
        self._ports.store.watch(self._on_notice)
        self.is_open = True

    def wind_down(self) -> None:
        """Begin nothing more. The grace for what is under way begins now, and not when `stop` is called."""
        if self._winding_since_ms is None:
            self._winding_since_ms = self._ports.clock.steady_ms()
            if self._worker is not None:
                self._worker.wind_down()

    async def stop(self) -> None:
        """Stop in order; loses nothing. Whatever cannot be said to the store, the lease's expiry will."""
        left = 0
        self.is_open = False
        self.wind_down()
        if self._worker is not None and self._winding_since_ms is not None:
            gone_seconds = (self._ports.clock.steady_ms() - self._winding_since_ms) / 1000
            left = await self._worker.stop(max(0.0, self._pace.grace_seconds - gone_seconds))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.last_words_seconds):
                await self._committer.drained()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._leave(left)
        finally:
            await self._ports.store.close()

    async def _leave(self, left: int) -> None:
        goodbyes: list[Coroutine[Any, Any, None]] = []
        if self.leaders is not None:
            goodbyes.append(self._said(self.leaders.release()))
        if self.lease is not None and not self._is_in_a_once_effect():
            goodbyes.append(self._said(self._ports.store.leave(self.lease.owner)))
        await asyncio.gather(*goodbyes)
        if self.lease is not None:
            self._emit(events.ReplicaStopped(self.lease.owner, left))

    def _is_in_a_once_effect(self) -> bool:
        """Whether its thread, or code that takes no cancellation, is still at a `once` effect.

        Then the lease is left to expire. Given back, the run would be another's at once, who would ask what became of
        the effect while it is still going on here.
        """
        return self._worker is not None and self._worker.performer.is_in_a_once_effect

    async def _said(self, goodbye: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._pace.last_words_seconds):
                await goodbye
        except (HoldfastError, TimeoutError) as error:
            why = (
                str(error)
                or f"leaving was not answered within {self._pace.last_words_seconds:g} s; the lease will expire instead"
            )
            self._emit(events.StoreTroubled(why))

    # -- what the parts tell each other

    def _held_here(self, run_id: str) -> bool:
        return self._worker is not None and self._worker.holds(run_id)

    def _on_told(self, run_ids: Collection[str]) -> None:
        if self._worker is None:
            return
        self._worker.has_mail(run_ids)

    def _on_notice(self, notice: Notice) -> bool:
        """Another process has changed something. False if it is work, and there is no room for it here."""
        if notice.everything or any(kind == apikeys.KIND for _, kind in notice.documents):
            self.api_keys.forget()
        if notice.everything:
            self._waiters.look()
            self.subscriptions.all_changed()
            self._task_watch.look()
        else:
            self._waiters.look_at(notice.settled)
            for run_id in notice.runs:
                self.subscriptions.changed(run_id)
            for namespace, kind in notice.documents:
                if kind != leaders.KIND:  # who leads what concerns nobody here
                    self.subscriptions.documents_changed(namespace, kind)
                    self.subscriptions.anything_changed()
                    self._task_watch.look()
        if self._worker is None or self._waking is None:
            return False
        if notice.everything:
            self._waking.nudge()
            self._worker.ring_for_mail()
        elif notice.told:
            self._worker.has_news_for(notice.told)
        return self._has_use_for(notice.ready)

    def _has_use_for(self, ready: tuple[Ready, ...]) -> bool:
        """Take up what is ready and served here. False if none is, or if there is no room for it."""
        assert self._worker is not None
        now_ms = self.store.now_ms()
        mine = [each for each in ready if each.namespace == self.service.namespace and each.workflow in self._served]
        for each in mine:
            # Also what was ready at once for the process that tells of it: its clock may be ahead of ours.
            if each.wake_ms > now_ms:
                self._on_wake_at(each.wake_ms)
            elif self._worker.has_room:
                self._worker.ring()
        # Judged by the room alone, and not by the clock: a full worker that plans for a wake-up which only it was
        # given would keep it from those that have room.
        return bool(mine) and self._worker.has_room

    def _on_lease_lost(self) -> None:
        if self._worker is not None and self.lease is not None:
            age_ms = round(self.lease.age_ms)
            self._emit(events.LeaseWasLost(self.lease.owner, self._worker.drop_all(), age_ms))

    def _on_lease_renewed(self) -> None:
        if self._worker is not None:
            self._worker.make_sure()

    def _on_lease_reliable(self) -> None:
        if self._worker is not None:
            self._worker.ring()

    def _on_pending(self, run: Run) -> None:
        if run.wake_ms is not None:
            self._on_wake_at(run.wake_ms)

    def _on_claimed(self) -> None:
        if self._waker is not None and self._waking is not None and self._waker.has_rung:
            self._waking.nudge()  # what was due is taken; see what is next

    def _on_wake_at(self, wake_ms: int) -> None:
        if self._waker is not None and self._waking is not None and self._waker.is_news(wake_ms):
            self._waking.nudge()

    def _on_relayed(self) -> None:
        """Messages have been delivered that nobody else tells us of."""
        if self._worker is not None:
            self._worker.ring()
            self._worker.ring_for_mail()

    def _on_rescued(self) -> None:
        if self._worker is not None:
            self._worker.ring()

    def _lead(self, *duties: Duty, holder: Holder, lease_ms: int) -> None:
        """Attend to duties that one process does for all, while it is this one."""
        assert tuple(map(name_of, duties)) == DUTIES
        self.leaders = Leaders(
            self._ports.store,
            DUTIES,
            holder=holder,
            clock=self._ports.clock,
            ttl_ms=leaders.ttl_ms(lease_ms),
            emit=self._emit,
        )
        for duty in duties:
            allowed = partial(self.leaders.until_leads, name_of(duty))
            self._attendants.append(Periodic(duty, emit=self._emit, pace=self._pace, allowed=allowed))

    def _attendant(self, duty: Duty) -> Periodic:
        attendant = Periodic(duty, emit=self._emit, pace=self._pace)
        self._attendants.append(attendant)
        return attendant

    def _run(self, *parts: Part) -> None:
        self._tasks += [asyncio.create_task(self._for_ever(part)) for part in parts]

    async def _for_ever(self, part: Part) -> None:
        """A part works for ever. One that raises is a fault of ours: it is said, and the part begins anew."""
        while True:
            try:
                await part()
            except Exception as error:  # noqa: BLE001 - see above
                name = getattr(part, "__qualname__", "?")
                self._emit(events.PartFailed(name, f"{type(error).__name__}: {error}"))
            await self._ports.clock.pause(self._pace.fault_pause_seconds)
