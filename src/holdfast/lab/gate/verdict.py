"""The verdict on evidence: violations, counts, and whether enough was seen for "no violation" to mean something."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from holdfast.kernel.journal import Completed, Performed, Received
from holdfast.kernel.times import NO_TIME, Instant, Millis
from holdfast.lab.gate.checker import violations
from holdfast.lab.gate.evidence import Evidence, Violation
from holdfast.lab.gate.histories import violations_of_history
from holdfast.lab.gate.pack import chat, errand, nap
from holdfast.lab.gate.timer_rules import timers
from holdfast.lab.gate.world_rules import repeats

HARM = frozenset({"kill", "stop", "terminate", "forget"})
ORDERED = frozenset({errand.name, nap.name, chat.name})  # and not the children that they have
LOSSES = frozenset({"overtaken", "lease lost"})


class Proof(Struct, frozen=True):
    """Something that a scenario must have seen: without it, it proves nothing."""

    what: str
    seen: int
    needed: int = 1

    @property
    def holds(self) -> bool:
        return self.seen >= self.needed


class Counts(Struct, frozen=True, kw_only=True):
    """How much was seen.

    `repeated` calls of effects are those that a fault explains, `late` ones come from a process that had lost the run;
    `refused` counts how often a process was told that it had lost its lease or a run, `stale` the writes that the store
    refused since another process had the run, `taken_back` the ends that it refused over an unread message, and
    `taken_over` the runs in which effects of several processes were called. What ends in `_ms` is the most that was
    seen.
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
    stale: int = 0
    taken_back: int = 0
    taken_over: int = 0
    timers: int = 0
    timer_early_ms: Millis = NO_TIME
    timer_late_ms: Millis = NO_TIME
    signals: int = 0
    events: int = 0
    terms: int = 0


class Checked(Struct, frozen=True, kw_only=True):
    """What the evidence of one load comes to. `completions` are the instants at which its orders were completed."""

    counts: Counts
    violations: tuple[Violation, ...]
    completions: tuple[Instant, ...]
    under_faults: int


def judge(seen: Evidence) -> Checked:
    """Look at all of it."""
    again = repeats(seen)
    late_ms = [timed.late_ms for timed in timers(seen)]
    counts = Counts(
        orders=len(seen.orders) + len(seen.others),
        completed=len(_completed_keys(seen)),
        starts=len(seen.accepted_starts),
        joined=sum(not answer.created for answer in seen.accepted_starts),
        tried_again=sum(answer.tries > 1 for answer in seen.accepted_starts),
        recorded=sum(isinstance(entry, Performed) for final in seen.finals for entry in final.journal),
        calls=len(seen.calls),
        repeated=again.repeated,
        late=again.late,
        faults=sum(fault.deed in HARM for fault in seen.faults),
        rescued=sum(len(notice.runs) for notice in seen.notices if notice.said == "rescued"),
        refused=sum(notice.said in LOSSES for notice in seen.notices),
        stale=sum(notice.said == "stale" for notice in seen.notices),
        taken_back=sum(notice.said == "taken back" for notice in seen.notices),
        taken_over=_taken_over(seen),
        timers=len(late_ms),
        timer_early_ms=max([NO_TIME, *(-each for each in late_ms)]),
        timer_late_ms=max([NO_TIME, *late_ms]),
        signals=sum(isinstance(entry, Received) for final in seen.finals for entry in final.journal),
        events=sum(len(heard.cursors) for heard in seen.heard),
        terms=sum(notice.said == "elected" for notice in seen.notices),
    )
    instants = [fault.at_ms for fault in seen.faults]
    completions = _completions(seen)
    under_faults = sum(min(instants) <= at_ms <= max(instants) for at_ms in completions) if instants else 0
    return Checked(counts=counts, violations=_violations(seen), completions=completions, under_faults=under_faults)


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
    """The sum of all; of what was measured, the most."""
    total = dict.fromkeys(Counts.__struct_fields__, 0)
    for counts in counted:
        for name, value in total.items():
            more = getattr(counts, name)
            total[name] = max(value, more) if name.endswith("_ms") else value + more
    return msgspec.convert(total, Counts)


def _violations(seen: Evidence) -> tuple[Violation, ...]:
    """What the gate's own rules find, and what else the checker of histories does."""
    own = violations(seen)
    kinds = {each.kind for each in own}
    return (*own, *(each for each in violations_of_history(seen) if each.kind not in kinds))


def _completed_keys(seen: Evidence) -> set[str]:
    return {final.key for final in seen.finals if final.workflow in ORDERED and final.status == "completed"}


def _taken_over(seen: Evidence) -> int:
    callers: dict[str, set[int]] = defaultdict(set)
    for call in seen.calls:
        callers[call.run].add(call.pid)
    return sum(len(pids) > 1 for pids in callers.values())


def _completions(seen: Evidence) -> tuple[Instant, ...]:
    """When the orders were completed, by their own journals."""
    instants = (
        entry.at_ms
        for final in seen.finals
        if final.workflow in ORDERED
        for entry in final.journal
        if isinstance(entry, Completed)
    )
    return tuple(sorted(instants))
