"""Fairness: those that have much to do take turns with those that have little. Start-time fair queueing.

Runs of one workflow and priority stand in one line. Each gets a tag, its virtual start, when it is admitted:

    tag = max(reached, next tag of its share)        and the next tag of its share is one more

    a share                                  its next run stands
    ───────────────────────────────────────  ────────────────────────────────────────────────
    has nothing that waits                   where the line has arrived: behind one run of each other share at most
    has much that waits                      behind its own, one turn apart

Rules
- A share is what the template `fair` gives, such as a tenant. All have the same weight.
- `reached` is the highest tag that was ever claimed. A share whose next tag is not above it need not be known, and of a
  line in which no run stands nothing need be.
- The tag orders runs that have not begun. One that wakes, or was rescued, goes by its time like any other.
- A workflow gets its turns among others by time, as without fairness; the tags say which of its runs has the turn.
  Runs of it without a tag keep the places that their times give them.
- A run that a worker has at once stands in no line: the line arrives at its tag by that.
- A run that may not begin yet (a delay, a throttle) is passed over until then, and keeps its tag.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.kernel import keys
from holdfast.kernel.keys import Template


class FairLine(Struct, frozen=True, gc=False):
    """Where runs of one workflow and priority stand."""

    namespace: str
    workflow: str
    priority: int


class FairTurn(Struct, frozen=True, gc=False):
    """Where a run stands in its line: which share it is of, and how many that may begin are before it."""

    share: str
    ahead: int


def declared(template: object, *, parameters: frozenset[str], owner: str) -> Template:
    """What `fair=` says, or a `UsageError`."""
    if not isinstance(template, str) or not template:
        raise UsageError(
            f"fair={template!r:.60} of {owner} is not a template", hint="Write text such as fair='{tenant}'."
        )
    parsed = keys.parse(template, parameters=parameters, owner=f"fair= of {owner}")
    if not parsed.fields:
        raise UsageError(
            f"fair={template!r:.60} of {owner} names no parameter, so all runs would have one share",
            hint="Name what takes turns, such as fair='{tenant}'.",
        )
    return parsed


def enter(*, reached: int, next_tag: int) -> tuple[int, int]:
    """The tag that the next run of a share gets, and the next tag of the share after that."""
    tag = max(reached, next_tag)
    return tag, tag + 1


def forgotten_up_to(reached: int, *, is_empty: bool) -> int | None:
    """Shares of a line need not be known up to this next tag; None: the line is empty, and nothing of it need be."""
    return None if is_empty else reached


def by_turn(ready: Sequence[tuple[str, int | None]], turns: Sequence[str]) -> list[str]:
    """The runs in the order in which they go.

    `ready` are those that may go in the order of their times, each with its tag if it has one; `turns` are those with
    a tag in the order of their tags, at least as many. The places are given by time, and taken by turn.
    """
    by_tag = iter(turns)
    return [run_id if tag is None else next(by_tag) for run_id, tag in ready]
