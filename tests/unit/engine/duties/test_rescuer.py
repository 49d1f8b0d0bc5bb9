"""Every takeover is counted before the run is freed."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engine.duties.rescuer import Rescuer
from holdfast.engine.pace import Pace
from holdfast.events import Event, RunsRescued
from holdfast.kernel import takeovers
from holdfast.kernel.documents import Writing
from holdfast.kernel.times import Millis
from holdfast.stores.memory import MemoryStore
from tests.builders import FakeClock
from tests.contract.helpers import held

TTL_MS = Millis(1_000)


class SlowStore(MemoryStore):
    """While it writes, a millisecond passes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.clock = clock

    async def write(self, writings: Sequence[Writing]) -> list[bool]:
        self.clock.advance(1)
        return await super().write(writings)


async def test_a_run_whose_lease_expires_while_others_are_counted_is_counted_before_it_is_freed() -> None:
    clock = FakeClock()
    store, told = SlowStore(clock), list[Event]()
    await store.open()
    duty = Rescuer(store, ttl_ms=TTL_MS, emit=told.append, pace=Pace(), ring=lambda: None)
    await store.join("w-1", TTL_MS)
    await store.join("w-2", Millis(TTL_MS + 1))
    for number in (1, 2):
        await held(store, f"run-{number}", owner=f"w-{number}", key=None)
    clock.advance(TTL_MS)
    rescued: list[str] = []
    for tick in (1, 2):
        await duty.tick()
        rescued = [run_id for event in told if isinstance(event, RunsRescued) for run_id in event.run_ids]
        assert len(rescued) == tick
        counted = await store.named([("default", takeovers.KIND, run_id) for run_id in rescued])
        assert {document.id for document in counted} == set(rescued)
    assert rescued == ["run-1", "run-2"]
