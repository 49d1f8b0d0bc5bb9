"""Breakers and limits in real processes: what the outside sees, whichever of them dies or sleeps."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable

import pytest

from holdfast.kernel.journal import Attempted, Performed
from holdfast.testing import eventually
from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.ledger import Line
from tests.faults.processes import KILLED, Process, until
from tests.faults.workflows_with_rules import OF, PER_SECOND, RULES, WIDTH

pytestmark = pytest.mark.faults

LEASE = "1s"


async def fork(case: Case, effect: str, names: Iterable[str], seconds: float = 0, *, concurrency: int = 1) -> Process:
    """A replica with runs of its own."""
    return await case.fork(
        pack=RULES,
        starts=[Start("use", [effect, name, seconds]) for name in names],
        results=False,
        stay=True,
        lease=LEASE,
        concurrency=concurrency,
    )


def most_under_way(lines: Iterable[Line], lost: dict[int, int] | None = None) -> int:
    """How many calls were under way at most. Those of a process that is in `lost` count only for so many lines."""
    under_way: dict[tuple[str, int], int] = {}
    most = 0
    for n, line in enumerate(lines):
        for pid, after in (lost or {}).items():
            if n == after:
                under_way = {place: many for place, many in under_way.items() if place[1] != pid}
        if "begins" in line:
            under_way[line["begins"], line["pid"]] = 1
        elif "ends" in line:
            under_way.pop((line["ends"], line["pid"]), None)
        most = max(most, len(under_way))
    return most


async def test_a_dead_service_gets_no_more_calls_than_it_takes_and_then_one_per_stay(any_case: Case) -> None:
    case, replicas = any_case, list[Process]()
    for number in range(3):
        replicas.append(await fork(case, "ask", [f"{number}-{n}" for n in range(4)]))
    for replica in replicas:
        await until(lambda replica=replica: logged(replica, "open"), "the breaker to open", replica)
    before = [line["at"] for line in case.ledger.calls("ask")]
    assert OF <= len(before) <= OF + len(replicas) + 1  # the probe may have come by now
    await until(lambda: len(case.ledger.calls("ask")) >= OF + 3, "probes", *replicas)
    assert len(case.ledger.calls("ask")) <= OF + len(replicas) + 3
    case.raise_flag("up")
    async with case.client(RULES) as hf:
        runs = [await hf.find("rules.use", f"ask:{number}-{n}") for number in range(3) for n in range(4)]
        assert sorted([await run.result("45s") for run in runs]) == sorted(run.key.partition(":")[2] for run in runs)
        entries = [entry for run in runs for entry in await run.journal()]
        failed = [entry for entry in entries if isinstance(entry, Attempted)]
        calls = case.ledger.calls("ask")
        assert len(failed) + sum(isinstance(entry, Performed) for entry in entries) == len(calls)
        assert (await hf.breaker("remote")).state == "closed"
    openings = {line["until_ms"] for replica in replicas for line in logged(replica, "open")}
    assert all(later - earlier >= 2_000 for earlier, later in zip(sorted(openings), sorted(openings)[1:], strict=False))
    for replica in replicas:
        await replica.leaves()


def logged(replica: Process, state: str) -> list[Line]:
    return [line for line in replica.logged("breaker changed") if line["state"] == state]


async def test_the_next_one_probes_when_the_lease_of_a_killed_prober_is_over(any_case: Case) -> None:
    case = any_case
    first = await fork(case, "probe", ["a"])
    await until(lambda: len(case.ledger.calls("probe")) == 2, "the probe", first)
    async with case.client(RULES) as hf:
        shown = await hf.breaker("slow")
        assert (shown.state, bool(shown.prober)) == ("half-open", True)
        second = await fork(case, "probe", ["b"])
        await second.says("started")
        first.signal(signal.SIGKILL)
        assert await first.ended() == KILLED
        await until(lambda: len(case.ledger.calls("probe")) == 3, "the next probe", second)
        assert (await hf.breaker("slow")).prober != shown.prober
        case.raise_flag("go")
        assert await (await hf.find("rules.use", "probe:b")).result("45s") == "b"
        assert await (await hf.find("rules.use", "probe:a")).result("45s") == "a"
    await second.leaves()


async def test_the_slots_of_a_killed_replica_are_free_when_its_lease_is_over(any_case: Case) -> None:
    case = any_case
    first = await fork(case, "hold", [f"a{n}" for n in range(7)], -1, concurrency=50)
    await until(lambda: len(case.ledger.lines(pid=first.pid)) == 7, "7 calls", first)
    second = await fork(case, "hold", [f"b{n}" for n in range(20)], -1, concurrency=50)
    await until(lambda: len(case.ledger.lines(pid=second.pid)) == 3, "the 3 that are left", second)
    first.signal(signal.SIGKILL)
    assert await first.ended() == KILLED
    died_after = len(case.ledger.lines())
    await until(lambda: len(case.ledger.lines(pid=second.pid)) == WIDTH, "all slots", second)
    assert most_under_way(case.ledger.lines(), {first.pid: died_after}) == WIDTH
    case.raise_flag("go")
    async with case.client(RULES) as hf:
        for name in [f"a{n}" for n in range(7)] + [f"b{n}" for n in range(20)]:
            assert await (await hf.find("rules.use", f"hold:{name}")).result("45s") == name
    assert most_under_way(case.ledger.lines(), {first.pid: died_after}) == WIDTH
    await second.leaves()


async def test_a_replica_that_slept_past_its_lease_begins_no_call_in_slots_that_others_have(any_case: Case) -> None:
    case = any_case
    first = await fork(case, "hold", [f"a{n}" for n in range(40)], 0.05, concurrency=50)
    second = await fork(case, "hold", [f"b{n}" for n in range(40)], 0.05, concurrency=50)
    await until(lambda: len(case.ledger.lines(pid=first.pid)) > 20, "calls", first, second)
    with case.locked() if case.url.startswith("sqlite") else contextlib.nullcontext():
        first.signal(signal.SIGSTOP)
        await until(first.is_stopped, "the stop", first)
    asleep_after = len(case.ledger.lines())
    async with case.client(RULES) as hf:
        for n in range(40):
            assert await (await hf.find("rules.use", f"hold:b{n}")).result("45s") == f"b{n}"

        async def is_alone() -> bool:
            return len(await hf.workers()) == 1

        await eventually(is_alone, what="the lease to expire")
        first.signal(signal.SIGCONT)
        for n in range(40):
            assert await (await hf.find("rules.use", f"hold:a{n}")).result("45s") == f"a{n}"
    # Those that were under way when it fell asleep are counted nowhere any more. They can only end.
    assert most_under_way(case.ledger.lines(), {first.pid: asleep_after}) <= WIDTH
    await until(lambda: first.logged("lease lost"), "the loss of its lease", first)
    for replica in (first, second):
        await replica.leaves()


async def test_the_rate_is_kept_over_processes(any_case: Case) -> None:
    case = any_case
    replicas = [await fork(case, "pace", [f"{number}-{n}" for n in range(30)], concurrency=50) for number in range(3)]
    await until(lambda: len(case.ledger.calls("pace")) == 90, "all calls", *replicas)
    begun = sorted(line["at"] for line in case.ledger.calls("pace"))
    portion = PER_SECOND // 10
    for n, start in enumerate(begun):
        within = [at for at in begun[n:] if at - start <= 1]
        assert len(within) <= PER_SECOND + 3 * portion, (n, within)
    for replica in replicas:
        await replica.leaves()
