"""A process of the version before notices were told through sockets."""

from __future__ import annotations

from holdfast.stores.sqlite import SqliteStore


class EarlierStore(SqliteStore):
    """Tells no other process what it commits, and hears nothing: it looks at the file every 10 ms."""

    async def open(self) -> None:
        self._notifier.open = lambda: None  # type: ignore[method-assign]
        await super().open()
