"""Those who follow runs: told when a run may have changed, here or in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class Followers:
    """Who follows which run."""

    def __init__(self) -> None:
        self._following: dict[str, list[asyncio.Event]] = {}

    @contextmanager
    def following(self, run_id: str) -> Generator[asyncio.Event]:
        """An event that is set whenever the run may have changed."""
        changed = asyncio.Event()
        self._following.setdefault(run_id, []).append(changed)
        try:
            yield changed
        finally:
            self._following[run_id].remove(changed)
            if not self._following[run_id]:
                del self._following[run_id]

    def changed(self, run_id: str) -> None:
        """A commit of this process has changed the run."""
        for event in self._following.get(run_id, ()):
            event.set()

    def all_changed(self) -> None:
        """Another process has committed something."""
        for events in self._following.values():
            for event in events:
                event.set()
