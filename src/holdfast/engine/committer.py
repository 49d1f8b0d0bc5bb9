"""Group commit: the changes of all runs that are ready at the same time travel together.

A lone change is never held back to wait for company: it leaves at the end of the loop's present turn. While a
batch is being written, what becomes ready gathers and leaves as the next one. A store says how many batches may be
under way at once: one where they are written one after the other anyway, more where a server works while this process
prepares the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from holdfast.errors import TransientError
from holdfast.events import BatchCommitted, Emit
from holdfast.kernel.changes import Answer, Change, Committed
from holdfast.ports.store import Store

OnAnswer = Callable[[Answer | None], None]  # None: it is not known whether the change was made
Offer = tuple[Change, "asyncio.Future[Answer]", OnAnswer | None]


class Committer:
    """Collects changes and offers them to the store in batches."""

    def __init__(
        self,
        store: Store,
        *,
        emit: Emit,
        on_told: Callable[[Collection[str]], None],
        on_changed: Callable[[Collection[str]], None],
        on_unsure: Callable[[], object],
    ) -> None:
        self._store = store
        self._emit = emit
        self._on_told = on_told
        self._on_changed = on_changed
        self._on_unsure = on_unsure
        self._is_unsure = False  # changes may have been made of which nothing is known here
        self._waiting: list[Offer] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writers: set[asyncio.Task[None]] = set()

    def commit(self, change: Change, *, on_answer: OnAnswer | None = None) -> asyncio.Future[Answer]:
        """The store's answer to `change`. Raises `StoreUnavailable` if it could not give one.

        `on_answer` is called with the answer before the caller gets it, even if the caller has gone away meanwhile.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting.append((change, answer, on_answer))
        if len(self._waiting) == 1:
            self._add_writer()
        return answer

    def _add_writer(self) -> None:
        if self._loop is not None and len(self._writers) < self._store.batches.at_once:
            self._writers.add(self._loop.create_task(self._write()))

    async def drained(self) -> None:
        """Returns when nothing is waiting to be written."""
        if self._writers:
            await asyncio.wait(self._writers)

    async def _write(self) -> None:
        try:
            size = self._store.batches.size
            while batch := self._waiting:
                self._waiting = []
                if len(batch) > size:
                    batch, self._waiting = batch[:size], batch[size:]
                    self._add_writer()
                await self._write_batch(batch)
        finally:
            writer = asyncio.current_task()
            assert writer is not None
            self._writers.discard(writer)

    async def _write_batch(self, batch: list[Offer]) -> None:
        try:
            answers = await self._store.commit([change for change, _, _ in batch])
        except TransientError as error:
            self._is_unsure = True
            _fail(batch, error)
            return
        except Exception as error:  # noqa: BLE001 - one change that cannot be written must not take the others along
            if len(batch) == 1:
                _fail(batch, error)
            else:
                for offer in batch:
                    await self._write_batch([offer])
            return
        except BaseException as error:
            _fail(batch, error)
            raise
        self._hand_out(batch, answers)
        if self._is_unsure:  # a change that is offered again does not say again whom it has told
            self._is_unsure = False
            self._on_unsure()

    def _hand_out(self, batch: list[Offer], answers: list[Answer]) -> None:
        """Say what became of each change, and who was told something."""
        told: list[str] = []
        changed: list[str] = []
        for (_, waiting, on_answer), answer in zip(batch, answers, strict=True):
            if on_answer is not None:
                on_answer(answer)
            if type(answer) is Committed:
                if answer.told:
                    told += answer.told
                if answer.run is not None:
                    changed.append(answer.run.id)
            if not waiting.done():
                waiting.set_result(answer)
        self._on_changed(changed)
        self._emit(BatchCommitted(len(batch)))
        if told:
            self._on_told(told)


def _fail(batch: list[Offer], error: BaseException) -> None:
    for _, waiting, on_answer in batch:
        if on_answer is not None:
            on_answer(None)
        if not waiting.done():
            waiting.set_exception(error)
