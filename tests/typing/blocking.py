"""Checked by basedpyright, never executed: every verb of what `Holdfast.blocking` returns."""

from __future__ import annotations

from typing import Any, assert_type

from holdfast import Call, Holdfast, Pack, Receipt, Story
from holdfast.blocking import (
    Blocking,
    BlockingBulkPreview,
    BlockingPage,
    BlockingRun,
    BlockingRuns,
    BlockingStarted,
)
from holdfast.client import BulkReport
from holdfast.engine.api.registry import Description
from holdfast.journal import RunEvent
from holdfast.ports.store import Backlog, Member

shop = Pack("shop")


@shop.workflow
async def sell(order: str) -> int:
    return len(order)


def verbs() -> None:
    hf = Holdfast.blocking("sqlite:///shop.db", packs=[shop])
    assert_type(hf.__enter__(), Blocking)
    _ = assert_type(hf.call("sell", {"order": "o-1"}), Call[Any])
    assert_type(hf.start(sell("o-1"), key="k"), BlockingStarted[int])
    assert_type(hf.get("run-1"), BlockingRun[Any])
    assert_type(hf.find(sell, "k"), BlockingRun[int])
    assert_type(hf.resume_hook("t-1", ["a"], dedupe="d-1"), BlockingRun[Any])
    hf.runs(sell)
    assert_type(hf.explain("run-1"), Story)
    assert_type(hf.explain(sell, "k"), Story)
    assert_type(hf.workflows(), tuple[Description, ...])
    assert_type(hf.workflow("sell"), Description)
    assert_type(hf.workers(), list[Member])
    assert_type(hf.backlog(), Backlog)
    hf.export_journals("journals", sell)
    assert_type(hf.close(), None)


def verbs_of_a_run(run: BlockingRun[int]) -> None:
    assert_type(run.result(), int)
    assert_type(run.input(), dict[str, Any])
    assert_type(run.input_json(), bytes)
    assert_type(run.result_json(), bytes)
    run.journal()
    run.journal(after=3)
    for event in run.events():
        assert_type(event, RunEvent)
    assert_type(run.explain(), Story)
    assert_type(run.receipt(), Receipt)
    assert_type(run.signal("items", 5, dedupe="d-1"), None)
    assert_type(run.cancel(), Receipt)
    assert_type(run.wait("5s"), BlockingRun[int])
    assert_type(run.refresh(), BlockingRun[int])
    assert_type(run.retry(), BlockingRun[int])
    assert_type(run.decide("charge#1", returned="r-1"), BlockingRun[int])
    assert_type(run.resume(), BlockingRun[int])
    assert_type(run.fork("charge#1"), BlockingRun[int])
    assert_type(run.release_key(), BlockingRun[int])


def verbs_of_many_runs(runs: BlockingRuns[Any]) -> None:
    for run in runs:
        print(run.id)
    assert_type(runs.page(limit=5), BlockingPage[Any])
    assert_type(runs.retry(), BlockingStarted[BulkReport])
    assert_type(runs.resume(), BlockingStarted[BulkReport])
    assert_type(runs.cancel(), BlockingStarted[BulkReport])
    assert_type(runs.signal("items", 5), BlockingStarted[BulkReport])
    assert_type(runs.bulk("retry"), BlockingStarted[BulkReport])
    assert_type(runs.dry_run("retry"), BlockingBulkPreview)


def mistakes(hf: Blocking, run: BlockingRun[int]) -> None:
    run.receipt("r-1")  # pyright: ignore[reportCallIssue]
    run.input(5)  # pyright: ignore[reportCallIssue]
    hf.workflows("sell")  # pyright: ignore[reportCallIssue]
    hf.backlog(limit=5)  # pyright: ignore[reportCallIssue]
