"""Values for tests: each builder gives a complete, valid one; pass only what the test is about.

a_run(), running(), wanted()     rows of runs, and the wish for one
a_value(), an_intent(), entries  what a journal holds
with_journal()                   a row and the journal that belongs to it
FakeClock, SeededIds             time and chance that the test decides
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from holdfast.engine.values import digest_of
from holdfast.kernel.hooks import signal
from holdfast.kernel.journal import (
    Attempted,
    CancelAsked,
    Cancelled,
    Continued,
    Dropped,
    Elapsed,
    Entry,
    Failure,
    GaveUp,
    Intended,
    Intent,
    Joined,
    Late,
    Performed,
    Received,
    Spawned,
    Started,
    Stopped,
    Value,
)
from holdfast.kernel.messages import SignalMessage
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.starts import Hand, Wanted, admission

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000

# -- runs


def wanted(run_id: str = "run-1", *, key: str | None = "order:1", input: object = None, **fields: Any) -> Wanted:
    """The wish for a run. Equal `input`s have equal digests, as the engine makes them."""
    data = msgspec.json.encode(input if input is not None else {"order": "o-1"}, order="deterministic")
    wish = Wanted(
        run_id=run_id,
        namespace="default",
        workflow="shop.checkout",
        key=key,
        queue="default",
        priority=0,
        delay_ms=0,
        retention_ms=30 * DAY_MS,
        digest=digest_of(data),
        request_id=f"request-of-{run_id}",
        input=Value(Raw(data)),
    )
    return replace(wish, **fields)


def a_run(run_id: str = "run-1", *, key: str | None = "order:1", **fields: Any) -> Run:
    """A run's row as its admission writes it: pending, with one journal entry."""
    row = admission(wanted(run_id, key=key), now_ms=NOW_MS, hand=None).run
    assert row is not None
    return replace(row, **fields)


def running(run_id: str = "run-1", *, key: str | None = "order:1", owner: str = "w-1", **fields: Any) -> Run:
    """A run that was handed to `owner` in its admitting commit: epoch 1, nonce `nonce-of-<owner>`."""
    row = admission(wanted(run_id, key=key), now_ms=NOW_MS, hand=a_hand(owner)).run
    assert row is not None
    assert row.status is Status.RUNNING
    return replace(row, **fields)


def a_hand(owner: str = "w-1") -> Hand:
    return Hand(owner, f"nonce-of-{owner}")


def with_journal(run: Run, *entries: Entry, first: int = 0) -> tuple[Run, tuple[Entry, ...]]:
    """A row of the right length, and its journal: the input comes first, unless the journal has begun again."""
    journal = entries if first else (STARTED, *entries)
    return replace(run, length=first + len(journal)), journal


# -- what a journal holds


def a_value(value: object = "ok") -> Value:
    return Value(Raw(msgspec.json.encode(value)))


def a_failure(type: str = "ValueError", message: str = "boom", *, step: str = "") -> Failure:
    return Failure(type, message, Raw(msgspec.json.encode([message])), step=step)


def an_intent(name: str = "shop.charge", *, kind: str = "effect", **fields: Any) -> Intent:
    return replace(Intent(kind, name, key="charge:o-1", digest="d1", line="shop.py:12"), **fields)


def intended(step: str = "charge#1", *, attempt: int = 1, intent: Intent | None = None) -> Intended:
    return Intended(NOW_MS, step, intent or an_intent(), attempt)


def attempted(step: str = "charge#1", *, attempt: int = 1, intent: Intent | None = None) -> Attempted:
    return Attempted(NOW_MS, step, intent or an_intent(), attempt, a_failure(), NOW_MS + 500)


def performed(step: str = "charge#1", value: object = "ok", *, intent: Intent | None = None) -> Performed:
    return Performed(NOW_MS, step, intent or an_intent(), 1, a_value(value))


def gave_up(step: str = "charge#1", *, attempt: int = 3, intent: Intent | None = None) -> GaveUp:
    return GaveUp(NOW_MS, step, intent or an_intent(), attempt, a_failure())


