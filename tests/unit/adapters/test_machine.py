from __future__ import annotations

from holdfast.adapters.machine import SystemClock, SystemIds


def test_ids_sort_by_time_and_never_repeat():
    ids = SystemIds()
    early, late = (sorted(ids.run_id(now_ms) for _ in range(200)) for now_ms in (1_700_000_000_000, 1_700_000_000_001))
    assert max(early) < min(late)
    assert len({*early, *late}) == 400
    assert len({ids.nonce() for _ in range(200)}) == 200
    assert all(len(ids.nonce()) == 32 for _ in range(10))
    assert all(0 <= ids.chance() < 1 for _ in range(100))


def test_ids_of_one_millisecond_sort_in_the_order_in_which_they_were_made():
    ids = SystemIds()
    made = [ids.run_id(now_ms) for now_ms in (1_700_000_000_000, 1_700_000_000_001) for _ in range(500)]
    assert made == sorted(made)
    assert {len(run_id) for run_id in made} == {32}


async def test_the_steady_clock_goes_on_and_the_boot_has_a_name():
    clock = SystemClock()
    before, wall_ms = clock.steady_ms(), clock.wall_ms()
    await clock.pause(0.001)
    assert clock.steady_ms() >= before + 1
    assert clock.wall_ms() >= wall_ms
    assert clock.boot_id() == SystemClock().boot_id() != ""
