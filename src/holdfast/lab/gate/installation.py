"""What the gate works on: a cluster whose workers know the ledger, and the ledger itself, all on this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from holdfast.assembly import Holdfast
from holdfast.kernel.times import Millis
from holdfast.lab.cluster.local_cluster import LocalCluster, Plan
from holdfast.lab.cluster.ports import free_port
from holdfast.lab.cluster.processes import ServerProcess, wait_until
from holdfast.lab.gate import ledger
from holdfast.lab.gate.cluster import GateCluster

READY_SECONDS = 20.0


@asynccontextmanager
async def up(directory: Path, plan: Plan, *, lease_ms: Millis) -> AsyncGenerator[tuple[GateCluster, Path]]:
    """All of it, and the file of the ledger; nothing of it is left when this is over."""
    port = free_port()
    settings = {ledger.ADDRESS: str(port), "HOLDFAST_LEASE": f"{lease_ms}ms", "HOLDFAST_REQUIRE_KEYS": "true"}
    cluster = LocalCluster(directory, replace(plan, everywhere=True, environment={**plan.environment, **settings}))
    with LedgerProcess(directory, port) as file:
        try:
            await asyncio.to_thread(cluster.up)
            cluster.api_key = await _admin_key(cluster.store_url)
            yield cluster, file
        finally:
            await asyncio.to_thread(cluster.down)


async def _admin_key(store_url: str) -> str:
    async with Holdfast(store_url, worker=False) as hf:
        token, _ = await hf.api_keys.create("gate", namespace=hf.namespace, scope="admin")
        return token


class LedgerProcess:
    """The ledger as a process: `with LedgerProcess(directory, port) as file: ...`."""

    def __init__(self, directory: Path, port: int) -> None:
        self.file = directory / "ledger.jsonl"
        self._log = directory / "ledger.log"
        command = [sys.executable, "-m", "holdfast.lab.gate.ledger", self.file, str(port)]
        self._process = ServerProcess("ledger", command, log=self._log)

    def __enter__(self) -> Path:
        self._process.start()
        wait_until(self._is_ready, seconds=READY_SECONDS, what=lambda: f"no ledger:\n{self._process.last_words()}")
        return self.file

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def _is_ready(self) -> bool:
        return ledger.READY in self._log.read_text()
