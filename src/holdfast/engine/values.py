"""Encoded values: small ones live in the journal, large ones beside it."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import UNSET, Raw

from holdfast.kernel import retry_requests, seals
from holdfast.kernel.changes import Blob
from holdfast.kernel.journal import KeyReleased, Received, Value
from holdfast.kernel.messages import KeyTaken, SignalMessage
from holdfast.kernel.times import Instant
from holdfast.kernel.transitions import Recorded
from holdfast.ports.store import History

INLINE_MAX = 256 * 1024


def kept(data: bytes) -> tuple[Value, tuple[Blob, ...]]:
    """`data` as a journal value, with the blob to be written beside it if it is large."""
    if len(data) <= INLINE_MAX:
        return Value(Raw(data)), ()
    digest = digest_of(data)
    return Value(blob=digest, size=len(data)), (Blob(digest, data),)


def kept_of(message: SignalMessage) -> tuple[Value, tuple[Blob, ...]]:
    """The payload of a signal as a journal value; sealed as it is, if this process could not open it."""
    if message.sealed:
        return Value(message.payload, sealed=message.sealed), ()
    return kept(bytes(message.payload))


def require_open(data: bytes) -> bytes:
    """The bytes of a large value as a store has returned them; raises `SealedPayload` if they are sealed."""
    if seals.is_sealed(data):
        raise seals.refusal(seals.parts_of(data)[0])
    return data


def digest_of(data: bytes) -> str:
    """Names these bytes."""
    return blake2b(data, digest_size=16).hexdigest()


def inline(value: Value) -> bytes | None:
    """The bytes of a value that is kept inline; None if they are in a blob."""
    return None if value.json is UNSET else bytes(value.json)


def unread(history: History, *, now_ms: Instant) -> Recorded:
    """What lies in the inbox of a run that another hand ends.

    Its signals are recorded, and that its key was released; the rest is dismissed.
    """
    entries: list[Received | KeyReleased] = []
    blobs: tuple[Blob, ...] = ()
    for message in history.messages:
        if retry_requests.request_in(message) is not None:
            continue
        if isinstance(message, SignalMessage):
            value, large = kept_of(message)
            entries.append(Received(now_ms, message.hook, message.id, value, message.by_key, left=True))
            blobs += large
        elif isinstance(message, KeyTaken):
            entries.append(KeyReleased(now_ms, message.reason))
    return Recorded(tuple(entries), blobs, tuple(message.id for message in history.messages))
