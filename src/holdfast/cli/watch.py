"""Views that stay: `--watch` shows a thing again and again until it is over, or until Ctrl-C."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from rich.console import RenderableType
from rich.live import Live

from holdfast.adapters.machine import SystemClock
from holdfast.cli.output import Output, encoded

EVERY_SECONDS = 1.0


class View(NamedTuple):
    """A thing as it is now: for programs, for people, and whether it will change no more."""

    document: object
    shown: RenderableType
    over: bool = False


async def keep_showing(
    out: Output, look: Callable[[], Awaitable[View]], *, every_seconds: float = EVERY_SECONDS
) -> None:
    """Show what `look` sees: drawn in place on a terminal, else once for each change."""
    if out.is_live:
        with Live(console=out.console, auto_refresh=False) as live:
            await _each(look, lambda view: live.update(view.shown, refresh=True), every_seconds)
    else:
        seen = b""

        def line(view: View) -> None:
            nonlocal seen
            if (now := encoded(view.document)) != seen:
                seen = now
                out.line(view.document, view.shown)

        await _each(look, line, every_seconds)


async def _each(look: Callable[[], Awaitable[View]], show: Callable[[View], None], every_seconds: float) -> None:
    clock = SystemClock()
    while True:
        view = await look()
        show(view)
        if view.over:
            return
        await clock.pause(every_seconds)
