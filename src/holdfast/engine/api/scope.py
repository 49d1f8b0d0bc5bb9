"""What every verb of the service needs: the store behind it, and who it is for."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engine.api.registry import Registry
from holdfast.engine.committer import Committer
from holdfast.engine.pace import Pace
from holdfast.engine.tracing import Tracing
from holdfast.engine.values import inline, require_open
from holdfast.errors import UnknownRun, UsageError
from holdfast.events import Emit
from holdfast.kernel import seals
from holdfast.kernel.changes import Answer, Change
from holdfast.kernel.journal import Value
from holdfast.kernel.runs import Run
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.ports.store import History, Store


class Scope:
    """The runs of one namespace."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        *,
        registry: Registry,
        codec: Codec,
        ids: Ids,
        emit: Emit,
        pace: Pace,
        namespace: str,
        is_open: Callable[[], bool],
        tracing: Tracing | None = None,
        open_value: Callable[[Value], bytes] | None = None,
    ) -> None:
        self._open_value = open_value
        self._is_open = is_open
        self.store = store
        self.committer = committer
        self.registry = registry
        self.codec = codec
        self.ids = ids
        self.emit = emit
        self.pace = pace
        self.namespace = namespace
        self.tracing = tracing

    def require_open(self) -> None:
        if not self._is_open():
            raise UsageError("this Holdfast is not open", hint="Use it inside `async with Holdfast(...) as hf:`.")

    async def commit(self, change: Change) -> Answer:
        return await self.committer.commit(change)

    async def run(self, run_id: str) -> Run:
        self.require_open()
        run = await self.store.run(self.namespace, run_id)
        if run is None:
            raise UnknownRun(f"no run of namespace {self.namespace!r} has the id {run_id!r}")
        return run

    async def history(self, run_id: str) -> History:
        self.require_open()
        histories = await self.store.histories([run_id])
        if not histories or histories[0].run.namespace != self.namespace:
            raise UnknownRun(f"no run of namespace {self.namespace!r} has the id {run_id!r}")
        return histories[0]

    async def bytes_of(self, run_id: str, value: Value) -> bytes:
        """The bytes of a value; raises `SealedPayload` if this process cannot open them."""
        data = self.at_hand(value)
        return await self.blob(run_id, value) if data is None else data

    def at_hand(self, value: Value) -> bytes | None:
        """The same of a value that is kept inline; None if its bytes are in a blob."""
        if value.sealed:
            if self._open_value is None:
                raise seals.refusal(value.sealed)
            return self._open_value(value)
        return inline(value)

    async def blob(self, run_id: str, value: Value) -> bytes:
        """The bytes of a large value."""
        return require_open(await self.stored_blob(run_id, value))

    async def stored_blob(self, run_id: str, value: Value) -> bytes:
        """The same as they are stored, for one who only moves them: they may be sealed."""
        data = await self.store.blob(run_id, value.blob)
        if data is None:
            raise UnknownRun(f"run {run_id} has been removed")
        return data
