"""Requests that wait: long polls and streams. There are only so many places, and none holds up the closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from holdfast.errors import TooBusy

T = TypeVar("T")
AT_ONCE_SECONDS = 0.5


class Place:
    """A place in a lobby, for the length of a `with`."""

    __slots__ = ("_lobby",)

    def __init__(self, lobby: Lobby) -> None:
        self._lobby = lobby

    def __enter__(self) -> None:
        if self._lobby.taken >= self._lobby.places:
            raise TooBusy(f"{self._lobby.taken} requests wait here already")
        self._lobby.taken += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lobby.taken -= 1


class Lobby:
    """A number of places, and a closing time."""

    def __init__(self, places: int) -> None:
        self.closing = asyncio.Event()
        self.places = places
        self.taken = 0

    def place(self) -> Place:
        """A place to wait, or `TooBusy`."""
        return Place(self)

    async def first_of(
        self, work: Coroutine[Any, Any, T], *, seconds: float, gone: Callable[[], Coroutine[Any, Any, None]]
    ) -> asyncio.Task[T] | None:
        """The task of `work` once it is done; None if the time is up, the caller `gone`, or the gateway closing."""
        working = asyncio.create_task(work)
        try:
            # Most is done at once. Only while something takes longer it is worth to listen for who hangs up.
            at_once = 0.0 if self.closing.is_set() else min(AT_ONCE_SECONDS, seconds)
            await asyncio.wait([working], timeout=at_once)
            if not working.done():
                await self._longer(working, seconds=seconds - at_once, gone=gone)
            return working if working.done() else None
        finally:
            if not working.done():
                await _cancelled(working)

    async def _longer(
        self, working: asyncio.Task[Any], *, seconds: float, gone: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        others = [asyncio.create_task(self.closing.wait()), asyncio.create_task(gone())]
        try:
            await asyncio.wait([working, *others], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled(*others)

    def close(self) -> None:
        """Nobody waits any longer: whoever does is answered as things are."""
        self.closing.set()


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
