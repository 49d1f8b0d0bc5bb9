"""What came of a proof, for people and programs; and the file from which a failing world is lived again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.prove.schedules import Boundary, Schedule
from holdfast.prove.worlds.trace import Happening

ProofVerdict = Literal["proved", "failed", "not proved"]
FORMAT = 1
DIRECTORY = Path(".holdfast") / "prove"


class FoundReport(Struct, frozen=True, kw_only=True):
    """A mistake: which rule is broken, where, and the shortest schedule that shows it."""

    rule: str
    what: str
    step: str
    line: str
    schedule: Schedule
    told: tuple[str, ...]  # the schedule in words
    others: tuple[str, ...] = ()  # what else was wrong in that world
    happenings: tuple[Happening, ...] = ()
    file: str = ""


class CaseReport(Struct, frozen=True, kw_only=True):
    """What came of one case."""

    name: str
    workflow: str
    verdict: ProofVerdict
    problem: str = ""
    input: str = ""
    worlds: int = 0
    worlds_known: int = 0
    boundaries: int = 0
    seconds_lived: float = 0.0
    found: tuple[FoundReport, ...] = ()


class ProveReport(Struct, frozen=True, kw_only=True):
    """What came of all of them."""

    target: tuple[str, ...]
    seed: int
    budget: int
    at: str
    seconds: float
    versions: dict[str, str]
    cases: tuple[CaseReport, ...]
    evidence: tuple[str, ...] = ()

    @property
    def is_proved(self) -> bool:
        return all(case.verdict == "proved" for case in self.cases)


class Repeatable(Struct, frozen=True, kw_only=True):
    """A world that can be lived again: `holdfast prove --repeat FILE`."""

    format: int = FORMAT
    target: tuple[str, ...]
    case: str
    seed: int
    lease_seconds: float
    schedule: Schedule
    rule: str
    what: str

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def read_repeatable(file: Path) -> Repeatable:
    """The world that a file names."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Repeatable)
    except FileNotFoundError:
        raise UsageError(f"there is no file {file}", hint="`holdfast prove` names the files that it writes.") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{file} does not say which world to repeat: {error}") from error
    if found.format > FORMAT:
        raise UsageError(f"{file} has format {found.format}, this version reads {FORMAT}")
    return found


def blocked_in_words(error: bytes | None) -> str:
    """Why nothing could be proved of a run that is blocked without any fault."""
    if error is None:
        return "the clean run was not admitted: it never began"
    told = msgspec.json.decode(error, type=dict[str, Any]).get("message", "")
    return f"the clean run is blocked, without any fault, until a person decides: {told}"


_FAULTS = {
    "crash": "{host} is killed",
    "late": "{host} stands still past its lease, and what it has sent arrives after the takeover,",
    "stale": "{host} stands still past its lease, and what it has sent arrives after the end,",
    "pause": "{host} stands still past its lease,",
    "cancel": "the run is cancelled",
}
_REPEATS = {
    "twice": "arrives twice, one after the other",
    "together": "arrives twice at the same time",
    "late": "arrives once more after the end",
}


def told(schedule: Schedule, met: list[Boundary]) -> tuple[str, ...]:
    """A schedule in words."""
    words = [f"the start {_REPEATS[schedule.start]}"] if schedule.start != "once" else []
    words += [f"each signal {_REPEATS[schedule.signals]}"] if schedule.signals != "once" else []
    by_number = {boundary.number: boundary for boundary in met}
    for fault in schedule.faults:
        boundary = by_number.get(fault.at)
        if boundary is not None:
            words.append(f"{_FAULTS[fault.what].format(host=boundary.host)} {boundary}")
    return tuple(words) or ("nothing happens to it: the clean run shows it",)
