"""Time limits that are due are attended to one by one: what is wrong with one run does not save the others."""

from __future__ import annotations

import pytest

from holdfast.engine.duties.timeouts import Timeouts
from holdfast.engine.pace import Pace
from holdfast.errors import StoreUnavailable
from holdfast.events import DutyFailed, Event
from holdfast.kernel import timeouts
from holdfast.kernel.timeouts import TimeLimit
from holdfast.stores.memory import MemoryStore
from tests.builders import NOW_MS, FakeClock

PACE = Pace()


class Ending:
    """Ends runs, but for those that cannot be read."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.ended: list[str] = []

    async def __call__(self, limit: TimeLimit) -> TimeLimit | None:
        if limit.run_id == "odd":
            raise self.error
        self.ended.append(limit.run_id)
        return None


async def due(*run_ids: str) -> tuple[MemoryStore, FakeClock]:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    await store.open()
    limits = [TimeLimit("default", run_id, NOW_MS + n, 50, "fail", 50) for n, run_id in enumerate(run_ids)]
    await store.write([timeouts.begin(limit, now_ms=NOW_MS) for limit in limits])
    clock.advance(1_000)
    return store, clock


async def test_a_run_that_cannot_be_read_does_not_keep_others_from_ending() -> None:
    store, clock = await due("odd", "good")
    end, told = Ending(ValueError("from a newer version")), list[Event]()
    duty = Timeouts(store, emit=told.append, pace=PACE, end=end)
    await duty.tick()
    assert end.ended == ["good"]
    assert told == [DutyFailed("timeouts", "ValueError: from a newer version")]
    clock.advance(PACE.cancel_grace_ms + 1)
    await duty.tick()  # it is looked at again, later
    assert len(told) == 2


async def test_a_store_that_is_away_is_asked_again() -> None:
    store, _ = await due("odd", "good")
    duty = Timeouts(store, emit=list[Event]().append, pace=PACE, end=Ending(StoreUnavailable("away")))
    with pytest.raises(StoreUnavailable):
        await duty.tick()
