"""Audits: who has done what, kept with the act.

    an act                           its audit
    ───────────────────────────────  ─────────────────────────────────────────────
    is refused                       is not kept
    is written                       is kept in the same unit, in the order of the commits
    is offered again, and was done   is kept once, as it was
    is linked into a chain, exported dropped by the duty that did so

Rules
- The order is that of the commits; of several shards, each has an order of its own.
- A store keeps an audit until it is dropped. It reads nothing but the namespace.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.kernel.times import Instant


class Audit(Struct, frozen=True, gc=False):
    """One act: `actor` did `action` to `subject`. `detail` is JSON, and says what else there is to know."""

    namespace: str
    id: str
    actor: str
    action: str
    subject: str
    at_ms: Instant
    detail: bytes = b"{}"


class KeptAudit(Struct, frozen=True, gc=False):
    """An audit, and the place in the store by which it is dropped."""

    place: str
    audit: Audit


class Audits(Struct, frozen=True, gc=False):
    """A page of them, in order, and behind what the next one begins."""

    kept: tuple[KeptAudit, ...]
    after: str
