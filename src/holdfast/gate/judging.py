"""Judges evidence: violations, counts, and whether enough was seen for "no violation" to mean something."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from holdfast.gate.checker import violations
from holdfast.gate.evidence import Evidence, Violation
from holdfast.gate.pack import errand
from holdfast.gate.world_rules import repeats
from holdfast.kernel.journal import Completed, Performed

HARM = frozenset({"kill", "stop", "terminate"})


class Proof(Struct, frozen=True):
    """Something that a scenario must have seen, lest it prove nothing."""

    what: str
    seen: int
    needed: int = 1

    @property
    def holds(self) -> bool:
        return self.seen >= self.needed


class Counts(Struct, frozen=True, kw_only=True):
    """How much was seen.

    `repeated` calls of effects are those that a fault explains, `late` ones come from a process that had lost the run;
    `refused` counts how often a process was told that it had lost its lease or a run.
    """

    orders: int = 0
    completed: int = 0
    starts: int = 0
    joined: int = 0
    tried_again: int = 0
    recorded: int = 0
    calls: int = 0
    repeated: int = 0
    late: int = 0
    faults: int = 0
    rescued: int = 0
    refused: int = 0


class Checked(Struct, frozen=True, kw_only=True):
    """What the evidence of one load comes to. `completions` are the instants at which its orders were completed."""

    counts: Counts
    violations: tuple[Violation, ...]
    completions: tuple[int, ...]
    under_faults: int


def judged(seen: Evidence) -> Checked:
    """Look at all of it."""
    again = repeats(seen)
    counts = Counts(
        orders=len(seen.orders),
        completed=sum(final.status == "completed" for final in seen.finals if final.workflow == errand.name),
        starts=len(seen.answers),
        joined=sum(not answer.created for answer in seen.answers),
        tried_again=sum(answer.tries > 1 for answer in seen.answers),
        recorded=sum(isinstance(entry, Performed) for final in seen.finals for entry in final.journal),
        calls=len(seen.calls),
        repeated=again.repeated,
        late=again.late,
        faults=sum(fault.deed in HARM for fault in seen.faults),
        rescued=sum(len(notice.runs) for notice in seen.notices if notice.said == "rescued"),
        refused=sum(notice.said != "rescued" for notice in seen.notices),
    )
    instants = [fault.at_ms for fault in seen.faults]
    completions = _completions(seen)
    under_faults = sum(min(instants) <= at_ms <= max(instants) for at_ms in completions) if instants else 0
    return Checked(counts=counts, violations=violations(seen), completions=completions, under_faults=under_faults)


def proofs_of(checked: Checked, *, rescues: bool = True) -> tuple[Proof, ...]:
    """Faults really happened, work was really done meanwhile, keys really met, and runs really changed hands."""
    counts = checked.counts
    found = (
        Proof("faults", counts.faults),
        Proof("runs completed under faults", checked.under_faults),
        Proof("starts that joined a run by its key", counts.joined),
    )
    return (*found, Proof("runs rescued", counts.rescued)) if rescues else found


def together(counted: Iterable[Counts]) -> Counts:
    """The sum of all."""
    total = dict.fromkeys(Counts.__struct_fields__, 0)
    for counts in counted:
        for name in total:
            total[name] += getattr(counts, name)
    return msgspec.convert(total, Counts)


def _completions(seen: Evidence) -> tuple[int, ...]:
    """When the orders were completed, by their own journals."""
    instants = (
        entry.at_ms
        for final in seen.finals
        if final.workflow == errand.name
        for entry in final.journal
        if isinstance(entry, Completed)
    )
    return tuple(sorted(instants))
