"""The search box of the page of runs: the line that was typed, and what one click would make of it. Pure.

Every choice is a link to the page that it leads to. So a search needs no script, and every one of them can be shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.dashboard.filters import WITH_CHILDREN, Filters
from holdfast.dashboard.tallies import Tally
from holdfast.errors import UsageError
from holdfast.kernel.runs import Status
from holdfast.wire import run_queries

TIMES = (("any time", ""), ("1 h", "1h"), ("24 h", "24h"), ("7 d", "7d"))
EXAMPLES = (
    ("order:o-1", "a key that begins so, or a run id, whole or in part"),
    ("status:failed,blocked", "one of these statuses; a status alone will do: failed"),
    ("workflow:shop.checkout", "runs of this workflow"),
    ("customer=ada cents>=500", "attributes: text, numbers, instants; text that looks like a number is quoted"),
    ("created_after:2h", "how long ago, or an instant: 2026-11-16T09:30Z; also created_before, finished_after, ..."),
)


class Choice(NamedTuple):
    """Something to click on."""

    label: str
    href: str
    is_on: bool
    number: str = ""  # how many runs it would lead to


class SearchBox(NamedTuple):
    """What stands above the list."""

    text: str
    children: str
    statuses: tuple[Choice, ...]
    times: tuple[Choice, ...]
    workflows: tuple[Choice, ...]
    toggle: Choice  # whether children are shown
    total: str  # how many runs are meant, if that is known


def search_box(filters: Filters, *, workflows: Sequence[str], tally: Tally | None) -> SearchBox:
    """The box of a page; `tally` is None if nothing was counted."""
    line = replace(filters.in_one_line, after="")
    try:
        words = run_queries.words_of(line.q)
    except UsageError:
        words, line = (), replace(line, q="")  # what is unclear stays in the box, and no click builds on it
    statuses = [each for word in words if word.field == "status" for each in word.value.split(",")]
    said = {word.field: word.value for word in words}
    return SearchBox(
        filters.text,
        filters.children,
        tuple(
            Choice(
                status.value,
                _page(line, run_queries.with_status(line.q, status)),
                status.value in statuses,
                "" if tally is None else tally.of(status),
            )
            for status in Status
        ),
        tuple(
            Choice(
                label,
                _page(line, run_queries.with_field(line.q, "created_after", ago)),
                said.get("created_after", "") == ago,
            )
            for label, ago in TIMES
        ),
        tuple(
            Choice(
                name or "any workflow",
                _page(line, run_queries.with_field(line.q, "workflow", name)),
                said.get("workflow", "") == name,
            )
            for name in ("", *workflows)
        ),
        Choice(
            "Children shown" if not filters.roots_only else "Children hidden",
            f"/runs?{line.query(children=WITH_CHILDREN if filters.roots_only else '')}".removesuffix("?"),
            not filters.roots_only,
        ),
        "" if tally is None else tally.of(*[each for each in statuses if each in set(Status)]),
    )


def _page(line: Filters, text: str) -> str:
    return f"/runs?{line.query(q=text)}".removesuffix("?")
