"""Live pages: a stream of ticks. A tick says only that something has changed; the page then asks for itself again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.assembly import Holdfast
from holdfast.events import RunsClaimed

T = TypeVar("T")
IDLE_SECONDS = 10.0  # figures age, and leases are renewed, without anything to tell
SPACING_SECONDS = 0.75
_BEGIN = b"retry: 2000\n\n"
_TICK = b"event: tick\ndata: {}\n\n"


class WaitSlots(Protocol):
    """How requests wait: so many slots, and a closing time. The gateway passes its own."""

    closing: asyncio.Event

    def slot(self) -> AbstractContextManager[None]: ...
    async def first_of(
        self, work: Coroutine[Any, Any, T], *, seconds: float, gone: Callable[[], Coroutine[Any, Any, None]]
    ) -> asyncio.Task[T] | None: ...


class Ticks(StreamingResponse):
    """Ticks until the reader has gone or the server closes. Raises `TooBusy` if all slots are taken."""

    def __init__(self, hf: Holdfast, wait_limit: WaitSlots) -> None:
        self._slot = ExitStack()
        self._slot.enter_context(wait_limit.slot())
        # Proxies that hold a response back until it is whole would hold these back forever.
        headers = {"X-Accel-Buffering": "no"}
        super().__init__(ticks(hf, wait_limit.closing), media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot:
            await super().__call__(scope, receive, send)


async def ticks(hf: Holdfast, closing: asyncio.Event) -> AsyncIterator[bytes]:
    """One tick for all that has changed since the last one, and now and then one where nothing has.

    The first one comes at once: something may have changed between the page and its stream.
    """
    yield _BEGIN
    changed = asyncio.Event()
    listening = asyncio.create_task(_listen(hf, changed))
    # A claim is no commit, but the run has another status.
    forget = hf.listen(lambda event: changed.set() if isinstance(event, RunsClaimed) else None)
    try:
        while not closing.is_set():
            await _first_of(changed, closing, seconds=IDLE_SECONDS)
            changed.clear()
            yield _TICK
            await _first_of(closing, seconds=SPACING_SECONDS)
    finally:
        forget()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def _listen(hf: Holdfast, changed: asyncio.Event) -> None:
    async for _ in hf.runtime.changes():
        changed.set()


async def _first_of(*events: asyncio.Event, seconds: float) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
