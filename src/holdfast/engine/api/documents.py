"""The documents of one namespace: read, written by compare-and-set, and followed."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

from holdfast.engine.api.scope import Scope
from holdfast.engine.api.subscriptions import DocumentPlace, Subscriptions
from holdfast.events import Emit
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.times import Instant
from holdfast.ports.ids import Ids

COMMON = ""  # the namespace of what belongs to no tenant: no run can live there


class Documents:
    """Small records beside the runs, for parts of Holdfast that keep some."""

    def __init__(self, scope: Scope, subscriptions: Subscriptions) -> None:
        self._scope = scope
        self._subscriptions = subscriptions
        self.namespace: str = scope.namespace
        self.ids: Ids = scope.ids
        self.emit: Emit = scope.emit

    def now_ms(self) -> Instant:
        return self._scope.store.now_ms()

    async def read(self, kind: str, id: str) -> Document | None:
        self._scope.require_open()
        return await self._scope.store.document(self.namespace, kind, id)

    async def listed(self, kind: str, *, after: str = "", limit: int = 100) -> list[Document]:
        """Those of a kind whose id comes behind `after`, by id."""
        self._scope.require_open()
        return await self._scope.store.documents(self.namespace, kind, after=after, limit=limit)

    async def write(self, writing: Writing) -> bool:
        """Whether it is stored; then those who follow the document are told."""
        self._scope.require_open()
        [stored] = await self._scope.store.write([writing])
        if stored:
            self._subscriptions.changed(self._place(writing.document.kind, writing.document.id))
        return stored

    def following(self, kind: str, id: str) -> AbstractContextManager[asyncio.Event]:
        """An event that is set whenever the document may have changed, here or in another process."""
        return self._subscriptions.following(self._place(kind, id))

    def _place(self, kind: str, id: str) -> DocumentPlace:
        return self.namespace, kind, id
