"""Redis' clock, as this process reckons with it between two looks.

A look is one question for the time. The answer was true at some moment between the question and its arrival, and it is
not known when: a server that stalls replies late, a network delays. So a look says where the server's clock is at
least, and where it is at most, beside our own steady one. The shortest way there and back that was ever seen narrows
both: hardly an answer comes faster than that, half of it each way.

Rules
- What we reckon moves only if a look contradicts it, and no farther than to what that look allows. A slow look, which
  says little, moves little: a timer is set by one process and judged by another, and if one of them is ahead or
  behind, the timer is early.
- A look that contradicts it by a hair went faster one way than half of the shortest; one that contradicts it by much
  met a clock that was set, or another server. Both are handled alike: the quick looks that follow say the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from holdfast.kernel.times import Steady


class Look(NamedTuple):
    """A question for the time: the reply, and when it was asked and when it came by our own steady clock."""

    there_ms: float
    asked_steady_ms: Steady
    came_steady_ms: Steady

    @property
    def took_ms(self) -> float:
        return self.came_steady_ms - self.asked_steady_ms

    @property
    def middle_steady_ms(self) -> Steady:
        """When the server looked, if there and back took the same time."""
        return Steady((float(self.asked_steady_ms) + self.came_steady_ms) / 2)


class ServerClock:
    """By how much the server's clock is ahead of our steady one."""

    def __init__(self) -> None:
        self.ahead_ms = 0.0
        self._shortest_ms = math.inf  # there and back

    def take(self, looks: Iterable[Look]) -> None:
        """Learn from looks one soon after the other: from the quickest, which says most."""
        look = min(looks, key=attrgetter("took_ms"))
        self._shortest_ms = min(self._shortest_ms, look.took_ms)
        one_way_ms = self._shortest_ms / 2
        least_ms = look.there_ms - float(look.came_steady_ms) + one_way_ms
        most_ms = look.there_ms - float(look.asked_steady_ms) - one_way_ms
        self.ahead_ms = min(max(self.ahead_ms, least_ms), most_ms)
