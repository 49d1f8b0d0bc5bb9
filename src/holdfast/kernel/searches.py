"""Searches: which runs are meant, and in which order they come.

Rules
- All conditions must hold. An attribute is equal to a value, or lies in a range of numbers or of instants.
- Roots are the runs that no other run has started; a search may mean those only.
- Ranges of creation and end begin with their lower bound and end before their upper one.
- Runs come by (created, id), newest first or oldest first. Neither ever changes, so a cursor stays good whatever
  happens to the runs meanwhile: a page shows nothing twice and leaves out nothing that was there before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.kernel import attributes
from holdfast.kernel.attributes import Indexed, Scalar
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant

Bound = int | float | datetime
PAGE_MAX = 1000


class Range(Struct, frozen=True, kw_only=True):
    """Values from `ge` (or above `gt`) to `le` (or below `lt`): numbers, or datetimes with a time zone."""

    ge: Bound | None = None
    gt: Bound | None = None
    le: Bound | None = None
    lt: Bound | None = None

    def __post_init__(self) -> None:
        lower, upper = (self.ge is not None) + (self.gt is not None), (self.le is not None) + (self.lt is not None)
        if lower + upper == 0 or lower > 1 or upper > 1:
            raise UsageError(
                f"a Range with {lower} lower and {upper} upper bounds",
                hint="Write Range(ge=10, lt=20): one of each, or one.",
            )


class Condition(Struct, frozen=True, gc=False):
    """What must hold for one attribute: equality is the range from the value to itself."""

    name: str
    kind: str
    low: Indexed | None = None
    low_open: bool = False
    high: Indexed | None = None
    high_open: bool = False

    @property
    def is_equality(self) -> bool:
        return self.low is not None and self.low == self.high and not (self.low_open or self.high_open)

    def holds(self, kind: str, value: Any) -> bool:
        if kind != self.kind:
            return False
        above = self.low is None or value > self.low or (value == self.low and not self.low_open)
        below = self.high is None or value < self.high or (value == self.high and not self.high_open)
        return above and below


class Span(Struct, frozen=True, gc=False):
    """From `since_ms` on, before `until_ms`."""

    since_ms: Instant | None = None
    until_ms: Instant | None = None

    @property
    def is_set(self) -> bool:
        return self.since_ms is not None or self.until_ms is not None

    def holds(self, at_ms: Instant | None) -> bool:
        if not self.is_set:
            return True
        if at_ms is None:
            return False
        since_ms = at_ms if self.since_ms is None else self.since_ms
        return since_ms <= at_ms and (self.until_ms is None or at_ms < self.until_ms)


ALWAYS = Span()


class Search(Struct, frozen=True, kw_only=True):
    """Which runs are meant. `after` is the (created, id) of the last one seen."""

    namespace: str
    limit: int
    workflow: str | None = None
    statuses: frozenset[Status] | None = None
    conditions: tuple[Condition, ...] = ()
    key_prefix: str | None = None
    created: Span = ALWAYS
    finished: Span = ALWAYS
    newest_first: bool = True
    roots_only: bool = False
    after: tuple[Instant, str] | None = None


def matches(search: Search, run: Run) -> bool:
    """Whether `run` is meant, and comes after the cursor."""
    if run.namespace != search.namespace or (search.workflow or run.workflow) != run.workflow:
        return False
    if search.statuses is not None and run.status not in search.statuses:
        return False
    if search.key_prefix is not None and not (run.key or "").startswith(search.key_prefix):
        return False
    if not search.created.holds(run.created_at_ms) or not search.finished.holds(run.finished_at_ms):
        return False
    here = (run.created_at_ms, run.id)
    if search.after is not None and not (here < search.after if search.newest_first else here > search.after):
        return False
    if search.roots_only and attributes.PARENT in attributes.decode(run.attributes):
        return False
    return not search.conditions or _has_all(run, search.conditions)


def _has_all(run: Run, conditions: tuple[Condition, ...]) -> bool:
    values = attributes.decode(run.attributes)
    return all(each.name in values and each.holds(*attributes.indexed(values[each.name])) for each in conditions)


def conditions_of(wanted: Mapping[str, Scalar | Range]) -> tuple[Condition, ...]:
    """What a person asks for, or a `UsageError`."""
    if not isinstance(wanted, Mapping):
        raise UsageError(f"attributes={wanted!r:.60} is not a mapping", hint="Pass {'customer': 'c-1'}.")
    return tuple(_condition(name, value) for name, value in wanted.items())


def _condition(name: str, value: Scalar | Range) -> Condition:
    if not isinstance(value, Range):
        attributes.check_value(name, value)
        kind, exact = attributes.indexed(value)
        return Condition(name, kind, exact, high=exact)
    low, high = value.ge if value.gt is None else value.gt, value.le if value.lt is None else value.lt
    bounds = [bound for bound in (low, high) if bound is not None]
    for bound in bounds:
        attributes.check_value(name, bound)
    kinds = {attributes.indexed(bound)[0] for bound in bounds}
    if kinds not in ({"number"}, {"instant"}):
        raise UsageError(
            f"the range of {name!r} has bounds of kind {', '.join(sorted(kinds))}",
            hint="Give it numbers, or datetimes with a time zone.",
        )
    return Condition(
        name,
        kinds.pop(),
        None if low is None else attributes.indexed(low)[1],
        value.gt is not None,
        None if high is None else attributes.indexed(high)[1],
        value.lt is not None,
    )


def statuses_of(wanted: str | Collection[str] | None) -> frozenset[Status] | None:
    """What a person asks for, or a `UsageError`."""
    if wanted is None:
        return None
    try:
        return frozenset(map(Status, [wanted] if isinstance(wanted, str) else wanted))
    except (ValueError, TypeError):
        raise UsageError(
            f"status={wanted!r:.60} is not known", hint=f"A status is one of: {', '.join(Status)}."
        ) from None


def span(after: datetime | None, before: datetime | None) -> Span:
    """The span between two instants of a person's."""
    return Span(_rounded_at_ms(after), _rounded_at_ms(before))


def _rounded_at_ms(instant: datetime | None) -> Instant | None:
    if instant is None:
        return None
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise UsageError(f"{instant!r} is not a datetime with a time zone", hint="For example datetime.now(UTC).")
    return Instant(
        -(-attributes.micros(instant) // 1000)
    )  # rows count whole milliseconds: rounded up, both ends stay true


def cursor_of(run: Run) -> str:
    """Where to go on after this run."""
    return cursor(run.created_at_ms, run.id)


def cursor(created_at_ms: Instant, run_id: str) -> str:
    """The cursor that names this place."""
    return f"{created_at_ms}.{run_id}"


def place_of(cursor: str) -> tuple[Instant, str]:
    """The place that a cursor names, or a `UsageError`."""
    created_at_ms, dot, run_id = cursor.partition(".")
    if not dot or not created_at_ms.isdigit() or not created_at_ms.isascii() or len(created_at_ms) > 18:
        raise UsageError(f"{cursor!r:.60} is not a cursor", hint="Pass the `next` of the page before.")
    return Instant(int(created_at_ms)), run_id
