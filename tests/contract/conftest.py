"""Every promise of the Store port, against every store. To add a store: one class here, one line in `BACKENDS`."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.kernel.changes import Answer, Change, HolderOf
from holdfast.ports.store import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.net import urls
from holdfast.stores.redis.net.pubsub import PubSub
from holdfast.stores.redis.net.urls import RedisUrl
from holdfast.stores.redis.shards import Shards
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.pace import SqlitePace
from tests.builders import FakeClock

POLLS_MAX = 2  # of 10 ms each: the port promises 20 ms
PATIENCE_SECONDS = 20.0


class Backend:
    """One set of data, and any number of stores on it. Time is the test's."""

    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        self.clock = FakeClock()
        self.path = tmp_path / "contract.db"
        self._open: list[Store] = []

    async def another(self) -> Store:
        """A further store on the same data, as another process would open it."""
        store = self._made()
        await store.open()
        self._open.append(store)
        return store

    async def close(self) -> None:
        for store in self._open:
            await store.close()

    def _made(self) -> Store:
        raise NotImplementedError

    async def quiet(self) -> None:
        """Nothing is told any more that happened before."""
        for _ in range(5):
            await self._poll()

    async def noticed(self, told: Callable[[], bool]) -> None:
        """Give a commit the time that it may take until others are told of it: two polls."""
        for _ in range(POLLS_MAX):
            if not told():
                await self._poll()

    async def _poll(self) -> None:
        """Let one poll pass: a look may take a thread, and how long that takes depends on the machine."""
        await self._until_paused()
        self.clock.advance(SqlitePace().notice_seconds * 1000)
        for _ in range(3):
            await asyncio.sleep(0)
        await self._until_paused()

    async def _until_paused(self) -> None:
        watching = sum(getattr(store, "_notices", None) is not None for store in self._open)
        await _until(lambda: len(self.clock._pauses) >= watching)


class MemoryBackend(Backend):
    """Processes cannot share memory: here the others are tasks of one event loop, on one store."""

    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(tmp_path, request)
        self._store = MemoryStore(clock=self.clock)

    def _made(self) -> Store:
        return self._store


class SqliteBackend(Backend):
    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(tmp_path, request)
        self.pace = SqlitePace()  # of the stores that are made from now on

    def _made(self) -> Store:
        return SqliteStore(self.path, clock=self.clock, pace=self.pace)

    def opened(self, store: Store) -> None:
        """A store that the test has made itself is closed with the others."""
        self._open.append(store)

    async def passed(self, ms: float) -> None:
        """Let so much time pass, poll by poll: those who look meanwhile do."""
        end = self.clock.steady + ms
        while self.clock.steady < end:
            await self._poll()


class LearnedShards(Shards):
    """Shards for ids that a test has thought up. Others end in the shard of their key; of these it is learned here."""

    known: dict[str, int]
    together: bool  # whether a run without a key is in the shard of its lane

    def of_run(self, run_id: str) -> int:
        return self.known.get(run_id, self._hashed("run", run_id))

    def learn(self, change: Change) -> None:
        run, guard = change.run, change.guard
        if run is not None and run.key is not None:
            self.known[run.id] = self.of_key(run.namespace, run.workflow, run.key)
        elif self.together and run is not None and change.enters is not None:
            self.known[run.id] = self.of_lane(run.namespace, change.enters.lane)
        if isinstance(guard, HolderOf):
            self.known[guard.run_id] = self.of_key(guard.namespace, guard.workflow, guard.key)


class TimedRedisStore(RedisStore):
    """The store on Redis, but for its clock, and for ids that do not say their shard."""

    def __init__(
        self, url: RedisUrl, *, clock: FakeClock, offset_ms: float, known: dict[str, int], together: bool
    ) -> None:
        machine = SystemClock()
        self.known = known
        self.together = together
        self.test_clock = clock
        self.test_offset_ms = offset_ms
        self.bus = PubSub(url, clock=machine, ids=SystemIds())
        super().__init__(url, clock=machine, bus=self.bus)

    def _places(self, url: RedisUrl) -> Shards:
        shards = LearnedShards(url.name, url.shards)
        shards.known, shards.together = self.known, self.together
        return shards

    def now_ms(self) -> int:
        return int(self.test_clock.steady_ms() + self.test_offset_ms)

    def _instant(self) -> bytes:
        return b"%d" % self.now_ms()

    def id_for(self, run_id: str, *, namespace: str, workflow: str, key: str | None) -> str:
        return run_id

    async def commit(self, changes: Sequence[Change]) -> list[Answer]:
        shards = self._shards
        assert isinstance(shards, LearnedShards)
        for change in changes:
            for admitted in (change, change.then):
                if admitted is not None:
                    shards.learn(admitted)
        return await super().commit(changes)


class RedisBackend(Backend):
    """A store of its own on a server that all tests share."""

    server = "redis_server"
    together = True
    numbers = itertools.count()

    def __init__(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(tmp_path, request)
        base = request.getfixturevalue(self.server).url
        self.url = urls.parse(f"{base}?name=c-{os.getpid()}-{next(self.numbers)}&shards=4")
        self.known: dict[str, int] = {}
        self.offset_ms = self.clock.wall_ms() - self.clock.steady_ms()  # Redis' clock is one for all

    def _made(self) -> Store:
        return TimedRedisStore(
            self.url, clock=self.clock, offset_ms=self.offset_ms, known=self.known, together=self.together
        )

    async def another(self) -> Store:
        store = await super().another()
        assert isinstance(store, TimedRedisStore)
        await _until(lambda: store.bus.connected)
        return store

    async def noticed(self, told: Callable[[], bool]) -> None:
        """Real servers pass the word on, at once; no test measures how long that is."""
        await _until(told)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.001)


class ClusterBackend(RedisBackend):
    server = "redis_cluster"


BACKENDS = {"memory": MemoryBackend, "sqlite": SqliteBackend, "redis": RedisBackend, "cluster": ClusterBackend}


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    backend = BACKENDS[request.param](tmp_path, request)
    yield backend
    await backend.close()


@pytest.fixture
async def store(backend: Backend) -> Store:
    return await backend.another()


@pytest.fixture
def clock(backend: Backend) -> FakeClock:
    return backend.clock


@pytest.fixture
async def sqlite(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SqliteBackend]:
    """For what only SQLite promises."""
    backend = SqliteBackend(tmp_path, request)
    yield backend
    await backend.close()
