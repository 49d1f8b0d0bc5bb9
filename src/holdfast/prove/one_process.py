"""One process of `holdfast prove --processes`, on a SQLite file: `python -m holdfast.prove.one_process PLAN`.

It starts the run, or finds it, works until it has settled, and says how it ended. If its plan says so it kills itself
at a boundary: before or after a commit, where an effect is entered, where it has happened.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.assembly import Holdfast, Platform, open_store
from holdfast.calls import Call
from holdfast.errors import NotPerformed
from holdfast.journal import Received
from holdfast.kernel.changes import Change, Committed
from holdfast.kernel.journal import GaveUp, Performed
from holdfast.pack import Effect
from holdfast.ports.store import Store
from holdfast.prove import cases
from holdfast.prove.cases import Case
from holdfast.prove.child_processes import reply_descriptor
from holdfast.prove.samples import CODEC
from holdfast.prove.worlds import signals
from holdfast.prove.worlds.caller import START_REQUEST, SignalPlace
from holdfast.prove.worlds.changes import described, is_boundary
from holdfast.prove.worlds.performing import ProvedPerformer, RequestedAttempt, performed_here, reconciled_in, result_in
from holdfast.run import Run
from holdfast.testing.ledger import Ledger

LEASE = "1s"
LOOK_SECONDS = 0.02


class ProcessPlan(Struct, frozen=True, kw_only=True):
    """What a process is to do."""

    target: tuple[str, ...]
    case: str
    directory: str
    die_at: int | None = None  # the number of the boundary


class ProcessEnd(Struct, frozen=True, kw_only=True):
    """How the run ended, as the process says that saw it."""

    status: str
    output: str
    attributes: str
    boundaries: tuple[str, ...]


class OneProcess:
    """Counts boundaries, writes the ledger, and dies where it shall."""

    def __init__(self, plan: ProcessPlan, case: Case) -> None:
        self.plan = plan
        self.case = case
        self.fake = case.fake_world()
        self.ledger = Ledger(Path(plan.directory) / "ledger.jsonl")
        self.boundaries: list[str] = []

    def reach(self, about: str) -> None:
        self.boundaries.append(about)
        if len(self.boundaries) - 1 == self.plan.die_at:
            self.ledger.write(died=about)
            os.kill(os.getpid(), signal.SIGKILL)

    # -- the store

    def store(self) -> Store:
        url = f"sqlite:///{Path(self.plan.directory) / 'holdfast.db'}"
        inner, _ = open_store(url, clock=SystemClock(), ids=SystemIds())
        return cast("Store", cast("object", _CountingStore(inner, self)))

    # -- effects

    def is_real(self, effect: Effect[..., Any]) -> bool:
        return effect.name in self.fake.real_effects

    async def perform(self, requested: RequestedAttempt) -> Any:
        scope = requested.scope
        encoded = CODEC.encode(requested.arguments, what=requested.effect.input_name).decode()
        self.ledger.write(call=scope.step, run=scope.run_id, key=scope.key, arguments=encoded)
        self.reach(f"right before {scope.step} is called")
        returned = await result_in(self.fake, requested)
        self.ledger.write(done=scope.step, run=scope.run_id, key=scope.key)
        self.reach(f"right after {scope.step} is done")
        return returned

    async def reconcile(self, effect: Effect[..., Any], key: str) -> Any:
        if not any("done" in line for line in self.ledger.lines(key=key)):
            raise NotPerformed
        return await reconciled_in(self.fake, effect)

    # -- the run

    async def live(self) -> ProcessEnd:
        platform = replace(Platform(), performer=partial(ProvedPerformer, self))
        async with Holdfast(self.store(), packs=self.case.packs, lease=LEASE, _platform=platform) as hf:
            workflow: Any = self.case.call.target
            request_id = None if workflow.key is not None else START_REQUEST
            run, _ = await hf.start(Call(workflow, dict(self.case.call.arguments)), request_id=request_id)
            while not run.is_settled and await self._attend(hf, run):
                await SystemClock().pause(LOOK_SECONDS)
                run = await run.refresh()
            output = (await run.result_json()).decode() if run.status == "completed" else str(run.error)
            attributes = CODEC.encode(run.attributes, what="attributes").decode()
            return ProcessEnd(
                status=run.status, output=output, attributes=attributes, boundaries=tuple(self.boundaries)
            )

    async def _attend(self, hf: Holdfast, run: Run[Any]) -> bool:
        """Send what it waits for; False if it waits for a signal that never comes."""
        waits = run.waiting_on
        for wait in waits:
            if wait.kind != "hook":
                continue
            had = sum(isinstance(each, Received) and each.hook == wait.name for each in await run.journal())
            if not signals.has_more(self.fake, wait.name, sent=had):
                return len(waits) > 1
            known = await hf.runtime.store.hook(run.id, wait.name)
            schema = None if known is None else known.schema
            payload = signals.payload_of(self.fake, wait.name, sent=had, schema=schema)
            await run.signal(wait.name, payload, dedupe=SignalPlace(run.id, wait.name, had).dedupe)
        return True


class _CountingStore:
    """A store whose commits are boundaries, and which writes into the ledger what it has recorded."""

    def __init__(self, inner: Store, process: OneProcess) -> None:
        self._inner = inner
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, changes: tuple[Change, ...]) -> Any:
        about = " and ".join(described(change) for change in changes if is_boundary(change))
        if about:
            self._process.reach(f"right before {about}")
        answers = await self._inner.commit(changes)
        for change, answer in zip(changes, answers, strict=True):
            for entry in change.entries if isinstance(answer, Committed) else ():
                if isinstance(entry, Performed | GaveUp):
                    self._process.ledger.write(recorded=entry.step, run=change.run.id if change.run else "")
        if about:
            self._process.reach(f"right after {about}")
        return answers


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=ProcessPlan)
    reply = reply_descriptor()
    modules = [importlib.import_module(name.partition(":")[0]) for name in plan.target]
    packs = cases.packs_of(modules)
    case = next(each for each in cases.find(modules, packs) if isinstance(each, Case) and each.name == plan.case)
    with performed_here(packs):
        end = asyncio.run(OneProcess(plan, case).live())
    os.write(reply, msgspec.json.encode(end))


if __name__ == "__main__":
    main()
