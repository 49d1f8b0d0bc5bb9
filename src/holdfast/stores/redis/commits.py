"""Commits: a batch of changes becomes one round trip, and one more for each thing that crosses shards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import EngineFault
from holdfast.kernel.changes import (
    Answer,
    Change,
    Committed,
    HookOpen,
    Refused,
    TokenFree,
    TokenHeldBy,
)
from holdfast.kernel.lanes import NoRoom
from holdfast.kernel.messages import Envelope
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant
from holdfast.ports.notices import Ready
from holdfast.stores.redis import rows, scripts
from holdfast.stores.redis.encode_change import ChangeEncoder, LeftMessage, former_name, scope_name, token_name
from holdfast.stores.redis.lane_words import Reservation
from holdfast.stores.redis.lanes import RedisLanes, reserved_for
from holdfast.stores.redis.net.client import Reply
from holdfast.stores.redis.outbox import Delivered, Outbox
from holdfast.stores.redis.rows import pack
from holdfast.stores.redis.rules import RedisRules, RuleReply
from holdfast.stores.redis.script_calls import Asks
from holdfast.stores.redis.shards import Shards

_WRITTEN = [b"ok"]


class ChangeOutcome(Struct):
    """What became of a change: its answer, or the id of the run that has to be looked up for it."""

    committed: bool
    run: Run | None = None
    look_up: str = ""
    told: tuple[str, ...] = ()
    left: tuple[LeftMessage, ...] = ()
    is_known: bool = False  # it was committed before
    woken: tuple[str, ...] = ()  # what the wake-ups of those begin with who may be claimed now
    no_room: NoRoom = ""
    taker: Run | None = None  # a run that goes on, as it was offered: to its owner, if it has one
    late: bool = False  # its place in its lane is no longer reserved

    def answer(self) -> Answer:
        return Committed(self.run, self.told) if self.committed else Refused(self.run, self.no_room)


class Commits:
    """How batches are committed."""

    def __init__(
        self,
        asks: Asks,
        shards: Shards,
        writes: ChangeEncoder,
        outbox: Outbox,
        *,
        lanes: RedisLanes,
        rules: RedisRules,
    ) -> None:
        self._asks = asks
        self._shards = shards
        self._writes = writes
        self._outbox = outbox
        self._lanes = lanes
        self._rules = rules

    async def commit(self, changes: Sequence[Change]) -> list[ChangeOutcome]:
        """What became of each."""
        plain = [change for change in changes if not isinstance(change.guard, TokenFree | TokenHeldBy)]
        others = [change for change in changes if isinstance(change.guard, TokenFree | TokenHeldBy)]
        of_plain = iter(await self._commit_plain(plain) if plain else ())
        of_others = iter(await asyncio.gather(*map(self._about_token, others)) if others else ())
        outcomes = [
            next(of_others if isinstance(change.guard, TokenFree | TokenHeldBy) else of_plain) for change in changes
        ]
        await self._look_up([outcome for outcome in outcomes if outcome.look_up])
        return outcomes

    async def _commit_plain(self, changes: list[Change]) -> list[ChangeOutcome]:
        ruled = [change for change in changes if change.takes is not None or change.shares]
        asked = await self._rules.ask(ruled) if ruled else {}
        if ruled:
            changes = [replace(each, run=asked[each.id].run) if each.id in asked else each for each in changes]
        entering = [change for change in changes if change.enters is not None]
        reserved = await self._lanes.reserve(entering) if entering else {}
        calls = [self._writes.call(change, reserved_for(change, reserved)) for change in changes]
        tags = self._rules.tag_calls(changes, asked) if ruled else []
        replies = await self._asks.ask([*calls, *tags, *self._outbox.take_tidying_calls()], writes=True)
        outcomes = list(map(self._outcome, changes, replies))
        if entering:
            outcomes = await self._entered(changes, outcomes, reserved)
        if ruled:
            found = zip(changes, outcomes, strict=True)
            unused = {each.id: outcome.is_known for each, outcome in found if _is_unused(each, outcome, asked)}
            await self._rules.give_back(unused, asked, of=changes)
        await self._deliver([outcome for outcome in outcomes if outcome.left])
        for change, outcome in zip(changes, outcomes, strict=True):
            if change.enters is not None and outcome.run is not None and outcome.run.id in outcome.told:
                # That it is its turn has been decided in the shard of its lane.
                outcome.told = tuple(run_id for run_id in outcome.told if run_id != outcome.run.id)
                outcome.look_up, outcome.taker = outcome.run.id, change.run
        told = {run_id for outcome in outcomes for run_id in outcome.told}
        for outcome in outcomes:
            if outcome.run is not None and outcome.run.id in told and outcome.run.status is Status.WAITING:
                outcome.look_up = outcome.run.id  # it was let go, and told something in the same breath
        return outcomes

    async def _entered(
        self, changes: list[Change], outcomes: list[ChangeOutcome], reserved: Mapping[str, Reservation]
    ) -> list[ChangeOutcome]:
        """Give back the places of what was not admitted. What was too late for its place is offered once more."""
        unused: list[Change] = []
        for place, (change, outcome) in enumerate(zip(changes, outcomes, strict=True)):
            reservation = reserved_for(change, reserved)
            if outcome.late:
                outcomes[place] = (await self._commit_plain([change]))[0]
                continue
            if outcome.no_room and reservation.first:
                outcome.look_up = reservation.first
            if reservation.until_ms and not _has_come(change, outcome):
                unused.append(change)
        await self._lanes.give_back(unused)
        return outcomes

    # -- changes of one shard

    def _outcome(self, change: Change, reply: Reply) -> ChangeOutcome:
        if reply == _WRITTEN:  # nearly always: nothing to decode
            return ChangeOutcome(True, change.run)
        if reply is None:  # a look at the holder of a key, and there is none
            return ChangeOutcome(False)
        written = scripts.ChangeReply(*rows.items(reply))
        match written.verdict:
            case b"again":
                return ChangeOutcome(True, rows.run_of(written.row), is_known=True)
            case b"received":
                return ChangeOutcome(True, look_up=rows.text(written.holder))
            case b"held":
                holder = rows.run_of(written.row)
                return ChangeOutcome(False, holder, look_up=rows.text(written.holder) if holder is None else "")
            case b"refused":
                return ChangeOutcome(False, rows.run_of(written.row))
            case b"full" | b"busy":
                first = "" if written.holder is None else rows.text(written.holder)
                no_room: NoRoom = "full" if written.verdict == b"full" else "busy"
                return ChangeOutcome(False, look_up=first, no_room=no_room)
            case b"late":
                return ChangeOutcome(False, late=True)
            case _:
                run = rows.run_of(written.row) or change.run
                left = self._outbox.left_by(run.id, written.left) if written.left and run is not None else ()
                told, woken = rows.texts(written.told or []), rows.texts(written.woken or [])
                return ChangeOutcome(True, run, told=tuple(told), left=tuple(left), woken=tuple(woken))

    async def _deliver(self, outcomes: list[ChangeOutcome]) -> None:
        if not outcomes:
            return
        try:
            delivered = iter(await self._outbox.deliver([each for outcome in outcomes for each in outcome.left]))
        except EngineFault:
            return  # what was committed is committed; `relay` finds what could not be delivered, and says why
        for outcome in outcomes:
            done: list[Delivered] = [next(delivered) for _ in outcome.left]
            outcome.told = (*(run_id for each in done for run_id in each.told), *outcome.told)
            outcome.woken += tuple(prefix for each in done for prefix in each.woken)

    async def _look_up(self, outcomes: list[ChangeOutcome]) -> None:
        if not outcomes:
            return
        await self._hand_over([outcome for outcome in outcomes if outcome.taker and outcome.taker.owner])
        found = await self._asks.rows([outcome.look_up for outcome in outcomes])
        for outcome, run in zip(outcomes, found, strict=True):
            outcome.run = run

    async def _hand_over(self, outcomes: list[ChangeOutcome]) -> None:
        """A run that was offered with an owner, and had to ask another shard for its turn, is that owner's now."""
        calls = [
            self._writes.take_call(taker.id, taker.owner, taker.nonce)
            for outcome in outcomes
            if (taker := outcome.taker) is not None and taker.owner is not None
        ]
        if calls:
            await self._asks.ask(calls, writes=True)

    # -- changes about tokens: the token has a shard of its own

    async def _about_token(self, change: Change) -> ChangeOutcome:
        guard = change.guard
        if isinstance(guard, TokenFree):
            [hook] = change.opens
            return await self._open_token(guard, hook, change.id)
        assert isinstance(guard, TokenHeldBy)
        [envelope] = change.envelopes
        return await self._signal_token(guard, envelope)

    async def _open_token(self, guard: TokenFree, hook: HookOpen, opening: str) -> ChangeOutcome:
        """First the token, then the note at the run.

        If its fence is lost between them, the process that takes the run up asks for what it has. If the run ends, the
        token is free.
        """
        fence = guard.fence
        run = await self._asks.row(fence.run_id)
        if run is None or run.fence != fence:
            return ChangeOutcome(False, run)
        holder = await self._outbox.claim(guard.namespace, hook, run.id, opening=opening)
        if holder is not None:
            return ChangeOutcome(False, holder)
        if await self._outbox.open_hook(fence, guard.namespace, hook, opening=opening):
            return ChangeOutcome(True, run)
        return ChangeOutcome(False, await self._asks.row(run.id))

    async def _signal_token(self, guard: TokenHeldBy, envelope: Envelope) -> ChangeOutcome:
        """Reserve the signal's id at the token, hand the signal to the run, end the reservation."""
        shard = self._shards.of_token(guard.namespace, guard.token)
        message = envelope.message
        scope, former = scope_name(envelope.scope, message.id), former_name(envelope)
        words = ("signal", guard.run_id, message.id, scope.decode(), rows.encode_message(message).decode())
        reserve = scripts.RESERVE.call(
            self._shards.of_shard(shard),
            token=token_name(guard.namespace, guard.token),
            id=guard.run_id,
            scope=scope,
            former=former,
            message=pack(words),
        )
        while True:
            [reply] = await self._asks.ask([reserve], writes=True)
            reserved_as = scripts.RESERVE.read(reply)
            if reserved_as.verdict == b"refused":
                return ChangeOutcome(False, look_up=guard.run_id) if guard.run_id else ChangeOutcome(False)
            name, reserved = scope, message
            if reserved_as.verdict == b"ok":
                receiver, reservation = guard.run_id, rows.text(reserved_as.reservation)
            else:
                receiver, _, reservation = rows.text(reserved_as.receiver).partition("\0")
                if reserved_as.name != scope:  # by an earlier version: it keeps the id under which it was reserved
                    name, reserved = former, replace(message, id=envelope.formerly)
            if not reservation:
                return ChangeOutcome(True, look_up=receiver)
            # Reserved just now, or by a process that died before it handed the signal over: hand it over in any case.
            left, body = LeftMessage(shard, reservation.encode(), words), rows.encode_message(reserved)
            delivered = await self._outbox.signal(left, receiver, reserved.id, name.decode(), body)
            if delivered.received:
                return ChangeOutcome(True, look_up=receiver, told=delivered.told, woken=delivered.woken)
            if reserved_as.verdict == b"ok":
                return ChangeOutcome(False, look_up=receiver)


