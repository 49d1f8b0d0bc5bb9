"""Runs as spans: one trace through processes, retries, children and what effects call, over every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Holdfast, Pack, Retry, RunFailed, attempt, hook, set_attributes
from holdfast.errors import InvalidConfig
from holdfast.events import LeaseWasLost, RunEnded
from holdfast.kernel import traces
from holdfast.kernel.attributes import COUNT_MAX
from holdfast.kernel.traces import TRACEPARENT
from tests.integration.conftest import Home, eventually, heard
from tests.integration.wrappers import SeverableStore

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"


class Traced:
    """A tracer provider, as one process has it, whose spans are kept."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))

    @property
    def spans(self) -> list[Any]:
        return list(self._kept.get_finished_spans())

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Any:
        [span] = self.named(name)
        return span


@pytest.fixture
def traced() -> Traced:
    return Traced()


def trace_id(span: Any) -> str:
    return f"{span.context.trace_id:032x}"


def span_id(span: Any) -> str:
    return f"{span.context.span_id:016x}"


def is_below(span: Any, above: Any) -> bool:
    return span.context.trace_id == above.context.trace_id and span.parent.span_id == above.context.span_id


async def test_a_run_that_changes_hands_in_the_middle_is_one_span_with_all_its_attempts_below(home: Home) -> None:
    """The first process performs one effect and falls silent in the second; another one retries that, and ends it."""
    pack = Pack("plant")
    entered, gate = asyncio.Event(), asyncio.Event()
    before, after = Traced(), Traced()

    @pack.effect
    async def prepare() -> str:
        return "ready"

    @pack.effect(retry=Retry(attempts=3, base=0.001))
    async def press() -> str:
        if not gate.is_set():
            entered.set()
            await gate.wait()  # the first process stays here
        if attempt() == 1:
            raise OSError("jammed")
        return "pressed"

    @pack.workflow
    async def work() -> str:
        return f"{await prepare()} {await press()}"

    stores: list[SeverableStore] = []

    def through(store: Any) -> SeverableStore:
        stores.append(SeverableStore(store))
        return stores[0]

    async with home.holdfast(pack, through=through, lease="1500ms", traces=before.provider) as silent:
        run = (await silent.start(work())).run
        await entered.wait()
        stores[0].sever()
        await heard(silent).until(LeaseWasLost)
        gate.set()
        async with home.holdfast(pack, lease="2s", traces=after.provider) as hf:
            assert await (await hf.get(run.id)).result(timeout=30) == "ready pressed"
    assert before.named("plant.work") == []
    whole = after.one("plant.work")
    assert (trace_id(whole), span_id(whole), whole.parent) == (run.id, traces.span_id(run.id), None)
    assert whole.attributes["holdfast.status"] == "completed"
    row = await _row(home, run.id)
    assert (whole.start_time, whole.end_time) == (row.created_at_ms * 1_000_000, row.finished_at_ms * 1_000_000)
    done, dropped = before.spans
    failed, performed = (span for span in after.spans if span is not whole)
    for span in (done, dropped, failed, performed):
        assert is_below(span, whole)
        assert span.attributes["holdfast.run_id"] == run.id
        assert span.attributes["holdfast.workflow"] == "plant.work"
    assert [(span.attributes["holdfast.step"], span.attributes["holdfast.attempt"]) for span in (done, dropped)] == [
        ("prepare#1", 1),
        ("press#1", 1),
    ]
    assert dropped.attributes["holdfast.interrupted"] is True
    # A crash uses up no attempt: the first one was made again.
    assert [span.attributes["holdfast.attempt"] for span in (failed, performed)] == [1, 2]
    assert failed.status.description == "OSError: jammed"
    assert [event.attributes["exception.type"] for event in failed.events] == ["OSError"]
    assert done.status.is_ok
    assert performed.status.is_ok


async def _row(home: Home, run_id: str) -> Any:
    store = home.store()
    await store.open()
    [row] = await store.runs([run_id])
    await store.close()
    return row


class Simple:
    """A workflow with one effect that says what it sees."""

    def __init__(self) -> None:
        self.pack = Pack("p")

        @self.pack.effect
        async def look() -> str:
            return propagated()

        @self.pack.effect
        def look_in_a_thread() -> str:
            return propagated()

        @self.pack.workflow
        async def work() -> tuple[str, str]:
            return await look(), await look_in_a_thread()

        @self.pack.workflow
        async def parent() -> tuple[str, str]:
            return await work()

        self.work, self.parent = work, parent


