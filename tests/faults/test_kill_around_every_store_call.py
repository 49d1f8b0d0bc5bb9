"""SIGKILL before and after every store call of a whole scenario, with one worker and with three (E2, E3, E12).

A dry run counts the calls of each verb. Then one process is killed at each of them, a fresh one (or one of the two
others) takes over, and the ledger and the file are compared with what a life without accidents would have left.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import Counter
from collections.abc import Collection

import pytest

from holdfast.ports.store import Store
from tests.faults.actor import Start
from tests.faults.cases import Case
from tests.faults.conftest import NewCase
from tests.faults.crashing import VERBS, Point
from tests.faults.processes import KILLED, Process, in_turns
from tests.faults.scenario import STEPS, checkout, expected, notice

pytestmark = pytest.mark.faults

LEASE = "1s"
ORDERS = {1: ("o1",), 3: ("o1", "o2")}
AT_ONCE = 6
SHARES = 4
# What this scenario may call. The others are asked by clients, for hooks, for documents, and after a lost reply.
NOT_CALLED = {
    *("run", "run_of_key", "held", "search", "hook", "hook_of_token", "served", "members", "backlog", "inspect"),
    *("write", "document", "named", "documents", "due"),
}
CALLED = tuple(verb for verb in VERBS if verb not in NOT_CALLED)


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


def check(case: Case, doomed: Process, orders: tuple[str, ...], *, lost: Collection[int] = ()) -> None:
    """Everything is as if nobody had died."""
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
    reached: list[int] = []

    async def one(n: int) -> None:
        case = new_case(f"{verb}-{n}")
        doomed = await live(case, workers=workers, point=Point(verb, n, when))
        assert doomed.code in {KILLED, 0}, doomed
        if doomed.code == KILLED:
            reached.append(n)
        check(case, doomed, ORDERS[workers])

    await in_turns([lambda n=n: one(n) for n in range(1, count + 1)], at_once=AT_ONCE)
    # How often a duty looks is a matter of timing, and so is who of three is first; yet most points must be reached.
    assert len(reached) >= (count * 3 // 4 if workers == 1 else count // 3), f"only {reached} of {count}"


@pytest.mark.parametrize("share", range(SHARES))
async def test_a_kill_inside_any_transaction_changes_nothing(new_case: NewCase, share: int) -> None:
    """Before each SQL statement of each writing transaction: what is half written was never there."""
    dry = await live(new_case("dry"), workers=1, statement=0)
    count = (await dry.says("done"))["statements"]
    mine = range(1 + share, count + 1, SHARES)
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
