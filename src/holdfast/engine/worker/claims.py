"""How runs come into the memory of a worker.

    claim      runs that are ready, in batches, when the bell rings
    reserve    a fresh run, in the very commit that admits it: it is adopted when the commit is known
    held       runs that the store has under this worker's name and that are not executed here, see `make_sure`: others
               have handed them over, or a reply was lost

The worker never asks the store whether there is work: it is told, by a bell that rings when a run became claimable
here, when another process has committed, or when a timer is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol, assert_never

from msgspec import UNSET

from holdfast import events
from holdfast.engine.ports import Ports
from holdfast.engine.values import require_open
from holdfast.engine.worker.held import HeldActivation, HeldRuns
from holdfast.engine.worker.mail import Mail
from holdfast.engine.worker.slots import Slots
from holdfast.errors import TransientError
from holdfast.kernel import seals, takeovers
from holdfast.kernel.changes import Change
from holdfast.kernel.journal import Entry, Joined, Late, Performed, Received, Value, input_of, original_input
from holdfast.kernel.messages import Message
from holdfast.kernel.runs import Fenced, Run
from holdfast.kernel.starts import Hand
from holdfast.kernel.times import EPOCH, Instant
from holdfast.ports.store import Claim, History, Serves, Store

NO_BLOBS: Mapping[str, bytes] = {}
NO_SUSPECT = ("", 0, EPOCH)  # the suspect that began last, how long its journal was, until when it is alone


class Lease(Protocol):
    """What runs are claimed under."""

    owner: str

    def is_reliable(self) -> bool: ...


class Bell:
    """Rings for the part that claims."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._is_work = False

    def ring(self) -> None:
        """There may be runs to claim."""
        self._is_work = True
        self._rung.set()

    def ring_for_held(self) -> None:
        """There may be runs that are held already."""
        self._rung.set()

    async def heard(self) -> bool:
        """Returns when it has rung: whether there may be runs to claim."""
        await self._rung.wait()
        self._rung.clear()
        is_work, self._is_work = self._is_work, False
        return is_work


class Executor(Protocol):
    """Executes what is claimed, and is told about it."""

    def execute(
        self, history: History, blobs: Mapping[str, bytes], number: int, *, was_cut_short: bool
    ) -> HeldActivation:
        """The run, ready to be driven. `was_cut_short`: it was driven here before, under the same fence."""
        ...

    async def set_aside(self, run: Run, error: Exception) -> None:
        """The journal of the run cannot be read: it must not be claimed again before a person has looked."""
        ...

    async def block(self, run: Run, message: str) -> None:
        """The run must not be executed again before a person has looked."""
        ...

    async def postpone(self, run: Run, wake_at_ms: Instant) -> None:
        """Give the run back until then."""
        ...

    def on_claimed(self) -> None: ...
    def on_gone(self) -> None: ...


class Router(Protocol):
    """Sends runs of another version to workers that serve it."""

    def is_elsewhere(self, runs: Sequence[Run]) -> bool:
        """Whether one of them was admitted under another version than the one that is served here."""
        ...

    async def route(self, runs: Sequence[Run]) -> list[Run]:
        """Those that are executed here."""
        ...


