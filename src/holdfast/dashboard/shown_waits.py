"""What a run waits for, as its page shows it: a sentence, and every other fact that the wait carries. Pure.

A wait may carry more than this page has heard of. Whatever field it has that is set and is no part of the sentence is
shown under its own name: an instant as one, everything else as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.kernel.times import Instant
from holdfast.kernel.units import utc_of
from holdfast.kernel.waits import Wait

TOLD = frozenset({"kind", "name", "until_ms", "step"})  # what the sentence says
TEXT_MAX = 300


class Fact(NamedTuple):
    label: str
    text: str
    at: datetime | None = None


class ShownWait(NamedTuple):
    kind: str
    text: str
    until: datetime | None
    facts: tuple[Fact, ...]


def shown(waits: Iterable[Wait]) -> tuple[ShownWait, ...]:
    return tuple(ShownWait(wait.kind, str(wait), wait.until, tuple(_facts(wait))) for wait in waits)


def _facts(wait: Wait) -> list[Fact]:
    return [
        _fact(name, value)
        for name in wait.__struct_fields__
        if name not in TOLD and (value := getattr(wait, name)) not in (None, "", 0, b"")
    ]


def _fact(name: str, value: Any) -> Fact:
    if name.endswith("_ms") and isinstance(value, int):
        label = name.removesuffix("_ms").removesuffix("_at").replace("_", " ")
        return Fact(label, "", utc_of(Instant(value)))
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return Fact(name.replace("_", " "), text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} …")
