"""Tells the store how many threads of this worker hang, so that `doctor` sees it from anywhere."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engine.pace import Pace
from holdfast.kernel import hangs
from holdfast.kernel.documents import Document
from holdfast.ports.store import Finding, Member, Store


class Hangs:
    """Looks at a number in memory, and writes only if it has changed."""

    def __init__(
        self, store: Store, *, namespace: str, owner: Callable[[], str], threads: Callable[[], int], pace: Pace
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._owner = owner
        self._threads = threads
        self._pace = pace
        self._last: Document | None = None

    async def tick(self) -> float:
        owner, now_ms = self._owner(), self._store.now_ms()
        last = self._last if self._last is not None and self._last.id == owner else None
        writing = hangs.tell(self._namespace, owner, self._threads(), last=last, now_ms=now_ms)
        if writing is not None and owner:
            [stored] = await self._store.write([writing])
            # A write whose reply was lost may have been stored: then the next one has to name what it replaces.
            found = writing.document if stored else await self._store.document(self._namespace, hangs.KIND, owner)
            self._last = found
        return self._pace.hangs_seconds


async def found_in(store: Store, namespace: str, workers: list[Member]) -> Finding:
    """Whether threads of live workers hang."""
    places = [(namespace, hangs.KIND, member.owner) for member in workers]
    told = {document.id: hangs.threads_in(document) for document in (await store.named(places) if places else [])}
    hanging = [(member, told[member.owner]) for member in workers if told.get(member.owner)]
    if not hanging:
        return Finding("ok", "threads", "no thread of a live worker hangs in an effect that was given up")
    listed = ", ".join(
        f"{count} of worker {member.owner} ({member.serves.host}, pid {member.serves.pid})" for member, count in hanging
    )
    return Finding(
        "warning",
        "threads",
        f"threads hang in sync effects that were given up: {listed}",
        "The log says which effects (`thread given up`). Give their calls a timeout of their own; a restart ends them.",
    )
