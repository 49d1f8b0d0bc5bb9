"""A user's web application with idempotent routes, as a process of its own under uvicorn.

`python -m tests.faults.web_app_process plan.json` says its port when it is ready. Its one route writes a line into the
ledger whenever it is really executed, waits until the flag is there, and returns its pid.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from msgspec import Struct, convert
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast import Holdfast
from holdfast.asgi import Idempotent
from tests.faults.ledger import Ledger


class AppPlan(Struct, kw_only=True):
    """What such a process is told."""

    path: str
    ledger: str
    flag: str
    lease: str = "30s"
    join: bool = False


def application(plan: AppPlan, on_ready: str) -> Starlette:
    hf = Holdfast(f"sqlite:///{plan.path}", worker=False)
    ledger, flag = Ledger(Path(plan.ledger)), Path(plan.flag)

    async def charge(request: Request) -> Response:
        order = (await request.json())["order"]
        ledger.write(call=order)
        while not flag.exists():
            await asyncio.sleep(0.01)
        return JSONResponse({"order": order, "by": os.getpid()}, 201)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with hf:
            print(on_ready, flush=True)
            yield

    return Starlette(
        routes=[Route("/charges", charge, methods=["POST"])],
        middleware=[Middleware(Idempotent, holdfast=hf, required=True, join=plan.join, lease=plan.lease)],
        lifespan=lifespan,
    )


def main() -> None:
    plan = convert(json.loads(Path(sys.argv[1]).read_text()), AppPlan)
    listening = socket.create_server(("127.0.0.1", 0))
    ready = json.dumps({"event": "ready", "port": listening.getsockname()[1]})
    server = uvicorn.Server(uvicorn.Config(application(plan, ready), log_level="error", lifespan="on"))
    server.run(sockets=[listening])


if __name__ == "__main__":
    main()
