"""Tells of each round trip that writes to Redis: so between the scripts of a verb, where no wrapper of the port looks.

A verb whose change crosses shards takes several: the script, the delivery of what it left in the outbox, and so on.
Those about leases are left out: they come and go with the time, and cross nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

from holdfast.ports.store import Store
from holdfast.stores.redis import RedisStore, scripts
from holdfast.stores.redis.net.client import Reply, ScriptCall, ScriptFailed
from tests.faults.ledger import Ledger

_OF_LEASES = {scripts.SHARDS, scripts.JOIN, scripts.RENEW, scripts.END_LEASES, scripts.WRITE_DOCUMENT}
_count = 0


def watch(store: Store, about_to: Callable[[int], None]) -> None:
    """Call `about_to` with the number of each writing round trip, just before it is made."""
    assert isinstance(store, RedisStore)
    client, made = store._client, store._client.run
    number = 0

    async def run(calls: Sequence[ScriptCall], *, writes: bool) -> list[Reply | ScriptFailed]:
        nonlocal number
        if writes and any(call.script not in _OF_LEASES for call in calls):
            number += 1
            about_to(number)
        return await made(calls, writes=writes)

    client.run = run


def die_before(store: Store, n: int, book: Ledger) -> None:
    """Kill this process when the n-th writing round trip is about to be made. With 0 it only counts."""

    def about_to(number: int) -> None:
        global _count  # noqa: PLW0603 - one process, one count
        _count = number
        if number == n:
            book.write(reached=f"before round trip #{n}")
            os.kill(os.getpid(), signal.SIGKILL)

    watch(store, about_to)


def count() -> int:
    """How many round trips have been counted."""
    return _count
