"""What callers can ask for: start, look up, wait, read the journal, retry. One place, whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.engine.admission import Admission
from holdfast.engine.committer import Committer
from holdfast.engine.events import Emit, RunRetried
from holdfast.engine.failures import rebuilt
from holdfast.engine.outcomes import SETTLED, Outcomes
from holdfast.engine.registry import Registry
from holdfast.engine.values import digest_of, inline, kept
from holdfast.errors import (
    EffectFailed,
    EngineFault,
    NotSerializable,
    ReplayDiverged,
    RunCancelled,
    RunFailed,
    TimedOut,
    UnknownOutcome,
    UnknownRun,
    UnknownWorkflow,
    UsageError,
    WaitsForNothing,
)
from holdfast.kernel import keys, runs
from holdfast.kernel.changes import Committed, Run, Status
from holdfast.kernel.journal import Entry, Failure, Value
from holdfast.kernel.starts import Wanted
from holdfast.kernel.units import Duration, milliseconds
from holdfast.pack import Call, Workflow
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.ports.store import History, Store

BLOCKED_AS = {error.code: error for error in (ReplayDiverged, UnknownOutcome, WaitsForNothing, EngineFault)}
PRIORITY_MAX = 1_000_000


class StartOptions(Struct, frozen=True, kw_only=True):
    """How a run is to be started, beyond its input."""

    key: str | None = None
    retention: Duration | None = None
    request_id: str | None = None
    delay: Duration | None = None
    priority: int = 0


class Service:
    """The operations on runs of one namespace."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        *,
        admission: Admission,
        outcomes: Outcomes,
        registry: Registry,
        codec: Codec,
        ids: Ids,
        emit: Emit,
        namespace: str,
        on_pending: Callable[[Run], None],
    ) -> None:
        self.is_open = False
        self.codec = codec
        self.registry = registry
        self._store = store
        self._committer = committer
        self._admission = admission
        self._outcomes = outcomes
        self._ids = ids
        self._emit = emit
        self._namespace = namespace
        self._on_pending = on_pending

    async def start(self, call: Call[Any], options: StartOptions) -> tuple[Run, bool]:
        """Admit `call`; the run that holds its key, and whether this start created it."""
        self._require_open()
        run, created = await self._admission.admit(self._wanted(call, options))
        if created and run.status is Status.PENDING:
            self._on_pending(run)
        return run, created

    def _require_open(self) -> None:
        if not self.is_open:
            raise UsageError("this Holdfast is not open", hint="Use it inside `async with Holdfast(...) as hf:`.")

    async def get(self, run_id: str) -> Run:
        self._require_open()
        run = await self._store.run(self._namespace, run_id)
        if run is None:
            raise UnknownRun(f"no run of namespace {self._namespace!r} has the id {run_id!r}")
        return run

    async def find(self, workflow: str, key: str) -> Run:
        self._require_open()
        run = await self._store.run_of_key(self._namespace, workflow, key)
        if run is None:
            raise UnknownRun(f"no run of workflow {workflow!r} holds the key {key!r}")
        return run

    def full_name(self, workflow: str) -> str:
        """The workflow's full name. Names of workflows that are not defined here are taken as they are."""
        try:
            return self.registry.workflow(workflow).name
        except UnknownWorkflow:
            if "." in workflow:
                return workflow
            raise

    def returns_of(self, workflow: str) -> Any:
        """The type of the workflow's result; plain JSON types if it is not defined here."""
        try:
            return self.registry.workflow(workflow).signature.returns
        except UnknownWorkflow:
            return Any

    async def history(self, run_id: str) -> History:
        histories = await self._store.histories([run_id])
        if not histories:
            raise UnknownRun(f"no run has the id {run_id!r}")
        return histories[0]

    async def journal(self, run_id: str) -> tuple[Entry, ...]:
        return (await self.history(run_id)).journal

    def input_of(self, run: Run) -> dict[str, Any]:
        if run.input is None:
            raise EngineFault(f"the input of run {run.id} cannot be read")
        data = inline(run.input)
        if data is None:
            raise UsageError(
                f"the input of run {run.id} has {run.input.size:,} bytes and is not part of the snapshot",
                hint="Use `await run.load_input()`.",
            )
        return self._arguments(run, data)

    async def load_input(self, run: Run) -> dict[str, Any]:
        if run.input is None:
            raise EngineFault(f"the input of run {run.id} cannot be read")
        return self._arguments(run, await self._bytes_of(run.id, run.input))

    def _arguments(self, run: Run, data: bytes) -> dict[str, Any]:
        try:
            signature = self.registry.workflow(run.workflow).signature
        except UnknownWorkflow:
            return self.codec.decode(data, dict[str, Any])
        return signature.named(self.codec.decode(data, signature.arguments_type))

    async def result(self, run: Run, as_type: Any, timeout: Duration | None) -> Any:
        """The value that the run returned; raises what its end means."""
        if run.status not in SETTLED:
            run = await self._settled(run.id, timeout)
        if run.status is Status.COMPLETED:
            assert run.output is not None
            value = msgspec.json.decode(run.output, type=Value)
            return self.codec.decode(await self._bytes_of(run.id, value), as_type)
        if run.status is Status.CANCELLED:
            raise RunCancelled(run.id)
        assert run.error is not None
        failure = msgspec.json.decode(run.error, type=Failure)
        if run.status is Status.BLOCKED:
            raise BLOCKED_AS[failure.type](failure.message)
        cause = rebuilt(failure, self.codec)
        raise RunFailed(run.id, failure.type, failure.message) from None if isinstance(cause, EffectFailed) else cause

    async def _settled(self, run_id: str, timeout: Duration | None) -> Run:
        if timeout is None:
            return await self._outcomes.wait(run_id)
        try:
            async with asyncio.timeout(milliseconds(timeout) / 1000):
                return await self._outcomes.wait(run_id)
        except TimeoutError:
            raise TimedOut(
                f"run {run_id} has not ended within {timeout}", hint="It goes on; ask for its result again later."
            ) from None

    async def retry(self, run_id: str) -> Run:
        """Try a failed or blocked run again from its last record."""
        history = await self.history(run_id)
        change = runs.retry(history.run, history.journal, now_ms=self._store.now_ms())
        answer = await self._committer.commit(change)
        if isinstance(answer, Committed):
            assert answer.run is not None
            self._emit(RunRetried(run_id))
            self._on_pending(answer.run)
            return answer.run
        return await self.get(run_id)  # somebody else has moved it meanwhile

    async def _bytes_of(self, run_id: str, value: Value) -> bytes:
        data = inline(value)
        if data is None:
            data = await self._store.blob(run_id, value.blob)
        if data is None:
            raise UnknownRun(f"run {run_id} has been removed")
        return data

    def _wanted(self, call: Call[Any], options: StartOptions) -> Wanted:
        if not isinstance(call, Call):
            raise UsageError(
                f"start() was given {type(call).__name__} {call!r:.60}",
                hint="Call the workflow: hf.start(checkout('o-1')).",
            )
        workflow = call.target
        if not isinstance(workflow, Workflow):
            raise UsageError(f"start() was given the effect {workflow.name!r}", hint="Start a workflow that awaits it.")
        if not self.registry.known(workflow):
            raise UnknownWorkflow(workflow.name, self.registry.workflow_names)
        if type(options.priority) is not int or abs(options.priority) > PRIORITY_MAX:
            raise UsageError(
                f"priority {options.priority!r} is not possible", hint=f"Use a whole number, ±{PRIORITY_MAX:,} at most."
            )
        if options.request_id is not None:
            keys.checked(options.request_id)
        arguments = self.codec.encode(call.arguments, what=workflow.input_name)
        try:
            self.codec.decode(arguments, workflow.signature.arguments_type)
        except NotSerializable as error:  # it would fail in the worker; say so here instead
            why = str(error.__cause__ or error).replace("$.", "")
            raise UsageError(
                f"{workflow.input_name} does not fit its annotations: {why}",
                hint="Correct the argument or the annotation.",
            ) from error
        key = options.key
        if key is not None:
            keys.checked(key)
        elif workflow.key is not None:
            key = workflow.key.fill(call.arguments)
        run_id = self._ids.run_id(self._store.now_ms())
        if options.request_id is not None and key is None:
            # Without a key nothing else tells a repeated request from a new one.
            name = f"{self._namespace}/{workflow.name}/{options.request_id}"
            run_id = blake2b(name.encode(), digest_size=16).hexdigest()
        value, blobs = kept(arguments)
        return Wanted(
            run_id=run_id,
            namespace=self._namespace,
            workflow=workflow.name,
            key=key,
            queue=workflow.queue,
            priority=options.priority,
            delay_ms=0 if options.delay is None else milliseconds(options.delay),
            retention_ms=workflow.retention_ms if options.retention is None else milliseconds(options.retention),
            digest=digest_of(workflow.signature.essence(call.arguments, arguments, self.codec)),
            request_id=options.request_id or run_id,
            input=value,
            blobs=blobs,
        )
