"""Leadership: one process at a time attends to a duty that all depend on, such as freeing the runs of dead workers.

A duty's lease is a document. Its body says who holds it, its version is the fence, its expiry the end of the lease.

    the document is          a candidate    its holder
    ───────────────────────  ─────────────  ──────────────────────────────────────────
    absent, or expired       takes it       takes it again
    the holder's, and valid  waits          renews it, or releases it
    another holder's         waits          has been overtaken: it holds nothing any more

Rules
- Taking, renewing and releasing name the version that they replace. So a process that comes late changes nothing:
  neither the lease of a successor nor its release.
- The store's clock decides when a lease has expired. How far a holder may rely on it, `kernel.leases` says.
- The nonce tells two holders apart that one version was issued to: a failover of the store may forget a write.
- A duty's lease is half as long as a worker's. When the lease of a dead worker expires, there is a leader again to
  notice it, even if the leader died together with the worker.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.times import Instant, Millis

KIND = "duty"
EVERYWHERE = ""  # duties cover all namespaces
PARTS_OF_A_WORKER_LEASE = 2


class Holder(Struct, frozen=True, gc=False):
    """Who holds a lease: the process by its name, and 128 bits that no other process has drawn."""

    instance: str
    nonce: str


def ttl_ms(worker_lease_ms: Millis) -> Millis:
    """How long the lease of a duty lasts."""
    return worker_lease_ms // PARTS_OF_A_WORKER_LEASE


def holder_of(document: Document) -> Holder:
    """Who holds this lease."""
    return msgspec.json.decode(document.body, type=Holder)


def bid(duty: str, found: Document | None, holder: Holder, *, now_ms: Instant, ttl_ms: Millis) -> Writing | None:
    """What `holder` writes in order to lead from now on; None while another process does. `found` has not expired."""
    if found is not None and holder_of(found) != holder:
        return None
    return _writing(duty, found, holder, now_ms=now_ms, until_ms=now_ms + ttl_ms)


def release(held: Document, *, now_ms: Instant) -> Writing:
    """What a holder writes so that others may take the lease at once."""
    return _writing(held.id, held, holder_of(held), now_ms=now_ms, until_ms=now_ms)


def look_again_in_ms(found: Document | None, *, now_ms: Instant, ttl_ms: Millis) -> float:
    """How long a candidate may sleep: until the lease expires that it has seen, but no longer than a leader would.

    If it saw none and yet did not get the lease, another process was quicker.
    """
    if found is None or found.expires_at_ms is None:
        return ttl_ms / 15
    return min(ttl_ms / 3, max(1, found.expires_at_ms - now_ms))


def _writing(duty: str, replaced: Document | None, holder: Holder, *, now_ms: Instant, until_ms: Instant) -> Writing:
    replaces = None if replaced is None else replaced.version
    version = next_version(replaces, now_ms=now_ms)
    body = msgspec.json.encode(holder)
    return Writing(Document(EVERYWHERE, KIND, duty, version, body, expires_at_ms=until_ms), replaces)
