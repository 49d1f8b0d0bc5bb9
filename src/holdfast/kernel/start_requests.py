"""Start requests: which start an `Idempotency-Key` belongs to, where its run has a business key as well.

A run without a business key is named by the header itself, and `starts` decides. Beside a business key the header names
the request and not the run; what is known about it is one document of kind "start".

    what is found                     the same start                    another start
    ────────────────────────────────  ────────────────────────────────  ─────────────
    nothing, or it has expired        BindFirst: write, then start      BindFirst
    BOUND, and no run is known        StartOnce: start under its id     OtherStart
    BOUND, and its run is known       AlreadyStarted: show that run     OtherStart

Rules
- The header is bound before the start, so that of two starts that send it at the same time one is refused before
  anything is done. A process that dies in between leaves a header without a run; the next one to repeat the request
  starts it, and the request id of the start sees to it that there is one run.
- The same start has the same workflow, the same body (the order of its fields and white space do not count) and the
  same `join`. How long the response may wait does not count.
- A header belongs to its first start for `RETENTION_MS`, whatever became of it: not even a refusal frees it.
- The header counts within its caller, so its document is named by a digest of both: neither can be read from the store.
- Two writers may offer the same bytes; neither has to know that it was first, so there is no nonce.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Struct

from holdfast.kernel import idempotency
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.times import Instant, Millis

KIND = "start"
RETENTION_MS = Millis(24 * 60 * 60 * 1000)


class BoundStart(Struct, frozen=True, gc=False):
    """The start that a header belongs to; and once it is known, its run, and whether the start created it."""

    digest: str
    run_id: str = ""
    created: bool = False


class NamedStart(NamedTuple):
    """A start whose request has a name."""

    namespace: str
    id: str
    digest: str


class BindFirst(Struct, frozen=True, gc=False):
    """Once `writing` is stored, the run may be started. If it is refused, look again."""

    writing: Writing


class StartOnce(Struct, frozen=True, gc=False):
    """The run may be started: `held` is what the header is bound by."""

    held: Document


class AlreadyStarted(Struct, frozen=True, gc=False):
    """The first request has led to this run."""

    run_id: str
    created: bool
    held: Document


class OtherStart(Struct, frozen=True, gc=False):
    """The header belongs to another start."""


StartDecision = BindFirst | StartOnce | AlreadyStarted | OtherStart


def named(namespace: str, *, caller: str, header: str, workflow: str, join: bool, body: bytes) -> NamedStart:
    """The start that this caller names by this header. `body` is in a form that equal bodies share."""
    return NamedStart(
        namespace,
        idempotency.id_of(caller, header),
        idempotency.digest_of(workflow, b"join" if join else b"", b"", body),
    )


def decide(found: Document | None, wanted: NamedStart, *, now_ms: Instant) -> StartDecision:
    """What to do with a start whose header has led to `found`."""
    if found is None:
        return BindFirst(_writing(wanted, BoundStart(wanted.digest), None, now_ms=now_ms))
    bound = msgspec.json.decode(found.body, type=BoundStart)
    if bound.digest != wanted.digest:
        return OtherStart()
    return AlreadyStarted(bound.run_id, bound.created, found) if bound.run_id else StartOnce(found)


def started(held: Document, wanted: NamedStart, run_id: str, *, created: bool, now_ms: Instant) -> Writing:
    """The start has led to this run."""
    return _writing(wanted, BoundStart(wanted.digest, run_id, created), held.version, now_ms=now_ms)


def _writing(wanted: NamedStart, bound: BoundStart, replaces: int | None, *, now_ms: Instant) -> Writing:
    document = Document(
        namespace=wanted.namespace,
        kind=KIND,
        id=wanted.id,
        version=next_version(replaces, now_ms=now_ms),
        body=msgspec.json.encode(bound),
        expires_at_ms=now_ms + RETENTION_MS,
    )
    return Writing(document, replaces)
