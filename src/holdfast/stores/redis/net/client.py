"""Runs scripts on Redis: many in one round trip, each at the node that has its keys.

A call ends in one of three ways: it was executed and here is its reply; it was not executed (then it is tried again,
for the `patience_seconds` of the pace); it is not known which (then `StoreUnavailable` says so, and nothing is
repeated, but for reads: they change nothing, and are tried again, too).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import InvalidConfig, StoreUnavailable
from holdfast.ports.clock import Clock
from holdfast.stores.redis import inspections
from holdfast.stores.redis.net import topologies
from holdfast.stores.redis.net.calls import CallBatch, LuaSource, ScriptCall, ScriptFailed
from holdfast.stores.redis.net.clocks import Look
from holdfast.stores.redis.net.confirmations import Confirmations, replicas_needed
from holdfast.stores.redis.net.connections import (
    REPLICATION,
    Answer,
    Backoff,
    Node,
    RedisConnection,
    Reply,
    Word,
    fields,
    replicas_in,
    settings,
)
from holdfast.stores.redis.net.errors import LostConnection, NotSent, ServerError, Unwelcome, Verdict, trouble, verdict
from holdfast.stores.redis.net.topologies import RedisTopology
from holdfast.stores.redis.net.urls import RedisUrl, ServerAddress
from holdfast.stores.redis.pace import PACE, RedisPace

__all__ = ["LuaSource", "RedisClient", "Reply", "ScriptCall", "ScriptFailed", "Word"]

HURRIES_MAX = 3  # how often a call is sent on without a pause


class _Route(NamedTuple):
    """Where calls go; `asking` if the node has to be told that another one has sent us."""

    node: Node
    asking: bool


class _Sent(NamedTuple):
    """Calls that are on their way to one node."""

    route: _Route
    indexes: list[int]
    connection: RedisConnection
    replies: asyncio.Future[list[Answer] | LostConnection]


class _Patience:
    """How long a caller waits for what was not executed, or only read, and how long between two tries."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._backoff = Backoff(clock)
        self._until = asyncio.get_running_loop().time() + seconds

    async def wait(self, obstacle: StoreUnavailable) -> None:
        """Pause; raises the obstacle when it has been there for too long."""
        if asyncio.get_running_loop().time() > self._until:
            raise obstacle
        await self._clock.pause(self._backoff.next())


