"""Stores with the data that an earlier commit has written: each test has its own copy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.assembly import open_store
from holdfast.lab.cluster.servers import RedisServer
from holdfast.ports.store import Store
from tests.compatibility import snapshots
from tests.compatibility.normal import Normal
from tests.compatibility.story import Told

WRITTEN = Path(__file__).parent / "b631bb3"
STORE = "stored"  # the name of the store on Redis: it is part of every key


class Stored:
    """One store; `told` is what its writer knew beside the data."""

    def __init__(self, kind: str) -> None:
        self.told = Told(**json.loads((WRITTEN / f"told-{kind}.json").read_text()))

    def load(self) -> None:
        """Fill the store with what was written then."""
        raise NotImplementedError

    def store(self) -> Store:
        """The store, to be opened. Any number of them may be on the same data."""
        store, _ = open_store(self.url, clock=SystemClock(), ids=SystemIds())
        return store

    @property
    def url(self) -> str:
        raise NotImplementedError

    def lines(self, known: Told) -> list[str]:
        """All that is stored now, without what differs from time to time."""
        raise NotImplementedError

    def lines_then(self) -> list[str]:
        """All that was stored then."""
        raise NotImplementedError


class StoredInSqlite(Stored):
    def __init__(self, tmp_path: Path) -> None:
        super().__init__("sqlite")
        self.path = tmp_path / "store.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def load(self) -> None:
        snapshots.load_sqlite(WRITTEN / "store.db.gz", self.path)

    def lines(self, known: Told) -> list[str]:
        return Normal(known.runs).of_sqlite(self.path)

    def lines_then(self) -> list[str]:
        then = self.path.with_name("then.db")
        snapshots.load_sqlite(WRITTEN / "store.db.gz", then)
        return Normal(self.told.runs).of_sqlite(then)


class StoredInRedis(Stored):
    def __init__(self, server: RedisServer) -> None:
        super().__init__("redis")
        self._connection = snapshots.Server("127.0.0.1", server.port)
        self._url = server.url
        self.clear()

    @property
    def url(self) -> str:
        return f"{self._url}?name={STORE}&shards=4"

    def load(self) -> None:
        for key in snapshots.load_redis(WRITTEN / "redis.jsonl.gz"):
            self._connection.put(key)

    def lines(self, known: Told) -> list[str]:
        return Normal(known.runs).of_redis(self._connection.keys_of(STORE))

    def lines_then(self) -> list[str]:
        return Normal(self.told.runs).of_redis(snapshots.load_redis(WRITTEN / "redis.jsonl.gz"))

    def clear(self) -> None:
        for key in self._connection.keys_of(STORE):
            self._connection.ask("DEL", key.name)

    def close(self) -> None:
        self.clear()
        self._connection.close()


@pytest.fixture(params=["sqlite", "redis"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store that holds nothing yet."""
    if request.param == "sqlite":
        yield StoredInSqlite(tmp_path)
    else:
        stored = StoredInRedis(request.getfixturevalue("redis_server"))
        yield stored
        stored.close()


@pytest.fixture
def stored(empty: Stored) -> Stored:
    empty.load()
    return empty