def propagated() -> str:
    """The header that an instrumented client would send from here."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers.get("traceparent", "")


@pytest.fixture
def simple() -> Simple:
    return Simple()


async def test_a_start_goes_on_in_the_trace_that_it_is_told_of(home: Home, traced: Traced, simple: Simple) -> None:
    async with home.holdfast(simple.pack, traces=traced.provider) as hf:
        run = (await hf.start(simple.work(), traceparent=HEADER)).run
        seen = await run.result(timeout=30)
        assert run.attributes[TRACEPARENT] == HEADER
        assert [run.id async for run in hf.runs(attributes={TRACEPARENT: HEADER})] == [run.id]
    whole = traced.one("p.work")
    assert trace_id(whole) == TRACE
    assert f"{whole.parent.span_id:016x}" == SPAN
    for name, header in zip(("p.look", "p.look_in_a_thread"), seen, strict=True):
        assert is_below(traced.one(name), whole)
        assert header == f"00-{TRACE}-{span_id(traced.one(name))}-01"


async def test_a_start_belongs_to_the_span_that_is_current(home: Home, traced: Traced, simple: Simple) -> None:
    async with home.holdfast(simple.pack, traces=traced.provider) as hf:
        with traced.provider.get_tracer("web").start_as_current_span("POST /orders"):
            run = (await hf.start(simple.work())).run
        await run.result(timeout=30)
    assert is_below(traced.one("p.work"), traced.one("POST /orders"))


async def test_without_anybody_before_it_a_run_begins_a_trace_with_its_own_id(
    home: Home, traced: Traced, simple: Simple
) -> None:
    async with home.holdfast(simple.pack, traces=traced.provider) as hf:
        run = (await hf.start(simple.work())).run
        await run.result(timeout=30)
        assert TRACEPARENT not in run.attributes  # nothing to keep, and no row of an index for it
    assert trace_id(traced.one("p.work")) == run.id
    assert len({trace_id(span) for span in traced.spans}) == 1


@pytest.mark.parametrize("header", [None, HEADER])
async def test_a_child_is_below_its_parent(home: Home, traced: Traced, simple: Simple, header: str | None) -> None:
    async with home.holdfast(simple.pack, traces=traced.provider) as hf:
        run = (await hf.start(simple.parent(), traceparent=header)).run
        await run.result(timeout=30)
    parent, child = traced.one("p.parent"), traced.one("p.work")
    assert trace_id(parent) == (TRACE if header else run.id)
    assert is_below(child, parent)
    assert is_below(traced.one("p.look"), child)


async def test_a_trace_goes_through_processes_that_do_not_trace(home: Home, traced: Traced, simple: Simple) -> None:
    """Neither who starts the run nor the worker that starts its child knows of OpenTelemetry; the child's does."""
    pack = Pack("q")

    @pack.workflow(queue="plain")
    async def parent() -> tuple[str, str]:
        return await simple.work()

    packs = (pack, simple.pack)
    async with (
        home.holdfast(*packs, queues=["plain"]) as plain,
        home.holdfast(*packs, queues=["default"], traces=traced.provider),
    ):
        run = (await plain.start(parent(), traceparent=HEADER)).run
        await run.result(timeout=30)
    child = traced.one("p.work")
    assert (trace_id(child), f"{child.parent.span_id:016x}") == (TRACE, traces.span_id(run.id))
    assert traced.named("q.parent") == []


async def test_a_header_that_says_nothing_is_ignored(home: Home, simple: Simple) -> None:
    async with home.holdfast(simple.pack) as hf:
        run = (await hf.start(simple.work(), traceparent="nonsense")).run
        assert await run.result(timeout=30) == ("", "")
        assert run.attributes == {}


async def test_a_start_that_joins_changes_no_trace(home: Home, traced: Traced) -> None:
    pack = Pack("p")

    @pack.workflow(key="the one")
    async def entity() -> None:
        await hook("go")

    async with home.holdfast(pack, traces=traced.provider) as hf:
        run = (await hf.start(entity(), traceparent=HEADER)).run
        other = HEADER.replace(TRACE, "a" * 32)
        joined, created = await hf.start(entity(), traceparent=other)
        assert (joined.id, created) == (run.id, False)
        await run.signal("go")
        await run.result(timeout=30)
    assert trace_id(traced.one("p.entity")) == TRACE


async def test_the_trace_of_a_run_takes_no_place_of_its_attributes(home: Home, traced: Traced) -> None:
    pack = Pack("p")

    @pack.workflow
    async def work() -> None:
        await set_attributes(a0=1)

    wanted: dict[str, Any] = {f"a{n}": 0 for n in range(COUNT_MAX)}
    async with home.holdfast(pack, traces=traced.provider) as hf:
        run = (await hf.start(work(), attributes=wanted, traceparent=HEADER)).run
        await run.result(timeout=30)
        assert (await run.refresh()).attributes == {**wanted, "a0": 1, TRACEPARENT: HEADER}


async def test_what_an_effect_calls_gets_the_header_and_goes_on_below_the_attempt(home: Home, traced: Traced) -> None:
    """Over a real connection: the attempt that fails and the one that does not are told apart on the other side."""
    pack = Pack("p")

    async with _server() as (url, requests):

        @pack.effect(retry=Retry(attempts=2, base=0.001))
        async def call() -> int:
            headers: dict[str, str] = {}
            propagate.inject(headers)
            async with httpx2.AsyncClient() as client:
                answer = await client.get(url, headers=headers)
            if attempt() == 1:
                raise OSError("not yet")
            return answer.status_code

        @pack.workflow
        async def work() -> int:
            return await call()

        async with home.holdfast(pack, traces=traced.provider) as hf:
            assert await (await hf.start(work(), traceparent=HEADER)).run.result(timeout=30) == 200
    spans = sorted(traced.named("p.call"), key=lambda span: span.attributes["holdfast.attempt"])
    assert requests == [f"00-{TRACE}-{span_id(span)}-01" for span in spans]
    assert len(requests) == 2


