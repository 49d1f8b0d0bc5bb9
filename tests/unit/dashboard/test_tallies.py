from __future__ import annotations

import pytest

from holdfast import Holdfast, Pack
from holdfast.adapters.machine import SystemClock
from holdfast.dashboard import tallies
from holdfast.dashboard.tallies import FRESH_MS, KEPT_MAX, Tallies, Tally
from holdfast.stores.memory import MemoryStore
from holdfast.wire.run_queries import RunQuery

pack = Pack("p")


@pack.workflow
async def work(number: int) -> None:
    """It is never executed here."""


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ((), "1,013+"),
        (("failed",), "13"),
        (("completed",), "1,000+"),
        (("blocked",), "0"),
        (("failed", "blocked"), "13"),
    ],
)
def test_a_count_says_where_it_stops(statuses: tuple[str, ...], said: str):
    assert Tally({"failed": 13, "completed": 1_000}).of(*statuses) == said


async def test_runs_are_counted_by_status_up_to_a_bound():
    async with Holdfast(MemoryStore(clock=SystemClock()), packs=[pack], worker=False) as hf:
        for number in range(8):
            run, _ = await hf.start(work(number), key=f"k-{number}")
            if number < 2:
                await run.cancel("a test")
        few = await tallies.count(hf, RunQuery(key="k-1"), roots_only=True, bound=5)
        many = await tallies.count(hf, RunQuery(), roots_only=True, bound=5)
        every = await tallies.count(hf, RunQuery(), roots_only=False, bound=5)
    assert few.counts == {"cancelled": 1}
    assert (many.counts["pending"], many.of("pending"), many.of("cancelled")) == (5, "5+", "2")
    assert (every.counts["pending"], every.of("pending")) == (6, "6")  # the store counts all of them


async def test_what_was_counted_is_good_for_a_while():
    async with Holdfast(MemoryStore(clock=SystemClock()), packs=[pack], worker=False) as hf:
        kept = Tallies()
        now_ms = hf.runtime.common_documents.now_ms()

        async def pending(later_ms: int, key: str = "") -> str:
            query = RunQuery(key=key, statuses=("failed",))  # what is counted is independent of that
            return (await kept.of(hf, query, roots_only=True, now_ms=now_ms + later_ms)).of("pending")

        assert await pending(0) == "0"
        await hf.start(work(1))
        assert await pending(FRESH_MS - 1) == "0"
        assert await pending(FRESH_MS) == "1"
        for number in range(KEPT_MAX):
            await pending(FRESH_MS, key=f"other-{number}")
        await hf.start(work(2))
        assert await pending(FRESH_MS) == "2"  # it was forgotten
