"""What of a world can be compared with the clean one: not what follows from the clock.

All worlds of a case have the same ids and the same chance, so `uuid4()`, `random()` and the run's id are the same in
them. The time is not: whatever goes wrong takes time. So the clean run is lived once more, later and with effects that
take longer, and a value that is another one there is not compared: in JSON each value by itself, a text as a whole.

    the clean run, later and slower       what is compared with it
    ────────────────────────────────────  ──────────────────────────────────────────────────────────────────
    has the same steps, other values      everything but these values
    has other steps                       no ends, steps and arguments: its way is a question of the time
    had a timer that went off             it says nothing: a timeout is another way, see below

A world in which a timer went off that did not in the clean run has taken the way that its code has for being late: its
end and its steps are not compared either. Where the clean run is lived again just as before, everything is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from holdfast.kernel.journal import Elapsed
from holdfast.prove.schedules import CLEAN
from holdfast.prove.worlds.outcomes import WorldOutcome

Place = tuple[str, str]  # the name of a run, and a step
Part = Callable[[WorldOutcome], Any]

_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")  # of an object in memory, as its `repr` has it


def is_comparable(world: WorldOutcome, clean: WorldOutcome) -> bool:
    """Whether its end, its steps and their arguments have to be those of the clean run."""
    if late_timers(world, clean):
        return False
    return world.schedule == CLEAN or all(steps_called(each) == steps_called(clean) for each in slower_lives(clean))


def late_timers(world: WorldOutcome, clean: WorldOutcome) -> set[Place]:
    """The timers that went off in this world and not in the clean one."""
    return _timers(world) - _timers(clean)


def slower_lives(clean: WorldOutcome) -> list[WorldOutcome]:
    """The slower lives of the clean run that say something: no timer made them take another way."""
    run = clean.root_run
    return [
        each
        for each in clean.slower
        if each.is_over
        and each.root_run is not None
        and run is not None
        and each.root_run.status is run.status
        and _timers(each) == _timers(clean)
    ]


def steps_called(world: WorldOutcome) -> set[Place]:
    """The effects that were called, by their steps."""
    return {(world.name_of(run_id), step) for run_id, step in world.calls_by_step()}


def is_same(world: WorldOutcome, clean: WorldOutcome, part: Part) -> bool:
    """Whether this part of both worlds is the same, less what follows from the clock."""
    others = [] if world.schedule == CLEAN else [part(each) for each in slower_lives(clean)]
    return _agree(part(world), part(clean), others)


def is_same_json(world: WorldOutcome, clean: WorldOutcome, part: Part) -> bool:
    """The same of a part that is JSON, or missing."""
    return is_same(world, clean, lambda each: _decoded(part(each)))


def _decoded(data: bytes | str | None) -> Any:
    return None if not data else msgspec.json.decode(data)


def _timers(world: WorldOutcome) -> set[Place]:
    return {
        (world.name_of(run_id), entry.step)
        for run_id, journal in world.journals.items()
        for entry in journal
        if isinstance(entry, Elapsed)
    }


def _agree(here: Any, there: Any, others: list[Any]) -> bool:
    """Whether they are the same, value by value; one in which any of the others differs from `there` counts as that."""
    is_whole = not all(_is_alike(there, each) for each in others)
    if not is_whole and isinstance(here, dict) and isinstance(there, dict):
        mine, known = cast("dict[str, Any]", here), cast("dict[str, Any]", there)
        return mine.keys() == known.keys() and all(
            _agree(mine[name], value, [each[name] for each in others]) for name, value in known.items()
        )
    if not is_whole and isinstance(here, list) and isinstance(there, list):
        ours, theirs = cast("list[Any]", here), cast("list[Any]", there)
        return len(ours) == len(theirs) and all(
            _agree(ours[n], value, [each[n] for each in others]) for n, value in enumerate(theirs)
        )
    return any(each != there for each in others) or _without_addresses(here) == _without_addresses(there)


def _is_alike(there: Any, other: Any) -> bool:
    """Whether both are made of the same parts."""
    if isinstance(there, dict):
        return isinstance(other, dict) and cast("dict[str, Any]", other).keys() == cast("dict[str, Any]", there).keys()
    if isinstance(there, list):
        return isinstance(other, list) and len(cast("list[Any]", other)) == len(cast("list[Any]", there))
    return False


def _without_addresses(value: Any) -> Any:
    return _ADDRESS.sub("0x", value) if isinstance(value, str) else value
