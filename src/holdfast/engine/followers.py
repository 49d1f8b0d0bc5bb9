"""Those who follow runs or documents: told when one may have changed, here or in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from holdfast.kernel.ids import joined


def document_place(namespace: str, kind: str, id: str) -> str:
    """What a document is called among what is followed. No run has such an id."""
    return joined(namespace, kind, id)


class Followers:
    """Who follows which run."""

    def __init__(self) -> None:
        self._following: dict[str, list[asyncio.Event]] = {}
        self._of_anything: list[asyncio.Event] = []

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

    @contextmanager
    def following_anything(self) -> Generator[asyncio.Event]:
        """An event that is set whenever anything may have changed."""
        changed = asyncio.Event()
        self._of_anything.append(changed)
        try:
            yield changed
        finally:
            self._of_anything.remove(changed)

    def changed(self, run_id: str) -> None:
        """A commit has changed the run."""
        for event in self._following.get(run_id, ()):
            event.set()
        self.anything_changed()

    def documents_changed(self, namespace: str, kind: str) -> None:
        """A commit of another process has changed documents of this kind."""
        prefix = document_place(namespace, kind, "")
        for place, events in self._following.items():
            if place.startswith(prefix):
                for event in events:
                    event.set()

    def anything_changed(self) -> None:
        """A commit has changed something."""
        for event in self._of_anything:
            event.set()

    def all_changed(self) -> None:
        """Another process has committed something, and nobody knows what."""
        for events in (*self._following.values(), self._of_anything):
            for event in events:
                event.set()
