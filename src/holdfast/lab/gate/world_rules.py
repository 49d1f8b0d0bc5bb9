"""Rules about what the world saw: the calls in the ledger, held against the journals and the faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from holdfast.kernel.journal import Attempted, Performed
from holdfast.lab.gate.evidence import EffectCall, Evidence, Violation
from holdfast.lab.gate.explained_repeats import CLOCK_SLACK_MS, ExplainedRepeats
from holdfast.lab.gate.pack import CHAT_STEPS, CHILD_STEPS, NAP_STEPS, STEPS
from holdfast.lab.gate.run_rules import counting

PLACES = {step: at for at, step in enumerate((*STEPS, *CHILD_STEPS, *NAP_STEPS, *CHAT_STEPS))}
BESIDE = "hum"  # is called beside the others, and has no place in their order


class Repeats(NamedTuple):
    """Calls that the rules allow but that people should know of."""

    repeated: int
    late: int


def repeats(evidence: Evidence) -> Repeats:
    """How often an effect was called once more, and how often by someone who had lost its run."""
    late = sum(map(ExplainedRepeats(evidence).explains_late, _late_calls(evidence)))
    return Repeats(sum(len(calls) - 1 for calls in _by_key(evidence).values()), late)


def other_keys(evidence: Evidence) -> Iterator[Violation]:
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    steps: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for call in evidence.calls:
        keys[call.order, call.step].add(call.key)
        steps[call.key].add((call.order, call.step))
    for final in evidence.finals:
        order = final.key.removesuffix("/parcel")
        for entry in counting(final):
            if isinstance(entry, Performed):
                keys[order, entry.intent.name.rpartition(".")[2]].add(entry.intent.key)
    for (order, step), of_step in keys.items():
        if len(of_step) > 1:
            yield Violation("another_key", order, f"{step} under {', '.join(sorted(of_step))}")
    for key, of_key in steps.items():
        if len(of_key) > 1:
            yield Violation("another_key", key, f"it stands for {sorted(of_key)}")


def attempts_used(evidence: Evidence) -> Iterator[Violation]:
    failures: dict[str, int] = defaultdict(int)
    for final in evidence.finals:
        for entry in final.journal:
            if isinstance(entry, Attempted):
                failures[entry.intent.key] += 1
    for call in evidence.calls:
        if call.attempt > failures[call.key] + 1:
            yield Violation("attempt_used", call.key, f"{call.step} of {call.order} was called as {call.attempt}")


def repeated_for_nothing(evidence: Evidence) -> Iterator[Violation]:
    explained = ExplainedRepeats(evidence)
    for key, calls in _by_key(evidence).items():
        for earlier, later in pairwise(calls):
            if not explained.explains_repeat(earlier, later):
                detail = f"{later.step} of {later.order}, by {later.pid}, though process {earlier.pid} was well"
                yield Violation("repeated_for_nothing", key, detail)


def called_after_record(evidence: Evidence) -> Iterator[Violation]:
    explained = ExplainedRepeats(evidence)
    for call in _late_calls(evidence):
        if not explained.explains_late(call):
            yield Violation("called_after_record", call.key, f"{call.step} of {call.order}, by process {call.pid}")


def _late_calls(evidence: Evidence) -> Iterator[EffectCall]:
    """Calls of effects that had been recorded: by the instant of the record, or by a later step's call before.

    The order of the steps needs no clock at all.
    """
    recorded = {
        entry.intent.key: entry.at_ms
        for final in evidence.finals
        for entry in final.journal
        if isinstance(entry, Performed)
    }
    reached: dict[str, int] = defaultdict(int)
    for call in evidence.calls:
        place = reached[call.run] if call.step == BESIDE else PLACES[call.step]
        is_behind = place < reached[call.run]
        if is_behind or call.at_ms > recorded.get(call.key, call.at_ms) + CLOCK_SLACK_MS:
            yield call
        reached[call.run] = max(reached[call.run], place)


def _by_key(evidence: Evidence) -> dict[str, list[EffectCall]]:
    calls: dict[str, list[EffectCall]] = defaultdict(list)
    for call in evidence.calls:
        calls[call.key].append(call)
    return calls
