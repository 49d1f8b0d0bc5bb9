"""SIGKILL before and after every store call of a whole scenario, with one worker and with three (E2, E3, E12).

A dry run counts the calls of each verb. Then one process is killed at each of them, a fresh one (or one of the two
others) takes over, and the ledger and the file are compared with what a life without accidents would have left.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
from collections import Counter
from collections.abc import Collection

import pytest

from holdfast.ports.store import Store
from tests.faults.cases import Case
from tests.faults.conftest import NewCase, NewRedisCase
from tests.faults.crash_at_store_call import VERBS, Point, When
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, in_turns
from tests.faults.workflows_checkout import STEPS, checkout, expected, notice

pytestmark = pytest.mark.faults

LEASE = "1s"
ORDERS = {1: ("o1",), 3: ("o1", "o2")}
AT_ONCE = 6
SHARES = 4
# What this scenario may call. The others are asked by clients, for hooks, for documents, and after a lost reply.
NOT_CALLED = {
    *("run", "run_of_key", "hook", "hook_of_token", "served", "members", "backlog", "inspect"),
    *("document", "documents"),
    *("set_lane", "lane", "lanes", "standing", "turn", "outs", "drop_outs", "audits", "drop_audits"),
}
# The leases of duties are looked at and renewed all the time: the first few calls stand for the others.
FEW = {"named": 2, "write": 3, "relay": 2, "held": 1, "search": 1, "due": 1}
WHENS: tuple[When, ...] = ("after", "before")
CALLED = tuple(verb for verb in VERBS if verb not in NOT_CALLED)
READING = {"next_wake_at_ms", "held", "histories", "messages", "runs", "blob", "search", "due"}


async def live(case: Case, *, workers: int, point: Point | None = None, statement: int | None = None) -> Process:
    """One process starts the orders and works; two others may help it. It is killed there, if it gets there."""
    concurrency = 200 if workers == 1 else 1  # with one slot each, runs and children are spread over all
    others = [await case.fork(stay=True, lease=LEASE, concurrency=concurrency) for _ in range(workers - 1)]
    for other in others:
        await other.says("ready")
    starts = [Start("checkout", [order]) for order in ORDERS[workers]]
    doomed = await case.fork(starts=starts, lease=LEASE, concurrency=concurrency, point=point, statement=statement)
    await doomed.ended()
    if not others:
        others = [await case.fork(stay=True, lease=LEASE)]
    await _everything_ends(case, ORDERS[workers])
    await asyncio.gather(*(other.leaves() for other in others))
    return doomed


async def _everything_ends(case: Case, orders: tuple[str, ...]) -> None:
    async with case.client() as hf:
        for order in orders:
            run, _ = await hf.start(checkout(order))  # as a client would who had no answer
            assert await run.result("45s") == expected(order)
            child = await hf.find(notice, f"notice:{order}")
            assert await child.result("45s") == f"{order} told"


_counts: dict[int, Counter[str]] = {}


async def calls_of(case: Case, *, workers: int) -> Counter[str]:
    """How often each verb is called in a life without accidents."""
    if workers not in _counts:
        dry = await live(case, workers=workers)
        _counts[workers] = Counter((await dry.says("done"))["counts"])
        assert set(_counts[workers]) <= set(CALLED)
    return _counts[workers]


def points_of(verb: str, count: int, *, workers: int) -> list[int]:
    """At which of its calls the process is killed: at all of them. Of the many looks that one of three takes, which
    write nothing, it is the first, the middle one and the last: between two writes each of them is the same moment."""
    if workers == 1 or verb not in READING:
        return list(range(1, count + 1))
    return sorted({n for n in (1, (count + 1) // 2, count) if n})


def check(case: Case, doomed: Process, orders: tuple[str, ...], *, lost: Collection[int] = ()) -> None:
    """Everything is as if no process had died."""
    case.ledger.check(lost={doomed.pid, *lost} | case.processes.overtaken())
    for order in orders:
        assert {line["step"] for line in case.ledger.calls() if line["order"] == order} == STEPS
    keys = [f"{kind}:{order}" for kind in ("order", "parcel", "notice") for order in orders]
    assert case.statuses() == dict.fromkeys(keys, "completed")
    assert case.ask("SELECT count(*), sum(unread) FROM runs WHERE owner IS NULL") == [(len(keys), 0)]
    assert case.ask("SELECT count(*) FROM inbox WHERE body IS NOT NULL") == [(0,)]
    recorded = case.ask(
        "SELECT r.key, e.value ->> 'step', count(*) "
        "FROM journal j JOIN runs r ON r.id = j.run_id, json_each(j.entries) e "
        "WHERE e.value ->> 'what' IN ('performed', 'elapsed', 'joined') GROUP BY 1, 2"
    )
    assert len(recorded) == 8 * len(orders), recorded
    assert {times for _, _, times in recorded} == {1}, recorded


@pytest.mark.parametrize("workers", [1, 3])
async def test_without_accidents_each_effect_is_called_once(new_case: NewCase, workers: int) -> None:
    case = new_case("calm")
    doomed = await live(case, workers=workers)
    assert await doomed.ended() == 0, doomed
    check(case, doomed, ORDERS[workers])
    assert len(case.ledger.calls()) == len(STEPS) * len(ORDERS[workers])
    if workers == 1:  # the tests below kill at each of these, so they must be there
        assert {"open", "join", "commit", "claim", "histories", "renew", "rescue", "leave", "close"} <= set(
            (await doomed.says("done"))["counts"]
        )


@pytest.mark.parametrize("verb", CALLED)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("workers", [1, 3])
async def test_a_kill_around_any_call_changes_nothing(new_case: NewCase, workers: int, when: str, verb: str) -> None:
    count = (await calls_of(new_case("dry"), workers=workers))[verb]
    count = min(count, FEW.get(verb, count))
    points = points_of(verb, count, workers=workers)
    reached: list[int] = []

    async def one(n: int) -> None:
        case = new_case(f"{verb}-{n}")
        doomed = await live(case, workers=workers, point=Point(verb, n, when))
        assert doomed.code in {KILLED, 0}, doomed
        if doomed.code == KILLED:
            reached.append(n)
        check(case, doomed, ORDERS[workers])

    await in_turns([lambda n=n: one(n) for n in points], at_once=AT_ONCE)
    # How often a duty looks is a matter of timing, and so is who of three is first; yet most points must be reached.
    most = len(points) * 3 // 4 if workers == 1 else len(points) // 3
    assert len(reached) >= most, f"only {reached} of {points}"


async def test_a_kill_around_any_verb_on_redis_changes_nothing(new_redis_case: NewRedisCase) -> None:
    """Before or after the first call of each, in turns, and round some commits. See also `test_crossing_shards`."""
    calls = [*((verb, 1) for verb in CALLED), *(("commit", n) for n in range(3, 12, 3))]
    points = [Point(*call, when) for call, when in zip(calls, itertools.cycle(WHENS), strict=False)]
    reached: set[str] = set()

    async def one(point: Point) -> None:
        case = new_redis_case(str(point).replace(" ", "-"))
        doomed = await live(case, workers=1, point=point)
        assert doomed.code in {KILLED, 0}, doomed
        if doomed.code == KILLED:
            reached.add(point.verb)
        async with case.client() as hf:
            while await case.left(hf):  # all workers are gone
                await hf.runtime.store.relay(100)
                await asyncio.sleep(0.1)
            runs = await case.check_runs(hf)
        assert sorted(str(run.key) for run in runs) == ["notice:o1", "order:o1", "parcel:o1"]
        case.ledger.check(lost={doomed.pid} | case.processes.overtaken())
        assert {line["step"] for line in case.ledger.calls()} == STEPS

    await in_turns([lambda point=point: one(point) for point in points], at_once=AT_ONCE)
    assert {"open", "join", "commit", "claim", "renew", "rescue", "relay", "leave", "close"} <= reached


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
async def test_a_kill_inside_any_transaction_changes_nothing(new_case: NewCase, share: int) -> None:
    """Before each SQL statement of each writing transaction: what is half written was never there.

    The transactions that create the file are in `test_kill_during_start.py`.
    """
    opening = await new_case("opening").fork(worker=False, statement=0)
    opened = (await opening.says("done"))["statements"]
    dry = await live(new_case("dry"), workers=1, statement=0)
    count = (await dry.says("done"))["statements"]
    assert count > opened + 50
    mine = range(opened + 1 + share, count + 1, SHARES)
    reached: list[int] = []

    async def one(n: int) -> None:
        case = new_case(f"statement-{n}")
        doomed = await live(case, workers=1, statement=n)
        assert doomed.code in {KILLED, 0}, doomed
        if doomed.code == KILLED:
            reached.append(n)
        check(case, doomed, ORDERS[1])

    await in_turns([lambda n=n: one(n) for n in mine], at_once=AT_ONCE)
    assert len(reached) >= len(mine) * 3 // 4, f"only {reached} of {count}"


@pytest.mark.parametrize("share", range(SHARES))
async def test_a_second_death_during_the_recovery_changes_nothing(new_case: NewCase, share: int) -> None:
    """The one who takes over dies too, round one of its first commits."""
    chance = random.Random(share)
    points = [Point("commit", n, when) for n in range(1, 12) for when in ("before", "after")]
    pairs = [(chance.choice(points), chance.choice(points[:8])) for _ in range(8)]

    async def one(first: Point, second: Point) -> None:
        case = new_case(f"{first} {second}".replace(" ", "-"))
        starts = [Start("checkout", [order]) for order in ORDERS[1]]
        lost = set()
        for point in (first, second):
            doomed = await case.fork(starts=starts, lease=LEASE, point=point)
            assert await doomed.ended() in {KILLED, 0}, doomed
            lost.add(doomed.pid)
        last = await live(case, workers=1)
        check(case, last, ORDERS[1], lost=lost)

    await in_turns([lambda pair=pair: one(*pair) for pair in dict.fromkeys(pairs)], at_once=AT_ONCE)


def test_the_store_that_kills_knows_every_verb_of_the_port() -> None:
    verbs = {name for name, verb in vars(Store).items() if inspect.iscoroutinefunction(verb)}
    assert verbs == set(VERBS)
