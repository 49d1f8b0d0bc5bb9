"""The public API over every store: a `home` is where runs live; any number of Holdfasts may live in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import apsw
import pytest

from holdfast import Holdfast, Pack
from holdfast.adapters.machine import SystemClock
from holdfast.engine.events import Event
from holdfast.engine.worker import Worker
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore

PATIENCE_SECONDS = 30.0


_RECORDERS: WeakKeyDictionary[Holdfast, Seen] = WeakKeyDictionary()


def heard(hf: Holdfast) -> Seen:
    """All that this Holdfast has told since it was made."""
    return _RECORDERS[hf]


def worker_of(hf: Holdfast) -> Worker:
    """The part of this Holdfast that executes runs."""
    worker = hf._replica._worker
    assert worker is not None
    return worker


def owner_of(hf: Holdfast) -> str:
    """The name under which this Holdfast holds runs."""
    keeper = hf._replica.keeper
    assert keeper is not None
    return keeper.owner


class Home:
    """One set of data."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock: Clock = SystemClock()
        self.path = tmp_path / "home.db"

    def holdfast(self, *packs: Pack, through: Callable[[Store], Any] | None = None, **options: Any) -> Holdfast:
        """A Holdfast on this data. `through` wraps the store that it talks to."""
        store = self.store()
        hf = Holdfast(store if through is None else through(store), packs=packs, **options)
        _RECORDERS[hf] = Seen(hf)
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
        tables = vars(self.store())
        return {name: len(rows) for name, rows in tables.items() if isinstance(rows, dict)}


class SqliteHome(Home):
    def store(self) -> Store:
        return SqliteStore(self.path, clock=self.clock)

    def rows(self) -> dict[str, int]:
        db = apsw.Connection(str(self.path))
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        counts: dict[str, Any] = {
            str(name): db.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in tables
        }
        db.close()
        return counts


HOMES = {"memory": MemoryHome, "sqlite": SqliteHome}


@pytest.fixture(autouse=True)
def pushed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns the safety polls off. A wake-up that is not pushed is then no delay of seconds, but a test that hangs."""
    monkeypatch.setattr("holdfast.engine.waker.SAFETY_POLL_SECONDS", 3600.0)
    monkeypatch.setattr("holdfast.engine.outcomes.SAFETY_POLL_SECONDS", 3600.0)


@pytest.fixture(params=HOMES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return HOMES[request.param](tmp_path)


@pytest.fixture
def sqlite_home(tmp_path: Path) -> SqliteHome:
    return SqliteHome(tmp_path)


class Seen:
    """The events of one Holdfast, to wait on."""

    def __init__(self, hf: Holdfast) -> None:
        self.events: list[Event] = []
        self._more = asyncio.Event()
        hf.listen(self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()

    def all(self, kind: type[Event], **fields: Any) -> list[Any]:
        """The events of this kind so far, as far as they have these fields."""
        return [
            event
            for event in self.events
            if type(event) is kind and all(getattr(event, name) == value for name, value in fields.items())
        ]

    async def until(self, kind: type[Event], *, count: int = 1, **fields: Any) -> Any:
        """Returns the `count`-th event of this kind as soon as it has happened."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found := self.all(kind, **fields)) < count:
                self._more.clear()
                await self._more.wait()
        return found[count - 1]


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


async def eventually(condition: Callable[[], Any]) -> Any:
    """Returns the first true answer of `condition`, which may be async. For what no event tells."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = condition()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(0.005)
