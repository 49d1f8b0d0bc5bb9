from __future__ import annotations

import pytest

from holdfast.kernel import attributes, traces
from holdfast.kernel.attributes import FORKED_FROM, PARENT, ROOT
from holdfast.kernel.traces import NO_LINEAGE, TRACEPARENT, Caused, Lineage

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (HEADER, Caused(TRACE, SPAN, "01")),
        (f"00-{TRACE}-{SPAN}-00", Caused(TRACE, SPAN, "00")),
        (f" {HEADER}\t", Caused(TRACE, SPAN, "01")),
        (f"cc-{TRACE}-{SPAN}-01", Caused(TRACE, SPAN, "01")),  # a version to come
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", Caused(TRACE, SPAN, "01")),
        (None, None),
        ("", None),
        ("nonsense", None),
        (HEADER.upper(), None),
        (f"{HEADER}-more", None),  # version 00 says exactly this much
        (f"cc-{TRACE}-{SPAN}-01.", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (HEADER[:-1], None),
    ],
)
def test_what_a_traceparent_says(header, says):
    assert traces.read(header) == says
    assert traces.normal(header) == (None if says is None else says.header)


def test_a_trace_that_a_run_begins_has_the_id_of_the_run():
    run_id = "0190d3b8a7c2" + "a1" * 10
    assert traces.trace_id(run_id) == run_id


@pytest.mark.parametrize("run_id", ["run-1", "0" * 32, "A" * 32, "a" * 31, "a" * 33])
def test_an_id_that_cannot_be_a_trace_id_is_turned_into_one(run_id):
    trace_id = traces.trace_id(run_id)
    assert traces.read(f"00-{trace_id}-{SPAN}-01") is not None
    assert trace_id != run_id
    assert trace_id == traces.trace_id(run_id)


def test_runs_have_spans_of_their_own():
    run_ids = [f"{n:032x}" for n in range(1, 200)]
    span_ids = {traces.span_id(run_id) for run_id in run_ids}
    assert len(span_ids) == len(run_ids)
    assert all(traces.read(f"00-{TRACE}-{span_id}-01") for span_id in span_ids)
    assert traces.span_id(run_ids[0]) == traces.span_id(run_ids[0])


@pytest.mark.parametrize(
    ("shown", "lineage"),
    [
        ({}, NO_LINEAGE),
        ({"customer": "c-1"}, NO_LINEAGE),
        ({TRACEPARENT: HEADER}, Lineage(traceparent=HEADER)),
        ({PARENT: "run-2", ROOT: "run-1"}, Lineage("run-2", "run-1")),
        ({PARENT: "run-2", ROOT: "run-1", TRACEPARENT: HEADER, "n": 1}, Lineage("run-2", "run-1", HEADER)),
        ({FORKED_FROM: "run-1"}, NO_LINEAGE),
    ],
)
def test_the_attributes_of_a_run_say_what_it_comes_from(shown, lineage):
    assert traces.lineage_of(attributes.encode(shown)) == lineage
