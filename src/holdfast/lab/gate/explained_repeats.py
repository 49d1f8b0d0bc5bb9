"""Explained repeats: which calls of effects no engine could have prevented.

A process may lose its runs and not know it yet: it was stopped, or it could not renew its lease. Until it learns of it
there is a spell in which others call again what it has called, and it may itself call what others have recorded.

    what is known                        the spell
    ───────────────────────────────────  ───────────────────────────────────────────────────────────
    it was stopped                       from then until a lease after it went on; forever if it did not
    it said that it had lost something   from a lease before that on: it runs, so it looks at its lease
    the store has forgotten something    of every process: what it had called before, all may call again

What lies outside of a spell is explained by nothing.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf

from holdfast.kernel.times import Instant, Millis
from holdfast.lab.gate.evidence import EffectCall, Evidence, InjectedFault

# The instant of a record is the writer's idea of the store's clock, and calls come to the ledger some time after.
CLOCK_SLACK_MS = Millis(250)


class ExplainedRepeats:
    """What the faults and the notices of a scenario explain."""

    def __init__(self, evidence: Evidence) -> None:
        self._killed = {fault.pid: fault.at_ms for fault in evidence.faults if fault.deed == "kill"}
        self._forgot = [fault.at_ms for fault in evidence.faults if fault.deed == "forget"]
        self._spells: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for fault in evidence.faults:
            if fault.deed == "stop":
                until_ms = _when_it_went_on(fault, evidence.faults) + evidence.lease_ms
                self._spells[fault.pid].append((fault.at_ms, until_ms))
        for notice in evidence.notices:
            if notice.said != "rescued":
                spell = (notice.at_ms - evidence.lease_ms, notice.at_ms + CLOCK_SLACK_MS)
                self._spells[notice.pid].append(spell)

    def explains_late(self, call: EffectCall) -> bool:
        """Whether this call of what others had recorded came from a process that could not know."""
        return self._is_unaware(call.pid, call.at_ms, call.at_ms)

    def explains_repeat(self, earlier: EffectCall, later: EffectCall) -> bool:
        """Whether the earlier caller was lost in between, or the later one could not know that it had no business."""
        is_dead = self._killed.get(earlier.pid, inf) <= later.at_ms
        is_forgotten = any(earlier.at_ms <= at_ms <= later.at_ms for at_ms in self._forgot)
        is_lost = is_dead or is_forgotten or self._is_unaware(earlier.pid, earlier.at_ms, later.at_ms)
        return is_lost or self.explains_late(later)

    def _is_unaware(self, pid: int, since_ms: Instant, until_ms: Instant) -> bool:
        return any(
            begins_at_ms <= until_ms and since_ms <= ends_at_ms for begins_at_ms, ends_at_ms in self._spells[pid]
        )


def _when_it_went_on(stop: InjectedFault, faults: tuple[InjectedFault, ...]) -> float:
    """When a stopped process was let go on."""
    resumed = (each.at_ms for each in faults if (each.pid, each.deed) == (stop.pid, "continue"))
    return min((at_ms for at_ms in resumed if at_ms >= stop.at_ms), default=inf)
