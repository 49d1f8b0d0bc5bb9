"""A seal for these tests, and one that is none."""

from __future__ import annotations

from holdfast.assembly import Sealed


class Lock:
    """Turns bytes around: enough to see whether they were sealed."""

    def seal(self, data: bytes) -> Sealed:
        return Sealed("k1", data[::-1])

    def open(self, sealed: Sealed) -> bytes:
        return sealed.data[::-1]


lock = Lock()
key = "no seal"
