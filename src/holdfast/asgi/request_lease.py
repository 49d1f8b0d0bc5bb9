"""The right to execute one request: renewed while the handler is at work, given up with its response."""

from __future__ import annotations

import asyncio

from holdfast.engine.api.documents import Documents
from holdfast.errors import HoldfastError, TransientError
from holdfast.kernel import idempotency
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.idempotency import KIND, Reply, RequestWanted
from holdfast.kernel.times import Millis

RENEWALS_PER_LEASE = 3
TRIALS_PER_LEASE = 15  # how often a store in trouble is asked again
MARGIN = 0.2  # of a lease: what is left for sending a response that could not be kept


class RequestLease:
    """A request in the hands of this process. If the store refuses a write, another process has taken it over."""

    def __init__(self, documents: Documents, wanted: RequestWanted, held: Document) -> None:
        self._documents = documents
        self._wanted = wanted
        self._held = held
        self._over = asyncio.Event()
        self._renewing = asyncio.create_task(self._renew_until_over())

    @property
    def left_ms(self) -> Millis:
        """How long no other process can take it over, by what has been stored for certain."""
        return idempotency.until_ms(self._held) - self._documents.now_ms()

    async def settle(self, reply: Reply) -> bool:
        """Give it up with a reply; False if another process has taken it over.

        A store in trouble is asked again for as long as the lease allows; then its error is raised.
        """
        await self.end()
        lease_ms = self._wanted.lease_ms
        with self._documents.following(KIND, self._wanted.id) as changed:
            writing = self._settled(reply)
            while True:
                try:
                    if await self._documents.write(writing):
                        return True
                    if not await self._is_ours():
                        return False
                    writing = self._settled(reply)
                except TransientError:
                    if self.left_ms < lease_ms * MARGIN:
                        raise
                    await happens(changed, within_ms=lease_ms / TRIALS_PER_LEASE)

    async def end(self) -> None:
        """Renew it no longer."""
        self._over.set()
        await asyncio.wait([self._renewing])

    def _settled(self, reply: Reply) -> Writing:
        return idempotency.settled(self._held, self._wanted, reply, now_ms=self._documents.now_ms())

    async def _renew_until_over(self) -> None:
        lease_ms = self._wanted.lease_ms
        pause_ms = lease_ms / RENEWALS_PER_LEASE
        while not await happens(self._over, within_ms=pause_ms):
            try:
                if not await self._renew():
                    return  # the handler goes on; its response will be refused
                pause_ms = lease_ms / RENEWALS_PER_LEASE
            except HoldfastError:  # in trouble, or closed too early: the fence decides in the end
                pause_ms = lease_ms / TRIALS_PER_LEASE

    async def _renew(self) -> bool:
        writing = idempotency.renewed(self._held, self._wanted, now_ms=self._documents.now_ms())
        if not await self._documents.write(writing):
            return await self._is_ours()
        self._held = writing.document
        return True

    async def _is_ours(self) -> bool:
        """Whether a write was refused only because the reply to an earlier one had been lost."""
        found = await self._documents.read(KIND, self._wanted.id)
        if found is None or not idempotency.is_held(found, self._wanted):
            return False
        self._held = found
        return True


async def happens(event: asyncio.Event, *, within_ms: float) -> bool:
    """Whether the event is set in time; returns as soon as it is."""
    try:
        async with asyncio.timeout(within_ms / 1000):
            await event.wait()
    except TimeoutError:
        return False
    return True
