"""Rules about timers, measured by the ledger's clock: from the call in front of a sleep to the one behind it.

A delayed start is a timer, too: from the moment before it was sent to the first call of its run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.kernel.journal import Started
from holdfast.kernel.times import Millis
from holdfast.lab.gate.evidence import EffectCall, Evidence, Violation
from holdfast.lab.gate.pack import SLEEP_MS, nap
from holdfast.lab.gate.run_rules import content

EARLY_MS_MAX = Millis(1)  # instants are whole milliseconds: of two that are 50 ms apart, 49 may be seen


class Timed(NamedTuple):
    """A timer: how long it was to take at least, and how long it took."""

    order: str
    wanted_ms: Millis
    took_ms: Millis

    @property
    def late_ms(self) -> Millis:
        """How much too late it was; negative if it was early."""
        return self.took_ms - self.wanted_ms


def timers(evidence: Evidence) -> list[Timed]:
    """Every timer that has elapsed. The first calls count: a repeated one comes later on either side."""
    first: dict[tuple[str, str], EffectCall] = {}
    for call in evidence.calls:
        first.setdefault((call.order, call.step), call)
    found = [_timed(first, order, "charge", "wrap", SLEEP_MS) for order in evidence.orders]
    naps = [final for final in evidence.finals if final.workflow == nap.name and final.journal]
    for final in naps:
        began = final.journal[0]
        assert isinstance(began, Started)
        sleep_ms = content(began.input)["sleep_ms"]
        found.append(_timed(first, final.key, "doze", "wake", sleep_ms))
    asked = {answer.order: answer.asked_at_ms for answer in reversed(evidence.accepted_starts)}
    delayed = [
        Timed(other.key, other.delay_ms, call.at_ms - asked[other.key])
        for other in evidence.others
        if other.delay_ms and other.key in asked and (call := first.get((other.key, "doze"))) is not None
    ]
    return [*delayed, *(timed for timed in found if timed is not None)]


def _timed(
    first: dict[tuple[str, str], EffectCall], order: str, before: str, behind: str, sleep_ms: Millis
) -> Timed | None:
    began, ended = first.get((order, before)), first.get((order, behind))
    if began is None or ended is None:
        return None
    return Timed(order, sleep_ms + began.hold_ms, ended.at_ms - began.at_ms)


def early(evidence: Evidence) -> Iterator[Violation]:
    for timed in timers(evidence):
        if timed.late_ms < -EARLY_MS_MAX:
            detail = f"a timer of {timed.wanted_ms} ms took {timed.took_ms} ms"
            yield Violation("timer_early", timed.order, detail)
