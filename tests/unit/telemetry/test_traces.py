from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased

from holdfast.engine.attempts import AttemptOutcome, AttemptRaised, AttemptReturned
from holdfast.engine.tracing import Tried
from holdfast.errors import InvalidConfig
from holdfast.events import RunEnded, RunSignalled
from holdfast.kernel import attributes, traces
from holdfast.kernel.attributes import PARENT, ROOT
from holdfast.kernel.journal import Failure
from holdfast.kernel.runs import Run
from holdfast.kernel.traces import TRACEPARENT
from holdfast.telemetry.traces import Traces

RUN, CHILD = "0190d3b8a7c2" + "a1" * 10, "0190d3b8a7c2" + "b2" * 10
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
W = "shop.checkout"


class Traced:
    """A provider whose spans are kept."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.kept = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))
        self.traces = Traces(self.provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.kept.get_finished_spans()

    def one(self) -> Any:
        [span] = self.spans
        return span


@pytest.fixture
def traced() -> Traced:
    return Traced()


def tried(run_id: str = RUN, **shown: Any) -> Tried:
    run = Run(run_id, "default", W, "k", "default", 0, "", "", 0, 0, attributes=attributes.encode(shown))
    return Tried(run, "shop.charge", "charge#1", 2, "charge:o-1")


def ended(run_id: str = RUN, status: str = "completed", **fields: Any) -> RunEnded:
    return RunEnded(run_id, W, status, namespace="default", created_at_ms=1_000, elapsed_ms=500, **fields)


def ids(span: Any) -> tuple[str, str]:
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


async def returned() -> AttemptOutcome:
    return AttemptReturned(b"1")


# -- runs


def test_a_run_is_a_span_from_its_admission_to_its_end(traced):
    traced.traces(ended(key="checkout:o-1"))
    span = traced.one()
    assert span.name == W
    assert (span.start_time, span.end_time) == (1_000_000_000, 1_500_000_000)
    assert ids(span) == (RUN, traces.span_id(RUN))
    assert span.parent is None
    assert dict(span.attributes) == {
        "holdfast.run_id": RUN,
        "holdfast.namespace": "default",
        "holdfast.workflow": W,
        "holdfast.status": "completed",
        "holdfast.key": "checkout:o-1",
    }
    assert span.status.is_ok
    assert span.instrumentation_scope.name == "holdfast"


def test_a_failed_run_says_why(traced):
    traced.traces(ended(status="failed", error=msgspec.json.encode(Failure("ValueError", "no such card")).decode()))
    span = traced.one()
    assert not span.status.is_ok
    assert span.status.description == "ValueError: no such card"
    [told] = span.events
    assert (told.name, told.timestamp) == ("exception", span.end_time)
    assert dict(told.attributes) == {"exception.type": "ValueError", "exception.message": "no such card"}


def test_a_cancelled_run_is_no_error(traced):
    traced.traces(ended(status="cancelled", error="cancelled: enough"))
    assert traced.one().status.is_ok
    assert traced.one().attributes["holdfast.status"] == "cancelled"


def test_a_run_belongs_to_the_trace_of_whoever_started_it(traced):
    traced.traces(ended(traceparent=f"00-{TRACE}-{SPAN}-01"))
    span = traced.one()
    assert ids(span) == (TRACE, traces.span_id(RUN))
    assert (span.parent.span_id, span.parent.is_remote) == (int(SPAN, 16), True)


@pytest.mark.parametrize(("traceparent", "trace_id"), [("", RUN), (f"00-{TRACE}-{SPAN}-01", TRACE)])
def test_a_child_is_below_its_parent_in_the_trace_of_its_root(traced, traceparent, trace_id):
    traced.traces(ended(CHILD, parent=RUN, root=RUN, traceparent=traceparent))
    span = traced.one()
    assert ids(span) == (trace_id, traces.span_id(CHILD))
    assert f"{span.parent.span_id:016x}" == traces.span_id(RUN)


def test_other_events_are_nothing_to_tell(traced):
    traced.traces(RunSignalled(RUN, "approval"))
    assert not traced.spans


# -- attempts


async def test_an_attempt_is_a_span_below_its_run(traced):
    outcome = await traced.traces.around(returned(), tried())
    assert outcome == AttemptReturned(b"1")
    traced.traces(ended())
    attempt, run = traced.spans
    assert attempt.name == "shop.charge"
    assert attempt.context.trace_id == run.context.trace_id
    assert attempt.parent.span_id == run.context.span_id
    assert dict(attempt.attributes) == {
        "holdfast.run_id": RUN,
        "holdfast.workflow": W,
        "holdfast.effect": "shop.charge",
        "holdfast.effect_key": "charge:o-1",
        "holdfast.step": "charge#1",
        "holdfast.attempt": 2,
    }
    assert attempt.status.is_ok


@pytest.mark.parametrize(
    "shown",
    [
        {},
        {TRACEPARENT: f"00-{TRACE}-{SPAN}-01"},
        {PARENT: CHILD, ROOT: CHILD},
        {PARENT: CHILD, ROOT: CHILD, TRACEPARENT: f"00-{TRACE}-{SPAN}-01"},
    ],
)
async def test_attempts_point_to_the_span_that_the_run_will_have_wherever_it_comes_from(traced, shown):
    await traced.traces.around(returned(), tried(**shown))
    lineage = traces.lineage_of(attributes.encode(shown))
    traced.traces(ended(parent=lineage.parent, root=lineage.root, traceparent=lineage.traceparent))
    attempt, run = traced.spans
    assert (attempt.context.trace_id, attempt.parent.span_id) == (run.context.trace_id, run.context.span_id)


async def test_the_span_of_an_attempt_is_current_while_it_lasts_and_only_then(traced):
    async def looks() -> AttemptOutcome:
        await asyncio.sleep(0)
        return AttemptReturned((traced.traces.traceparent() or "").encode())

    with traced.provider.get_tracer("test").start_as_current_span("around") as around:
        outcome = await traced.traces.around(looks(), tried())
        assert trace.get_current_span() is around
    attempt, _ = traced.spans
    trace_id, span_id = ids(attempt)
    assert outcome == AttemptReturned(f"00-{trace_id}-{span_id}-01".encode())
    assert traced.traces.traceparent() is None


async def test_a_failed_attempt_says_why(traced):
    async def raises() -> AttemptOutcome:
        return AttemptRaised(OSError("no route"))

    await traced.traces.around(raises(), tried())
    span = traced.one()
    assert span.status.description == "OSError: no route"
    [told] = span.events
    assert told.attributes["exception.type"] == "OSError"


async def test_an_attempt_that_was_interrupted_says_so(traced):
    begun = asyncio.Event()

    async def holds() -> AttemptOutcome:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(traced.traces.around(holds(), tried()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert traced.one().attributes["holdfast.interrupted"] is True


# -- sampling


async def test_what_is_not_sampled_is_not_recorded_and_passed_on_as_such():
    traced = Traced(ParentBased(ALWAYS_OFF))

    async def looks() -> AttemptOutcome:
        return AttemptReturned((traced.traces.traceparent() or "").encode())

    outcome = await traced.traces.around(looks(), tried())
    traced.traces(ended())
    assert not traced.spans
    assert isinstance(outcome, AttemptReturned)
    assert outcome.value.startswith(f"00-{RUN}-".encode())
    assert outcome.value.endswith(b"-00")


@pytest.mark.parametrize(("flags", "count"), [("00", 0), ("01", 2)])
async def test_whoever_started_a_run_decides_whether_it_is_recorded(flags, count):
    traced, header = Traced(ParentBased(TraceIdRatioBased(0.5))), f"00-{TRACE}-{SPAN}-{flags}"
    await traced.traces.around(returned(), tried(**{TRACEPARENT: header}))
    traced.traces(ended(traceparent=header))
    assert len(traced.spans) == count


async def test_a_trace_is_recorded_as_a_whole_or_not_at_all():
    traced = Traced(ParentBased(TraceIdRatioBased(0.5)))
    for n in range(40):
        root, child = f"{n:012x}{n * 0x9E3779B97F4A7C15 % 2**64:020x}", f"{n:012x}{n:020x}"
        await traced.traces.around(returned(), tried(root))
        await traced.traces.around(returned(), tried(child, **{PARENT: root, ROOT: root}))
        traced.traces(ended(child, parent=root, root=root))
        traced.traces(ended(root))
    by_trace: dict[int, int] = {}
    for span in traced.spans:
        assert span.context is not None
        by_trace[span.context.trace_id] = by_trace.get(span.context.trace_id, 0) + 1
    assert set(by_trace.values()) == {4}
    assert 5 < len(by_trace) < 35


# -- faults


async def test_a_span_processor_that_raises_does_no_harm_to_the_effect(traced, capsys):
    class Broken(SpanProcessor):
        def on_start(self, span: Span, parent_context: Any = None) -> None:
            raise RuntimeError("broken")

    traced.provider.add_span_processor(Broken())
    assert await traced.traces.around(returned(), tried()) == AttemptReturned(b"1")
    assert "broken" in capsys.readouterr().err


async def test_an_error_that_cannot_be_worded_does_no_harm_to_the_effect(traced, capsys):
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    async def raises() -> AttemptOutcome:
        return AttemptRaised(error)

    error = Mute()
    assert await traced.traces.around(raises(), tried()) == AttemptRaised(error)
    assert traced.one().name == "shop.charge"


@pytest.mark.parametrize("provider", [trace.NoOpTracerProvider(), None, "otlp"])
def test_only_a_provider_of_the_sdk_will_do(provider):
    with pytest.raises(InvalidConfig, match="not a tracer provider") as caught:
        Traces(provider)
    assert caught.value.hint


async def test_where_the_sdk_is_disabled_nothing_is_recorded(monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    traced = Traced()
    assert await traced.traces.around(returned(), tried()) == AttemptReturned(b"1")
    traced.traces(ended())
    assert not traced.spans


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(InvalidConfig, match="opentelemetry-sdk") as caught:
        Traces(None)  # type: ignore[arg-type]
    assert "extra `otel`" in caught.value.hint
