"""The timeline of a run: its journal as tracks of bars, and where to draw them. Pure.

Rules
- A track is a step, a hook, or what happens to the run as a whole; tracks come in the order in which they began.
- The journal records ends. A step was asked for when its own task last had something delivered; if that task has
  nothing yet, when the task that made it had. A retry is asked for where the pause before it ends.
- An effect began when it was asked for, unless its entry says that it began later. What lies between is drawn as a
  wait, and is no part of what the effect took.
- A failure of the run stays where it was when the run is retried.
- What goes on is drawn up to the present, as far as the run says what it waits for.
- Time is compressed where it is long: a stretch between two events gets a width that grows with its duration, but much
  slower, so that a call of milliseconds shows beside a wait of days. Durations are always written out.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from msgspec import Struct, field

from holdfast.kernel.cancels import UNDO
from holdfast.kernel.journal import (
    Attempted,
    Blocked,
    ByHand,
    CancelAsked,
    Cancelled,
    Continued,
    Dropped,
    Elapsed,
    Entry,
    Failed,
    Failure,
    GaveUp,
    Intended,
    Joined,
    Late,
    Marked,
    Opened,
    Performed,
    Received,
    Resumed,
    Retried,
    Spawned,
    Started,
    Stopped,
)
from holdfast.kernel.steps import AT_ONCE_MS
from holdfast.kernel.times import Instant
from holdfast.kernel.units import utc_of
from holdfast.kernel.waits import Wait
from holdfast.wire.times import duration, exact

Kind = Literal["effect", "undo", "timer", "hook", "child", "markers", "cancel", "blocked", "work"]
State = Literal["done", "failed", "pause", "open"]
LANES_MAX = 150
AFTER_FAILURE = "undoing after failure"
_COMPRESSION = 0.4
_TICKS_APART = 13.0
_WIDTH_MIN = 0.35


class Bar(NamedTuple):
    """Something that took a while."""

    start_at_ms: Instant
    end_at_ms: Instant
    state: State
    text: str


class Point(NamedTuple):
    """Something that took no time."""

    at_ms: Instant
    text: str


class Track(Struct):
    """One line of the timeline."""

    name: str
    kind: Kind
    bars: list[Bar] = field(default_factory=list[Bar])
    points: list[Point] = field(default_factory=list[Point])
    run_id: str = ""  # of a child


class Drawn(NamedTuple):
    """A bar in its place, in per cent of the width."""

    x: float
    width: float
    state: State
    text: str


class Dot(NamedTuple):
    x: float
    text: str


class Row(NamedTuple):
    """A track in its place. `text` says all that is drawn in it."""

    name: str
    kind: Kind
    bars: tuple[Drawn, ...]
    dots: tuple[Dot, ...]
    took: str
    text: str
    run_id: str


class Tick(NamedTuple):
    x: float
    text: str


class Timeline(NamedTuple):
    """Rows to draw, the instants to name above them, and how many rows were left out."""

    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    left_out: int


def timeline(journal: Sequence[Entry], waiting_on: Iterable[Wait], *, until_ms: Instant) -> Timeline:
    """The timeline of a run that has ended at `until_ms`, or goes on and is looked at then."""
    origin_at_ms, tracks = tracks_of(journal, waiting_on, until_ms=until_ms)
    scale = Scale(origin_at_ms, until_ms, tracks)
    rows = tuple(row_of(track, scale, until_ms) for track in tracks[:LANES_MAX])
    return Timeline(rows, scale.ticks(), max(0, len(tracks) - LANES_MAX))


def tracks_of(
    journal: Sequence[Entry], waiting_on: Iterable[Wait], *, until_ms: Instant
) -> tuple[Instant, list[Track]]:
    """When a run began, and what there is to draw of it, in the order in which it began."""
    reader = _Reader(journal[0].at_ms if journal else until_ms)
    for entry in journal:
        reader.read(entry)
    reader.read_waits(waiting_on, until_ms)
    return reader.origin_at_ms, list(reader.tracks.values())


class _Reader:
    """Goes through a journal and collects tracks."""

    def __init__(self, origin_at_ms: Instant) -> None:
        self.origin_at_ms = origin_at_ms
        self.tracks: dict[str, Track] = {}
        self._delivered: dict[str, Instant] = {"": origin_at_ms}  # when each task of the run last got something
        self._began_again_at_ms = origin_at_ms  # when the whole run last began again
        self._begun: dict[str, Instant] = {}  # steps whose begin is known
        self._children: dict[str, str] = {}  # by run id, the track of a child that has not ended
        self._last_at_ms = origin_at_ms
        self._unwinding = "cancellation"  # the track of why the code is ended, and what it did undone

    def read(self, entry: Entry) -> None:  # noqa: C901, PLR0912, PLR0915 - a table, as long as its subject
        at_ms = self._last_at_ms = entry.at_ms
        match entry:
            case Started() | Continued():
                self._began_again_at_ms = at_ms
            case Intended(step=step):
                self._begun[step] = at_ms
            case Attempted(step=step, by_hand=ByHand(retry_now=True)):
                self._end_pause(self._track(step, _kind_of(step)), at_ms)
                self._begun[step] = at_ms
            case Attempted(step=step, attempt=attempt, error=error, retry_at_ms=retry_at_ms):
                track = self._track(step, _kind_of(step))
                self._wait_to_begin(track, step, entry.began_at_ms)
                self._bar(track, step, at_ms, "failed", f"attempt {attempt} failed with {_words(error)}")
                track.bars.append(Bar(at_ms, retry_at_ms, "pause", f"pause before attempt {attempt + 1}"))
                self._begun[step] = retry_at_ms
            case Performed(step=step, attempt=attempt):
                track = self._track(step, _kind_of(step))
                self._wait_to_begin(track, step, entry.began_at_ms)
                self._bar(track, step, at_ms, "done", f"returned in attempt {attempt}")
            case GaveUp(step=step, attempt=attempt, error=error):
                when = f"after attempt {attempt}" if attempt else "before the first attempt"
                text = f"gave up {when}: {_words(error)}"
                track = self._track(step, _kind_of(step))
                self._wait_to_begin(track, step, entry.began_at_ms)
                self._bar(track, step, at_ms, "failed", text)
            case Dropped(step=step):
                text = "was no longer waited for, and may have happened"
                self._bar(self._track(step, _kind_of(step)), step, at_ms, "failed", text)
            case Late(step=step):
                self._track(step, _kind_of(step)).points.append(Point(at_ms, "came to its end late"))
            case Elapsed(step=step):
                self._bar(self._track(step, "timer"), step, at_ms, "done", "elapsed")
            case Spawned(step=step, run_id=run_id):
                self._track(step, "child").run_id = run_id
                self._begun[step] = at_ms
                self._children[run_id] = step
            case Joined(run_id=run_id, error=error, step=step):
                track_name = self._children.pop(run_id, None)
                if track_name is not None:
                    self._bar(self._track(track_name, "child"), track_name, at_ms, *_end_of_child(error))
                self._deliver(step, at_ms)
            case Received(hook=hook):
                self._track(f"hook {hook}", "hook").bars.append(
                    Bar(self._start_of(""), at_ms, "done", "a signal was received")
                )
                self._deliver("", at_ms)
            case Opened(intent=intent, holder=holder):
                taken = f"; the token is held by run {holder.run_id}" if holder else ""
                self._track(f"hook {intent.name}", "hook").points.append(Point(at_ms, f"opened{taken}"))
            case Marked(marker=marker):
                self._track("markers", "markers").points.append(Point(at_ms, marker))
            case CancelAsked(reason=reason, error=error):
                self._close("blocked", at_ms, "was cancelled" if error is None else "took too long")
                text = f"asked for: {reason or 'no reason'}" if error is None else _words(error)
                self._unwind("cancellation" if error is None else "timeout", at_ms, text)
                self._deliver("", at_ms)
            case Stopped(error=error):
                if error is not None and AFTER_FAILURE not in self._begun:
                    self._unwind(AFTER_FAILURE, at_ms, f"the code has failed: {_words(error)}")
                else:
                    text = "the deadline was over" if error is not None else "the code has ended"
                    self._track(self._unwinding, "cancel").points.append(Point(at_ms, text))
                self._began_again_at_ms = at_ms  # what is undone is undone from here on
            case Cancelled():
                self._close(self._unwinding, at_ms, "took until the run had ended")
            case Failed(error=error):
                self._close(self._unwinding, at_ms, "took until the run had failed")
                self._track("failed", "blocked").points.append(Point(at_ms, _words(error)))
                self._begun["failed"] = at_ms
            case Blocked(code=code, message=message):
                self._track("blocked", "blocked").points.append(Point(at_ms, f"{code}: {message}"))
                self._begun["blocked"] = at_ms
            case Retried() | Resumed():
                self._close("blocked", at_ms, f"until it was {entry.what}")
                self._close("failed", at_ms, f"until it was {entry.what}")
                self._began_again_at_ms = at_ms
            case _:
                pass  # notes, and ends that have no track of their own

    def _end_pause(self, track: Track, at_ms: Instant) -> None:
        """The pause that was to end later has ended."""
        if track.bars and track.bars[-1].state == "pause":
            track.bars[-1] = track.bars[-1]._replace(end_at_ms=at_ms)

    def read_waits(self, waiting_on: Iterable[Wait], until_ms: Instant) -> None:
        """What goes on now."""
        for run_id in list(self._children):
            step = self._children.pop(run_id)
            self._bar(self._track(step, "child"), step, until_ms, "open", "has not ended", deliver=False)
        for wait in waiting_on:
            match wait.kind:
                case "timer":
                    self._bar(self._track(wait.step, "timer"), wait.step, until_ms, "open", str(wait), deliver=False)
                case "hook":
                    track = self._track(f"hook {wait.name}", "hook")
                    track.bars.append(Bar(self._start_of(""), until_ms, "open", f"waits for {wait}"))
                case "running" if wait.effect is not None:
                    track = self._track(wait.step, _kind_of(wait.step))
                    self._wait_to_begin(track, wait.step, wait.effect.since_ms)
                    track.bars.append(Bar(wait.effect.since_ms, until_ms, "open", str(wait)))
                case "running":
                    self._track("at work", "work").bars.append(Bar(self._last_at_ms, until_ms, "open", str(wait)))
                case "worker" | "no_worker" | "delay" | "lane" | "throttle" | "debounce" | "batch" | "turn":
                    track = self._track("waiting to begin", "work")
                    track.bars.append(Bar(self._last_at_ms, until_ms, "open", f"waits for {wait}"))
                case "breaker" | "limit":
                    track = self._track(wait.step, _kind_of(wait.step))
                    track.bars.append(Bar(self._last_at_ms, until_ms, "open", f"waits for {wait}"))
                case "blocked" | "retry" | "child" | "outcome":
                    pass  # their tracks are open already
        for name in (self._unwinding, "blocked"):
            if name in self._begun:
                self._bar(self.tracks[name], name, until_ms, "open", "goes on", deliver=False)

    def _unwind(self, name: str, at_ms: Instant, text: str) -> None:
        self._unwinding = name
        self._begun[name] = at_ms
        self._track(name, "cancel").points.append(Point(at_ms, text))

    def _track(self, name: str, kind: Kind) -> Track:
        return self.tracks.setdefault(name, Track(name, kind))

    def _bar(
        self, track: Track, step: str, end_at_ms: Instant, state: State, text: str, *, deliver: bool = True
    ) -> None:
        start_at_ms = self._begun.pop(step, None)
        track.bars.append(Bar(self._start_of(step) if start_at_ms is None else start_at_ms, end_at_ms, state, text))
        if deliver:
            self._deliver(step, end_at_ms)

    def _wait_to_begin(self, track: Track, step: str, began_at_ms: Instant | None) -> None:
        """What lies between the moment when the step was asked for and the one when it began."""
        if began_at_ms is None:
            return
        asked_at_ms = self._begun.get(step)
        asked_at_ms = self._start_of(step) if asked_at_ms is None else asked_at_ms
        if began_at_ms - asked_at_ms > AT_ONCE_MS:
            track.bars.append(Bar(asked_at_ms, began_at_ms, "pause", "waited to begin: for a worker, or for room"))
        self._begun[step] = began_at_ms

    def _close(self, name: str, at_ms: Instant, text: str) -> None:
        start_at_ms = self._begun.pop(name, None)
        if start_at_ms is not None:
            self.tracks[name].bars.append(Bar(start_at_ms, at_ms, "done", text))

    def _deliver(self, step: str, at_ms: Instant) -> None:
        self._delivered[_task_of(step)] = at_ms

    def _start_of(self, step: str) -> Instant:
        task = _task_of(step)
        while task not in self._delivered:
            task = task.rpartition(".")[0]
        return max(self._delivered[task], self._began_again_at_ms)


def _task_of(step: str) -> str:
    return step.removeprefix(UNDO).rpartition("/")[0]


def _kind_of(step: str) -> Kind:
    return "undo" if step.startswith(UNDO) else "effect"


def _end_of_child(error: Failure | None) -> tuple[State, str]:
    return ("done", "ended") if error is None else ("failed", f"ended with {_words(error)}")


def _words(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}" if failure.message else failure.type


class Scale:
    """Where an instant lies, in per cent of the width."""

    def __init__(self, start_at_ms: Instant, end_at_ms: Instant, tracks: Iterable[Track]) -> None:
        edges = {start_at_ms, end_at_ms}
        for track in tracks:
            edges.update(at_ms for bar in track.bars for at_ms in (bar.start_at_ms, bar.end_at_ms))
            edges.update(point.at_ms for point in track.points)
        self._edges = sorted(edge for edge in edges if start_at_ms <= edge <= end_at_ms)
        widths = [(after - before) ** _COMPRESSION for before, after in pairwise(self._edges)]
        whole = sum(widths) or 1.0
        self._at = {self._edges[0]: 0.0}
        reached = 0.0
        for edge, width in zip(self._edges[1:], widths, strict=True):
            reached += width
            self._at[edge] = reached / whole * 100

    def at(self, at_ms: Instant) -> float:
        """Of an edge; what lies outside is drawn at the nearer end."""
        return self._at[min(max(at_ms, self._edges[0]), self._edges[-1])]

    def place(self, at_ms: Instant) -> float:
        """Of any instant, between two edges as well."""
        after = min(max(bisect(self._edges, at_ms), 1), len(self._edges) - 1)
        if len(self._edges) == 1 or at_ms in self._at:
            return self._at.get(at_ms, 0.0)
        low_at_ms, high_at_ms = self._edges[after - 1], self._edges[after]
        part = min(max((at_ms - low_at_ms) / (high_at_ms - low_at_ms), 0.0), 1.0)
        return self._at[low_at_ms] + part * (self._at[high_at_ms] - self._at[low_at_ms])

    def instant(self, x: float) -> Instant:
        """The instant that lies at `x` per cent of the width: the inverse of `at`."""
        places = list(self._at.values())
        after = min(max(bisect(places, x), 1), len(places) - 1)
        if len(places) == 1:
            return self._edges[0]
        (low, high), (low_at_ms, high_at_ms) = places[after - 1 : after + 1], self._edges[after - 1 : after + 1]
        part = 0.0 if high <= low else min(max((x - low) / (high - low), 0.0), 1.0)
        return Instant(round(low_at_ms + part * (high_at_ms - low_at_ms)))

    def ticks(self) -> tuple[Tick, ...]:
        """Some of the edges, far enough from each other, with the time since the first."""
        start_at_ms, end_at_ms = self._edges[0], self._edges[-1]
        ticks = [Tick(0.0, "0")]
        for edge in self._edges[1:-1]:
            if ticks[-1].x + _TICKS_APART <= self._at[edge] <= 100 - _TICKS_APART:
                ticks.append(Tick(self._at[edge], duration(edge - start_at_ms)))
        if end_at_ms > start_at_ms:
            ticks.append(Tick(100.0, duration(end_at_ms - start_at_ms)))
        return tuple(ticks)


def row_of(track: Track, scale: Scale, until_ms: Instant) -> Row:
    bars = tuple(
        Drawn(x, max(scale.at(bar.end_at_ms) - x, _WIDTH_MIN), bar.state, _bar_text(bar))
        for bar in track.bars
        for x in (min(scale.at(bar.start_at_ms), 100 - _WIDTH_MIN),)
    )
    dots = tuple(Dot(scale.at(point.at_ms), f"{point.text}, {exact(utc_of(point.at_ms))}") for point in track.points)
    took = ""
    if track.bars:
        began = next((bar for bar in track.bars if bar.state != "pause"), track.bars[0])
        took = duration(min(track.bars[-1].end_at_ms, until_ms) - began.start_at_ms)
    text = "; ".join([*(bar.text for bar in bars), *(dot.text for dot in dots)])
    return Row(track.name, track.kind, bars, dots, took, f"{track.name}: {text}", track.run_id)


def _bar_text(bar: Bar) -> str:
    return f"{bar.text}, {duration(bar.end_at_ms - bar.start_at_ms)} from {exact(utc_of(bar.start_at_ms))}"
