"""Runs that take turns are claimed by their tags, and all others by their times."""

from __future__ import annotations

from holdfast.kernel.changes import Change
from holdfast.kernel.rates import Rate, Taking
from holdfast.kernel.runs import Run
from holdfast.ports.store import Store
from tests.builders import FakeClock
from tests.contract.helpers import WORKFLOW, admission, claim, committed, let_go, offer, stop


def of(store: Store, share: str, run_id: str, **fields: object) -> Change:
    """The admission of a run of this share."""
    return admission(store, run_id, **{"key": None, **fields}, shares=share)  # pyright: ignore[reportArgumentType]


async def start(store: Store, share: str, run_id: str, **fields: object) -> Run:
    return await committed(store, of(store, share, run_id, **fields))


async def order(
    store: Store, limit: int = 100, *, at_a_time: int = 1, workflows: tuple[str, ...] = (WORKFLOW,)
) -> list[str]:
    """The runs as they are claimed, one after the other."""
    found: list[str] = []
    while len(found) < limit and (runs := await claim(store, limit=at_a_time, workflows=workflows)):
        found += [run.id for run in runs]
    return found


async def test_one_with_much_to_do_takes_turns_with_the_others(store: Store, clock: FakeClock) -> None:
    for n in range(5):
        await start(store, "large", f"l-{n}")
        clock.advance(1)
    for n in range(2):
        await start(store, "small", f"s-{n}")
        clock.advance(1)
    assert await order(store) == ["l-0", "s-0", "l-1", "s-1", "l-2", "l-3", "l-4"]


async def test_one_that_comes_late_is_behind_one_run_of_each_other(store: Store, clock: FakeClock) -> None:
    await store.commit([of(store, "large", f"l-{n:03}") for n in range(50)])
    clock.advance(10)
    assert len(await order(store, 20)) == 20
    await start(store, "small", "s-0")
    await start(store, "small", "s-1")
    assert [run_id[0] for run_id in await order(store, 6)] == list("slslll")


async def test_one_that_was_away_saves_nothing_up(store: Store) -> None:
    for n in range(10):
        await start(store, "large", f"l-{n}")
    await order(store)
    for n in range(3):
        await start(store, "small", f"s-{n}")
        await start(store, "large", f"m-{n}")
    assert [run_id[0] for run_id in await order(store)] == list("smsmsm")


async def test_a_share_that_starts_one_at_a_time_keeps_no_other_from_its_turn(store: Store, clock: FakeClock) -> None:
    for n in range(4):
        await start(store, "large", f"l-{n}")
        clock.advance(1)
    found: list[str] = []
    for n in range(4):
        await start(store, "small", f"s-{n}")
        clock.advance(1)
        found += await order(store, 1)
        found += await order(store, 1)
    assert sum(run_id[0] == "l" for run_id in found) == 4


async def test_a_higher_priority_goes_first_all_the_same(store: Store) -> None:
    await start(store, "large", "l-0")
    await start(store, "large", "l-1", priority=5)
    await start(store, "large", "l-2", priority=5)
    await start(store, "small", "s-0", priority=5)
    assert sorted(await order(store, 2)) == ["l-1", "s-0"]
    assert await order(store) == ["l-2", "l-0"]


async def test_many_at_once_are_claimed_in_the_same_order(store: Store, clock: FakeClock) -> None:
    for n in range(6):
        await start(store, "large", f"l-{n}")
        clock.advance(1)
    for n in range(3):
        await start(store, "small", f"s-{n}")
        clock.advance(1)
    assert await order(store, at_a_time=4) == ["l-0", "s-0", "l-1", "s-1", "l-2", "s-2", "l-3", "l-4", "l-5"]


async def test_runs_without_a_share_keep_their_order(store: Store, clock: FakeClock) -> None:
    await start(store, "large", "l-0")
    clock.advance(1)
    await committed(store, admission(store, "n-0", key=None))
    clock.advance(1)
    await start(store, "large", "l-1")
    clock.advance(1)
    await committed(store, admission(store, "n-1", key=None))
    clock.advance(1)
    await start(store, "small", "s-0")
    clock.advance(1)
    assert await order(store, at_a_time=2) == ["l-0", "n-0", "s-0", "n-1", "l-1"]


