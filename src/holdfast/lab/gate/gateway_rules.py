"""Rules about what gateways return: events, searches, keys that were revoked, and writes that no replica has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf

from holdfast.kernel.times import Millis
from holdfast.lab.gate.evidence import Evidence, Violation

REVOKED_MS_MAX = Millis(2_000)  # the promise: at once, and two seconds later if the notice was lost
REVOKED_SLACK_MS = Millis(250)


def events_missed(evidence: Evidence) -> Iterator[Violation]:
    lengths = {final.id: len(final.journal) for final in evidence.finals}
    for heard in evidence.heard:
        missed = sorted(set(range(lengths.get(heard.run, 0))) - set(heard.cursors))
        if missed:
            detail = f"{missed[:10]} of {lengths[heard.run]} events, over {heard.connections} connections"
            yield Violation("event_missed", heard.run, detail)


def events_repeated(evidence: Evidence) -> Iterator[Violation]:
    for heard in evidence.heard:
        if any(later <= earlier for earlier, later in pairwise(heard.cursors)):
            yield Violation("event_repeated", heard.run, f"they came as {list(heard.cursors)}")


def searches(evidence: Evidence) -> Iterator[Violation]:
    for searched in evidence.searched:
        wanted, found = set(searched.wanted), set(searched.found)
        if wanted - found:
            yield Violation("not_found", searched.what, f"{len(wanted - found)} of {len(wanted)} runs are missing")
        if found - wanted or len(searched.found) > len(found):
            yield Violation("found_wrongly", searched.what, f"{sorted(found - wanted)[:5]} should not be there")


def revoked_keys(evidence: Evidence) -> Iterator[Violation]:
    for use in evidence.key_uses:
        if use.accepted and use.after_ms > REVOKED_MS_MAX + REVOKED_SLACK_MS:
            detail = f"it was accepted {use.after_ms} ms after it had been revoked"
            yield Violation("revoked_key", use.gateway, detail)


def unconfirmed(evidence: Evidence) -> Iterator[Violation]:
    """A start was sent and confirmed while all that follow a primary stood still, and could confirm nothing."""
    harm = [fault for fault in evidence.faults if fault.role == "redis"]
    stopped = [fault.at_ms for fault in harm if fault.deed == "stop"]
    if not stopped:
        return
    since_ms = max(stopped)
    until_ms = min((fault.at_ms for fault in harm if fault.deed == "continue"), default=inf)
    for answer in evidence.accepted_starts:
        if answer.created and since_ms < answer.asked_at_ms and answer.at_ms < until_ms:
            yield Violation("unconfirmed", answer.run, f"{answer.order} was confirmed, and no replica had it")
