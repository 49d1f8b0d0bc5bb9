"""Flow rules: what `throttles` and `fairness` say, inside the transaction of the change that admits a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.kernel import fairness, throttles
from holdfast.kernel.changes import Change
from holdfast.kernel.fairness import FairTurn
from holdfast.kernel.rates import Micros, Taking
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.queries import SQL, numbered

_RATE, _ = numbered("rate", ("namespace", "name"))
_KEEP_RATE, _ = numbered("keep_rate", ("namespace", "name", "due_us"))
_TAG_TOP = 1 << 62
_LINE = ("namespace", "workflow", "priority")
_REACHED, _ = numbered("reached", _LINE)
_NEXT_TAG, _ = numbered("next_tag", (*_LINE, "share"))
_KEEP_SHARE, _ = numbered("keep_share", (*_LINE, "share", "next_tag"))
_TAG, _ = numbered("tag", ("tag", "share", "run_id"))
_REACH, _ = numbered("reach", (*_LINE, "reached"))


class SqlRules:
    """What is known of rates, and of runs that take turns."""

    def __init__(self, now_ms: Callable[[], Instant]) -> None:
        self._now_ms = now_ms

    def admit(self, db: Database, change: Change, run: Run) -> Run:
        """What the rules make of a run that has just been admitted: its row as it is then."""
        if change.takes is not None:
            run = self._take(db, change.takes, run)
        if change.shares:
            _stand_in_line(db, run, change.shares)
        return run

    def _take(self, db: Database, taking: Taking, run: Run) -> Run:
        kept = db.execute(_RATE, (run.namespace, taking.name)).fetchall()
        due_at_us = Micros(kept[0][0] if kept else 0)
        due_at_us, after = throttles.take(taking, run, due_at_us, now_ms=self._now_ms())
        db.execute(_KEEP_RATE, (run.namespace, taking.name, due_at_us))
        if after is not run:
            db.execute(SQL["admit_later"], _moving(after))
        return after

    def forget(self, db: Database, limit: int) -> None:
        """Forget rates that have come due, and shares that stand where their line has arrived."""
        db.execute(SQL["forget_rates"], {"now_us": self._now_ms() * 1000, "limit": limit})
        for namespace, workflow, priority, reached, stands in db.execute(SQL["lines"]).fetchall():
            up_to = fairness.forgotten_up_to(reached, is_empty=not stands)
            line = {"namespace": namespace, "workflow": workflow, "priority": priority}
            db.execute(SQL["forget_shares"], {**line, "next_tag": _TAG_TOP if up_to is None else up_to})
            if up_to is None:
                db.execute(SQL["forget_line"], line)


def _stand_in_line(db: Database, run: Run, share: str) -> None:
    line = (run.namespace, run.workflow, run.priority)
    reached = _first(db.execute(_REACHED, line).fetchall())
    next_tag = _first(db.execute(_NEXT_TAG, (*line, share)).fetchall())
    tag, next_tag = fairness.enter(reached=reached, next_tag=next_tag)
    db.execute(_KEEP_SHARE, (*line, share, next_tag))
    if run.owner is None:
        db.execute(_TAG, (tag, share, run.id))
    else:
        db.execute(_REACH, (*line, tag))


def in_turn(
    db: Database, place: dict[str, Any], ready: list[tuple[str, Instant, int | None]], tags: dict[str, int]
) -> list[str]:
    """Runs of one line that may be claimed now, in the order in which they go. They come in the order of their times.

    The tags of those that take turns are put into `tags`.
    """
    limit = sum(tag is not None for _, _, tag in ready)
    turns = db.execute(SQL["first_turns"], {**place, "limit": limit}).fetchall() if limit else []
    tags.update(turns)
    return fairness.by_turn([(run_id, tag) for run_id, _, tag in ready], [run_id for run_id, _ in turns])


def begin(db: Database, run: Run, tag: int) -> None:
    """A run that stood in line is claimed: the line has arrived at its tag."""
    db.execute(_REACH, (run.namespace, run.workflow, run.priority, tag))
    db.execute(SQL["end_turn"], {"run_id": run.id})


def turn(db: Database, run: Run, *, now_ms: Instant) -> FairTurn | None:
    rows = db.execute(SQL["turn"], {"run_id": run.id, "now_ms": now_ms}).fetchall()
    return FairTurn(*rows[0]) if rows else None


def is_any_over(db: Database, *, now_ms: Instant) -> bool:
    """Whether there is something to forget."""
    if db.execute(SQL["is_rate_due"], {"now_us": now_ms * 1000}).fetchall():
        return True
    return any(not stands for *_, stands in db.execute(SQL["lines"]).fetchall())


def _first(rows: list[tuple[Any, ...]]) -> int:
    return rows[0][0] if rows else 0


def _moving(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.id,
        "status": run.status,
        "epoch": run.epoch,
        "nonce": run.nonce,
        "owner": run.owner,
        "wake_ms": run.wake_at_ms,
        "started_ms": run.started_at_ms,
        "waits": run.waits,
    }
