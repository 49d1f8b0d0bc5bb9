"""A process of a test that serves a gateway: `python -m tests.faults.gateway_process plan.json`.

`plan.json` is a `GatewayPlan`. The process says `ready` with its URL as soon as it listens, and ends in order when it
is asked to by SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import Holdfast, Pack, effect_key, hook
from holdfast.adapters.machine import SystemClock
from holdfast.gateway import app
from holdfast.gateway.auth import OpenAuth
from holdfast.gateway.endpoints import GatewaySettings
from holdfast.gateway.server import HttpServer
from holdfast.stores.sqlite import SqliteStore
from tests.faults import ledger
from tests.faults.crash_at_store_call import CrashingStore, Point
from tests.faults.holdfast_process import say

gate = Pack("gate")


@gate.effect
async def act(name: str, n: int) -> int:
    ledger.here().write(call=effect_key(), step=f"act {n}", order=name, attempt=1)
    return n


@gate.workflow(key="keyed:{name}")
async def keyed(name: str) -> str:
    return f"{name} {await act(name, 0)}"


@gate.workflow
async def plain(name: str) -> str:
    return f"{name} {await act(name, 0)}"


@gate.workflow(key="steps:{name}")
async def steps(name: str, count: int) -> int:
    """Each step is one signal, and what is done about it."""
    go = hook("go", type=int)
    return sum([await act(name, await go) for _ in range(count)])


class GatewayPlan(Struct, frozen=True, kw_only=True):
    """What to serve, and when to die: at a point of the store, or when the answer to a POST is about to be sent."""

    path: str
    ledger: str
    worker: bool = True
    lease: str = "1s"
    point: Point | None = None
    dies_before_the_answer: bool = False


async def serve(plan: GatewayPlan) -> None:
    book = ledger.use(Path(plan.ledger))
    store = CrashingStore(SqliteStore(Path(plan.path), clock=SystemClock()), point=plan.point, ledger=book)
    async with Holdfast(store, packs=[gate], worker=plan.worker, lease=plan.lease) as hf:
        shared = app.context(hf, auth=OpenAuth(hf), settings=GatewaySettings(require_keys=False))
        server = HttpServer(shared.wait_limit)
        application: ASGIApp = app.create(shared)
        serving = asyncio.create_task(hf.serve())
        await asyncio.sleep(0)  # so that it listens to SIGTERM before anybody may send it
        url = await server.start(
            DiesBeforeResponse(application) if plan.dies_before_the_answer else application, "127.0.0.1", 0
        )
        say("ready", url=url)
        await serving
        await server.stop()
    say("done")


class DiesBeforeResponse:
    """An application whose process is killed when the answer to a POST is ready."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if scope["method"] == "POST":
                os.kill(os.getpid(), signal.SIGKILL)
            await send(message)

        await self._inner(scope, receive, sent)


def main(options: Any) -> None:
    os.environ.setdefault("HOLDFAST_LOG", "json")
    asyncio.run(serve(msgspec.convert(options, GatewayPlan)))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
