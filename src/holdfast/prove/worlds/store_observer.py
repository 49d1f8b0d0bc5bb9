"""The observer of the store of one world: finds the boundaries in its calls, and tells what it has recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from holdfast.kernel.changes import Answer, Change, Committed
from holdfast.kernel.runs import Fenced
from holdfast.ports.notices import Notice
from holdfast.ports.store import Claimed
from holdfast.prove.schedules import BoundaryKind, Phase
from holdfast.prove.worlds.changes import described, is_boundary, line_in, step_in
from holdfast.prove.worlds.faults import FaultInjector
from holdfast.prove.worlds.trace import WorldTrace
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.network import Fate, StoreCall

TRAVEL_SECONDS = 0.001  # of a call to the store, each way
CALLER = "caller"  # how the names of the hosts begin that only call


class StoreObserver:
    """An `Observer` of a `StoreModel`. `on_commit` is called when a commit was applied."""

    def __init__(
        self,
        trace: WorldTrace,
        faults: FaultInjector,
        *,
        has_ready: Callable[[], bool],
        on_commit: Callable[[], None],
    ) -> None:
        self._trace = trace
        self._faults = faults
        self._has_ready = has_ready
        self._on_commit = on_commit
        self._epochs: dict[str, int] = {}  # the highest one of each run that a claim was told

    def fate(self, call: StoreCall) -> Fate:
        return self._reach("before", call) or Fate(TRAVEL_SECONDS, TRAVEL_SECONDS)

    def notice(self, host: Host, notice: Notice) -> tuple[float, ...]:  # noqa: ARG002
        return (TRAVEL_SECONDS,)

    def applied(self, call: StoreCall, result: object) -> None:
        if call.verb == "claim" and isinstance(result, Claimed):
            self._epochs.update((run.id, run.epoch) for run in result.runs)
            if not result.runs:
                return
        if call.verb == "rescue" and isinstance(result, list):
            for run_id in cast("list[str]", result):
                self._trace.tell("commit", f"the runs of a dead worker are freed: {run_id}", host=call.host.name)
        if call.verb == "commit" and isinstance(result, list):
            for change, answer in zip(call.args[0], cast("list[Answer]", result), strict=True):
                self._see(call.host, change, answer)
        self._reach("after", call)
        if self._faults.is_live and call.verb == "commit":
            self._on_commit()

    def replied(self, call: StoreCall) -> None: ...

    def _see(self, host: Host, change: Change, answer: Answer) -> None:
        about = described(change)
        if not isinstance(answer, Committed):
            if isinstance(change.guard, Fenced):
                self._trace.tell("refused", f"refused: {about}", host=host.name)
            return
        if not change.entries:
            return
        step = step_in(change)
        if isinstance(change.guard, Fenced) and change.guard.epoch < self._epochs.get(change.guard.run_id, 0):
            self._trace.note("a late write was taken", f"{host.name}, which had lost the run, {about}", step=step)
        self._trace.tell("commit", about, host=host.name, step=step)

    def _reach(self, phase: Phase, call: StoreCall) -> Fate | None:
        host, is_caller = call.host, call.host.name.startswith(CALLER)
        sent = call if phase == "before" else None
        match call.verb:
            case "commit":
                changes: list[Change] = [change for change in call.args[0] if is_boundary(change)]
                if not changes:
                    return None
                kind: BoundaryKind = "acknowledgement" if is_caller else "commit"
                return self._faults.reach(
                    kind,
                    phase,
                    host,
                    about=" and ".join(map(described, changes)),
                    line=next((line for change in changes if (line := line_in(change))), ""),
                    call=sent,
                )
            case "claim" if not is_caller and (phase == "after" or self._has_ready()):
                return self._faults.reach("claim", phase, host, about="a worker takes the run", call=sent)
            case "renew" if phase == "before" and not is_caller:
                return self._faults.reach("renewal", phase, host, about="the lease is renewed", call=sent)
            case _:
                return None
