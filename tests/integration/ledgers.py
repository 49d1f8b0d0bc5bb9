"""A world outside the engine: it counts what is done to it, by effect key, and can make effects wait."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from holdfast import Pack, Receipt, Retry, Run, effect_key, hook
from holdfast.ports.store import Store
from tests.integration.conftest import PATIENCE_SECONDS, eventually
from tests.integration.wrappers import StoreWrapper

ONCE = Retry(attempts=1)


class Ledger:
    """What was begun and what was done, by key. A step that is `held` begins, and then waits to be let go."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.done: list[str] = []
        self._held: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Event()

    def hold(self, *keys: str) -> None:
        for key in keys:
            self._held[key] = asyncio.Event()

    def let_go(self, *keys: str) -> None:
        for key in keys or tuple(self._held):
            self._held[key].set()

    async def act(self, key: str | None = None) -> str:
        """Do it, under the key of the effect that is being performed unless another one is given."""
        key = effect_key() if key is None else key
        self.begun[key] += 1
        self._changed.set()
        if key in self._held:
            await self._held[key].wait()
        self.done.append(key)
        self._changed.set()
        return key

    async def until_begun(self, key: str, times: int = 1) -> None:
        await self._until(lambda: self.begun[key] >= times)

    async def until_done(self, key: str) -> None:
        await self._until(lambda: key in self.done)

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def most(self) -> int:
        """How often the key was done that was done most often."""
        return max(Counter(self.done).values(), default=0)


class ThreadLedger:
    """For one sync effect: it begins, waits in its thread until it is let go, and is done."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.done: list[str] = []

    def act(self) -> str:
        self.begun.set()
        assert self.gate.wait(PATIENCE_SECONDS)
        self.done.append(effect_key())
        return effect_key()


MOMENTS_MIN = 8  # that every story has


class Moments:
    """Counts the moments at which something happens: before and after each commit, and whenever it is called.

    `then` is run at the moment it is set for, and that moment lasts until it has gone some way.
    """

    def __init__(self) -> None:
        self.count = 0
        self.happened: asyncio.Future[asyncio.Task[Any]] = asyncio.get_running_loop().create_future()
        self._at = 0
        self._then: Callable[[], Coroutine[Any, Any, Any]] | None = None

    def at(self, moment: int, then: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._at, self._then = moment, then

    async def has_come(self) -> bool:
        """Whether the moment has come: one of the first is certain to, and those after the last never do."""
        seconds = PATIENCE_SECONDS if self._at <= MOMENTS_MIN else 1
        return bool((await asyncio.wait([self.happened], timeout=seconds))[0])

    async def __call__(self) -> None:
        self.count += 1
        if self._then is not None and self.count == self._at:
            self.happened.set_result(asyncio.get_running_loop().create_task(self._then()))
            for _ in range(20):
                await asyncio.sleep(0)

    def through(self, store: Store) -> StoreWrapper:
        return _Boundaries(store, self)


class _Boundaries(StoreWrapper):
    def __init__(self, inner: Store, moments: Moments) -> None:
        super().__init__(inner)
        self._moments = moments

    async def called(self, name: str, verb: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        if name != "commit":
            return await verb(*args)
        await self._moments()
        answer = await verb(*args)
        await self._moments()
        return answer


class Shop:
    """Effects `step:<name>` on a ledger, plain and with an undo that the ledger knows as `undo:step:<name>`."""

    def __init__(self) -> None:
        self.pack = Pack("shop")
        self.ledger = Ledger()

        @self.pack.effect(key="step:{name}", retry=ONCE)
        async def act(name: str) -> str:
            return await self.ledger.act()

        @self.pack.effect(retry=ONCE)
        async def put_back(name: str) -> None:
            await self.ledger.act()

        @self.pack.effect(key="step:{name}", retry=ONCE, undo=put_back)
        async def take(name: str) -> str:
            return await self.ledger.act()

        self.act, self.put_back, self.take = act, put_back, take


async def time_is_up(limit: asyncio.Timeout) -> None:
    """In a workflow: the limit is over when the run is told so, and not by the clock."""
    await hook("time is up")
    limit.reschedule(asyncio.get_running_loop().time())


def lefts(receipt: Receipt) -> dict[str, str]:
    """The effects of a receipt: what became of each, by key."""
    return {str(left): left.state for left in receipt.effects}


async def until_recorded(run: Run[Any], *steps: str) -> None:
    """Returns when these steps have a record: a key is done before that. The first record of a child is its start."""

    async def recorded() -> bool:
        return set(steps) <= {getattr(entry, "step", "") for entry in await run.journal()}

    await eventually(recorded)
