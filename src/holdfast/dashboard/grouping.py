"""Lanes of one kind and name as one group: what a run of ten thousand steps looks like from afar. Pure.

    lane              group            why
    ────────────────  ───────────────  ──────────────────────────────────────────
    charge#12         charge           the number says only which call it was
    3.1/charge#1      charge           the task says only which of several asked
    undo:charge#2     undo:charge      what is undone is another thing
    hook approval     hook approval    there is one of each

Rules
- Groups come in the order in which their first lanes began. Beyond a number of groups the rest are one.
- What is drawn of a group is a strip: the width in so many columns, each with what happens in it. Where a step has
  failed for good shows above everything else. So a group costs the same whether it has ten lanes or ten thousand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from msgspec import Struct, field

from holdfast.dashboard.timeline import Kind, Lane, Scale, State
from holdfast.kernel.cancels import UNDO
from holdfast.kernel.times import Instant

GROUPS_MAX = 30
COLUMNS = 200
REST = "other steps"
LaneState = Literal["done", "failed", "open"]
_NUMBER = re.compile(r"#\d+$")
_ORDER: tuple[State, ...] = ("open", "done", "failed", "pause")


class Numbered(NamedTuple):
    """A lane and its place among all lanes of the run."""

    number: int
    lane: Lane
    state: LaneState


class Group(Struct):
    """Lanes of one name."""

    name: str
    kind: Kind
    lanes: list[Numbered] = field(default_factory=list[Numbered])

    def count(self, state: LaneState) -> int:
        return sum(each.state == state for each in self.lanes)


class Piece(NamedTuple):
    """A part of a strip in which the same goes on: from column to column."""

    start: int
    end: int
    state: State


def group_name(lane: Lane) -> str:
    """The name that a lane shares with those like it."""
    name = lane.name.removeprefix(UNDO)
    undo = UNDO if name != lane.name else ""
    return undo + _NUMBER.sub("", name.rpartition("/")[2] if lane.kind not in {"hook", "markers"} else name)


def state_of(lane: Lane, until_ms: Instant) -> LaneState:
    """How a lane stands. Between two attempts it goes on; if the run has ended meanwhile, it has failed."""
    if not lane.bars:
        return "done"
    last = lane.bars[-1]
    if last.state == "pause":
        return "open" if last.end_at_ms >= until_ms else "failed"
    return "done" if last.state == "done" else last.state


def numbered(lanes: Sequence[Lane], until_ms: Instant) -> list[Numbered]:
    return [Numbered(number, lane, state_of(lane, until_ms)) for number, lane in enumerate(lanes)]


def grouped(lanes: Iterable[Numbered]) -> list[Group]:
    """The groups of these lanes."""
    groups: dict[tuple[str, Kind], Group] = {}
    for each in lanes:
        name = group_name(each.lane)
        groups.setdefault((name, each.lane.kind), Group(name, each.lane.kind)).lanes.append(each)
    found = list(groups.values())
    if len(found) <= GROUPS_MAX:
        return found
    rest = Group(REST, "effect")
    for group in found[GROUPS_MAX - 1 :]:
        rest.lanes.extend(group.lanes)
    return [*found[: GROUPS_MAX - 1], rest]


def strip(lanes: Iterable[Numbered], scale: Scale, columns: int = COLUMNS) -> tuple[Piece, ...]:
    """What is drawn of a group."""
    begins: dict[State, list[int]] = {state: [0] * (columns + 1) for state in _ORDER}
    ends: set[int] = set()
    for each in lanes:
        for bar in each.lane.bars:
            first, last = column(scale.at(bar.start_at_ms), columns), column(scale.at(bar.end_at_ms), columns)
            begins[bar.state][first] += 1
            begins[bar.state][last + 1] -= 1
        if each.state == "failed":
            ends.add(column(scale.at(each.lane.bars[-1].end_at_ms), columns))
    active: dict[State, list[int]] = {state: list(accumulate(changes)) for state, changes in begins.items()}
    pieces: list[Piece] = []
    for at in range(columns):
        state = "failed" if at in ends else _going_on_in(active, at)
        if state is None:
            continue
        if pieces and pieces[-1].end == at and pieces[-1].state == state:
            pieces[-1] = Piece(pieces[-1].start, at + 1, state)
        else:
            pieces.append(Piece(at, at + 1, state))
    return tuple(pieces)


def _going_on_in(active: Mapping[State, Sequence[int]], at: int) -> State | None:
    for state in _ORDER:
        if active[state][at]:
            return state
    return None


def column(x: float, columns: int = COLUMNS) -> int:
    """The column in which a place lies, in per cent of the width."""
    return min(int(x / 100 * columns), columns - 1)


def path(pieces: Iterable[Piece], state: State) -> str:
    """The pieces of one state, as the path of a drawing that is as wide as there are columns."""
    top, height = (9, 2) if state == "pause" else (4, 12)
    return "".join(
        f"M{each.start} {top}h{each.end - each.start}v{height}h{each.start - each.end}z"
        for each in pieces
        if each.state == state
    )
