"""What a campaign says while it goes on, and when it is stopped."""

from __future__ import annotations

import io
import signal

from tests.simulation.batches import StopOnInterrupt, tallies
from tests.simulation.progress import Progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_has_the_rate_and_how_long_the_rest_takes() -> None:
    seconds = iter([0.0, 4.0, 4.1, 10.0])
    screen = _Terminal()
    progress = Progress(400, to=screen, now=lambda: next(seconds))
    progress.show(100, 0)
    progress.show(110, 0)  # too soon after the one before
    progress.show(400, 2)
    progress.end()
    bars = screen.getvalue().replace("\x1b[K", "").split("\r")[1:]
    assert bars == [
        "[########......................] 100 of 400 seeds, 25.0/s, 12 s left, 0 wrong",
        "[##############################] 400 of 400 seeds, 40.0/s, 0 s left, 2 wrong\n",
    ]


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    seconds = iter([0.0, 4.0, 10.0, 12.0, 20.0])
    file = io.StringIO()
    progress = Progress(10_000, to=file, now=lambda: next(seconds))
    for seeds in (50, 100, 120, 200):
        progress.show(seeds, 1)
    progress.end()
    assert file.getvalue().splitlines() == [
        "100 of 10,000 seeds, 10.0/s, 16 min 30 s left, 1 wrong",
        "200 of 10,000 seeds, 10.0/s, 16 min 20 s left, 1 wrong",
    ]


def test_a_campaign_that_is_interrupted_ends_after_the_seed_that_it_is_at() -> None:
    with StopOnInterrupt() as stop:
        parts = tallies(range(4), 1, stop)
        first = next(parts)
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set
        assert not list(parts)
    assert first.seeds == 1
    assert first.cpu_seconds > 0
