"""The hooks of one run in memory: what has arrived for each and was not taken yet.

Everything that arrives is recorded and kept here in order, whether or not the code waits for it. Taking is plain
asyncio, so who gets what follows from the order of the records.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from holdfast.kernel.journal import Received


class _Box:
    """One hook."""

    __slots__ = ("closings", "queue", "taken", "waiting")

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Received | None] = asyncio.Queue()  # None: it has been closed
        self.waiting = 0
        self.taken = 0
        self.closings = 0


class Inbox(Struct):
    """All hooks, by name."""

    _boxes: dict[str, _Box] = {}
    waiting: int = 0  # how often the code waits for a hook

    def put(self, received: Received) -> None:
        self._box(received.hook).queue.put_nowait(received)

    async def take(self, name: str) -> Received:
        """The next one for this hook. Raises `StopAsyncIteration` if the hook is closed meanwhile."""
        box = self._box(name)
        closings = box.closings
        while True:
            box.waiting += 1
            self.waiting += 1
            try:
                received = await box.queue.get()
            finally:
                box.waiting -= 1
                self.waiting -= 1
            if received is not None:
                box.taken += 1
                return received
            if box.closings != closings:  # otherwise it was meant for a waiter that has gone
                raise StopAsyncIteration

    def count(self, name: str) -> int:
        """How many have arrived for the hook and were not taken."""
        return self._box(name).queue.qsize()

    def close(self, name: str) -> None:
        """Let those go who wait; what arrives later is kept until the hook is opened again."""
        box = self._box(name)
        box.closings += 1
        for _ in range(box.waiting):
            box.queue.put_nowait(None)

    def awaited(self) -> list[str]:
        """The hooks that the code waits for."""
        return [name for name, box in self._boxes.items() if box.waiting]

    @property
    def is_empty(self) -> bool:
        """Whether nothing has come for any hook so far, and the code has waited for none."""
        return not self._boxes

    def took_any(self, name: str) -> bool:
        """Whether the code has taken anything from this hook."""
        return name in self._boxes and self._boxes[name].taken > 0

    def untaken(self) -> tuple[Received, ...]:
        """What has arrived and was not taken, in order; it is taken by this."""
        left: list[Received] = []
        for box in self._boxes.values():
            while not box.queue.empty():
                received = box.queue.get_nowait()
                if received is not None:
                    left.append(received)
        return tuple(sorted(left, key=lambda received: received.at_ms))

    def _box(self, name: str) -> _Box:
        box = self._boxes.get(name)
        if box is None:
            box = self._boxes[name] = _Box()
        return box
