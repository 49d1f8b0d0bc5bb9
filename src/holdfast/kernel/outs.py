"""Outs: messages for topics that leave with the commit which records them, or never.

    an out                              where it is
    ──────────────────────────────────  ─────────────────────────────────────────────
    belongs to a change that is refused  nowhere
    belongs to a change that is written  kept by the store, in the order of the commits
    belongs to a change offered again    kept once, as it was
    has been published, and dropped      gone

Rules
- They are kept in the order of the commits; of several shards, each has an order of its own.
- A store keeps an out until it is dropped. What it means to publish it is no concern of the store.
- The id is its sender's: by it a consumer recognises a message that it has had.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.kernel.times import Instant


class Out(Struct, frozen=True, gc=False):
    """A message for a topic. Those with the same key are published in order."""

    namespace: str
    id: str
    topic: str
    key: str
    payload: bytes
    at_ms: Instant


class KeptOut(Struct, frozen=True, gc=False):
    """An out, and the place in the store by which it is dropped."""

    place: str
    out: Out


class Outs(Struct, frozen=True, gc=False):
    """A page of them, in order, and behind what the next one begins."""

    kept: tuple[KeptOut, ...]
    after: str
