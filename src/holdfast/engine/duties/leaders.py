"""Keeps the leases of the duties that this process leads, and bids for those that no process leads.

Rules
- All leases that are held are renewed together, in one write, at a third of their life. A candidate reads all that it
  does not hold at once, at the same slow pace, and besides when a lease that it has seen expires.
- A duty is attended to only while its lease can be relied on by the steady clock, measured from before the last renewal
  was sent. A process that was paused past that finds its duties closed before it does anything; that another process
  leads by now, it is told afterwards.
- Between that look and the store call lies a moment in which a process may be paused all the same. Such a late tick is
  harmless: rescue, prune and relay decide inside the store, by the store's clock and in one atomic step, what has
  expired and what was left behind. Two processes that do it at once share the work. Leadership saves work; no promise
  rests on it.
- The leases are released when the process stops. If that cannot be said, they expire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import TransientError
from holdfast.events import Deposed, Elected, Emit, StoreTroubled
from holdfast.kernel import leaders, leases
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.leaders import Holder
from holdfast.kernel.leases import Standing, standing
from holdfast.kernel.times import Millis, Steady
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store

DUTIES = ("rescuer", "pruner", "relay", "timeouts")


class _Term(NamedTuple):
    """A lease that is held, and when the last writing of it was sent, by the steady clock."""

    document: Document
    sent_steady_ms: Steady


class Leaders:
    """The duties that this process may lead."""

    def __init__(
        self, store: Store, duties: Sequence[str], *, holder: Holder, clock: Clock, ttl_ms: Millis, emit: Emit
    ) -> None:
        self._store = store
        self._duties = tuple(duties)
        self._holder = holder
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._emit = emit
        self._terms: dict[str, _Term] = {}
        self._in_doubt = False  # whether the last write may have done more than is known here
        self._again_in_ms = 0.0
        self._renewed = asyncio.Event()

    def leads(self, duty: str) -> bool:
        """Whether this process may attend to the duty at this moment."""
        term = self._terms.get(duty)
        return term is not None and self._age_ms(term) < leases.reliable_for_ms(self._ttl_ms)

    @property
    def led(self) -> dict[str, bool]:
        """For each duty, whether it is led here."""
        return {duty: self.leads(duty) for duty in self._duties}

    async def until_leads(self, duty: str) -> None:
        """Returns when this process may attend to the duty."""
        while not self.leads(duty):
            self._renewed.clear()
            await self._renewed.wait()

    async def keep(self) -> None:
        """Renew and bid forever."""
        while True:
            try:
                await self._bid()
            except TransientError as error:
                self._emit(StoreTroubled(str(error)))
                self._again_in_ms = self._ttl_ms / 3
            await self._clock.pause(self._pause_ms() / 1000)

    async def release(self) -> None:
        """Let others lead at once, as far as this process still does. What another process has taken stays with it."""
        held = [term.document for term in self._terms.values()]
        self._terms.clear()
        if self._in_doubt:
            held = [found for found in await self._found(self._duties) if leaders.holder_of(found) == self._holder]
        if held:
            now_ms = self._store.now_ms()
            await self._store.write([leaders.release(document, now_ms=now_ms) for document in held])

    async def _bid(self) -> None:
        """Renew what is held, and take what no process holds: at most one read and one write."""
        for duty in [duty for duty, term in self._terms.items() if self._standing(term) is Standing.LOST]:
            self._deposed(duty)
        known = {} if self._in_doubt else {duty: term.document for duty, term in self._terms.items()}
        sought = [duty for duty in self._duties if duty not in known]
        known |= {document.id: document for document in await self._found(sought)}
        sent_steady_ms, now_ms = self._clock.steady_ms(), self._store.now_ms()
        writings: list[Writing] = []
        for duty in self._duties:
            writing = leaders.bid(duty, known.get(duty), self._holder, now_ms=now_ms, ttl_ms=self._ttl_ms)
            if writing is None:
                self._deposed(duty)
            else:
                writings.append(writing)
        if writings:
            self._in_doubt = True
            answers = await self._store.write(writings)
            for writing, stored in zip(writings, answers, strict=True):
                self._answered(writing.document, sent_steady_ms if stored else None)
        self._in_doubt = False
        if self._terms:  # those who wait for a duty that is led elsewhere need not look
            self._renewed.set()
        missed = [known.get(duty) for duty in self._duties if duty not in self._terms]
        waits_ms = [leaders.look_again_in_ms(each, now_ms=now_ms, ttl_ms=self._ttl_ms) for each in missed]
        self._again_in_ms = min(waits_ms, default=self._ttl_ms / 3)

    def _answered(self, document: Document, sent_steady_ms: Steady | None) -> None:
        if sent_steady_ms is None:
            self._deposed(document.id)
            return
        term = _Term(document, sent_steady_ms)
        if self._standing(term) is Standing.LOST:  # paused since it was sent: another process may lead by now
            self._deposed(document.id)
            return
        is_new = document.id not in self._terms
        self._terms[document.id] = term
        if is_new:
            self._emit(Elected(document.id, document.version))

    def _deposed(self, duty: str) -> None:
        if (term := self._terms.pop(duty, None)) is not None:
            self._emit(Deposed(duty, term.document.version))

    async def _found(self, duties: Sequence[str]) -> list[Document]:
        return await found(self._store, duties) if duties else []

    def _pause_ms(self) -> float:
        due = [leases.look_again_in_ms(self._age_ms(term), ttl_ms=self._ttl_ms) for term in self._terms.values()]
        return min([*due, self._again_in_ms])

    def _standing(self, term: _Term) -> Standing:
        return standing(self._age_ms(term), ttl_ms=self._ttl_ms)

    def _age_ms(self, term: _Term) -> float:
        return self._clock.steady_ms() - term.sent_steady_ms


async def found(store: Store, duties: Sequence[str]) -> list[Document]:
    """The leases of these duties that have not expired."""
    return await store.named([(leaders.EVERYWHERE, leaders.KIND, duty) for duty in duties])


async def leaders_of(store: Store, duties: Sequence[str]) -> dict[str, str | None]:
    """Which process leads each of the duties; None if none does."""
    by_duty = {document.id: leaders.holder_of(document).instance for document in await found(store, duties)}
    return {duty: by_duty.get(duty) for duty in duties}
