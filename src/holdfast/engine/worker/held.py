"""The runs that are in the memory of a worker, each with the task that drives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from msgspec import Struct

from holdfast.kernel.messages import Message
from holdfast.kernel.running_effects import StepAtWork
from holdfast.kernel.runs import Run


class HeldActivation(Protocol):
    """One run in memory, as its worker sees it: `task` drives it; `number` counts the executions of the worker."""

    run: Run
    number: int
    task: asyncio.Task[None] | None

    async def drive(self) -> None: ...
    def arrive(self, arrival: Message) -> None: ...
    def abandon(self) -> None: ...
    def stop(self) -> None: ...

    @property
    def in_flight(self) -> list[asyncio.Task[None]]: ...

    @property
    def at_work(self) -> list[StepAtWork]: ...


class Held(Struct, frozen=True):
    """An execution and its task."""

    execution: HeldActivation
    task: asyncio.Task[None]


class HeldRuns:
    """The runs in memory, by their id."""

    def __init__(self) -> None:
        self._by_id: dict[str, Held] = {}
        self.adopted = 0  # how many have ever been

    def __len__(self) -> int:
        return len(self._by_id)

    def holds(self, run_id: str) -> bool:
        """Whether the run is in memory here."""
        return run_id in self._by_id

    def among(self, run_ids: Collection[str]) -> set[str]:
        """Those of these runs that are in memory here."""
        return self._by_id.keys() & run_ids

    def execution_of(self, run_id: str) -> HeldActivation | None:
        held = self._by_id.get(run_id)
        return None if held is None else held.execution

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [held.task for held in self._by_id.values()]

    @property
    def effects(self) -> list[asyncio.Task[None]]:
        """What is being done for the runs at this moment."""
        return [task for held in self._by_id.values() for task in held.execution.in_flight]

    @property
    def at_work(self) -> list[StepAtWork]:
        """The effects that run here now."""
        return [step for held in self._by_id.values() for step in held.execution.at_work]

    def at_work_for(self, run: Run) -> tuple[StepAtWork, ...] | None:
        """The effects of this run that run here now; None if it is not in memory here."""
        held = self._by_id.get(run.id)
        if held is None or held.execution.run.epoch != run.epoch:
            return None
        return tuple(held.execution.at_work)

    def begin(self, run_id: str, execution: HeldActivation, on_done: Callable[[asyncio.Task[None]], object]) -> None:
        """Drive the run from now on. `on_done` is called when its task has ended, whether or not it is held then."""
        task = execution.task = asyncio.get_running_loop().create_task(execution.drive())
        self._by_id[run_id] = Held(execution, task)
        task.add_done_callback(on_done)

    def remove(self, run_id: str, execution: HeldActivation | None = None) -> bool:
        """Forget the run; with `execution`, only if it is that one which is held. True if it was held."""
        held = self._by_id.get(run_id)
        if held is None or (execution is not None and held.execution is not execution):
            return False
        del self._by_id[run_id]
        return True

    def stop(self) -> None:
        """Let every run end as soon as no effect of it is in flight."""
        for held in self._by_id.values():
            held.execution.stop()

    def drop_all(self) -> int:
        """Forget every run, and cancel its task. Returns how many there were."""
        dropped = list(self._by_id.values())
        self._by_id.clear()
        for held in dropped:
            held.execution.abandon()
            held.task.cancel()
        return len(dropped)
