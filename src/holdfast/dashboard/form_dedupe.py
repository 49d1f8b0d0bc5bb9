"""Forms that were sent, and what came of them: one that is sent twice, even at the same time, makes one thing.

This is for what the store cannot tell apart by itself. It is remembered in this process only, for as long as no
thousand others have come since: sent to another replica, or after a restart, the same form counts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any


class FormDedupe:
    """Remembers, by form, the id of what was made. What was refused is forgotten, so that it can be tried again."""

    def __init__(self, *, remembered_max: int = 1_000) -> None:
        self._remembered_max = remembered_max
        self._made: dict[Hashable, asyncio.Task[str]] = {}  # the oldest first

    async def make_once(self, form: Hashable, make: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """What this form has made, or now makes."""
        making = self._made.get(form)
        if making is None:
            making = self._made[form] = asyncio.create_task(make())
            making.add_done_callback(lambda done: self._forget_if_refused(form, done))
            if len(self._made) > self._remembered_max:
                del self._made[next(iter(self._made))]
        # Shielded: the visitor who sent it first may be gone before it is made, and send it again.
        return await asyncio.shield(making)

    def _forget_if_refused(self, form: Hashable, done: asyncio.Task[str]) -> None:
        if (done.cancelled() or done.exception() is not None) and self._made.get(form) is done:
            del self._made[form]
