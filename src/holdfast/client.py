"""For callers: start work by key, look at runs, wait for their results.

A `Run` is an immutable snapshot: `refresh()` answers a newer one. Everything that changes a run goes through the
engine's service; nothing here decides.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar, cast

from holdfast.engine.service import Service, StartOptions
from holdfast.errors import InputMismatch
from holdfast.kernel import changes
from holdfast.kernel.journal import Entry
from holdfast.kernel.units import Duration
from holdfast.pack import Call, Workflow

R = TypeVar("R")


class Run(Generic[R]):
    """One execution of a workflow, as it was when this snapshot was taken."""

    __slots__ = ("_row", "_service")

    def __init__(self, row: changes.Run, service: Service) -> None:
        self._row = row
        self._service = service

    @property
    def id(self) -> str:
        return self._row.id

    @property
    def workflow(self) -> str:
        """The workflow's full name: `pack.function`."""
        return self._row.workflow

    @property
    def key(self) -> str | None:
        return self._row.key

    @property
    def status(self) -> str:
        """One of pending, running, waiting, blocked, completed, failed, cancelled."""
        return self._row.status.value

    @property
    def fence(self) -> int:
        """Grows each time the run changes hands."""
        return self._row.epoch

    @property
    def priority(self) -> int:
        return self._row.priority

    @property
    def queue(self) -> str:
        return self._row.queue

    @property
    def created_at(self) -> datetime:
        return _instant(self._row.created_ms)

    @property
    def finished_at(self) -> datetime | None:
        """When it ended; None while it has not."""
        return None if self._row.finished_ms is None else _instant(self._row.finished_ms)

    @property
    def expires_at(self) -> datetime | None:
        """Until when the key and the result of a finished run are kept."""
        return None if self._row.expires_ms is None else _instant(self._row.expires_ms)

    async def result(self, timeout: Duration | None = None) -> R:
        """The value that the workflow returned. Waits for it.

        Raises `RunFailed` (with the workflow's exception as its cause), `RunCancelled`, `TimedOut` if `timeout`
        passes first, or, if the run is blocked, what blocks it: `ReplayDiverged`, `UnknownOutcome`, `WaitsForNothing`.
        """
        return cast("R", await self._service.result(self._row, self._service.returns_of(self._row.workflow), timeout))

    @property
    def input(self) -> dict[str, Any]:
        """The arguments that the run was started with, by name. For large ones use `load_input()`."""
        return self._service.input_of(self._row)

    async def load_input(self) -> dict[str, Any]:
        """The arguments that the run was started with, by name, however large."""
        return await self._service.load_input(self._row)

    async def refresh(self) -> Run[R]:
        """A newer snapshot. Raises `UnknownRun` if the run has been removed."""
        return Run(await self._service.get(self._row.id), self._service)

    async def journal(self) -> tuple[Entry, ...]:
        """What the run has done so far, in order."""
        return await self._service.journal(self._row.id)

    async def retry(self) -> Run[R]:
        """Try a failed or blocked run again from its last record. Raises `NotAllowedNow` in any other status."""
        return Run(await self._service.retry(self._row.id), self._service)

    def __repr__(self) -> str:
        return f"Run({self.id!r}, workflow={self.workflow!r}, key={self.key!r}, status={self.status!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self._row == cast("Run[Any]", other)._row

    def __hash__(self) -> int:
        return hash(self._row.id)


class Started(NamedTuple, Generic[R]):
    """The answer to a start: the run that holds the key, and whether this start created it."""

    run: Run[R]
    created: bool


class Caller:
    """The verbs. `Holdfast` is this, with a store behind it."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def start(
        self,
        call: Call[R],
        *,
        key: str | None = None,
        retention: Duration | None = None,
        request_id: str | None = None,
        delay: Duration | None = None,
        priority: int = 0,
    ) -> Started[R]:
        """Admit `call`, once per key.

        If a live run holds the key, nothing is started: the answer is that run, with `created=False`. The same key
        with another input raises `InputMismatch`. A start whose reply was lost may be repeated with the same
        `request_id`, and answers `created=True` again. `retention` says how long the key and the result of the
        finished run are kept; `delay` when it may begin; of the runs that are ready, a higher `priority` goes first.
        """
        options = StartOptions(key=key, retention=retention, request_id=request_id, delay=delay, priority=priority)
        try:
            row, created = await self._service.start(call, options)
        except InputMismatch as error:
            if isinstance(error.run, changes.Run):
                error.run = Run[Any](error.run, self._service)
            raise
        return Started(Run(row, self._service), created)

    async def get(self, run_id: str) -> Run[Any]:
        """The run of this id, or `UnknownRun`."""
        return Run(await self._service.get(run_id), self._service)

    async def find(self, workflow: Workflow[..., R] | str, key: str) -> Run[R]:
        """The run that holds this key, or `UnknownRun`."""
        name = workflow.name if isinstance(workflow, Workflow) else self._service.full_name(workflow)
        return Run(await self._service.find(name, key), self._service)


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
