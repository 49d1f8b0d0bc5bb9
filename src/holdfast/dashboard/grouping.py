"""Tracks of one kind and name as one group: what a run of ten thousand steps looks like from afar. Pure.

    track              group            why
    ────────────────  ───────────────  ──────────────────────────────────────────
    charge#12         charge           the number says only which call it was
    3.1/charge#1      charge           the task says only which of several asked
    undo:charge#2     undo:charge      what is undone is another thing
    hook approval     hook approval    there is one of each

Rules
- Groups come in the order in which their first tracks began. Beyond a number of groups the rest are one.
- What is drawn of a group is a strip: the width in so many columns, each with what happens in it. Where a step has
  failed for good shows above everything else. So a group costs the same whether it has ten tracks or ten thousand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from msgspec import Struct, field

from holdfast.dashboard.timeline import Kind, Scale, State, Track
from holdfast.kernel.cancels import UNDO
from holdfast.kernel.times import Instant

GROUPS_MAX = 30
COLUMNS = 200
REST = "other steps"
TrackState = Literal["done", "failed", "open"]
_NUMBER = re.compile(r"#\d+$")
_ORDER: tuple[State, ...] = ("open", "done", "failed", "pause")


class Numbered(NamedTuple):
    """A track and its place among all tracks of the run."""

    number: int
    track: Track
    state: TrackState


class Group(Struct):
    """Tracks of one name."""

    name: str
    kind: Kind
    tracks: list[Numbered] = field(default_factory=list[Numbered])

    def count(self, state: TrackState) -> int:
        return sum(each.state == state for each in self.tracks)


class Piece(NamedTuple):
    """A part of a strip in which the same goes on: from column to column."""

    start: int
    end: int
    state: State


def group_name(track: Track) -> str:
    """The name that a track shares with those like it."""
    name = track.name.removeprefix(UNDO)
    undo = UNDO if name != track.name else ""
    return undo + _NUMBER.sub("", name.rpartition("/")[2] if track.kind not in {"hook", "markers"} else name)


def state_of(track: Track, until_ms: Instant) -> TrackState:
    """How a track stands. Between two attempts it goes on; if the run has ended meanwhile, it has failed."""
    if not track.bars:
        return "done"
    last = track.bars[-1]
    if last.state == "pause":
        return "open" if last.end_at_ms >= until_ms else "failed"
    return "done" if last.state == "done" else last.state


def numbered(tracks: Sequence[Track], until_ms: Instant) -> list[Numbered]:
    return [Numbered(number, track, state_of(track, until_ms)) for number, track in enumerate(tracks)]


def grouped(tracks: Iterable[Numbered]) -> list[Group]:
    """The groups of these tracks."""
    groups: dict[tuple[str, Kind], Group] = {}
    for each in tracks:
        name = group_name(each.track)
        groups.setdefault((name, each.track.kind), Group(name, each.track.kind)).tracks.append(each)
    found = list(groups.values())
    if len(found) <= GROUPS_MAX:
        return found
    rest = Group(REST, "effect")
    for group in found[GROUPS_MAX - 1 :]:
        rest.tracks.extend(group.tracks)
    return [*found[: GROUPS_MAX - 1], rest]


def strip(tracks: Iterable[Numbered], scale: Scale, columns: int = COLUMNS) -> tuple[Piece, ...]:
    """What is drawn of a group."""
    begins: dict[State, list[int]] = {state: [0] * (columns + 1) for state in _ORDER}
    ends: set[int] = set()
    for each in tracks:
        for bar in each.track.bars:
            first, last = column(scale.at(bar.start_at_ms), columns), column(scale.at(bar.end_at_ms), columns)
            begins[bar.state][first] += 1
            begins[bar.state][last + 1] -= 1
        if each.state == "failed":
            ends.add(column(scale.at(each.track.bars[-1].end_at_ms), columns))
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
