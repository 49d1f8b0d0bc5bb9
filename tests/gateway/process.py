"""A gateway as a process: `python -m tests.gateway.process <module with PACKS> <store url> [options]`.

Prints its URL as soon as it listens, and stops in order on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib

from holdfast import Holdfast
from holdfast.gateway import app
from holdfast.gateway.auth import ApiKeyAuth, OpenAuth
from holdfast.gateway.endpoints import GatewaySettings
from holdfast.gateway.server import HttpServer


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("store")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--lease", default="30s")
    parser.add_argument("--keys", action="store_true", help="require API keys")
    parser.add_argument("--no-worker", action="store_true")
    parser.add_argument("--wait-max", type=float, default=60.0, help="seconds that a request may wait")
    asked = parser.parse_args()
    packs = importlib.import_module(asked.module).PACKS
    async with Holdfast(
        asked.store, packs=packs, worker=not asked.no_worker, namespace=asked.namespace, lease=asked.lease
    ) as hf:
        settings = GatewaySettings(require_keys=asked.keys, wait_seconds_max=asked.wait_max)
        context = app.context(hf, auth=ApiKeyAuth(hf) if asked.keys else OpenAuth(hf), settings=settings)
        server = HttpServer(context.wait_limit)
        print(await server.start(app.create(context), "127.0.0.1", asked.port), flush=True)
        await hf.serve()
        await server.stop()


if __name__ == "__main__":
    asyncio.run(main())
