"""The limiter: counts what is spent of limits, for all processes that share a store, in the store's clock.

Rules for every limiter
- One call is atomic: all of its costs are spent, or none. They belong to one namespace.
- It is exact: of calls at the same time, in whatever processes, exactly as many pass as the limit says.
- What it keeps is not durable, on purpose: a store that starts again may have forgotten what was spent. A call whose
  reply is lost may have been counted, and is not sent again.
- A count whose time has come is removed without being asked for.
- It needs no opening. The first call finds or makes what it needs; closing the store closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.kernel.limits import Cost, Verdicts


class Limiter(Protocol):
    """Counts."""

    async def spend(self, namespace: str, costs: Sequence[Cost]) -> Verdicts:
        """Take all of these costs, or none: a verdict on each. Raises `StoreUnavailable` if it cannot be counted."""
        ...
