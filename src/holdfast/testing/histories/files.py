"""Histories as files: one JSON object per line, in order."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from holdfast.testing.histories.history import Record

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


def write(path: str | Path, history: Iterable[Record]) -> None:
    """Write a history, instead of what the file may have held."""
    with Path(path).open("wb") as file:
        file.writelines(_encode(record) + b"\n" for record in history)


def read(path: str | Path) -> tuple[Record, ...]:
    """The history in a file. A last line that is not whole is left out: its writer was killed in the middle of it."""
    data = Path(path).read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    return tuple(map(_decode, whole.splitlines()))
