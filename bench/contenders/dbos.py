"""DBOS as its documentation shows it: async workflows and steps on its default store, an SQLite file.

Workflows run in the process that starts them, keyed by `SetWorkflowID`; the file's settings, the pools and
the threads are left at what DBOS chooses. Its log is turned down; its OTLP export is off unless asked for.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from dbos import DBOS, DBOSConfig, SetWorkflowID

from bench.entry import contend
from bench.workloads import Wait

SIGNAL = "go"


@DBOS.step()
async def touch(order: str) -> str:
    return order


@DBOS.workflow()
async def one(order: str) -> str:
    return await touch(order)


@DBOS.workflow()
async def many(order: str, effects: int) -> str:
    for _ in range(effects):
        await touch(order)
    return order


@DBOS.workflow()
async def timer(order: str, due: float) -> str:
    # Not deterministic, and harmless here, where nothing is ever replayed: DBOS sleeps for durations only.
    await DBOS.sleep_async(due - time.time())
    return order


@DBOS.workflow()
async def listener(order: str) -> str:
    await DBOS.recv_async(SIGNAL)
    return order


class Dbos:
    """The verbs of a contender through the public API of DBOS."""

    async def one(self, order: str) -> None:
        with SetWorkflowID(f"one:{order}"):
            handle = await DBOS.start_workflow_async(one, order)
        await handle.get_result()

    async def many(self, order: str, effects: int) -> None:
        with SetWorkflowID(f"many:{order}"):
            handle = await DBOS.start_workflow_async(many, order, effects)
        await handle.get_result()

    async def start(self, order: str) -> Wait:
        with SetWorkflowID(f"one:{order}"):
            handle = await DBOS.start_workflow_async(one, order)
        return handle.get_result

    async def timer(self, order: str, due: float) -> None:
        with SetWorkflowID(f"timer:{order}"):
            handle = await DBOS.start_workflow_async(timer, order, due)
        await handle.get_result()

    async def listener(self, order: str) -> Wait:
        with SetWorkflowID(f"listener:{order}"):
            handle = await DBOS.start_workflow_async(listener, order)

        async def signal() -> None:
            await DBOS.send_async(handle.workflow_id, order, SIGNAL)
            await handle.get_result()

        return signal


@asynccontextmanager
async def open_dbos(directory: Path, *, poll_s: float | None = None) -> AsyncGenerator[Dbos, None]:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{directory / 'dbos.sqlite'}",
        "log_level": "CRITICAL",
    }
    if poll_s is not None:
        config["notification_listener_polling_interval_sec"] = poll_s
    DBOS(config=config)
    DBOS.launch()
    try:
        yield Dbos()
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    contend(open_dbos)
