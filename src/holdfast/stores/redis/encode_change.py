"""Changes to script calls. One change is one call, in the shard of its run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from holdfast.kernel import hooks, lanes
from holdfast.kernel.changes import (
    Alive,
    Beat,
    Blob,
    Change,
    Gathering,
    HandedOver,
    HolderOf,
    HookOpen,
    KeyFree,
    KeyHeldBy,
    Known,
    NotBegun,
)
from holdfast.kernel.lanes import Entering
from holdfast.kernel.messages import Envelope
from holdfast.kernel.runs import ENDED, Fenced, Run, Status
from holdfast.kernel.times import Instant
from holdfast.stores.redis import kept, rows, scripts
from holdfast.stores.redis.lane_words import NO_PLACE, Reservation, enter_words, leave_words
from holdfast.stores.redis.net.client import Reply, ScriptCall, Word
from holdfast.stores.redis.rows import Fields, pack, safe
from holdfast.stores.redis.shards import Shards

_NO_SUCCESSOR: Final[dict[str, Any]] = {
    "successor": "",
    **dict.fromkeys(("next_fields", "next_entries", "next_members", "next_large", "moves", "inherits"), ()),
    **dict.fromkeys(("next_enters", "next_turn"), ()),
}


class LeftMessage(Struct, frozen=True, gc=False):
    """A message that was left in the outbox of a shard: what it is called there, and what it says."""

    shard: int
    id: bytes
    words: tuple[str, ...]


def left_in(shard: int, reply: Reply) -> list[LeftMessage]:
    """What a script has left."""
    found: list[LeftMessage] = []
    for each in rows.items(reply):
        id_, packed = rows.items(each)
        assert isinstance(id_, bytes)
        assert isinstance(packed, bytes)
        found.append(LeftMessage(shard, id_, tuple(rows.unpack(packed))))
    return found


def token_name(namespace: str, token: str) -> str:
    return f"t\0{safe(namespace)}\0{safe(token)}"


def scope_name(scope: str, message_id: str) -> bytes:
    """Where the id of a message counts; nothing if it does so in its run alone."""
    return f"s\0{safe(scope)}\0{message_id}".encode() if scope else b""


def former_name(envelope: Envelope) -> bytes:
    """Where the former id of a message counts; nothing if it has none."""
    return scope_name(envelope.scope, envelope.formerly) if envelope.formerly else b""


def hook_field(hook: HookOpen) -> bytes:
    return f"h\0{safe(hook.name)}\0{safe(hook.token or '')}".encode()


def wish(token: str) -> bytes:
    """What stands at a new run until its wish for a token has been granted or refused: once."""
    return f"c\0{token}".encode()


class SentEnvelope(NamedTuple):
    """A message for the inbox of a run, as `SEND` takes it."""

    id: str
    scope: bytes  # where its id counts in the shard of the run; nothing if it does so in the run alone
    former: bytes  # the same of its former id
    place: bytes  # where its id counts at all, which may be in another shard
    body: bytes


class ChangeEncoder:
    """How each kind of Change is written."""

    def __init__(self, shards: Shards, instant: Callable[[], bytes], now_ms: Callable[[], Instant]) -> None:
        self._shards = shards
        self._instant = instant
        self._now_ms = now_ms
        self._opened = itertools.count()

    def call(self, change: Change, reservation: Reservation = NO_PLACE) -> ScriptCall:
        """The call that checks the guard and writes. Changes about tokens take more than one: see `tokens`."""
        match change.guard:
            case KeyFree() | KeyHeldBy():
                return self._admit(change, change.guard, reservation)
            case HolderOf(run_id, namespace, workflow, key):
                key = rows.key_name(namespace, workflow, key)
                return scripts.HOLDER.call(self._shards.core(run_id), id=run_id, key=key)
            case Fenced() if change.run is None:
                return self._beat(change, change.guard)
            case Fenced():
                assert change.run is not None
                return self._update(change, change.run, change.guard)
            case HandedOver(fence):
                assert change.run is not None
                return self._settle(change, change.run, fence, self._shards.core(change.run.id), goes_on=False)
            case Known(run_id):
                return self._watch(change, run_id)
            case Alive():
                return self._send(change, change.guard)
            case NotBegun(fence):
                assert change.run is not None
                return self._renew(change, change.run, fence)
            case Gathering():
                return self._gather(change, change.guard)
            case _:
                raise AssertionError(change.guard)

    def opened(self, namespace: str, hook: HookOpen, opening: str) -> bytes:
        """What a run knows about a hook that it has opened; the newest sorts last."""
        age = f"{rows.instant(self._now_ms())}{next(self._opened):012x}"
        token = "" if hook.token is None else token_name(namespace, hook.token)
        return pack((age, token, text_of(hook.schema), opening))

    def _admit(self, change: Change, guard: KeyFree | KeyHeldBy, reservation: Reservation) -> ScriptCall:
        run = change.run
        assert run is not None
        shards = self._shards
        entering, turn = self._entering(run, change.enters)
        entering = [(*words, *reservation.limits(change.enters)) for words in entering]
        run = run if change.enters is None else lanes.parked(run)
        is_plain = not (change.envelopes or change.blobs or change.watcher or change.opens or entering)
        keys = shards.core(run.id) if is_plain and isinstance(guard, KeyFree) else shards.whole(run.id)
        held_by, fence = ("", None) if isinstance(guard, KeyFree) else (guard.run_id, guard.fence)
        if isinstance(guard, KeyHeldBy) and shards.of_run(guard.run_id) == shards.of_run(run.id):
            # Of a run in another shard the guard cannot hold: that is not where the key is.
            keys |= {f"holder_{part}": key for part, key in shards.whole(guard.run_id).items()}
        envelopes = [
            (
                "" if envelope.run_id == run.id else envelope.run_id,
                envelope.message.id,
                scope_name(envelope.scope, envelope.message.id),
                former_name(envelope),
                rows.encode_message(envelope.message),
            )
            for envelope in change.envelopes
        ]
        attributes = rows.attribute_members(run)
        members = [*rows.lasting_members(run), *rows.moving_members(run), *attributes]
        return scripts.ADMIT.call(
            keys,
            now=self._instant(),
            id=run.id,
            key=rows.key_name(run.namespace, run.workflow, run.key),
            held_by=held_by,
            epoch="" if fence is None else str(fence.epoch),
            nonce="" if fence is None else fence.nonce,
            entries=rows.encode_entries(change.entries),
            fields=rows.new_values(run, attributes),
            index_members=_scored(members),
            large=_blob_fields(change.blobs),
            notes=self._notes(run, change),
            claims=[self._claim(run, hook) for hook in change.opens if hook.token is not None],
            envelopes=envelopes,
            enters=entering,
            take_turn=turn,
            kept=kept.records_of(change),
        )

    def is_home(self, run: Run, lane: str) -> bool:
        """Whether the lane is in the shard of the run."""
        return self._shards.of_lane(run.namespace, lane) == self._shards.of_run(run.id)

    def _entering(self, run: Run, entering: Entering | None) -> tuple[list[tuple[Word, ...]], list[Word]]:
        """What a script is told of a run that enters a lane, and what becomes of its row when it is its turn."""
        if entering is None:
            return [], []
        parked, wake_at_ms = lanes.parked(run), self._now_ms() if run.wake_at_ms is None else run.wake_at_ms
        words = enter_words(parked, entering, wake_at_ms)
        home = b"1" if self.is_home(run, entering.lane) else b"0"
        lane, member = rows.lane_name(run.namespace, entering.lane), rows.in_lane(run)
        _, _, _, _, epoch, width, rank, wake = words
        turn: list[Word] = []
        for field, value, before in zip(
            rows.MOVED, rows.moved_values(run, run.change_id), rows.moved_values(parked, run.change_id), strict=True
        ):
            if value != before:
                turn += (field, value)
        return [(lane, home, epoch, width, rank, wake, member, entering.lane, pack(words))], turn

    def _leaving(self, run: Run) -> list[tuple[Word, ...]]:
        home = b"1" if self.is_home(run, run.lane) else b"0"
        return [(rows.lane_name(run.namespace, run.lane), home, rows.in_lane(run), pack(leave_words(run)))]

    def _notes(self, run: Run, change: Change) -> list[bytes]:
        """The watcher of a new run, its hooks without a token, and its wishes for those with one."""
        fields: list[bytes] = []
        if change.watcher is not None:
            fields += (f"w\0{change.watcher.run_id}\0{change.watcher.step}".encode(), b"")
        for hook in change.opens:
            if hook.token is None:
                fields += (hook_field(hook), self.opened(run.namespace, hook, ""))
            else:
                fields += (wish(token_name(run.namespace, hook.token)), b"")
        return fields

    def _claim(self, run: Run, hook: HookOpen) -> bytes:
        """The wish of a new run for a token, if it is free; a message, since the token may live in another shard."""
        assert hook.token is not None
        return pack(("claim", run.namespace, hook.token, run.id, hook.name, text_of(hook.schema)))

    def _update(self, change: Change, run: Run, guard: Fenced) -> ScriptCall:
        # Most changes are about the run and its journal only.
        needs_all = change.read or change.blobs or change.moves or change.replaces_journal or change.takes_key
        needs_all = needs_all or change.then is not None or change.enters is not None or lanes.leaves(run)
        needs_all = needs_all or change.outs or change.audits
        keys = self._shards.whole(run.id) if needs_all else self._shards.core(run.id)
        if not _is_plain_progress(change, run):
            return self._settle(change, run, guard, keys, goes_on=run.status is Status.RUNNING)
        return scripts.PROGRESS.call(
            keys,
            id=run.id,
            epoch=guard.epoch,
            nonce=guard.nonce,
            position=run.length - len(change.entries),
            length=run.length,
            change=change.id,
            entries=rows.encode_entries(change.entries) if change.entries else b"",
            read=change.read,
            large=_blob_fields(change.blobs),
        )

    def _settle(self, change: Change, run: Run, guard: Fenced, keys: dict[str, bytes], *, goes_on: bool) -> ScriptCall:
        """The call that writes the row whole, unless its owner goes on with it."""
        attributes = rows.attribute_members(run) if change.shown is not None else []
        opens = [part for hook in change.opens for part in (hook_field(hook), self.opened(run.namespace, hook, ""))]
        if change.then is not None and change.then.run is not None:
            keys |= {f"next_{part}": key for part, key in self._shards.whole(change.then.run.id).items()}
        enters, turn = self._entering(run, change.enters)
        run = run if change.enters is None else lanes.parked(run)
        return scripts.SETTLE.call(
            keys,
            now=self._instant(),
            id=run.id,
            epoch=guard.epoch,
            nonce=guard.nonce,
            position=run.length - len(change.entries),
            length=run.length,
            change=change.id,
            goes_on=goes_on,
            ends=run.status in ENDED,
            replaces_journal=change.replaces_journal,
            loses_key=change.takes_key,
            moved=rows.moved_values(run, change.id),
            further=_further_fields(change, run),
            entries=rows.encode_entries(change.entries) if change.entries else b"",
            read=change.read,
            large=_blob_fields(change.blobs),
            beats=_beat_fields(change.beats),
            attributes=b"" if change.shown is None else pack(attributes),
            opens=opens,
            closes=[hook_field(hook) for hook in change.closes],
            leaves=self._leaving(run) if lanes.leaves(run) and not change.takes_key else (),
            enters=enters,
            take_turn=turn,
            kept=kept.records_of(change),
            **self._successor(change),
        )

    def _renew(self, change: Change, run: Run, fence: Fenced) -> ScriptCall:
        attributes = rows.attribute_members(run)
        return scripts.RENEW_INPUT.call(
            self._shards.whole(run.id),
            id=run.id,
            epoch=fence.epoch,
            nonce=fence.nonce,
            change=change.id,
            wake=rows.number(run.wake_at_ms),
            attributes=pack(attributes) if attributes else b"",
            entries=rows.encode_entries(change.entries),
            written=rows.renewed_fields(run),
            large=_blob_fields(change.blobs),
        )

    def _gather(self, change: Change, guard: Gathering) -> ScriptCall:
        [envelope] = change.envelopes
        return scripts.GATHER.call(
            self._shards.whole(guard.run_id),
            now=self._instant(),
            id=guard.run_id,
            size=guard.size,
            bytes_max=guard.bytes_max,
            item_id=envelope.message.id,
            scope=scope_name(envelope.scope, envelope.message.id),
            former_scope=former_name(envelope),
            body=rows.encode_message(envelope.message),
        )

    def _successor(self, change: Change) -> dict[str, Any]:
        """The arguments of `SETTLE` about the run that takes over the key; empty ones if there is none."""
        then = change.then
        if then is None or then.run is None:
            return _NO_SUCCESSOR
        enters, turn = self._entering(then.run, then.enters)
        run = then.run if then.enters is None else lanes.parked(then.run)
        scope = hooks.key_scope(run.namespace, run.workflow, run.key or "")
        attributes = rows.attribute_members(run)
        members = [*rows.lasting_members(run), *rows.moving_members(run), *attributes]
        return {
            "successor": run.id,
            "next_enters": enters,
            "next_turn": turn,
            "next_fields": [
                part for pair in zip(rows.NEW, rows.new_values(run, attributes), strict=True) for part in pair
            ],
            "next_entries": (rows.encode_entries(then.entries),),
            "next_members": _scored(members),
            "next_large": _blob_fields(then.blobs),
            "moves": [(each, scope_name(scope, each)) for each in change.moves],
            "inherits": [
                (each.message.id, scope_name(each.scope, each.message.id), rows.encode_message(each.message))
                for each in then.envelopes
            ],
        }

    def take_call(self, run_id: str, owner: str, nonce: str) -> ScriptCall:
        """The call that hands a run which may be claimed to an owner."""
        return scripts.TAKE.call(self._shards.whole(run_id), **self.instants(), id=run_id, owner=owner, nonce=nonce)

    def instants(self) -> dict[str, Any]:
        """What is ready is judged by the clock of the shard's node or by ours, whichever is ahead.

        Wake-ups are written by either: a claim by the other one alone might come a moment too early, and find nothing.
        """
        return {"server_now": self._instant(), "client_now": self._now_ms()}

    def _beat(self, change: Change, guard: Fenced) -> ScriptCall:
        beats = _beat_fields(change.beats)
        return scripts.BEAT.call(
            self._shards.whole(guard.run_id), epoch=str(guard.epoch), nonce=guard.nonce, beats=beats
        )

    def _watch(self, change: Change, run_id: str) -> ScriptCall:
        watcher = change.watcher
        told, life = ("", 0) if watcher is None else (f"{watcher.run_id}\0{watcher.step}", watcher.epoch)
        return scripts.WATCH.call(self._shards.whole(run_id), id=run_id, watcher=told, life=str(life))

    def _send(self, change: Change, guard: Alive) -> ScriptCall:
        envelopes: list[SentEnvelope] = []
        for envelope in change.envelopes:
            message, scope = envelope.message, scope_name(envelope.scope, envelope.message.id)
            envelopes.append(
                SentEnvelope(message.id, scope, former_name(envelope), scope, rows.encode_message(message))
            )
        keeps = kept.records_of(change)
        return self.send_call(
            guard.run_id, envelopes, needs_key=guard.holds_key, loses_key=change.takes_key, keeps=keeps
        )

    def send_call(
        self,
        run_id: str,
        envelopes: Sequence[SentEnvelope],
        *,
        needs_key: bool = False,
        loses_key: bool = False,
        blobs: tuple[Blob, ...] = (),
        keeps: Sequence[tuple[str, bytes]] = (),
    ) -> ScriptCall:
        """The call that puts messages into the inbox of a run."""
        return scripts.SEND.call(
            self._shards.whole(run_id),
            now=self._instant(),
            id=run_id,
            needs_key=needs_key,
            loses_key=loses_key,
            large=_blob_fields(blobs),
            envelopes=envelopes,
            kept=keeps,
        )


def _is_plain_progress(change: Change, run: Run) -> bool:
    """Whether it only adds to the journal of a run that goes on: most changes do."""
    return run.status is Status.RUNNING and not (
        change.replaces_journal
        or change.takes_key
        or change.shown is not None
        or change.opens
        or change.closes
        or change.beats
        or change.then is not None
        or change.moves
        or change.enters is not None
        or change.outs
        or change.audits
    )


def _further_fields(change: Change, run: Run) -> Fields:
    """What else of the row a change may write."""
    lane = (b"as", b"1") if run.aside else ()
    if change.replaces_journal:
        return (*rows.shown_fields(run), *rows.input_field(run), *lane)
    return (*rows.shown_fields(run), *lane) if change.shown is not None else lane


def _scored(members: list[str]) -> list[Word]:
    """Members of the index, each behind its score: all have the same, so that they lie by their text."""
    return [part for member in members for part in (b"0", member)]


def _blob_fields(blobs: tuple[Blob, ...]) -> Fields:
    return tuple(part for blob in blobs for part in (blob.digest.encode(), blob.data))


def _beat_fields(beats: tuple[Beat, ...]) -> Fields:
    return tuple(part for beat in beats for part in (b"t\0" + beat.step.encode(), beat.details))


def text_of(value: bytes | None) -> str:
    return "" if value is None else value.decode()