class Claims:
    """Claims runs and adopts them. It is the `Taker` of fresh runs."""

    def __init__(
        self,
        ports: Ports,
        executor: Executor,
        *,
        held: HeldRuns,
        slots: Slots,
        mail: Mail,
        bell: Bell,
        lease: Lease,
        serves: Serves,
        router: Router,
    ) -> None:
        self._store = ports.store
        self._clock = ports.clock
        self._ids = ports.ids
        self._emit = ports.emit
        self._pace = ports.pace
        self._executor = executor
        self._held = held
        self._slots = slots
        self._mail = mail
        self._bell = bell
        self._lease = lease
        self._serves = serves
        self._router = router
        self._reserved: dict[str, int] = {}  # runs whose admission by this process is under way, and how many times
        mail.reserved = self._reserved.keys()
        self._is_unsure = False  # whether the store may have runs under our name that are not executed here
        self._suspect = NO_SUSPECT
        self._void: set[str] = set()  # runs that were claimed again while an execution of the former claim is here
        # The fences of runs whose execution here ended before them, under the name of a lease.
        self._cut_short: dict[str, Fenced] = {}
        self._cut_short_under = ""

    def ring(self) -> None:
        """There may be runs to claim."""
        self._bell.ring()

    def make_sure(self) -> None:
        """Look whether the store has runs under this worker's name that are not executed here.

        There should be none. But a run whose lease is kept, and which nothing executes, would never end.
        """
        self._is_unsure = True
        self._bell.ring_for_held()

    # -- claiming

    async def claim(self) -> None:
        """Claim whenever the bell rings, forever."""
        while True:
            is_work = await self._bell.heard()
            try:
                if self._is_unsure:
                    await self._adopt_held()
                while is_work and self._slots.has_room and self._lease.is_reliable() and await self._claim_batch():
                    pass
            except TransientError as error:
                self._is_unsure = True
                self._emit(events.StoreTroubled(str(error)))
                await self._clock.pause(self._pace.trouble_pause_seconds)
                self._bell.ring()

    async def _claim_batch(self) -> bool:
        """Claim as many as there is room for. True if there may be more."""
        limit = min(self._pace.claim_max, self._slots.free)
        owner = self._lease.owner
        asked = Claim(self._serves.namespace, owner, self._ids.nonce(), self._serves.workflows, limit)
        with self._mail.adopting():
            claimed = await self._store.claim(asked)
            if claimed.runs:
                now_ms = self._store.now_ms()
                self._emit(events.RunsClaimed(len(claimed.runs), now_ms - (claimed.ready_at_ms or now_ms)))
                await self._adopt_all(claimed.runs, owner, claimed.histories)
        if claimed.runs:
            self._executor.on_claimed()
        else:
            self._emit(events.AskedInVain("claim"))
        return len(claimed.runs) == limit

    async def _adopt_held(self) -> None:
        """Adopt what is ours without our knowing, as after a lost reply."""
        owner = self._lease.owner
        # One that is reserved must not be adopted as well: that its commit was made may be known when it has long
        # ended here. Those that were reserved before the question count, and those that were since.
        reserved, held = set(self._reserved), await self._store.held(owner)
        lost = [
            run_id
            for run_id in held
            if run_id not in reserved and run_id not in self._reserved and not self._held.holds(run_id)
        ]
        # Others may have handed us more than there is room for. The rest waits under our name for a slot.
        room = self._slots.free
        self._is_unsure = len(lost) > room
        if lost[:room]:
            with self._mail.adopting():
                await self._adopt_all(await self._store.runs(lost[:room]), owner)

    async def _adopt_all(self, runs: list[Run], owner: str, known: tuple[History, ...] = ()) -> None:
        histories = {history.run.id: history for history in known}
        if any(takeovers.may_be_counted(run) for run in runs):
            runs = await self._sift(runs)
        if self._router.is_elsewhere(runs):
            runs = await self._router.route(runs)
        if missing := [run for run in runs if run.id not in histories]:
            histories |= await self._histories(missing)
        for history in (histories[run.id] for run in runs if run.id in histories):
            try:
                blobs = await blobs_of(self._store, history)
            except TransientError:
                raise
            except Exception as error:  # noqa: BLE001 - as a journal that cannot be read
                await self._executor.set_aside(history.run, error)
                continue
            # No wait lies between this look and the adoption: meanwhile the lease may be lost, or the worker stop.
            if self._held.holds(history.run.id):
                self._void.add(history.run.id)  # it will learn it; the run is adopted when the execution has gone
            elif not self._slots.is_closed and history.run.owner == owner == self._lease.owner:
                self._adopt(history, blobs)
                self._slots.busy()

    async def _sift(self, runs: list[Run]) -> list[Run]:
        """Those that may be executed now. The others are given back or blocked before any of these begins."""
        places = [(run.namespace, takeovers.KIND, run.id) for run in runs if takeovers.may_be_counted(run)]
        told = {document.id: document for document in await self._store.named(places)}
        now_ms = self._store.now_ms()
        treatments = takeovers.treat(runs, told, beside_a_suspect=self._tries_a_suspect(now_ms), now_ms=now_ms)
        executed: list[Run] = []
        for run, treatment in zip(runs, treatments, strict=True):
            match treatment:
                case takeovers.Execute(in_a_row):
                    executed.append(run)
                    if in_a_row:
                        self._suspect = (run.id, run.length, now_ms + takeovers.ALONE_MS)
                        self._emit(events.RunSuspected(run.id, run.workflow, in_a_row))
                case takeovers.Postpone(wake_at_ms):
                    await self._executor.postpone(run, wake_at_ms)
                case takeovers.SetAside(message):
                    await self._executor.block(run, message)
                case _:  # pragma: no cover
                    assert_never(treatment)
        return executed

    def _tries_a_suspect(self, now_ms: Instant) -> bool:
        """Whether a suspect is here that must be alone still: it has just begun, and recorded nothing."""
        run_id, length, alone_until_ms = self._suspect
        execution = self._held.execution_of(run_id)
        return execution is not None and execution.run.length == length and now_ms < alone_until_ms

    async def _histories(self, runs: list[Run]) -> dict[str, History]:
        try:
            return {history.run.id: history for history in await self._store.histories([run.id for run in runs])}
        except TransientError:
            raise
        except Exception as error:  # noqa: BLE001 - one journal that cannot be read must not hold up the others
            if len(runs) == 1:
                await self._executor.set_aside(runs[0], error)
                return {}
        found: dict[str, History] = {}
        for run in runs:
            found |= await self._histories([run])
        return found

    def _adopt(self, history: History, blobs: Mapping[str, bytes]) -> None:
        run_id = history.run.id
        self._held.adopted += 1
        was_cut_short = bool(self._cut_short) and self._cut_short.pop(run_id, None) == history.run.fence
        execution = self._executor.execute(history, blobs, self._held.adopted, was_cut_short=was_cut_short)
        self._held.begin(run_id, execution, partial(self._leave, run_id, execution))

    def _leave(self, run_id: str, execution: HeldActivation, _task: object) -> None:
        """The task of an execution has ended."""
        if execution.run.owner is not None:
            self._note_cut_short(execution.run, execution.run.owner)
        if self._held.remove(run_id, execution):
            self._executor.on_gone()
            if self._is_unsure:
                self._bell.ring()
        if run_id in self._void and not self._held.holds(run_id):
            self._void.discard(run_id)
            self._is_unsure = True
            self._bell.ring()
        self._slots.quiet()

    def _note_cut_short(self, run: Run, owner: str) -> None:
        """The run has not been let go, and has not ended: its lease was in danger, or it was taken away.

        If the lease is good again, the run is adopted again under the same fence, and its journal does not show
        what was done for it here and not recorded.
        """
        if owner != self._cut_short_under:
            self._cut_short_under = owner
            self._cut_short.clear()
        self._cut_short[run.id] = run.fence

    # -- fresh runs

    def reserve(self, workflow: str, run_id: str) -> Hand | None:
        """A slot for a run that is about to be admitted; None if there is none.

        Each is followed by one `adopt_fresh` or one `give_back`.
        """
        if not self._slots.has_room or not self._lease.is_reliable() or workflow not in self._serves.workflows:
            return None
        self._slots.busy()
        self._reserved[run_id] = self._reserved.get(run_id, 0) + 1
        return Hand(self._lease.owner, self._ids.nonce())

    def adopt_fresh(self, change: Change, run: Run) -> None:
        """The run was admitted under our name."""
        self._end_reservation(run.id)
        if self._slots.is_closed or run.owner != self._lease.owner or self._held.holds(run.id):
            self._slots.quiet()  # a run that is not adopted, leaving gives back
            return
        messages = _messages_for(run.id, change) if change.envelopes else ()
        blobs = {blob.digest: blob.data for blob in change.blobs} if change.blobs else NO_BLOBS
        self._adopt(History(run, change.entries, messages), blobs)

    def give_back(self, run_id: str, *, is_unsure: bool) -> None:
        """The run was not admitted under our name; with `is_unsure`, that is not known."""
        self._end_reservation(run_id)
        self._slots.quiet()
        if is_unsure:
            self._is_unsure = True
            self._bell.ring()

    def _end_reservation(self, run_id: str) -> None:
        """One of them: several callers may admit the same run at once."""
        left = self._reserved.pop(run_id) - 1
        if left:
            self._reserved[run_id] = left
        self._mail.note_fresh(run_id)


def _messages_for(run_id: str, admission: Change) -> tuple[Message, ...]:
    """What the admission of this run has put into its inbox."""
    return tuple(envelope.message for envelope in admission.envelopes if envelope.run_id == run_id)


async def blobs_of(store: Store, history: History) -> dict[str, bytes]:
    """The large values that a replay needs. Raises `SealedPayload` if it needs one that this process cannot open."""
    blobs: dict[str, bytes] = {}
    first = input_of(history.journal)
    for value in (first.input, original_input(first), *map(_value_of, history.journal)):
        if value is None:
            continue
        if value.sealed:
            raise seals.refusal(value.sealed)
        if value.json is UNSET and value.blob not in blobs:
            data = await store.blob(history.run.id, value.blob)
            assert data is not None, value
            blobs[value.blob] = require_open(data)
    return blobs


def _value_of(entry: Entry) -> Value | None:
    return entry.value if isinstance(entry, Performed | Joined | Received | Late) else None
