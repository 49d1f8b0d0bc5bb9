"""How long a store on Redis waits, and how often it looks: a value, so that a test can have one store of another pace.

They are no settings: what an installation may choose is in the URL. `docs/reference/cadences.md` is generated from it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from holdfast.kernel.times import Millis


class RedisPace(Struct, frozen=True, kw_only=True):
    """The cadences of one store on Redis."""

    patience_seconds: float = 5.0  # what was not executed, or only read, is tried again for so long

    # Replicas.
    confirm_ms: Millis = Millis(1_000)  # how long they may take to confirm a write
    count_seconds: float = 1.0  # how often they are counted, with wait=auto
    alone_seconds: float = 3.0  # how long a primary that has lost its last one is mistrusted

    clock_seconds: float = 10.0  # how often Redis' clock is read

    # What crosses shards.
    outbox_age_ms: Millis = Millis(2_000)  # what is younger, its own process is about to deliver
    reserve_ms: Millis = Millis(10_000)  # how long a place in a lane is kept for a run that is being admitted
    overdue_ms: Millis = Millis(10_000)  # after that, until it is taken back: clocks of servers differ
    tidy_seconds: float = 0.5  # until what was delivered is taken out of the outbox
    last_words_seconds: float = 1.0  # for that, when the store is closed


PACE: Final = RedisPace()
