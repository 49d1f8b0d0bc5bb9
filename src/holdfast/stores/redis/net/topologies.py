"""Which server is in charge of a key: one server, a cluster, or whomever the sentinels name.

A topology knows the nodes, and looks again when a call was sent to the wrong one. It never sends a request of ours.

- Single: one address, forever.
- Cluster: a table of slots, from any node that replies. `MOVED` corrects one line of it at once and the rest soon.
- Sentinels: all of them are asked, most votes win. They are asked every second: a primary that was cut off does not
  know that it is none any more, and goes on taking writes that will not be kept.
"""

from __future__ import annotations

import asyncio
from binascii import crc_hqx
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from holdfast.errors import InvalidConfig
from holdfast.ports.clock import Clock
from holdfast.stores.redis.net.connections import Answer, Backoff, Node
from holdfast.stores.redis.net.errors import NotSent, ServerError, Unwelcome
from holdfast.stores.redis.net.urls import RedisUrl, ServerAddress

SLOTS = 16_384
ASK_SECONDS = 1.0  # a node that takes longer is passed over, and the next one asked
SENTINELS_SECONDS = 1.0


class RedisTopology(Protocol):
    """Where to send a request."""

    @property
    def promotes(self) -> bool:
        """Whether a replica may take the place of its primary, and with it what it has not received be lost."""
        ...

    def node(self, key: bytes, /) -> Node:
        """The node in charge of this key, as far as is known. Raises `NotSent` if none is known."""
        ...

    def node_at(self, address: ServerAddress, /) -> Node:
        """The node at this address, to which another one has pointed."""
        ...

    def note_move(self, slot: int, address: ServerAddress, /) -> None:
        """A node has said that this slot is in the charge of another one."""
        ...

    def doubt(self) -> None:
        """A node did not reply: look again soon, while no caller waits."""
        ...

    async def look_again(self) -> None:
        """Find the nodes again. Raises `NotSent` if none can be asked; what was known stays."""
        ...

    def primaries(self) -> list[Node]: ...

    async def has_replicas(self) -> bool:
        """Whether any primary has a replica, also one that is down; True if that cannot be found out."""
        ...

    async def close(self) -> None: ...


async def find(url: RedisUrl, clock: Clock) -> RedisTopology:
    """The topology behind a URL. Raises `NotSent`, `Unwelcome`, `InvalidConfig`."""
    match url.kind:
        case "cluster":
            return await _open(Cluster(url, clock))
        case "sentinel":
            return await _open(Sentinels(url, clock))
        case "single":
            single = await _open(Single(url, clock))
            mode = single.mode
            if mode == "standalone":
                return single
            await single.close()
            if mode == "cluster":
                return await _open(Cluster(url, clock))
            raise InvalidConfig(
                f"{url.addresses[0]} is a sentinel", hint=f"Write redis+sentinel://{url.addresses[0]}/<master>."
            )


class _Opens(RedisTopology, Protocol):
    async def open(self) -> None: ...


T = TypeVar("T", bound=_Opens)


async def _open(topology: T) -> T:
    try:
        await topology.open()
    except BaseException:
        await topology.close()
        raise
    return topology


