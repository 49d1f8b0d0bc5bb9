"""The caller of one world: starts the run, sends signals to whatever hook a run waits for, cancels, asks for receipts.

It repeats what was not acknowledged, and repeats starts and signals as the schedule says. When its host is killed,
another host takes its place and sends again what this one had not seen acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random  # noqa: TID251 - seeded
from typing import Any, NamedTuple

from msgspec.structs import replace

from holdfast.assembly import Holdfast
from holdfast.calls import Call
from holdfast.errors import HoldfastError, TransientError
from holdfast.kernel import waits
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant
from holdfast.prove.schedules import Repeat, Schedule
from holdfast.prove.worlds import signals
from holdfast.prove.worlds.store_observer import CALLER
from holdfast.prove.worlds.trace import WorldTrace
from holdfast.stores.memory.tables import Tables
from holdfast.testing.proofs import FakeWorld
from holdfast.testing.simulation.hosts import BEGAN_AT_MS, Host, SeededIds
from holdfast.testing.simulation.world import World

START_REQUEST = "the-start"  # the request id of a start without a key
REJOIN_SECONDS = 0.1
LOOK_SECONDS = 0.01


class SignalPlace(NamedTuple):
    """Which signal it is: the first one to a hook of a run has number 0."""

    run_id: str
    hook: str
    number: int

    @property
    def dedupe(self) -> str:
        return f"{self.hook}-{self.number}"


class RootIds(SeededIds):
    """Ids of runs that the time has no part in."""

    def __init__(self, seed: int | str) -> None:
        super().__init__(Random(f"{seed}/root"))

    def run_id(self, now_ms: Instant) -> str:
        del now_ms
        return super().run_id(BEGAN_AT_MS)


class ProofCaller:
    """Calls from a host of its own, over the verbs of a `Holdfast` that executes nothing."""

    def __init__(
        self,
        world: World,
        call: Call[Any],
        schedule: Schedule,
        *,
        fake: FakeWorld,
        tables: Tables,
        trace: WorldTrace,
        connect: Callable[[Host], Holdfast],
        cancel_seconds: float,
    ) -> None:
        self.root = ""  # the id of the run, once its start is acknowledged
        self._world = world
        self._call = call
        self._schedule = schedule
        self._fake = fake
        self._tables = tables
        self._trace = trace
        self._connect = connect
        self._cancel_seconds = cancel_seconds  # the deadline of a cancellation
        self._hosts = 0
        self._host: Host | None = None
        self._hf: Holdfast | None = None
        self._busy: list[asyncio.Task[Any]] = []
        self._owed: dict[SignalPlace, Any] = {}  # signals that are not acknowledged
        self._payloads: dict[SignalPlace, Any] = {}
        self._sent: dict[tuple[str, str], int] = {}  # how many signals, by run and hook
        self._is_to_cancel = False

    # -- its host

    def join(self) -> None:
        """Live on a new host from now on."""
        self._hosts += 1
        host = self._host = self._world.host(f"{CALLER}-{self._hosts}")
        if not self._tables.runs:  # whichever caller starts the run, and whenever: it has the same id in every world
            host.platform = replace(host.platform, ids=RootIds(self._world.seed))
        self._hf = None

        async def stay() -> None:
            async with self._connect(host) as hf:
                self._hf = hf
                await asyncio.Event().wait()

        host.spawn(stay())

    def is_at(self, host: Host) -> bool:
        return host is self._host

    @property
    def has_joined(self) -> bool:
        return self._hf is not None

    @property
    def is_idle(self) -> bool:
        """Whether the run was started, all that was sent is acknowledged, and nothing is about to be sent."""
        if not self.root or self._hf is None or self._owed or self._is_to_cancel:
            return False
        return all(task.done() for task in self._busy)

    def move(self) -> None:
        """Its host is dead: do again elsewhere what it had not seen acknowledged."""
        self._hf = None
        owed = dict(self._owed)
        self._busy.clear()
        self._world.after(REJOIN_SECONDS, lambda: self._repeat(owed))

    def _repeat(self, owed: dict[SignalPlace, Any]) -> None:
        self.join()

        async def again() -> None:
            while self._hf is None:  # noqa: ASYNC110 - of virtual time, in which it joins at once
                await asyncio.sleep(LOOK_SECONDS)  # noqa: TID251 - of virtual time
            if not self.root:
                await self._start(self._schedule.start)
            for place, payload in owed.items():
                await self._signal(place, payload)

        self._spawn(again())

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        assert self._host is not None
        task = self._host.spawn(self._until_acknowledged(work))
        self._busy.append(task)
        return task

    async def _until_acknowledged(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except TransientError:
            return  # it is repeated
        except HoldfastError as error:
            self._trace.note("a caller was refused", f"{type(error).__name__}: {error}")

    # -- starts

    def start(self) -> None:
        """Start the run, as often as the schedule says."""
        self._spawn(self._start(self._schedule.start))

    def repeat_late(self) -> None:
        """When all is over, start it once more, and send the first signal to each hook once more, if they come late."""
        self._spawn(self._start("once"))
        for run_id, hook in list(self._sent) if self._schedule.signals == "late" else ():
            self._spawn(self._signal_late(SignalPlace(run_id, hook, 0)))

    async def _start(self, repeat: Repeat) -> None:
        hf = self._hf
        assert hf is not None
        workflow: Any = self._call.target
        request_id = None if workflow.key is not None else START_REQUEST

        async def once() -> None:
            call = Call(workflow, dict(self._call.arguments))
            while True:
                try:
                    run, _ = await hf.start(call, request_id=request_id)
                    break
                except TransientError:
                    continue
            self._see_started(run.id)

        await _repeated(once, repeat)

    def _see_started(self, run_id: str) -> None:
        if run_id not in self._tables.runs:
            self._trace.note("an acknowledgement before the record", f"the start of run {run_id}")
        if self.root and run_id != self.root:
            self._trace.note("a start was repeated", f"it made run {run_id} beside run {self.root}")
        self.root = self.root or run_id
        self._trace.tell("sent", f"the start is acknowledged: run {run_id}", host=CALLER)

    # -- signals

    def send_signals(self) -> None:
        """A run that waits for a signal gets one, unless it has had all there are."""
        for run in list(self._tables.runs.values()):
            if run.status is not Status.WAITING or run.waits is None or run.unread:
                continue
            for wait in waits.decode(run.waits):
                if wait.kind == "hook":
                    self._send_to(run, wait.name)

    def _send_to(self, run: Run, hook: str) -> None:
        sent = self._sent.get((run.id, hook), 0)
        is_under_way = any(place[:2] == (run.id, hook) for place in self._owed)
        if is_under_way or not signals.has_more(self._fake, hook, sent=sent):
            return
        opened = self._tables.hooks.get(run.id, {}).values()
        schema = next((each.schema for each in opened if each.name == hook and each.schema), None)
        payload = signals.payload_of(self._fake, hook, sent=sent, schema=schema)
        place = SignalPlace(run.id, hook, sent)
        self._sent[run.id, hook] = sent + 1
        self._owed[place] = self._payloads[place] = payload
        self._spawn(self._signal(place, payload))

    async def _signal(self, place: SignalPlace, payload: Any) -> None:
        hf = self._hf
        assert hf is not None

        async def once() -> None:
            while True:
                try:
                    run = await hf.get(place.run_id)
                    if run.is_settled:
                        break
                    await run.signal(place.hook, payload, dedupe=place.dedupe)
                    self._see_sent(place)
                    break
                except TransientError:
                    continue
                except HoldfastError:
                    if (await hf.get(place.run_id)).is_settled:
                        break  # it has ended meanwhile
                    raise

        await _repeated(once, self._schedule.signals)
        self._trace.tell("sent", f"the signal to {place.hook!r} is acknowledged", host=CALLER)
        self._owed.pop(place, None)

    def _see_sent(self, place: SignalPlace) -> None:
        if not any(place.dedupe in message_id for message_id in self._tables.inboxes.get(place.run_id, {})):
            self._trace.note("an acknowledgement before the record", f"a signal to {place.hook!r}")

    async def _signal_late(self, place: SignalPlace) -> None:
        hf = self._hf
        assert hf is not None
        run = await hf.get(place.run_id)
        if not run.is_settled:
            await run.signal(place.hook, self._payloads[place], dedupe=place.dedupe)

    # -- cancellations

    def cancel(self) -> None:
        """Cancel the run as soon as its start is acknowledged."""
        self._is_to_cancel = True
        self._world.after(0.0, self._cancel_when_started)

    def _cancel_when_started(self) -> None:
        if not self.root or self._hf is None:
            self._world.after(LOOK_SECONDS, self._cancel_when_started)
            return
        self._is_to_cancel = False
        self._spawn(self._cancel())

    async def _cancel(self) -> None:
        hf = self._hf
        assert hf is not None
        while True:
            try:
                run = await hf.get(self.root)
                await run.ask_cancel("a proof", deadline=self._cancel_seconds)
                self._trace.tell("sent", "the cancellation is acknowledged", host=CALLER)
                return
            except TransientError:
                continue

    def ask_receipts(self, run_ids: list[str], found: dict[str, Receipt]) -> asyncio.Task[Any]:
        """Fill `found` with the receipts of these runs; they are there when the task is done."""

        async def ask() -> None:
            assert self._hf is not None
            for run_id in run_ids:
                found[run_id] = await (await self._hf.get(run_id)).receipt()

        return self._spawn(ask())


async def _repeated(once: Callable[[], Coroutine[Any, Any, None]], repeat: Repeat) -> None:
    """Send something once, or twice as it says. What comes late is sent later."""
    match repeat:
        case "together":
            await asyncio.gather(once(), once())
        case "twice":
            await once()
            await once()
        case "once" | "late":
            await once()
