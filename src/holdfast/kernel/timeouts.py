"""Time limits of whole runs: when a run has taken too long, and how it ends then.

    the run, at its limit                what happens
    ───────────────────────────────────  ──────────────────────────────────────────────────────────────────
    ended                                nothing
    never begun; blocked                 ends at once: no code needs to run, or none can
    running, waiting, begun before       its owner is asked to end it, as by a cancellation, until the cleanup's
                                         deadline; then it is ended without its owner

Rules
- The limit counts from the start, or from the end of its delay, by the store's clock, whatever becomes of the run: it
  counts while the run waits, is blocked, continues as new, or has no worker.
- As declared, the run is cancelled, or it fails with `RunTimedOut`. Then its code is told as by a cancellation, but
  nothing is undone unless the workflow undoes on failure.
- The limit is a document that is due then, written before the run is admitted: so a run that has a limit is never
  without it, and a limit without a run is removed. The run shows it as an attribute.
- A run that is retried or resumed after that, a fork, and a successor that takes over signals have no limit.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import RunTimedOut
from holdfast.kernel import attributes
from holdfast.kernel.attributes import RESERVED, Scalar
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.journal import Failure
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import utc_of

EVERYWHERE = ""  # the limits of all namespaces are looked after by one process
KIND = "time_limit"
TIMES_OUT_AT = f"{RESERVED}times_out_at"
RUN_TIMED_OUT = f"{RunTimedOut.__module__}.{RunTimedOut.__qualname__}"  # as a failure names it
CLEANUP_MS = Millis(30_000)  # as long as any cancellation has by default
EARLY_MS = Millis(60_000)  # a limit is written before its run: so much later, the run will never be

OnTimeout = Literal["fail", "cancel"]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder


class TimeLimit(Struct, frozen=True, gc=False):
    """The limit of one run. `asked_until_ms`: its owner has been asked to end it, and has so much time for it."""

    namespace: str
    run_id: str
    at_ms: Instant
    timeout_ms: Millis
    on_timeout: OnTimeout
    cleanup_ms: Millis
    asked_until_ms: Instant | None = None

    @property
    def reason(self) -> str:
        """Why the run is ended."""
        return f"it took longer than {self.timeout_ms / 1000:g} s"

    @property
    def failure(self) -> Failure | None:
        """What the run fails with; None if it is cancelled."""
        if self.on_timeout == "cancel":
            return None
        return Failure(RUN_TIMED_OUT, f"run {self.run_id} took longer than {self.timeout_ms / 1000:g} s")


def of(document: Document) -> TimeLimit:
    """The limit that a document holds."""
    return _decode_limit(document.body)


_decode_limit = _decode(TimeLimit).decode


def begin(limit: TimeLimit, *, now_ms: Instant) -> Writing:
    """What is written before the run is admitted."""
    # A start that is repeated may have another limit under the same id: the run shows the one that counts.
    name = f"{limit.run_id}.{limit.at_ms}"
    return Writing(Document(EVERYWHERE, KIND, name, now_ms, _encode(limit), due_at_ms=limit.at_ms))


def go_on(document: Document, limit: TimeLimit | None, *, grace_ms: Millis, now_ms: Instant) -> Writing:
    """What is written when a limit that was due has been attended to: it is `limit` now, or over."""
    version = next_version(document.version, now_ms=now_ms)
    if limit is None:
        return Writing(replace(document, version=version, due_at_ms=None, expires_at_ms=now_ms), document.version)
    due_at_ms = max(now_ms, limit.asked_until_ms or now_ms) + grace_ms
    return Writing(replace(document, version=version, body=_encode(limit), due_at_ms=due_at_ms), document.version)


def asked(limit: TimeLimit, *, now_ms: Instant) -> TimeLimit:
    """The limit of a run whose owner is asked now to end it, if it was not before."""
    return limit if limit.asked_until_ms is not None else replace(limit, asked_until_ms=now_ms + limit.cleanup_ms)


def shown_with(known: bytes, at_ms: Instant) -> bytes:
    """The attributes of a run that has this limit."""
    return attributes.encode(attributes.decode(known) | {TIMES_OUT_AT: utc_of(at_ms)})


def shown_without(known: bytes) -> bytes:
    """The attributes of a run that begins with those of another, and has no limit."""
    if TIMES_OUT_AT.encode() not in known:
        return known
    return attributes.encode({name: value for name, value in attributes.decode(known).items() if name != TIMES_OUT_AT})


def shown_by(known: dict[str, Scalar]) -> datetime | None:
    """When a run with these attributes times out."""
    at = known.get(TIMES_OUT_AT)
    return at if isinstance(at, datetime) else None
