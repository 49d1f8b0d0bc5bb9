"""Replays stored journals against the code of today. Nothing is performed, nothing is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from holdfast.engine.api.queries import Replayed
from holdfast.engine.api.registry import Registry
from holdfast.engine.api.scope import Scope
from holdfast.engine.code.machine import Machine
from holdfast.engine.code.replay import replay
from holdfast.engine.code.sandbox import keep_order, keep_the_collector_out
from holdfast.errors import HoldfastError, ReplayDiverged, UnknownWorkflow
from holdfast.kernel import exports, searches
from holdfast.kernel.exports import ExportedJournal
from holdfast.kernel.forks import values
from holdfast.kernel.journal import Entry
from holdfast.kernel.replay import noted
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import Search
from holdfast.kernel.times import Instant
from holdfast.ports.codec import Codec
from holdfast.ports.store import History
from holdfast.workflow import Current

PAGE = 20  # replaying is work without a wait; others want their turn


class ReplayCheck:
    """Replays the journals of a namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def check(self, workflow: str | None, statuses: frozenset[Status], limit: int | None) -> list[Replayed]:
        """Replay the journals of at most `limit` runs, newest first."""
        prepare()
        scope = self._scope
        checked: list[Replayed] = []
        async for history in self._histories(workflow, statuses, limit):
            run, blobs = history.run, await self._blobs(history)
            found = divergence_of(run, history.journal, blobs, registry=scope.registry, codec=scope.codec)
            checked.append(Replayed(run.id, run.workflow, found))
        return checked

    async def export(
        self, workflow: str | None, statuses: frozenset[Status], limit: int | None
    ) -> AsyncIterator[ExportedJournal]:
        """The journals of at most `limit` runs, newest first, with the large values that a replay needs."""
        async for history in self._histories(workflow, statuses, limit):
            yield exports.export(history.run, history.journal, await self._blobs(history))

    async def _histories(
        self, workflow: str | None, statuses: frozenset[Status], limit: int | None
    ) -> AsyncIterator[History]:
        self._scope.require_open()
        after: tuple[Instant, str] | None = None
        seen = 0
        while limit is None or seen < limit:
            page = await self._scope.store.search(
                Search(
                    namespace=self._scope.namespace,
                    limit=PAGE if limit is None else min(PAGE, limit - seen),
                    workflow=workflow,
                    statuses=statuses,
                    after=after,
                )
            )
            for history in await self._scope.store.histories([run.id for run in page]):
                yield history
            if not page:
                break
            seen += len(page)
            after = searches.place_of(searches.cursor_of(page[-1]))

    async def _blobs(self, history: History) -> dict[str, bytes]:
        named = {value.blob: value for value in values(history.journal) if value.blob}
        return {digest: await self._scope.bytes_of(history.run.id, value) for digest, value in named.items()}


def divergence_of(
    run: Run, journal: tuple[Entry, ...], blobs: Mapping[str, bytes], *, registry: Registry, codec: Codec
) -> str:
    """Where the code of today contradicts the journal, and what is known of the values; empty if it fits."""
    try:
        workflow = registry.workflow(run.workflow)
    except UnknownWorkflow as error:
        return error.message
    machine = Machine(
        workflow,
        Current(run.id, run.key, run.workflow, run.version or None),
        codec=codec,
        blobs=blobs,
        noted=noted(journal, first=run.length - len(journal)),
        journal=journal,
    )
    try:
        replay(machine, run, journal)
    except ReplayDiverged as error:
        return error.told
    except HoldfastError as error:
        return error.message
    finally:
        machine.evict()
    return ""


def prepare() -> None:
    """What a replay needs of a process that may have no worker."""
    keep_order()
    keep_the_collector_out()
