"""How many replicas have a write before it is confirmed.

A failover loses what the new primary has not got. So when a batch of writes has been executed, replicas confirm it, and
a batch that too few of them confirm is reported as unknown: it is there now, and may be gone tomorrow.

    wait=N       N replicas, always
    wait=auto    one, as long as the primary has one. Whether it has is asked once a second, while it is written to

Where a replica may be promoted, wait=1 is the default: a primary that takes writes which its replica lacks would lose
them in the next failover, although they were confirmed. A server that is never replaced keeps what it has: auto.

Confirming takes rounds. A round is a tiny write of ours, the mark, and a WAIT behind it: replicas that have the mark
have all that was executed before. WAIT blocks its connection, so rounds have one of their own, one round at a time;
all batches that were executed before a round begins share it.

Two traps
- WAIT covers what its connection has written last, and not what others have. Without the mark, a call that finds its
  work done, by a caller that got no confirmation, would be confirmed by replicas that lack it.
- A primary that is being replaced, or was while it stood still, finds its replica gone and learns why a moment later.
  What it takes in that moment is lost. So a primary that has just lost its last replica is mistrusted for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.ports.clock import Clock
from holdfast.stores.redis.net.connections import REPLICATION, Node, packed
from holdfast.stores.redis.net.errors import LostConnection, NotSent, ServerError, Unconfirmed, Unwelcome
from holdfast.stores.redis.net.topologies import RedisTopology
from holdfast.stores.redis.net.urls import RedisUrl
from holdfast.stores.redis.pace import RedisPace

MARKS_MAX = 10_000  # names of marks that are tried for a node; one of three in charge has every third


def replicas_needed(url: RedisUrl, topology: RedisTopology) -> int | None:
    """How many replicas must confirm a write; None: one, while the primary has one."""
    if url.wait is None:
        return 1 if topology.promotes else None
    return None if url.wait == "auto" else url.wait


class Confirmations:
    """The rounds of all nodes."""

    def __init__(self, url: RedisUrl, clock: Clock, pace: RedisPace) -> None:
        self._url = url
        self._clock = clock
        self._pace = pace
        # Rounds that have not begun, which may still be joined.
        self._next: dict[Node, asyncio.Task[Unconfirmed | None]] = {}
        self._under_way: dict[Node, asyncio.Lock] = {}
        self._marks: dict[Node, int] = {}  # the number in the name of the mark

    async def confirm(self, nodes: Sequence[Node], topology: RedisTopology) -> None:
        """Returns when replicas have all that these nodes have executed so far. Raises `StoreUnavailable`."""
        needed = replicas_needed(self._url, topology)
        rounds = [self._join(node, needed, topology) for node in nodes if self._wants_something(node, needed)]
        if rounds:
            # Shielded: a round belongs to all who have joined it, and one of them may be cancelled.
            for unconfirmed in await asyncio.shield(asyncio.gather(*rounds)):
                if unconfirmed is not None:
                    raise unconfirmed.error()

    def _wants_something(self, node: Node, needed: int | None) -> bool:
        return self._replicas_wanted(node, needed) > 0 or self._wants_a_look(node, needed)

    def _wants_a_look(self, node: Node, needed: int | None) -> bool:
        return needed is None and asyncio.get_running_loop().time() - node.looked_at > self._pace.count_seconds

    def _replicas_wanted(self, node: Node, needed: int | None) -> int:
        if needed is not None:
            return needed
        alone_seconds = asyncio.get_running_loop().time() - node.left_alone_at
        return 1 if node.replicas or alone_seconds < self._pace.alone_seconds else 0

    def _join(self, node: Node, needed: int | None, topology: RedisTopology) -> asyncio.Task[Unconfirmed | None]:
        if node not in self._next:
            self._next[node] = asyncio.create_task(self._round(node, needed, topology))
        return self._next[node]

    async def _round(self, node: Node, needed: int | None, topology: RedisTopology) -> Unconfirmed | None:
        """None if replicas have what was executed before this began."""
        async with self._under_way.setdefault(node, asyncio.Lock()):
            del self._next[node]  # who comes now comes too late for this one
            try:
                if self._wants_a_look(node, needed):
                    node.followed_by(await node.ask(*REPLICATION))
                wanted = self._replicas_wanted(node, needed)
                confirmed = await self._confirm_at(node, wanted, topology) if wanted else 0
                if confirmed >= wanted or (needed is None and await self._is_left_alone(node, topology)):
                    return None
            except (NotSent, Unwelcome) as error:
                return Unconfirmed(node.address, f"no replica could be asked whether it has the write ({error})")
            within = f"within {self._pace.confirm_ms} ms"
            return Unconfirmed(node.address, f"{confirmed} of {wanted} replicas confirmed the write {within}")

    async def _confirm_at(self, node: Node, wanted: int, topology: RedisTopology) -> int:
        """How many replicas have what was executed before."""
        connection = node.connection("waits") or await node.connect("waits")
        confirm_ms = self._pace.confirm_ms
        # The mark first: WAIT covers the last write of its own connection, and the calls went over another one.
        commands = packed(b"SET", self._mark(node, topology), b"") + packed(b"WAIT", wanted, confirm_ms)
        replies = await connection.request(commands, 2, (confirm_ms + self._url.timeout_ms) / 1000)
        if isinstance(replies, LostConnection):
            raise NotSent(replies.why)  # only the round was lost; the calls before it were executed
        marked, confirmed = replies
        if isinstance(marked, ServerError):
            self._marks[node] += 1  # its slot is being moved: another one the next time
            return 0
        return confirmed if isinstance(confirmed, int) else 0

    def _mark(self, node: Node, topology: RedisTopology) -> bytes:
        """The name of a key that this node is in charge of."""
        first = self._marks.setdefault(node, 0)
        for number in range(first, first + MARKS_MAX):
            key = b"{hf:%b:mark-%d}" % (self._url.name.encode(), number)
            try:
                if topology.node(key) is node:
                    self._marks[node] = number
                    return key
            except NotSent:
                continue  # no node is in charge of its slot now
        raise NotSent(f"{node.address} is in charge of nothing")

    async def _is_left_alone(self, node: Node, topology: RedisTopology) -> bool:
        """Whether this is a primary that has no replica any more, and still is one after some time."""
        node.followed_by(await node.ask(*REPLICATION))
        if node.replicas:
            return False
        # In a failover a primary loses its replica before it learns that it is none any more. What it confirmed in
        # between would be lost, so it is asked again after a while, and the others are asked who is the primary.
        mistrusted = node.left_alone_at + self._pace.alone_seconds - asyncio.get_running_loop().time()
        await self._clock.pause(max(0.0, mistrusted))
        await topology.look_again()
        node.followed_by(await node.ask(*REPLICATION))
        return any(node is primary for primary in topology.primaries()) and node.is_primary and not node.replicas
