"""The default store: one SQLite file, any number of processes on one machine."""

from holdfast.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