def _has_come(change: Change, outcome: ChangeOutcome) -> bool:
    """Whether a run that was to be admitted is there, and uses its place."""
    run, wanted = outcome.run, change.run
    is_there = run is not None and wanted is not None and run.id == wanted.id
    return outcome.committed and is_there and run is not None and run.finished_at_ms is None


def _is_unused(change: Change, outcome: ChangeOutcome, asked: Mapping[str, RuleReply]) -> bool:
    """Whether what a run has asked for before its admission is of no use: this change has not admitted it."""
    if change.id not in asked:
        return False
    return not outcome.committed or outcome.is_known or outcome.run is None or outcome.run.id != change.id


def ready_of(change: Change, outcome: ChangeOutcome, *, now_ms: Instant) -> list[Ready]:
    """The work that a change has made, now or later."""
    found = [Ready(*rows.woken_workflow(prefix), now_ms) for prefix in outcome.woken]
    run = outcome.run
    if outcome.committed and change.run is not None and run is not None and run.wake_at_ms is not None:
        found.append(Ready(run.namespace, run.workflow, run.wake_at_ms))
    then = change.then
    if outcome.committed and then is not None and then.run is not None and then.run.id in outcome.told:
        found.append(Ready(then.run.namespace, then.run.workflow, now_ms))
    return found
