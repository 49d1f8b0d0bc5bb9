"""One case: a store, a directory with a ledger, and the processes that use them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

from holdfast import Holdfast, Run
from holdfast.kernel.journal import Elapsed, Joined, Performed
from holdfast.lab.cluster.redis import RedisServer
from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.lab.cluster.sentinels import SentinelGroup
from holdfast.stores.redis import RedisStore, rows
from holdfast.stores.redis.net.client import LuaSource, Reply, ScriptCall
from holdfast.stores.redis.shards import Shards
from tests.faults.holdfast_process import ProcessPlan, load
from tests.faults.ledger import Ledger
from tests.faults.processes import ForkServer, Process, Processes

SHARDS = 16
_LENGTH = LuaSource("return redis.call('XLEN', KEYS[1])")
_NAMES = LuaSource("return redis.call('HKEYS', KEYS[1])")
_numbers = itertools.count()


class Case:
    """A small world of its own, with a database file."""

    def __init__(self, directory: Path, fork_server: ForkServer) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.path = directory / "holdfast.db"
        self.ledger = Ledger(directory / "ledger.jsonl")
        self.processes = Processes(fork_server, directory)

    def plan(self, **options: Any) -> ProcessPlan:
        """What a process of this case is to do."""
        return ProcessPlan(path=str(self.path), ledger=str(self.ledger.path), **options)

    async def fork(self, **options: Any) -> Process:
        return await self.processes.fork(self.plan(**options))

    def run(self, **options: Any) -> Process:
        return self.processes.run(self.plan(**options))

    def client(self, pack: str = "tests.faults.workflows_checkout:shop") -> Holdfast:
        """A client in the process of the test."""
        return Holdfast(self.url, packs=[load(pack)], worker=False)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def ask(self, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """Look into the file, past Holdfast."""
        db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(10_000)
            return list(db.execute(sql, bindings))
        finally:
            db.close()

    def statuses(self) -> dict[str, str]:
        """The status of every run, by its key or else its id."""
        return dict(self.ask("SELECT coalesce(key, id), status FROM runs"))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Another process holds the write lock of the file."""
        db = apsw.Connection(str(self.path))
        db.set_busy_timeout(10_000)
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            db.execute("ROLLBACK")
            db.close()

    def flag(self, name: str) -> Path:
        """A file whose existence means something to the processes of the case."""
        return self.directory / name

    def raise_flag(self, name: str) -> None:
        self.flag(name).touch()


class RedisCase(Case):
    """One whose store is on servers that others use too, under a name of its own."""

    def __init__(
        self,
        directory: Path,
        fork_server: ForkServer,
        servers: RedisServer | RedisCluster | SentinelGroup,
        *,
        bus: str | None = None,
        wait: str | None = None,
    ) -> None:
        super().__init__(directory, fork_server)
        self.name = f"f-{os.getpid()}-{next(_numbers)}"
        self.bus = bus
        self.shards = Shards(self.name, SHARDS)
        self.servers = servers
        self.wait = wait

    @property
    def url(self) -> str:
        wait = "" if self.wait is None else f"&wait={self.wait}"
        return f"{self.servers.url}?name={self.name}&shards={SHARDS}{wait}"

    def plan(self, **options: Any) -> ProcessPlan:
        return super().plan(url=self.url, bus=self.bus, **options)

    def client(self, pack: str = "tests.faults.workflows_checkout:shop") -> Holdfast:
        return Holdfast(self.url, bus=self.bus, packs=[load(pack)], worker=False)

    async def check_runs(self, hf: Holdfast) -> list[Run[Any]]:
        """Every run is completed and has recorded nothing twice; nothing is held, and nothing is on the way."""
        async with asyncio.timeout(45):
            while await self.left(hf):
                await asyncio.sleep(0.05)
        runs = [run async for run in hf.runs()]
        assert {run.status for run in runs} == {"completed"}
        for run, row in zip(runs, await hf.runtime.store.runs([run.id for run in runs]), strict=True):
            assert (row.owner, row.unread) == (None, 0)
            steps = [entry.step for entry in await run.journal() if isinstance(entry, Performed | Elapsed | Joined)]
            assert len(steps) == len(set(steps)), steps
        return runs

    async def left(self, hf: Holdfast) -> int:
        """How many messages between shards no process has delivered yet."""
        lengths = await self._asked(hf, _LENGTH, self.shards.out)
        return sum(length for length in lengths if isinstance(length, int))

    async def held(self, hf: Holdfast) -> list[str]:
        """The names that have a holder: keys, tokens, and the ids of messages that came by tokens."""
        return [name for names in await self._asked(hf, _NAMES, self.shards.names) for name in rows.texts(names)]

    async def _asked(self, hf: Holdfast, script: LuaSource, key: Callable[[int], bytes]) -> list[Reply]:
        """Look into all shards, past the store."""
        assert isinstance(hf.runtime.store, RedisStore)
        calls = [ScriptCall(script, (key(shard),), ()) for shard in self.shards.all]
        return await hf.runtime.store._asks.ask(calls)
