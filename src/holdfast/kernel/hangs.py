"""How many threads of a worker hang in sync effects that were given up, as the worker has told the store.

One document per worker, under the name of its lease. It counts only while that lease lives: who reads it looks at the
live workers first. A worker writes it when the number has changed, and now and then while it is not 0, so that it does
not expire; when no thread hangs any more, it writes one that has expired.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.times import Instant, Millis

KIND = "hangs"
KEPT_MS = Millis(600_000)


class HungThreads(Struct, frozen=True, gc=False):
    """What a worker says about its threads."""

    threads: int


def tell(namespace: str, owner: str, threads: int, *, last: Document | None, now_ms: Instant) -> Writing | None:
    """What the worker writes; None if the store knows it. `last` is what it wrote before, under this name."""
    told = 0 if last is None else threads_in(last)
    aged = last is not None and last.expires_at_ms is not None and last.expires_at_ms - now_ms < KEPT_MS // 2
    if threads == told and not (threads and aged):
        return None
    replaces = None if last is None else last.version
    body = msgspec.json.encode(HungThreads(threads))
    expires_at_ms = now_ms + KEPT_MS if threads else now_ms
    version = next_version(replaces, now_ms=now_ms)
    return Writing(Document(namespace, KIND, owner, version, body, expires_at_ms=expires_at_ms), replaces)


def threads_in(document: Document) -> int:
    """How many threads hang, by what the worker said."""
    return msgspec.json.decode(document.body, type=HungThreads).threads
