"""A run by a part of its id: the beginning or the end of it, as people copy it from a line.

Ids begin with the time of their start, so a beginning is looked for among the runs of that time only; the runs of one
minute begin alike, and differ at their ends. An end is looked for among the newest runs.
"""

from __future__ import annotations

from typing import Any

from holdfast.client import Caller, Run
from holdfast.errors import UnknownRun, UsageError
from holdfast.kernel.searches import PAGE_MAX
from holdfast.kernel.times import Instant
from holdfast.kernel.units import utc_of

SHORTEST = 4
WHOLE = 32
TIME = 12  # so many digits of an id are its time, in milliseconds
SKEW_MS = 300_000  # the id has the time of the process that started the run, `created` that of the store
LATEST_MS = 253_402_300_799_000  # the last second of the year 9999, behind which there are no dates
_DIGITS = frozenset("0123456789abcdef")


def is_short(reference: str) -> bool:
    """Whether this may be a part of an id."""
    return SHORTEST <= len(reference) < WHOLE and set(reference) <= _DIGITS


async def find(caller: Caller, part: str) -> Run[Any]:
    """The one run whose id begins or ends so. Raises `UnknownRun` if there is none, `UsageError` if there are more."""
    found = {run.id: run for run in [*await _beginning(caller, part), *await _ending(caller, part)]}
    if not found:
        raise UnknownRun(
            f"no run has an id that begins with {part!r}, and none of the newest {PAGE_MAX:,} one that ends so",
            hint="Write the whole id, or workflow/key: `holdfast runs` lists them.",
        )
    if len(found) > 1:
        ids = ", ".join(sorted(found)[:3])
        raise UsageError(f"{part!r} is part of more than one run id", hint=f"Write more of it: {ids} ...")
    return next(iter(found.values()))


async def _beginning(caller: Caller, part: str) -> list[Run[Any]]:
    """At most two."""
    low, high = (int(part[:TIME].ljust(TIME, digit), 16) for digit in "0f")
    if low > LATEST_MS:
        return []
    since, until = max(low - SKEW_MS, 0), min(high + SKEW_MS, LATEST_MS)
    found: list[Run[Any]] = []
    async for run in caller.runs(created_after=utc_of(Instant(since)), created_before=utc_of(Instant(until))):
        if run.id.startswith(part):
            found.append(run)
            if len(found) > 1:
                break
    return found


async def _ending(caller: Caller, part: str) -> list[Run[Any]]:
    return [run for run in (await caller.runs().page(limit=PAGE_MAX)).runs if run.id.endswith(part)]