async def test_a_workflow_has_its_turn_by_time_among_others(store: Store, clock: FakeClock) -> None:
    for n in range(3):
        await start(store, "large", f"l-{n}")
        clock.advance(1)
        await committed(store, admission(store, f"o-{n}", key=None, workflow="shop.other"))
        clock.advance(1)
    await start(store, "small", "s-0")
    found = await order(store, at_a_time=10, workflows=(WORKFLOW, "shop.other"))
    assert found == ["l-0", "o-0", "s-0", "o-1", "l-1", "o-2", "l-2"]


async def test_one_that_may_not_begin_yet_is_passed_over(store: Store, clock: FakeClock) -> None:
    await start(store, "small", "s-0", delay_ms=1000)
    await start(store, "large", "l-0")
    await start(store, "large", "l-1")
    assert await order(store, 1) == ["l-0"]
    clock.advance(1000)
    assert await order(store) == ["s-0", "l-1"]


async def test_one_that_wakes_goes_by_its_time(store: Store, clock: FakeClock) -> None:
    await start(store, "large", "l-0")
    [run] = await claim(store)
    for n in range(3):
        await start(store, "large", f"m-{n}")
    clock.advance(1)
    await committed(store, let_go(store, run, wake_at_ms=store.now_ms()))
    await start(store, "small", "s-0")
    assert (await order(store, at_a_time=10)).index("l-0") == 3


async def test_a_run_that_a_worker_has_at_once_counts(store: Store) -> None:
    for n in range(3):
        await start(store, "large", f"l-{n}", owner="w-1")
    await start(store, "large", "l-3")
    await start(store, "small", "s-0")
    await start(store, "large", "l-4")
    assert await order(store) == ["s-0", "l-3", "l-4"]


async def test_a_run_that_is_stopped_before_it_began_leaves_its_line(store: Store) -> None:
    first = await start(store, "large", "l-0")
    await start(store, "large", "l-1")
    await offer(store, await stop(store, first))
    assert await order(store) == ["l-1"]
    await start(store, "small", "s-0")
    assert await order(store) == ["s-0"]


async def test_it_says_how_many_are_before_it(store: Store, clock: FakeClock) -> None:
    for n in range(3):
        await start(store, "large", f"l-{n}")
        clock.advance(1)
    small = await start(store, "small", "s-0")
    clock.advance(1)
    turn = await store.turn(small)
    assert turn is not None
    assert (turn.share, turn.ahead) == ("small", 1)
    [last] = await store.runs(["l-2"])
    turn = await store.turn(last)
    assert turn is not None
    assert (turn.share, turn.ahead) == ("large", 3)
    assert await store.turn(await committed(store, admission(store, "n-0", key=None))) is None
    await order(store)
    [begun] = await store.runs(["l-2"])
    assert await store.turn(begun) is None


async def test_a_line_in_which_no_run_stands_is_forgotten(store: Store, clock: FakeClock) -> None:
    for n in range(5):
        await start(store, "large", f"l-{n}")
        clock.advance(1)
    await store.prune(100)
    await start(store, "small", "s-0")
    assert (await order(store)).index("s-0") == 1
    await store.prune(100)
    await start(store, "large", "m-0")
    await start(store, "small", "t-0")
    assert sorted(await order(store)) == ["m-0", "t-0"]


async def test_with_a_throttle_the_rate_says_when_and_the_tag_says_which(store: Store, clock: FakeClock) -> None:
    rate = Taking("t", Rate(1000, per="1s"))
    for n in range(3):
        await committed(store, admission(store, f"l-{n}", key=None, shares="large", takes=rate))
    await committed(store, admission(store, "s-0", key=None, shares="small", takes=rate))
    clock.advance(100)
    assert await order(store) == ["l-0", "s-0", "l-1", "l-2"]
