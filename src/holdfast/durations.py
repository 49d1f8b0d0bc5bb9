"""Durations as people write them: a number of seconds, a `timedelta`, or text: `"1500ms" "30s" "5m" "2h" "3d"`.

It lies below everything else, since the errors read durations too. What reads them for the engine is `kernel.units`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache

Duration = float | int | str | timedelta
FORMS = "number of seconds, timedelta, or text such as '1500ms', '30s', '5m', '2h', '3d'"

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)")
_REMEMBERED_MAX = 32  # characters


def text_in_ms(text: str) -> float | None:
    """The duration that the text says, in milliseconds; None if it says none."""
    return _remembered(text) if len(text) <= _REMEMBERED_MAX else _amount(text)


@lru_cache(maxsize=256)
def _remembered(text: str) -> float | None:
    """The same few short texts are read again and again."""
    return _amount(text)


def _amount(text: str) -> float | None:
    match = _TEXT.fullmatch(text.strip())
    return None if match is None else float(match["amount"]) * _UNIT_MS[match["unit"]]
