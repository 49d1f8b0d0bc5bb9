"""Bulk operations: one verb on all runs that a search means, as a run of its own.

    verb     the runs that it takes               a run to which it was applied shows
    ───────  ───────────────────────────────────  ───────────────────────────────────────────────
    retry    failed, blocked                      `retried` with the id of the bulk run
    resume   cancelled                            `resumed` with the id of the bulk run
    cancel   pending, running, waiting, blocked   `cancel_asked` with a reason that names the bulk run
    signal   pending, running, waiting, blocked   a message whose id is made of the id of the bulk run

    a run that was selected, when its turn comes        what becomes of it
    ──────────────────────────────────────────────────  ─────────────────────────────────────────
    shows that the verb was applied                     counted as done: an attempt before this one has applied it
    is not there any more                               skipped: gone
    has another status than the verb takes              skipped: changed
    to be retried or resumed, and has moved since       skipped: changed
    cannot be moved by the verb                         skipped: refused, with the reason
    anything else                                       the verb is applied

Rules
- The runs that are meant were created before the bulk run, and those of them that have ended had ended by then. Bulk
  runs are never meant.
- They are looked at in the order of the search, which never changes, each once. So the place of the last one is a
  cursor that stays good, and is all that has to be remembered.
- A page is selected and recorded first, with the fence and the length of each run, and then the verb is applied to it.
  Applied again after a crash, to runs that have moved on since, it finds either what it has left in them or another
  fence, and does nothing. So a run that was retried and has failed again is not retried a second time.
- The rate is a bound for any span of its time: after a page the bulk run sleeps for as long as the verbs of that page
  take at that rate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import hooks
from holdfast.kernel.journal import CancelAsked, Entry, Received, Resumed, Retried
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import ALWAYS, Condition, Search, Span
from holdfast.kernel.times import NO_TIME, Instant, Millis
from holdfast.kernel.units import milliseconds

BulkVerb: TypeAlias = Literal["retry", "cancel", "resume", "signal"]
VERBS: tuple[BulkVerb, ...] = get_args(BulkVerb)
WORKFLOW = "holdfast.bulk"
PAGE = 100
ERRORS_MAX = 10
PREVIEW_MAX = 100
DEADLINE_MS = Millis(30_000)
GONE, CHANGED, REFUSED, LEFT = "gone", "changed", "refused", "left"
_LIVE = (Status.PENDING, Status.RUNNING, Status.WAITING, Status.BLOCKED)
TAKES: Mapping[BulkVerb, tuple[Status, ...]] = {
    "retry": (Status.BLOCKED, Status.FAILED),
    "cancel": _LIVE,
    "resume": (Status.CANCELLED,),
    "signal": _LIVE,
}
PAST: Mapping[BulkVerb, str] = {
    "retry": "retried",
    "cancel": "cancelled",
    "resume": "resumed",
    "signal": "signalled",
}
_RATE = re.compile(r"\s*(?P<count>\d{1,9})\s*/\s*(?P<per>\S.*?)\s*")
_UNIT = re.compile(r"ms|s|m|h|d")


class BulkRate(Struct, frozen=True):
    """At most `count` runs in any span of `per_ms`."""

    count: int
    per_ms: Millis

    def pause_ms(self, count: int) -> Millis:
        """How long so many verbs take at this rate."""
        return Millis(math.ceil(count * self.per_ms / self.count))


class BulkFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which runs are meant: a search without its namespace and its place."""

    workflow: str | None = None
    status: tuple[Status, ...] = ()
    conditions: tuple[Condition, ...] = ()
    key_prefix: str | None = None
    created: Span = ALWAYS
    finished: Span = ALWAYS
    newest_first: bool = True
    roots_only: bool = False


