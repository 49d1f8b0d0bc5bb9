"""A run with thousands of children goes on in pieces: neither its lease nor its neighbours suffer."""

from __future__ import annotations

import asyncio

from msgspec import Raw

from holdfast import Holdfast, Pack, Run, hook
from holdfast.adapters.payloads import JsonCodec
from holdfast.engine.code.machine import Machine
from holdfast.events import LeaseWasLost, RunsRescued
from holdfast.kernel import transitions
from holdfast.kernel.changes import Committed
from holdfast.kernel.journal import Entry, Joined, Spawned, Value, input_of
from holdfast.ports.store import Claim, Store
from holdfast.workflow import Current
from tests.integration.conftest import PATIENCE_SECONDS, Home, heard

CHILDREN = 10_000
SHORT = "15s"  # a piece of the replay takes a fraction of it, also on a very busy machine


class Wide:
    """A parent of many, and a neighbour whose effect waits."""

    def __init__(self) -> None:
        self.pack = Pack("wide")
        self.gate = asyncio.Event()
        self.calls = 0

        @self.pack.workflow
        async def child(n: int) -> int:
            return n

        @self.pack.workflow
        async def parent(count: int) -> int:
            results = await asyncio.gather(*(child(n) for n in range(count)))
            await hook("go")
            return sum(results)

        @self.pack.effect
        async def hold() -> str:
            self.calls += 1
            await self.gate.wait()
            return "held"

        @self.pack.workflow
        async def neighbour() -> str:
            return await hold()

        self.parent, self.neighbour = parent, neighbour


async def let_go_with_all_its_children(store: Store, wide: Wide, run: Run[int]) -> None:
    """The work of a worker that has had all children end, and let the run go."""
    await store.join("earlier", 60_000)
    [row] = (await store.claim(Claim("default", "earlier", "nonce", frozenset({wide.parent.name}), 1))).runs
    [history] = await store.histories([row.id])
    machine = Machine(wide.parent, Current(run.id, None, run.workflow), codec=JsonCodec(), blobs={})
    machine.start(input_of(history.journal), at_ms=row.started_at_ms or 0)
    asked = machine.pending.take_fresh()
    machine.evict()
    now_ms = store.now_ms()
    entries: list[Entry] = [Spawned(now_ms, each.step, each.intent, f"{n:032x}") for n, each in enumerate(asked)]
    entries += [Joined(now_ms, each.step, f"{n:032x}", Value(Raw(b"%d" % n))) for n, each in enumerate(asked)]
    change = transitions.decide(
        row, transitions.LetGo(None), recorded=transitions.Recorded(tuple(entries)), now_ms=now_ms
    )
    [answer] = await store.commit([change])
    assert isinstance(answer, Committed)


async def until_it_has_begun(hf: Holdfast, wide: Wide) -> Run[str]:
    neighbour = (await hf.start(wide.neighbour())).run
    while not wide.calls:
        await asyncio.sleep(0)
    return neighbour


async def test_a_parent_of_ten_thousand_goes_on_under_a_short_lease_and_its_neighbours_too(home: Home) -> None:
    wide = Wide()
    async with home.holdfast(wide.pack, worker=False) as client:
        run = (await client.start(wide.parent(CHILDREN))).run
        await let_go_with_all_its_children(client.runtime.store, wide, run)
    async with home.holdfast(wide.pack, lease=SHORT) as hf:
        neighbour = await until_it_has_begun(hf, wide)
        run = await hf.get(run.id)
        await run.signal("go", 1)
        assert await run.result(timeout=PATIENCE_SECONDS) == sum(range(CHILDREN))
        wide.gate.set()
        assert await neighbour.result(timeout=PATIENCE_SECONDS) == "held"
        assert not heard(hf).all(LeaseWasLost)
        assert not heard(hf).all(RunsRescued)
    assert wide.calls == 1
