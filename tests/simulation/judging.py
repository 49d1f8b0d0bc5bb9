"""What is wrong with a world that has come to its end: the checker of histories, and what only the simulation knows.

kind            what it is
──────────────  ────────────────────────────────────────────────────────────────────────────
not drained     something has not come to rest, though everything healed long ago
result untrue   a run returned what its program cannot return
engine fault    a part of the engine raised what it should not, or a process ended by itself
slow to wake    in a world in which every notice arrives, a run that was due has waited for a poll
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from holdfast.kernel.journal import Completed, Continued, Forked, Started, Value
from holdfast.testing.histories.checker import examine
from holdfast.testing.histories.history import FinalRun, HistoryViolation
from tests.simulation import programs
from tests.simulation.worlds import Simulated

STEPS_MAX = 20_000  # of the search for a legal order of a key


class Judged:
    """The verdict."""

    def __init__(self, simulated: Simulated) -> None:
        examined = examine(simulated.history, steps_max=STEPS_MAX)
        self.violations = (*examined.violations, *_own(simulated))
        self.undecided = examined.undecided

    @property
    def kinds(self) -> tuple[str, ...]:
        """What kinds of violation there are, each once."""
        return tuple(sorted({each.kind for each in self.violations}))


def _own(simulated: Simulated) -> Iterator[HistoryViolation]:
    if not simulated.is_drained:
        yield HistoryViolation("I15", "not drained", simulated.restless, "it has not come to rest")
    for failure in simulated.failures:
        yield HistoryViolation("engine", "engine fault", failure.partition(":")[0], failure)
    for record in simulated.history:
        if isinstance(record, FinalRun) and not _is_true(record):
            yield HistoryViolation("I3", "result untrue", record.run, record.result)


def _is_true(final: FinalRun) -> bool:
    """Whether a completed run has returned what its program may return."""
    if not final.journal or not isinstance(final.journal[-1], Completed) or final.status != "completed":
        return True
    began = next(entry for entry in final.journal if isinstance(entry, Started | Continued))
    if any(isinstance(entry, Forked) for entry in final.journal):
        began = next(entry for entry in reversed(final.journal) if isinstance(entry, Started | Continued))
    program: Any = json.loads(json_of(began.input))["program"]
    return programs.fits(json.loads(program), json.loads(final.result))


def json_of(value: Value) -> bytes:
    """A value that is kept inline, as all are here."""
    return bytes(value.json)  # pyright: ignore[reportArgumentType]
