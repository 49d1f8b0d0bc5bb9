"""Rules about signals: what was accepted is in the journal of a run that had the key, once, in the sender's order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from holdfast.kernel.journal import Received
from holdfast.lab.gate.evidence import Evidence, Final, SentWord, Violation
from holdfast.lab.gate.run_rules import content


def lost(evidence: Evidence) -> Iterator[Violation]:
    for order, sent in _by_order(evidence).items():
        seen = {word for final in _runs(evidence, order) for word in received(final)}
        for signal in sent:
            if signal.word not in seen:
                detail = f"{signal.word!r} to {signal.hook!r} was accepted, and no run of {order} has it"
                yield Violation("signal_lost", order, detail)


def twice(evidence: Evidence) -> Iterator[Violation]:
    for order in _by_order(evidence):
        runs = _runs(evidence, order)
        taken = Counter(word for final in runs for word in _taken(final))
        for final in runs:
            taken |= Counter(received(final))
        for word, times in taken.items():
            if times > 1:
                yield Violation("signal_twice", order, f"{word!r} was received {times} times")


def out_of_order(evidence: Evidence) -> Iterator[Violation]:
    for order, sent in _by_order(evidence).items():
        numbers = {signal.word: (signal.sender, signal.number) for signal in sent}
        for final in _runs(evidence, order):
            by_sender: dict[str, list[int]] = defaultdict(list)
            for sender, number in (numbers[word] for word in received(final) if word in numbers):
                by_sender[sender].append(number)
            for sender, seen in by_sender.items():
                if any(later < earlier for earlier, later in pairwise(seen)):
                    yield Violation("signal_order", order, f"{sender} sent them in order, and they came as {seen}")


def received(final: Final) -> list[str]:
    """The words in its journal, in order."""
    return [content(entry.value) for entry in final.journal if isinstance(entry, Received)]


def _taken(final: Final) -> list[str]:
    """The words that its code took, if it has said so."""
    return msgspec.json.decode(final.result, type=list[str]) if final.result else []


def _runs(evidence: Evidence, order: str) -> list[Final]:
    return [final for final in evidence.finals if final.key == order]


def _by_order(evidence: Evidence) -> dict[str, list[SentWord]]:
    found: dict[str, list[SentWord]] = defaultdict(list)
    for signal in evidence.sent:
        found[signal.order].append(signal)
    return found
