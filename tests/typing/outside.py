"""Checked by basedpyright, never executed: the client of a gateway, and the verbs for code that is not async."""

from __future__ import annotations

from typing import Any, assert_type

from holdfast import Call, Client, Holdfast, Pack, Receipt, Run, Started
from holdfast.blocking import Blocking, BlockingPage, BlockingRun, BlockingStarted
from holdfast.journal import RunEvent

shop = Pack("shop")


@shop.workflow
async def sell(order: str, cents: int = 1) -> int:
    return len(order) + cents


async def over_a_gateway() -> None:
    async with Client("http://127.0.0.1:8787", api_key="hf_...", packs=[shop]) as client:
        assert_type(client, Client)
        started = await client.start(sell("o-1", 5), key="k", delay="1s", join=False)
        assert_type(started, Started[int])
        assert_type(await started.run.result(), int)
        named = client.call("sell", {"order": "o-1"})
        _ = assert_type(named, Call[Any])
        assert_type(await client.find(sell, "k"), Run[int])


def without_async() -> None:
    with Holdfast.blocking("sqlite:///shop.db", packs=[shop], namespace="a") as hf:
        assert_type(hf, Blocking)
        started = hf.start(sell("o-1"), key="k", delay="1s", priority=3)
        assert_type(started, BlockingStarted[int])
        run = started.run
        assert_type(run, BlockingRun[int])
        assert_type(hf.start(sell("o-1"), replace=run, join=False), BlockingStarted[int])
        assert_type(run.result(timeout="30s"), int)
        assert_type(run.status, str)
        assert_type(run.refresh(), BlockingRun[int])
        assert_type(run.cancel("enough", deadline=5), Receipt)
        assert_type(hf.find(sell, "k"), BlockingRun[int])
        for each in hf.runs(sell, "failed", key_prefix="k"):
            assert_type(each, BlockingRun[int])
        assert_type(hf.runs().page(limit=5), BlockingPage[Any])
        assert_type(hf.runs(sell).page(), BlockingPage[int])
        for event in run.events():
            assert_type(event, RunEvent)


def mistakes(hf: Blocking) -> None:
    hf.start(sell(5))  # pyright: ignore[reportArgumentType]
    hf.start(sell("o-1"), keys="k")  # pyright: ignore[reportCallIssue]
    hf.start(sell("o-1"), priority="high")  # pyright: ignore[reportArgumentType]
    hf.start(sell("o-1"), replace="run-1")  # pyright: ignore[reportArgumentType]
    hf.runs(limit="all")  # pyright: ignore[reportArgumentType]
    Holdfast.blocking("sqlite:///shop.db", pack=shop)  # pyright: ignore[reportCallIssue]
