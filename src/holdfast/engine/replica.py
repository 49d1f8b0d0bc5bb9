"""One process of the engine: its parts put together, started and stopped in order.

Stop: take no more work → let effects in flight end, within the grace → give the rest back → close. All within 15 s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from msgspec import Struct

from holdfast.engine import events
from holdfast.engine.access import Access
from holdfast.engine.admission import Admission
from holdfast.engine.committer import Committer
from holdfast.engine.duties import Attendant, Duty
from holdfast.engine.events import Events
from holdfast.engine.followers import Followers
from holdfast.engine.guards import forbid_blocking_calls
from holdfast.engine.keeper import Keeper
from holdfast.engine.lookouts import Lookouts
from holdfast.engine.operations import Operations
from holdfast.engine.outcomes import Outcomes
from holdfast.engine.pruner import Pruner
from holdfast.engine.registry import Registry
from holdfast.engine.rescuer import Rescuer
from holdfast.engine.service import Service
from holdfast.engine.waker import Waker
from holdfast.engine.worker import Worker
from holdfast.errors import HoldfastError, UsageError
from holdfast.kernel.changes import Run
from holdfast.ports.clock import Clock
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.ports.store import Serves, Store

GRACE_SECONDS = 10.0
LAST_WORDS_SECONDS = 2.0
FAULT_PAUSE_SECONDS = 0.5
Part = Callable[[], Coroutine[Any, Any, None]]


class Ports(Struct, frozen=True):
    """The outside, as this replica sees it."""

    store: Store
    clock: Clock
    ids: Ids
    codec: Codec


class Replica:
    """A client of the store, and with `worker=True` an executor of runs."""

    def __init__(
        self,
        ports: Ports,
        registry: Registry,
        *,
        emit: Events,
        namespace: str,
        worker: bool,
        lease_ms: int,
        concurrency: int,
        strict: bool,
    ) -> None:
        self._ports = ports
        self._emit = emit
        self._registry = registry
        self._tasks: list[asyncio.Task[Any]] = []
        self._started = False
        followers = self._followers = Followers()
        committer = self._committer = Committer(
            ports.store, emit=emit, on_told=self._on_told, on_changed=followers.changed
        )
        self._worker: Worker | None = None
        self._keeper: Keeper | None = None
        self._attendants: list[Attendant] = []
        self._waker: Waker | None = None
        self._waking: Attendant | None = None
        self._outcomes = Outcomes(ports.store, clock=ports.clock, emit=emit, held_here=self._held_here)
        if worker:
            self._keeper = Keeper(
                ports.store,
                clock=ports.clock,
                ids=ports.ids,
                ttl_ms=lease_ms,
                serves=Serves(namespace, registry.served),
                emit=emit,
                on_lost=self._on_lease_lost,
                on_reliable=self._on_lease_reliable,
            )
            self._worker = Worker(
                ports.store,
                committer,
                keeper=self._keeper,
                registry=registry,
                codec=ports.codec,
                ids=ports.ids,
                clock=ports.clock,
                emit=emit,
                namespace=namespace,
                concurrency=concurrency,
                on_settled=self._outcomes.settled,
                on_wake_at=self._on_wake_at,
                on_claimed=self._on_claimed,
                on_gone=self._outcomes.look,
            )
            self._waker = Waker(
                ports.store,
                namespace=namespace,
                workflows=registry.served,
                ring=self._worker.ring,
                has_room=lambda: self._worker is not None and self._worker.has_room,
            )
            self._waking = self._attendant(self._waker)
            self._attendant(Rescuer(ports.store, ttl_ms=lease_ms, emit=emit, ring=self._worker.ring))
            self._attendant(Pruner(ports.store, emit=emit))
        admission = self._worker.admission if self._worker else Admission(ports.store, committer, emit=emit, taker=None)
        access = self._access = Access(
            ports.store,
            committer,
            registry=registry,
            codec=ports.codec,
            ids=ports.ids,
            emit=emit,
            namespace=namespace,
        )
        operations = Operations(access, outcomes=self._outcomes, strict=strict, on_pending=self._on_pending)
        self.service = Service(
            access,
            admission=admission,
            outcomes=self._outcomes,
            operations=operations,
            lookouts=Lookouts(access, followers, served_here=frozenset(registry.served if worker else ())),
            on_pending=self._on_pending,
        )

    async def start(self) -> None:
        """Open the store and begin to work."""
        if self._started:
            raise UsageError("this Holdfast has been used already", hint="Make a new Holdfast for each `async with`.")
        self._started = True
        await self._ports.store.open()
        try:
            await self._begin()
        except BaseException:
            await self._ports.store.close()
            raise

    async def _begin(self) -> None:
        if self._worker is not None and self._keeper is not None:
            forbid_blocking_calls()
            self._worker.loop = asyncio.get_running_loop()
            await self._keeper.join()
            self._run(self._keeper.keep, self._worker.claim, self._worker.deliver)
            self._run(*(attendant.attend for attendant in self._attendants))
            self._emit(events.ReplicaStarted(self._keeper.owner, self._registry.served))
        self._run(self._outcomes.watch)
        self._ports.store.watch(self._on_foreign_commit)
        self._access.is_open = True

    async def stop(self) -> None:
        """Stop in order; loses nothing. Whatever cannot be said to the store, the lease's expiry will."""
        left = 0
        self._access.is_open = False
        if self._worker is not None:
            left = await self._worker.stop(GRACE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._committer.drained()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._leave(left)
        finally:
            await self._ports.store.close()

    async def _leave(self, left: int) -> None:
        if self._keeper is None:
            return
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._ports.store.leave(self._keeper.owner)
        except (HoldfastError, TimeoutError) as error:
            why = (
                str(error) or f"leaving was not answered within {LAST_WORDS_SECONDS:g} s; the lease will expire instead"
            )
            self._emit(events.StoreTroubled(why))
        self._emit(events.ReplicaStopped(self._keeper.owner, left))

    # -- what the parts tell each other

    def _held_here(self, run_id: str) -> bool:
        return self._worker is not None and self._worker.holds(run_id)

    def _on_told(self, run_ids: Collection[str]) -> None:
        if self._worker is None:
            return
        self._worker.has_mail(run_ids)

    def _on_foreign_commit(self) -> None:
        self._outcomes.look()
        self._followers.all_changed()
        if self._worker is not None and self._waking is not None:
            self._waking.nudge()
            self._worker.ring_for_mail()

    def _on_lease_lost(self) -> None:
        if self._worker is not None and self._keeper is not None:
            self._emit(events.LeaseWasLost(self._keeper.owner, self._worker.drop_all()))

    def _on_lease_reliable(self) -> None:
        if self._worker is not None:
            self._worker.ring()

    def _on_pending(self, run: Run) -> None:
        if run.wake_ms is not None:
            self._on_wake_at(run.wake_ms)

    def _on_claimed(self) -> None:
        if self._waking is not None:
            self._waking.nudge()  # what was due is taken; see what is next

    def _on_wake_at(self, wake_ms: int) -> None:
        if self._waker is not None and self._waking is not None and self._waker.is_news(wake_ms):
            self._waking.nudge()

    def _attendant(self, duty: Duty) -> Attendant:
        attendant = Attendant(duty, emit=self._emit)
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
            await self._ports.clock.pause(FAULT_PAUSE_SECONDS)
