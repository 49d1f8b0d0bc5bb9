"""The sketch is an honest measure: it keeps what Holdfast keeps, in as many commits, and loses nothing of that."""

from __future__ import annotations

import asyncio

import apsw
import pytest

from bench.contenders.holdfast import open_holdfast
from bench.contenders.sketch import open_sketch
from bench.contenders.sketch_engine import Effect, Engine, Function, Refused, effect_key
from bench.contenders.sketch_store import Writer
from holdfast.stores.sqlite import files

SETTINGS = ("journal_mode", "synchronous", "cache_size", "journal_size_limit", "page_size", "wal_autocheckpoint")

performed: list[tuple[str, int]] = []
entered: asyncio.Queue[asyncio.Event]  # for each call that waits for the test: what lets it go on


@Effect
async def count(number: int) -> int:
    performed.append((effect_key.get(), number))
    return number


@Effect
async def wait_for_the_test(number: int) -> int:
    performed.append((effect_key.get(), number))
    may_go_on = asyncio.Event()
    entered.put_nowait(may_go_on)
    await may_go_on.wait()
    return number


@Function
async def waits_in_the_middle(number: int) -> list[int]:
    return [await count(number), await wait_for_the_test(number), await count(number + 1)]


@Function
async def side_by_side(width: int) -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_chain(number)) for number in range(width)]
    return [task.result() for task in tasks]


async def _chain(number: int) -> int:
    return await count(await count(number) + 10)


@Function
async def without_effects(number: int) -> int:
    return number


WORKFLOWS = [waits_in_the_middle, side_by_side, without_effects]


@pytest.fixture(autouse=True)
async def _nothing_performed_yet():
    global entered  # noqa: PLW0603 - each test has an event loop of its own
    performed.clear()
    entered = asyncio.Queue()


@pytest.fixture
async def open_engine(tmp_path):
    """Engines on one file; those that a test has left open are closed after it."""
    opened: list[Engine] = []

    def open_one() -> Engine:
        opened.append(Engine(tmp_path / "sketch.db", WORKFLOWS))
        return opened[-1]

    yield open_one
    for engine in opened:
        await engine.close()


def kept_in(path) -> tuple[list[tuple[int, int]], int]:
    """The position and size of every journal row, and the size of all run rows."""
    db = apsw.Connection(str(path))
    journal = db.execute("select position, length(entries) from journal order by run_id, position").fetchall()
    runs = db.execute("select * from runs").fetchall()
    db.close()
    return journal, sum(len(str(cell)) for row in runs for cell in row if cell is not None)


async def test_it_keeps_as_many_rows_as_holdfast_of_about_the_same_size(tmp_path):
    async with open_holdfast(tmp_path) as holdfast, open_sketch(tmp_path) as sketch:
        for contender in (holdfast, sketch):
            await contender.one("o-1")
            await contender.many("o-2", 5)
    ours, our_runs = kept_in(tmp_path / "holdfast.db")
    theirs, their_runs = kept_in(tmp_path / "sketch.db")
    assert len(theirs) == len(ours) == (1 + 1) + (5 + 1)  # a row is a commit: n + 1 of them
    assert 0.7 < sum(size for _, size in theirs) / sum(size for _, size in ours) < 1.1  # MessagePack is the shorter
    assert 0.8 < their_runs / our_runs < 1.1


async def test_it_has_the_settings_of_holdfasts_store(tmp_path):
    ours, theirs = files.prepare(tmp_path / "holdfast.db"), Writer(tmp_path / "sketch.db")
    assert {name: theirs._db.pragma(name) for name in SETTINGS} == {name: ours.pragma(name) for name in SETTINGS}
    theirs.start()
    await theirs.close()
    ours.close()


async def test_changes_that_are_ready_together_share_a_transaction(tmp_path):
    async with open_sketch(tmp_path) as sketch:
        begun: list[str] = []
        sketch._engine._writer._db.set_profile(lambda statement, _: begun.append(statement))
        await asyncio.gather(*(sketch.one(f"o-{number}") for number in range(50)))
        assert begun.count("begin immediate") == 2  # all are admitted by one, and recorded by the other


async def test_a_process_that_opens_the_file_goes_on_where_the_journal_ends(open_engine):
    engine = open_engine()
    await engine.start(waits_in_the_middle, 7, key="k")
    await entered.get()
    await engine.close()
    later = open_engine()
    (await entered.get()).set()
    result = await later.start(waits_in_the_middle, 7, key="k")
    assert await result() == [7, 7, 8]
    first, second, again, last = performed
    assert second == again  # not recorded, so it is performed again: under the same key
    assert len({first, second, last}) == 3


async def test_an_owner_that_was_overtaken_records_nothing(open_engine):
    engine = open_engine()
    result = await engine.start(waits_in_the_middle, 7, key="k")
    may_go_on = await entered.get()
    open_engine()
    await entered.get()
    may_go_on.set()
    with pytest.raises(Refused, match="another owner"):
        await result()
    assert len(performed) == 3  # the one before it, and this one by both owners; the next one by neither


async def test_effects_of_several_tasks_replay_alike(open_engine):
    engine = open_engine()
    result = await engine.start(side_by_side, 3, key="k")
    assert await result() == [10, 11, 12]
    assert len({key for key, _ in performed}) == 6


async def test_a_duplicate_start_gets_the_result_of_the_first_under_way_or_ended(open_engine):
    engine = open_engine()
    first = await engine.start(waits_in_the_middle, 7, key="k")
    second = await engine.start(waits_in_the_middle, 7, key="k")
    (await entered.get()).set()
    assert await second() == await first() == [7, 7, 8]
    third = await engine.start(waits_in_the_middle, 7, key="k")
    assert await third() == [7, 7, 8]
    assert len(performed) == 3
    with pytest.raises(Refused, match="another input"):
        await engine.start(waits_in_the_middle, 8, key="k")


async def test_a_workflow_without_effects_ends(open_engine):
    result = await open_engine().start(without_effects, 3, key="k")
    assert await result() == 3
