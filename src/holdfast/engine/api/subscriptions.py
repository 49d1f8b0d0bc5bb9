"""Those who follow runs or documents: told when one may have changed, here or in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager

DocumentPlace = tuple[str, str, str]  # namespace, kind and id


class Subscriptions:
    """Who follows which run."""

    def __init__(self) -> None:
        self._following: dict[str | DocumentPlace, list[asyncio.Event]] = {}
        self._of_anything: list[asyncio.Event] = []

    @contextmanager
    def following(self, followed: str | DocumentPlace) -> Generator[asyncio.Event]:
        """An event that is set whenever the run of this id, or the document, may have changed."""
        changed = asyncio.Event()
        self._following.setdefault(followed, []).append(changed)
        try:
            yield changed
        finally:
            self._following[followed].remove(changed)
            if not self._following[followed]:
                del self._following[followed]

    @contextmanager
    def following_anything(self) -> Generator[asyncio.Event]:
        """An event that is set whenever anything may have changed."""
        changed = asyncio.Event()
        self._of_anything.append(changed)
        try:
            yield changed
        finally:
            self._of_anything.remove(changed)

    def changed(self, followed: str | DocumentPlace) -> None:
        """A commit has changed the run, or the document."""
        if self._following or self._of_anything:
            for event in (*self._following.get(followed, ()), *self._of_anything):
                event.set()

    def runs_changed(self, run_ids: Iterable[str]) -> None:
        """Commits have changed these runs."""
        if self._following or self._of_anything:
            for run_id in run_ids:
                self.changed(run_id)

    def documents_changed(self, namespace: str, kind: str) -> None:
        """A commit of another process has changed documents of this kind."""
        for followed, events in self._following.items():
            if isinstance(followed, tuple) and followed[:2] == (namespace, kind):
                for event in events:
                    event.set()

    def anything_changed(self) -> None:
        """A commit has changed something."""
        for event in self._of_anything:
            event.set()

    def all_changed(self) -> None:
        """Another process has committed something, and it is not known what."""
        for events in (*self._following.values(), self._of_anything):
            for event in events:
                event.set()
