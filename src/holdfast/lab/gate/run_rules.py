"""Rules about clients and runs: what clients were told, what there is at the end, what the journals hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.kernel.journal import (
    Cancelled,
    Completed,
    Entry,
    Failed,
    GaveUp,
    Performed,
    Received,
    Spawned,
    Value,
    void_positions,
)
from holdfast.lab.gate.evidence import Evidence, Final, Violation
from holdfast.lab.gate.pack import CHILD_STEPS, NAP_STEPS, STEPS, errand, expected, nap, parcel

NAP_ORDER = tuple(f"gate.{step}" for step in NAP_STEPS)
ENDS = (Completed, Failed, Cancelled)
WANTED = {errand.name: STEPS, parcel.name: CHILD_STEPS, nap.name: ("doze", "wake")}


# -- what clients were told


def failed_calls(evidence: Evidence) -> Iterator[Violation]:
    for failed in evidence.failed:
        yield Violation("call_failed", failed.order, f"{failed.verb}: {failed.why}")


def lost_or_unasked(evidence: Evidence) -> Iterator[Violation]:
    keys = {(final.workflow, final.key) for final in evidence.finals}
    errands = [(errand.name, order) for order in evidence.orders]
    parcels = [(parcel.name, f"{order}/parcel") for order in evidence.orders]
    wanted = [*errands, *parcels, *((other.workflow, other.key) for other in evidence.others)]
    for workflow, key in wanted:
        if (workflow, key) not in keys:
            yield Violation("lost", key, f"no run of {workflow} has the key {key}")
    ids = {final.id for final in evidence.finals}
    for run in sorted({answer.run for answer in evidence.accepted_starts} - ids):
        yield Violation("lost", run, "a start returned this run, and it is not there")
    for final in evidence.finals:
        if (final.workflow, final.key) not in wanted:
            yield Violation("unasked", final.id, f"no client asked for {final.workflow} {final.key}")


def two_runs(evidence: Evidence) -> Iterator[Violation]:
    runs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for final in evidence.finals:
        runs[final.workflow, final.key].add(final.id)
    workflows = {other.key: other.workflow for other in evidence.others}
    for answer in evidence.accepted_starts:
        runs[workflows.get(answer.order, errand.name), answer.order].add(answer.run)
    several = {other.key for other in evidence.others if other.again}
    for (_, key), ids in runs.items():
        if len(ids) > 1 and key not in several:
            yield Violation("two_runs", key, f"runs {', '.join(sorted(ids))}")


def admitted_twice(evidence: Evidence) -> Iterator[Violation]:
    creators: dict[str, set[str]] = defaultdict(set)
    for answer in evidence.accepted_starts:
        if answer.created:
            creators[answer.order].add(answer.request)
    for order, requests in creators.items():
        if len(requests) > 1:
            yield Violation("admitted_twice", order, f"requests {', '.join(sorted(requests))}")


# -- what became of the runs


def not_completed(evidence: Evidence) -> Iterator[Violation]:
    for final in evidence.finals:
        if final.status != "completed":
            yield Violation("not_completed", final.id, f"{final.workflow} {final.key} is {final.status}")


def wrong_results(evidence: Evidence) -> Iterator[Violation]:
    for final in _completed(evidence):
        wanted = _result_of(final)
        if wanted is not None and final.result != msgspec.json.encode(wanted).decode():
            yield Violation("wrong_result", final.id, f"{final.key} returned {final.result:.200}")


def _result_of(final: Final) -> object:
    """What it has to return, as far as that is known."""
    if final.workflow == errand.name:
        return expected(final.key)
    if final.workflow == parcel.name:
        return f"{final.key.removesuffix('/parcel')} wrap"
    if final.workflow == nap.name:
        recorded = {entry.intent.name: entry.value for entry in counting(final) if isinstance(entry, Performed)}
        return [content(recorded[name]) for name in NAP_ORDER if name in recorded]
    return None


def not_recorded(evidence: Evidence) -> Iterator[Violation]:
    for final in _completed(evidence):
        performed = [entry.intent.name for entry in counting(final) if isinstance(entry, Performed)]
        for step in WANTED.get(final.workflow, ()):
            if not any(_is(step, name) for name in performed):
                yield Violation("not_recorded", final.id, f"{step} of {final.key}")


def recorded_twice(evidence: Evidence) -> Iterator[Violation]:
    records: dict[str, list[str]] = defaultdict(list)
    for final in evidence.finals:
        for entry in counting(final):
            match entry:
                case Performed() | GaveUp():
                    records[f"effect {entry.intent.key}"].append(final.id)
                case Spawned():
                    records[f"child {entry.run_id}"].append(final.id)
                case Received(id=id):
                    records[f"signal {id} of {final.id}"].append(final.id)
                case _:
                    pass
    for what, runs in records.items():
        if len(runs) > 1:
            yield Violation("recorded_twice", what, f"{len(runs)} times, in {', '.join(sorted(set(runs)))}")


def after_the_end(evidence: Evidence) -> Iterator[Violation]:
    for final in evidence.finals:
        ends = [at for at, entry in enumerate(final.journal) if isinstance(entry, ENDS)]
        if ends and ends[0] < len(final.journal) - 1:
            behind = ", ".join(entry.what for entry in final.journal[ends[0] + 1 :])
            yield Violation("after_the_end", final.id, f"{final.key} has ended, and then: {behind}")


def rewritten(evidence: Evidence) -> Iterator[Violation]:
    finals = {final.id: final for final in evidence.finals}
    for before in evidence.before:
        after = finals.get(before.id)
        if after is not None and after != before:
            grown = len(after.journal) - len(before.journal)
            detail = f"{before.key} was {before.status} and is {after.status}; its journal has {grown:+} entries"
            yield Violation("rewritten", before.id, detail)


def _completed(evidence: Evidence) -> Iterator[Final]:
    return (final for final in evidence.finals if final.status == "completed")


def counting(final: Final) -> Iterator[Entry]:
    void = void_positions(final.journal)
    return (entry for at, entry in enumerate(final.journal) if at not in void)


def content(value: Value) -> Any:
    """What a value of the gate holds: all of them are small, and lie in the journal itself."""
    assert isinstance(value.json, Raw)
    return msgspec.json.decode(value.json)


def _is(step: str, name: str) -> bool:
    return name.rpartition(".")[2] == step
