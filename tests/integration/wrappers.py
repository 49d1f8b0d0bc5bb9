"""Stores that count, lose replies, wait at a gate or fall silent. They wrap the port: no test hooks in the product."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.kernel.changes import Change
from holdfast.ports.store import Store

READS = {
    *("run", "runs", "run_of_key", "histories", "messages", "held", "blob", "next_wake_at_ms"),
    *("document", "named", "documents", "due", "members", "backlog"),
    *("lane", "lanes", "standing", "turn", "outs", "audits"),
}
WRITES = {"commit", "claim", "join", "renew", "leave", "rescue", "prune", "write"} | {
    "set_lane",
    "drop_outs",
    "drop_audits",
}


class StoreWrapper:
    """Passes everything on; `called` sees every asynchronous verb."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(verb):
            return verb

        async def call(*args: Any, **options: Any) -> Any:
            return await self.called(name, partial(verb, **options), args)

        return call

    async def called(self, name: str, verb: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        return await verb(*args)


class CountingStore(StoreWrapper):
    """Counts the calls of each verb, and keeps what was committed."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()
        self.claimed: list[str] = []
        self.changes: list[Change] = []

    async def called(self, name: str, verb: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        self.calls[name] += 1
        answer = await verb(*args)
        if name == "claim":
            self.claimed += [run.id for run in answer.runs]
        if name == "commit":
            self.changes += args[0]
        return answer

    def count(self, names: set[str]) -> int:
        return sum(self.calls[name] for name in names)


class LossyStore(StoreWrapper):
    """Loses replies: the verb is carried out, and whoever asked gets `StoreUnavailable` all the same.

    `loses(name, args)` says whether this reply is lost. With `before` the verb is not even carried out.
    """

    def __init__(self, inner: Store, loses: Callable[[str, tuple[Any, ...]], bool], *, before: bool = False) -> None:
        super().__init__(inner)
        self._loses = loses
        self._before = before
        self.lost: list[str] = []

    async def called(self, name: str, verb: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        lost = self._loses(name, args)
        if lost and self._before:
            self.lost.append(name)
            raise StoreUnavailable("the request was lost")
        answer = await verb(*args)
        if lost:
            self.lost.append(name)
            raise StoreUnavailable("the reply was lost")
        return answer


class GatedStore(StoreWrapper):
    """Holds back commits that `held(changes)` names, until the gate is opened."""

    def __init__(self, inner: Store, held: Callable[[Sequence[Change]], bool]) -> None:
        super().__init__(inner)
        self._held = held
        self.gate = asyncio.Event()
        self.reached = asyncio.Event()

    async def called(self, name: str, verb: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        if name == "commit" and self._held(args[0]):
            self.reached.set()
            await self.gate.wait()
        return await verb(*args)


class SeverableStore(StoreWrapper):
    """Falls silent for good once `sever()` was called, as if the process behind it had died or lost its disk."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.severed = False

    def sever(self) -> None:
        self.severed = True

    async def called(self, name: str, verb: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        if self.severed and name not in {"open", "close"}:
            raise StoreUnavailable("cut off")
        return await verb(*args)