def slot_of(key: bytes) -> int:
    """The slot of a key: of what is between its first braces, if there is something."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


class Lookout:
    """Looks for the nodes: on request, in the background when in doubt, and every `seconds` if that is wanted.

    Many may ask at once; one look serves them all.
    """

    def __init__(self, look: Callable[[], Awaitable[None]], clock: Clock, *, seconds: float | None = None) -> None:
        self._look = look
        self._clock = clock
        self._seconds = seconds
        self._looks = 0
        self._looking = asyncio.Lock()
        self._doubt = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def doubt(self) -> None:
        self._doubt.set()

    async def look(self) -> None:
        before = self._looks
        async with self._looking:
            if self._looks == before:
                self._doubt.clear()
                await self._look()
                self._looks += 1

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        backoff = Backoff(self._clock)
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._doubt.wait()
            except TimeoutError:
                pass
            try:
                await self.look()
            except (NotSent, Unwelcome, InvalidConfig):
                self._doubt.set()
                await self._clock.pause(backoff.next())
            else:
                backoff = Backoff(self._clock)


class Single:
    """One server, forever."""

    promotes = False

    def __init__(self, url: RedisUrl, clock: Clock) -> None:
        self._node = Node(url.addresses[0], url, clock, writable=True)

    @property
    def mode(self) -> str:
        return self._node.server.mode if self._node.server else ""

    async def open(self) -> None:
        await self._node.connect("calls")

    def node(self, _key: bytes, /) -> Node:
        return self._node

    def node_at(self, _address: ServerAddress, /) -> Node:
        return self._node

    def note_move(self, _slot: int, _address: ServerAddress, /) -> None:
        return  # it is never said by a server outside a cluster

    def doubt(self) -> None:
        return

    async def look_again(self) -> None:
        return

    def primaries(self) -> list[Node]:
        return [self._node]

    async def has_replicas(self) -> bool:
        return self._node.replicas > 0

    async def close(self) -> None:
        self._node.close("the store was closed")


class Cluster:
    """A table of slots."""

    promotes = True

    def __init__(self, url: RedisUrl, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._nodes = {address: Node(address, url, clock) for address in url.addresses}
        self._slots: list[Node | None] = [None] * SLOTS
        self._turn = 0
        self._lookout = Lookout(self._look, clock)

    async def open(self) -> None:
        await self._lookout.look()
        self._lookout.start()

    def node(self, key: bytes, /) -> Node:
        slot = slot_of(key)
        found = self._slots[slot]
        if found is None:
            raise NotSent(f"no node of the cluster is in charge of slot {slot}")
        return found

    def node_at(self, address: ServerAddress, /) -> Node:
        if address not in self._nodes:
            self._nodes[address] = Node(address, self._url, self._clock)
        return self._nodes[address]

    def note_move(self, slot: int, address: ServerAddress, /) -> None:
        self._slots[slot] = self.node_at(address)
        self._lookout.doubt()

    def doubt(self) -> None:
        self._lookout.doubt()

    async def look_again(self) -> None:
        await self._lookout.look()

    def primaries(self) -> list[Node]:
        return list(dict.fromkeys(node for node in self._slots if node is not None))

    async def has_replicas(self) -> bool:
        if any(node.replicas for node in self.primaries()):
            return True
        for node in self.primaries():
            try:
                told = await node.ask(b"CLUSTER", b"NODES")
            except (NotSent, Unwelcome):
                continue
            if isinstance(told, bytes):
                flags = (line.split()[2].split(b",") for line in told.splitlines())
                return any(b"slave" in each or b"replica" in each for each in flags)
        return True

    async def close(self) -> None:
        await self._lookout.stop()
        for node in self._nodes.values():
            node.close("the store was closed")

    async def _look(self) -> None:
        """Take the table of the first node that replies; with another one first each time, since any may be wrong."""
        self._turn += 1
        candidates = list(self._nodes.values())
        turn = self._turn % len(candidates)
        failures: list[str] = []
        refusal: Unwelcome | None = None
        for node in candidates[turn:] + candidates[:turn]:
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    table = await node.ask(b"CLUSTER", b"SLOTS")
            except TimeoutError:
                failures.append(f"{node.address} does not answer within {ASK_SECONDS:g} s")
            except NotSent as error:
                failures.append(str(error))
            except Unwelcome as error:  # one that gets a new password, perhaps: the others may know us
                refusal = error
                failures.append(error.later().message)
            else:
                if isinstance(table, ServerError):
                    failures.append(f"{node.address} refuses: {table.text}")
                elif not table:
                    failures.append(f"{node.address} knows of no slots")
                else:
                    self._take(_rows(table, node.address))
                    return
        if not self.primaries() and "cluster support disabled" in failures[0]:
            raise InvalidConfig(f"{failures[0]}, so it is no node of a cluster", hint="Write redis:// for one server.")
        if not self.primaries() and refusal is not None:
            raise refusal
        raise NotSent("; ".join(failures))

    def _take(self, rows: Iterable[tuple[int, int, Sequence[ServerAddress]]]) -> None:
        slots: list[Node | None] = [None] * SLOTS
        known = set(self._url.addresses)
        for first, last, addresses in rows:
            known.update(addresses)
            slots[first : last + 1] = [self.node_at(addresses[0])] * (last + 1 - first)
        self._slots = slots
        for address in self._nodes.keys() - known:
            self._nodes.pop(address).close("it has left the cluster")


def _rows(table: Answer, asked: ServerAddress) -> Iterable[tuple[int, int, list[ServerAddress]]]:
    """First slot, last slot, primary and replicas. A node that knows no name for itself is where we have asked."""
    assert isinstance(table, list)
    for row in table:
        match row:
            case [int(first), int(last), *nodes]:
                yield first, last, [_address(node, asked) for node in nodes]
            case _:
                raise NotSent(f"{asked} replies to CLUSTER SLOTS with {row}")


def _address(node: Answer, asked: ServerAddress) -> ServerAddress:
    match node:
        case [bytes(host), int(port), *_] if host:
            return ServerAddress(host.decode(), port)
        case [_, int(port), *_]:
            return ServerAddress(asked.host, port)
        case _:
            raise NotSent(f"{asked} names a node {node}")


class Sentinels:
    """One primary, which others watch and replace."""

    promotes = True

    def __init__(self, url: RedisUrl, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._sentinels = [_sentinel(address, url, clock) for address in url.addresses]
        self._primary: Node | None = None
        self._lookout = Lookout(self._look, clock, seconds=SENTINELS_SECONDS)

    async def open(self) -> None:
        await self._lookout.look()
        assert self._primary is not None
        await self._primary.connect("calls")
        self._lookout.start()

    def node(self, _key: bytes, /) -> Node:
        assert self._primary is not None, "opened"
        return self._primary

    def node_at(self, _address: ServerAddress, /) -> Node:
        return self.node(b"")

    def note_move(self, _slot: int, _address: ServerAddress, /) -> None:
        return  # it is never said by a server outside a cluster

    def doubt(self) -> None:
        self._lookout.doubt()

    async def look_again(self) -> None:
        await self._lookout.look()

    def primaries(self) -> list[Node]:
        return [self.node(b"")]

    async def has_replicas(self) -> bool:
        if any(node.replicas for node in self.primaries()):
            return True
        for node in self._sentinels:
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    known = await node.ask(b"SENTINEL", b"REPLICAS", self._url.master.encode())
            except (TimeoutError, NotSent, Unwelcome):
                continue
            if isinstance(known, list):
                return bool(known)
        return True

    async def close(self) -> None:
        await self._lookout.stop()
        for node in [*self._sentinels, *([self._primary] if self._primary else [])]:
            node.close("the store was closed")

    async def _look(self) -> None:
        votes = await asyncio.gather(*(self._vote(number) for number in range(len(self._sentinels))))
        named = Counter(vote for vote in votes if isinstance(vote, ServerAddress))
        if not named:
            if self._primary is None and any(vote is None for vote in votes):
                raise InvalidConfig(
                    f"the sentinels know no primary {self._url.master!r}",
                    hint="`redis-cli -p 26379 sentinel masters` lists those that they watch.",
                )
            raise NotSent("; ".join(str(vote or "a sentinel does not know the name any more") for vote in votes))
        [(address, _)] = named.most_common(1)
        if self._primary is None or self._primary.address != address:
            if self._primary is not None:
                self._primary.close(f"the sentinels name {address} as the primary now")
            self._primary = Node(address, self._url, self._clock, writable=True)

    async def _vote(self, number: int) -> ServerAddress | str | None:
        """Whom this sentinel names; None if it does not know the name; why it does not answer."""
        node = self._sentinels[number]
        try:
            async with asyncio.timeout(ASK_SECONDS):
                named = await node.ask(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self._url.master.encode())
        except TimeoutError:
            return f"{node.address} does not answer within {ASK_SECONDS:g} s"
        except NotSent as error:
            return str(error)
        except Unwelcome as error:
            # Sentinels often have no password where the servers have one. Where they want one, it is the same.
            self._sentinels[number] = _sentinel(node.address, self._url, self._clock, login=True)
            return str(error.later())
        match named:
            case [bytes(host), bytes(port)]:
                return ServerAddress(host.decode(), int(port))
            case None:
                return None
            case _:
                return f"{node.address} replies {named}"


def _sentinel(address: ServerAddress, url: RedisUrl, clock: Clock, *, login: bool = False) -> Node:
    return Node(address, url if login else replace(url, user=None, password=None), clock)
