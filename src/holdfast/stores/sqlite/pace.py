"""How long a store on SQLite waits, how often it looks and how much it takes: a value, so that a test can have another.

They are no settings: the numbers suit every installation. `docs/reference/cadences.md` is generated from it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from holdfast.kernel.times import Millis


class SqlitePace(Struct, frozen=True, kw_only=True):
    """The cadences and limits of one store on SQLite."""

    busy_ms: Millis = Millis(5_000)  # a locked file is waited for
    safety_seconds: float = 1.0  # how often the file is looked at for commits of others, while they announce them
    notice_seconds: float = 0.01  # ... and while some process does not
    announced_ms: Millis = Millis(100)  # a commit that was found may be announced so much later
    unannounced_ms: Millis = Millis(60_000)  # the file is looked at often, after a commit that was not
    gather_seconds: float = 0.01  # what no process waits for is told together
    last_moment_seconds: float = 1.0  # for what is under way, when the store is closed
    few_runs: int = 2_000  # an index that holds as many is long: see `searches`
    limits_sweep_seconds: float = 5.0  # how often counts of limits that are over are removed
    limits_sweep_max: int = 1_000  # of them in one transaction
    check_bytes_max: int = 256 * 1024**2  # a check reads every page: larger files would take long


PACE: Final = SqlitePace()
