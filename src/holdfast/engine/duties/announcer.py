"""Tells the store which effects this worker performs, so that what a run is at can be seen from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.kernel import running_effects
from holdfast.kernel.documents import Document
from holdfast.kernel.running_effects import StepAtWork
from holdfast.kernel.times import Millis
from holdfast.ports.store import Store


class Announcer:
    """Looks at what is in memory, and writes only if the store does not know it."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str,
        owner: Callable[[], str],
        at_work: Callable[[], Iterable[StepAtWork]],
        ttl_ms: Millis,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._owner = owner
        self._at_work = at_work
        self._ttl_ms = ttl_ms
        self._last: Document | None = None

    async def tick(self) -> float:
        owner, now_ms = self._owner(), self._store.now_ms()
        last = self._last if self._last is not None and self._last.id == owner else None
        writing = running_effects.tell(
            self._namespace, owner, self._at_work(), last=last, now_ms=now_ms, ttl_ms=self._ttl_ms
        )
        if writing is not None and owner:
            [stored] = await self._store.write([writing])
            # A write whose reply was lost may have been stored: then the next one has to name what it replaces.
            kind = running_effects.KIND
            self._last = writing.document if stored else await self._store.document(self._namespace, kind, owner)
        return running_effects.look_every_ms(self._ttl_ms) / 1000
