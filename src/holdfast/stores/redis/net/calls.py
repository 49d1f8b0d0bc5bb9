"""Calls of scripts, and a batch of them on its way."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from holdfast.errors import StoreUnavailable
from holdfast.stores.redis.net.connections import RedisConnection, Reply, Word, pack, packed
from holdfast.stores.redis.net.urls import ServerAddress

_ASKING = packed(b"ASKING")


class LuaSource:
    """A Lua script. Its source is sent once per connection, then only its digest."""

    def __init__(self, source: str) -> None:
        self.source = source.encode()
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()


class ScriptCall(NamedTuple):
    """One run of a script. All keys lie in one slot; the first of them says where to send it."""

    script: LuaSource
    keys: tuple[bytes, ...]
    args: tuple[Word, ...]


class ScriptFailed(Struct, frozen=True):
    """The script itself raised an error. What it had written before stays written."""

    message: str


class CallBatch:
    """Calls, the replies that have come, and what stands in the way of the others.

    One that does not write is sent as one that cannot: what it asks may be asked again without a thought.
    """

    def __init__(self, calls: Sequence[ScriptCall], *, writes: bool) -> None:
        self.calls = calls
        self.writes = writes
        self._eval, self._evalsha = (b"EVAL", b"EVALSHA") if writes else (b"EVAL_RO", b"EVALSHA_RO")
        self.answers: list[Reply | ScriptFailed] = [None] * len(calls)
        self.left: Sequence[int] = range(len(calls))  # which calls have no answer yet
        self.asked: dict[int, ServerAddress] = {}  # where the next try goes, if not to the node in charge
        self.obstacle: StoreUnavailable | None = None  # None: what is left may be sent again at once
        self._put_off: list[int] = []

    def begin_round(self) -> None:
        self._put_off = []
        self.obstacle = None

    def end_round(self) -> None:
        self.left = self._put_off

    def again(self, indexes: Sequence[int], obstacle: StoreUnavailable | None = None) -> None:
        """These were not executed, or do not write; they are tried again, when the obstacle may have gone."""
        self._put_off.extend(indexes)
        self.obstacle = obstacle or self.obstacle

    def packed(self, indexes: Sequence[int], connection: RedisConnection, *, asking: bool) -> list[bytes]:
        """These calls, as they go over this connection; with ASKING before each, if another node has sent us."""
        parts: list[bytes] = []
        known = connection.scripts
        for index in indexes:
            script, keys, args = self.calls[index]
            if asking:
                parts.append(_ASKING)
            if script.sha in known:
                parts.append(pack((self._evalsha, script.sha, len(keys), *keys, *args)))
            else:
                known.add(script.sha)
                parts.append(pack((self._eval, script.source, len(keys), *keys, *args)))
        return parts
