"""One process of a test, a worker or a client: `python -m tests.faults.actor part.json`, a `Part` as JSON.

It says what it does on its standard output, a JSON object per line; its log goes to standard error.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast import Holdfast, HoldfastError, Pack
from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.assembly import open_store
from holdfast.ports.store import Store
from holdfast.stores.sqlite import SqliteStore
from tests.faults import disks, ledger, statements, trips
from tests.faults.crashing import CrashingStore, Point
from tests.faults.deeds import Deed, do


class Start(Struct, frozen=True):
    """A run to be started."""

    workflow: str
    arguments: list[Any] = []
    request_id: str | None = None


class Part(Struct, frozen=True, kw_only=True):
    """What a process is to do: open the store, start these runs, wait for their results, stay until SIGTERM.

    When the runs are started (and their results are there, if they are waited for) it does its deeds.
    """

    path: str
    url: str | None = None  # of the store, if it is not the file
    bus: str | None = None
    ledger: str | None = None  # if it is not beside the file
    pack: str = "tests.faults.scenario:shop"
    worker: bool = True
    duties: bool | None = None
    lease: str = "30s"
    concurrency: int = 200
    starts: list[Start] = []
    deeds: list[Deed] = []
    at_once: int = 1  # how many deeds it does at the same time
    results: bool = True
    stay: bool = False
    point: Point | None = None
    statement: int | None = None  # die before this SQL statement
    trip: int | None = None  # die before this round trip that writes to Redis
    disk: str | None = None  # "failing" or "losing", see `disks.py`
    user: int | None = None  # whom to become before anything is opened
    gate: str | None = None  # wait for this file before anything is opened
    start_gate: str | None = None  # wait for this file before anything is started


def say(event: str, **fields: Any) -> None:
    os.write(1, json.dumps({"event": event, "pid": os.getpid()} | fields).encode() + b"\n")


def load(name: str) -> Pack:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


async def act(part: Part) -> None:
    path = Path(part.path)
    book = ledger.use(Path(part.ledger) if part.ledger else path.with_name("ledger.jsonl"))
    pack = load(part.pack)
    if part.gate is not None:
        await _exists(Path(part.gate))
    disk = _disk(part.disk, path.parent)
    if part.user is not None and os.getuid() == 0:
        importlib.import_module("concurrent.futures.thread")  # the new user may not be able to read the library
        os.setgid(part.user)
        os.setuid(part.user)
    inner = _store(part)
    store = CrashingStore(inner, point=part.point, ledger=book)
    if part.trip is not None:
        trips.die_before(inner, part.trip, book)
    if part.statement is not None:
        statements.die_before(part.statement, book)
    async with Holdfast(
        store,
        packs=[pack],
        worker=part.worker,
        duties=part.duties,
        lease=part.lease,
        concurrency=part.concurrency,
    ) as hf:
        serving = asyncio.create_task(hf.serve()) if part.stay else None
        await asyncio.sleep(0)  # so that it listens to SIGTERM before anybody may send it
        say("ready")
        if part.start_gate is not None:
            await _exists(Path(part.start_gate))
        starting = asyncio.create_task(_do_all(hf, pack, part))
        await (starting if serving is None else serving)
        starting.cancel()  # as an application does that is told to stop while it starts things
    del disk  # it lived as long as the store
    say(
        "done",
        counts=store.counts,
        read=store.read,
        handed=store.handed,
        statements=statements.count(),
        trips=trips.count(),
    )


def _store(part: Part) -> Store:
    if part.url is None:
        return SqliteStore(Path(part.path), clock=SystemClock())
    return open_store(part.url, clock=SystemClock(), ids=SystemIds(), bus=part.bus)[0]


def _disk(name: str | None, directory: Path) -> disks.FailingDisk | disks.LosingDisk | None:
    match name:
        case "failing":
            return disks.FailingDisk(directory / "failing")
        case "losing":
            return disks.LosingDisk(directory / "survives")
        case _:
            return None


async def _do_all(hf: Holdfast, pack: Pack, part: Part) -> None:
    await _start_all(hf, pack, part)
    left = iter(part.deeds)

    async def hand() -> None:
        for deed in left:
            await do(deed, hf, pack, say)

    await asyncio.gather(*(hand() for _ in range(part.at_once)))
    if part.deeds:
        say("all done")


async def _start_all(hf: Holdfast, pack: Pack, part: Part) -> None:
    async def one(start: Start) -> None:
        call = pack.workflows[f"{pack.name}.{start.workflow}"](*start.arguments)
        say("starts", arguments=start.arguments)
        try:
            run, created = await hf.start(call, request_id=start.request_id)
            say("started", run=run.id, created=created, arguments=start.arguments)
            if part.results:
                say("result", run=run.id, arguments=start.arguments, value=await run.result())
        except HoldfastError as error:
            say("failed", error=type(error).__name__, text=str(error), arguments=start.arguments)

    await asyncio.gather(*map(one, part.starts))


async def _exists(path: Path) -> None:
    say("waits", gate=path.name)
    while not path.exists():
        await asyncio.sleep(0.002)


def main(options: Any) -> None:
    part = msgspec.convert(options, Part)
    os.environ.setdefault("HOLDFAST_LOG", "json")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(act(part))
    except HoldfastError as error:
        say("refused", error=type(error).__name__, text=str(error))
        sys.exit(3)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
