"""The capacity model: the simulation agrees with what is known exactly and with what was measured, the page with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from bench import capacity, capacity_page
from bench.capacity import CHANGES, OF_W9, Prediction, ceilings, dealt, had_cores, limit_of, placement
from bench.runner import Job, Sample, plan
from bench.simulation import Costs, Shape, exact_rate, simulate
from bench.write_costs import Transaction, fitted
from bench.write_lock import watching

ROOT = Path(__file__).parents[2]
PUBLISHED: dict[str, Any] = json.loads(capacity.PUBLISHED.read_text(encoding="utf-8"))
COSTS = Costs(client_us=100, worker_us=150, change_us=40, sync_us=300)
ONE_REDIS = (0,) * 16


@pytest.mark.parametrize("in_flight", [1, 4, 20, 80])
@pytest.mark.parametrize(("client_us", "worker_us", "change_us"), [(100, 150, 80), (50, 300, 20), (200, 90, 120)])
def test_the_simulation_agrees_with_the_exact_solution_where_there_is_one(in_flight, client_us, worker_us, change_us):
    costs = Costs(client_us, worker_us, change_us, sync_us=0, claim_is_a_change=False)
    alone = Shape(1, 1, machines=(64,), in_flight=in_flight, batch_max=1, claim_max=1)
    exact = exact_rate([client_us, worker_us, 2 * change_us], in_flight)
    assert simulate(costs, alone, runs=8_000).rate == pytest.approx(exact, rel=0.05)


def test_the_exact_solution_of_one_run_and_of_very_many():
    assert exact_rate([100, 300, 100], 1) == pytest.approx(1e6 / 500)
    assert exact_rate([100, 300, 100], 500) == pytest.approx(1e6 / 300)


def test_one_seed_is_one_course():
    shape = Shape(2, 3, machines=(4,), in_flight=60)
    first, again, other = (simulate(COSTS, shape, runs=2_000, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("shape", "limit"),
    [
        (Shape(1, 2, machines=(1,), in_flight=200), "cores"),
        (Shape(1, 8, machines=(16,), in_flight=400), "SQLite's writer"),
        (Shape(8, 1, machines=(16,), in_flight=400), "workers"),
        (Shape(1, 8, machines=(16,), in_flight=400, placement=tuple(range(16))), "clients"),
        (Shape(8, 16, machines=(32,), in_flight=800, placement=ONE_REDIS), "Redis"),
    ],
)
def test_the_simulation_comes_up_to_the_ceiling_and_not_beyond(shape, limit):
    costs = Costs(client_us=100, worker_us=150, change_us=40, sync_us=20)
    bounds = ceilings(costs, shape)
    assert limit_of(bounds) == limit
    assert 0.85 < simulate(costs, shape, runs=6_000).rate / min(bounds.values()) < 1.04


def test_a_slow_disk_is_shared_by_all_changes_that_have_gathered():
    quick, slow = (Costs(100, 150, 40, sync_us=us) for us in (100, 1_000))
    shape = Shape(2, 4, machines=(8,), in_flight=400)
    ratio = simulate(quick, shape, runs=6_000).rate / simulate(slow, shape, runs=6_000).rate
    assert 1 < ratio < 4, "ten times the sync is far from a tenth of the rate"


def test_the_busiest_primary_is_the_limit():
    even, uneven = (0, 1, 2, 3) * 4, (0,) * 8 + (1, 2, 3, 3) * 2
    shapes = [Shape(8, 16, machines=(64,), in_flight=400, placement=each) for each in (even, uneven)]
    assert [shape.busiest for shape in shapes] == [1 / 4, 1 / 2]
    assert ceilings(COSTS, shapes[0])["Redis"] == 2 * ceilings(COSTS, shapes[1])["Redis"]


@pytest.mark.parametrize("primaries", [1, 3, 6, 16, 30])
@pytest.mark.parametrize("shards", [16, 256])
def test_every_shard_has_a_primary(primaries, shards):
    places = placement(primaries, shards)
    assert len(places) == shards
    assert set(places) <= set(range(primaries))


def test_the_page_says_how_sixteen_shards_lie():
    assert sorted(map(placement(3, 16).count, range(3))) == [3, 5, 8]
    assert sorted(map(placement(6, 16).count, range(6))) == [0, 0, 3, 3, 5, 5]
    assert sorted(map(placement(16, 16).count, range(16))) == [0] * 8 + [1, 1, 2, 2, 2, 2, 3, 3]


def test_there_is_a_worker_for_each_core_and_always_a_client():
    assert dealt(1, COSTS) == (1, 1)
    assert dealt(10, COSTS) == (4, 10)


# -- what was published


def test_the_page_is_what_was_measured():
    assert capacity_page.written() == "\n".join(capacity_page.lines(PUBLISHED))
    assert capacity_page.PICTURE.is_file()


def test_what_is_predicted_follows_from_the_constants():
    constants, predicted = PUBLISHED["constants"], [Prediction(**each) for each in PUBLISHED["predictions"]]
    for store in ("sqlite", "redis"):
        ours = next(each for each in predicted if each.store == store and each.cores == capacity.CORES)
        costs = capacity.costs_of(constants, store)
        place = placement(1, 16) if store == "redis" else ()
        in_flight = capacity.IN_FLIGHT * (ours.clients + ours.workers)
        shape = Shape(ours.clients, ours.workers, (ours.cores,), in_flight, placement=place)
        assert min(ceilings(costs, shape).values()) == pytest.approx(ours.ceiling)
        assert simulate(costs, shape, runs=capacity.RUNS, seed=capacity.SEED).rate == pytest.approx(ours.simulated)


@pytest.mark.parametrize("each", PUBLISHED["checks"], ids=lambda each: f"{each['store']}-{each['workload']}")
def test_what_was_measured_is_what_the_model_says_of_it(each):
    assert each["measured"] < 1.2 * each["ceiling"]
    assert 0.7 * each["least"] < each["simulated"] < 1.35 * each["greatest"]


def test_what_is_predicted_covers_what_was_asked():
    names = {each["name"] for each in PUBLISHED["predictions"]}
    assert {"1 machine of 8", "6 machines of 8", "Redis Cluster of 3", "Redis Cluster of 30"} <= names
    assert {each["workload"] for each in PUBLISHED["checks"]} == set(OF_W9)


# -- how it is measured


def test_w9_takes_turns_over_the_numbers_of_processes():
    jobs = plan(["W9"], list(capacity.CONTENDERS.values()), repetitions=2, quick=True)
    assert [job.workload for job in jobs if job.repetition == 1 and job.contender == "holdfast_processes"] == list(
        OF_W9
    )
    assert len(jobs) == 2 * 2 * len(OF_W9)


def test_constants_are_medians_by_store_and_workload():
    def sample(workload: str, us: float) -> Sample:
        return Sample(Job(workload, "holdfast_processes", 1, 10), {"rate": 1.0, "client_us": us, "cores_idle": 0.5})

    samples = [sample("W9", 10), sample("W9", 30), sample("W9", 11), sample("W9-2", 7)]
    constants = capacity.constants_of(samples, {"change_us": 1.0})
    assert constants["sqlite"]["W9"] == {"client_us": 11}
    assert constants["sqlite"]["W9-2"] == {"client_us": 7}
    assert constants["writer"] == {"change_us": 1.0}


def test_what_the_stores_threads_do_beside_the_lock_is_work_of_their_process():
    figures = {"client_us": 100.0, "workers_us": 200.0, "store_us": 240.0}
    constants = {"sqlite": {"W9": figures}, "writer": {"change_us": 50.0, "sync_us": 300.0}}
    costs = capacity.costs_of(constants, "sqlite", "W9")
    assert costs == Costs(client_us=130, worker_us=260, change_us=50, sync_us=300)
    assert costs.client_us + costs.worker_us + CHANGES * costs.change_us == sum(figures.values())


def test_cores_to_be_had_are_those_used_and_those_idle():
    assert had_cores({"client_cores": 0.5, "worker_1_cores": 0.7, "cores_idle": 0.25}, 2) == pytest.approx(1.7)
    assert had_cores({"client_cores": 1.2, "worker_1_cores": 0.9, "cores_idle": 0.1}, 2) == 2.0


def test_a_change_costs_what_it_adds_and_the_sync_is_what_is_left():
    taken = {size: Transaction(held_us=400 + 50 * size, cpu_us=120 + 50 * size) for size in (1, 8, 32)}
    assert fitted(taken) == pytest.approx({"change_us": 50, "sync_us": 400})


HOLDER = """
import sys, apsw
db = apsw.Connection(sys.argv[1])
db.execute("begin immediate; insert into t values (1)")
print("held", flush=True)
sys.stdin.readline()
db.execute("commit")
print("free", flush=True)
sys.stdin.readline()
"""


async def test_the_write_lock_is_seen_from_outside(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)  # where `python -m bench` finds itself
    file = tmp_path / "x.db"
    db = apsw.Connection(str(file))
    db.execute("pragma journal_mode = wal; create table t (x)").fetchall()
    command = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        async with watching(file) as share:
            assert await seen(share) == 1.0
            holder.stdin.write("\n")
            assert holder.stdout.readline() == "free\n"
            await share()
            assert await seen(share) == 0.0
        holder.stdin.write("\n")
    db.close()


async def seen(share: Callable[[], Awaitable[float | None]]) -> float:
    """What it sees, as soon as it has looked."""
    while (found := await share()) is None:
        pass
    return found


def test_threads_of_a_process_are_told_apart():
    from bench.busy import thread_seconds

    main, others = thread_seconds(os.getpid())
    assert main > 0
    assert others >= 0
