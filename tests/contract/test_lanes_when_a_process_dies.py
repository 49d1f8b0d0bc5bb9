"""A process dies before or after any call that it makes to the store: the lane is as if it had not.

On Redis a call is several scripts; what is between those is in tests/redis/test_lanes_between_shards.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from holdfast.kernel import lanes
from holdfast.kernel.changes import Change, Committed
from holdfast.kernel.lanes import Entering
from holdfast.ports.store import Store
from tests.contract.conftest import Backend, RedisBackend
from tests.contract.helpers import admission, claim, completion

LANE, OWNER = "account:7", "w-1"
RUNS, WIDTH = 4, 2
T = TypeVar("T")


class Died(Exception):
    """The process has died here."""


class Process:
    """Makes calls, until it dies around one of them. Then a successor makes that call again, and all others."""

    def __init__(self, store: Store, successor: Store, *, dies_at: int) -> None:
        self._store = store
        self._successor = successor
        self._left = dies_at  # two for each call: before it, after it
        self.calls = 0

    async def call(self, verb: Callable[[Store], Awaitable[T]]) -> T:
        self.calls += 1
        try:
            self._pass()
            result = await verb(self._store)
            self._pass()
        except Died:
            self._store = self._successor
            await self._store.relay(100)
            return await verb(self._store)
        return result

    def _pass(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Died


async def _life(process: Process, store: Store) -> list[str]:
    order: list[str] = []

    async def commit(change: Change) -> None:
        [answer] = await process.call(lambda store: store.commit([change]))
        assert isinstance(answer, Committed), answer

    for n in range(RUNS):
        entering = Entering(LANE, WIDTH, parked_max=RUNS)
        await commit(admission(store, f"run-{n}", key=f"order:{n}" if n % 2 else None, enters=entering))
    while len(order) < RUNS or await store.held(OWNER):
        await process.call(lambda store: claim(store, OWNER))
        held = sorted(await store.held(OWNER))
        assert 1 <= len(held) <= WIDTH
        order += [run_id for run_id in held if run_id not in order]
        [run] = await store.runs(held[:1])
        await commit(completion(store, run))
    state = await store.lane("default", LANE)
    assert state is not None
    assert (state.active, state.parked, lanes.trouble(state)) == (0, 0, None)
    return order


@pytest.mark.parametrize("together", [True, False])
async def test_a_death_around_any_call_changes_neither_order_nor_width(
    backend: Backend, request: pytest.FixtureRequest, tmp_path: Any, *, together: bool
) -> None:
    expected = [f"run-{n}" for n in range(RUNS)]

    async def lived(dies_at: int) -> int:
        own = type(backend)(tmp_path / f"{dies_at}", request)
        own.path.parent.mkdir()
        if isinstance(own, RedisBackend):
            own.together = together
        try:
            stores = [await own.another() for _ in range(3)]
            process = Process(stores[0], stores[1], dies_at=dies_at)
            assert await _life(process, stores[2]) == expected, dies_at
        finally:
            await own.close()
        return process.calls

    calls = await lived(0)
    assert calls >= 2 * RUNS
    for dies_at in range(1, 2 * calls + 1):
        await lived(dies_at)
