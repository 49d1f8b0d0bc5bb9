"""The verbs over a store in memory, with nothing that executes runs: a test ends them by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast import Pack
from holdfast.adapters.payloads import JsonCodec
from holdfast.engine.api.admission import Admission, Taker
from holdfast.engine.api.at_work import StepsAtWork
from holdfast.engine.api.lanes import LaneVerbs
from holdfast.engine.api.operations import Operations
from holdfast.engine.api.queries import Queries
from holdfast.engine.api.rate_limits import RateLimits
from holdfast.engine.api.registry import Registry
from holdfast.engine.api.scope import Scope
from holdfast.engine.api.service import Service
from holdfast.engine.api.subscriptions import Subscriptions
from holdfast.engine.api.waiters import Waiters
from holdfast.engine.committer import Committer
from holdfast.engine.pace import Pace
from holdfast.events import Event
from holdfast.kernel import transitions
from holdfast.kernel.changes import Committed
from holdfast.kernel.runs import Run
from holdfast.ports.store import Claim, Serves
from holdfast.stores.memory import MemoryStore
from tests.builders import FakeClock, SeededIds, a_value

SHOP = Pack("shop")


@SHOP.workflow(key="order:{order}")
async def checkout(order: str, amount: int = 1) -> str: ...


@SHOP.workflow(queue="slow", retention="1d", version="v7")
async def report(day: str) -> str: ...


class CountingStore(MemoryStore):
    """Remembers which workflows were asked for."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.asked_for_served = 0

    async def served(self, namespace: str) -> frozenset[str]:
        self.asked_for_served += 1
        return await super().served(namespace)


class Api:
    """All verbs of one namespace."""

    def __init__(self, *, taker: Taker | None = None, strict: bool = False) -> None:
        self.clock = FakeClock()
        self.store = CountingStore(self.clock)
        self.events: list[Event] = []
        self.pending: list[str] = []
        self.is_open = True
        self.pace = Pace(cancel_grace_ms=0)
        self.subscriptions = Subscriptions()
        self.committer = Committer(
            self.store,
            emit=lambda _: None,
            on_told=lambda _: None,
            on_changed=self.subscriptions.runs_changed,
            on_unsure=lambda: None,
        )
        codec = JsonCodec(limit=1_000_000)
        self.scope = self.scope_of("default", Registry([SHOP], codec=codec), codec)
        self.waiters = Waiters(
            self.store, clock=self.clock, emit=self.events.append, pace=self.pace, held_here=lambda _: False
        )
        self.admission = Admission(self.store, self.committer, emit=self.events.append, taker=taker)
        self.operations = Operations(self.scope, waiters=self.waiters, strict=strict, on_pending=self._on_pending)
        self.lanes = LaneVerbs(self.scope, on_set=lambda: None)
        self.queries = Queries(
            self.scope,
            self.subscriptions,
            lanes=self.lanes,
            served_here=frozenset(),
            at_work=StepsAtWork(self.scope.store, self.scope.namespace, None),
        )
        self.service = Service(
            self.scope,
            admission=self.admission,
            waiters=self.waiters,
            operations=self.operations,
            queries=self.queries,
            lanes=self.lanes,
            replayer=None,  # pyright: ignore[reportArgumentType] - no test of these replays
            limits=RateLimits(self.store, clock=self.clock, emit=self.events.append, pace=self.pace),
            on_pending=self._on_pending,
            on_rules_changed=lambda: self.pending.append("rules"),
        )

    def scope_of(self, namespace: str, registry: Registry, codec: JsonCodec) -> Scope:
        return Scope(
            self.store,
            self.committer,
            registry=registry,
            codec=codec,
            ids=SeededIds(1),
            emit=self.events.append,
            pace=self.pace,
            namespace=namespace,
            is_open=lambda: self.is_open,
        )

    def _on_pending(self, run: Run) -> None:
        self.pending.append(run.id)

    def told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]

    async def claim(self, owner: str = "w-1") -> Run:
        """A worker takes the run that is ready."""
        if owner not in [member.owner for member in await self.store.members("default")]:
            await self.store.join(owner, 3_600_000, Serves("default", ()))
        names = ("shop.checkout", "shop.report")
        [run] = (await self.store.claim(Claim("default", owner, f"nonce of {owner}", names, 1))).runs
        return run

    async def decide(self, run: Run, event: transitions.Event) -> Run:
        """A worker moves the run that it has."""
        [answer] = await self.store.commit([transitions.decide(run, event, now_ms=self.store.now_ms())])
        assert isinstance(answer, Committed)
        assert answer.run is not None
        return answer.run

    async def end(self, run: Run, value: object = "done") -> Run:
        """The run returns."""
        return await self.decide(run, transitions.RunReturned(a_value(value)))


@pytest.fixture
async def api() -> AsyncGenerator[Api]:
    api = Api()
    watching = asyncio.create_task(api.waiters.watch())
    yield api
    watching.cancel()
    await asyncio.wait([watching])
