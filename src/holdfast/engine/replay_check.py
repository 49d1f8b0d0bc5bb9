"""Replays stored journals against the code of today. Nothing is performed, nothing is written."""

from __future__ import annotations

from holdfast.engine.api.queries import Replayed
from holdfast.engine.api.scope import Scope
from holdfast.engine.code.machine import Machine
from holdfast.engine.code.replay import replay
from holdfast.engine.code.sandbox import keep_order, keep_the_collector_out
from holdfast.errors import HoldfastError, UnknownWorkflow
from holdfast.kernel import searches
from holdfast.kernel.forks import values
from holdfast.kernel.replay import noted
from holdfast.kernel.runs import Status
from holdfast.kernel.searches import Search
from holdfast.ports.store import History
from holdfast.workflow import Current

PAGE = 20  # replaying is work without a wait; others want their turn


class ReplayCheck:
    """Replays the journals of a namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def check(self, workflow: str | None, statuses: frozenset[Status], limit: int | None) -> list[Replayed]:
        """Replay the journals of at most `limit` runs, newest first."""
        self._scope.require_open()
        keep_order()  # this process may have no worker
        keep_the_collector_out()
        checked: list[Replayed] = []
        after: tuple[int, str] | None = None
        while limit is None or len(checked) < limit:
            page = await self._scope.store.search(
                Search(
                    namespace=self._scope.namespace,
                    limit=PAGE if limit is None else min(PAGE, limit - len(checked)),
                    workflow=workflow,
                    statuses=statuses,
                    after=after,
                )
            )
            checked += [
                Replayed(history.run.id, history.run.workflow, await self._divergence(history))
                for history in await self._scope.store.histories([run.id for run in page])
            ]
            if not page:
                break
            after = searches.place_of(searches.cursor_of(page[-1]))
        return checked

    async def _divergence(self, history: History) -> str:
        run, journal = history.run, history.journal
        try:
            workflow = self._scope.registry.workflow(run.workflow)
        except UnknownWorkflow as error:
            return error.message
        blobs = {value.blob: await self._scope.bytes_of(run.id, value) for value in values(journal) if value.blob}
        current = Current(run.id, run.key, run.workflow, run.version or None)
        machine = Machine(
            workflow,
            current,
            codec=self._scope.codec,
            blobs=blobs,
            noted=noted(journal, first=run.length - len(journal)),
            journal=journal,
        )
        try:
            replay(machine, run, journal)
        except HoldfastError as error:
            return error.message
        finally:
            machine.evict()
        return ""
