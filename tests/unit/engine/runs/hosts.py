"""A worker for one run, without store, leases or other processes: the test says what the world does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.adapters.machine import SystemClock
from holdfast.adapters.payloads import JsonCodec
from holdfast.engine.pace import Pace
from holdfast.engine.runs.loaded_run import LoadedRun
from holdfast.engine.runs.performer import Performer
from holdfast.events import Event
from holdfast.kernel.changes import Answer, Change, Committed
from holdfast.kernel.journal import Entry, Started
from holdfast.kernel.runs import Run
from holdfast.pack import Effect, EffectPolicy, Workflow
from holdfast.ports.store import History
from tests.builders import NOW_MS, running
from tests.unit.engine.driving import value_of

CODEC = JsonCodec()
PACE = Pace()
LOADED: list[LoadedRun] = []  # those to be let go at the end of the test, as the engine does with every run


class FixedTime:
    """What a run needs of a store outside of its host: the time."""

    def __init__(self) -> None:
        self.at_ms = NOW_MS

    def now_ms(self) -> int:
        return self.at_ms


class FixedChance:
    def chance(self) -> float:
        return 0.5


class FakeHost:
    """Keeps what the run commits and says; lets the test decide what comes of children, tokens and watches."""

    tracing = None
    strict = False
    record_inputs = False
    seals = False
    remote_effects: Any = None
    pace = PACE

    def __init__(self) -> None:
        self.store: Any = FixedTime()
        self.ids: Any = FixedChance()
        self.clock = SystemClock()
        self.codec = CODEC
        self.events: list[Event] = []
        self.performer = Performer(concurrency=4, codec=CODEC, emit=self.emit, pace=PACE)
        self.loop = asyncio.get_running_loop()
        self.changes: list[Change] = []
        self.committed = asyncio.Event()
        self.answer: Answer = Committed(None)
        self.child: tuple[Run, bool] | Exception = (running("child-1", key="pay:1"), True)
        self.watchable: bool | Exception = True
        self.cancelled: list[str] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def is_trusted(self, at_steady_ms: float | None = None) -> bool:
        del at_steady_ms
        return True

    async def until_trusted(self) -> None:
        raise AssertionError

    def policy_of(self, effect: Effect[..., Any]) -> EffectPolicy:
        return effect.policy

    async def commit(self, change: Change) -> Answer:
        self.changes.append(change)
        self.committed.set()
        return self.answer

    async def admit_child(self, parent: Run, command: object) -> tuple[Run, bool]:
        del parent, command
        if isinstance(self.child, Exception):
            raise self.child
        return self.child

    async def cancel(self, run_id: str, reason: str, *, nonce: str, deadline_at_ms: int) -> None:
        del reason, nonce, deadline_at_ms
        self.cancelled.append(run_id)

    async def watch(self, run_id: str, watcher: object) -> bool:
        del run_id, watcher
        if isinstance(self.watchable, Exception):
            raise self.watchable
        return self.watchable


def a_history(workflow: Workflow[..., Any], *entries: Entry, args: tuple[Any, ...] = (), **fields: Any) -> History:
    """A run of this workflow in the hands of a worker, with what its journal holds after the input."""
    started = Started(NOW_MS, value_of(workflow.signature.bind(args, {})))
    run = running(workflow=workflow.name, length=1 + len(entries), **fields)
    return History(run, (started, *entries))


def load(host: FakeHost, history: History, workflow: Workflow[..., Any], arrive: Callable[[Any], None]) -> LoadedRun:
    """The run in memory, its code brought to where the journal ends."""
    run = LoadedRun.of(host, workflow, history, {}, arrive)
    LOADED.append(run)
    for _ in run.replaying():
        pass
    return run


@pytest.fixture(autouse=True)
async def nothing_is_left_in_memory() -> AsyncIterator[None]:
    """For test modules to import: the `finally` blocks of every workflow run in their own context."""
    yield
    while LOADED:
        LOADED.pop().close()
