"""A remote worker of a test, as a process: `python -m tests.faults.remote_worker_process options.json`.

It serves the effects of `afar`, the pack below. It writes each call into the ledger before anything else; then it waits
for a flag, so that a fault can strike while it has the task, and says how it ended.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast import Holdfast, NotAllowedNow, Pack
from holdfast.engine.remote.tasks import Handed, Tasks
from tests.faults.holdfast_process import say
from tests.faults.ledger import Ledger

afar = Pack("afar")
RUN = "tests.faults.remote_worker_process:afar"
EFFECTS = ("afar.fetch", "afar.launch")


@afar.effect(remote=True)
async def fetch(name: str) -> str: ...


@afar.effect(safety="once", remote=True)
async def launch(name: str) -> str: ...


@afar.workflow(key="send:{name}")
async def send(name: str) -> str:
    return await fetch(name)


@afar.workflow(key="fly:{name}")
async def fly(name: str) -> str:
    return await launch(name)


class Options(Struct, frozen=True):
    path: str
    ledger: str
    lease: str
    flag: str  # it completes what it has when this file is there


async def perform(tasks: Tasks, handed: Handed, options: Options) -> None:
    task, name = handed.task, handed.place.name
    Ledger(Path(options.ledger)).write(
        call=task.key, step=handed.place.effect, order=task.run_id, attempt=task.attempt, fence=handed.claim.fence
    )
    say("claimed", task=name)
    while not Path(options.flag).exists():
        await asyncio.sleep(0.01)
    try:
        result = msgspec.json.encode(options.flag.rpartition("/")[2])
        await tasks.complete(name, fence=handed.claim.fence, result=result)
        say("completed", task=name)
    except NotAllowedNow as refused:
        say("refused", task=name, why=str(refused))


async def serve(options: Options) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with Holdfast(f"sqlite:///{options.path}", worker=False) as hf:
        tasks = hf.runtime.tasks_in(hf.namespace)
        say("ready")
        while not stopping.is_set():
            # A lease that runs out tells no process: ask again every half second, and not only at the safety poll.
            for handed in await tasks.claim(EFFECTS, worker="remote", lease=options.lease, wait=0.5):
                await perform(tasks, handed, options)


if __name__ == "__main__":
    asyncio.run(serve(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Options)))
