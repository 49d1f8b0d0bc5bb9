"""Payloads at rest: closed before they are stored, opened when they are read."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Sealed(NamedTuple):
    """Bytes that only the key of this id opens."""

    key_id: str
    data: bytes


class Seal(Protocol):
    """How payloads are encrypted at rest, given as `Holdfast(seal=...)`.

    Both methods are called in the event loop, once for each payload: they must not wait for a network. They may be
    called by several threads of a process, each with a `Holdfast` of its own.
    """

    def seal(self, data: bytes) -> Sealed | None:
        """`data` under the current key. None stores it as it is: a process that may open, and does not seal yet.

        If it raises, nothing is stored, and the write is tried again as if the store could not be reached.
        """
        ...

    def open(self, sealed: Sealed) -> bytes:
        """What was sealed. Raises whatever it likes if it lacks the key, or if the bytes were changed."""
        ...