class RedisClient:
    """The way to a Redis, whatever it consists of."""

    def __init__(self, url: RedisUrl, *, clock: Clock, pace: RedisPace = PACE) -> None:
        self.url = url
        self._clock = clock
        self._patience_seconds = pace.patience_seconds
        self._seconds = url.timeout_ms / 1000
        self._confirmations = Confirmations(url, clock, pace)
        self._found: RedisTopology | None = None

    async def open(self) -> None:
        """Find the servers. Raises `InvalidConfig` on what can never work, `StoreUnavailable` if none replies."""
        patience = self._patience()
        while True:
            try:
                topology = await topologies.find(self.url, self._clock)
                try:
                    await _check(topology.primaries())
                    await self._check_replicas(topology)
                except BaseException:
                    await topology.close()
                    raise
            except NotSent as error:
                await patience.wait(_unreachable(error))
            except Unwelcome as error:
                raise error.at_first() from None
            else:
                self._found = topology
                return

    async def close(self) -> None:
        """What is under way is lost, as if the connection had broken."""
        if self._found is not None:
            topology, self._found = self._found, None
            await topology.close()

    def _patience(self) -> _Patience:
        return _Patience(self._clock, self._patience_seconds)

    @property
    def replicas_needed(self) -> int | None:
        """How many replicas must confirm a write; None: one, while the primary has one."""
        return replicas_needed(self.url, self._topology)

    @property
    def caution(self) -> str:
        """What may be lost of what was confirmed, by the choice of `wait`; nothing if nothing."""
        return inspections.caution(self.replicas_needed) if self._topology.promotes else ""

    async def _check_replicas(self, topology: RedisTopology) -> None:
        """Refuse to begin where no write could ever be confirmed. A replica that is down may come back."""
        if topology.promotes and replicas_needed(self.url, topology) and not await topology.has_replicas():
            raise InvalidConfig(
                f"{self.url} has no replica that could confirm a write",
                hint="Give each primary a replica. Or write ?wait=auto in the URL, to wait for replicas as soon as"
                " there are some, or ?wait=0: then what was confirmed is lost with the one node that has it.",
            )

    @property
    def _topology(self) -> RedisTopology:
        if self._found is None:
            raise StoreUnavailable(f"{self.url} is not open", hint="Use it inside `async with Holdfast(...)`.")
        return self._found

    async def run(
        self, calls: Sequence[ScriptCall], *, writes: bool, confirmed: bool = True
    ) -> list[Reply | ScriptFailed]:
        """The replies, in order. `writes`: replicas confirm them first, as far as the URL and `confirmed` want it.

        Without `writes`, a script that wants to write fails, and what was asked is asked again when the reply is lost.
        The calls are independent: one that has to be tried again may be executed after those behind it.
        Raises `StoreUnavailable`; then each of them may or may not have been executed.
        """
        batch = CallBatch(calls, writes=writes)
        patience: _Patience | None = None
        hurries = 0
        while batch.left:
            batch.begin_round()
            executed = await self._round(batch)
            if writes and confirmed:
                await self._confirmations.confirm(executed, self._topology)
            batch.end_round()
            if batch.left:
                patience = patience or self._patience()
                hurries += 1
                if batch.obstacle is not None or hurries > HURRIES_MAX:
                    await patience.wait(batch.obstacle or StoreUnavailable("the nodes send each other's keys round"))
                    await self._look_again()
        return batch.answers

    async def time(self, key: bytes) -> Look:
        """What time it is at the node in charge of `key`."""
        patience = self._patience()
        while True:
            try:
                return await self._time_at(self._topology.node(key))
            except NotSent as error:
                await patience.wait(_unreachable(error))
                await self._look_again()
            except Unwelcome as error:
                raise error.later() from None

    async def every_primary(self, *command: bytes) -> dict[str, Answer]:
        """What each primary replies to a command that changes nothing, by address; an error is a value."""
        return {str(node.address): await _told(node, command) for node in self._topology.primaries()}

    async def every_replica(self, *command: bytes) -> dict[str, Answer]:
        """The same of their replicas, as far as they can be reached; on connections of their own."""
        answers: dict[str, Answer] = {}
        for about in (await self.every_primary(*REPLICATION)).values():
            for replica in replicas_in(fields(about)):
                node = Node(ServerAddress(replica["ip"], int(replica["port"])), self.url, self._clock)
                try:
                    answers[str(node.address)] = await _told(node, command)
                except StoreUnavailable:
                    continue
                finally:
                    node.close("it is not needed any more")
        return answers

    async def clocks_ms(self) -> dict[str, float]:
        """By how much the clock of each primary is ahead of ours."""
        ahead_ms: dict[str, float] = {}
        for node in self._topology.primaries():
            try:
                look = await self._time_at(node)
            except NotSent as error:
                raise _unreachable(error) from None
            except Unwelcome as error:
                raise error.later() from None
            ago_ms = self._clock.steady_ms() - look.middle_steady_ms
            ahead_ms[str(node.address)] = look.there_ms + ago_ms - self._clock.wall_ms()
        return ahead_ms

    async def _time_at(self, node: Node) -> Look:
        _ = node.connection("calls") or await node.connect("calls")  # making one must not count as the way there
        asked_steady_ms = self._clock.steady_ms()
        reply = await node.ask(b"TIME")
        match reply:
            case [bytes(seconds), bytes(micros)]:
                return Look(int(seconds) * 1000 + int(micros) / 1000, asked_steady_ms, self._clock.steady_ms())
            case _:
                raise StoreUnavailable(f"{node.address} does not tell the time: {reply}")

    async def _look_again(self) -> None:
        try:
            await self._topology.look_again()
        except NotSent:
            return  # what was known stays; the next try shows whether it holds
        except Unwelcome as error:
            raise error.later() from None

    async def _round(self, batch: CallBatch) -> list[Node]:
        """Send what is left, to all nodes at once, and sort the replies. The nodes that have executed something."""
        ready = [
            (route, indexes, connection)
            for route, indexes in self._routes(batch).items()
            if (connection := await self._connection(batch, route, indexes)) is not None
        ]
        # From here to the last write nothing waits: no node gets its share later than the others.
        sent: list[_Sent] = []
        for route, indexes, connection in ready:
            commands = batch.packed(indexes, connection, asking=route.asking)
            try:
                replies = connection.request(b"".join(commands), len(commands), self._seconds)
            except NotSent as error:
                batch.again(indexes, _unreachable(error))
            else:
                sent.append(_Sent(route, indexes, connection, replies))
        if len(sent) > 1:
            await asyncio.wait([one.replies for one in sent])
        answered = [(one, await one.replies) for one in sent]
        for one, replies in answered:
            if isinstance(replies, LostConnection):
                self._topology.doubt()
                if batch.writes:
                    raise replies.error()
                batch.again(one.indexes, _unanswered(replies))
        return [
            one.route.node
            for one, replies in answered
            if not isinstance(replies, LostConnection) and self._sort(batch, one, replies)
        ]

    def _routes(self, batch: CallBatch) -> dict[_Route, list[int]]:
        routes: dict[_Route, list[int]] = {}
        calls, asked, node_of = batch.calls, batch.asked, self._topology.node
        for index in batch.left:
            try:
                if asked and index in asked:
                    route = _Route(self._topology.node_at(asked.pop(index)), asking=True)
                else:
                    route = _Route(node_of(calls[index].keys[0]), asking=False)
            except NotSent as error:
                batch.again([index], _unreachable(error))
                continue
            routes.setdefault(route, []).append(index)
        return routes

    async def _connection(self, batch: CallBatch, route: _Route, indexes: list[int]) -> RedisConnection | None:
        try:
            return route.node.connection("calls") or await route.node.connect("calls")
        except NotSent as error:
            batch.again(indexes, _unreachable(error))
            return None
        except Unwelcome as error:
            raise error.later() from None

    def _sort(self, batch: CallBatch, sent: _Sent, replies: list[Answer]) -> bool:
        """Take the replies; put off what was not executed; raise what cannot be mended here.

        Returns whether any was executed.
        """
        if sent.route.asking:
            replies = replies[1::2]  # without the replies to ASKING
        answers = batch.answers
        executed = False
        for index, reply in zip(sent.indexes, replies, strict=True):
            if isinstance(reply, ServerError):
                executed |= self._refused(batch, sent, index, reply)
            else:
                answers[index] = reply
                executed = True
        return executed

    def _refused(self, batch: CallBatch, sent: _Sent, index: int, error: ServerError) -> bool:
        """Decide what becomes of a call whose reply is an error; whether it may have done something."""
        address = sent.route.node.address
        match verdict(error):
            case Verdict.MOVED:
                slot, new = _pointed(error, address)
                self._topology.note_move(slot, new)
                batch.again([index])
            case Verdict.ASK:
                batch.asked[index] = _pointed(error, address)[1]
                batch.again([index])
            case Verdict.UNKNOWN_SCRIPT:
                sent.connection.scripts.discard(batch.calls[index].script.sha)
                batch.again([index])
            case Verdict.AGAIN:
                batch.again([index], trouble(address, error))
            case Verdict.TROUBLE:
                raise trouble(address, error)
            case Verdict.FAILED:
                batch.answers[index] = ScriptFailed(error.text)
                return True
        return False


