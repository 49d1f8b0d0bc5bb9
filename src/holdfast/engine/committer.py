"""Group commit: the changes of all runs that are ready at the same time travel together.

A lone change is never held back to wait for company: it leaves at the end of the loop's present turn. While a
batch is being written, what becomes ready gathers and leaves as the next one. Batches leave one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.engine.events import BatchCommitted, Emit
from holdfast.kernel.changes import Answer, Change, Committed
from holdfast.ports.store import Store

BATCH_MAX = 512


class Committer:
    """Collects changes and offers them to the store in batches."""

    def __init__(self, store: Store, *, emit: Emit, on_told: Callable[[], None]) -> None:
        self._store = store
        self._emit = emit
        self._on_told = on_told
        self._waiting: list[tuple[Change, asyncio.Future[Answer]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def commit(self, change: Change) -> Answer:
        """The store's answer to `change`. Raises `StoreUnavailable` if it could not give one."""
        return await self.offer(change)

    def offer(self, change: Change) -> asyncio.Future[Answer]:
        """As `commit`, for callers that must learn the answer even if whoever waits for it goes away."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, answer))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        return answer

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                await self._write_batch(batch)
        finally:
            self._writer = None

    async def _write_batch(self, batch: list[tuple[Change, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._store.commit([change for change, _ in batch])
        except BaseException as error:
            for _, waiting in batch:
                if not waiting.done():
                    waiting.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        told = False
        for (_, waiting), answer in zip(batch, answers, strict=True):
            told = told or (isinstance(answer, Committed) and bool(answer.told))
            if not waiting.done():
                waiting.set_result(answer)
        self._emit(BatchCommitted(len(batch)))
        if told:
            self._on_told()