def elapsed(step: str = "sleep#1", *, due_at_ms: int = NOW_MS) -> Elapsed:
    return Elapsed(max(NOW_MS, due_at_ms), step, due_at_ms)


def joined(step: str = "pay#1", value: object = "ok", *, run_id: str = "child-1") -> Joined:
    return Joined(NOW_MS, step, run_id, a_value(value))


def spawned(step: str = "pay#1", *, run_id: str = "child-1", kind: str = "spawn", **fields: Any) -> Spawned:
    return replace(Spawned(NOW_MS, step, an_intent("shop.pay", kind=kind), run_id), **fields)


def received(hook: str = "items", value: object = "ok", *, id: str = "signal/5/items/1") -> Received:
    return Received(NOW_MS, hook, id, a_value(value))


def a_signal(
    hook: str = "items", payload: object = "ok", *, dedupe: str | None = "d-1", nonce: str = "n-1"
) -> SignalMessage:
    return signal(hook, msgspec.json.encode(payload), dedupe=dedupe, nonce=nonce)


# -- what a cancellation leaves in a journal

CANCELLED = (Stopped(NOW_MS), Cancelled(NOW_MS))  # how it ends, if nothing more is to be done


def cancel_asked(reason: str = "", *, pausing: bool = False) -> CancelAsked:
    return CancelAsked(NOW_MS, NOW_MS + 30_000, reason, pausing)


def dropped(step: str = "charge#1", *, intent: Intent | None = None) -> Dropped:
    return Dropped(NOW_MS, step, intent or an_intent())


def late(step: str = "charge#1", value: object = "ok", *, intent: Intent | None = None) -> Late:
    return Late(NOW_MS, step, intent or an_intent(), 1, a_value(value))


def late_failure(step: str = "charge#1", *, intent: Intent | None = None) -> Late:
    return Late(NOW_MS, step, intent or an_intent(), 1, error=a_failure())


def an_undo(key: str = "charge:o-1") -> Intent:
    return Intent("undo", "shop.refund", f"undo:{key}", "d9")


def undone(step: str = "charge#1") -> Performed:
    return performed(f"undo:{step}", None, intent=an_undo())


def not_undone(step: str = "charge#1") -> GaveUp:
    return gave_up(f"undo:{step}", intent=an_undo())


STARTED = Started(NOW_MS, a_value({"order": "o-1"}))


def continued(generation: int = 1, value: object = "next") -> Continued:
    """The entry with which a later generation begins."""
    return Continued(NOW_MS, a_value(value), generation, STARTED.input)


# -- time and chance


class FakeClock:
    """A machine's clocks, moved by the test alone. Set `wall` and `boot` at will; `advance` moves both clocks."""

    def __init__(self, *, wall: int = NOW_MS, steady: float = 1_000.0, boot: str = "boot-1") -> None:
        self.wall = wall
        self.steady = steady
        self.boot = boot
        self._pauses: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def wall_ms(self) -> int:
        return self.wall

    def steady_ms(self) -> float:
        return self.steady

    def boot_id(self) -> str:
        return self.boot

    async def pause(self, seconds: float) -> None:
        """Returns when `advance` has moved the steady clock that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._pauses, (self.steady + seconds * 1000, next(self._order), over))
        await over

    def advance(self, ms: float) -> None:
        """Let time pass. Pauses that are over end, in the order in which they were due."""
        self.steady += ms
        self.wall += int(ms)
        while self._pauses and self._pauses[0][0] <= self.steady:
            over = heapq.heappop(self._pauses)[2]
            if not over.done():
                over.set_result(None)


class SeededIds:
    """Chance that repeats itself: the same seed gives the same ids."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._count = itertools.count(1)

    def run_id(self, now_ms: int) -> str:
        return f"{now_ms:012x}-{next(self._count):06}"

    def nonce(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def chance(self) -> float:
        return self._random.random()
