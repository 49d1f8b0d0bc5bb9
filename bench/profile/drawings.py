"""The drawings of the account, as SVG: how the causes share a unit of work, and which functions it passes through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from bench.profile.account import weight
from bench.profile.causes import ACCOUNT
from bench.profile.counts import Frame

# One colour for each cause, so that both drawings and all units are read alike.
_PALETTE = (
    *("#4e79a7", "#a0cbe8", "#86bcb6", "#f28e2b", "#e15759", "#b07aa1", "#59a14f", "#edc948"),
    *("#9c755f", "#d4a6c8", "#79706e", "#ff9da7", "#bab0ac", "#499894", "#8cd17d", "#d7d7d7"),
)
COLOURS = dict(zip((cause.name for cause in ACCOUNT), _PALETTE, strict=True))
WIDTH = 1200
BAR, ROW = 46, 18
LETTER = 6.6  # of the font below
LEGEND_COLUMNS = 4
NARROWEST = 1.5


def bars(title: str, shares: Mapping[str, Mapping[str, float]], *, sketch: float) -> str:
    """A bar for each kind of share, cut into causes; below, what the sketch takes of the first, and a legend."""
    left, top = 130, 40
    width = WIDTH - left - 20
    parts: list[str] = [_text(10, 24, title, size=16)]
    for row, (kind, by_cause) in enumerate(shares.items()):
        y = top + row * (BAR + 10)
        parts.append(_text(left - 10, y + BAR / 2 + 4, kind, anchor="end"))
        x = float(left)
        for cause, share in by_cause.items():
            parts.append(_box(x, y, share * width, BAR, COLOURS[cause], f"{cause}: {share:.1%} of the {kind}"))
            if share * width > 42:
                parts.append(_text(x + share * width / 2, y + BAR / 2 + 4, f"{share:.0%}", anchor="middle"))
            x += share * width
    y = top + len(shares) * (BAR + 10)
    parts.append(_text(left - 10, y + 13, "the sketch", anchor="end"))
    parts.append(_box(left, y, sketch * width, ROW, "#333333", f"the sketch: {sketch:.1%} of the instructions"))
    parts.append(_text(left + sketch * width + 6, y + 13, f"{sketch:.0%} of the instructions"))
    below = y + ROW + 26
    for number, cause in enumerate(ACCOUNT):
        x = left + number % LEGEND_COLUMNS * (width // LEGEND_COLUMNS)
        y = below + number // LEGEND_COLUMNS * 20
        parts += [_box(x, y - 10, 12, 12, COLOURS[cause.name], cause.words), _text(x + 18, y, cause.name)]
    return _svg(below + (len(ACCOUNT) - 1) // LEGEND_COLUMNS * 20 + 16, parts)


def flame(title: str, frames: Sequence[Frame], size: int) -> str:
    """Each function hangs below the one that called it; as wide as what is executed in it and in those it called."""
    whole = sum(map(weight, frames))
    placed = list(_placed(frames, 0.0, 0, scale=WIDTH / whole))
    deepest = max(depth for _, depth, *_ in placed)
    parts = [_text(10, 24, title, size=16)]
    for x, depth, wide, frame, instructions in placed:
        y = 40 + depth * ROW
        name = frame.function.replace("<locals>.", "")
        told = f"{name} ({frame.place}): {instructions / size:,.0f} instructions, {instructions / whole:.1%}"
        parts.append(_box(x, y, wide, ROW - 1, COLOURS[frame.cause], told))
        if shown := _fitting(name, wide - 6):
            parts.append(_text(x + 3, y + 13, shown))
    return _svg(40 + (deepest + 1) * ROW + 10, parts)


def _placed(
    frames: Sequence[Frame], x: float, depth: int, *, scale: float
) -> Iterator[tuple[float, int, float, Frame, int]]:
    for frame in frames:
        instructions = weight(frame)
        wide = instructions * scale
        if wide >= NARROWEST:
            yield x, depth, wide, frame, instructions
            yield from _placed(frame.below, x, depth + 1, scale=scale)
        x += wide


def _fitting(name: str, wide: float) -> str:
    """The name, or its last part, or its beginning; nothing if not even three letters fit."""
    letters = int(wide / LETTER)
    for shown in (name, name.rpartition(".")[2]):
        if len(shown) <= letters:
            return shown
    return name.rpartition(".")[2][: letters - 1] + "…" if letters > 3 else ""


def _svg(height: float, parts: Sequence[str]) -> str:
    box = f'width="{WIDTH}" height="{height:.0f}"'
    font = 'font-family="monospace" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} viewBox="0 0 {WIDTH} {height:.0f}" {font}>'
    return "\n".join((head, f'<rect {box} fill="#ffffff"/>', *parts, "</svg>\n"))


def _box(x: float, y: float, width: float, height: float, colour: str, told: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width - 0.5):.1f}" height="{height:.1f}" fill="{colour}">'
        f"<title>{escape(told)}</title></rect>"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