class BulkOrder(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be done with which runs: the input of a bulk run."""

    verb: BulkVerb
    runs: BulkFilter = BulkFilter()
    limit: int | None = None  # how many runs at most
    rate: BulkRate | None = None
    reason: str = ""
    deadline_ms: Millis = DEADLINE_MS  # of each cancellation
    hook: str = ""
    payload: Any = None

    @property
    def page(self) -> int:
        """How many runs are taken at a time."""
        return PAGE if self.rate is None else min(PAGE, self.rate.count)

    def pause_ms(self, counts: BulkCounts) -> Millis:
        """How long to sleep after what became of a page."""
        return NO_TIME if self.rate is None else self.rate.pause_ms(counts.tried)


class SelectedRun(Struct, frozen=True, array_like=True):
    """A run as it was when its page was selected."""

    run_id: str
    epoch: int
    length: int


class SelectedPage(Struct, frozen=True):
    """Runs that are next, and the place of the last run that was looked at; no place if that was the last of all."""

    runs: tuple[SelectedRun, ...]
    next: tuple[Instant, str] | None


class BulkError(Struct, frozen=True):
    """A run to which the verb could not be applied, and why."""

    run_id: str
    message: str


class BulkCounts(Struct, frozen=True, omit_defaults=True):
    """What became of runs."""

    done: int = 0
    skipped: dict[str, int] = {}
    failed: int = 0
    errors: tuple[BulkError, ...] = ()  # the first ones, of those that failed or were refused

    @property
    def seen(self) -> int:
        return self.tried + sum(self.skipped.values())

    @property
    def tried(self) -> int:
        """To how many the verb was applied, or tried to."""
        return self.done + self.failed

    def __add__(self, other: BulkCounts) -> BulkCounts:
        reasons = self.skipped.keys() | other.skipped.keys()
        return BulkCounts(
            self.done + other.done,
            {name: self.skipped.get(name, 0) + other.skipped.get(name, 0) for name in sorted(reasons)},
            self.failed + other.failed,
            (self.errors + other.errors)[:ERRORS_MAX],
        )


class BulkState(Struct, frozen=True):
    """How far a bulk run has come: how many runs `matched` when it began, and up to where it has looked at them."""

    began_at_ms: Instant
    matched: int
    counts: BulkCounts = BulkCounts()
    after: tuple[Instant, str] | None = None


class BulkReport(Struct, frozen=True):
    """What came of a bulk run.

    `matched` runs were meant when it began: `done` are those to which the verb was applied, `failed` those for which it
    raised. `skipped` counts the others by the reason: `gone` (removed), `changed` (moved by another since), `refused`
    (the verb was not allowed for it), `left` (matched no more when their turn came). `errors` are the first ones.
    """

    verb: BulkVerb
    matched: int
    done: int
    skipped: dict[str, int]
    failed: int
    errors: tuple[BulkError, ...]


class Previewed(Struct, frozen=True):
    """A run, and why a verb would not be applied to it; empty if it would."""

    run: Run
    refusal: str


class Preview(Struct, frozen=True):
    """How many runs are meant, up to a bound, and what would become of the first ones."""

    matched: int
    is_all: bool
    first: tuple[Previewed, ...]


DONE = BulkCounts(done=1)


def rate_of(given: str | None) -> BulkRate | None:
    """What a person means by `rate=`, or a `UsageError`."""
    if given is None:
        return None
    found = _RATE.fullmatch(given) if isinstance(given, str) else None
    if found is None or not int(found["count"]):
        raise UsageError(f"{given!r:.40} is not a rate", hint="Write how many in which time: '50/1s', '1000/m'.")
    per = f"1{found['per']}" if _UNIT.fullmatch(found["per"]) else found["per"]
    per_ms = milliseconds(per)
    if not per_ms:
        raise UsageError(f"{given!r:.40} is a rate per no time", hint="Write how many in which time: '50/1s'.")
    return BulkRate(int(found["count"]), per_ms)


def order(
    verb: BulkVerb,
    search: Search,
    *,
    limit: int | None,
    rate: str | None,
    reason: str,
    deadline_ms: Millis,
    hook: str | None,
    payload: Any,
) -> BulkOrder:
    """What a person asks for, or a `UsageError` that says why it cannot be."""
    if verb not in TAKES:
        raise UsageError(f"{verb!r:.40} is not a bulk verb", hint=f"Use one of: {', '.join(VERBS)}.")
    if limit is not None and limit < 1:
        raise UsageError(f"limit={limit} leaves no run", hint="Leave it out for all of them.")
    if search.workflow == WORKFLOW:
        raise UsageError("bulk runs are not moved by bulk runs", hint="Cancel or retry them one by one.")
    takes = TAKES[verb]
    never = sorted(status for status in search.statuses or () if status not in takes)
    if never:
        raise UsageError(
            f"a run that is {' or '.join(never)} cannot be {PAST[verb]}",
            hint=f"For {verb}, a status is one of: {', '.join(takes)}.",
        )
    if (verb == "signal") is not bool(hook):
        raise UsageError(
            f"{verb} {'names no hook' if verb == 'signal' else f'takes no hook, and was given {hook!r:.60}'}",
            hint="A hook, and the payload for it, belong to signal.",
        )
    runs = BulkFilter(
        workflow=search.workflow,
        status=tuple(sorted(search.statuses if search.statuses is not None else takes)),
        conditions=search.conditions,
        key_prefix=search.key_prefix,
        created=search.created if search.created.is_set else ALWAYS,  # the same one, so that it is left out
        finished=search.finished if search.finished.is_set else ALWAYS,
        newest_first=search.newest_first,
        roots_only=search.roots_only,
    )
    return BulkOrder(
        verb=verb,
        runs=runs,
        limit=limit,
        rate=rate_of(rate),
        reason=reason,
        deadline_ms=deadline_ms if verb == "cancel" else DEADLINE_MS,
        hook=hook or "",
        payload=payload,
    )


def search(
    order: BulkOrder, *, namespace: str, began_at_ms: Instant, limit: int, after: tuple[Instant, str] | None = None
) -> Search:
    """The next runs of an order. `is_meant` says which of those that it finds are meant."""
    wanted = order.runs
    created, end_at_ms = wanted.created, Instant(began_at_ms + 1)  # those of the same millisecond were there, too
    if created.until_ms is None or created.until_ms > end_at_ms:
        created = replace(created, until_ms=end_at_ms)
    return Search(
        namespace=namespace,
        limit=limit,
        workflow=wanted.workflow,
        statuses=frozenset(wanted.status),
        conditions=wanted.conditions,
        key_prefix=wanted.key_prefix,
        created=created,
        finished=wanted.finished,
        newest_first=wanted.newest_first,
        roots_only=wanted.roots_only,
        after=after,
    )


def is_meant(run: Run, *, began_at_ms: Instant) -> bool:
    """Whether a run that the search has found matched when the bulk run began."""
    return run.workflow != WORKFLOW and (run.finished_at_ms is None or run.finished_at_ms <= began_at_ms)


def reason_of(order: BulkOrder, bulk_id: str) -> str:
    """The reason of a cancellation. It names the bulk run, by which its own work is recognised."""
    return f"{order.reason} (bulk run {bulk_id})" if order.reason else f"bulk run {bulk_id}"


def dedupe_of(bulk_id: str) -> str:
    """The dedupe id of a signal."""
    return f"bulk/{bulk_id}"


def was_applied(order: BulkOrder, bulk_id: str, journal: tuple[Entry, ...]) -> bool:
    """Whether the journal of a run shows that this bulk run has applied its verb to it."""
    match order.verb:
        case "retry":
            return any(isinstance(entry, Retried) and entry.bulk == bulk_id for entry in journal)
        case "resume":
            return any(isinstance(entry, Resumed) and entry.bulk == bulk_id for entry in journal)
        case "cancel":
            reason = reason_of(order, bulk_id)
            return any(isinstance(entry, CancelAsked) and entry.reason == reason for entry in journal)
        case _:
            signal_id = hooks.signal_id(order.hook, dedupe_of(bulk_id))
            return any(isinstance(entry, Received) and entry.id == signal_id for entry in journal)


def skip_of(order: BulkOrder, bulk_id: str, selected: SelectedRun, run: Run, journal: tuple[Entry, ...]) -> str | None:
    """Why the verb is not applied to this run: the reason, empty if that is since it was applied; else None."""
    if was_applied(order, bulk_id, journal):
        return ""
    if run.status not in TAKES[order.verb]:
        return CHANGED
    if order.verb in {"retry", "resume"} and (run.epoch, run.length) != (selected.epoch, selected.length):
        return CHANGED
    return None


def skipped(reason: str, run_id: str = "", message: str = "") -> BulkCounts:
    errors = (BulkError(run_id, message),) if message else ()
    return BulkCounts(skipped={reason: 1}, errors=errors)


def failed(run_id: str, message: str) -> BulkCounts:
    return BulkCounts(failed=1, errors=(BulkError(run_id, message),))


def report(order: BulkOrder, state: BulkState) -> BulkReport:
    """What came of it. Runs that matched at first, and were never found again, are counted as `left`."""
    counts = state.counts
    left = state.matched - counts.seen
    if left > 0:
        counts += BulkCounts(skipped={LEFT: left})
    return BulkReport(
        order.verb, max(state.matched, counts.seen), counts.done, counts.skipped, counts.failed, counts.errors
    )


def attributes(state: BulkState) -> dict[str, str | int]:
    """How far it has come, for all who look at the run."""
    counts = state.counts
    shown: dict[str, str | int] = {
        "matched": state.matched,
        "done": counts.done,
        "skipped": sum(counts.skipped.values()),
        "failed": counts.failed,
    }
    return shown | {f"skipped.{reason}": number for reason, number in counts.skipped.items()}
