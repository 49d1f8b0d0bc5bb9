"""A store in memory, a lease that a test decides about, and executions that only remember what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.payloads import JsonCodec
from holdfast.engine.pace import Pace
from holdfast.engine.ports import Ports
from holdfast.engine.worker.claims import Bell, Claims
from holdfast.engine.worker.held import HeldRuns
from holdfast.engine.worker.mail import Mail
from holdfast.engine.worker.slots import Slots
from holdfast.errors import StoreUnavailable
from holdfast.events import Event
from holdfast.kernel import takeovers, transitions
from holdfast.kernel.changes import Change, Committed
from holdfast.kernel.documents import Document
from holdfast.kernel.messages import Message
from holdfast.kernel.runs import Run
from holdfast.kernel.starts import Hand, admission
from holdfast.kernel.times import Instant
from holdfast.ports.store import History, Serves
from holdfast.stores.memory import MemoryStore
from tests.builders import FakeClock, SeededIds, wanted

WORKFLOW = "shop.checkout"
LIMIT = 3


class Lease:
    """Held by "w-1", as long as the test wants."""

    def __init__(self) -> None:
        self.owner = "w-1"
        self.is_good = True

    def is_reliable(self) -> bool:
        return self.is_good


class FakeExecution:
    """Remembers what arrives; ends when it is told to."""

    def __init__(self, history: History, blobs: Mapping[str, bytes], number: int, *, was_cut_short: bool) -> None:
        self.run = history.run
        self.history = history
        self.blobs = blobs
        self.number = number
        self.was_cut_short = was_cut_short
        self.arrived: list[str] = []
        self.ended = asyncio.Event()
        self.was_abandoned = False
        self.is_stopping = False

    async def drive(self) -> None:
        await self.ended.wait()

    def arrive(self, arrival: Message) -> None:
        self.arrived.append(arrival.id)

    def abandon(self) -> None:
        self.was_abandoned = True

    def stop(self) -> None:
        self.is_stopping = True
        self.ended.set()

    @property
    def in_flight(self) -> list[asyncio.Task[None]]:
        return []


class TroubledStore(MemoryStore):
    """Counts what it is asked for, and fails as often as the test says."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.asked: list[str] = []
        self.troubles = 0
        self.unreadable: set[str] = set()
        self.lost: set[str] = set()  # blobs that cannot be read
        self.between: list[Any] = []  # called once, after the next histories were read
        self.brings_histories = False  # with what is claimed
        self.histories_read = 0  # those that were asked for

    def _ask(self, verb: str) -> None:
        self.asked.append(verb)
        if self.troubles:
            self.troubles -= 1
            raise StoreUnavailable("in trouble")

    async def claim(self, claim: Any) -> Any:
        self._ask("claim")
        claimed = await super().claim(claim)
        if not self.brings_histories:
            return claimed
        return replace(claimed, histories=tuple(await self._seen([run.id for run in claimed.runs])))

    async def held(self, owner: str) -> Any:
        self._ask("held")
        return await super().held(owner)

    async def messages(self, owner: str, among: Any = None) -> Any:
        self._ask("messages")
        return await super().messages(owner, among)

    async def histories(self, run_ids: Any) -> Any:
        self.histories_read += len(run_ids)
        if self.unreadable & set(run_ids):
            raise ValueError("a newer version has written this")
        return await self._seen(run_ids)

    async def _seen(self, run_ids: Any) -> Any:
        found = await super().histories(run_ids)
        while self.between:
            self.between.pop()()
        return found


class World:
    """The three parts of a worker, and what they have told."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = TroubledStore(self.clock)
        self.events: list[Event] = []
        self.told: list[str] = []
        self.set_aside_runs: list[str] = []
        self.blocked_runs: list[str] = []
        self.postponed_runs: list[str] = []
        self.elsewhere: set[str] = set()  # runs that belong to workers of another version
        self.executions: dict[str, FakeExecution] = {}
        self.lease = Lease()
        ports = Ports(
            store=self.store,
            clock=self.clock,
            ids=SeededIds(1),
            codec=JsonCodec(limit=1_000_000),
            emit=self.events.append,
            pace=Pace(claim_max=2, mail_poll_seconds=3600.0, trouble_pause_seconds=0.0),
        )
        self.bell = Bell()
        self.held = HeldRuns()
        self.slots = Slots(LIMIT, on_room=self.bell.ring)
        self.mail = Mail(ports, self.held, owner=lambda: self.lease.owner, on_claimable=self.bell.ring)
        self.claims = Claims(
            ports,
            self,
            held=self.held,
            slots=self.slots,
            mail=self.mail,
            bell=self.bell,
            lease=self.lease,
            serves=Serves("default", (WORKFLOW,)),
            router=self,
        )

    # -- Router

    def is_elsewhere(self, runs: Sequence[Run]) -> bool:
        return any(run.id in self.elsewhere for run in runs)

    async def route(self, runs: Sequence[Run]) -> list[Run]:
        return [run for run in runs if run.id not in self.elsewhere]

    # -- Executor

    def execute(
        self, history: History, blobs: Mapping[str, bytes], number: int, *, was_cut_short: bool
    ) -> FakeExecution:
        execution = FakeExecution(history, blobs, number, was_cut_short=was_cut_short)
        self.executions[history.run.id] = execution
        return execution

    async def set_aside(self, run: Run, error: Exception) -> None:
        self.set_aside_runs.append(run.id)

    async def block(self, run: Run, message: str) -> None:
        self.blocked_runs.append(run.id)

    async def postpone(self, run: Run, wake_at_ms: Instant) -> None:
        self.postponed_runs.append(run.id)
        await self.store.commit(
            [transitions.decide(run, transitions.Postponed(wake_at_ms), now_ms=self.store.now_ms())]
        )

    def on_claimed(self) -> None:
        self.told.append("claimed")

    def on_gone(self) -> None:
        self.told.append("gone")

    # -- what tests do

    async def admit(self, run_id: str, hand: Hand | None = None) -> tuple[Change, Run]:
        change = admission(wanted(run_id, key=None), now_ms=self.store.now_ms(), hand=hand)
        [answer] = await self.store.commit([change])
        assert isinstance(answer, Committed)
        assert answer.run is not None
        return change, answer.run

    async def admit_taken_over(self, run_id: str, times: int) -> None:
        """A run under which so many workers have died."""
        _, run = await self.admit(run_id, Hand("w-dead", f"nonce-{run_id}"))
        last: Document | None = None
        for n in range(times):
            writing = takeovers.count(replace(run, epoch=run.epoch + n), last, now_ms=self.store.now_ms())
            assert writing is not None
            last = writing.document
            await self.store.write([writing])

    async def settle(self) -> None:
        """Let all that can happen now happen."""
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    world = World()
    await world.store.open()
    await world.store.join("w-1", 3_600_000)
    tasks = [asyncio.create_task(part()) for part in (world.claims.claim, world.mail.deliver)]
    yield world
    world.held.drop_all()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
