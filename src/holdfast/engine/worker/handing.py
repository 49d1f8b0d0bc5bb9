"""Hands runs over to workers whose code fits them better. What is decided is in `kernel.handovers`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar, assert_never

from holdfast import events
from holdfast.engine.worker.codes import Codes
from holdfast.errors import TransientError
from holdfast.kernel import handovers, transitions
from holdfast.kernel.changes import Answer, Change, Committed
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.handovers import ExecuteHere, HandTo, NoCodeFits, WaitForVersion
from holdfast.kernel.runs import Run
from holdfast.kernel.starts import Hand
from holdfast.kernel.times import Instant
from holdfast.ports.ids import Ids
from holdfast.ports.store import Store

T = TypeVar("T")


class RunHolder(Protocol):
    """The worker that holds the runs."""

    async def insist(self, ask: Callable[[], Awaitable[T]], about: str) -> T: ...
    async def commit(self, change: Change) -> Answer: ...
    async def postpone(self, run: Run, wake_at_ms: Instant) -> None: ...


class Handing:
    """Gives away runs that this worker holds."""

    def __init__(self, store: Store, codes: Codes, holder: RunHolder, *, ids: Ids, emit: events.Emit) -> None:
        self._store = store
        self._codes = codes
        self._holder = holder
        self._ids = ids
        self._emit = emit

    def is_elsewhere(self, runs: Sequence[Run]) -> bool:
        """Whether one of these runs was admitted under another version than the one that is served here."""
        versions = self._codes.versions
        return any(run.version and run.version != versions.get(run.workflow) for run in runs)

    async def route(self, runs: Sequence[Run]) -> list[Run]:
        """Those of the claimed runs that are executed here; the others have been handed over or given back."""
        here, now_ms = self._codes.here, self._store.now_ms()
        apart = [run for run in runs if handovers.is_elsewhere(run, self._codes.versions[run.workflow])]
        peers = await self._codes.peers({run.workflow for run in apart})
        told = await self._told(apart)
        executed: list[Run] = []
        for run in runs:
            others = peers.get(run.workflow, [])
            match handovers.route(run, here[run.workflow], others, told.get(run.id), now_ms=now_ms):
                case ExecuteHere():
                    executed.append(run)
                case HandTo(owner):
                    await self._hand(run, owner, f"that worker serves version {run.version!r}")
                case WaitForVersion(wake_at_ms):
                    await self._holder.postpone(run, wake_at_ms)
                    self._emit(events.RunWaitsForVersion(run.id, run.workflow, run.version))
                case never:  # pragma: no cover
                    assert_never(never)
        return executed

    async def diverged(self, run: Run, message: str) -> bool:
        """The code here contradicts the journal. True if another worker has the run now; False if no live code fits."""
        others, told = await self._others(run)
        here, now_ms = self._codes.here[run.workflow], self._store.now_ms()
        match handovers.diverged(run, here, others, told, now_ms=now_ms):
            case HandTo(owner, tried):
                await self._note(run, tried)
                await self._hand(run, owner, message)
                return True
            case NoCodeFits(tried):
                await self._note(run, tried)
                return False

    async def prefer_other(self, run: Run, patches: Sequence[str]) -> bool:
        """The journal has patches that the code here does not ask for. True if another worker has the run now."""
        others, told = await self._others(run)
        here, now_ms = self._codes.here[run.workflow], self._store.now_ms()
        match handovers.prefer_other(run, here, others, told, now_ms=now_ms):
            case HandTo(owner, tried):
                await self._note(run, tried)
                await self._hand(run, owner, f"the code does not ask for {', '.join(map(repr, patches))}")
                return True
            case ExecuteHere():
                return False

    async def _others(self, run: Run) -> tuple[list[handovers.Peer], Document | None]:
        peers = await self._holder.insist(lambda: self._codes.peers([run.workflow]), run.id)
        told = await self._holder.insist(lambda: self._told([run]), run.id)
        return peers.get(run.workflow, []), told.get(run.id)

    async def _told(self, runs: Sequence[Run]) -> dict[str, Document]:
        places = [(run.namespace, handovers.TRIED, run.id) for run in runs]
        return {document.id: document for document in await self._store.named(places)}

    async def _note(self, run: Run, tried: Writing | None) -> None:
        if tried is not None:  # refused, it was written by a former holder: then some code may be tried once more
            await self._holder.insist(lambda: self._store.write([tried]), run.id)

    async def _hand(self, run: Run, owner: str, why: str) -> None:
        answer = await self._holder.commit(transitions.hand_over(run, Hand(owner, self._ids.nonce())))
        if not isinstance(answer, Committed) or answer.run is None:
            self._emit(events.RunOvertaken(run.id))
            return
        self._emit(events.RunHandedOver(run.id, run.workflow, owner, why))
        try:
            await self._store.write([handovers.call(answer.run, owner, now_ms=self._store.now_ms())])
        except TransientError as error:  # the worker finds the run when it renews its lease
            self._emit(events.StoreTroubled(str(error)))
