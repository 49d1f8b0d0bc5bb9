"""Notices: what a store tells other processes that they may want to look at.

Rules
- A notice is a hint. It may be lost, come twice or come late: the receiver looks into the store, and a slow safety
  poll finds what no notice has told.
- It names what has changed as closely as the store knows, so that no process looks for what does not concern it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from holdfast.kernel.times import Instant


class Ready(Struct, frozen=True, gc=False, array_like=True):
    """A run of this workflow may be claimed from `wake_at_ms` on."""

    namespace: str
    workflow: str
    wake_at_ms: Instant = field(name="wake_ms")


class Notice(Struct, frozen=True, gc=False, array_like=True):
    """What has changed: runs that moved, runs that got a message, workflows with work, kinds of documents.

    `settled` are those among the runs that have ended or are blocked. With `everything`, look at all.
    """

    runs: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    ready: tuple[Ready, ...] = ()
    documents: tuple[tuple[str, str], ...] = ()  # namespace and kind
    everything: bool = False
    settled: tuple[str, ...] = ()


ANYTHING = Notice(everything=True)
NOTHING = Notice()

encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Notice).decode


def decode(body: bytes) -> Notice:
    """What was encoded. What cannot be read is ANYTHING: it may be of another version, which knows more than we do."""
    try:
        return _decode(body)
    except (ValueError, RecursionError):  # damaged, no UTF-8, or nested too deeply
        return ANYTHING
