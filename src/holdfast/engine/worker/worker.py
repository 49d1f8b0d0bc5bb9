"""The worker: what a run in memory sees of the process that executes it.

It has three parts: `slots` counts the runs at work, `claims` brings runs into memory, and `mail` delivers what is sent
to them. What is left here is the `RunHost`, the verbs that runs use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from holdfast import events
from holdfast.engine.api.admission import Admission, limited, ruled, wish
from holdfast.engine.api.rate_limits import RateLimits
from holdfast.engine.api.registry import Registry
from holdfast.engine.cancelling import Cancellation, Canceller
from holdfast.engine.code.commands import Command
from holdfast.engine.committer import Committer
from holdfast.engine.flow.gate import EffectGate
from holdfast.engine.ports import Ports
from holdfast.engine.remote.remote_effects import RemoteEffects
from holdfast.engine.remote.task_watch import TaskWatch
from holdfast.engine.runs.activation import Activation
from holdfast.engine.worker import child_lanes
from holdfast.engine.worker.claims import Bell, Claims, blobs_of
from holdfast.engine.worker.codes import Codes
from holdfast.engine.worker.handing import Handing
from holdfast.engine.worker.held import HeldRuns
from holdfast.engine.worker.lease import WorkerLease
from holdfast.engine.worker.mail import Mail
from holdfast.engine.worker.slots import Slots
from holdfast.errors import EngineFault, KilledItsWorkers, LeaseLost, SealedPayload, TransientError
from holdfast.kernel import attributes, ids, keys, transitions
from holdfast.kernel.attributes import PARENT, ROOT
from holdfast.kernel.changes import Answer, Change, Committed, Known
from holdfast.kernel.leases import Standing
from holdfast.kernel.messages import Watcher
from holdfast.kernel.runs import ENDED, Run
from holdfast.kernel.times import Instant
from holdfast.kernel.traces import TRACEPARENT
from holdfast.pack import Workflow
from holdfast.ports.store import History, Serves

T = TypeVar("T")
_NO_LOOP: Any = None  # until the replica starts; a Holdfast may be made before there is a loop


class WorkerWakeups(Protocol):
    """Who is told what becomes of the runs of a worker, see `engine.wakeups`."""

    def on_claimed(self) -> None: ...
    def on_gone(self) -> None: ...
    def on_settled(self, run: Run) -> None: ...
    def on_wake_at(self, wake_at_ms: Instant) -> None: ...
    def on_pending(self, run: Run) -> None: ...


class Worker:
    """Executes runs. It is the `RunHost` of its executions."""

    def __init__(
        self,
        ports: Ports,
        committer: Committer,
        *,
        lease: WorkerLease,
        registry: Registry,
        task_watch: TaskWatch,
        held: HeldRuns,
        wakeups: WorkerWakeups,
        serves: Serves,
        codes: Codes,
        limits: RateLimits,
        record_inputs: bool,
        strict: bool = False,
    ) -> None:
        self.limit = partial(limits.limit, serves.namespace)
        self.strict = strict
        self.record_inputs = record_inputs
        self.seals = ports.open_value is not None
        self.store = ports.store
        self.clock = ports.clock
        self.codec = ports.codec
        self.ids = ports.ids
        self.emit = ports.emit
        self.pace = ports.pace
        self.tracing = ports.tracing
        self.loop: asyncio.AbstractEventLoop = _NO_LOOP
        self.performer = ports.performer(
            concurrency=serves.concurrency,
            codec=ports.codec,
            emit=ports.emit,
            pace=ports.pace,
            threads=ports.threads,
        )
        self.remote_effects = RemoteEffects(
            ports.store,
            task_watch,
            codec=ports.codec,
            clock=ports.clock,
            gate=self,
            emit=ports.emit,
            pace=ports.pace,
        )
        self.gate = EffectGate(
            ports,
            namespace=serves.namespace,
            owner=lambda: lease.owner,
            is_trusted=lease.is_reliable,
            commit=committer.commit,
            on_woken=wakeups.on_pending,
        )
        bell = Bell()
        self.held = held
        self.slots = Slots(serves.concurrency, on_room=bell.ring)
        self.mail = Mail(ports, held, owner=lambda: lease.owner, on_claimable=bell.ring)
        self._handing = Handing(ports.store, codes, self, ids=ports.ids, emit=ports.emit)
        self.claims = Claims(
            ports,
            self,
            held=held,
            slots=self.slots,
            mail=self.mail,
            bell=bell,
            lease=lease,
            serves=serves,
            router=self._handing,
        )
        self.admission = Admission(ports.store, committer, emit=ports.emit, taker=self.claims)
        self.offer = committer.commit
        self._lease = lease
        self.is_trusted = lease.is_reliable
        self._registry = registry
        self.policy_of = registry.policy_of
        self._wakeups = wakeups
        self._canceller = Canceller(
            now_ms=ports.store.now_ms,
            commit=self.commit,
            history=self.history,
            emit=ports.emit,
            on_ended=wakeups.on_settled,
        )

    # -- what its claims need

    def execute(self, history: History, blobs: Mapping[str, bytes], number: int, *, was_cut_short: bool) -> Activation:
        workflow = self._registry.workflow(history.run.workflow)
        return Activation(self, workflow, history, blobs, number, was_cut_short=was_cut_short)

    async def set_aside(self, run: Run, error: Exception) -> None:
        """A journal that cannot be read, written by a newer version, damaged or sealed: a person must look."""
        code, message = EngineFault.code, f"the journal of run {run.id} cannot be read: {type(error).__name__}: {error}"
        if isinstance(error, SealedPayload):
            code, message = error.code, error.message
        answer = await self.commit(
            transitions.decide(
                run, transitions.Stuck(code, message, self._steps_aside(run)), now_ms=self.store.now_ms()
            )
        )
        if isinstance(answer, Committed) and answer.run is not None:
            self.emit(events.RunBlocked(run.id, code, message, run.workflow, run.key))
            self._wakeups.on_settled(answer.run)

    async def block(self, run: Run, message: str) -> None:
        """The run has outlived too many workers, see `kernel.takeovers`: a person must look."""
        stuck = transitions.Stuck(KilledItsWorkers.code, message, self._steps_aside(run))
        answer = await self.commit(transitions.decide(run, stuck, now_ms=self.store.now_ms()))
        if isinstance(answer, Committed) and answer.run is not None:
            self.emit(events.RunBlocked(run.id, KilledItsWorkers.code, message, run.workflow))
            self._wakeups.on_settled(answer.run)

    def _steps_aside(self, run: Run) -> bool:
        return self._registry.workflow(run.workflow).steps_aside

    async def postpone(self, run: Run, wake_at_ms: Instant) -> None:
        """The run may not be executed beside what is executed here, or by this code."""
        await self.commit(transitions.decide(run, transitions.Postponed(wake_at_ms), now_ms=self.store.now_ms()))
        self._wakeups.on_wake_at(wake_at_ms)
        if run.unread:
            await self._canceller.stop_if_asked(run.id)

    def on_claimed(self) -> None:
        self._wakeups.on_claimed()

    def on_gone(self) -> None:
        self._wakeups.on_gone()

    # -- RunHost

    async def until_trusted(self) -> None:
        await self._lease.until_reliable()

    async def insist(self, ask: Callable[[], Awaitable[T]], about: str) -> T:
        while True:
            try:
                return await ask()
            except TransientError as error:
                await self.bear(error, about)

    async def offer_again(self, change: Change, error: TransientError) -> Answer:
        await self.bear(error, change.id)
        return await self.insist(lambda: self.offer(change), change.id)

    async def commit(self, change: Change) -> Answer:
        return await self.insist(lambda: self.offer(change), change.id)

    async def history(self, run_id: str) -> History | None:
        found = await self.insist(lambda: self.store.histories([run_id]), run_id)
        return found[0] if found else None

    async def blobs_of(self, history: History) -> dict[str, bytes]:
        return await self.insist(lambda: blobs_of(self.store, history), history.run.id)

    async def bear(self, error: TransientError, about: str) -> None:
        """The store is in trouble: try again after a while, as long as the lease lasts."""
        self.emit(events.StoreTroubled(str(error)))
        if self._lease.standing is Standing.LOST:
            raise LeaseLost(f"no answer about {about} while the lease lasted") from error
        await self.clock.pause(self.pace.trouble_pause_seconds)

    async def hand_over(self, run: Run, message: str) -> bool:
        return await self._handing.diverged(run, message)

    async def prefer_other(self, run: Run, patches: Sequence[str]) -> bool:
        return await self._handing.prefer_other(run, patches)

    async def admit_child(self, parent: Run, command: Command) -> tuple[Run, bool]:
        assert command.call is not None
        workflow = command.call.target
        assert isinstance(workflow, Workflow)
        self._registry.require(workflow)
        if command.key is not None:
            keys.of_run(command.key)  # here, and not where it is asked for: what is recorded already stays good
        watcher = Watcher(parent.id, command.step) if command.intent.kind == "child" else None
        wanted = wish(
            self.store,
            workflow,
            command.arguments,
            run_id=ids.derived(parent.id, command.step),
            namespace=parent.namespace,
            key=command.key,
            digest=command.intent.digest,
            request_id=ids.joined(parent.id, command.step),
            enters=child_lanes.lane_of_child(command),
        )
        wanted = replace(wanted, priority=parent.priority, watcher=watcher, attributes=_lineage_of(parent))
        wanted = ruled(wanted, workflow, command.call.arguments)
        if workflow.timeout_ms is not None:
            wanted = limited(wanted, workflow, workflow.timeout_ms, now_ms=self.store.now_ms())
        while True:
            try:
                if wanted.enters is not None and not command.detached:
                    await child_lanes.check(self.store, wanted, parent)
                run, created = await self.admission.admit(wanted)
                # A child that ended before this parent asked for it again (it was cancelled, or failed, or its process
                # died) has told its end to an earlier life of the parent: ask to be told again.
                if watcher is not None and (run.id != wanted.run_id or run.status in ENDED):
                    await self.watch(run.id, replace(watcher, epoch=parent.epoch))
                if created and run.wake_at_ms is not None:
                    self._wakeups.on_wake_at(run.wake_at_ms)
            except TransientError as error:
                self.emit(events.StoreTroubled(str(error)))
                await self.clock.pause(self.pace.trouble_pause_seconds)
            else:
                return run, created

    async def cancel(self, run_id: str, reason: str, *, nonce: str, deadline_at_ms: Instant) -> None:
        await self._canceller.ask(Cancellation(run_id, nonce, reason, deadline_at_ms))

    async def watch(self, run_id: str, watcher: Watcher) -> bool:
        change = Change(f"{watcher.run_id}/{watcher.epoch}/{watcher.step}", Known(run_id), watcher=watcher)
        return isinstance(await self.commit(change), Committed)

    def settled(self, run: Run) -> None:
        self.mail.forget(run.id)
        self.held.remove(run.id)  # first: a caller that asks for its result from now on must look it up
        if run.status in ENDED:
            self.emit(events.ended(run, "" if run.error is None else run.error.decode()))
        self._wakeups.on_settled(run)

    def let_go(self, run: Run) -> None:
        self.held.remove(run.id)  # at once: it may be claimed again in the next breath
        self._wakeups.on_gone()
        if self.mail.forget(run.id):
            self.claims.ring()
        if run.wake_at_ms is not None:
            self._wakeups.on_wake_at(run.wake_at_ms)

    def quiet(self) -> None:
        self.slots.quiet()

    def busy(self) -> None:
        self.slots.busy()

    # -- ways out

    def drop_all(self) -> int:
        """The lease is lost: forget every run. Their late writes would be refused anyway."""
        dropped = self.held.drop_all()
        self.gate.lose()
        self._wakeups.on_gone()
        return dropped

    def wind_down(self) -> None:
        """Begin nothing more."""
        self.slots.close()
        self.held.stop()

    async def stop(self, grace_seconds: float) -> int:
        """Begin nothing more, wait for effects in flight up to the grace, drop the rest. Returns how many were left."""
        self.wind_down()
        tasks = self.held.tasks
        if tasks:
            await asyncio.wait(tasks, timeout=grace_seconds)
        effects = self.held.effects
        left = self.held.drop_all()
        self._wakeups.on_gone()
        if left or effects:  # a lone effect is performed in the task of its run
            await asyncio.wait([*tasks, *effects], timeout=self.pace.clean_up_seconds)
        await self.remote_effects.drained(self.pace.clean_up_seconds)
        with suppress(TimeoutError, TransientError):  # then its lease says it
            async with asyncio.timeout(self.pace.clean_up_seconds):
                await self.gate.leave()
        await self.performer.close()
        return left


def _lineage_of(parent: Run) -> bytes:
    known = attributes.decode(parent.attributes)
    trace = {TRACEPARENT: known[TRACEPARENT]} if TRACEPARENT in known else {}
    return attributes.encode({PARENT: parent.id, ROOT: known.get(ROOT, parent.id), **trace})
