"""What an inspection finds in lanes: their places, counted again, beside the runs that should have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.kernel import lanes
from holdfast.kernel.lanes import LaneState
from holdfast.ports.store import Finding

LOOKED_AT_MAX = 1_000  # lanes, and runs of each kind
_SOON = "Look again in a few seconds: the relay puts it right. If it stays so, look whether any worker is running."


def finding(states: Iterable[LaneState], *, ended: Sequence[str], without: Sequence[str]) -> Finding:
    """`ended` are runs that have ended and have a place, `without` those that should have one and have none."""
    if without:
        detail = f"{len(without)} runs have no place in their lane, and so no turn: {without[0]}"
        return Finding("error", "lanes", detail, _SOON)
    if ended:
        return Finding("warning", "lanes", f"{len(ended)} runs have ended, and have a place: {ended[0]}", _SOON)
    count = 0
    for state in states:
        count += 1
        if (trouble := lanes.trouble(state)) is not None:
            return Finding("warning", "lanes", trouble, _SOON)
    return Finding("ok", "lanes", f"{count} are in order")
