"""Takeovers: how often in a row the worker of a run died, and what the next worker does with the run.

A run may be what kills its process: `os._exit`, memory, a fault in native code. Such a run has no record of it. What is
left is a lease that has expired, the run under it, and a journal that is as long as before.

    takeovers without progress    what a worker does with the run
    ──────────────────────────    ──────────────────────────────────────────────────────────────────────────
    0, 1                          executes it
    2 to 4: a suspect             executes it, unless another suspect began here in the last ten seconds and has
                                  recorded nothing since; then it gives it back for a moment
    5 and more                    blocks it: `KilledItsWorkers`

Rules
- A takeover is counted when a run is about to be rescued from a worker whose lease has expired, once for each epoch. A
  worker that stops in order gives its runs back, and nothing is counted.
- Progress is a journal that has grown since the last takeover. Then the count begins again; so it does after a retry,
  which is an entry of its own.
- A worker begins one suspect at a time, so that a run which was only beside a deadly one is not beside it again,
  makes progress, and is no suspect any more. After ten seconds the next one begins all the same: an effect may take an
  hour, and the suspect that is kept waiting may be the one that has to cancel it.
- The count is one document per run, beside the run: rows and journals of runs stay as they are. It is read only for
  runs that were not let go in order, and expires some time after the last takeover.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import utc_of

KIND = "takeovers"
KEPT_MS = Millis(7 * 86_400_000)
SUSPECT_AT = 2
DEADLY_AT = 5
ALONE_MS = Millis(10_000)  # less than a cancellation waits for the run to clean up
POSTPONED_MS = Millis(250)  # the first of those that are given back; each further one as much longer


class Takeovers(Struct, frozen=True, gc=False):
    """What the document of a run says: how many in a row, and the run as it was at the last one."""

    count: int
    length: int
    epoch: int
    owner: str
    at_ms: Instant


class Execute(Struct, frozen=True, gc=False):
    """Execute it. `takeovers` is 0 unless it is a suspect."""

    takeovers: int = 0


class Postpone(Struct, frozen=True, gc=False):
    """Give it back until then: another suspect has just begun."""

    wake_at_ms: Instant


class SetAside(Struct, frozen=True, gc=False):
    """Do not execute it again before a person has looked."""

    message: str


Treatment = Execute | Postpone | SetAside
_decode = msgspec.json.Decoder(Takeovers).decode


def count(run: Run, last: Document | None, *, now_ms: Instant) -> Writing | None:
    """What is written before `run` is rescued; None if this takeover is counted already."""
    before = None if last is None else _decode(last.body)
    if before is not None and before.epoch == run.epoch:
        return None
    in_a_row = before.count if before is not None and before.length == run.length else 0
    now = Takeovers(in_a_row + 1, run.length, run.epoch, run.owner or "", now_ms)
    replaces = None if last is None else last.version
    version = next_version(replaces, now_ms=now_ms)
    body = msgspec.json.encode(now)
    return Writing(Document(run.namespace, KIND, run.id, version, body, expires_at_ms=now_ms + KEPT_MS), replaces)


def may_be_counted(run: Run) -> bool:
    """Whether there may be a document about `run`, which was claimed. Of most runs this says no, without a look."""
    return run.epoch > 1 and run.waits is None


def treat(
    runs: Sequence[Run], told: dict[str, Document], *, beside_a_suspect: bool, now_ms: Instant
) -> list[Treatment]:
    """What a worker does with each of the runs that it has claimed. `told` are their documents, by run."""
    treatments: list[Treatment] = []
    postponed = 0
    for run in runs:
        document = told.get(run.id)
        in_a_row = _in_a_row(run, document)
        if in_a_row >= DEADLY_AT:
            assert document is not None
            treatments.append(SetAside(_message(run, _decode(document.body))))
        elif in_a_row < SUSPECT_AT:
            treatments.append(Execute())
        elif beside_a_suspect:
            postponed += 1
            treatments.append(Postpone(now_ms + Millis(postponed * POSTPONED_MS)))
        else:
            beside_a_suspect = True
            treatments.append(Execute(in_a_row))
    return treatments


def _in_a_row(run: Run, told: Document | None) -> int:
    if told is None:
        return 0
    takeovers = _decode(told.body)
    return takeovers.count if takeovers.length == run.length else 0


def _message(run: Run, takeovers: Takeovers) -> str:
    last = utc_of(takeovers.at_ms).isoformat(timespec="seconds")
    return (
        f"{takeovers.count} workers in a row died or lost their lease while they executed run {run.id}, and nothing was"
        f" recorded in between; it was taken over from the last one, {takeovers.owner}, at {last}. What the run does"
        " next may kill its process: look for the cause where the workers ran (exit code, memory), then retry the run"
    )
