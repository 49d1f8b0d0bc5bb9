"""Chance: ids, nonces and jitter."""

from __future__ import annotations

from typing import Protocol

from holdfast.kernel.times import Instant


class Ids(Protocol):
    """Where chance comes from. Tests pass a seeded one."""

    def run_id(self, now_ms: Instant) -> str:
        """A new run id. Ids sort by time, so that new rows land side by side."""
        ...

    def nonce(self) -> str:
        """128 random bits, never drawn before."""
        ...

    def chance(self) -> float:
        """A number in [0, 1)."""
        ...