def _pointed(error: ServerError, here: ServerAddress) -> tuple[int, ServerAddress]:
    """The slot and the address in `MOVED 3999 host:port`. A node that knows no name for itself leaves out the host."""
    _, slot, place, *_ = error.text.split(" ")
    host, _, port = place.rpartition(":")
    return int(slot), ServerAddress(host or here.host, int(port))


def _unreachable(error: NotSent) -> StoreUnavailable:
    return StoreUnavailable(str(error), hint="Is it running, and is the address right? Nothing was sent to it.")


def _unanswered(lost: LostConnection) -> StoreUnavailable:
    return StoreUnavailable(f"{lost.address}: {lost.why}", hint="Is it running, and is the network well?")


async def _told(node: Node, command: tuple[bytes, ...]) -> Answer:
    try:
        return await node.ask(*command)
    except NotSent as error:
        raise _unreachable(error) from None
    except Unwelcome as error:
        raise error.later() from None


async def _check(primaries: Sequence[Node]) -> None:
    """Refuse servers that are too old, or free to forget what they were told. Raises `NotSent`, `Unwelcome`."""
    for node in primaries:
        about = inspections.version(fields(await node.ask(b"INFO", b"server")))
        kept = inspections.eviction(settings(await node.ask(b"CONFIG", b"GET", b"maxmemory-policy")))
        for finding in (about, kept):
            if finding.level == "error":
                raise InvalidConfig(f"{node.address}: {finding.detail}", hint=finding.hint)
