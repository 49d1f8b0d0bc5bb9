"""One run, as callers have it: what can be seen of it, and what may be done with it.

A `Run` is an immutable snapshot: `refresh()` returns a newer one. Everything that changes a run goes through
`Backend`; nothing here decides. All names are imported from `holdfast.client`, where the verbs are that return runs.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET

from holdfast.engine.api.backend import Backend, Operating
from holdfast.engine.api.decisions import Said
from holdfast.engine.cancelling import Cancellation
from holdfast.errors import EngineFault, UsageError
from holdfast.journal import Journal, RunEvent
from holdfast.kernel import attributes as attributes_, batches, markers as markers_, timeouts, waits
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.explanations import Story
from holdfast.kernel.journal import ByHand, Failure
from holdfast.kernel.running_effects import StepAtWork
from holdfast.kernel.runs import ENDED, PENDING, SETTLED, Run as RunRow, Status
from holdfast.kernel.units import Duration, utc_of
from holdfast.kernel.waits import LanePlace, Wait
from holdfast.warnings import HookNotOpen, NoWorker

R = TypeVar("R")
_decode_failure = msgspec.json.Decoder(Failure).decode


class Marker(NamedTuple):
    """A marker that a run has reached, and when."""

    name: str
    at: datetime


class Snapshot:
    """What can be seen of a run: as it was when this was taken."""

    __slots__ = ("_at_work", "_place", "_row", "_served", "_service")

    def __init__(
        self,
        row: RunRow,
        service: Backend,
        served: frozenset[str] | None = None,
        at_work: tuple[StepAtWork, ...] = (),
        place: LanePlace | None = None,
    ) -> None:
        self._row = row
        self._service = service
        self._served = served
        self._at_work = at_work
        self._place = place

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
    def holds_key(self) -> bool:
        """Whether the key is still its own: not released, and not taken over by a successor."""
        return self._row.key is not None and self._row.holds_key

    @property
    def status(self) -> str:
        """One of pending, running, waiting, blocked, completed, failed, cancelled."""
        return self._row.status.value

    @property
    def is_settled(self) -> bool:
        """Whether it has ended, or is blocked until a person does something."""
        return self._row.status in SETTLED

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
    def lane(self) -> str | None:
        """The lane in which it goes one after the other with other runs; None if it goes in none."""
        return self._row.lane or None

    @property
    def version(self) -> str | None:
        """The version of the workflow under which it was admitted, if that declared one."""
        return self._row.version or None

    @property
    def attributes(self) -> dict[str, Scalar]:
        """What it can be found by. Names that begin with `holdfast.` are the engine's own."""
        return attributes_.decode(self._row.attributes)

    @property
    def markers(self) -> tuple[Marker, ...]:
        """The markers that it has reached, in order."""
        return tuple(Marker(name, utc_of(at_ms)) for name, at_ms in markers_.decode(self._row.markers))

    @property
    def waiting_on(self) -> tuple[Wait, ...]:
        """Why it is not finished: effects that run, timers, hooks, children, retries, a lane, a worker, a person.

        Empty once it has ended. Of an effect that runs in another process, everyone knows within a third of the lease.
        """
        return self._service.queries.waits_of(self._row, self._served, self._at_work, self._place)

    @property
    def next_actions(self) -> tuple[str, ...]:
        """What its status permits: signal, cancel, retry, resume, fork, release_key.

        The journal may forbid one of them, such as the retry of a run that was undone, or permit `decide`
        or `retry_now`: the `next_actions` of its story (`explain()`) have read it.
        """
        return waits.next_actions(self._row)

    @property
    def error(self) -> Failure | None:
        """Why it failed, or what blocks it: `type`, `message`, `line`, and `traceback`. None in any other status."""
        if self._row.error is None or self._row.status not in {Status.FAILED, Status.BLOCKED}:
            return None
        return _decode_failure(self._row.error)

    @property
    def created_at(self) -> datetime:
        return utc_of(self._row.created_at_ms)

    @property
    def finished_at(self) -> datetime | None:
        """When it ended; None while it has not."""
        return None if self._row.finished_at_ms is None else utc_of(self._row.finished_at_ms)

    @property
    def expires_at(self) -> datetime | None:
        """Until when the key and the result of a finished run are kept."""
        return None if self._row.expires_at_ms is None else utc_of(self._row.expires_at_ms)

    @property
    def times_out_at(self) -> datetime | None:
        """When it is ended if it has not ended by then; None if it may take as long as it likes, or has ended."""
        return None if self._row.status in ENDED else timeouts.shown_by(self.attributes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self._row == other._row

    def __hash__(self) -> int:
        return hash(self._row.id)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.id!r}, workflow={self.workflow!r}, key={self.key!r}, status={self.status!r})"
        )


