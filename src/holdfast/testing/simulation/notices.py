"""What a store tells others about a call: as closely as the real stores do, so that a wake-up that is missing shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.kernel.changes import Answer, Committed
from holdfast.kernel.runs import SETTLED, Run
from holdfast.ports.notices import ANYTHING, NOTHING, Notice, Ready
from holdfast.ports.store import Claimed
from holdfast.stores.notices import of_documents


def notice_of(verb: str, args: Sequence[Any], result: Any, rows: Callable[[Sequence[str]], list[Run]]) -> Notice:
    """What others are told when a store has done `verb`; `rows` are the rows of runs as they are now."""
    match verb:
        case "commit":
            return _of_commit(result, rows)
        case "claim":
            claimed: Claimed = result
            return Notice(tuple(run.id for run in claimed.runs)) if claimed.runs else NOTHING
        case "write":
            return of_documents(args[0], result)
        case "join" | "leave" | "set_lane":
            return ANYTHING
        case "rescue" | "relay":
            return ANYTHING if result else NOTHING
        case _:
            return NOTHING


def _of_commit(answers: Sequence[Answer], rows: Callable[[Sequence[str]], list[Run]]) -> Notice:
    committed = [answer for answer in answers if isinstance(answer, Committed)]
    moved = [answer.run for answer in committed if answer.run is not None]
    told = tuple(dict.fromkeys(run_id for answer in committed for run_id in answer.told))
    waking = [run for run in (*moved, *(rows(told) if told else ())) if run.status not in SETTLED]
    ready = (Ready(run.namespace, run.workflow, run.wake_at_ms) for run in waking if run.wake_at_ms is not None)
    return Notice(
        tuple(dict.fromkeys(run.id for run in moved)),
        told,
        tuple(dict.fromkeys(ready)),
        settled=tuple(dict.fromkeys(run.id for run in moved if run.status in SETTLED)),
    )
