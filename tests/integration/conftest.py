"""The public API over every store: a `home` is where runs live; any number of Holdfasts may live in it.

Every test of `home` runs in memory and on SQLite; those of `ON_REDIS`, whose commits cross shards or whose wake-ups
travel by a bus there, on Redis too, and a few on a cluster. `HOMES=redis pytest tests/integration` takes one home for
all of them (or `cluster`, or several with commas between them).
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import apsw
import pytest
from msgspec.structs import replace

from holdfast import Holdfast, Pack
from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.engine.worker.worker import Worker
from holdfast.lab.cluster.redis import RedisServer
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.net import urls
from holdfast.stores.redis.net.pubsub import PubSub
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import PATIENCE_SECONDS, EventRecorder, eventually  # noqa: F401 - tests import them from here
from tests.paces import PUSHED_ONLY, SQLITE_PUSHED_ONLY

_RECORDERS: WeakKeyDictionary[Holdfast, EventRecorder] = WeakKeyDictionary()


def heard(hf: Holdfast) -> EventRecorder:
    """All that this Holdfast has told since it was made."""
    return _RECORDERS[hf]


def worker_of(hf: Holdfast) -> Worker:
    """The part of this Holdfast that executes runs."""
    worker = hf._replica._worker
    assert worker is not None
    return worker


def owner_of(hf: Holdfast) -> str:
    """The name under which this Holdfast holds runs."""
    lease = hf._replica.lease
    assert lease is not None
    return lease.owner


class Home:
    """One set of data."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock: Clock = SystemClock()
        self.path = tmp_path / "home.db"
        self.pace = PUSHED_ONLY

    def paced(self, **numbers: float) -> None:
        """Let those that are made from now on work at another pace."""
        self.pace = replace(self.pace, **numbers)

    def holdfast(self, *packs: Pack, through: Callable[[Store], Any] | None = None, **options: Any) -> Holdfast:
        """A Holdfast on this data. `through` wraps the store that it talks to."""
        store = self.store()
        hf = Holdfast(store if through is None else through(store), packs=packs, _pace=self.pace, **options)
        _RECORDERS[hf] = EventRecorder(hf)
        return hf

    def store(self) -> Store:
        """A store on this data. It has to be opened, unless a Holdfast does that."""
        raise NotImplementedError

    def rows(self) -> dict[str, int]:
        """How many rows each table has."""
        raise NotImplementedError


class MemoryHome(Home):
    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self._store: MemoryStore | None = None

    def store(self) -> Store:
        if self._store is None:
            self._store = MemoryStore(clock=self.clock)
        return self._store

    def rows(self) -> dict[str, int]:
        tables = vars(vars(self.store())["_tables"])
        return {name: len(rows) for name, rows in tables.items() if isinstance(rows, dict)}


class SqliteHome(Home):
    def store(self) -> Store:
        return SqliteStore(self.path, clock=self.clock, pace=SQLITE_PUSHED_ONLY)

    def rows(self) -> dict[str, int]:
        db = apsw.Connection(str(self.path))
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        counts: dict[str, Any] = {
            str(name): db.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in tables
        }
        db.close()
        return counts


class RedisHome(Home):
    """A store of its own on servers that all tests share."""

    _numbers = itertools.count()
    _sizes: ClassVar = {"index": "ZCARD", "names": "HLEN", "docs": "HLEN", "out": "XLEN"}  # of what a shard has one of

    def __init__(self, tmp_path: Path, url: str, servers: Callable[[], Sequence[RedisServer]]) -> None:
        super().__init__(tmp_path)
        self._servers = servers
        self._url = urls.parse(f"{url}?name=i-{os.getpid()}-{next(self._numbers)}&shards=4")

    def store(self) -> Store:
        return RedisStore(self._url, clock=self.clock, bus=PubSub(self._url, clock=self.clock, ids=SystemIds()))

    def rows(self) -> dict[str, int]:
        counts = Counter(dict.fromkeys(("runs", *self._sizes), 0))
        for server in self._servers():
            keys = server.ask("KEYS", f"{{hf:{self._url.name}:*}}*")
            assert isinstance(keys, list)
            for key in map(str, keys):
                part = key.partition("}")[2].partition(":")[0]  # nothing: what WAIT leaves
                if not part or server.ask("PTTL", key) != -1:  # what is still there for a while, in case of need
                    continue
                size = server.ask(self._sizes[part], key) if part in self._sizes else 1
                assert isinstance(size, int)
                counts["runs" if part == "run" else part] += size
        return dict(counts)


HOMES = {"memory": MemoryHome, "sqlite": SqliteHome}
ON_REDIS = {
    *("test_admission", "test_cancelled_children", "test_children", "test_entities", "test_forks", "test_hooks"),
    *("test_lost_replies", "test_signal_or_start", "test_stop_and_takeover", "test_supersede", "test_deploys"),
    *("test_bulk", "test_accepted_signals", "test_leaders", "test_misspelt_hooks", "test_parents_that_go_on"),
    *("test_wakeups_are_pushed", "test_what_runs_now", "test_retry_now", "test_sealed_payloads"),
    *("test_breakers", "test_effect_limits"),
    "test_lanes",
}
ON_CLUSTER = {"test_cancelled_children", "test_children", "test_breakers", "test_effect_limits"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "home" in metafunc.fixturenames:
        file = metafunc.module.__name__.rpartition(".")[2]
        also = [name for name, files in (("redis", ON_REDIS), ("cluster", ON_CLUSTER)) if file in files]
        asked = os.environ.get("HOMES")
        metafunc.parametrize("home", asked.split(",") if asked else [*HOMES, *also], indirect=True)


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    match request.param:
        case "redis":
            server = request.getfixturevalue("redis_server")
            return RedisHome(tmp_path, server.url, lambda: [server])
        case "cluster":
            cluster = request.getfixturevalue("redis_cluster")
            return RedisHome(tmp_path, cluster.url, cluster.primaries)
        case name:
            return HOMES[name](tmp_path)


@pytest.fixture
def sqlite_home(tmp_path: Path) -> SqliteHome:
    return SqliteHome(tmp_path)


class Holding:
    """A workflow whose effect waits until the gate is opened: `work(n)` answers n then."""

    def __init__(self) -> None:
        self.pack = Pack("p")
        self.gate = asyncio.Event()

        @self.pack.effect
        async def hold(n: int = 0) -> int:
            await self.gate.wait()
            return n

        @self.pack.workflow
        async def work(n: int = 0) -> int:
            return await hold(n)

        @self.pack.workflow
        async def parent(n: int = 0) -> int:
            return await work(n)

        self.hold, self.work, self.parent = hold, work, parent
