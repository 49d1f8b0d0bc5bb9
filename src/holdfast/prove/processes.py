"""The same with real processes: kill -9 at each boundary, on a SQLite file, and another process that goes on.

Time is real here, so a case that takes long is left to virtual time. Boundaries are those of one process: a crash
between two statements of the file is what the store's own tests are for.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random  # noqa: TID251 - seeded
from tempfile import TemporaryDirectory

import msgspec

from holdfast.errors import HoldfastError
from holdfast.prove.child_processes import run_module
from holdfast.prove.one_process import ProcessEnd, ProcessPlan
from holdfast.prove.report import FoundReport
from holdfast.prove.schedules import PlannedFault, Schedule
from holdfast.testing.ledger import Ledger

AT_ONCE = 2
LIMIT_SECONDS = 120  # of one process: a busy machine is no mistake
WORLDS_MAX = 60  # of each case: each takes a second or more
SECONDS_MAX = 60.0  # that the clean run may take


async def prove_with_processes(
    target: tuple[str, ...], case: str, *, seed: int, tell: Callable[[], None] = lambda: None
) -> tuple[int, list[FoundReport]]:
    """How many worlds were lived, and what was wrong with them."""
    clean = await _live(target, case, None)
    assert clean[0] is not None
    places = list(range(len(clean[0].boundaries)))
    if len(places) > WORLDS_MAX:
        places = sorted(Random(seed).sample(places, WORLDS_MAX))
    found: list[FoundReport] = []
    room = asyncio.Semaphore(AT_ONCE)

    async def one(place: int) -> None:
        async with room:
            end, ledger_wrong = await _live(target, case, place)
        tell()
        assert clean[0] is not None
        wrong = [*_ends(clean[0], end), *ledger_wrong]
        if wrong:
            rule, what, step = wrong[0]
            told = (f"the process is killed (kill -9) {clean[0].boundaries[place]}, and another one goes on",)
            schedule = Schedule((PlannedFault(place, "crash"),))
            found.append(FoundReport(rule=rule, what=what, step=step, line="", schedule=schedule, told=told))

    await asyncio.gather(*(one(place) for place in places))
    return len(places) + 1, found


Wrong = tuple[str, str, str]


async def _live(target: tuple[str, ...], case: str, die_at: int | None) -> tuple[ProcessEnd | None, list[Wrong]]:
    with TemporaryDirectory(prefix="holdfast-prove-") as directory:
        plan = ProcessPlan(target=target, case=case, directory=directory, die_at=die_at)
        end = await _process(plan)
        if end is None:
            end = await _process(msgspec.structs.replace(plan, die_at=None))
        return end, list(_calls(Ledger(Path(directory) / "ledger.jsonl")))


async def _process(plan: ProcessPlan) -> ProcessEnd | None:
    """How the run ended; None if the process was killed, as it was told to be."""
    argument = msgspec.json.encode(plan).decode()
    try:
        ended = await run_module("holdfast.prove.one_process", argument, limit_seconds=LIMIT_SECONDS)
    except TimeoutError:
        return ProcessEnd(status="never ended", output="", attributes="", boundaries=())
    if ended.code == 0:
        return msgspec.json.decode(ended.output, type=ProcessEnd)
    if plan.die_at is not None and ended.code == -signal.SIGKILL:
        return None
    raise HoldfastError(f"a process of {plan.case} ended by itself: {ended.last_words}")


def _ends(clean: ProcessEnd, end: ProcessEnd | None) -> Iterator[Wrong]:
    assert end is not None
    for name in ("status", "output", "attributes"):
        here, there = getattr(end, name), getattr(clean, name)
        if here != there:
            yield "another end", f"its {name} is {here}, and {there} in the clean run", ""
            return


def _calls(ledger: Ledger) -> Iterator[Wrong]:
    recorded: set[tuple[str, str]] = set()
    known: dict[tuple[str, str], tuple[str, str]] = {}
    for line in ledger.lines():
        if "recorded" in line:
            recorded.add((line["run"], line["recorded"]))
        if "call" in line:
            step, place = line["call"], (line["run"], line["call"])
            if place in recorded:
                yield "done again after its record", f"{step} was called again after it had been recorded", step
            before = known.setdefault(place, (line["key"], line["arguments"]))
            if before != (line["key"], line["arguments"]):
                yield "another key", f"the calls of {step} had the keys {before[0]} and {line['key']}", step
