"""What a run in memory needs from the worker that holds it."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from holdfast.engine.events import Emit
from holdfast.engine.machine import Command
from holdfast.engine.performer import Performer
from holdfast.kernel.changes import Change, Committed, Run, Watcher
from holdfast.pack import Effect, EffectPolicy
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.ports.store import Store


class Desk(Protocol):
    """The worker, as its runs see it."""

    store: Store
    codec: Codec
    ids: Ids
    emit: Emit
    performer: Performer
    loop: asyncio.AbstractEventLoop

    @property
    def trusted(self) -> bool:
        """Whether the lease is good enough to touch the world."""
        ...

    async def until_trusted(self) -> None: ...

    def policy_of(self, effect: Effect[..., Any]) -> EffectPolicy: ...

    async def commit(self, change: Change) -> Committed | None:
        """None if the change was refused. Raises `LeaseLost` if there was no answer while the lease lasted."""
        ...

    async def admit_child(self, parent: Run, command: Command) -> Run: ...
    async def watch(self, run_id: str, watcher: Watcher) -> bool: ...

    def settled(self, run: Run) -> None:
        """The run has ended, or is blocked."""
        ...

    def let_go(self, run: Run) -> None:
        """The run waits, and is nobody's."""
        ...

    def quiet(self) -> None:
        """The run only waits: it needs no slot."""
        ...

    def busy(self) -> None:
        """It goes on."""
        ...
