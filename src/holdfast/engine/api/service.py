"""What callers can ask for: start, look up, wait for the result. The other verbs have files of their own.

signals      deliver payloads to hooks
operations   cancel, resume, retry, fork, release the key
queries      find, follow, explain
lanes        see who goes after whom, set widths, pause
bulk         apply a verb to many runs
flow         breakers and limits of effects
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.calls import Call, ItemCall, WorkflowCall
from holdfast.engine.api.admission import Admission, limited, ruled, wish
from holdfast.engine.api.bulk import Bulk
from holdfast.engine.api.flow import EffectRuleVerbs
from holdfast.engine.api.lanes import LaneVerbs
from holdfast.engine.api.operations import Operations
from holdfast.engine.api.queries import Queries, Replayed
from holdfast.engine.api.rate_limits import RateLimits
from holdfast.engine.api.registry import Description
from holdfast.engine.api.scope import Scope
from holdfast.engine.api.signals import Signals, check
from holdfast.engine.api.start_options import StartOptions, signal_of
from holdfast.engine.api.waiters import Waiters
from holdfast.engine.failures import rebuilt
from holdfast.engine.values import digest_of
from holdfast.errors import (
    EffectFailed,
    EngineFault,
    HeldUpItsWorker,
    InputRefused,
    KilledItsWorkers,
    NeverAwaited,
    NotAllowedNow,
    NotSerializable,
    ReplayDiverged,
    RunCancelled,
    RunFailed,
    RunTimedOut,
    SealedPayload,
    UnknownOutcome,
    UnknownRun,
    UnknownWorkflow,
    UsageError,
    WaitsForNothing,
)
from holdfast.kernel import attributes as attributes_, batches, flow_rules, ids, keys, lane_options, messages, traces
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.exports import ExportedJournal
from holdfast.kernel.journal import Failure, Value
from holdfast.kernel.limits import LimitVerdict
from holdfast.kernel.messages import SignalMessage
from holdfast.kernel.rates import Rate
from holdfast.kernel.runs import COMPLETED, ENDED, PENDING, SETTLED, Run, Status
from holdfast.kernel.starts import Joining, Wanted
from holdfast.kernel.timeouts import RUN_TIMED_OUT
from holdfast.kernel.times import NO_TIME, Instant
from holdfast.kernel.traces import TRACEPARENT
from holdfast.kernel.units import Duration, milliseconds
from holdfast.pack import Workflow

_decode_value = msgspec.json.Decoder(Value).decode
BLOCKED_AS = {
    error.code: error
    for error in (
        ReplayDiverged,
        UnknownOutcome,
        WaitsForNothing,
        KilledItsWorkers,
        HeldUpItsWorker,
        NeverAwaited,
        SealedPayload,
        EngineFault,
    )
}


class _Asked(Struct, frozen=True, gc=False):
    """A start, as far as it is known before anything is made of the run that it may admit."""

    call: Call[Any]
    workflow: Workflow[..., Any]
    arguments: bytes
    key: str | None
    digest: str
    run_id: str
    now_ms: Instant


class Replayer(Protocol):
    """Replays journals against the code of today."""

    async def check(self, workflow: str | None, statuses: frozenset[Status], limit: int | None) -> list[Replayed]: ...
    def export(
        self, workflow: str | None, statuses: frozenset[Status], limit: int | None
    ) -> AsyncIterator[ExportedJournal]: ...


class Service:
    """The verbs on runs of one namespace."""

    def __init__(
        self,
        scope: Scope,
        *,
        admission: Admission,
        waiters: Waiters,
        operations: Operations,
        queries: Queries,
        lanes: LaneVerbs,
        replayer: Replayer,
        limits: RateLimits,
        on_pending: Callable[[Run], None],
        on_rules_changed: Callable[[], None],
    ) -> None:
        self.scope = scope
        self.codec = scope.codec
        self.registry = scope.registry
        self.signals = Signals(scope)
        self.flow = EffectRuleVerbs(scope, on_changed=on_rules_changed)
        self.operations = operations
        self.queries = queries
        self.lanes = lanes
        self._replayer = replayer
        self._limits = limits
        self.namespace = scope.namespace
        self._store = scope.store
        self._admission = admission
        self._waiters = waiters
        self._on_pending = on_pending
        self.bulk = Bulk(scope, operations=operations, signals=self.signals, start=self.start, on_pending=on_pending)

    def call(self, workflow: str, arguments: Mapping[str, Any] | bytes) -> Call[Any]:
        """A call of the workflow of this name with arguments by name, or with the JSON object that holds them."""
        target = self.registry.workflow(workflow)
        data = arguments if isinstance(arguments, bytes) else self.codec.encode(arguments, what=target.input_name)
        signature = target.signature
        try:
            unknown = sorted(self.codec.decode(data, dict[str, Raw]).keys() - signature.names)
            decoded = self.codec.decode(data, signature.arguments_type)
        except NotSerializable as error:
            raise InputRefused(target.name, str(error.__cause__ or error)) from error
        if unknown:
            raise InputRefused(target.name, f"it has no parameter {', '.join(map(repr, unknown))} - at `$`")
        return Call(target, signature.named(decoded), fits=True)

    async def replay_check(
        self, workflow: str | None, statuses: frozenset[Status], limit: int | None
    ) -> list[Replayed]:
        """Replay stored journals against the code of today. Nothing is performed, nothing is written."""
        return await self._replayer.check(workflow, statuses, limit)

    def export_journals(
        self, workflow: str | None, statuses: frozenset[Status], limit: int | None
    ) -> AsyncIterator[ExportedJournal]:
        """Journals with all that a replay needs, newest first."""
        return self._replayer.export(workflow, statuses, limit)

    async def descriptions(self) -> tuple[Description, ...]:
        """What the workflows that are defined here declare about themselves."""
        return self.registry.descriptions()

    async def description(self, name: str) -> Description:
        """What one of them declares about itself."""
        return self.registry.description(name)

    async def start(self, call: WorkflowCall[Any], options: StartOptions) -> tuple[Run, bool]:
        """Admit `call`; the run that holds its key, and whether this start created it."""
        self.scope.require_open()
        asked, admission, is_plain = self._asked(call, options), self._admission, options.are_plain
        held_keys = admission.held_keys
        if held_keys and is_plain and (self.namespace, asked.workflow.name, asked.key) in held_keys:
            joined = await admission.join(self._joining(asked, options.request_id), now_ms=asked.now_ms)
            if joined is not None:
                return joined, False
        wanted = self._wanted(asked, options, is_plain=is_plain)
        if wanted.signal is not None:
            await self._check_payload(wanted, wanted.signal)
        run, created = await (admission.offer(wanted) if is_plain else admission.admit(wanted))
        if created and run.status is PENDING:
            self._on_pending(run)
        if created and wanted.replaces is not None:
            await self.operations.stop_if_nobody_reads(wanted.replaces, f"superseded by run {run.id}")
        return run, created

    async def start_item(self, call: ItemCall[Any], options: StartOptions) -> tuple[Run, bool, str]:
        """Put an item into a batch: the run that has it, whether this start put it there, and the item's id there."""
        self.scope.require_open()
        wanted = self._gathered(call, options)
        assert wanted.signal is not None
        run, created = await self._admission.admit(wanted)
        if run.status is PENDING and run.wake_at_ms is not None:
            self._on_pending(run)
        return run, created, wanted.signal.id

    def _gathered(self, call: ItemCall[Any], options: StartOptions) -> Wanted:
        workflow = call.target
        batch = workflow.rules.batch
        assert batch is not None, workflow
        self.registry.require(workflow)
        options.check()
        if options != StartOptions(key=options.key, request_id=options.request_id, traceparent=options.traceparent):
            raise UsageError(
                f"an item of {workflow.name} was started with options that belong to runs",
                hint="An item takes key=, which names it, and request_id=.",
            )
        data = self.codec.encode(call.item, what=f"an item of {workflow.name}")
        try:
            item = self.codec.decode(data, workflow.item_type)
        except NotSerializable as error:
            raise UsageError(
                f"an item of {workflow.name} does not fit its type: {error.__cause__ or error}",
                hint="Correct the item or the annotation.",
            ) from error
        name = options.request_id if options.key is None else options.key
        signal = self.signals.signal(batches.ITEM, call.item, name, by_key=True)
        if messages.size(signal) > batches.BYTES_MAX:
            raise UsageError(
                f"an item of {workflow.name} has {len(data):,} bytes; a batch has room for {batches.BYTES_MAX:,}",
                hint="Store it elsewhere, and start an item that says where.",
            )
        arguments = self.codec.encode({batch.parameter: []}, what=workflow.input_name)
        wanted = wish(
            self._store,
            workflow,
            arguments,
            run_id=self.scope.ids.run_id(self._store.now_ms()),
            namespace=self.namespace,
            key=batch.key(item),
            digest=digest_of(arguments),
        )
        throttle = workflow.rules.throttle
        return replace(
            wanted,
            delay_ms=batch.wait_ms,
            gathers=batch.size,
            signal=signal,
            takes=None if throttle is None else throttle.taking(workflow.name, {}),
            attributes=attributes_.encode({batches.BATCH: True}),
        )

    async def _check_payload(self, wanted: Wanted, signal: SignalMessage) -> None:
        holder = await self._store.run_of_key(wanted.namespace, wanted.workflow, wanted.key or "")
        if holder is not None:
            check(await self._store.hook(holder.id, signal.hook), signal)

    async def get(self, run_id: str) -> Run:
        return await self.scope.run(run_id)

    async def find(self, workflow: str, key: str) -> Run:
        self.scope.require_open()
        run = await self._store.run_of_key(self.namespace, workflow, key)
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

    async def input(self, run: Run) -> dict[str, Any]:
        return self._arguments(run, await self.input_json(run))

    async def input_json(self, run: Run) -> bytes:
        """The arguments of the run as they are kept."""
        if run.input is None:
            raise EngineFault(f"the input of run {run.id} cannot be read")
        return await self.scope.bytes_of(run.id, run.input)

    def _arguments(self, run: Run, data: bytes) -> dict[str, Any]:
        try:
            signature = self.registry.workflow(run.workflow).signature
        except UnknownWorkflow:
            return self.codec.decode(data, dict[str, Any])
        return signature.named(self.codec.decode(data, signature.arguments_type))

    async def result(self, run: Run, as_type: Any, timeout: Duration | None) -> Any:
        """The value that the run returned; raises what its end means."""
        if run.status not in ENDED:  # blocked is not final: it may have been retried since this snapshot
            run = await self._settled(run, timeout)
        value = self._returned(run)
        data = self.scope.at_hand(value)
        return self.codec.decode(await self.scope.blob(run.id, value) if data is None else data, as_type)

    async def wait(self, run: Run, timeout: Duration | None) -> Run:
        """The run once it has ended or is blocked."""
        return run if run.status in ENDED else await self._settled(run, timeout)

    def _settled(self, run: Run, timeout: Duration | None) -> Coroutine[Any, Any, Run]:
        """The run once it has ended or is blocked, if it may still move."""
        self.scope.require_open()
        return self._waiters.wait(run.id, None if timeout is None else milliseconds(timeout))

    async def result_json(self, run: Run) -> bytes:
        """What a settled run returned, as it is kept; raises what its end means."""
        return await self.scope.bytes_of(run.id, self._returned(run))

    def _returned(self, run: Run) -> Value:
        """The value that a settled run returned; raises what its end means."""
        if run.status not in SETTLED:
            raise NotAllowedNow(f"run {run.id} is {run.status}", hint="There is a result when it has ended.")
        if run.status is COMPLETED:
            assert run.output is not None
            return _decode_value(run.output)
        if run.status is Status.CANCELLED:
            raise RunCancelled(run.id)
        assert run.error is not None
        failure = msgspec.json.decode(run.error, type=Failure)
        if run.status is Status.BLOCKED:
            raise BLOCKED_AS[failure.type](failure.message)
        if failure.type == RUN_TIMED_OUT:
            raise RunTimedOut(failure.message, run.id)
        cause = rebuilt(failure, self.codec)
        failed = RunFailed(run.id, failure.type, failure.message, line=failure.line, traceback=failure.traceback)
        raise failed from None if isinstance(cause, EffectFailed) else cause

    async def limit(self, name: str, rate: Rate, cost: int) -> LimitVerdict:
        """Take `cost` of the rate, if all of it may go now."""
        self.scope.require_open()
        return await self._limits.limit(self.namespace, name, rate, cost)

    def _asked(self, call: WorkflowCall[Any], options: StartOptions) -> _Asked:
        """The start, if what is passed is one that can be."""
        if not isinstance(call, Call):
            raise UsageError(
                f"start() was given {type(call).__name__} {call!r:.60}",
                hint="Call the workflow: hf.start(checkout('o-1')).",
            )
        call.is_taken = True
        workflow = call.target
        if not isinstance(workflow, Workflow):
            raise UsageError(f"start() was given the effect {workflow.name!r}", hint="Start a workflow that awaits it.")
        self.registry.require(workflow)
        options.check()
        arguments = self.codec.encode(call.arguments, what=workflow.input_name)
        try:
            if not call.fits:
                self.codec.decode(arguments, workflow.signature.arguments_type)
        except NotSerializable as error:  # it would fail in the worker; say so here instead
            why = str(error.__cause__ or error).replace("$.", "")
            raise UsageError(
                f"{workflow.input_name} does not fit its annotations: {why}",
                hint="Correct the argument or the annotation.",
            ) from error
        key, now_ms = self._key_of(workflow, call, options), self._store.now_ms()
        run_id = self.scope.ids.run_id(now_ms)
        if key is None and options.request_id is not None:
            # Without a key nothing else tells a repeated request from a new one.
            name = ids.joined(self.namespace, workflow.name, options.request_id)
            run_id = blake2b(name.encode(), digest_size=16).hexdigest()
        digest = digest_of(workflow.signature.essence(call.arguments, arguments, self.codec).given)
        return _Asked(call, workflow, arguments, key, digest, run_id, now_ms)

    def _joining(self, asked: _Asked, request_id: str | None) -> Joining:
        """The start, for the holder of its key: nothing is made yet of the run that it would admit."""
        name, namespace, key = asked.workflow.name, self.namespace, asked.key
        assert key is not None, asked
        run_id = self._store.id_for(asked.run_id, namespace=namespace, workflow=name, key=key)
        return Joining(run_id, namespace, name, key, asked.digest, request_id or run_id)

    def _wanted(self, asked: _Asked, options: StartOptions, *, is_plain: bool) -> Wanted:
        """The run that it would admit."""
        workflow, key = asked.workflow, asked.key
        flow_rules.check_start(workflow.rules, options.lane, owner=workflow.lane.owner)
        wanted = wish(
            self._store,
            workflow,
            asked.arguments,
            run_id=asked.run_id,
            namespace=self.namespace,
            key=key,
            digest=asked.digest,
            request_id=options.request_id,
            enters=lane_options.entering(
                workflow.lane, asked.call.arguments, lane=options.lane, width=options.width, if_free=options.if_free
            ),
        )
        traceparent = self._traceparent(options)
        if traceparent is not None or not is_plain:
            wanted = replace(
                wanted,
                retention_ms=wanted.retention_ms if options.retention is None else milliseconds(options.retention),
                priority=options.priority,
                delay_ms=NO_TIME if options.delay is None else milliseconds(options.delay),
                attributes=_encoded_attributes(options.attributes, traceparent),
                replaces=None if options.replace is None else self._replaced(workflow, key, options.replace),
                signal=None if options.signal is None else self._first_signal(workflow, key, options),
                join=options.join,
            )
        wanted = ruled(wanted, workflow, asked.call.arguments)
        limit_ms = workflow.timeout_ms if options.timeout is None else milliseconds(options.timeout)
        return wanted if limit_ms is None else limited(wanted, workflow, limit_ms, now_ms=asked.now_ms)

    def _key_of(self, workflow: Workflow[..., Any], call: Call[Any], options: StartOptions) -> str | None:
        """The key under which the call is started: the one that the caller names, or else the workflow's own."""
        owned = None if options.replace is None else options.replace.key
        if options.key is not None:
            return keys.of_run(options.key, owned=owned)
        return None if workflow.key is None else keys.unreserved(workflow.key.fill(call.arguments), owned)

    def _traceparent(self, options: StartOptions) -> str | None:
        """The span that causes the start: the one that the caller names, or else the one that is current here."""
        if options.traceparent is not None:
            return traces.normal(options.traceparent)
        tracing = self.scope.tracing
        return None if tracing is None else tracing.traceparent()

    def _replaced(self, workflow: Workflow[..., Any], key: str | None, run: Run) -> str:
        if run.workflow != workflow.name or run.key is None or run.key != key:
            raise UsageError(
                f"run {run.id} of {run.workflow} under key {run.key!r} cannot be replaced by one of {workflow.name} "
                f"under key {key!r}",
                hint="A successor has the workflow and the key of the run that it replaces.",
            )
        return run.id

    def _first_signal(self, workflow: Workflow[..., Any], key: str | None, options: StartOptions) -> SignalMessage:
        if key is None:
            raise UsageError(f"a start of {workflow.name!r} with signal= has no key", hint="Pass key=...")
        hook, payload, dedupe = signal_of(options.signal)
        # A request that is repeated must not deliver twice.
        dedupe = options.request_id if dedupe is None else dedupe
        return self.signals.signal(hook, payload, dedupe, by_key=True)


def _encoded_attributes(wanted: Mapping[str, Scalar] | None, traceparent: str | None) -> bytes:
    if not wanted and traceparent is None:
        return b""
    own = {} if traceparent is None else {TRACEPARENT: traceparent}
    return attributes_.encode((attributes_.merged({}, attributes_.checked(wanted)) if wanted else {}) | own)
