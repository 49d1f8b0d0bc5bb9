"""The gate's pack for workers that never look at their own clock: nothing but the store's fence can stop them."""

from __future__ import annotations

from holdfast.engine import keeper
from holdfast.gate.pack import pack
from holdfast.kernel import leases
from holdfast.kernel.leases import Standing

__all__ = ["pack"]


def _never_lost(age_ms: float, *, ttl_ms: int) -> Standing:
    return Standing.FRESH if leases.standing(age_ms, ttl_ms=ttl_ms) is Standing.FRESH else Standing.DUE


keeper.standing = _never_lost
keeper.Keeper.reliable = property(lambda self: True)  # type: ignore[assignment]
