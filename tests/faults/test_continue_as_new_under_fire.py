"""One long run per key that begins again and again: whatever dies, no payload is lost or doubled (K19)."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest

from tests.faults.cases import Case
from tests.faults.client_actions import Give, Send
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point, When
from tests.faults.processes import KILLED, in_turns, until
from tests.faults.workflows_long_lived import RUN, book

pytestmark = pytest.mark.faults

LEASE = "1s"
PAGE = 3
LINES = tuple(f"line {n}" for n in range(7))
GENERATION = "SELECT max(e.value ->> 'generation') FROM journal j, json_each(j.entries) e"


def check_written(case: Case, written: tuple[str, ...], lines: tuple[str, ...], *, lost: set[int]) -> None:
    """What was written is what was sent, in order; and the world saw each line under one key, once unless one died."""
    assert written == lines
    entered = [line for line in case.ledger.lines() if "entered" in line]
    keys: dict[int, set[str]] = {}
    for line in entered:
        keys.setdefault(line["number"], set()).add(line["entered"])
        assert line["payload"] == lines[line["number"]]
    assert sorted(keys) == list(range(len(lines)))
    assert all(len(of_line) == 1 for of_line in keys.values()), keys
    assert len({key for of_line in keys.values() for key in of_line}) == len(lines)
    repeated = [line for line in entered if [each["entered"] for each in entered].count(line["entered"]) > 1]
    for key in {line["entered"] for line in repeated}:
        *earlier, _ = [line["pid"] for line in repeated if line["entered"] == key]
        assert set(earlier) <= lost | case.processes.overtaken()
    assert case.ask("SELECT count(*) FROM runs") == [(1,)]
    assert case.ask("SELECT unread FROM runs") == [(0,)]


async def written_in_spite_of(case: Case, point: Point | None, *, ahead: bool) -> int:
    """All lines, with a worker killed there. `ahead`: all of them are there from the start; else one by one."""
    doomed = await case.fork(pack=RUN, stay=True, lease=LEASE, point=point)
    async with case.client(RUN) as hf:
        run, _ = await hf.start(book("a", len(LINES), PAGE))
        for number, line in enumerate(LINES):
            owner, created = await hf.start(book("a", len(LINES), PAGE), signal=("lines", line, f"{number}"))
            assert (owner.id, created) == (run.id, False)
            if not ahead:
                await until(
                    lambda number=number: (
                        doomed.code is not None
                        or len([line for line in case.ledger.lines() if "entered" in line]) > number
                    ),
                    f"line {number}",
                )
        if point is None:
            await run.result("45s")
        else:
            await until(
                lambda: doomed.code is not None or not case.ask("SELECT 1 FROM runs WHERE finished_ms IS NULL"), "it"
            )
        doomed.signal(signal.SIGTERM)
        code = await doomed.ended()
        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        written = await run.result("45s")
        for number, line in enumerate(LINES):  # all of it once more: nothing happens
            again, created = await hf.start(book("a", len(LINES), PAGE), signal=("lines", line, f"{number}"))
            assert (again.id, created) == (run.id, False)
        await successor.leaves()
    check_written(case, written, LINES, lost={doomed.pid})
    return code


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("ahead", [False, True])
async def test_a_worker_killed_around_any_call_loses_and_doubles_no_payload(
    new_case: NewCase, when: When, ahead: bool
) -> None:
    dry = new_case("dry")
    assert await written_in_spite_of(dry, None, ahead=ahead) == 0
    counts: Counter[str] = Counter(next(iter(dry.processes)).said("done")[0]["counts"])
    points = [Point("commit", n, when) for n in range(1, counts["commit"] + 1)]
    points += [Point(verb, 1, when) for verb in ("claim", "histories", "messages") if counts[verb]]
    killed: list[Point] = []

    async def one(point: Point) -> None:
        if await written_in_spite_of(new_case(str(point).replace(" ", "-")), point, ahead=ahead) == KILLED:
            killed.append(point)

    await in_turns([lambda point=point: one(point) for point in points], at_once=6)
    assert len(killed) >= len(points) // 2, killed


async def test_lines_from_several_processes_are_written_once_each_over_many_pages(case: Case) -> None:
    """They keep coming while the leaf is turned, and a worker is killed now and then."""
    each, senders = 80, 3
    total = each * senders
    worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
    givers = [
        await case.fork(
            pack=RUN,
            worker=False,
            actions=[Give("book", ["a", total, PAGE], "lines", f"{giver}-{n}", f"{giver}-{n}") for n in range(each)],
        )
        for giver in range(senders)
    ]
    lost: set[int] = set()
    for due in (total // 4, total // 2):
        await until(lambda due=due: len(case.ledger.lines()) >= due, f"{due} lines", worker)
        worker.signal(signal.SIGKILL)
        lost.add(worker.pid)
        worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
    assert await asyncio.gather(*(giver.ended() for giver in givers)) == [0] * senders
    async with case.client(RUN) as hf:
        written = await (await hf.find(book, "book:a")).result("45s")
    await worker.leaves()
    assert len(written) == total
    for giver in range(senders):
        its_own = [line for line in written if line.startswith(f"{giver}-")]
        assert its_own == [f"{giver}-{n}" for n in range(each)], "one line overtook another of the same sender"
    [(generation,)] = case.ask(GENERATION)
    assert generation == (total - 1) // PAGE
    check_written(case, written, written, lost=lost)


async def test_a_large_payload_that_was_not_taken_yet_goes_along(case: Case) -> None:
    """Kept beside the journal, it is needed after the journal has begun again; and by a process that never saw it."""
    large = "x" * 300_000
    async with case.client(RUN) as hf:
        run, _ = await hf.start(book("a", 4, 2))
        for number, line in enumerate(["one", "two", large]):
            await run.signal("lines", line, dedupe=f"{number}")
        first = await case.fork(pack=RUN, stay=True, lease=LEASE)
        entered = "SELECT 1 FROM journal j, json_each(j.entries) e WHERE e.value ->> 'step' = 'g1/enter#1'"
        await until(lambda: case.ask(entered), "the second page", first)
        first.signal(signal.SIGKILL)
        await first.ended()
        second = await case.fork(pack=RUN, stay=True, lease=LEASE)
        sender = await case.fork(pack=RUN, worker=False, actions=[Send(run.id, "lines", "four")])
        assert await sender.ended() == 0
        assert await run.result("45s") == ("one", "two", large[:20], "four")
        await second.leaves()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_large_payload_survives_a_kill_around_the_turning_of_the_leaf(new_case: NewCase, when: When) -> None:
    large = "x" * 300_000

    async def one(n: int) -> None:
        case = new_case(f"commit-{n}")
        async with case.client(RUN) as hf:
            run, _ = await hf.start(book("a", 4, 2))
            for number, line in enumerate(["one", "two", large, "four"]):
                await run.signal("lines", line, dedupe=f"{number}")
            doomed = await case.fork(pack=RUN, stay=True, lease=LEASE, point=Point("commit", n, when))
            await until(lambda: doomed.code is not None or case.statuses() == {"book:a": "completed"}, "the kill")
            doomed.signal(signal.SIGKILL)
            await doomed.ended()
            successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
            assert await run.result("45s") == ("one", "two", large[:20], "four")
            await successor.leaves()
        assert case.ask("SELECT count(*) FROM runs WHERE unread <> 0") == [(0,)]

    await in_turns([lambda n=n: one(n) for n in range(1, 8)], at_once=4)
