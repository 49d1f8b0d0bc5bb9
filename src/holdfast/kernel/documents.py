"""Documents: small named records beside the runs (API keys, replies, tasks), changed by compare-and-set.

Rules
- A document is one value under (namespace, kind, id). A writer names the version that it replaces; if that is
  not the stored one, nothing is written, and the writer looks again.
- A version is never used twice: the first one is the instant of its creation, each further one is larger. So a writer
  who slept while the document was removed and made again is refused, too.
- From `expires_at_ms` on a document counts as absent. The pruner removes it later.
- There is no removal: a version that has expired takes the place of a document that is to go.
- `due_at_ms` puts it into the queue of its kind: from then on `Store.due` returns it, earliest first.
- A writing that is offered again after a lost reply has the result of the first time. A store cannot tell that from a
  rival that offers the very same bytes, whatever version the rival meant to replace. So a writer that has to know that
  it was first puts a nonce of its own into the body, in every state. A version is no nonce: it is the millisecond.
"""

from __future__ import annotations

from msgspec import Struct, field

from holdfast.kernel.times import Instant


class Document(Struct, frozen=True, gc=False):
    """A record as it is stored."""

    namespace: str
    kind: str
    id: str
    version: int
    body: bytes
    due_at_ms: Instant | None = field(default=None, name="due_ms")
    expires_at_ms: Instant | None = field(default=None, name="expires_ms")


class Writing(Struct, frozen=True, gc=False):
    """A wish to store `document` in place of the version `replaces`; None: there must be none."""

    document: Document
    replaces: int | None = None


def next_version(replaces: int | None, *, now_ms: Instant) -> int:
    """The version of a document that takes the place of `replaces`."""
    return now_ms if replaces is None else max(now_ms, replaces + 1)


def in_place_of(
    found: Document | None, namespace: str, kind: str, document_id: str, body: bytes, *, now_ms: Instant
) -> Writing:
    """What is written to have this document in place of the one that was found, or where there was none."""
    replaces = None if found is None else found.version
    version = next_version(replaces, now_ms=now_ms)
    return Writing(Document(namespace, kind, document_id, version, body), replaces)
