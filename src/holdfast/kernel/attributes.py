"""Attributes: a few typed facts about a run, by which runs are found.

Rules
- A value is text, a whole number, a float, a truth value or an aware datetime; nothing else, and None removes it.
- Types are strict where Python is not: `True` is not 1. Whole numbers and floats compare as numbers.
- Names that begin with `holdfast.` belong to the engine: all callers may search by them, none may set them.
- They are few and small, since every one of them is a row of an index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.errors import UsageError

Scalar = str | int | float | bool | datetime
Indexed = str | int | float

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
RESERVED = "holdfast."
PARENT, ROOT, FORKED_FROM = f"{RESERVED}parent", f"{RESERVED}root", f"{RESERVED}forked_from"
COUNT_MAX = 32
TEXT_LENGTH_MAX = 255
_INTEGER_MAX = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def checked(attributes: Mapping[str, Any]) -> dict[str, Scalar | None]:
    """What a person wants to set, or a `UsageError` that names the attribute and what is wrong with it."""
    if not isinstance(attributes, Mapping):
        raise UsageError(f"attributes {attributes!r:.60} are not a mapping", hint="Pass {'customer': 'c-1'}.")
    for name, value in attributes.items():
        _check_name(name)
        if name.startswith(RESERVED):
            raise UsageError(f"attribute {name!r} belongs to the engine", hint=f"Choose a name without {RESERVED!r}.")
        if value is not None:
            check_value(name, value)
    return dict(attributes)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r:.80} is not an attribute name", hint="Use up to 64 letters, digits, '_', '.' and '-'."
        )


def check_value(name: str, value: object) -> None:
    """Raises a `UsageError` unless the value can be stored and found."""
    match value:
        case bool():
            return
        case str() if len(value) <= TEXT_LENGTH_MAX and value.isprintable():
            return
        case int() if -_INTEGER_MAX <= value < _INTEGER_MAX:
            return
        case float() if math.isfinite(value):
            return
        case datetime() if value.tzinfo is not None and _EARLIEST <= value <= _LATEST:
            return
        case _:
            raise UsageError(
                f"attribute {name!r} cannot be {type(value).__name__} {value!r:.60}",
                hint=f"Use printable text of up to {TEXT_LENGTH_MAX} characters, a 64-bit whole number, a finite "
                "float, a bool, or a datetime with a time zone.",
            )


def merged(before: Mapping[str, Scalar], changes: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    """`before` with `changes` made; None removes."""
    after = {name: value for name, value in {**before, **changes}.items() if value is not None}
    count = sum(not name.startswith(RESERVED) for name in after)  # the engine's own are not counted
    if count > COUNT_MAX:
        raise UsageError(
            f"a run cannot have {count} attributes", hint=f"{COUNT_MAX} is the limit; put the rest into its input."
        )
    return after


def encode(attributes: Mapping[str, Scalar]) -> bytes:
    """As they are stored; nothing if there are none."""
    if not attributes:
        return b""
    return _encode({name: _stored(value) for name, value in attributes.items()})


def encode_changes(changes: Mapping[str, Scalar | None]) -> bytes:
    """As the journal keeps them; null removes."""
    return _encode({name: None if value is None else _stored(value) for name, value in changes.items()})


def decode_changes(data: bytes) -> dict[str, Scalar | None]:
    return {name: None if value is None else _read(value) for name, value in _decode(data).items()}


def decode(data: bytes) -> dict[str, Scalar]:
    return {name: _read(value) for name, value in _decode(data).items()} if data else {}


def _stored(value: Scalar) -> object:
    match value:
        case datetime():
            return {"at": micros(value)}
        case bool():
            return value
        case str():  # subclasses (an enum's member, a number of numpy's) are stored as what they are
            return str.__str__(value)
        case int():
            return int(value)
        case _:
            return float(value)


def _read(value: Any) -> Scalar:
    return instant(value["at"]) if isinstance(value, dict) else value  # pyright: ignore[reportUnknownArgumentType]


def micros(instant: datetime) -> int:
    """Microseconds since 1970."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def instant(micros: int) -> datetime:
    """The instant that lies so many microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def indexed(value: Scalar) -> tuple[str, Indexed]:
    """The kind of a value, and the value in a form that sorts; only values of one kind are compared."""
    match value:
        case bool():
            return "flag", int(value)
        case datetime():
            return "instant", micros(value)
        case str():
            return "text", value
        case _:
            return "number", value
