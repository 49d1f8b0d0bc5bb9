"""Rules about how a run ends, and what it leaves behind.

rule                                   what it compares
─────────────────────────────────────  ──────────────────────────────────────────────────────────────────
another end                            status, result, attributes and markers with the clean run's
other runs                             the child runs with the clean run's
other steps                            the effects that happened in the clean run with those that were asked for
a cancellation did not end it          the journal after the request
it never ended, it is blocked          the run with the clean run's end
left something else behind             what the proof observes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.errors import UnknownOutcome
from holdfast.kernel import markers
from holdfast.kernel.journal import Dropped, GaveUp, Intended, IntentEntry, Performed, StepEntry, Stopped
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Millis
from holdfast.prove.rules.comparisons import Place, is_comparable, is_same, is_same_json, steps_called
from holdfast.prove.rules.declarations import Declarations
from holdfast.prove.rules.shielded import is_shielded
from holdfast.prove.rules.wording import failure_of, of_failure, of_list, of_times, of_value, place_of
from holdfast.prove.schedules import CLEAN
from holdfast.prove.worlds.outcomes import WorldOutcome
from holdfast.prove.worlds.trace import BrokenRule
from holdfast.testing.simulation.hosts import BEGAN_AT_MS


def broken_by_end(world: WorldOutcome, clean: WorldOutcome, declared: Declarations) -> Iterator[BrokenRule]:
    """What is wrong with the end of the run of a world."""
    run, expected = world.root_run, clean.root_run
    if run is None or expected is None:
        yield BrokenRule(rule="it never ended", what="the run was never admitted")
    elif not world.is_over:
        yield BrokenRule(rule="it never ended", what=f"the run is {run.status.value}, and nothing goes on")
    elif run.status is Status.BLOCKED and expected.status is not Status.BLOCKED:
        yield from _blocked(world, run, declared)
    elif (asked := world.cancel_position(run.id)) is not None:
        yield from _cancelled(world, run, declared, asked=asked)
    elif is_comparable(world, clean):
        yield from _unlike_clean(world, clean, run, expected)
        if run.status is expected.status:
            yield from _other_runs(world, clean)
            yield from _other_steps(world, clean)


def broken_by_observations(world: WorldOutcome, clean: WorldOutcome, declared: Declarations) -> Iterator[BrokenRule]:
    """What a world leaves behind that the clean one does not; or that was not there before, if its run was undone."""
    run, expected = world.root_run, clean.root_run
    if run is None or expected is None or not world.is_over:
        return
    receipt = world.receipts.get(run.id)
    is_undone = (
        run.status is Status.CANCELLED and receipt is not None and receipt.outcome in {"no_effects", "compensated"}
    )
    is_alike = (
        run.status is expected.status and world.cancel_position(run.id) is None and _has_to_look_alike(world, clean)
    )
    for name, after in world.after.items():
        if is_undone and after != world.before[name]:
            what = f"{name}: {after}; before the run, which was undone, it was {world.before[name]}"
            yield _left(world, declared, what)
        elif is_alike and not is_same_json(world, clean, lambda each, name=name: each.after.get(name)):
            yield _left(world, declared, f"{name}: {after}, and {clean.after[name]} in the clean run")


def _has_to_look_alike(world: WorldOutcome, clean: WorldOutcome) -> bool:
    """Whether it took the way of the clean run; or another one, on which what was given up has happened as well."""
    if is_comparable(world, clean):
        return True
    return bool(_given_up(world)) and bool(_happened(world) - steps_called(clean))


def _given_up(world: WorldOutcome) -> set[Place]:
    """What the code did not wait for any longer, and what happened all the same."""
    return _noted(world, Dropped) & _happened(world)


def _blocked(world: WorldOutcome, run: Run, declared: Declarations) -> Iterator[BrokenRule]:
    failure = failure_of(run)
    if failure is None:
        yield BrokenRule(rule="it is blocked", what=of_failure(failure))
        return
    if failure.type == UnknownOutcome.code and _is_in_doubt(world, run, declared):
        return  # it waits for a person, as it must: `once` without `reconcile`
    yield BrokenRule(rule="it is blocked", what=of_failure(failure), step=failure.step, line=failure.line)


def _is_in_doubt(world: WorldOutcome, run: Run, declared: Declarations) -> bool:
    """Whether an effect that must be called once was recorded as intended, and it is not known what came of it."""
    journal = world.journals[run.id]
    ended = {entry.step for entry in journal if isinstance(entry, Performed | GaveUp)}
    return any(
        isinstance(entry, Intended) and entry.step not in ended and declared.safety(entry.intent.name) == "once"
        for entry in journal
    )


def _unlike_clean(world: WorldOutcome, before: WorldOutcome, run: Run, clean: Run) -> Iterator[BrokenRule]:
    failure, expected = failure_of(run), failure_of(clean)
    if run.status is not clean.status:
        what = f"it is {run.status.value}, and {clean.status.value} in the clean run"
        yield BrokenRule(
            rule="another end",
            what=what + ("" if failure is None else f": {of_failure(failure)}"),
            line="" if failure is None else failure.line,
        )
        return
    if not is_same_json(world, before, lambda each: _root(each).output):
        what = f"the result is {of_value(run.output)}, and {of_value(clean.output)} in the clean run"
        yield BrokenRule(rule="another end", what=what)
    if not is_same(world, before, lambda each: of_failure(failure_of(_root(each)))):
        what = f"it failed with {of_failure(failure)}, and with {of_failure(expected)} in the clean run"
        yield BrokenRule(rule="another end", what=what)
    if not is_same_json(world, before, lambda each: _root(each).attributes):
        what = f"the attributes are {of_value(run.attributes)}, and {of_value(clean.attributes)} in the clean run"
        yield BrokenRule(rule="another end", what=what)
    if not is_same(world, before, _markers):
        here, there = _markers(world), _markers(before)
        what = f"the markers are {of_list(here)}, and {of_list(there)} in the clean run"
        yield BrokenRule(rule="another end", what=what)


def _root(world: WorldOutcome) -> Run:
    run = world.root_run
    assert run is not None
    return run


def _markers(world: WorldOutcome) -> list[str]:
    return [name for name, _ in markers.decode(_root(world).markers)]


def _children(world: WorldOutcome) -> list[tuple[str, str]]:
    return sorted((run.workflow, run.key or "") for run in world.runs)


def _other_runs(world: WorldOutcome, clean: WorldOutcome) -> Iterator[BrokenRule]:
    if not is_same(world, clean, lambda each: [list(child) for child in _children(each)]):
        ours, theirs = Counter(_children(world)), Counter(_children(clean))
        more = ", ".join(f"{name} {key}".strip() for name, key in ((ours - theirs) | (theirs - ours)))
        yield BrokenRule(rule="other runs", what=f"there are not the same child runs as in the clean run: {more}")


def _other_steps(world: WorldOutcome, clean: WorldOutcome) -> Iterator[BrokenRule]:
    """What the clean run has done, this world has at least asked for: it ends alike, so it needed it as well."""
    missing = _happened(clean) - _asked(world)
    if world.schedule == CLEAN:
        yield from _skipped(_happened(world) - _asked(clean), "another life of the clean run does, and one does not")
        for life in clean.earlier:
            missing |= _happened(life) - _asked(clean)
    here = {world.name_of(run.id) for run in world.runs}  # the key of a child may hold the time
    yield from _skipped({place for place in missing if place[0] in here}, "the clean run does it")


def _skipped(places: set[Place], why: str) -> Iterator[BrokenRule]:
    for _, step in sorted(places):
        what = f"{step} is not performed, though the run ends alike, and {why}: what a process keeps in memory decides"
        yield BrokenRule(rule="other steps", what=what, step=step)


def _happened(world: WorldOutcome) -> set[Place]:
    return {
        (world.name_of(run_id), step)
        for (run_id, step), calls in world.calls_by_step().items()
        if any(call.happened for call in calls)
    }


def _asked(world: WorldOutcome) -> set[Place]:
    """What was asked for; of runs that are in this world."""
    return _noted(world, IntentEntry) | steps_called(world)


def _noted(world: WorldOutcome, kind: type[StepEntry]) -> set[Place]:
    """The steps that have an entry of this kind."""
    return {
        (world.name_of(run_id), entry.step)
        for run_id, journal in world.journals.items()
        for entry in journal
        if isinstance(entry, kind)
    }


def _cancelled(world: WorldOutcome, run: Run, declared: Declarations, *, asked: int) -> Iterator[BrokenRule]:
    """A run that was told to stop has stopped, in a way that its workflow declares."""
    rule, journal = "a cancellation did not end it", world.journals[run.id]
    begun = _begun_after(world, run, after_ms=Millis(journal[asked].at_ms - BEGAN_AT_MS))
    if run.status is Status.FAILED:
        failure = failure_of(run)
        what = f"it was cancelled, and failed: {of_failure(failure)}"
        yield BrokenRule(rule=rule, what=what, line="" if failure is None else failure.line)
        return
    if run.status is Status.CANCELLED and not begun:
        return
    if any(isinstance(entry, Stopped) and entry.by_deadline for entry in journal):
        what = "it was cancelled, and did not stop until the deadline"
    elif run.status is Status.COMPLETED:
        what = "it was cancelled, and completed"
    else:
        what = "it was cancelled, and went on"
    what += f": it began {of_list(begun)} after that" if begun else ""
    if _may_go_on(declared, world, run, asked=asked, begun=begun) or not (begun or run.status is Status.COMPLETED):
        return
    last = next((call.step for call in reversed(world.calls) if call.run == run.id and not call.is_undo), "")
    yield BrokenRule(rule=rule, what=what, step=begun[0] if begun else last)


def _begun_after(world: WorldOutcome, run: Run, *, after_ms: Millis) -> list[str]:
    """The steps of a run that were called for the first time when so much of the world had passed."""
    known = {call.step for call in world.calls if call.after_ms <= after_ms}
    first = (call.step for call in world.calls if call.run == run.id and not call.is_undo and call.attempt == 1)
    return list(dict.fromkeys(step for step in first if step not in known))


def _may_go_on(declared: Declarations, world: WorldOutcome, run: Run, *, asked: int, begun: list[str]) -> bool:
    """Whether the code says itself that it may go on: in a shield, or by the outcomes that it declares."""
    if is_shielded(world, run, declared, asked=asked, begun=begun):
        return True
    outcomes, receipt = declared.workflow(run.workflow).outcomes, world.receipts.get(run.id)
    outcome = "completed_first" if run.status is Status.COMPLETED else receipt and receipt.outcome
    return outcomes is not None and outcome in outcomes


def _left(world: WorldOutcome, declared: Declarations, what: str) -> BrokenRule:
    """With the step that was called more than once, or was given up: it makes the difference, nearly always."""
    rule = "left something else behind"
    repeated = next((calls for calls in world.calls_by_step().values() if len(calls) > 1), None)
    if repeated is None:
        given_up = min((step for _, step in _given_up(world)), default="")
        told = f"{what}; {given_up} was not waited for any longer, and has happened" if given_up else what
        return BrokenRule(rule=rule, what=told, step=given_up)
    step, fn = repeated[0].step, declared.effects[repeated[0].effect].fn
    told = f"{what}; {step} was called {of_times(len(repeated))} ({place_of(fn)})"
    return BrokenRule(rule=rule, what=told, step=step)
