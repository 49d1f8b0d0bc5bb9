"""Explained calls: which calls of effects no engine could have prevented.

A host may lose its runs and not know it yet. Until it learns of it there is a spell in which others call again what it
has called, and it may itself call what others have recorded.

    what is known                        the spell
    ───────────────────────────────────  ─────────────────────────────────────────────────────────────────────────
    it was killed                        from then on: others call again what it had called
    it ended in order                    the same, for calls that had not come to their end
    it was paused                        from then until a lease after it went on; forever if it did not
    its lease lapsed, or it was told     from a lease before that until a lease after it lapsed, or until it was told
    the store has forgotten something    of every host: what it had called before, all may call again
    its writes were lost or delayed      of the writes of one host: a lease from then on, for repeated calls only

What lies outside of a spell is explained by nothing.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf

from holdfast.testing.histories.history import EffectObserved, FaultApplied, LeaseChanged
from holdfast.testing.histories.seen import Seen

_HINDERED = frozenset({"reply lost", "write lost", "write late", "store down", "store slow"})
_Spell = tuple[float, float]


class ExplainedCalls:
    """What the faults and the leases of a history explain."""

    def __init__(self, seen: Seen) -> None:
        lease_ms, slack_ms = seen.head.lease_ms, seen.head.slack_ms
        self._gone_at_ms: dict[str, float] = {}
        self._left_at_ms: dict[str, float] = {}
        self._forgot = [fault for _, fault in seen.of(FaultApplied) if fault.fault == "forgot"]
        self._spells: dict[str, list[_Spell]] = defaultdict(list)
        self._hindered: dict[str, list[_Spell]] = defaultdict(list)
        paused: dict[str, float] = {}
        for _, fault in seen.of(FaultApplied):
            if fault.fault == "killed":
                self._gone_at_ms.setdefault(fault.host, fault.at_ms)
            elif fault.fault == "ended":
                self._left_at_ms.setdefault(fault.host, fault.at_ms)
            elif fault.fault == "paused":
                paused.setdefault(fault.host, fault.at_ms)
            elif fault.fault == "continued" and fault.host in paused:
                self._spells[fault.host].append((paused.pop(fault.host), fault.at_ms + lease_ms))
            elif fault.fault in _HINDERED:
                self._hindered[fault.host].append((fault.at_ms, fault.at_ms + lease_ms))
        for host, since_ms in paused.items():
            self._spells[host].append((since_ms, inf))
        for _, lease in seen.of(LeaseChanged):
            if lease.how in {"lapsed", "lost"}:
                until_ms = lease.at_ms + (lease_ms if lease.how == "lapsed" else slack_ms)
                self._spells[lease.host].append((lease.at_ms - lease_ms, until_ms))

    def explains_late(self, call: EffectObserved) -> bool:
        """Whether this call of what others had recorded came from a host that could not know."""
        return self._is_unaware(call.host, call.at_ms, call.at_ms)

    def explains_repeat(self, earlier: EffectObserved, later: EffectObserved, *, is_over: bool) -> bool:
        """Whether the earlier caller was lost in between, or the later one could not know that it had no business.

        `is_over`: the earlier call had come to its end.
        """
        gone_at_ms = self._gone_at_ms.get(earlier.host, inf)
        if not is_over:
            gone_at_ms = min(gone_at_ms, self._left_at_ms.get(earlier.host, inf))
        if gone_at_ms <= later.at_ms or self._is_forgotten(earlier, later):
            return True
        hosts, since_ms, until_ms = ("", earlier.host, later.host), earlier.at_ms, later.at_ms
        if any(_overlap(spell, since_ms, until_ms) for host in hosts for spell in self._hindered.get(host, ())):
            return True
        return self._is_unaware(earlier.host, since_ms, until_ms) or self.explains_late(later)

    def _is_forgotten(self, earlier: EffectObserved, later: EffectObserved) -> bool:
        return any(
            earlier.at_ms <= fault.at_ms <= later.at_ms and (not fault.runs or later.run in fault.runs)
            for fault in self._forgot
        )

    def _is_unaware(self, host: str, since: float, until: float) -> bool:
        return any(_overlap(spell, since, until) for spell in self._spells.get(host, ()))


def _overlap(spell: _Spell, since: float, until: float) -> bool:
    """Whether a spell, which may have no end, meets a time; all in milliseconds."""
    begins, ends = spell
    return begins <= until and since <= ends
