"""Traces for OpenTelemetry: a run is a span, and each attempt of its effects is a span below it.

Rules
- The span of a run lasts from its admission to its end. It is made when the run ends, by whichever process ends it,
  under the id that `kernel.traces` derives from the run's id. So one run has one span, however many processes had it.
- The span of an attempt is current while the effect is performed: instrumented clients pass it on, and what they do
  appears below it. It ends with the attempt; an attempt whose process died has none.
- The sampler of the provider decides. It is asked for a run whenever its place is needed and must answer alike each
  time, as those that go by the parent or by the trace's id do.
- Whatever goes wrong here is said on stderr and does no harm to the run.
"""

from __future__ import annotations

import asyncio
import copy
import sys
import traceback
from collections.abc import Callable, Coroutine
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.engine.attempts import AttemptOutcome, AttemptRaised, AttemptRefused
from holdfast.engine.failures import worded
from holdfast.engine.tracing import Tried
from holdfast.errors import InvalidConfig
from holdfast.events import Event, RunEnded
from holdfast.kernel import traces
from holdfast.kernel.journal import Failure
from holdfast.kernel.runs import Status
from holdfast.kernel.traces import Caused, Lineage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, TracerProvider

T = TypeVar("T")
_NANOSECONDS = 1_000_000  # in a millisecond


class Traces:
    """Takes part in traces: a listener of the engine's events, and its `Tracing`."""

    def __init__(self, provider: TracerProvider) -> None:
        try:
            from opentelemetry import context, trace  # noqa: PLC0415 - it is not part of the core install
            from opentelemetry.sdk.trace import TracerProvider as SdkProvider  # noqa: PLC0415
        except ImportError as error:
            raise InvalidConfig(
                "traces need opentelemetry-sdk, which is not installed",
                hint="Install Holdfast with its extra `otel`.",
            ) from error
        if not isinstance(provider, SdkProvider):
            raise InvalidConfig(
                f"traces={type(provider).__name__} is not a tracer provider of the OpenTelemetry SDK",
                hint="Pass opentelemetry.sdk.trace.TracerProvider(...).",
            )
        self._trace = trace
        self._context = context
        self._sampler = provider.sampler
        self._tracer = provider.get_tracer("holdfast", metadata.version("holdfast"))
        # Its spans have the ids that it is told; apart from that it is the same. See decision record 0019.
        self._run_ids = _GivenIds()
        self._run_tracer = copy.copy(self._tracer)
        self._run_tracer.id_generator = self._run_ids  # pyright: ignore[reportAttributeAccessIssue] - of the SDK's tracer

    # -- Tracing

    def traceparent(self) -> str | None:
        """The span that is current where this is called; None if there is none."""
        current = self._trace.get_current_span().get_span_context()
        return _caused(current).header if current.is_valid else None

    async def around(
        self, work: Coroutine[Any, Any, AttemptOutcome | AttemptRefused], tried: Tried
    ) -> AttemptOutcome | AttemptRefused:
        """`work`, with a span of its own that is current while it lasts."""
        span = _sparing(lambda: self._begun(tried))
        if span is None:
            return await work
        # Nothing of the task's own context: it was inherited from the code that happened to run then.
        token = self._context.attach(self._trace.set_span_in_context(span, self._context.Context()))
        try:
            outcome = await work
        except asyncio.CancelledError:
            span.set_attribute("holdfast.interrupted", True)
            raise
        else:
            if isinstance(outcome, AttemptRaised):
                error = outcome.error
                _sparing(lambda: self._failed(span, error))
            return outcome
        finally:
            self._context.detach(token)
            _sparing(span.end)

    def _begun(self, tried: Tried) -> Span:
        run = tried.run
        return self._tracer.start_span(
            tried.effect,
            context=self._below(run.id, run.workflow, traces.lineage_of(run.attributes)),
            attributes={
                "holdfast.run_id": run.id,
                "holdfast.workflow": run.workflow,
                "holdfast.effect": tried.effect,
                "holdfast.effect_key": tried.key,
                "holdfast.step": tried.step,
                "holdfast.attempt": tried.attempt,
            },
        )

    def _failed(self, span: Span, error: BaseException) -> None:
        span.set_status(self._trace.StatusCode.ERROR, worded(error))
        span.record_exception(error)  # at last: it asks the exception for its words, which may fail

    # -- the engine's events

    def __call__(self, event: Event) -> None:
        """Make the span of a run that has ended."""
        if isinstance(event, RunEnded):
            self._ended(event)

    def _ended(self, event: RunEnded) -> None:
        lineage = Lineage(event.parent, event.root, event.traceparent)
        self._run_ids.trace_id = _trace_id(event.run_id, lineage)
        self._run_ids.span_id = traces.span_id(event.run_id)
        span = self._run_tracer.start_span(
            event.workflow,
            context=self._above(lineage),
            start_time=event.created_at_ms * _NANOSECONDS,
            attributes={
                "holdfast.run_id": event.run_id,
                "holdfast.namespace": event.namespace,
                "holdfast.workflow": event.workflow,
                "holdfast.status": event.status,
            }
            | ({} if event.key is None else {"holdfast.key": event.key}),
        )
        end_time = (event.created_at_ms + event.elapsed_ms) * _NANOSECONDS
        if event.status == Status.FAILED:
            failure = msgspec.json.decode(event.error, type=Failure)
            told = {"exception.type": failure.type, "exception.message": failure.message}
            span.add_event("exception", told, timestamp=end_time)
            span.set_status(self._trace.StatusCode.ERROR, f"{failure.type}: {failure.message}")
        span.end(end_time)

    # -- where a run stands

    def _above(self, lineage: Lineage) -> Context:
        """The context that a run's span is made in: its parent's, or an empty one if it begins a trace."""
        caused = traces.read(lineage.traceparent)
        if not lineage.parent:
            return self._within(None if caused is None else self._remote(caused))
        if caused is not None:
            return self._within(self._remote(Caused(caused.trace_id, traces.span_id(lineage.parent), caused.flags)))
        # It has been decided for its root whether this trace is recorded: the same holds here.
        trace_id = traces.trace_id(lineage.root)
        flags = self._flags(self._context.Context(), trace_id, "")
        return self._within(self._remote(Caused(trace_id, traces.span_id(lineage.parent), flags)))

    def _below(self, run_id: str, workflow: str, lineage: Lineage) -> Context:
        """The context that the spans below a run's span are made in."""
        trace_id = _trace_id(run_id, lineage)
        flags = self._flags(self._above(lineage), trace_id, workflow)
        return self._within(self._remote(Caused(trace_id, traces.span_id(run_id), flags)))

    def _flags(self, above: Context, trace_id: str, name: str) -> str:
        decision = self._sampler.should_sample(above, int(trace_id, 16), name).decision
        return "01" if decision.is_sampled() else "00"

    def _remote(self, caused: Caused) -> SpanContext:
        return self._trace.SpanContext(
            int(caused.trace_id, 16),
            int(caused.span_id, 16),
            is_remote=True,
            trace_flags=self._trace.TraceFlags(int(caused.flags, 16)),
        )

    def _within(self, place: SpanContext | None) -> Context:
        empty = self._context.Context()
        if place is None:
            return empty
        return self._trace.set_span_in_context(self._trace.NonRecordingSpan(place), empty)


