"""Rules about the calls of effects: how often, under which keys, with which arguments.

rule                                   what it compares
─────────────────────────────────────  ──────────────────────────────────────────────────────────────────
done again after its record            the ledger with the journal, at the moment of each call
a once-effect was called twice         the ledger
another key                            the keys and arguments of all calls of one step, also with the clean run's
one key for two steps                  the ledger
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from holdfast.prove.rules.comparisons import Place, is_comparable, is_same, is_same_json
from holdfast.prove.rules.declarations import Declarations
from holdfast.prove.rules.wording import of_list, of_times
from holdfast.prove.worlds.outcomes import WorldOutcome
from holdfast.prove.worlds.performing import ProvedCall
from holdfast.prove.worlds.trace import BrokenRule


def broken_by_calls(world: WorldOutcome, clean: WorldOutcome, declared: Declarations) -> Iterator[BrokenRule]:
    """What is wrong with the calls of a world."""
    for (_, step), calls in world.calls_by_step().items():
        yield from _of_step(step, calls, declared)
    yield from _unlike_clean(world, clean)
    yield from _shared_keys(world, declared)
    yield from _outside(world)


def _of_step(step: str, calls: list[ProvedCall], declared: Declarations) -> Iterator[BrokenRule]:
    again = sum(call.after_record for call in calls)
    if again:
        what = f"{step} was called {of_times(len(calls))}, {of_times(again)} of them after it had been recorded"
        yield BrokenRule(rule="done again after its record", what=what, step=step)
    happened = sum(call.happened for call in calls)
    if declared.safety(calls[0].effect) == "once" and happened > 1:
        what = f"{step} must be called once, and happened {of_times(happened)}"
        yield BrokenRule(rule="a once-effect was called twice", what=what, step=step)
    keys = list(dict.fromkeys(call.key for call in calls))
    if len(keys) > 1:
        yield BrokenRule(rule="another key", what=f"the calls of {step} had the keys {of_list(keys)}", step=step)
    elif len({call.encoded for call in calls}) > 1:
        other = next(call for call in calls if call.encoded != calls[0].encoded)
        what = f"the calls of {step} had different arguments under one key: {_differences(calls[0], other)}"
        yield BrokenRule(rule="another key", what=what, step=step)


def _unlike_clean(world: WorldOutcome, clean: WorldOutcome) -> Iterator[BrokenRule]:
    if world.root != clean.root or not is_comparable(world, clean):
        return  # keys may hold the id of the run
    known = _first_calls(clean)
    for (run_id, step), calls in world.calls_by_step().items():
        call, before = calls[0], known.get((world.name_of(run_id), step))
        if before is None or before.effect != call.effect:
            continue
        place = world.name_of(run_id), step
        if not is_same(world, clean, partial(_key_at, place)):
            what = f"{step} is called under {call.key!r} here, and under {before.key!r} in the clean run"
            yield BrokenRule(rule="another key", what=what, step=step)
        elif not is_same_json(world, clean, partial(_arguments_at, place)):
            what = f"{step} has other arguments here than in the clean run: {_differences(before, call)}"
            yield BrokenRule(rule="another key", what=what, step=step)


def _first_calls(world: WorldOutcome) -> dict[Place, ProvedCall]:
    return {(world.name_of(run_id), step): calls[0] for (run_id, step), calls in world.calls_by_step().items()}


def _key_at(place: Place, world: WorldOutcome) -> str | None:
    call = _first_calls(world).get(place)
    return None if call is None else call.key


def _arguments_at(place: Place, world: WorldOutcome) -> bytes | None:
    call = _first_calls(world).get(place)
    return None if call is None else call.encoded


def _shared_keys(world: WorldOutcome, declared: Declarations) -> Iterator[BrokenRule]:
    """One key stands for one piece of work, but an undo by hand is the undo."""
    by_key: dict[str, dict[tuple[str, str], ProvedCall]] = {}
    for call in world.calls:
        if declared.safety(call.effect) != "natural":
            by_key.setdefault(call.key, {}).setdefault((call.run, call.step), call)
    for key, places in by_key.items():
        calls = list(places.values())
        if len(calls) > 1 and not _is_one_undo(world, calls):
            steps = of_list([call.step for call in calls])
            what = f"{steps} share the key {key!r}: the other side takes the second for a repetition of the first"
            yield BrokenRule(rule="one key for two steps", what=what, step=calls[1].step)


def _is_one_undo(world: WorldOutcome, calls: list[ProvedCall]) -> bool:
    """Whether all of them take back one piece of work, in the same words; the code may have begun to by itself."""
    undos = [call for call in calls if call.is_undo]
    if not undos or len({(call.effect, call.encoded) for call in calls}) > 1:
        return False
    known = world.calls_by_step()
    undone = [known.get((call.run, call.step.removeprefix("undo:")), []) for call in undos]
    return len({(each[0].effect, each[0].key) for each in undone if each}) <= 1


def _outside(world: WorldOutcome) -> Iterator[BrokenRule]:
    """What real effects told their providers."""
    keys: dict[tuple[str, str, str], list[str]] = {}
    for seen in world.seen:
        keys.setdefault((seen.what, seen.run_id, seen.step), []).append(seen.key)
    for (what, _, step), used in keys.items():
        different = list(dict.fromkeys(used))
        if len(different) > 1:
            told = f"{step} asked for {what!r} under {len(different)} keys, {of_list(different)}"
            yield BrokenRule(rule="another key", what=f"{told}: it is done as often", step=step)


def _differences(one: ProvedCall, other: ProvedCall) -> str:
    here, there = (msgspec.json.decode(call.encoded) for call in (one, other))
    return ", ".join(
        f"{name} {here.get(name)!r} and {there.get(name)!r}" for name in here if here.get(name) != there.get(name)
    )