@asynccontextmanager
async def _server() -> AsyncIterator[tuple[str, list[str]]]:
    """Answers every request, and keeps the `traceparent` of each."""
    kept: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
        kept.append(headers.get("traceparent", ""))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/", kept


async def test_a_run_that_an_effect_starts_is_below_the_attempt(home: Home, traced: Traced, simple: Simple) -> None:
    pack = Pack("q")
    started: list[Holdfast] = []

    @pack.effect
    async def order() -> str:
        return (await started[0].start(simple.work())).run.id

    @pack.workflow
    async def work() -> str:
        return await order()

    async with home.holdfast(pack, simple.pack, traces=traced.provider) as hf:
        started.append(hf)
        run_id = await (await hf.start(work())).run.result(timeout=30)
        await (await hf.get(run_id)).result(timeout=30)
    assert is_below(traced.one("p.work"), traced.one("q.order"))


async def test_a_remote_worker_gets_the_header_of_the_attempt(home: Home, traced: Traced) -> None:
    pack = Pack("p")

    @pack.effect(remote=True)
    async def resize(image: str) -> str: ...

    @pack.workflow
    async def work() -> str:
        return await resize("cat.png")

    async with home.holdfast(pack, traces=traced.provider) as hf:
        run = (await hf.start(work(), traceparent=HEADER)).run
        tasks = hf.runtime.tasks_in("default")
        [handed] = await tasks.claim(["p.resize"], worker="node-1", wait="30s")
        await tasks.complete(handed.place.name, fence=handed.claim.fence, result=b'"small.png"')
        assert await run.result(timeout=30) == "small.png"
    span = traced.one("p.resize")
    assert is_below(span, traced.one("p.work"))
    assert handed.task.traceparent == f"00-{TRACE}-{span_id(span)}-01"


async def test_effects_side_by_side_each_see_their_own_span(home: Home, traced: Traced) -> None:
    pack = Pack("p")
    both = asyncio.Barrier(2)

    @pack.effect
    async def look(n: int) -> str:
        await both.wait()
        return propagated()

    @pack.workflow
    async def work() -> list[str]:
        return await asyncio.gather(look(0), look(1))  # type: ignore[arg-type]

    async with home.holdfast(pack, traces=traced.provider) as hf:
        seen = await (await hf.start(work())).run.result(timeout=30)
    by_step = {span.attributes["holdfast.step"]: span_id(span) for span in traced.named("p.look")}
    assert [header.split("-")[2] for header in seen] == [by_step[step] for step in sorted(by_step)]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_failed_run_and_a_cancelled_one_end_their_spans_as_such(home: Home, traced: Traced) -> None:
    pack = Pack("p")

    @pack.workflow
    async def fails() -> None:
        raise ValueError("no such order")

    @pack.workflow
    async def waits() -> None:
        await hook("never")

    async with home.holdfast(pack, traces=traced.provider) as hf:
        with pytest.raises(RunFailed):
            await (await hf.start(fails())).run.result(timeout=30)
        await (await hf.start(waits())).run.cancel("enough")
    failed, cancelled = traced.one("p.fails"), traced.one("p.waits")
    assert failed.status.description == "ValueError: no such order"
    assert [event.attributes["exception.message"] for event in failed.events] == ["no such order"]
    assert cancelled.attributes["holdfast.status"] == "cancelled"
    assert cancelled.status.is_ok


async def test_a_run_that_is_ended_from_outside_is_a_span_too(home: Home, traced: Traced) -> None:
    """By a client: nobody has ever executed it."""
    pack = Pack("p")

    @pack.workflow
    async def work() -> None:
        await hook("never")

    async with home.holdfast(pack, worker=False, traces=traced.provider) as client:
        run = (await client.start(work(), traceparent=HEADER)).run
        await run.cancel()
    assert (trace_id(traced.one("p.work")), span_id(traced.one("p.work"))) == (TRACE, traces.span_id(run.id))


async def test_a_fork_goes_on_in_the_trace_of_its_source_with_a_span_of_its_own(home: Home, traced: Traced) -> None:
    simple = Simple()
    async with home.holdfast(simple.pack, traces=traced.provider) as hf:
        run = (await hf.start(simple.work(), traceparent=HEADER)).run
        await run.result(timeout=30)
        fork = await (await run.refresh()).fork(at="look_in_a_thread#1")
        await fork.result(timeout=30)
        await eventually(lambda: len(heard(hf).all(RunEnded)) == 2)
    assert {(trace_id(span), span_id(span)) for span in traced.named("p.work")} == {
        (TRACE, traces.span_id(run.id)),
        (TRACE, traces.span_id(fork.id)),
    }


def test_traces_need_a_provider_of_the_sdk(home: Home) -> None:
    with pytest.raises(InvalidConfig, match="traces="):
        home.holdfast(traces=trace.NoOpTracerProvider())
