"""The minimap of a timeline: all of a run in one small picture, which shows where it was busy and where it failed.

It is a row of columns over the scale of the whole run. A column is as high as there are steps in it, on a scale that
grows slowly, so that one step shows beside a thousand. Stretches of it are links: each leads to the timeline of what
lies in it. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from holdfast.dashboard.grouping import Numbered, column
from holdfast.dashboard.timeline import Scale
from holdfast.kernel.times import Instant

COLUMNS = 120
HEIGHT = 30
STRETCHES = 24


class MapPart(NamedTuple):
    """A part of the picture, with its place, and the time that it stands for."""

    x: float
    width: float
    since_ms: Instant
    until_ms: Instant


class Minimap(NamedTuple):
    """The picture: paths of what went well and of what failed or goes on, and the part that the timeline shows."""

    steps: str
    failed: str
    going_on: str
    stretches: tuple[MapPart, ...]
    shown_x: float
    shown_width: float


def minimap(tracks: Sequence[Numbered], scale: Scale, window: tuple[Instant, Instant]) -> Minimap:
    """The minimap of all tracks of a run, of which the timeline shows a window."""
    begins = [0] * (COLUMNS + 1)
    failed: set[int] = set()
    going_on: set[int] = set()
    for each in tracks:
        for bar in each.track.bars:
            first, last = column(scale.at(bar.start_at_ms), COLUMNS), column(scale.at(bar.end_at_ms), COLUMNS)
            begins[first] += 1
            begins[last + 1] -= 1
            if bar.state == "open":
                going_on.add(last)
        if each.state == "failed":  # one that was tried again, and got through, is no failure
            failed.add(column(scale.at(each.track.bars[-1].end_at_ms), COLUMNS))
    active = list(accumulate(begins))[:COLUMNS]
    top = math.log1p(max(active, default=0)) or 1.0
    heights = [0 if not count else max(2, round(math.log1p(count) / top * HEIGHT)) for count in active]
    edges = [100 / STRETCHES * number for number in range(STRETCHES + 1)]
    instants = [scale.instant(x) for x in edges]
    stretches = tuple(
        MapPart(x, 100 / STRETCHES, since_ms, until_ms)
        for x, since_ms, until_ms in zip(edges, instants, instants[1:], strict=False)
        if until_ms > since_ms
    )
    x = scale.place(window[0])
    return Minimap(
        _columns({at: height for at, height in enumerate(heights) if height}),
        _columns(dict.fromkeys(sorted(failed), HEIGHT)),
        _columns(dict.fromkeys(sorted(going_on - failed), HEIGHT)),
        stretches,
        x,
        max(scale.place(window[1]) - x, 0.5),
    )


def _columns(heights: dict[int, int]) -> str:
    return "".join(f"M{at} {HEIGHT}v-{height}h1v{height}z" for at, height in heights.items())
