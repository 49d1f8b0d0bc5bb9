"""Whether what a cancelled run went on with was in a shield: its code is replayed, and the engine is asked."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from holdfast.engine.code.machine import Machine
from holdfast.engine.code.replay import replay
from holdfast.errors import HoldfastError
from holdfast.kernel.journal import Continued, Entry, Started, StepEntry
from holdfast.kernel.replay import noted
from holdfast.kernel.runs import Run, Status
from holdfast.prove.rules.declarations import Declarations
from holdfast.prove.samples import CODEC
from holdfast.prove.worlds.outcomes import WorldOutcome
from holdfast.workflow import Current


def is_shielded(world: WorldOutcome, run: Run, declared: Declarations, *, asked: int, begun: list[str]) -> bool:
    """Whether the code was in a shield when it was asked to cancel, or in all that it began after that.

    `asked` is where its journal says that it was, and `begun` are the steps that came later. Code that was in a shield
    and returns first has completed.
    """
    journal = world.journals[run.id]
    if begun and all(_is_step_shielded(world, run, declared, step, asked) for step in begun):
        return True
    if run.status is not Status.COMPLETED and begun:
        return False
    with _replayed(world, run, declared, journal[: asked + 1]) as machine:
        return machine is not None and machine.is_in_shield


def _is_step_shielded(world: WorldOutcome, run: Run, declared: Declarations, step: str, asked: int) -> bool:
    """Whether it was asked for in a shield. The time of that may be over when something is recorded of it."""
    journal = world.journals[run.id]
    told = (at for at, entry in enumerate(journal) if isinstance(entry, StepEntry) and entry.step == step)
    for length in range(asked + 1, next(told, len(journal)) + 1):
        with _replayed(world, run, declared, journal[:length]) as machine:
            if machine is not None and machine.is_shielded(step):
                return True
    return False


@contextmanager
def _replayed(
    world: WorldOutcome, run: Run, declared: Declarations, prefix: tuple[Entry, ...]
) -> Generator[Machine | None]:
    """The code of the run after these entries; nothing if it contradicts them, which another rule tells."""
    if not prefix or not isinstance(prefix[0], Started | Continued):
        yield None
        return
    first = run.length - len(world.journals[run.id])
    machine = Machine(
        declared.workflow(run.workflow),
        Current(run.id, run.key, run.workflow, run.version or None),
        codec=CODEC,
        blobs=world.blobs[run.id],
        noted=noted(prefix, first=first),
        journal=prefix,
    )
    try:
        replay(machine, run, prefix)
        yield machine
    except HoldfastError:
        yield None
    finally:
        machine.evict()
