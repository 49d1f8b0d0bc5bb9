"""What crosses shards: messages that a script leaves in the outbox of its shard, and their way to the other one.

    tell     a run has ended: each watcher gets the outcome
    claim    a new run wants a token that may be free
    free     a token is no longer wanted
    signal   a payload for the run that held a token when it was sent
    forget   a run is gone: the ids of what it received by tokens count no longer
    enter    a run shall have a place in a lane, see `lanes`
    leave    it gives the place up
    go       it is the run's turn in its lane
    absent   a run is gone: that it has left its lane need not be known

Rules
- A message is left in the same script as what it follows from, and taken out when it has reached the other shard. Both
  may happen late, and twice: each delivery is harmless when repeated.
- The process that commits delivers at once, before `commit` returns. `relay` delivers what a dead process has left.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from holdfast.errors import EngineFault, TransientError
from holdfast.kernel.changes import Blob, HookOpen
from holdfast.kernel.messages import Watcher, blob_of, outcome
from holdfast.kernel.runs import Fenced, Run, Status
from holdfast.ports.clock import Clock
from holdfast.stores.redis import lane_words, rows, scripts
from holdfast.stores.redis.encode_change import (
    ChangeEncoder,
    LeftMessage,
    SentEnvelope,
    hook_field,
    left_in,
    text_of,
    token_name,
    wish,
)
from holdfast.stores.redis.lanes import MovedPlace, RedisLanes
from holdfast.stores.redis.net.client import Reply, ScriptCall
from holdfast.stores.redis.pace import RedisPace
from holdfast.stores.redis.script_calls import CALLS_MAX, Asks
from holdfast.stores.redis.shards import Shards

BLOBS_MS = 86_400_000  # how long large values of a watched run outlive it: a watcher may have to be told its outcome


class Delivered(Struct, frozen=True, gc=False):
    """What a message has done: the runs that it told, and what the wake-ups of those begin with that may be claimed.

    `received` if it is in the inbox, for the first time or not.
    """

    told: tuple[str, ...] = ()
    woken: tuple[str, ...] = ()
    received: bool = False


NOTHING = Delivered()


class Outbox:
    """Takes messages to other shards."""

    def __init__(
        self,
        asks: Asks,
        shards: Shards,
        writes: ChangeEncoder,
        lanes: RedisLanes,
        *,
        clock: Clock,
        instant: Callable[[], bytes],
        pace: RedisPace,
    ) -> None:
        self._asks = asks
        self._clock = clock
        self._shards = shards
        self._writes = writes
        self._lanes = lanes
        self._instant = instant
        self._pace = pace
        self._done: dict[int, list[bytes]] = {}  # delivered, and still in the outbox
        self._tidying: asyncio.Task[None] | None = None
        self._strange: set[tuple[int, bytes]] = (
            set()
        )  # messages, by shard and id, that this version does not understand

    def left_by(self, run_id: str, reply: Reply) -> list[LeftMessage]:
        """What a script has left in the shard of this run."""
        return left_in(self._shards.of_run(run_id), reply)

    # -- delivering

    async def deliver(self, left: Sequence[LeftMessage]) -> list[Delivered]:
        """Take each to its shard; the outcomes of runs, which are the most, in one round trip.

        One that cannot be delivered, perhaps since a newer version has left it, keeps none of the others: it stays, and
        the fault is raised when the others have arrived.
        """
        tells = [each for each in left if each.words[0] == "tell"]
        delivered: dict[LeftMessage, Delivered] = {}
        with contextlib.suppress(EngineFault):  # if one of them cannot be delivered, then each by itself
            delivered |= zip(tells, await self._tell(tells), strict=True)
        places = [each for each in left if each.words[0] in lane_words.KINDS]
        with contextlib.suppress(EngineFault):
            delivered |= zip(places, await self._move(places), strict=True)
        fault: EngineFault | None = None
        for each in left:
            if each in delivered:
                continue
            try:
                delivered[each] = await self._one(each)
            except EngineFault as error:
                self._strange.add((each.shard, each.id))
                fault = fault or error
        # Not taken out now: that would be one more round trip for each commit. Until then `relay` may deliver it again,
        # which is harmless.
        for each in delivered:
            self._done.setdefault(each.shard, []).append(each.id)
        if self._done and self._tidying is None:
            self._tidying = asyncio.create_task(self._tidy_up_later())
        if fault is not None:
            raise fault
        return [delivered[each] for each in left]

    async def relay(self, limit: int) -> list[Delivered]:
        """Deliver what has been left for a while. What this version does not understand stays, and is reported once."""
        await self.tidy_up()  # first: what we have delivered ourselves is no work that was left behind
        relayed: list[Delivered] = []
        fault: EngineFault | None = None
        for shard in await self._with_mail():
            after: bytes | None = b"-"
            while after is not None and len(relayed) < limit:
                found, after = await self._left_in(shard, after, limit - len(relayed))
                known = [each for each in found if (each.shard, each.id) not in self._strange]
                try:
                    relayed += await self.deliver(known)
                except EngineFault as error:
                    fault = error
        relayed += await self._put_right(limit)
        await self.tidy_up()
        if fault is not None:
            raise fault
        return relayed

    async def _put_right(self, limit: int) -> list[Delivered]:
        """Look after places in lanes whose runs have not come, or have ended unnoticed."""
        found = await self._lanes.put_right(limit)
        moved = [each for each in found if isinstance(each, MovedPlace)]
        entering = [each for each in found if isinstance(each, LeftMessage)]
        return [await self.follow(each) for each in [*moved, *await self._lanes.move(entering)]]

    async def _with_mail(self) -> list[int]:
        """The shards in whose outbox something has been waiting: most often none."""
        args: dict[str, Any] = {"now": self._instant(), "age_ms": self._pace.outbox_age_ms, "after": "-", "limit": "1"}
        replies = await self._asks.everywhere(scripts.LEFT, **args)
        return [shard for shard, reply in zip(self._shards.all, replies, strict=True) if reply]

    async def _left_in(self, shard: int, after: bytes, limit: int) -> tuple[list[LeftMessage], bytes | None]:
        """What waits in an outbox behind `after`, and where to go on; None if that is all."""
        keys = self._shards.of_shard(shard)
        call = scripts.LEFT.call(
            keys, now=self._instant(), age_ms=self._pace.outbox_age_ms, after=after, limit=str(limit)
        )
        # Confirmed like a write: what follows from a message must not outlive the message in a failover.
        [reply] = await self._asks.ask([call], writes=True)
        found: list[LeftMessage] = []
        last = b""
        for entry in rows.items(reply):
            last, fields = rows.items(entry)
            assert isinstance(last, bytes)
            try:
                words = tuple(rows.unpack(rows.table(fields)[b"m"]))
            except ValueError:  # msgspec's errors, and that of text which is no UTF-8
                words = ("?",)
            found.append(LeftMessage(shard, last, words))
        return found, b"(" + last if len(found) == limit else None

    async def close(self) -> None:
        """Tidy up, if that is soon done: otherwise `relay` will deliver a few things once more."""
        if self._tidying is not None:
            self._tidying.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.last_words_seconds):
                await self.tidy_up()

    async def _tidy_up_later(self) -> None:
        """The next commit takes it along, most often; if there is none, it is done before `relay` would see it."""
        await self._clock.pause(self._pace.tidy_seconds)
        self._tidying = None
        await self.tidy_up()

    async def tidy_up(self) -> None:
        """Take what was delivered out of the outboxes."""
        if calls := self.take_tidying_calls():
            try:
                await self._asks.ask(calls, writes=True)
            except TransientError:
                return  # delivered once more, then

    def take_tidying_calls(self) -> list[ScriptCall]:
        """The calls that do so, to travel along with others."""
        if not self._done:
            return []
        done, self._done = self._done, {}
        return [
            scripts.DELIVERED.call(self._shards.of_shard(shard), ids=ids[start : start + CALLS_MAX])
            for shard, ids in done.items()
            for start in range(0, len(ids), CALLS_MAX)
        ]

    # -- each kind

    async def _tell(self, tells: list[LeftMessage]) -> list[Delivered]:
        whom: list[str] = []
        calls: list[ScriptCall] = []
        for each in tells:
            try:
                _, run_id, epochs, status, output, error, watching = each.words
                epoch, _, life = epochs.partition(".")
                watcher = Watcher(*watching.split("\0", 1), epoch=int(life or 0))
                told = outcome(
                    run_id,
                    int(epoch),
                    Status(status),
                    output=output.encode() or None,
                    error=error.encode() or None,
                    watcher=watcher,
                )
                digest = blob_of(told)
            except (ValueError, TypeError) as error_:  # of another version
                raise EngineFault(f"the outbox holds an outcome that cannot be read: {error_}") from error_
            blobs = () if digest is None else (await self._blob(run_id, digest),)
            envelope = SentEnvelope(told.id, b"", b"", b"", rows.encode_message(told))
            calls.append(self._writes.send_call(watcher.run_id, [envelope], blobs=blobs))
            whom.append(watcher.run_id)
        return list(map(_sent, await self._asks.ask(calls, writes=True), whom))

    async def _move(self, messages: list[LeftMessage]) -> list[Delivered]:
        try:
            moved = await self._lanes.move(messages)
        except ValueError as error:  # of another version
            raise EngineFault(f"the outbox holds a message about a lane that cannot be read: {error}") from error
        return [await self.follow(each) for each in moved]

    async def follow(self, moved: MovedPlace) -> Delivered:
        """Deliver what follows: runs of other shards may go."""
        done = await self.deliver(moved.left) if moved.left else []
        told = (*moved.told, *(run_id for each in done for run_id in each.told))
        return Delivered(told, (*moved.woken, *(prefix for each in done for prefix in each.woken)))

    async def _blob(self, run_id: str, digest: str) -> Blob:
        call = scripts.FIELD.call({"hash": self._shards.part(b"blobs", run_id)}, field=digest)
        [data] = await self._asks.ask([call])
        if not isinstance(data, bytes):
            raise EngineFault(f"the outcome of run {run_id}, which is gone, is gone too")
        return Blob(digest, data)

    async def _one(self, each: LeftMessage) -> Delivered:
        match each.words:
            case ("tell", *_):
                [told] = await self._tell([each])
                return told
            case ("enter" | "leave" | "go", *_):
                [moved] = await self._move([each])
                return moved
            case ("absent", namespace, lane, run_id):
                await self._asks.ask([self._lanes.forgotten_call(namespace, lane, run_id)], writes=True)
            case ("claim", namespace, token, run_id, name, schema):
                await self._grant(run_id, namespace, HookOpen(name, token, schema.encode() or None))
            case ("free", token, run_id, opening):
                await self.free(token, run_id, opening)
            case ("signal", run_id, message_id, scope, body):
                return await self.signal(each, run_id, message_id, scope, body.encode())
            case ("forget", scope, run_id):
                keys = self._shards.of_shard(self._shard_of_scope(scope))
                call = scripts.FORGET_SCOPE.call(keys, scope=scope, id=run_id)
                await self._asks.ask([call], writes=True)
            case _:
                raise EngineFault(f"the outbox holds a message of an unknown kind: {each.words[0]!r}")
        return NOTHING

    async def _grant(self, run_id: str, namespace: str, hook: HookOpen) -> None:
        """Give a new run the token that it wished for, if that is free. A wish is granted or refused once."""
        assert hook.token is not None
        name = token_name(namespace, hook.token)
        wished = scripts.FIELD.call({"hash": self._shards.part(b"aux", run_id)}, field=wish(name))
        if await self._asks.ask([wished]) == [None]:
            return
        holder = await self.claim(namespace, hook, run_id, opening=run_id)
        granted = await self._end_wish(run_id, namespace, hook, granted=holder is None)
        if holder is None and not granted:  # another process has delivered it at the same time
            await self.free(name, run_id, run_id)

    async def _end_wish(self, run_id: str, namespace: str, hook: HookOpen, *, granted: bool) -> bool:
        assert hook.token is not None
        name = token_name(namespace, hook.token)
        opened = self._writes.opened(namespace, hook, run_id) if granted else b""
        call = scripts.END_WISH.call(self._shards.whole(run_id), wish=wish(name), hook=hook_field(hook), opened=opened)
        return await self._asks.ask([call], writes=True) == [1]

    async def claim(self, namespace: str, hook: HookOpen, run_id: str, *, opening: str) -> Run | None:
        """Give the token to a run; returns the live run that has it instead, or None."""
        assert hook.token is not None
        keys = self._shards.of_shard(self._shards.of_token(namespace, hook.token))
        token = token_name(namespace, hook.token)
        held = rows.pack((run_id, hook.name, text_of(hook.schema), opening))
        taken_from = ""
        while True:
            call = scripts.CLAIM_TOKEN.call(keys, token=token, id=run_id, taken_from=taken_from, held=held)
            [reply] = await self._asks.ask([call], writes=True)
            taken_from = rows.text(reply)
            if not taken_from:
                return None
            holder = await self._asks.row(taken_from)
            if holder is not None and holder.finished_at_ms is None:
                return holder  # a token whose owner has ended, or is gone, is free: then once more

    async def open_hook(self, fence: Fenced, namespace: str, hook: HookOpen, *, opening: str) -> bool:
        """Write down at the run, at its fence, that it has the token."""
        assert hook.token is not None
        call = scripts.OPEN_HOOK.call(
            self._shards.whole(fence.run_id),
            epoch=str(fence.epoch),
            nonce=fence.nonce,
            hook=hook_field(hook),
            token=token_name(namespace, hook.token),
            opened=self._writes.opened(namespace, hook, opening),
        )
        return await self._asks.ask([call], writes=True) == [1]

    async def free(self, token: str, run_id: str, opening: str) -> None:
        """Free a token, by the name that it has in its shard."""
        _, namespace, name = map(rows.unsafe, token.split("\0"))
        keys = self._shards.of_shard(self._shards.of_token(namespace, name))
        call = scripts.FREE_TOKEN.call(keys, token=token, id=run_id, opening=opening)
        await self._asks.ask([call], writes=True)

    async def signal(self, left: LeftMessage, run_id: str, message_id: str, scope: str, body: bytes) -> Delivered:
        """Hand a signal to the run that held the token, and end its reservation: received, or not."""
        call = self._writes.send_call(run_id, [SentEnvelope(message_id, b"", b"", scope.encode(), body)])
        [reply] = await self._asks.ask([call], writes=True)
        delivered = _sent(reply, run_id)
        ended = scripts.END_RESERVATION.call(
            self._shards.of_shard(left.shard),
            scope=scope,
            id=run_id,
            reservation=left.id,
            received=delivered.received,
        )
        await self._asks.ask([ended], writes=True)
        return delivered

    def _shard_of_scope(self, scope: str) -> int:
        """The shard of the token in a scope: `token/<length>/<namespace>/<token>`, see `holdfast.kernel.hooks`."""
        _, place, _ = scope.split("\0", 2)
        _, length, rest = rows.unsafe(place).split("/", 2)
        return self._shards.of_token(rest[: int(length)], rest[int(length) + 1 :])


def _sent(reply: Reply, run_id: str) -> Delivered:
    written = scripts.SEND.read(reply)
    if written.verdict != b"ok":
        return Delivered(received=written.verdict == b"received")
    return Delivered((run_id,), tuple(rows.texts(written.woken)), received=True)
