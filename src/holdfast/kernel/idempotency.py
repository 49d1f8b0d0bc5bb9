"""Replies: the response to an HTTP request that comes again under the same `Idempotency-Key`.

A request with a key is executed by one process at a time, and once it has a final answer, never again. What is known
about it is one document of kind "reply". Its version is the fence: each state names the version that it replaces.

    what is found                       the same request              another request
    ──────────────────────────────────  ────────────────────────────  ───────────────
    nothing                             Proceed                       Proceed
    WORKING, and its lease is not over  Busy                          Mismatch
    WORKING, and its lease is over      Proceed: it is taken over     Mismatch
    VACANT: it ended without an answer  Proceed                       Mismatch
    ANSWERED                            Replay                        Mismatch
    ANSWERED, but it was not kept       Unkept: it is done, no more   Mismatch

    the holder of WORKING               makes of it
    ──────────────────────────────────  ─────────────────────────────────────────
    is still at it                      WORKING, for another lease     (renewed)
    has a final answer                  ANSWERED                       (settled)
    has failed for the moment           VACANT, for the next attempt   (settled)

Rules
- A key counts within its caller, so its document is named by a digest of both: neither can be read from the store.
- The same request has the same method, path, query and body, byte by byte. A key belongs to its first request until
  its retention is over, whatever became of it: not even a failure frees it for another one.
- An answer is final unless it says that trying again may help: 5xx, 408, 425 and 429.
- The retention counts from the answer; where there is none, from the end of the last lease.
- Every state names its holder, also when it is settled: two holders may settle in the same millisecond with equal
  replies, and the one that was overtaken must not take the document of the other for its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import assert_never

import msgspec
from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.times import Instant, Millis

KIND = "reply"
KEY_LENGTH_MAX = 200
WORTH_ANOTHER_TRY = frozenset({408, 425, 429})  # too slow, too early, too many
# What is said about one connection, or about the moment of one response; the server says it again.
NOT_KEPT = frozenset(
    b"connection date keep-alive proxy-authenticate proxy-connection server te trailer transfer-encoding upgrade".split(
        b" "
    )
)
_BARE = re.compile(rb"[\x21\x23-\x7e][\x20-\x7e]*")
_QUOTED = re.compile(rb'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ESCAPED = re.compile(rb"\\(.)")

Headers = tuple[tuple[bytes, bytes], ...]


class Reply(Struct, frozen=True, gc=False):
    """An answer. Without a body it was too large to be kept, and only its status is known."""

    status: int
    headers: Headers = ()
    body: bytes | None = None


class RequestWanted(Struct, frozen=True, gc=False):
    """A request that a process would like to execute, once."""

    namespace: str
    id: str
    digest: str
    holder: str  # a nonce: who would execute it
    lease_ms: Millis
    retention_ms: Millis


class Working(Struct, frozen=True, gc=False, tag="working"):
    digest: str
    holder: str
    until_ms: Instant


class Vacant(Struct, frozen=True, gc=False, tag="vacant"):
    digest: str
    holder: str = ""  # who left it; earlier versions did not say


class Answered(Struct, frozen=True, gc=False, tag="answered"):
    digest: str
    reply: Reply
    holder: str = ""  # whose answer it is; earlier versions did not say


State = Working | Vacant | Answered


class Proceed(Struct, frozen=True, gc=False):
    """Once `writing` is stored, the request may be executed. `overdue`: a process has begun it, and is not heard of."""

    writing: Writing
    overdue: bool = False


class Replay(Struct, frozen=True, gc=False):
    reply: Reply


class Unkept(Struct, frozen=True, gc=False):
    status: int


class RequestBusy(Struct, frozen=True, gc=False):
    """A process is at it, for so long at least if nothing more is heard."""

    for_ms: Millis


class RequestMismatch(Struct, frozen=True, gc=False):
    pass


Decision = Proceed | Replay | Unkept | RequestBusy | RequestMismatch


def decide(found: Document | None, wanted: RequestWanted, *, now_ms: Instant) -> Decision:
    """What to do with a request whose key has led to `found`."""
    if found is None:
        return Proceed(_working(wanted, None, now_ms))
    state = state_of(found)
    if state.digest != wanted.digest:
        return RequestMismatch()
    match state:
        case Working() if state.until_ms > now_ms:
            return RequestBusy(state.until_ms - now_ms)
        case Working():
            return Proceed(_working(wanted, found.version, now_ms), overdue=True)
        case Vacant():
            return Proceed(_working(wanted, found.version, now_ms))
        case Answered(reply=Reply(status=status, body=None)):
            return Unkept(status)
        case Answered(reply=reply):
            return Replay(reply)
        case _:
            assert_never(state)


def renewed(held: Document, wanted: RequestWanted, *, now_ms: Instant) -> Writing:
    """Its holder is still at it."""
    return _working(wanted, held.version, now_ms)


def settled(held: Document, wanted: RequestWanted, reply: Reply, *, now_ms: Instant) -> Writing:
    """Its holder has an answer: a final one, which is kept, or one after which the next may try."""
    state = (
        Answered(wanted.digest, reply, wanted.holder)
        if is_final(reply.status)
        else Vacant(wanted.digest, wanted.holder)
    )
    return _writing(wanted, state, held.version, expires_at_ms=now_ms + wanted.retention_ms, now_ms=now_ms)


def is_held(found: Document, wanted: RequestWanted) -> bool:
    """Whether it is at work in the hands of the process that wants it."""
    state = state_of(found)
    return isinstance(state, Working) and state.holder == wanted.holder


def until_ms(held: Document) -> Instant:
    """Until when no process takes over what is at work."""
    state = state_of(held)
    assert isinstance(state, Working), state
    return state.until_ms


def is_final(status: int) -> bool:
    """Whether an answer with this status is the answer for good."""
    return status < 500 and status not in WORTH_ANOTHER_TRY


def state_of(document: Document) -> State:
    return msgspec.msgpack.decode(document.body, type=State)


def _working(wanted: RequestWanted, replaces: int | None, now_ms: Instant) -> Writing:
    state = Working(wanted.digest, wanted.holder, now_ms + wanted.lease_ms)
    return _writing(wanted, state, replaces, expires_at_ms=state.until_ms + wanted.retention_ms, now_ms=now_ms)


def _writing(
    wanted: RequestWanted, state: State, replaces: int | None, *, expires_at_ms: Instant, now_ms: Instant
) -> Writing:
    document = Document(
        namespace=wanted.namespace,
        kind=KIND,
        id=wanted.id,
        version=next_version(replaces, now_ms=now_ms),
        body=msgspec.msgpack.encode(state),
        expires_at_ms=expires_at_ms,
    )
    return Writing(document, replaces)


# -- what a request and a response come to


def key_of(header: bytes) -> str:
    """The key that the header's value names: bare, or in quotes as a structured field is written."""
    text = header.strip()
    if (quoted := _QUOTED.fullmatch(text)) is not None:
        text = _ESCAPED.sub(rb"\1", quoted[1])
    elif not _BARE.fullmatch(text):
        raise UsageError("the key is not printable ASCII, or its quotes do not match", hint=_KEY_HINT)
    if not 1 <= len(text) <= KEY_LENGTH_MAX:
        raise UsageError(f"the key has {len(text)} characters", hint=_KEY_HINT)
    return text.decode()


_KEY_HINT = f"Use 1 to {KEY_LENGTH_MAX} characters of printable ASCII, for example a UUID."


def id_of(caller: str, key: str) -> str:
    """The name of the document about this caller's key."""
    return _digest(caller, key)


def digest_of(method: str, path: bytes, query: bytes, body: bytes) -> str:
    """What makes two requests the same."""
    return _digest(method, path, query, body)


def _digest(*parts: str | bytes) -> str:
    # Encoded with their lengths: what moves from one part to the next gives another digest.
    return blake2b(msgspec.msgpack.encode(parts), digest_size=20).hexdigest()


def kept_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Those that a replay repeats."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {word.strip().lower() for name, value in pairs if name == b"connection" for word in value.split(b",")}
    return tuple(pair for pair in pairs if pair[0] not in NOT_KEPT and pair[0] not in named)
