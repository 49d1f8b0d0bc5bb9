"""What the shared rules of one replica work with, and the documents in which they are kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from msgspec import Struct

from holdfast.engine.pace import Pace
from holdfast.errors import HoldfastError
from holdfast.events import Emit, StoreTroubled
from holdfast.kernel import transitions
from holdfast.kernel.changes import Answer, Change
from holdfast.kernel.effect_rules import Stay
from holdfast.kernel.runs import Run
from holdfast.ports.clock import Clock
from holdfast.ports.ids import Ids
from holdfast.ports.store import Store

PARKED_MAX = 10_000  # runs that are remembered of one rule; others are woken at their time

Told = Callable[[Stay | None], None]


class FlowContext(Struct, frozen=True, kw_only=True):
    """One replica, as its rules see it. `owner` is the name of its lease; empty while it has none."""

    store: Store
    clock: Clock
    ids: Ids
    emit: Emit
    pace: Pace
    namespace: str
    owner: Callable[[], str]
    commit: Callable[[Change], Awaitable[Answer]]
    on_woken: Callable[[Run], None]


class ParkedRuns:
    """The runs that were let go here while an effect of theirs waits at one rule, in order.

    It is no record: a run that is not woken from here wakes at its time.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._waking: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: Run) -> None:
        if len(self._runs) < PARKED_MAX:
            self._runs[run.id] = run

    def forget(self, run_id: str) -> None:
        """The run is here again."""
        self._runs.pop(run_id, None)

    def clear(self) -> None:
        self._runs.clear()

    def wake(self, many: int) -> list[str]:
        """Let the first of them be claimed; returns which."""
        woken: list[str] = []
        while self._runs and len(woken) < many:
            run_id, run = self._runs.popitem(last=False)
            woken.append(run_id)
            task = asyncio.get_running_loop().create_task(self._wake(run))
            self._waking.add(task)
            task.add_done_callback(self._waking.discard)
        return woken

    async def _wake(self, run: Run) -> None:
        now_ms = self._context.store.now_ms()
        change = transitions.wake(run, now_ms=now_ms)
        try:
            await self._context.commit(change)
        except HoldfastError as error:
            self._context.emit(StoreTroubled(str(error)))  # it wakes at its time
        assert change.run is not None
        self._context.on_woken(change.run)
