"""The events of a Holdfast, recorded: what has happened so far, and a way to wait for what has not."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from holdfast.assembly import Holdfast
from holdfast.events import Event
from holdfast.testing.waiting import PATIENCE_SECONDS

E = TypeVar("E", bound=Event)


class EventRecorder:
    """Records every event of one Holdfast (see `holdfast.events`), from the moment at which it is made."""

    def __init__(self, hf: Holdfast) -> None:
        self.events: list[Event] = []
        self._more = asyncio.Event()
        hf.listen(self._record)

    def _record(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()

    def all(self, kind: type[E], **fields: Any) -> list[E]:
        """The events of this kind so far that have these fields."""
        return [
            event
            for event in self.events
            if type(event) is kind and all(getattr(event, name) == value for name, value in fields.items())
        ]

    async def until(self, kind: type[E], *, count: int = 1, within: float = PATIENCE_SECONDS, **fields: Any) -> E:
        """Return the `count`-th event of this kind with these fields as soon as it has happened.

        Raises `TimeoutError` if it has not `within` that many seconds.
        """
        try:
            async with asyncio.timeout(within):
                while len(found := self.all(kind, **fields)) < count:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError as error:
            seen = len(self.all(kind, **fields))
            raise TimeoutError(
                f"{kind.__name__} {fields} happened {seen} times in {within:g} s, not {count}"
            ) from error
        return found[count - 1]
