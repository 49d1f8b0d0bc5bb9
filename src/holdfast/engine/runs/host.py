"""What a run in memory needs from the worker that holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.engine.code.commands import Command
from holdfast.engine.flow.gate import EffectGate
from holdfast.engine.pace import Pace
from holdfast.engine.remote.remote_effects import RemoteEffects
from holdfast.engine.runs.performer import Performer
from holdfast.engine.tracing import Tracing
from holdfast.errors import TransientError
from holdfast.events import Emit
from holdfast.kernel.changes import Answer, Change
from holdfast.kernel.limits import LimitVerdict
from holdfast.kernel.messages import Watcher
from holdfast.kernel.rates import Rate
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant, Steady
from holdfast.pack import Effect, EffectPolicy
from holdfast.ports.clock import Clock
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.ports.store import History, Store

T = TypeVar("T")


class RunHost(Protocol):
    """The worker, as its runs see it."""

    store: Store
    clock: Clock
    codec: Codec
    ids: Ids
    emit: Emit
    pace: Pace
    tracing: Tracing | None
    performer: Performer
    remote_effects: RemoteEffects
    gate: EffectGate
    loop: asyncio.AbstractEventLoop
    strict: bool
    record_inputs: bool  # of effects, where a workflow does not say
    seals: bool  # whether payloads are sealed at rest

    def is_trusted(self, at_steady_ms: Steady | None = None) -> bool:
        """Whether the lease is good enough to touch the world: now, or at this present reading of the steady clock."""
        ...

    async def until_trusted(self) -> None: ...

    def limit(self, name: str, rate: Rate, cost: int) -> Awaitable[LimitVerdict]:
        """Take `cost` of the rate, if all of it may go now."""
        ...

    def policy_of(self, effect: Effect[..., Any]) -> EffectPolicy: ...

    def offer(self, change: Change) -> asyncio.Future[Answer]:
        """The store's answer, or `TransientError`: then `offer_again`."""
        ...

    async def offer_again(self, change: Change, error: TransientError) -> Answer:
        """The store's answer after it could not give one. Raises `LeaseLost` if there is none while the lease lasts."""
        ...

    async def commit(self, change: Change) -> Answer:
        """The same, asked for as often as it takes."""
        ...

    async def history(self, run_id: str) -> History | None:
        """The run as the store has it now, or `LeaseLost`."""
        ...

    async def insist(self, ask: Callable[[], Awaitable[T]], about: str) -> T:
        """What the store returns; asked again as long as the lease lasts, then `LeaseLost`."""
        ...

    async def bear(self, error: TransientError, about: str) -> None:
        """The store is in trouble: returns when it may be asked again, or raises `LeaseLost`."""
        ...

    async def blobs_of(self, history: History) -> dict[str, bytes]:
        """The large values that a replay needs, or `LeaseLost`."""
        ...

    async def hand_over(self, run: Run, message: str) -> bool:
        """The code contradicts the journal of the run: whether another worker, with other code, has it now."""
        ...

    async def prefer_other(self, run: Run, patches: Sequence[str]) -> bool:
        """The code does not ask for these patches of the journal: whether another worker has the run now."""
        ...

    async def admit_child(self, parent: Run, command: Command) -> tuple[Run, bool]: ...
    async def cancel(self, run_id: str, reason: str, *, nonce: str, deadline_at_ms: Instant) -> None:
        """Ask a run to cancel, or end it if no code would read that."""
        ...

    async def watch(self, run_id: str, watcher: Watcher) -> bool: ...

    def settled(self, run: Run) -> None:
        """The run has ended, or is blocked."""
        ...

    def let_go(self, run: Run) -> None:
        """The run waits, and no worker holds it."""
        ...

    def quiet(self) -> None:
        """The run only waits: it needs no slot."""
        ...

    def busy(self) -> None:
        """It goes on."""
        ...
