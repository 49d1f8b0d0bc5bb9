"""Which effects of runs run now: those of this process by looking at them, those of others as their workers tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.kernel import running_effects
from holdfast.kernel.running_effects import StepAtWork
from holdfast.kernel.runs import Run, Status
from holdfast.ports.store import History, Store

StepsHere = Callable[[Run], tuple[StepAtWork, ...] | None]


class StepsAtWork:
    """Reads what the workers of one namespace tell. Costs nothing for runs that no worker executes."""

    def __init__(self, store: Store, namespace: str, here: StepsHere | None) -> None:
        self._store = store
        self._namespace = namespace
        self._here = here

    async def of(self, runs: Sequence[Run]) -> Mapping[str, tuple[StepAtWork, ...]]:
        """The steps at work of each run, by its id. One read for all of them.

        Whether a step has ended since its worker told of it, only the journal knows. It is read for a single run; of
        many, those that have recorded something since are left out.
        """
        found: dict[str, tuple[StepAtWork, ...]] = {}
        elsewhere: list[Run] = []
        for run in runs:
            if run.status is not Status.RUNNING or run.owner is None:
                continue
            here = None if self._here is None else self._here(run)
            if here is None:
                elsewhere.append(run)
            else:
                found[run.id] = here[: running_effects.OF_A_RUN_MAX]
        if elsewhere:
            told = await self._told(elsewhere)
            alone = len(runs) == 1
            for run in elsewhere:
                steps = told.get(run.id, ())
                if steps and not running_effects.are_as_told(run, steps):
                    steps = await self._not_ended(run, steps) if alone else ()
                found[run.id] = steps
        return found

    async def in_history(self, history: History) -> tuple[StepAtWork, ...]:
        """The steps at work of a run whose journal is at hand."""
        run = history.run
        if run.status is not Status.RUNNING or run.owner is None:
            return ()
        here = None if self._here is None else self._here(run)
        if here is not None:
            return here[: running_effects.OF_A_RUN_MAX]
        return _in(history, (await self._told([run])).get(run.id, ()))

    async def _told(self, runs: Sequence[Run]) -> dict[str, tuple[StepAtWork, ...]]:
        owners = {run.owner for run in runs if run.owner is not None}
        places = [(self._namespace, running_effects.KIND, owner) for owner in sorted(owners)]
        told = {document.id: running_effects.announced_in(document) for document in await self._store.named(places)}
        now_ms = self._store.now_ms()
        silent = {owner for owner, announced in told.items() if announced.until_ms <= now_ms}
        if silent:  # as a rule it is dead; if it lives, it could not tell
            silent -= {member.owner for member in await self._store.members(self._namespace)}
        found: dict[str, tuple[StepAtWork, ...]] = {}
        for run in runs:
            if run.owner in told:
                steps = running_effects.steps_of(run, told[run.owner].steps)
                found[run.id] = running_effects.lost(steps) if run.owner in silent else steps
        return found

    async def _not_ended(self, run: Run, steps: tuple[StepAtWork, ...]) -> tuple[StepAtWork, ...]:
        histories = await self._store.histories([run.id])
        if not histories or histories[0].run.epoch != run.epoch:
            return ()
        return _in(histories[0], steps)


def _in(history: History, steps: tuple[StepAtWork, ...]) -> tuple[StepAtWork, ...]:
    first = history.run.length - len(history.journal)
    left = running_effects.not_ended(steps, history.journal, first=first)
    return running_effects.with_beats(left, history.beats)
