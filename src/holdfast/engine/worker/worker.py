"""Executes runs: takes fresh ones by hand, claims the rest in batches, and holds at most `concurrency` at work.

A run that only waits holds no slot. The worker never asks the store whether there is work: it is told, by a bell
that rings when a run became claimable here, when another process has committed, or when a timer is due.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from holdfast import events
from holdfast.engine.api.admission import Admission
from holdfast.engine.api.registry import Registry
from holdfast.engine.code.commands import Command
from holdfast.engine.committer import Committer
from holdfast.engine.pace import Pace
from holdfast.engine.remote.remote_effects import RemoteEffects
from holdfast.engine.remote.task_watch import TaskWatch
from holdfast.engine.runs.activation import Activation
from holdfast.engine.runs.performer import Performer
from holdfast.engine.tracing import Tracing
from holdfast.engine.values import kept, unread
from holdfast.engine.worker.lease import WorkerLease
from holdfast.errors import EngineFault, LeaseLost, TransientError, UnknownWorkflow
from holdfast.events import Emit
from holdfast.kernel import attributes, cancels, ids, keys, transitions
from holdfast.kernel.attributes import PARENT, ROOT
from holdfast.kernel.cancels import Way
from holdfast.kernel.changes import Answer, Change, Committed, Known
from holdfast.kernel.journal import Entry, Joined, Late, Performed, Received, Value, input_of, original_input
from holdfast.kernel.leases import Standing
from holdfast.kernel.messages import Watcher
from holdfast.kernel.runs import ENDED, Run
from holdfast.kernel.starts import Hand, Wanted
from holdfast.kernel.traces import TRACEPARENT
from holdfast.pack import Effect, EffectPolicy, Workflow
from holdfast.ports.clock import Clock
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.ports.store import Claim, History, Store

_NO_LOOP: Any = None  # until the replica starts; a Holdfast may be made before there is a loop


class Worker:
    """Holds runs in memory and drives them. It is the `RunHost` of its executions and the `Taker` of fresh runs."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        *,
        lease: WorkerLease,
        registry: Registry,
        codec: Codec,
        ids: Ids,
        clock: Clock,
        emit: Emit,
        pace: Pace,
        task_watch: TaskWatch,
        namespace: str,
        concurrency: int,
        on_settled: Callable[[Run], None],
        on_wake_at: Callable[[int], None],
        on_claimed: Callable[[], None],
        on_gone: Callable[[], None],
        tracing: Tracing | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.codec = codec
        self.ids = ids
        self.emit = emit
        self.pace = pace
        self.tracing = tracing
        self.loop: asyncio.AbstractEventLoop = _NO_LOOP
        self.performer = Performer(concurrency=concurrency, codec=codec, emit=emit, pace=pace)
        self.remote_effects = RemoteEffects(
            store, task_watch, codec=codec, clock=clock, gate=self, emit=emit, pace=pace
        )
        self.admission = Admission(store, committer, emit=emit, taker=self)
        self._committer = committer
        self._lease = lease
        self._registry = registry
        self._namespace = namespace
        self._concurrency = concurrency
        self._on_settled = on_settled
        self._on_wake_at = on_wake_at
        self._on_claimed = on_claimed
        self._on_gone = on_gone
        self._executions: dict[str, tuple[Activation, asyncio.Task[None]]] = {}
        self._adopted = 0
        self._slots_taken = 0
        self._bell = asyncio.Event()
        self._handed: Counter[str] = Counter()  # runs whose admission by this process is under way: `taken` adopts them
        self._rung = False  # whether there may be runs to claim; otherwise the bell rings for those that are ours
        self._mail_bell = asyncio.Event()
        self._mail_for: set[str] | None = set()  # whose mail the bell rings for; None: any of those held here
        self._told: set[str] = set()  # runs held here that have mail; one that is let go now is to be claimed again
        self._adopting = False
        self._missed_mail = False  # messages may have come for a run between the look at its history and its adoption
        self._unsure = False
        self._void: set[str] = set()  # runs that were claimed again while an execution of the former claim is here
        self._stopping = False

    # -- what others tell it

    def ring(self) -> None:
        """There may be runs to claim."""
        self._rung = True
        self._bell.set()

    def make_sure(self) -> None:
        """Look whether the store has runs under this worker's name that are not executed here.

        There should be none. But a run whose lease is kept, and which nothing executes, would never end.
        """
        self._unsure = True
        self._bell.set()

    def ring_for_mail(self) -> None:
        """There may be messages for runs that are held here."""
        self._missed_mail = self._adopting
        self._mail_for = None
        self._mail_bell.set()

    def has_mail(self, run_ids: Collection[str]) -> None:
        """These runs got messages by a commit of this process."""
        for run_id in run_ids:
            if run_id in self._executions:
                self._told.add(run_id)
                self._has_mail_for(run_id)
            else:
                self._missed_mail = self._adopting
                self.ring()  # it was let go

    def has_news_for(self, run_ids: Collection[str]) -> None:
        """These runs got messages by a commit of another process."""
        self._missed_mail = self._adopting
        for run_id in self._executions.keys() & run_ids:
            self._has_mail_for(run_id)

    def _has_mail_for(self, run_id: str) -> None:
        if self._mail_for is not None:
            self._mail_for.add(run_id)
        self._mail_bell.set()

    def holds(self, run_id: str) -> bool:
        """Whether the run is in memory here."""
        return run_id in self._executions

    @property
    def has_room(self) -> bool:
        return not self._stopping and self._slots_taken < self._concurrency

    # -- claiming

    async def claim(self) -> None:
        """Claim whenever the bell rings, for ever."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            rung, self._rung = self._rung, False
            try:
                if self._unsure:
                    await self._take_up_what_is_ours()
                while rung and self.has_room and self._lease.reliable and await self._claim_batch():
                    pass
            except TransientError as error:
                self._unsure = True
                self.emit(events.StoreTroubled(str(error)))
                await self.clock.pause(self.pace.trouble_pause_seconds)
                self.ring()

    async def _claim_batch(self) -> bool:
        """Claim as many as there is room for. True if there may be more."""
        limit = min(self.pace.claim_max, self._concurrency - self._slots_taken)
        owner = self._lease.owner
        claimed = await self.store.claim(Claim(self._namespace, owner, self.ids.nonce(), self._registry.served, limit))
        if claimed.runs:
            now_ms = self.store.now_ms()
            self.emit(events.RunsClaimed(len(claimed.runs), now_ms - (claimed.ready_ms or now_ms)))
            await self._adopt_all(claimed.runs, owner)
            self._on_claimed()
        else:
            self.emit(events.AskedInVain("claim"))
        return len(claimed.runs) == limit

    async def _take_up_what_is_ours(self) -> None:
        """After a lost reply, runs may be ours without our knowing."""
        owner = self._lease.owner
        # One that is being handed over must not be taken up as well: its answer may come when it has long ended here.
        handed, held = set(self._handed), await self.store.held(owner)
        known = handed | self._handed.keys() | self._executions.keys()
        lost = [run_id for run_id in held if run_id not in known]
        self._unsure = False
        if lost:
            await self._adopt_all(await self.store.runs(lost), owner)

    async def _adopt_all(self, runs: list[Run], owner: str) -> None:
        self._adopting, self._missed_mail = True, False
        try:
            await self._adopt_each(runs, owner)
        finally:
            self._adopting = False
        if self._missed_mail:
            self.ring_for_mail()

    async def _adopt_each(self, runs: list[Run], owner: str) -> None:
        histories = await self._histories(runs)
        for history in (histories[run.id] for run in runs if run.id in histories):
            try:
                blobs = await self.blobs_of(history)
            except TransientError:
                raise
            except Exception as error:  # noqa: BLE001 - as a journal that cannot be read
                await self._set_aside(history.run, error)
                continue
            # No wait lies between this look and the adoption: meanwhile the lease may be lost, or the worker stop.
            if history.run.id in self._executions:
                self._void.add(history.run.id)  # it will learn it; the run is taken up when the execution has gone
            elif not self._stopping and history.run.owner == owner == self._lease.owner:
                self._adopt(history, blobs)
                self._slots_taken += 1

    async def _histories(self, runs: list[Run]) -> dict[str, History]:
        try:
            return {history.run.id: history for history in await self.store.histories([run.id for run in runs])}
        except TransientError:
            raise
        except Exception as error:  # noqa: BLE001 - one journal that cannot be read must not hold up the others
            if len(runs) == 1:
                await self._set_aside(runs[0], error)
                return {}
        found: dict[str, History] = {}
        for run in runs:
            found |= await self._histories([run])
        return found

    async def _set_aside(self, run: Run, error: Exception) -> None:
        """A journal that cannot be read, written by a newer version or damaged: a person must look."""
        message = f"the journal of run {run.id} cannot be read: {type(error).__name__}: {error}"
        await self.commit(
            transitions.decide(run, transitions.Stuck(EngineFault.code, message), now_ms=self.store.now_ms())
        )
        self.emit(events.RunBlocked(run.id, EngineFault.code, message, run.workflow))

    async def blobs_of(self, history: History) -> dict[str, bytes]:
        """The large values that a replay needs."""
        blobs: dict[str, bytes] = {}
        first = input_of(history.journal)
        for value in (first.input, original_input(first), *map(_value_of, history.journal)):
            if value is not None and value.json is UNSET and value.blob not in blobs:
                data = await self.store.blob(history.run.id, value.blob)
                assert data is not None, value
                blobs[value.blob] = data
        return blobs

    def _adopt(self, history: History, blobs: dict[str, bytes]) -> None:
        workflow = self._registry.workflow(history.run.workflow)
        self._adopted += 1
        execution = Activation(self, workflow, history, blobs, number=self._adopted)
        task = self.loop.create_task(execution.drive())
        self._executions[history.run.id] = (execution, task)
        task.add_done_callback(lambda _: self._done(history.run.id, execution))

    def _done(self, run_id: str, execution: Activation) -> None:
        held = self._executions.get(run_id)
        if held is not None and held[0] is execution:
            del self._executions[run_id]
            self._on_gone()
            if self._unsure:
                self.ring()
        if run_id in self._void and run_id not in self._executions:
            self._void.discard(run_id)
            self._unsure = True
            self.ring()
        self._free_slot()

    def _free_slot(self) -> None:
        was_full = self._slots_taken >= self._concurrency
        self._slots_taken -= 1
        if was_full:
            self.ring()

    # -- messages

    async def deliver(self) -> None:
        """Hand messages to the runs that are held here whenever the mail bell rings, for ever."""
        while True:
            try:
                async with asyncio.timeout(self.pace.mail_poll_seconds):
                    await self._mail_bell.wait()
            except TimeoutError:
                self._mail_for = None  # a notice may be lost
            self._mail_bell.clear()
            among, self._mail_for = self._mail_for, set()
            if not self._executions:
                continue
            try:
                # An answer may show what a run has read since, if it was let go and taken up again meanwhile. What
                # comes for a run that was taken up after we asked, its own history has, or another ring will bring.
                asked = self._adopted
                mail = await self.store.messages(self._lease.owner, among)
                if not mail:
                    self.emit(events.AskedInVain("mail"))
                for run_id, messages in mail.items():
                    held = self._executions.get(run_id)
                    self._told.discard(run_id)
                    if held is not None and held[0].number <= asked:
                        for message in messages:
                            held[0].arrive(message)
            except TransientError as error:
                self.emit(events.StoreTroubled(str(error)))
                await self.clock.pause(self.pace.trouble_pause_seconds)
                self.ring_for_mail()

    # -- Taker

    def hand(self, workflow: str, run_id: str) -> Hand | None:
        if not self.has_room or not self._lease.reliable or workflow not in self._registry.served:
            return None
        self._slots_taken += 1
        self._handed[run_id] += 1
        return Hand(self._lease.owner, self.ids.nonce())

    def taken(self, change: Change, run: Run) -> None:
        self._came_back(run.id)
        if self._stopping or run.owner != self._lease.owner or run.id in self._executions:
            self._free_slot()  # what we leave behind, leaving gives back
            return
        messages = tuple(envelope.message for envelope in change.envelopes if envelope.run_id == run.id)
        self._adopt(History(run, change.entries, messages), {blob.digest: blob.data for blob in change.blobs})

    def not_taken(self, run_id: str, *, unsure: bool) -> None:
        self._came_back(run_id)
        self._free_slot()
        if unsure:
            self._unsure = True
            self.ring()

    def _came_back(self, run_id: str) -> None:
        """One answer about a run that was to be handed over; the same run may be admitted by several at once."""
        # On the way of every start: subtracting a Counter would walk through all that are under way.
        if self._handed[run_id] > 1:
            self._handed[run_id] -= 1
        else:
            del self._handed[run_id]

    # -- Desk

    @property
    def trusted(self) -> bool:
        return self._lease.reliable

    async def until_trusted(self) -> None:
        await self._lease.until_reliable()

    def policy_of(self, effect: Effect[..., Any]) -> EffectPolicy:
        return self._registry.policy_of(effect)

    async def commit(self, change: Change) -> Answer:
        while True:
            try:
                return await self._committer.commit(change)
            except TransientError as error:
                await self.bear(error, change.id)

    async def history(self, run_id: str) -> History | None:
        while True:
            try:
                found = await self.store.histories([run_id])
            except TransientError as error:
                await self.bear(error, run_id)
            else:
                return found[0] if found else None

    async def bear(self, error: TransientError, about: str) -> None:
        """The store is in trouble: try again after a while, as long as the lease lasts."""
        self.emit(events.StoreTroubled(str(error)))
        if self._lease.standing is Standing.LOST:
            raise LeaseLost(f"no answer about {about} while the lease lasted") from error
        await self.clock.pause(self.pace.trouble_pause_seconds)

    async def admit_child(self, parent: Run, command: Command) -> tuple[Run, bool]:
        assert command.call is not None
        workflow = command.call.target
        assert isinstance(workflow, Workflow)
        if not self._registry.known(workflow):
            raise UnknownWorkflow(workflow.name, self._registry.workflow_names)
        if command.key is not None:
            keys.of_run(command.key)  # here, and not where it is asked for: what is recorded already stays good
        watcher = Watcher(parent.id, command.step) if command.intent.kind == "child" else None
        value, blobs = kept(command.arguments)
        wanted = Wanted(
            run_id=self.store.id_for(
                ids.derived(parent.id, command.step),
                namespace=parent.namespace,
                workflow=workflow.name,
                key=command.key,
            ),
            namespace=parent.namespace,
            workflow=workflow.name,
            key=command.key,
            queue=workflow.queue,
            priority=parent.priority,
            delay_ms=0,
            retention_ms=workflow.retention_ms,
            digest=command.intent.digest,
            request_id=ids.joined(parent.id, command.step),
            input=value,
            blobs=blobs,
            watcher=watcher,
            version=workflow.version or "",
            attributes=_lineage_of(parent),
        )
        while True:
            try:
                run, created = await self.admission.admit(wanted)
                # A child that ended before this parent asked for it again (it was cancelled, or failed, or its process
                # died) has told its end to an earlier life of the parent: ask to be told again.
                if watcher is not None and (run.id != wanted.run_id or run.status in ENDED):
                    await self.watch(run.id, replace(watcher, epoch=parent.epoch))
            except TransientError as error:
                self.emit(events.StoreTroubled(str(error)))
                await self.clock.pause(self.pace.trouble_pause_seconds)
            else:
                return run, created

    async def cancel(self, run_id: str, reason: str, *, nonce: str, deadline_ms: int) -> None:
        while (history := await self.history(run_id)) is not None:
            match cancels.way(history.run):
                case Way.ENDED:
                    return
                case Way.AT_ONCE:
                    now_ms = self.store.now_ms()
                    recorded = unread(history, now_ms=now_ms)
                    change = transitions.stop(
                        history.run, history.journal, reason=reason, late=False, recorded=recorded, now_ms=now_ms
                    )
                case Way.BY_ITS_OWNER:
                    change = cancels.request(run_id, nonce=nonce, reason=reason, deadline_ms=deadline_ms)
            answer = await self.commit(change)
            if isinstance(answer, Committed):
                if answer.run is not None and answer.run.status in ENDED:
                    self.emit(events.ended(answer.run, f"cancelled: {reason}"))
                return

    async def watch(self, run_id: str, watcher: Watcher) -> bool:
        change = Change(f"{watcher.run_id}/{watcher.epoch}/{watcher.step}", Known(run_id), watcher=watcher)
        return isinstance(await self.commit(change), Committed)

    def settled(self, run: Run) -> None:
        self._told.discard(run.id)
        self._executions.pop(run.id, None)  # first: whoever asks for its result from now on must look it up
        if run.status in ENDED:
            self.emit(events.ended(run, "" if run.error is None else run.error.decode()))
        self._on_settled(run)

    def let_go(self, run: Run) -> None:
        self._executions.pop(run.id, None)  # at once: it may be claimed again in the next breath
        self._on_gone()
        if run.id in self._told:
            self._told.discard(run.id)
            self.ring()
        if run.wake_ms is not None:
            self._on_wake_at(run.wake_ms)

    def quiet(self) -> None:
        self._free_slot()

    def busy(self) -> None:
        # Over the limit for once, if all slots were taken meanwhile: a run that has come this far is not sent away.
        self._slots_taken += 1

    # -- ways out

    def drop_all(self) -> int:
        """The lease is lost: forget every run. Their late writes would be refused anyway."""
        dropped = list(self._executions.values())
        self._executions.clear()
        self._on_gone()
        for execution, task in dropped:
            execution.abandon()
            task.cancel()
        return len(dropped)

    def wind_down(self) -> None:
        """Begin nothing more."""
        self._stopping = True
        for execution, _ in self._executions.values():
            execution.stop()

    async def stop(self, grace_seconds: float) -> int:
        """Begin nothing more, wait for effects in flight up to the grace, drop the rest. Answers how many were left."""
        self.wind_down()
        tasks = [task for _, task in self._executions.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_seconds)
        effects = [task for execution, _ in self._executions.values() for task in execution.in_flight]
        left = self.drop_all()
        if left or effects:  # a lone effect is performed in the task of its run
            await asyncio.wait([*tasks, *effects], timeout=self.pace.clean_up_seconds)
        await self.remote_effects.drained(self.pace.clean_up_seconds)
        self.performer.close()
        return left


def _value_of(entry: Entry) -> Value | None:
    return entry.value if isinstance(entry, Performed | Joined | Received | Late) else None


def _lineage_of(parent: Run) -> bytes:
    known = attributes.decode(parent.attributes)
    trace = {TRACEPARENT: known[TRACEPARENT]} if TRACEPARENT in known else {}
    return attributes.encode({PARENT: parent.id, ROOT: known.get(ROOT, parent.id), **trace})