def configured() -> TracerProvider | None:
    """The tracer provider that was set for this whole process, by its code or by `opentelemetry-instrument`."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return None  # it was not set; loading the SDK only to learn that would take longer than all the rest
    from opentelemetry import trace  # noqa: PLC0415 - it is not part of the core install
    from opentelemetry.sdk.trace import TracerProvider as SdkProvider  # noqa: PLC0415

    provider = trace.get_tracer_provider()
    return provider if isinstance(provider, SdkProvider) else None


class _GivenIds:
    """An id generator of the SDK's kind that returns what it was told last."""

    def __init__(self) -> None:
        self.trace_id = ""
        self.span_id = ""

    def generate_trace_id(self) -> int:
        return int(self.trace_id, 16)

    def generate_span_id(self) -> int:
        return int(self.span_id, 16)

    def is_trace_id_random(self) -> bool:
        return False


def _trace_id(run_id: str, lineage: Lineage) -> str:
    caused = traces.read(lineage.traceparent)
    return traces.trace_id(lineage.root or run_id) if caused is None else caused.trace_id


def _caused(place: SpanContext) -> Caused:
    return Caused(f"{place.trace_id:032x}", f"{place.span_id:016x}", f"{place.trace_flags:02x}")


def _sparing(deed: Callable[[], T]) -> T | None:
    """What `deed` returns; if it raises, that is printed, and the run goes on."""
    try:
        return deed()
    except BaseException:  # noqa: BLE001 - as for listeners; the words of an exception may raise anything
        traceback.print_exc()
        return None
