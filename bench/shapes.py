"""What the runs of W7 look like, and the searches that are made among them.

What a run looks like follows from its number alone, as if by chance. Some searches find a hundred runs or two however
many there are, scattered over the whole file; the others find a share of all runs, so what they find grows with the
file while the page does not.
"""

from collections.abc import Callable
from typing import Any

from holdfast import Range

PAGE = 50
RUNS_PER_CUSTOMER = 100
REGIONS = ("eu", "us", "jp", "br", "in")
STAGES = ("cart", "paid", "packed", "sent")
TOTALS = 1_000_000
DIGITS = 6
# In a hundred runs; the rest have completed.
FAILED, CANCELLED, WAITING = 3, 2, 1

Wanted = dict[str, Any]


def scattered(number: int, salt: int, below: int) -> int:
    """A number below `below`, as if by chance, and the same every time."""
    return ((number * 2_654_435_761 + salt * 40_503) % 2**32 * 48_271 % 2_147_483_647 >> 5) % below


def attributes_of(number: int, runs: int) -> dict[str, str | int]:
    return {
        "customer": _customer(number, runs),
        "region": REGIONS[scattered(number, 1, len(REGIONS))],
        "stage": STAGES[scattered(number, 2, len(STAGES))],
        "total": scattered(number, 3, TOTALS),
    }


def key_of(number: int) -> str:
    return f"order-{scattered(number, 4, 10**DIGITS):0{DIGITS}}-{number}"


def status_of(number: int) -> str:
    percent = scattered(number, 5, 100)
    if percent < FAILED:
        return "failed"
    if percent < FAILED + CANCELLED:
        return "cancelled"
    return "waiting" if percent < FAILED + CANCELLED + WAITING else "completed"


def _customer(number: int, runs: int) -> str:
    return f"c-{scattered(number % (runs // RUNS_PER_CUSTOMER), 6, 2**31)}"


def _equal(runs: int, turn: int) -> Wanted:
    return {"attributes": {"customer": _customer(scattered(turn, 7, runs), runs)}}


def _common(_runs: int, turn: int) -> Wanted:
    return {"attributes": {"region": REGIONS[turn % len(REGIONS)]}}


def _two_equal(_runs: int, turn: int) -> Wanted:
    return {"attributes": {"region": REGIONS[turn % len(REGIONS)], "stage": STAGES[turn % len(STAGES)]}}


def _range(runs: int, turn: int) -> Wanted:
    return _totals(TOTALS * 2 * RUNS_PER_CUSTOMER // runs, turn)


def _wide_range(_runs: int, turn: int) -> Wanted:
    return _totals(TOTALS // 50, turn)


def _totals(width: int, turn: int) -> Wanted:
    low = scattered(turn, 8, TOTALS - width)
    return {"attributes": {"total": Range(ge=low, lt=low + width)}}


def _statuses(_runs: int, _turn: int) -> Wanted:
    return {"status": {"failed", "cancelled"}}


def _prefix(runs: int, turn: int) -> Wanted:
    return _keys(len(str(runs // RUNS_PER_CUSTOMER)) - 1, turn)


def _wide_prefix(_runs: int, turn: int) -> Wanted:
    return _keys(2, turn)


def _keys(digits: int, turn: int) -> Wanted:
    return {"key_prefix": f"order-{scattered(turn, 9, 10**digits):0{digits}}"}


# Given the number of runs in the file and the turn, what to search for.
SHAPES: dict[str, Callable[[int, int], Wanted]] = {
    "equal": _equal,
    "common": _common,
    "two_equal": _two_equal,
    "range": _range,
    "wide_range": _wide_range,
    "statuses": _statuses,
    "prefix": _prefix,
    "wide_prefix": _wide_prefix,
}
