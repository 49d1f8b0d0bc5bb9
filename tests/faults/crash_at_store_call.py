"""A store that counts the calls made to it, and kills or stops its own process around the one that was named.

It wraps the port, so the product needs no hooks for tests. What the store has confirmed about effects goes into the
ledger before any other code learns it: only so can a test say that a recorded effect was never performed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from holdfast.kernel.changes import Answer, Change, Committed, Refused
from holdfast.kernel.journal import GaveUp, Performed
from holdfast.kernel.runs import Fenced
from holdfast.ports.store import Store
from tests.faults.ledger import Ledger

VERBS = (
    "open",
    "join",
    "commit",
    "claim",
    "next_wake_at_ms",
    "histories",
    "messages",
    "run",
    "runs",
    "run_of_key",
    "held",
    "blob",
    "search",
    "hook",
    "hook_of_token",
    "served",
    "members",
    "backlog",
    "inspect",
    "write",
    "document",
    "named",
    "documents",
    "due",
    "renew",
    "fallen",
    "rescue",
    "prune",
    "relay",
    "set_lane",
    "lane",
    "lanes",
    "standing",
    "turn",
    "outs",
    "drop_outs",
    "audits",
    "drop_audits",
    "leave",
    "close",
)


When = Literal["before", "after"]


class Point(Struct, frozen=True):
    """Just before or just after the n-th call of a verb."""

    verb: str
    n: int
    when: When
    signal: int = signal.SIGKILL

    def __str__(self) -> str:
        return f"{self.when} {self.verb} #{self.n}"


class CrashingStore:
    """A store whose process gets a signal at one point."""

    def __init__(self, store: Store, *, point: Point | None, ledger: Ledger) -> None:
        self.counts: Counter[str] = Counter()
        self.read: list[str] = []  # the runs whose journals were read
        self.handed = 0  # how many messages were handed out
        self._store = store
        self._point = point
        self._stops = point is not None and point.signal == signal.SIGSTOP
        self._one_at_a_time = asyncio.Lock()
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in VERBS:
            return method

        async def counted(*args: Any, **options: Any) -> Any:
            return await self._call(name, partial(method, **options), *args)

        return counted

    async def _call(self, verb: str, method: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        # One who is to be stopped makes one call at a time: stopped with a transaction open in its other thread it
        # would hold the file's lock, and no process could take over.
        async with self._one_at_a_time if self._stops else contextlib.nullcontext():
            return await self._counted(verb, method, *args)

    async def _counted(self, verb: str, method: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        self.counts[verb] += 1
        n = self.counts[verb]
        if verb == "histories":
            self.read += args[0]
        self._reach(
            verb, n, "before", fenced=verb == "commit" and any(isinstance(each.guard, Fenced) for each in args[0])
        )
        answer = await method(*args)
        if verb == "commit":
            self._note(args[0], answer)
        if verb == "messages":
            self.handed += sum(map(len, answer.values()))
        self._reach(verb, n, "after")
        return answer

    def _reach(self, verb: str, n: int, when: str, *, fenced: bool = False) -> None:
        point = self._point
        if point is not None and (point.verb, point.n, point.when) == (verb, n, when):
            self._ledger.write(reached=str(point), fenced=fenced)
            os.kill(os.getpid(), point.signal)

    def _note(self, changes: Sequence[Change], answers: Sequence[Answer]) -> None:
        for change, answer in zip(changes, answers, strict=True):
            if isinstance(answer, Refused) and isinstance(change.guard, Fenced):
                self._ledger.write(refused=change.id)
            if isinstance(answer, Committed):
                for entry in change.entries:
                    if isinstance(entry, Performed | GaveUp):
                        self._ledger.write(recorded=entry.intent.key)
