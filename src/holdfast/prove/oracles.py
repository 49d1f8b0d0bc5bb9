"""What must hold in every world, whatever its faults were. Pure: a world that is over in, violations out.

rule                                   what it compares
─────────────────────────────────────  ──────────────────────────────────────────────────────────────────
done again after its record            the ledger with the journal, at the moment of each call
a once-effect was called twice         the ledger
another key                            the keys and arguments of all calls of one step, also with the clean run's
one key for two steps                  the ledger
another end                            status, result, attributes and markers with the clean run's
other runs                             the child runs with the clean run's
a cancellation did not end it          the journal after the request
the receipt is not what happened       the receipt with the ledger
recorded twice                         the journal
it does not replay                     every prefix of each journal with the code
it never ended, it is blocked          the run with the clean run's end
left something else behind             what the proof observes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engine.api.registry import Registry
from holdfast.engine.replay_check import divergence_of
from holdfast.errors import UnknownOutcome
from holdfast.kernel import markers
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.journal import (
    CancelAsked,
    Entry,
    Failure,
    GaveUp,
    IntentEntry,
    Marked,
    Performed,
    Stopped,
    void_positions,
)
from holdfast.kernel.runs import Run, Status
from holdfast.pack import Effect, Workflow
from holdfast.prove.lives import Lived, place_of
from holdfast.prove.performing import ProvedCall
from holdfast.prove.samples import CODEC
from holdfast.testing.simulation.hosts import BEGAN_AT_MS

_decode_failure = msgspec.json.Decoder(Failure).decode


class BrokenRule(Struct, frozen=True, kw_only=True):
    """Something that must not be: which rule it breaks, what happened, and where in the user's code."""

    rule: str
    what: str
    step: str = ""
    line: str = ""


