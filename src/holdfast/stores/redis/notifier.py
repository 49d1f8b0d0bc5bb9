"""Tells other processes what a store has changed, and this one what others have."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

import msgspec

from holdfast.kernel.times import Instant
from holdfast.ports import notices
from holdfast.ports.bus import Bus
from holdfast.ports.notices import ANYTHING, NOTHING, Notice, Ready
from holdfast.ports.store import Serves

SUBJECT = "notices"
CONNECT_SECONDS = 1.0
MAKE_GOOD_MS = 1_000
WAKES_MAX = 8  # for one workflow in one batch: the worker that wakes takes as many as it has room for


class Notifier:
    """What is ready now wakes one worker that serves it. Everything else is told to all."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._on_notice: Callable[[Notice], bool] | None = None
        self._groups: set[str] = set()
        self._connected = asyncio.Event()
        self._unheard = False  # something was told while no process could hear it
        self._is_unsure = False  # something may have changed that nothing was told of
        self._dropped = 0  # of the hints that the bus has dropped, those that are made good
        self._made_good_at_ms = 0

    async def open(self) -> None:
        """Listen first: so nothing that is told after this is missed, or ANYTHING is told when the bus is there.

        A short wait lets a process be heard that stays for a moment only. A bus that is down keeps no process from
        working.
        """
        self._bus.listen(SUBJECT, self._hear)
        self._bus.watch(self._on_state)
        await self._bus.open()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._connected.wait()

    async def close(self) -> None:
        await self._bus.close()

    def watch(self, on_notice: Callable[[Notice], bool]) -> None:
        self._on_notice = on_notice

    def serve(self, serves: Serves) -> None:
        """This process executes these workflows: it may be woken for them."""
        for workflow in serves.workflows:
            group = _group(serves.namespace, workflow)
            if group not in self._groups:
                self._groups.add(group)
                self._bus.join(group, partial(self._wake, serves.namespace, workflow))

    def note_unsure(self) -> None:
        """Changes may have been made, and the reply is lost: with the next one all are told to look."""
        self._is_unsure = True

    def tell(self, notice: Notice, *, now_ms: Instant) -> None:
        """Tell the others."""
        if not self._bus.connected:
            self._unheard = True
            return
        woken: dict[str, int] = {}
        later: list[Ready] = []
        for ready in notice.ready:
            if ready.wake_at_ms > now_ms:
                later.append(ready)
                continue
            group = _group(ready.namespace, ready.workflow)
            woken[group] = woken.get(group, 0) + 1
        for group, count in woken.items():
            for _ in range(min(count, WAKES_MAX) if self._bus.wakes_one else 1):
                self._bus.wake(group, b"%d" % now_ms)
        rest = msgspec.structs.replace(notice, ready=tuple(later))
        if self._bus.dropped != self._dropped and now_ms - self._made_good_at_ms >= MAKE_GOOD_MS:
            # More was sent, or came, than it can take: let everybody look.
            self._made_good_at_ms, self._dropped, rest = now_ms, self._bus.dropped, ANYTHING
            if self._on_notice is not None:
                self._on_notice(ANYTHING)
        if self._is_unsure:
            self._is_unsure, rest = False, ANYTHING
        if rest != NOTHING:
            self._bus.broadcast(SUBJECT, notices.encode(rest))

    # -- what is heard

    def _hear(self, body: bytes) -> None:
        if self._on_notice is not None:
            self._on_notice(notices.decode(body))

    def _wake(self, namespace: str, workflow: str, body: bytes) -> None:
        if self._on_notice is None or not body.isdigit():
            return
        ready = Notice(ready=(Ready(namespace, workflow, Instant(int(body))),))
        if not self._on_notice(ready) and self._bus.wakes_one:  # otherwise the others have heard it, too
            self._bus.broadcast(SUBJECT, notices.encode(ready))

    def _on_state(self, connected: bool) -> None:  # noqa: FBT001 - the port's callback
        if not connected:
            self._connected.clear()
            self._unheard = True  # what was on its way may be lost with the connection
            return
        self._connected.set()
        if self._unheard:  # the others have not heard what we did meanwhile
            self._unheard = False
            self._bus.broadcast(SUBJECT, notices.encode(ANYTHING))
        if self._on_notice is not None:  # nor have we heard them
            self._on_notice(ANYTHING)


def _group(namespace: str, workflow: str) -> str:
    return f"work\0{namespace}\0{workflow}"
