"""Where a run stands in a distributed trace (W3C Trace Context).

Rules
- The id of a run's span follows from the run's id. So every process knows it before the run has ended, and whatever
  is done for the run anywhere points to the same span.
- A run is in the trace of the caller that started it, if it said so: that is `holdfast.traceparent`, an attribute of
  the run. Its children and forks inherit it.
- Otherwise it begins a trace, and the id of that trace is the id of the run, without the shard that it may end in: one
  can be searched for by the other.
- A child is in the trace of its root, under its parent's span.
- A `traceparent` that is not well-formed is ignored, as the W3C asks.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from msgspec import Struct

from holdfast.kernel import attributes, ids
from holdfast.kernel.attributes import PARENT, RESERVED, ROOT

TRACEPARENT = f"{RESERVED}traceparent"
_HEADER = re.compile(r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")
_HEX_32 = re.compile(r"[0-9a-f]{32}")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_ENGINES = f'"{RESERVED}'.encode()


class Caused(Struct, frozen=True, gc=False):
    """The span that caused a run, as a header says it."""

    trace_id: str
    span_id: str
    flags: str = "01"

    @property
    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


class Lineage(Struct, frozen=True, gc=False):
    """What a run comes from: other runs, and what was outside of Holdfast. Empty where there is no such thing."""

    parent: str = ""
    root: str = ""
    traceparent: str = ""


NO_LINEAGE = Lineage()


def read(header: str | None) -> Caused | None:
    """What a `traceparent` says; None if it says nothing, or nothing that can be used."""
    text = "" if header is None else header.strip(" \t")
    found = _HEADER.match(text)
    if found is None or found["version"] == "ff" or found["trace"] == _NO_TRACE or found["span"] == _NO_SPAN:
        return None
    rest = text[found.end() :]
    if rest and (found["version"] == "00" or rest[0] != "-"):  # later versions may say more
        return None
    return Caused(found["trace"], found["span"], found["flags"])


def normal(header: str | None) -> str | None:
    """A `traceparent` in the form in which it is kept."""
    if header is None:
        return None
    caused = read(header)
    return None if caused is None else caused.header


def trace_id(run_id: str) -> str:
    """The id of the trace that a run begins."""
    plain = ids.without_shard(run_id)
    if _HEX_32.fullmatch(plain) and plain != _NO_TRACE:
        return plain
    return blake2b(run_id.encode(), digest_size=16, person=b"holdfast trace").hexdigest()


def span_id(run_id: str) -> str:
    """The id of a run's span."""
    return blake2b(run_id.encode(), digest_size=8, person=b"holdfast span").hexdigest()


def lineage_of(stored: bytes) -> Lineage:
    """What the attributes of a run say that it comes from."""
    if _ENGINES not in stored:
        return NO_LINEAGE
    known = attributes.decode(stored)
    return Lineage(str(known.get(PARENT, "")), str(known.get(ROOT, "")), str(known.get(TRACEPARENT, "")))
