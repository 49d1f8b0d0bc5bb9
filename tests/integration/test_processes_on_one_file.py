"""Processes on one SQLite file wake each other. None of them looks by itself here: what is not told is not noticed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Pack, RunCancelled, hook, sleep
from holdfast.events import EffectBegan, NoticesPolled, RunLetGo
from holdfast.journal import Performed
from holdfast.ports.store import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.pace import SqlitePace
from tests.earlier_store import EarlierStore
from tests.integration.conftest import SqliteHome, eventually, heard, worker_of

NEVER = 3600.0
PATIENCE = 30.0


class Shop:
    """Workflows that end at once, wait for a signal, sleep, or hang in an effect until the gate is opened."""

    def __init__(self) -> None:
        self.pack = Pack("p")
        self.gate = asyncio.Event()

        @self.pack.effect
        async def charge(n: int) -> int:
            return n

        @self.pack.effect
        async def hold(n: int) -> int:
            await self.gate.wait()
            return n

        @self.pack.workflow
        async def pay(n: int) -> int:
            return await charge(n)

        @self.pack.workflow
        async def approve() -> str:
            return await hook("approval")

        @self.pack.workflow
        async def nap(ms: int) -> int:
            await sleep(f"{ms}ms")
            return ms

        @self.pack.workflow
        async def hang() -> int:
            return await hold(7)

        @self.pack.workflow
        async def steps() -> int:
            first = await charge(1)
            await hook("go")
            return first + await charge(2)

        @self.pack.workflow(queue="parents")
        async def parent() -> int:
            return await pay(4) + await hang()

        self.pay, self.approve, self.nap, self.hang, self.steps, self.parent = pay, approve, nap, hang, steps, parent


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def file(sqlite_home: SqliteHome) -> SqliteHome:
    sqlite_home.paced(mail_poll_seconds=NEVER, events_poll_seconds=NEVER)
    return sqlite_home


@contextlib.asynccontextmanager
async def two(file: SqliteHome, shop: Shop, **options: Any) -> AsyncIterator[tuple[Holdfast, Holdfast]]:
    """A process that only asks, and one that works."""
    async with (
        file.holdfast(shop.pack, worker=False) as client,
        file.holdfast(shop.pack, **options) as worker,
    ):
        yield client, worker
        assert (client.runtime.poll_reason, worker.runtime.poll_reason) == ("", "")
        assert not heard(client).all(NoticesPolled)


async def test_a_start_wakes_the_worker_and_its_end_wakes_the_caller(file: SqliteHome, shop: Shop) -> None:
    async with two(file, shop) as (client, _):
        for n in range(30):
            assert await (await client.start(shop.pay(n))).run.result(timeout=PATIENCE) == n
        runs = [(await client.start(shop.pay(n))).run for n in range(30)]
        assert [await run.result(timeout=PATIENCE) for run in runs] == list(range(30))


async def test_whichever_of_two_processes_comes_first(file: SqliteHome, shop: Shop) -> None:
    async with file.holdfast(shop.pack) as worker:
        for n in range(3):
            async with file.holdfast(shop.pack, worker=False) as client:
                assert await (await client.start(shop.pay(n))).run.result(timeout=PATIENCE) == n
        assert await (await worker.start(shop.pay(9))).run.result(timeout=PATIENCE) == 9


async def test_a_signal_wakes_a_run_in_memory(file: SqliteHome, shop: Shop) -> None:
    file.paced(idle_ms=3_600_000)
    async with two(file, shop) as (client, worker):
        for n in range(5):
            run = (await client.start(shop.approve())).run
            await eventually(lambda run=run: worker_of(worker).held.holds(run.id))
            await run.signal("approval", f"yes {n}")
            assert await run.result(timeout=PATIENCE) == f"yes {n}"


async def test_a_signal_wakes_a_run_that_was_let_go(file: SqliteHome, shop: Shop) -> None:
    file.paced(idle_ms=1)
    async with two(file, shop) as (client, worker):
        run = (await client.start(shop.approve())).run
        await heard(worker).until(RunLetGo)
        await eventually(lambda: not worker_of(worker).held)
        await run.signal("approval", "yes")
        assert await run.result(timeout=PATIENCE) == "yes"


async def test_a_timer_that_another_process_has_set_is_known(file: SqliteHome, shop: Shop) -> None:
    async with two(file, shop) as (client, _):
        run = (await client.start(shop.pay(3), delay="100ms")).run
        assert await run.result(timeout=PATIENCE) == 3


async def test_a_timer_is_known_to_the_process_that_has_not_set_it(file: SqliteHome, shop: Shop) -> None:
    """The one that has set it has no room when it is due."""
    file.paced(idle_ms=1)
    async with two(file, shop) as (client, first), file.holdfast(shop.pack) as second:
        worker_of(second).slots.is_closed = True
        run = (await client.start(shop.nap(300))).run
        await heard(first).until(RunLetGo)
        worker_of(first).slots.is_closed = True
        worker_of(second).slots.is_closed = False
        assert await run.result(timeout=PATIENCE) == 300
        assert not worker_of(first).held


async def test_a_cancellation_reaches_the_worker_and_its_receipt_the_caller(file: SqliteHome, shop: Shop) -> None:
    async with two(file, shop) as (client, worker):
        run = (await client.start(shop.hang())).run
        await heard(worker).until(EffectBegan)
        receipt = await run.cancel("changed my mind", deadline="20s")
        assert receipt.outcome
        with pytest.raises(RunCancelled):
            await run.result(timeout=PATIENCE)


async def test_a_child_that_ends_in_one_process_wakes_its_parent_in_another(file: SqliteHome, shop: Shop) -> None:
    file.paced(idle_ms=1)
    parents = file.holdfast(shop.pack, queues=["parents"])
    children = file.holdfast(shop.pack, queues=["default"])
    async with file.holdfast(shop.pack, worker=False) as client, parents, children:
        run = (await client.start(shop.parent())).run
        await heard(children).until(EffectBegan, count=2)
        await heard(parents).until(RunLetGo)
        await eventually(lambda: not worker_of(parents).held)
        shop.gate.set()
        assert await run.result(timeout=PATIENCE) == 11


async def test_who_follows_a_run_sees_what_another_process_records(file: SqliteHome, shop: Shop) -> None:
    async with two(file, shop) as (client, _):
        run = (await client.start(shop.steps())).run
        performed = 0
        async for event in run.events():
            if isinstance(event.entry, Performed):
                performed += 1
                if performed == 1:
                    await run.signal("go", None)
        assert performed == 2
        assert await run.result(timeout=PATIENCE) == 3


async def test_a_worker_that_leaves_hands_its_runs_to_one_that_stays(file: SqliteHome, shop: Shop) -> None:
    file.paced(grace_seconds=0.01)
    async with file.holdfast(shop.pack, worker=False) as client, file.holdfast(shop.pack) as stays:
        worker_of(stays).slots.is_closed = True
        async with file.holdfast(shop.pack) as leaves:
            run = (await client.start(shop.hang())).run
            await heard(leaves).until(EffectBegan)
            worker_of(stays).slots.is_closed = False
        shop.gate.set()
        assert await run.result(timeout=PATIENCE) == 7


# -- where they are not told


@contextlib.asynccontextmanager
async def _opened(file: SqliteHome, store: Store, shop: Shop, **options: Any) -> AsyncIterator[Holdfast]:
    async with file.holdfast(shop.pack, through=lambda _: store, **options) as hf:
        yield hf


@pytest.mark.parametrize("of_earlier_version", ["client", "worker"])
async def test_processes_of_two_versions_work_on_one_file(
    file: SqliteHome, shop: Shop, of_earlier_version: str
) -> None:
    """While an installation is brought up to date. The engine's own polls are off: this is the look at the file."""
    new = SqliteStore(file.path, clock=file.clock, pace=SqlitePace(safety_seconds=0.2))
    old = EarlierStore(file.path, clock=file.clock)
    asks, works = (old, new) if of_earlier_version == "client" else (new, old)
    async with _opened(file, works, shop), _opened(file, asks, shop, worker=False) as client:
        for n in range(10):
            assert await (await client.start(shop.pay(n))).run.result(timeout=PATIENCE) == n
        run = (await client.start(shop.approve())).run
        await run.signal("approval", "yes")
        assert await run.result(timeout=PATIENCE) == "yes"
        await eventually(lambda: "does not tell" in new.poll_reason)


async def test_without_sockets_they_look_and_say_so(file: SqliteHome, shop: Shop) -> None:
    file.path.with_name(file.path.name + "-wake").touch()
    async with file.holdfast(shop.pack, worker=False) as client, file.holdfast(shop.pack) as worker:
        for hf in (client, worker):
            [event] = heard(hf).all(NoticesPolled)
            assert str(file.path) in event.reason
            assert hf.runtime.poll_reason == event.reason
        for n in range(10):
            assert await (await client.start(shop.pay(n))).run.result(timeout=PATIENCE) == n


async def test_a_path_too_long_for_a_socket_is_no_trouble(tmp_path: Path, shop: Shop) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    file = SqliteHome(deep)
    file.paced(mail_poll_seconds=NEVER)
    async with two(file, shop) as (client, _):
        assert await (await client.start(shop.pay(5))).run.result(timeout=PATIENCE) == 5
