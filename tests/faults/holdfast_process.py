"""One process of a test, a worker or a client: `python -m tests.faults.holdfast_process plan.json`.

`plan.json` is a `ProcessPlan`. The process says what it does on its standard output, a JSON object per line; its log
goes to standard error.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast import Holdfast, HoldfastError, Pack
from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.assembly import open_store
from holdfast.errors import StoreUnavailable
from holdfast.ports.store import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.pace import PACE
from tests.earlier_store import EarlierStore
from tests.faults import crash_at_round_trip, crash_at_sql_statement, faulty_disks, ledger
from tests.faults.client_actions import ClientAction, perform
from tests.faults.crash_at_store_call import CrashingStore, Point
from tests.paces import PUSHED_ONLY, SQLITE_PUSHED_ONLY


class Start(Struct, frozen=True):
    """A run to be started."""

    workflow: str
    arguments: list[Any] = []
    request_id: str | None = None


class ProcessPlan(Struct, frozen=True, kw_only=True):
    """What a process is to do: open the store, start these runs, wait for their results, stay until SIGTERM.

    When the runs are started (and their results are there, if they are waited for) it performs its actions.
    """

    path: str
    url: str | None = None  # of the store, if it is not the file
    bus: str | None = None
    ledger: str | None = None  # if it is not beside the file
    pack: str = "tests.faults.workflows_checkout:shop"
    worker: bool = True
    duties: bool | None = None
    lease: str = "30s"
    concurrency: int = 200
    starts: list[Start] = []
    actions: list[ClientAction] = []
    at_once: int = 1  # how many actions it performs at the same time
    results: bool = True
    stay: bool = False
    point: Point | None = None
    statement: int | None = None  # die before this SQL statement
    trip: int | None = None  # die before this round trip that writes to Redis
    disk: str | None = None  # "failing" or "losing", see `faulty_disks.py`
    user: int | None = None  # whom to become before anything is opened
    gate: str | None = None  # wait for this file before anything is opened
    start_gate: str | None = None  # wait for this file before anything is started
    pushed_only: bool = False  # look for nothing by itself: what it is not told, it does not notice
    earlier: bool = False  # be of a version that neither tells nor hears


def say(event: str, **fields: Any) -> None:
    os.write(1, json.dumps({"event": event, "pid": os.getpid()} | fields).encode() + b"\n")


def load(name: str) -> Pack:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


async def act(plan: ProcessPlan) -> None:
    path = Path(plan.path)
    book = ledger.use(Path(plan.ledger) if plan.ledger else path.with_name("ledger.jsonl"))
    pack = load(plan.pack)
    if plan.gate is not None:
        await _exists(Path(plan.gate))
    disk = _disk(plan.disk, path.parent)
    if plan.user is not None and os.getuid() == 0:
        for late in ("concurrent.futures.thread", "encodings.ascii", "encodings.idna"):
            importlib.import_module(late)  # the new user may not be able to read the library
        os.setgid(plan.user)
        os.setuid(plan.user)
    async with AsyncExitStack() as stack:
        store, hf = await _opened(plan, pack, book, stack)
        serving = asyncio.create_task(hf.serve()) if plan.stay else None
        await asyncio.sleep(0)  # so that it listens to SIGTERM before anybody may send it
        say("ready")
        if plan.start_gate is not None:
            await _exists(Path(plan.start_gate))
        starting = asyncio.create_task(_perform_all(hf, pack, plan))
        await (starting if serving is None else serving)
        starting.cancel()  # as an application does that is told to stop while it starts things
    del disk  # it lived as long as the store
    say(
        "done",
        counts=store.counts,
        read=store.read,
        handed=store.handed,
        statements=crash_at_sql_statement.count(),
        trips=crash_at_round_trip.count(),
    )


async def _opened(
    plan: ProcessPlan, pack: Pack, book: ledger.Ledger, stack: AsyncExitStack
) -> tuple[CrashingStore, Holdfast]:
    """Holdfast, open. Of dozens of processes that start at once, the last may have to ask a server again."""
    while True:
        inner = _store(plan)
        store = CrashingStore(inner, point=plan.point, ledger=book)
        if plan.trip is not None:
            crash_at_round_trip.die_before(inner, plan.trip, book)
        if plan.statement is not None:
            crash_at_sql_statement.die_before(plan.statement, book)
        hf = Holdfast(
            store,
            packs=[pack],
            worker=plan.worker,
            duties=plan.duties,
            lease=plan.lease,
            concurrency=plan.concurrency,
            _pace=PUSHED_ONLY if plan.pushed_only else None,
        )
        try:
            return store, await stack.enter_async_context(hf)
        except StoreUnavailable as error:
            if plan.url is None:
                raise
            say("asks again", text=str(error))


def _store(plan: ProcessPlan) -> Store:
    if plan.url is None:
        kind = EarlierStore if plan.earlier else SqliteStore
        pace = SQLITE_PUSHED_ONLY if plan.pushed_only else PACE
        return kind(Path(plan.path), clock=SystemClock(), pace=pace)
    return open_store(plan.url, clock=SystemClock(), ids=SystemIds(), bus=plan.bus)[0]


def _disk(name: str | None, directory: Path) -> faulty_disks.FailingDisk | faulty_disks.LosingDisk | None:
    match name:
        case "failing":
            return faulty_disks.FailingDisk(directory / "failing")
        case "losing":
            return faulty_disks.LosingDisk(directory / "survives")
        case _:
            return None


async def _perform_all(hf: Holdfast, pack: Pack, plan: ProcessPlan) -> None:
    await _start_all(hf, pack, plan)
    left = iter(plan.actions)

    async def perform_rest() -> None:
        for action in left:
            await perform(action, hf, pack, say)

    await asyncio.gather(*(perform_rest() for _ in range(plan.at_once)))
    if plan.actions:
        say("all done")


async def _start_all(hf: Holdfast, pack: Pack, plan: ProcessPlan) -> None:
    async def one(start: Start) -> None:
        call = pack.workflows[f"{pack.name}.{start.workflow}"](*start.arguments)
        say("starts", arguments=start.arguments)
        try:
            run, created = await hf.start(call, request_id=start.request_id)
            say("started", run=run.id, created=created, arguments=start.arguments)
            if plan.results:
                say("result", run=run.id, arguments=start.arguments, value=await run.result())
        except HoldfastError as error:
            say("failed", error=type(error).__name__, text=str(error), arguments=start.arguments)

    await asyncio.gather(*map(one, plan.starts))


async def _exists(path: Path) -> None:
    say("waits", gate=path.name)
    while not path.exists():
        await asyncio.sleep(0.002)


def main(options: Any) -> None:
    plan = msgspec.convert(options, ProcessPlan)
    os.environ.setdefault("HOLDFAST_LOG", "json")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(act(plan))
    except HoldfastError as error:
        say("refused", error=type(error).__name__, text=str(error))
        sys.exit(3)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