class Judge:
    """Compares worlds with the clean one."""

    def __init__(self, clean: Lived, registry: Registry, effects: dict[str, Effect[..., Any]]) -> None:
        self._clean = clean
        self._registry = registry
        self._effects = effects
        self._replayed: set[int] = set()

    def judge(self, lived: Lived) -> list[BrokenRule]:
        """Everything that is wrong with a world, the most telling first."""
        found = [
            *(BrokenRule(rule=each.rule, what=each.what, step=each.step, line=each.line) for each in lived.noted),
            *self._calls(lived),
            *self._replays(lived),
            *self._ends(lived),
            *self._receipts(lived),
            *self._records(lived),
            *self._observed(lived),
        ]
        lines = _lines_of(lived) | _lines_of(self._clean)
        return [each if each.line else replace(each, line=self._line(each.step, lines)) for each in found]

    def _line(self, step: str, lines: dict[str, str]) -> str:
        return lines.get(step) or lines.get(step.removeprefix("undo:"), "")

    # -- calls

    def _calls(self, lived: Lived) -> Iterator[BrokenRule]:
        for (_, step), lines in _steps(lived).items():
            effect = self._effects[lines[0].effect]
            again = [line for line in lines if line.after_record]
            if again:
                what = (
                    f"{step} was called {_times(len(lines))}, {_times(len(again))} of them after it had been recorded"
                )
                yield BrokenRule(rule="done again after its record", what=what, step=step)
            if effect.policy.safety == "once" and sum(line.happened for line in lines) > 1:
                what = f"{step} must be called once, and happened {_times(sum(line.happened for line in lines))}"
                yield BrokenRule(rule="a once-effect was called twice", what=what, step=step)
            keys = list(dict.fromkeys(line.key for line in lines))
            if len(keys) > 1:
                what = f"the calls of {step} had the keys {_listed(keys)}"
                yield BrokenRule(rule="another key", what=what, step=step)
            elif len({line.encoded for line in lines}) > 1:
                what = f"the calls of {step} had different arguments under one key: {_differences(lines)}"
                yield BrokenRule(rule="another key", what=what, step=step)
        yield from self._as_in_the_clean_run(lived)
        yield from self._shared_keys(lived)
        yield from self._outside(lived)

    def _as_in_the_clean_run(self, lived: Lived) -> Iterator[BrokenRule]:
        clean = {(_name(self._clean, run_id), step): lines for (run_id, step), lines in _steps(self._clean).items()}
        if lived.root != self._clean.root:
            return  # keys may hold the id of the run
        for (run_id, step), lines in _steps(lived).items():
            before = clean.get((_name(lived, run_id), step))
            if before is None or before[0].effect != lines[0].effect:
                continue
            if before[0].key != lines[0].key:
                what = f"{step} is called under {lines[0].key!r} here, and under {before[0].key!r} in the clean run"
                yield BrokenRule(rule="another key", what=what, step=step)
            elif before[0].encoded != lines[0].encoded:
                differences = _differences([before[0], lines[0]])
                what = f"{step} has other arguments here than in the clean run: {differences}"
                yield BrokenRule(rule="another key", what=what, step=step)

    def _shared_keys(self, lived: Lived) -> Iterator[BrokenRule]:
        """One key stands for one piece of work, but an undo by hand is the undo."""
        by_key: dict[str, dict[tuple[str, str], ProvedCall]] = {}
        for line in _calls_of(lived):
            if self._effects[line.effect].policy.safety != "natural":
                by_key.setdefault(line.key, {}).setdefault((line.run, line.step), line)
        for key, places in by_key.items():
            lines = list(places.values())
            if len(lines) > 1 and not all(line.is_undo for line in lines):
                steps = _listed([line.step for line in lines])
                what = f"{steps} share the key {key!r}: the other side takes the second for a repetition of the first"
                yield BrokenRule(rule="one key for two steps", what=what, step=lines[1].step)

    def _outside(self, lived: Lived) -> Iterator[BrokenRule]:
        """What real effects told their providers."""
        keys: dict[tuple[str, str, str], list[str]] = {}
        for seen in lived.seen:
            keys.setdefault((seen.what, seen.run_id, seen.step), []).append(seen.key)
        for (what, _, step), used in keys.items():
            if len(set(used)) > 1:
                told = f"{step} asked for {what!r} under {len(set(used))} keys, {_listed(list(dict.fromkeys(used)))}"
                yield BrokenRule(rule="another key", what=f"{told}: it is done as often", step=step)

    # -- ends

    def _ends(self, lived: Lived) -> Iterator[BrokenRule]:
        run, clean = lived.root_run, self._clean.root_run
        if run is None or clean is None:
            yield BrokenRule(rule="it never ended", what="the run was never admitted")
            return
        if not lived.is_over:
            yield BrokenRule(rule="it never ended", what=f"the run is {run.status.value}, and nothing goes on")
            return
        if run.status is Status.BLOCKED and clean.status is not Status.BLOCKED:
            failure = _failure(run)
            if failure is not None and failure.type == UnknownOutcome.code and self._is_in_doubt(lived):
                return  # it waits for a person, as it must: `once` without `reconcile`
            yield BrokenRule(
                rule="it is blocked",
                what=_worded(failure),
                step="" if failure is None else failure.step,
                line="" if failure is None else failure.line,
            )
            return
        asked = _asked(lived.journals[run.id])
        if asked is not None:
            yield from self._cancelled(lived, run, asked)
            return
        yield from self._same_end(lived, run, clean)

    def _same_end(self, lived: Lived, run: Run, clean: Run) -> Iterator[BrokenRule]:
        if run.status is not clean.status:
            failure = _failure(run)
            what = f"it is {run.status.value}, and {clean.status.value} in the clean run"
            yield BrokenRule(
                rule="another end",
                what=what + ("" if failure is None else f": {_worded(failure)}"),
                line="" if failure is None else failure.line,
            )
            return
        if run.output != clean.output:
            what = f"the result is {_shown(run.output)}, and {_shown(clean.output)} in the clean run"
            yield BrokenRule(rule="another end", what=what)
        if _worded(_failure(run)) != _worded(_failure(clean)):
            what = f"it failed with {_worded(_failure(run))}, and with {_worded(_failure(clean))} in the clean run"
            yield BrokenRule(rule="another end", what=what)
        if run.attributes != clean.attributes:
            what = f"the attributes are {_shown(run.attributes)}, and {_shown(clean.attributes)} in the clean run"
            yield BrokenRule(rule="another end", what=what)
        here, there = ([name for name, _ in markers.decode(each.markers)] for each in (run, clean))
        if here != there:
            what = f"the markers are {_listed(here)}, and {_listed(there)} in the clean run"
            yield BrokenRule(rule="another end", what=what)
        ours, theirs = (Counter((each.workflow, each.key) for each in world.runs) for world in (lived, self._clean))
        if ours != theirs:
            more = ", ".join(f"{name} {key or ''}".strip() for name, key in ((ours - theirs) | (theirs - ours)))
            yield BrokenRule(rule="other runs", what=f"there are not the same child runs as in the clean run: {more}")

    def _cancelled(self, lived: Lived, run: Run, asked: int) -> Iterator[BrokenRule]:
        """A run that was told to stop has stopped, in a way that its workflow declares."""
        journal = lived.journals[run.id]
        workflow = self._registry.workflow(run.workflow)
        failure = _failure(run)
        since = [
            line
            for line in _calls_of(lived)
            if line.run == run.id and not line.is_undo and line.attempt == 1 and line.after_ms > _at(journal, asked)
        ]
        known = {line.step for line in _calls_of(lived) if line.after_ms <= _at(journal, asked)}
        begun = list(dict.fromkeys(line.step for line in since if line.step not in known))
        if run.status is Status.FAILED:
            what = f"it was cancelled, and failed: {_worded(failure)}"
            yield BrokenRule(
                rule="a cancellation did not end it", what=what, line="" if failure is None else failure.line
            )
            return
        if run.status is Status.CANCELLED and not begun:
            return
        if any(isinstance(entry, Stopped) and entry.by_deadline for entry in journal):
            what = "it was cancelled, and did not stop until the deadline"
        elif run.status is Status.COMPLETED:
            what = "it was cancelled, and completed"
        else:
            what = "it was cancelled, and went on"
        what += f": it began {_listed(begun)} after that" if begun else ""
        if self._allows(workflow, lived, run) or not (begun or run.status is Status.COMPLETED):
            return
        last = next((call.step for call in reversed(_calls_of(lived)) if call.run == run.id and not call.is_undo), "")
        yield BrokenRule(rule="a cancellation did not end it", what=what, step=begun[0] if begun else last)

    def _allows(self, workflow: Workflow[..., Any], lived: Lived, run: Run) -> bool:
        """Whether the code says itself that it may go on: in a shield, or by the outcomes that it declares."""
        if "shield" in workflow.fn.__code__.co_names:
            return True
        receipt = lived.receipts.get(run.id)
        outcome = "completed_first" if run.status is Status.COMPLETED else receipt and receipt.outcome
        return workflow.outcomes is not None and outcome in workflow.outcomes

    def _is_in_doubt(self, lived: Lived) -> bool:
        return any(
            self._effects[line.effect].policy.safety == "once" and line.outcome != "raised" for line in _calls_of(lived)
        )

    # -- receipts

    def _receipts(self, lived: Lived) -> Iterator[BrokenRule]:
        for run_id, receipt in lived.receipts.items():
            yield from self._receipt(lived, run_id, receipt)

    def _receipt(self, lived: Lived, run_id: str, receipt: Receipt) -> Iterator[BrokenRule]:
        rule = "the receipt is not what happened"
        told = {left.step: left for left in receipt.effects}
        happened = {
            step: lines
            for (of_run, step), lines in _steps(lived).items()
            if of_run == run_id and not step.startswith("undo:") and any(line.happened for line in lines)
        }
        for step in happened:
            left = told.get(step)
            if left is None and not self._was_retried(lived, run_id, step):
                yield BrokenRule(rule=rule, what=f"{step} happened, and the receipt does not name it", step=step)
            elif left is not None and left.state == "undone" and not _steps(lived).get((run_id, f"undo:{step}")):
                yield BrokenRule(rule=rule, what=f"the receipt says that {step} is undone, and it is not", step=step)
        for step, left in told.items():
            if left.state == "performed" and step not in happened:
                yield BrokenRule(
                    rule=rule, what=f"the receipt says that {step} was performed, and it was not", step=step
                )
            undo = self._effects[left.name].undo if left.name in self._effects else None
            if undo is not None and left.state != "undone" and step in happened and receipt.outcome != "resumable":
                run = next(run for run in lived.runs if run.id == run_id)
                if run.status is Status.CANCELLED or self._registry.workflow(run.workflow).undo_ms is not None:
                    why = f": {left.problem}" if left.problem else ""
                    what = f"{step} happened and has an undo, and is left {left.state}{why}"
                    yield BrokenRule(rule="left behind", what=what, step=step)

    def _was_retried(self, lived: Lived, run_id: str, step: str) -> bool:
        """Whether its last word was a failure: then the effect does not count as performed, as it said itself."""
        entries = [each for each in lived.journals[run_id] if isinstance(each, GaveUp) and each.step == step]
        return bool(entries)

    # -- records

    def _records(self, lived: Lived) -> Iterator[BrokenRule]:
        for run in lived.runs:
            journal, void = lived.journals[run.id], void_positions(lived.journals[run.id])
            first = run.length - len(journal)
            if first < 0:
                yield BrokenRule(rule="recorded twice", what=f"the journal is longer than the run says by {-first}")
                continue
            ended = Counter(
                entry.step
                for at, entry in enumerate(journal, first)
                if isinstance(entry, Performed | GaveUp) and at not in void
            )
            for step, count in ended.items():
                if count > 1:
                    yield BrokenRule(rule="recorded twice", what=f"{step} is recorded {_times(count)}", step=step)
            yield from self._markers(run, journal)

    def _markers(self, run: Run, journal: tuple[Entry, ...]) -> Iterator[BrokenRule]:
        legal = self._registry.workflow(run.workflow).markers
        reached = [entry.marker for entry in journal if isinstance(entry, Marked)]
        for before, after in pairwise(reached):
            if before in legal and after not in legal[before] and before != after:
                yield BrokenRule(rule="an illegal marker", what=f"{after!r} after {before!r}")

    def _replays(self, lived: Lived) -> Iterator[BrokenRule]:
        for run in lived.runs:
            journal = lived.journals[run.id]
            first = run.length - len(journal)
            for count in range(1, len(journal) + 1):
                prefix = journal[:count]
                digest = hash((run.workflow, tuple(map(_identity, prefix))))
                if digest in self._replayed:
                    continue
                row = replace(run, length=first + count)
                told = divergence_of(row, prefix, lived.blobs[run.id], registry=self._registry, codec=CODEC)
                if told:
                    step = prefix[-1].step if isinstance(prefix[-1], IntentEntry) else ""
                    what = f"its code does not do again what its journal says: {told.strip()}"
                    yield BrokenRule(rule="it does not replay", what=what, step=step)
                    break
                self._replayed.add(digest)

    # -- what the proof observes

    def _observed(self, lived: Lived) -> Iterator[BrokenRule]:
        run, clean = lived.root_run, self._clean.root_run
        if run is None or clean is None or not lived.is_over:
            return
        receipt = lived.receipts.get(run.id)
        is_undone = (
            run.status is Status.CANCELLED and receipt is not None and receipt.outcome in {"no_effects", "compensated"}
        )
        for name, after in lived.after.items():
            if is_undone and after != lived.before[name]:
                what = f"{name}: {after}; before the run, which was undone, it was {lived.before[name]}"
                yield self._left(lived, what)
            elif (
                run.status is clean.status
                and _asked(lived.journals[run.id]) is None
                and after != self._clean.after[name]
            ):
                what = f"{name}: {after}, and {self._clean.after[name]} in the clean run"
                yield self._left(lived, what)

    def _left(self, lived: Lived, what: str) -> BrokenRule:
        """With the step that was called more than once: it is what makes the difference, nearly always."""
        repeated = next((calls for calls in _steps(lived).values() if len(calls) > 1), None)
        if repeated is None:
            return BrokenRule(rule="left something else behind", what=what)
        step, fn = repeated[0].step, self._effects[repeated[0].effect].fn
        told = f"{what}; {step} was called {_times(len(repeated))} ({place_of(fn)})"
        return BrokenRule(rule="left something else behind", what=told, step=step)


