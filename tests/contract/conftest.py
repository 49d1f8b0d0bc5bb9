"""Every promise of the Store port, against every store. To add a store: one class here, one line in `BACKENDS`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.ports.store import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from tests.builders import FakeClock


class Backend:
    """One set of data, and any number of stores on it. Time is the test's."""

    def __init__(self, tmp_path: Path) -> None:
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


class MemoryBackend(Backend):
    """Processes cannot share memory: here the others are tasks of one event loop, on one store."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self._store = MemoryStore(clock=self.clock)

    def _made(self) -> Store:
        return self._store


class SqliteBackend(Backend):
    def _made(self) -> Store:
        return SqliteStore(self.path, clock=self.clock)


BACKENDS = {"memory": MemoryBackend, "sqlite": SqliteBackend}


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    backend = BACKENDS[request.param](tmp_path)
    yield backend
    await backend.close()


@pytest.fixture
async def store(backend: Backend) -> Store:
    return await backend.another()


@pytest.fixture
def clock(backend: Backend) -> FakeClock:
    return backend.clock


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteBackend]:
    """For what only SQLite promises."""
    backend = SqliteBackend(tmp_path)
    yield backend
    await backend.close()