class Run(Snapshot, Generic[R]):
    """One execution of a workflow, as it was when this snapshot was taken."""

    __slots__ = ()

    async def result(self, timeout: Duration | None = None) -> R:
        """The value that the workflow returned. Waits for it.

        Raises `RunFailed` (with the workflow's exception as its cause), `RunCancelled`, `TimedOut` if `timeout`
        passes first, or, if the run is blocked, what blocks it: `ReplayDiverged`, `UnknownOutcome`,
        `WaitsForNothing`, `KilledItsWorkers`, `HeldUpItsWorker`, `NeverAwaited`. If no live worker executes its
        workflow, it says so at once, with a warning (`NoWorker`), and waits for one to come.
        """
        if self._row.wake_at_ms is not None or self._row.status is PENDING:
            await self._warn_if_unserved()
        return cast("R", await self._service.result(self._row, self._service.returns_of(self._row.workflow), timeout))

    async def _warn_if_unserved(self) -> None:
        """Warn the caller of `result()` if the run waits for a worker and there is none for it."""
        if not _needs_worker(self):
            return
        now = await self.refresh()  # a worker may have come since this snapshot was taken
        if _needs_worker(now):
            warnings.warn(
                f"run {self.id} waits for {now.waiting_on[0]}, and {self.workflow} is executed nowhere: start a worker "
                "that has its pack, for example Holdfast(url, packs=[...]) or `holdfast worker`",
                NoWorker,
                stacklevel=3,
            )

    async def wait(self, timeout: Duration | None = None) -> Run[R]:
        """Wait until the run has ended or is blocked: a newer snapshot. Raises `TimedOut` if `timeout` passes first."""
        return await snapshot(await self._service.wait(self._row, timeout), self._service)

    async def result_json(self) -> bytes:
        """What a settled run returned, as JSON. Raises as `result()` does."""
        return await self._service.result_json(self._row)

    async def input(self) -> dict[str, Any]:
        """The arguments that the run was started with, by name."""
        return await self._service.input(self._row)

    async def input_json(self) -> bytes:
        """The arguments that the run was started with, by name, as JSON."""
        return await self._service.input_json(self._row)

    async def refresh(self) -> Run[R]:
        """A newer snapshot. Raises `UnknownRun` if the run has been removed."""
        return await snapshot(await self._service.get(self._row.id), self._service)

    async def journal(self, after: int | None = None) -> Journal:
        """What the run has done so far, entry by entry, since it last continued as new; with `after`, behind a cursor.

        It is a tuple of entries that knows their cursors: `run.events(after=journal.cursor)` goes on where it ends.
        """
        journal = await self._service.queries.journal(self._row.id)
        return journal if after is None else journal.after(after)

    def events(self, after: int | None = None) -> AsyncIterator[RunEvent]:
        """What happens to it, entry by entry, until it has ended; `after` is the cursor of the last event seen."""
        return self._service.queries.events(self._row.id, after)

    async def explain(self) -> Story:
        """Its story: what happened, why it waits, what may be done now. `str()` of it is text."""
        return await self._service.queries.explain(self._row.id)

    async def signal(self, hook: str, payload: Any = None, *, dedupe: str | None = None) -> None:
        """Send a payload to one of its hooks, durably; once per `dedupe` and hook.

        Raises `NotAllowedNow` if the run has ended, `PayloadRefused` if the payload does not fit the hook's type. If
        the run is known to wait for other hooks and not for this one, it warns with their names: `HookNotOpen`.
        """
        if said := await send(self, hook, payload, dedupe=dedupe):
            warnings.warn(said, HookNotOpen, stacklevel=2)

    async def cancel(self, reason: str | None = None, *, deadline: Duration = "30s") -> Receipt:
        """Cancel the run, wait until it has ended, and say what it left behind.

        When `deadline` has passed it is stopped without further cleanup, and the receipt says so.
        """
        return await self._service.operations.cancel(self._row.id, words(reason), deadline)

    async def ask_cancel(self, reason: str | None = None, *, deadline: Duration = "30s") -> Cancelling:
        """Ask for the cancellation, durably, without waiting for it: `await cancelling.receipt()` does."""
        operations = self._service.operations
        return Cancelling(await operations.ask_cancel(self._row.id, words(reason), deadline), operations)

    async def receipt(self) -> Receipt:
        """What a run that was cancelled, or has failed, left behind."""
        return await self._service.operations.receipt(self._row.id)

    async def retry(self) -> Run[R]:
        """Try a failed or blocked run again from its last record. Raises `NotAllowedNow` in any other status."""
        return await snapshot(await self._service.operations.retry(self._row.id), self._service)

    async def decide(
        self,
        step: str,
        *,
        returned: Any = UNSET,
        failed: str | None = None,
        not_performed: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> Run[R]:
        """Say what came of a step whose outcome is not known, and let the run go on. It is recorded, with who says it.

        `returned` is what the code gets; `failed` is raised in it as `Permanent`; with `not_performed` the effect is
        called. Raises `NotAllowedNow` if the step is not in doubt, or was decided otherwise; the same again is no harm.
        """
        said = Said(returned=returned, failed=failed, not_performed=not_performed, by=words(by), reason=words(reason))
        return await snapshot(await self._service.operations.decide(self._row.id, step, said), self._service)

    async def retry_now(self, step: str | None = None, *, by: str | None = None, reason: str | None = None) -> Run[R]:
        """Let the next attempt of an effect that waits for it begin at once; without `step`, of all that wait.

        Attempts that were made still count. It is recorded, with who says it; said twice, it is done once. Raises
        `NotAllowedNow` if the step, or no step, waits for its next attempt.
        """
        by_hand = ByHand(words(by), words(reason))
        return await snapshot(await self._service.operations.retry_now(self._row.id, step, by_hand), self._service)

    async def resume(self) -> Run[R]:
        """Let a cancelled run go on as if it had not been cancelled.

        Raises `NotAllowedNow` if something was undone, or if the code did something about the cancellation.
        """
        return await snapshot(await self._service.operations.resume(self._row.id), self._service)

    async def fork(self, at: str, *, key: str | None = None) -> Run[R]:
        """A new run that begins with what this one did before step `at`.

        It takes over the key of a run that has ended; a live one can be forked under another `key`.
        """
        return await snapshot(await self._service.operations.fork(self._row.id, at, key), self._service)

    async def release_key(self, reason: str | None = None) -> Run[R]:
        """Take the key from this run, so that it can be used again. For operators; it is recorded."""
        return await snapshot(await self._service.operations.release_key(self._row.id, words(reason)), self._service)


class Cancelling:
    """A cancellation that will be done, whether or not its receipt is waited for."""

    def __init__(self, asked: Cancellation, operations: Operating) -> None:
        self._asked = asked
        self._operations = operations

    async def receipt(self) -> Receipt:
        """What it left behind, once the run has ended."""
        return await self._operations.cancelled(self._asked)


async def send(run: Run[Any], hook: str, payload: Any, *, dedupe: str | None) -> str:
    """`run.signal(...)` for those who say a warning in their own way: it is returned, or nothing."""
    return await run._service.signals.to_run(run.id, hook, payload, dedupe)  # noqa: SLF001 - of this very module


class ItemRun(Run[R]):
    """The run of a batch that an item is in: its `result()` is that of the item. All else is about the batch."""

    __slots__ = ("_item",)

    _item: str  # pyright: ignore[reportUninitializedInstanceVariable] - `item_run` sets it, so that no caller must

    @property
    def item(self) -> str:
        """The id of the item in the batch."""
        return self._item

    async def result(self, timeout: Duration | None = None) -> R:
        """What the batch returned for this item. Waits for it. Raises as that of any run, if the batch has failed."""
        batch = Run[Any](await self._service.wait(self._row, timeout), self._service)
        results = await _results_of(batch, self._service)
        if self._item not in results:
            raise EngineFault(f"batch {self.id} has no item {self._item!r}")
        return cast("R", results[self._item])

    async def wait(self, timeout: Duration | None = None) -> ItemRun[R]:
        """Wait until the batch has ended or is blocked: a newer snapshot."""
        return item_run(await self._service.wait(self._row, timeout), self._service, self._item)

    async def refresh(self) -> ItemRun[R]:
        """A newer snapshot. Raises `UnknownRun` if the batch has been removed."""
        return item_run(await self._service.get(self._row.id), self._service, self._item)


# The results of batches that were read last, by item: all of a batch are asked for at the same time.
_READ: WeakKeyDictionary[Backend, dict[str, asyncio.Task[dict[str, Any]]]] = WeakKeyDictionary()
BATCHES_READ_MAX = 16


async def _results_of(batch: Run[Any], service: Backend) -> dict[str, Any]:
    """What a batch returned for each of its items. Raises as `result()` does if it has failed, which is not kept."""
    read = _READ.setdefault(service, {})
    task = read.get(batch.id)
    if task is None or task.get_loop() is not asyncio.get_running_loop():
        if len(read) >= BATCHES_READ_MAX:
            del read[next(iter(read))]
        task = read[batch.id] = asyncio.create_task(_read(batch))
    try:
        return await asyncio.shield(task)
    except BaseException:
        if task.done():
            read.pop(batch.id, None)
        raise


async def _read(batch: Run[Any]) -> dict[str, Any]:
    results, journal = await batch.result(), await batch.journal()
    return dict(zip(batches.items_of(tuple(journal)), results, strict=True))


def item_run(batch: RunRow, service: Backend, item: str) -> ItemRun[Any]:
    """The run of this item in this batch."""
    run = ItemRun[Any](batch, service)
    run._item = item  # noqa: SLF001 - of this very module
    return run


def _needs_worker(run: Snapshot) -> bool:
    return any(wait.kind == "no_worker" for wait in run.waiting_on)


async def snapshot(row: RunRow, service: Backend) -> Run[Any]:
    """The run of this row. Whether there is a worker for it is of interest only while it waits for one."""
    if waits.may_be_parked(row):
        place = (await service.queries.places([row])).get(row.id)
        return Run(row, service, await service.queries.served([row]), place=place)
    served = None if row.wake_at_ms is None else await service.queries.served([row])
    if row.status is not Status.RUNNING:
        return Run(row, service, served)
    return Run(row, service, served, (await service.queries.at_work([row])).get(row.id, ()))


def words(reason: str | None) -> str:
    """What a person gave as a reason, which may be none."""
    if reason is not None and not isinstance(reason, str):
        raise UsageError(f"reason={reason!r:.60} is not text", hint="Say it in words.")
    return reason or ""


def row_of(run: Snapshot) -> RunRow:
    """The row behind what was given as `replace=`. Raises `UsageError` if that is no run."""
    if not isinstance(run, Snapshot):
        raise UsageError(f"replace={run!r:.60} is not a run", hint="Pass the run that start() or find() returned.")
    return run._row  # noqa: SLF001 - of this very module
