"""How many cores this process may use: those that it is bound to, and no more than its container is given."""

from __future__ import annotations

import math
import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # as a container sees its own: "200000 100000" is two cores, "max 100000" all


def usable_cores(quota: Path = QUOTA) -> int:
    """At least one."""
    # Not every system binds processes to cores.
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(bound, _given(quota, bound)))


def _given(quota: Path, bound: int) -> int:
    try:
        microseconds, period = quota.read_text(encoding="ascii").split()
        return math.ceil(int(microseconds) / int(period))
    except (OSError, ValueError):  # no container, an older kind of them, or no limit
        return bound
