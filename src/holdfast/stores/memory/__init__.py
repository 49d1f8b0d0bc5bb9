"""The memory store: for tests, and to read the contract in its plainest form."""

from holdfast.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
