"""Markers: the named states of progress that a workflow declares, and which may follow which.

    markers=("pending", "charged", "shipped")          each leads to the next
    markers={"pending": ("charged", "dropped"), ...}   each leads to those named

A run is in the first one from its start. Marking the present one again changes nothing; everything else that was
not declared is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from holdfast.errors import NotAllowedNow, UsageError
from holdfast.kernel.times import Instant

Ways = Mapping[str, tuple[str, ...]]
Reached = tuple[tuple[str, Instant], ...]  # marker and when, in order
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Reached).decode


def declared(markers: Sequence[str] | Mapping[str, Sequence[str]], *, owner: str) -> dict[str, tuple[str, ...]]:
    """From each marker, those that may follow; or a `UsageError`."""
    if isinstance(markers, str) or not isinstance(markers, Sequence | Mapping):
        raise UsageError(f"markers={markers!r} of {owner} are not in order", hint="Write ('pending', 'done').")
    if isinstance(markers, Mapping):
        for name, following in markers.items():
            if isinstance(following, str) or not isinstance(following, Sequence):
                raise UsageError(f"after {name!r} comes {following!r} in {owner}", hint="Write a tuple of texts.")
        ways = {name: tuple(following) for name, following in markers.items()}
    else:
        if len(set(markers)) != len(markers):
            raise UsageError(f"{owner} declares a marker twice", hint="Name each once, or declare a mapping.")
        ways = {name: (following,) for name, following in pairwise(markers)} | dict.fromkeys(markers[-1:], ())
    for names in list(ways.values()):
        for name in names:
            ways.setdefault(name, ())
    for name in ways:
        if not isinstance(name, str) or not name or len(name) > 255:
            raise UsageError(f"{owner} declares the marker {name!r:.80}", hint="Markers are short texts.")
    return ways


def step(ways: Ways, present: str | None, wanted: str, *, owner: str) -> bool:
    """Whether marking `wanted` is a step. Raises `NotAllowedNow` if it is not declared to follow."""
    if wanted not in ways:
        known = ", ".join(ways) or "none"
        raise NotAllowedNow(f"{owner} has no marker {wanted!r}", hint=f"Declared are: {known}.")
    if present == wanted:
        return False
    here = next(iter(ways)) if present is None else present
    if wanted not in ways[here] and not (present is None and wanted == here):
        following = ", ".join(ways[here]) or "nothing"
        raise NotAllowedNow(
            f"{owner} is at {here!r} and cannot go to {wanted!r}", hint=f"After {here!r} may come: {following}."
        )
    return True


def encode(reached: Reached) -> bytes:
    return _encode(reached) if reached else b""


def decode(data: bytes) -> Reached:
    return _decode(data) if data else ()