def _calls_of(lived: Lived) -> list[ProvedCall]:
    return cast("list[ProvedCall]", list(lived.ledger))


def _steps(lived: Lived) -> dict[tuple[str, str], list[ProvedCall]]:
    """The calls by run and step."""
    found: dict[tuple[str, str], list[ProvedCall]] = {}
    for call in _calls_of(lived):
        found.setdefault((call.run, call.step), []).append(call)
    return found


def _identity(entry: Entry) -> Any:
    """An entry without its time: journals that differ in nothing else replay alike."""
    return msgspec.json.encode(replace(entry, at_ms=0))


def _name(lived: Lived, run_id: str) -> str:
    if run_id == lived.root:
        return "root"
    return next((f"{run.workflow}/{run.key}" for run in lived.runs if run.id == run_id), run_id)


def _asked(journal: tuple[Entry, ...]) -> int | None:
    return next((at for at, entry in enumerate(journal) if isinstance(entry, CancelAsked)), None)


def _at(journal: tuple[Entry, ...], position: int) -> int:
    """When an entry was recorded, in the time of the world."""
    return journal[position].at_ms - BEGAN_AT_MS


def _lines_of(lived: Lived) -> dict[str, str]:
    return {
        entry.step: entry.intent.line
        for journal in lived.journals.values()
        for entry in journal
        if isinstance(entry, IntentEntry) and entry.intent.line
    }


def _failure(run: Run) -> Failure | None:
    return None if run.error is None else _decode_failure(run.error)


def _worded(failure: Failure | None) -> str:
    return "nothing" if failure is None else f"{failure.type.rpartition('.')[2]}: {failure.message}"


def _shown(data: bytes | None) -> str:
    text = "nothing" if not data else data.decode()
    text = text.removeprefix('{"json":').removesuffix("}") if text.startswith('{"json":') else text
    return text if len(text) <= 120 else f"{text[:117]}..."


def _differences(lines: list[ProvedCall]) -> str:
    one, other = (
        msgspec.json.decode(line.encoded)
        for line in (lines[0], next(line for line in lines if line.encoded != lines[0].encoded))
    )
    return ", ".join(
        f"{name} {one.get(name)!r} and {other.get(name)!r}" for name in one if one.get(name) != other.get(name)
    )


def _listed(words: list[str]) -> str:
    return ", ".join(words[:-1]) + f" and {words[-1]}" if len(words) > 1 else "".join(words) or "none"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
