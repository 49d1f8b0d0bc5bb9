"""What is shown of a timeline, whose size is bounded however long the run is. Pure.

    tracks in the window        shown
    ─────────────────────────  ──────────────────────────────────────────────────────────────────────
    up to LANES_FLAT           a row for each
    more                       a row for each group; one group, or one state, may be open, page by page
    more, and some have        besides, the first and the last of them in rows of their own, so that
    failed or go on            the failure and the step that runs are always in sight

The window is chosen by zooming: into a stretch of the minimap, around a failure, in and out. All of it is in the
address, so a link shows to others what one sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import NamedTuple
from urllib.parse import urlencode

from holdfast.dashboard.grouping import Group, Numbered, TrackState, grouped, numbered, path, strip
from holdfast.dashboard.minimap import Minimap, minimap
from holdfast.dashboard.timeline import Kind, Row, Scale, Tick, Track, row_of
from holdfast.errors import UsageError
from holdfast.kernel.times import Instant, Millis
from holdfast.wire.times import duration

LANES_FLAT = 40
LANES_PAGE = 40
PINNED = 4
MARKS_MAX = 40  # so many bars and points of one track are drawn one by one
AROUND = 8  # so many tracks before and behind the one that is jumped to
PARAMETERS = ("group", "state", "row", "since", "until")
LABELS: dict[str, str] = {"done": "done", "failed": "failed", "open": "going on"}


class WantedPart(NamedTuple):
    """Which part of the timeline is asked for, as the address says it. Times are milliseconds since the run began."""

    group: str = ""
    state: str = ""
    row: int = 0
    since: int | None = None
    until: int | None = None

    def href(self, anchor: str = "timeline", **changes: str | int | None) -> str:
        """The address of another part."""
        fields = {**self._asdict(), **changes}
        query = urlencode({name: value for name, value in fields.items() if value or (name != "row" and value == 0)})
        return f"?{query}#{anchor}"


def wanted_of(query: Mapping[str, str]) -> WantedPart:
    """What an address asks for, or a `UsageError`."""
    state = query.get("state", "")
    if state and state not in LABELS:
        raise UsageError(f"{state!r:.40} is no state of a step", hint=f"Known states: {', '.join(LABELS)}.")
    return WantedPart(
        query.get("group", ""), state, _whole(query, "row") or 0, _whole(query, "since"), _whole(query, "until")
    )


def _whole(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:  # a time in milliseconds has fewer
        raise UsageError(f"{name}={text!r:.40} is not a whole number", hint="Follow a link of the page.")
    return int(text)


class Strip(NamedTuple):
    """A strip as paths, by state."""

    done: str
    failed: str
    open: str
    pause: str


class ShownRow(NamedTuple):
    """A track in its row. One with very many marks is drawn as a strip."""

    number: int
    state: TrackState
    row: Row
    strip: Strip | None = None


class ShownGroup(NamedTuple):
    """A group in its row, and a page of its tracks if it is open. One of a single track is shown as that track."""

    name: str
    kind: Kind
    href: str
    is_open: bool
    total: int
    failed: int
    going_on: int
    strip: Strip
    took: str
    text: str
    rows: tuple[ShownRow, ...] = ()


class ViewLink(NamedTuple):
    label: str
    href: str


class TimelineView(NamedTuple):
    """All that a page draws."""

    total: int
    summary: str
    rows: tuple[ShownRow, ...]  # of a short timeline, or of the state that was chosen
    pinned: tuple[ShownRow, ...]
    groups: tuple[ShownGroup, ...]
    ticks: tuple[Tick, ...]
    minimap: Minimap | None
    wanted: WantedPart
    window: str  # which part of the time is shown; empty if all of it is
    zooms: tuple[ViewLink, ...]
    jumps: tuple[ViewLink, ...]
    states: tuple[ViewLink, ...]
    pager: tuple[ViewLink, ...]
    page: str  # which rows are shown, of how many


def view(tracks: Sequence[Track], wanted: WantedPart, *, origin_at_ms: Instant, until_ms: Instant) -> TimelineView:
    """What is shown of these tracks."""
    every = numbered(tracks, until_ms)
    whole = Scale(origin_at_ms, until_ms, tracks)
    since_at_ms, before_at_ms = _window(wanted, origin_at_ms, until_ms)
    is_zoomed = (since_at_ms, before_at_ms) != (origin_at_ms, until_ms)
    here = [each for each in every if _is_within(each.track, since_at_ms, before_at_ms)] if is_zoomed else every
    scale = Scale(since_at_ms, before_at_ms, (each.track for each in here)) if is_zoomed else whole
    is_flat = len(here) <= LANES_FLAT and not wanted.state
    chosen = [each for each in here if each.state == wanted.state] if wanted.state else here if is_flat else []
    found = [] if is_flat or wanted.state else grouped(here)
    pinned = _pinned(here) if found else []
    alone = {each.number for each in pinned}
    groups = tuple(
        _group(each, wanted, scale, until_ms)
        for each in found
        if len(each.tracks) > 1 or each.tracks[0].number not in alone
    )
    paged = chosen if wanted.state else [track for each in found if each.name == wanted.group for track in each.tracks]
    first = _first(wanted.row, len(paged))
    rows = chosen[first : first + LANES_PAGE] if wanted.state else chosen
    many = len(every) > LANES_FLAT
    return TimelineView(
        total=len(every),
        summary=_summary(every),
        rows=tuple(_shown(each, scale, until_ms) for each in rows),
        pinned=tuple(_shown(each, scale, until_ms) for each in pinned),
        groups=groups,
        ticks=scale.ticks(),
        minimap=minimap(every, whole, (since_at_ms, before_at_ms)) if many else None,
        wanted=wanted,
        window=_words(since_at_ms, before_at_ms, origin_at_ms) if is_zoomed else "",
        zooms=tuple(_zooms(wanted, scale, (since_at_ms, before_at_ms), (origin_at_ms, until_ms))) if many else (),
        jumps=tuple(_jumps(every, origin_at_ms, until_ms)) if many else (),
        states=tuple(_states(here, wanted)) if many else (),
        pager=() if is_flat else tuple(_pager(wanted, first, len(paged))),
        page=""
        if is_flat or not paged
        else f"{first + 1:,} to {min(first + LANES_PAGE, len(paged)):,} of {len(paged):,}",
    )


def _window(wanted: WantedPart, origin_at_ms: Instant, until_ms: Instant) -> tuple[Instant, Instant]:
    """The part of the time that is asked for, within the run; all of it if nothing of it would be left."""
    since = origin_at_ms if wanted.since is None else Instant(origin_at_ms + wanted.since)
    before = until_ms if wanted.until is None else Instant(min(origin_at_ms + wanted.until, until_ms))
    return (since, before) if since < before else (origin_at_ms, until_ms)


def _is_within(track: Track, since_at_ms: Instant, before_at_ms: Instant) -> bool:
    bars = any(bar.start_at_ms <= before_at_ms and bar.end_at_ms >= since_at_ms for bar in track.bars)
    return bars or any(since_at_ms <= point.at_ms <= before_at_ms for point in track.points)


def _shown(each: Numbered, scale: Scale, until_ms: Instant) -> ShownRow:
    track = each.track
    if len(track.bars) + len(track.points) <= MARKS_MAX:
        return ShownRow(each.number, each.state, row_of(track, scale, until_ms))
    last = track.bars[-1].text if track.bars else track.points[-1].text
    text = f"{track.name}: {len(track.bars) + len(track.points):,} events, at last: {last}"
    took = duration(_took_ms(track, until_ms)) if track.bars else ""
    return ShownRow(
        each.number, each.state, Row(track.name, track.kind, (), (), took, text, track.run_id), _strip([each], scale)
    )


def _took_ms(track: Track, until_ms: Instant) -> Millis:
    """From its beginning to its end; what it waited for before it began is no part of that."""
    began = next((bar for bar in track.bars if bar.state != "pause"), track.bars[0])
    return Millis(min(track.bars[-1].end_at_ms, until_ms) - began.start_at_ms)


def _strip(tracks: Sequence[Numbered], scale: Scale) -> Strip:
    pieces = strip(tracks, scale)
    return Strip(path(pieces, "done"), path(pieces, "failed"), path(pieces, "open"), path(pieces, "pause"))


def _group(group: Group, wanted: WantedPart, scale: Scale, until_ms: Instant) -> ShownGroup:
    is_alone = len(group.tracks) == 1
    is_open = group.name == wanted.group or is_alone
    took = [_took_ms(each.track, until_ms) for each in group.tracks if each.track.bars]
    failed, going_on = group.count("failed"), group.count("open")
    first = _first(wanted.row, len(group.tracks))
    words = [f"{group.name}: {len(group.tracks):,} steps"]
    words += [f"{count:,} {label}" for count, label in ((failed, "failed"), (going_on, "going on")) if count]
    words += (
        [f"half of them took at most {duration(median_low(took))}, the longest {duration(max(took))}"] if took else []
    )
    return ShownGroup(
        group.name,
        group.kind,
        wanted.href(group="" if is_open else group.name, row=0),
        is_open,
        len(group.tracks),
        failed,
        going_on,
        _strip(group.tracks, scale),
        f"~{duration(median_low(took))}" if took else "",
        ", ".join(words),
        tuple(_shown(each, scale, until_ms) for each in group.tracks[first : first + LANES_PAGE]) if is_open else (),
    )


def _pinned(tracks: Sequence[Numbered]) -> list[Numbered]:
    """The first and the last that failed, and the last that go on."""
    failed = [each for each in tracks if each.state == "failed"]
    going_on = [each for each in tracks if each.state == "open"]
    kept = {each.number: each for each in (*failed[: PINNED // 2], *failed[-PINNED // 2 :], *going_on[-PINNED:])}
    return [kept[number] for number in sorted(kept)]


def _summary(tracks: Sequence[Numbered]) -> str:
    counts = {state: sum(each.state == state for each in tracks) for state in LABELS}
    said = ", ".join(f"{count:,} {LABELS[state]}" for state, count in counts.items() if count)
    return f"{len(tracks):,} {'row' if len(tracks) == 1 else 'rows'}: {said}" if tracks else ""


def _words(since_at_ms: Instant, before_at_ms: Instant, origin_at_ms: Instant) -> str:
    return f"{duration(before_at_ms - since_at_ms)} of it, from {duration(since_at_ms - origin_at_ms)} on"


def _zooms(
    wanted: WantedPart, scale: Scale, window: tuple[Instant, Instant], whole: tuple[Instant, Instant]
) -> list[ViewLink]:
    (since, before), (origin, end) = window, whole
    length = before - since

    def part(low: float, high: float) -> str:
        low_at_ms, high_at_ms = max(int(low), origin), min(int(high), end)
        is_all = low_at_ms <= origin and high_at_ms >= end
        return wanted.href(
            row=0,
            since=None if is_all else low_at_ms - origin,
            until=None if is_all else high_at_ms - origin,
        )

    links = [ViewLink("Zoom in", part(scale.instant(25), scale.instant(75)))] if length > 1 else []
    if window != whole:
        links += [
            ViewLink("Zoom out", part(since - length, before + length)),
            ViewLink("Earlier", part(since - length / 2, before - length / 2)),
            ViewLink("Later", part(since + length / 2, before + length / 2)),
            ViewLink("All", part(origin, end)),
        ]
    return links


def _jumps(tracks: Sequence[Numbered], origin_at_ms: Instant, until_ms: Instant) -> list[ViewLink]:
    failed = [each for each in tracks if each.state == "failed"]
    going_on = [each for each in tracks if each.state == "open"]
    found = [
        ("First failure" if len(failed) > 1 else "The failure", failed[:1]),
        ("Last failure", failed[-1:] if len(failed) > 1 else []),
    ]
    found += [("Going on now", going_on[-1:])]
    return [ViewLink(label, _around(tracks, each, origin_at_ms, until_ms)) for label, track in found for each in track]


def _around(tracks: Sequence[Numbered], each: Numbered, origin_at_ms: Instant, until_ms: Instant) -> str:
    """The window around a track: as wide as the tracks beside it."""
    beside = [
        bar
        for near in tracks[max(0, each.number - AROUND) : each.number + AROUND + 1]
        for bar in near.track.bars
        if bar.state != "open"
    ]
    own = each.track.bars
    since = max(min([bar.start_at_ms for bar in beside] or [own[0].start_at_ms]), origin_at_ms)
    before = min(max([bar.end_at_ms for bar in beside] + [own[-1].end_at_ms]), until_ms)
    if since >= before:
        return WantedPart().href(anchor=f"track-{each.number}")
    return WantedPart(since=since - origin_at_ms, until=before - origin_at_ms).href(anchor=f"track-{each.number}")


def _states(tracks: Sequence[Numbered], wanted: WantedPart) -> list[ViewLink]:
    counts = {state: sum(each.state == state for each in tracks) for state in ("failed", "open")}
    return [
        ViewLink(
            f"{count:,} {LABELS[state]}", wanted.href(state="" if wanted.state == state else state, group="", row=0)
        )
        for state, count in counts.items()
        if count
    ]


def _first(row: int, total: int) -> int:
    """Where a page begins that has this row."""
    return max(0, min(row, total - 1)) // LANES_PAGE * LANES_PAGE


def _pager(wanted: WantedPart, first: int, total: int) -> list[ViewLink]:
    links: list[ViewLink] = []
    if first:
        links.append(ViewLink("Earlier rows", wanted.href(row=max(0, first - LANES_PAGE))))
    if first + LANES_PAGE < total:
        links.append(ViewLink("Later rows", wanted.href(row=first + LANES_PAGE)))
    return links
