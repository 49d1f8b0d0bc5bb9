"""Rules about who may have a run or a duty: leases are not taken from the living, and are given back in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.lab.gate.evidence import DutySeen, Evidence, LogNotice, Violation

HARM = frozenset({"kill", "stop"})
STORE = frozenset({"redis", "sentinel", "nats"})


def taken_from_the_living(evidence: Evidence) -> Iterator[Violation]:
    """A lease that its holder could rely on by its own clock was taken from it, though nothing had happened.

    The holder's clock errs to the safe side: it counts from before the renewal was sent.
    """
    for notice in evidence.notices:
        relied = notice.age_ms * 3 < evidence.lease_ms * 2
        if notice.said == "lease lost" and relied and not _is_explained(notice, evidence):
            detail = f"process {notice.pid} lost a lease that it had renewed {notice.age_ms} ms before"
            yield Violation("lease_taken", str(notice.pid), detail)


def not_given_back(evidence: Evidence) -> Iterator[Violation]:
    """A process that ended in order held a run until its lease ran out."""
    ended = {fault.pid: fault.at_ms for fault in evidence.faults if fault.deed == "terminate"}
    harmed = {fault.pid for fault in evidence.faults if fault.deed in HARM}
    for notice in evidence.notices:
        for run in notice.runs if notice.said == "rescued" else ():
            callers = [call.pid for call in evidence.calls if call.run == run and call.at_ms <= notice.at_ms]
            if callers and callers[-1] not in harmed and ended.get(callers[-1], notice.at_ms) < notice.at_ms:
                detail = f"process {callers[-1]} had ended in order, and its run had to be rescued"
                yield Violation("not_given_back", run, detail)


def two_leaders(evidence: Evidence) -> Iterator[Violation]:
    """One says that it leads, another one does, and the first one still does, without an election in between.

    A process that goes on after a stop may believe that it leads until it has spoken to the store, or its lease has
    ended by its own clock. What it says counts again after the time of a worker's lease, twice that of a duty's.
    """
    went_on = [fault for fault in evidence.faults if fault.deed == "continue"]
    by_duty: dict[str, list[DutySeen]] = defaultdict(list)
    for sight in evidence.sights:
        ages_ms = (sight.at_ms - fault.at_ms for fault in went_on if fault.pid == sight.pid)
        if not any(0 <= age_ms < evidence.lease_ms for age_ms in ages_ms):
            by_duty[sight.duty].append(sight)
    for duty, sights in by_duty.items():
        last: dict[int, tuple[int, DutySeen]] = {}
        for at, sight in enumerate(sights):
            place, before = last.get(sight.pid, (at, sight))
            if before.leads and sight.leads and before.elections == sight.elections:
                between = {other.pid for other in sights[place:at] if other.leads and other.pid != sight.pid}
                if between:
                    terms = [notice.term for notice in evidence.notices if notice.duty == duty]
                    detail = f"processes {sight.pid} and {min(between)} both led; the terms so far are {terms}"
                    yield Violation("two_leaders", duty, detail)
                    break
            last[sight.pid] = (at, sight)


def acted_without_leading(evidence: Evidence) -> Iterator[Violation]:
    """Runs were rescued by a process that had never been elected, or had lost the duty long before."""
    for notice in evidence.notices:
        if notice.said != "rescued":
            continue
        own = [each for each in evidence.notices if each.pid == notice.pid and each.duty == "rescuer"]
        before = [each for each in own if each.at_ms <= notice.at_ms]
        lost = bool(before) and before[-1].said == "deposed"
        if lost and before[-1].at_ms + evidence.lease_ms < notice.at_ms:
            yield Violation("not_leading", str(notice.pid), f"it rescued {len(notice.runs)} runs, and led nothing")


def _is_explained(notice: LogNotice, evidence: Evidence) -> bool:
    """Whether the process had been stopped before, or the store was harmed, which may have forgotten the lease."""
    return any(
        fault.at_ms <= notice.at_ms and (fault.role in STORE or (fault.pid == notice.pid and fault.deed == "stop"))
        for fault in evidence.faults
    )
