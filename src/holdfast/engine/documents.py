"""The documents of one namespace: read, written by compare-and-set, and followed."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

from holdfast.engine.access import Access
from holdfast.engine.events import Emit
from holdfast.engine.followers import DocumentPlace, Followers
from holdfast.kernel.documents import Document, Writing
from holdfast.ports.ids import Ids

COMMON = ""  # the namespace of what belongs to no tenant: no run can live there


class Documents:
    """Small records beside the runs, for parts of Holdfast that keep some."""

    def __init__(self, access: Access, followers: Followers) -> None:
        self._access = access
        self._followers = followers
        self.namespace: str = access.namespace
        self.ids: Ids = access.ids
        self.emit: Emit = access.emit

    def now_ms(self) -> int:
        return self._access.store.now_ms()

    async def read(self, kind: str, id: str) -> Document | None:
        self._access.require_open()
        return await self._access.store.document(self.namespace, kind, id)

    async def listed(self, kind: str, *, after: str = "", limit: int = 100) -> list[Document]:
        """Those of a kind whose id comes behind `after`, by id."""
        self._access.require_open()
        return await self._access.store.documents(self.namespace, kind, after=after, limit=limit)

    async def write(self, writing: Writing) -> bool:
        """Whether it is stored; then whoever follows the document is told."""
        self._access.require_open()
        [stored] = await self._access.store.write([writing])
        if stored:
            self._followers.changed(self._place(writing.document.kind, writing.document.id))
        return stored

    def following(self, kind: str, id: str) -> AbstractContextManager[asyncio.Event]:
        """An event that is set whenever the document may have changed, here or in another process."""
        return self._followers.following(self._place(kind, id))

    def _place(self, kind: str, id: str) -> DocumentPlace:
        return self.namespace, kind, id
