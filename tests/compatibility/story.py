"""What happens to the runs of the fixtures: the same story, told under the commit that wrote them and under any later.

It ends in the middle of work: an effect that must happen once has begun, remote workers have tasks, runs wait. The
caller takes a snapshot of the store then, as a process that dies there would leave it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from holdfast import Holdfast, Run
from holdfast.kernel.journal import Spawned
from holdfast.ports.store import Store
from tests.compatibility.shop import Shop

PATIENCE_SECONDS = 60.0


class Told(NamedTuple):
    """What a test has to know beside the data."""

    token: str  # of the API key
    task: str  # that a worker has claimed
    fence: int  # of that claim
    runs: dict[str, str]  # the id of each run, by its name in this story


@asynccontextmanager
async def told(make_store: Callable[[], Store]) -> AsyncIterator[Told]:
    """Everything has happened. Leaving it ends the process that is at work."""
    first = Shop(in_trouble=True)
    async with _opened(make_store, first) as hf:
        drifting = (await hf.start(first.drifting("drifting"))).run
        await _until(drifting, "waiting")
    second = Shop(drifted=True, in_trouble=True)
    async with _opened(make_store, second) as hf:
        runs = {"drifting": drifting.id} | {str(run.key): run.id for run in await _ended(hf, second)}
        runs |= await _waiting(hf, second)
        fork = await (await hf.get(runs["choosing"])).fork(at="note#2")
        runs["fork of choosing"] = (await _until(fork, "waiting")).id
        superseding = await hf.start(second.timer("superseded"), replace=await hf.get(runs["superseded"]))
        runs["superseding"] = (await _until(superseding.run, "waiting")).id
        await _until(await hf.get(runs["superseded"]), "cancelled")
        await _blocked(hf, await hf.get(drifting.id))
        token, _ = await hf.api_keys.create("a till", namespace="default", scope="write")
        task, fence = await _at_work(hf, second, runs)
        try:
            yield Told(token, task, fence, runs)
        finally:
            second.go_on.set()


def runtime_of(hf: Holdfast) -> Any:
    """What is below the verbs: the commit that wrote the fixtures had it on the Holdfast itself."""
    return getattr(hf, "runtime", hf)


async def _ended(hf: Holdfast, shop: Shop) -> list[Run[Any]]:
    finished = (await hf.start(shop.finished("finished"), attributes={"shelf": 4}, priority=2)).run
    large = (await hf.start(shop.large("large"))).run
    shipping = (await hf.start(shop.shipping("shipping"))).run
    buying = (await hf.start(shop.buying("buying"), request_id="request-1")).run
    pausing = (await hf.start(shop.pausing("pausing"))).run
    choosing = (await hf.start(shop.choosing("choosing"))).run
    await _all_wait(buying, pausing, choosing)
    await buying.cancel("changed my mind")
    await pausing.cancel("a pause")
    await choosing.signal("c", "first choice", dedupe="choice-1")
    ended = [finished, large, shipping, buying, pausing, choosing]
    for run in ended:
        await _settled(run)
    return ended


async def _waiting(hf: Holdfast, shop: Shop) -> dict[str, str]:
    calls = [
        shop.timer("timer"),
        shop.timer("superseded"),
        shop.approval("approval"),
        shop.labelling("labelling"),
        shop.tracked("tracked"),
        shop.parent("parent"),
        shop.counting("counting"),
    ]
    found = [(await hf.start(call)).run for call in calls]
    delayed = (await hf.start(shop.finished("delayed"), delay="30d")).run
    await _all_wait(*found)
    parent, counting = found[-2:]
    # By how the parent asked for them: they have no keys of their own.
    children = {entry.intent.kind: entry.run_id for entry in await parent.journal() if isinstance(entry, Spawned)}
    named = {"spawned by parent": children["spawn"], "child of parent": children["child"]}
    await _all_wait(*[await hf.get(run_id) for run_id in named.values()])
    await counting.signal("numbers", 5, dedupe="five")
    spawned = await hf.get(children["spawn"])
    await spawned.signal("word", "from the first")
    await _settled(spawned)
    await _recorded(counting, "Continued")
    await _recorded(parent, "Joined")
    await _all_wait(*found)
    return named | {str(run.key): run.id for run in [*found, delayed]}


async def _blocked(hf: Holdfast, run: Run[Any]) -> None:
    await run.signal("go", "gone")
    await _until(run, "blocked")
    await run.signal("extra", "unread", dedupe="extra-1")


async def _at_work(hf: Holdfast, shop: Shop, runs: dict[str, str]) -> tuple[str, int]:
    tasks, store = runtime_of(hf).tasks_in("default"), runtime_of(hf).store
    runs["dog"] = (await hf.start(shop.thumbnail("dog"))).run.id
    [handed] = await tasks.claim(["shop.resize"], worker="painter", lease="1h", wait=PATIENCE_SECONDS)
    await tasks.heartbeat(handed.place.name, fence=handed.claim.fence, details=b'{"done":1}')
    cat = (await hf.start(shop.thumbnail("cat"))).run
    runs["cat"] = cat.id
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(await store.documents("default", "task/shop.resize")) < 2:
            await asyncio.sleep(0.01)
        while not (await store.histories([runs["dog"]]))[0].beats:
            await asyncio.sleep(0.01)
    runs["paying"] = (await hf.start(shop.paying("paying"))).run.id
    async with asyncio.timeout(PATIENCE_SECONDS):
        await shop.at_work.wait()
    return handed.place.name, handed.claim.fence


@asynccontextmanager
async def _opened(make_store: Callable[[], Store], shop: Shop) -> AsyncIterator[Holdfast]:
    async with Holdfast(make_store(), packs=[shop.pack], duties=False) as hf:
        yield hf


async def _until(run: Run[Any], status: str) -> Run[Any]:
    """As soon as it has this status, and no worker holds it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (now := await run.refresh()).status != status or now._row.owner is not None:
            await asyncio.sleep(0.01)
        return now


async def _all_wait(*runs: Run[Any]) -> None:
    for run in runs:
        await _until(run, "waiting")


async def _settled(run: Run[Any]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await run.refresh()).is_settled:
            await asyncio.sleep(0.01)


async def _recorded(run: Run[Any], kind: str) -> None:
    """As soon as there is an entry of this kind in its journal."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while kind not in {type(entry).__name__ for entry in await run.journal()}:
            await asyncio.sleep(0.01)
