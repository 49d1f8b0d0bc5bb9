"""Clients of a simulated world: each does its acts one after the other, and every operation is recorded.

An operation is `ok`, `refused` with the code of an error, or `unknown`: the store did not reply, and sending it again
did not help. One that is never told to have returned was cut short by the death of its process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace as replace_fields

from holdfast import Holdfast
from holdfast.client import Run, Signal
from holdfast.errors import HoldfastError, TransientError
from holdfast.journal import Journal
from holdfast.kernel import hooks
from holdfast.kernel.journal import GaveUp, Intended, Performed, StepEntry
from holdfast.kernel.times import Instant, Millis
from holdfast.testing.histories.history import OperationCalled, OperationReturned, Record
from holdfast.testing.histories.recording import receipt_seen
from tests.simulation.plans import Act
from tests.simulation.programs import WORKFLOWS

TRIES = 4


class NotWaitedFor(Exception):
    """It was asked for, and how it ended is not known."""


class Returned(dict[str, Any]):
    """What an operation was told, as fields of its record."""


class Acts:
    """What all clients have done so far, which each of them knows."""

    def __init__(
        self,
        record: Callable[[Record], None],
        now_ms: Callable[[], Instant],
        was_performed: Callable[[str], int | None],
    ) -> None:
        self.record = record
        self.now_ms = now_ms
        self.was_performed = was_performed
        self.runs: list[str] = []
        self.starts: list[Act] = []
        self.signals: list[tuple[str, str, str]] = []  # run, hook and dedupe id
        self.count = 0

    def run(self, pick: int) -> str | None:
        """One of the runs that are known; the latest are more likely to be of interest."""
        return self.runs[-1 - pick % min(len(self.runs), 12)] if self.runs else None


class Client:
    """Does one act after the other, by the verbs of a Holdfast."""

    def __init__(self, acts: Acts, name: str, *, patience: float) -> None:
        self._acts = acts
        self._name = name
        self._patience = patience

    async def do(self, hf: Holdfast, act: Act) -> None:
        """Do it, and record it."""
        await asyncio.sleep(act.pause)
        self._acts.count += 1
        op = f"{self._name}/{self._acts.count}"
        match act.verb:
            case "start":
                await self._start(hf, act, op)
            case "again" if self._acts.starts:
                await self._start(hf, self._acts.starts[act.pick % len(self._acts.starts)], op)
            case "other" if self._acts.starts:
                earlier = self._acts.starts[act.pick % len(self._acts.starts)]
                await self._start(hf, act_with_key(act, earlier), op)
            case "supersede":
                await self._supersede(hf, act, op)
            case "signal or start":
                await self._start(hf, act, op, signal=True)
            case "token":
                await self._operate(
                    OperationCalled(op=op, client=self._name, verb="signal", hook=f"at {act.token}", arguments="token"),
                    _told(lambda: hf.resume_hook(act.token, op, dedupe=op)),
                )
            case "set lane":
                with contextlib.suppress(TransientError):
                    await hf.set_lane(act.lane, width=act.width, paused=act.paused)
            case "find":
                await self._find(hf, act, op)
            case "signal again" if self._acts.signals:
                run_id, hook, dedupe = self._acts.signals[-1 - act.pick % min(len(self._acts.signals), 4)]
                await self._with_run(hf, replace_fields(act, hook=hook, dedupe=dedupe), op, "signal", run_id)
            case verb:
                run_id = self._acts.run(act.pick)
                if run_id is not None and verb not in {"again", "other", "signal again"}:
                    await self._with_run(hf, act, op, verb, run_id)

    # -- starts

    async def _start(self, hf: Holdfast, act: Act, op: str, *, replace: Any = None, signal: bool = False) -> None:
        workflow = WORKFLOWS[act.workflow]
        dedupe = (act.dedupe or op) if signal else ""
        request = "" if act.is_bold else op
        called = OperationCalled(
            op=op,
            client=self._name,
            verb="start",
            workflow=workflow.name,
            key=act.key,
            input=act.program,
            request=request,
            replaces="" if replace is None else replace.id,
            join=act.join,
            delay_ms=Millis(round(act.delay * 1000)),
            hook=act.hook if signal else "",
            dedupe=dedupe,
            message=hooks.key_signal_id(act.hook, dedupe) if signal else "",
        )
        self._acts.starts.append(act)

        async def start() -> Returned:
            run, created = await hf.start(
                workflow(act.program),
                key=act.key,
                retention=act.retention,
                replace=replace,
                signal=Signal(act.hook, op, dedupe) if signal else None,
                request_id=request or None,
                delay=act.delay or None,
                join=act.join,
                timeout=act.timeout,
                lane=act.lane or None,
                width=act.width or None if act.lane else None,
            )
            self._acts.runs.append(run.id)
            return Returned(run=run.id, created=created, status=run.status)

        await self._operate(called, start, tries=1 if act.is_bold and not signal else TRIES)

    async def _supersede(self, hf: Holdfast, act: Act, op: str) -> None:
        try:
            holder = await hf.find(WORKFLOWS[act.workflow], act.key)
        except HoldfastError:
            holder = None
        await self._start(hf, act, op, replace=holder)

    async def _find(self, hf: Holdfast, act: Act, op: str) -> None:
        workflow = WORKFLOWS[act.workflow]

        async def find() -> Returned:
            run = await hf.find(workflow, act.key)
            return Returned(run=run.id, status=run.status)

        called = OperationCalled(op=op, client=self._name, verb="find", workflow=workflow.name, key=act.key)
        await self._operate(called, find)

    # -- with a run

    async def _with_run(self, hf: Holdfast, act: Act, op: str, verb: str, run_id: str) -> None:
        try:
            run = await hf.get(run_id)
        except HoldfastError:
            return
        name, hook, dedupe = self._name, "", ""
        tries = TRIES
        match verb:
            case "get":
                do = _told(run.refresh)
            case "result":
                do = self._result(run)
            case "signal":
                hook, dedupe = act.hook, act.dedupe
                tries = TRIES if dedupe else 1
                if dedupe:
                    self._acts.signals.append((run.id, hook, dedupe))

                async def send() -> Returned:
                    await run.signal(hook, op, dedupe=dedupe or None)
                    return Returned(run=run.id)

                do = send
            case "cancel":
                do = self._cancel(run, wait=act.pick % 2 == 0)
            case "resume":
                do = _told(run.resume)
            case "retry":
                do = _told(run.retry)
            case "retry now":
                do = _told(run.retry_now)
            case "fork":
                do = await self._fork(run, act, op)
                tries = 1
            case "release":
                do = _told(run.release_key)
            case _:
                do = await self._decide(run)
        if do is None:
            return
        called = OperationCalled(
            op=op,
            client=name,
            verb=verb.replace(" ", "_"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            workflow=run.workflow,
            key=run.key or "",
            run=run.id,
            hook=hook,
            dedupe=dedupe,
            message=hooks.signal_id(hook, dedupe) if dedupe else "",
        )
        await self._operate(called, do, tries=tries)

    def _result(self, run: Run[Any]) -> Callable[[], Awaitable[Returned]]:
        async def result() -> Returned:
            found = await run.result(timeout=self._patience)
            return Returned(run=run.id, result=found)

        return result

    def _cancel(self, run: Run[Any], *, wait: bool) -> Callable[[], Awaitable[Returned]]:
        async def cancel() -> Returned:
            cancelling = await run.ask_cancel("no longer wanted", deadline=self._patience)
            if not wait:
                raise NotWaitedFor
            try:
                async with asyncio.timeout(4 * self._patience):
                    receipt = await cancelling.receipt()
            except TimeoutError:
                raise NotWaitedFor from None
            return Returned(run=run.id, receipt=receipt_seen(receipt))

        return cancel

    async def _fork(self, run: Run[Any], act: Act, op: str) -> Callable[[], Awaitable[Returned]] | None:
        try:
            journal = await run.journal()
        except HoldfastError:
            return None
        steps = list(dict.fromkeys(entry.step for entry in journal if isinstance(entry, StepEntry)))
        if not steps:
            return None
        step, key = steps[act.pick % len(steps)], None if act.pick % 2 else f"fork-{op}"

        async def fork() -> Returned:
            forked = await run.fork(step, key=key)
            self._acts.runs.append(forked.id)
            return Returned(run=forked.id, created=True, status=forked.status)

        return fork

    async def _decide(self, run: Run[Any]) -> Callable[[], Awaitable[Returned]] | None:
        try:
            journal = await run.journal()
        except HoldfastError:
            return None
        found = _in_doubt(journal)
        if found is None:
            return None
        number = self._acts.was_performed(found.intent.key)

        async def decide() -> Returned:
            if number is None:
                decided = await run.decide(found.step, failed="it is not known", by="a person")
            else:
                decided = await run.decide(found.step, returned=number, by="a person")
            return Returned(run=run.id, status=decided.status)

        return decide

    # -- recording

    async def _operate(
        self, called: OperationCalled, do: Callable[[], Awaitable[Returned]], tries: int = TRIES
    ) -> None:
        acts = self._acts
        acts.record(replace_fields(called, at_ms=acts.now_ms()))
        outcome, fields = "unknown", Returned()
        for number in range(tries):
            try:
                fields = await do()
            except TransientError as error:
                fields = Returned(error=error.code)
                if number + 1 < tries:
                    await asyncio.sleep(self._patience / 10)
                    continue
            except NotWaitedFor:
                pass
            except HoldfastError as error:
                # An earlier try may still arrive, and be accepted.
                outcome = "unknown" if number else "refused"
                fields = Returned(error=error.code, run=_in_the_way(error))
            else:
                outcome = "ok"
            break
        acts.record(OperationReturned(at_ms=acts.now_ms(), op=called.op, outcome=outcome, **fields))


def act_with_key(act: Act, earlier: Act) -> Act:
    """The key and the workflow of an earlier start, with another input."""
    return replace_fields(act, key=earlier.key, workflow=earlier.workflow)


def _told(verb: Callable[[], Awaitable[Run[Any]]]) -> Callable[[], Awaitable[Returned]]:
    async def do() -> Returned:
        run = await verb()
        return Returned(run=run.id, status=run.status)

    return do


def _in_the_way(error: HoldfastError) -> str:
    found: Any = getattr(error, "run", None)
    return str(getattr(found, "id", "")) or str(getattr(error, "run_id", ""))


def _in_doubt(journal: Journal) -> Intended | None:
    settled = {entry.step for entry in journal if isinstance(entry, Performed | GaveUp)}
    return next((entry for entry in journal if isinstance(entry, Intended) and entry.step not in settled), None)
