"""What a run waits for, as its page shows it: a sentence, and every other fact that the wait carries. Pure.

A wait may carry more than this page has heard of, in fields of its own or within one of them. Whatever is set and is no
part of the sentence is shown under its own name: an instant as one, everything else as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import UNSET, Raw, Struct

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


def _facts(carrier: Struct) -> Iterator[Fact]:
    """What a wait carries, and what is within it."""
    for name in carrier.__struct_fields__:
        value = getattr(carrier, name)
        if isinstance(value, Struct) and not isinstance(value, Raw):
            yield from _facts(value)
        elif (name not in TOLD or not isinstance(carrier, Wait)) and _is_set(value):
            yield _fact(name, value)


def _is_set(value: Any) -> bool:
    return value is not UNSET and bool(value)


def _fact(name: str, value: Any) -> Fact:
    label = name.removesuffix("_json")
    if name.endswith("_ms") and isinstance(value, int):
        label = label.removesuffix("_ms").removesuffix("_at").replace("_", " ")
        return Fact(label, "", utc_of(Instant(value)))
    text = bytes(value).decode(errors="replace") if isinstance(value, bytes | Raw) else str(value)
    text = "yes" if value is True else text
    return Fact(label.replace("_", " "), text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} …")
