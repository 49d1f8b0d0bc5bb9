"""Leases: how a replica keeps what it holds, and notices in time that it no longer does.

One lease covers all runs that a replica owns. The store's clock decides when it has expired; the holder only
ever measures durations by its own monotonic clock, from before it sent the renewal, so it errs to the safe side.

    age of the last renewal      state        what the holder does
    ───────────────────────────  ───────────  ──────────────────────────────────────────────
    under a third of the ttl     FRESH        nothing
    over a third                 DUE          renew; work goes on
    over two thirds              DOUBTFUL     renew; start no effect
    over four fifths             LOST         stop: cancel effects, drop the runs, begin again

Between LOST and the store's expiry lies a fifth of the ttl: the margin for a slow last effect. It narrows the
window in which two replicas touch the world, and cannot close it; that the late write is refused, the fence does.

The holder of a lease has a name that was never used before: that of its process, which logs and metrics bear, and a
nonce behind it. So whatever shows a holder shows the process by the one name that people know.
"""

from __future__ import annotations

from enum import Enum

from holdfast.errors import UsageError
from holdfast.kernel.times import Millis

TTL_MS_MIN = Millis(200)
NONCE_CHARACTERS = 16  # of a process that has a nonce in its own name


class Standing(Enum):
    """How far the holder may still rely on its lease."""

    FRESH = "fresh"
    DUE = "due"
    DOUBTFUL = "doubtful"
    LOST = "lost"


def checked_ttl(ttl_ms: Millis) -> Millis:
    """`ttl_ms` itself, unless it is too short to be renewed in time."""
    if ttl_ms < TTL_MS_MIN:
        raise UsageError(
            f"a lease of {ttl_ms} ms is too short", hint=f"Use at least {TTL_MS_MIN} ms; 30 s is the default."
        )
    return ttl_ms


def owner_named(instance: str, nonce: str) -> str:
    """The name of a holder in the process `instance`."""
    return f"{instance}.{nonce[:NONCE_CHARACTERS]}"


def instance_of(owner: str) -> str:
    """The process of a holder. Earlier versions named a holder by a nonce alone: that has to do."""
    return owner.rpartition(".")[0] or owner


def standing(age_ms: float, *, ttl_ms: Millis) -> Standing:
    """The state of a lease whose last successful renewal was sent `age_ms` ago."""
    if age_ms * 5 >= ttl_ms * 4:
        return Standing.LOST
    if age_ms * 3 >= ttl_ms * 2:
        return Standing.DOUBTFUL
    if age_ms * 3 >= ttl_ms:
        return Standing.DUE
    return Standing.FRESH


def reliable_for_ms(ttl_ms: Millis) -> float:
    """How long after a renewal work may be begun: until the lease becomes doubtful."""
    return ttl_ms * 2 / 3


def look_again_in_ms(age_ms: float, *, ttl_ms: Millis) -> float:
    """How long the holder may sleep before its standing changes, or before it should try a renewal again."""
    match standing(age_ms, ttl_ms=ttl_ms):
        case Standing.FRESH:
            return ttl_ms / 3 - age_ms
        case Standing.DUE | Standing.DOUBTFUL:
            return min(ttl_ms / 15, ttl_ms * 4 / 5 - age_ms)
        case _:
            return 0.0
