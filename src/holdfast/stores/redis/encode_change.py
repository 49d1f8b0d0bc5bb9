"""Changes to script calls, and replies to answers. One change is one call, in the shard of its run."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from msgspec import Struct

from holdfast.kernel import hooks
from holdfast.kernel.changes import Alive, Beat, Blob, Change, HookOpen, KeyFree, KeyHeldBy, Known
from holdfast.kernel.messages import Envelope
from holdfast.kernel.runs import ENDED, Fenced, Run, Status
from holdfast.stores.redis import rows, scripts
from holdfast.stores.redis.net.client import Call, Reply
from holdfast.stores.redis.rows import Fields, listed, number, pack, safe
from holdfast.stores.redis.shards import Shards


class Left(Struct, frozen=True, gc=False):
    """A message that was left in the outbox of a shard: what it is called there, and what it says."""

    shard: int
    id: bytes
    words: tuple[str, ...]


def left_in(shard: int, reply: Reply) -> list[Left]:
    """What a script has left."""
    found: list[Left] = []
    for each in rows.items(reply):
        id_, packed = rows.items(each)
        assert isinstance(id_, bytes)
        assert isinstance(packed, bytes)
        found.append(Left(shard, id_, tuple(rows.unpack(packed))))
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


class Writes:
    """How each kind of Change is written."""

    def __init__(self, shards: Shards, instant: Callable[[], bytes], now_ms: Callable[[], int]) -> None:
        self._shards = shards
        self._instant = instant
        self._now_ms = now_ms
        self._opened = itertools.count()

    def call(self, change: Change) -> Call:
        """The call that checks the guard and writes. Changes about tokens take more than one: see `tokens`."""
        match change.guard:
            case KeyFree() | KeyHeldBy():
                return self._admit(change, change.guard)
            case Fenced() if change.run is None:
                return self._beat(change, change.guard)
            case Fenced():
                assert change.run is not None
                return self._update(change, change.run, change.guard)
            case Known(run_id):
                return self._watch(change, run_id)
            case Alive():
                return self._send(change, change.guard)
            case _:
                raise AssertionError(change.guard)

    def opened(self, namespace: str, hook: HookOpen, opening: str) -> bytes:
        """What a run knows about a hook that it has opened; the newest sorts last."""
        age = f"{rows.instant(self._now_ms())}{next(self._opened):012x}"
        token = "" if hook.token is None else token_name(namespace, hook.token)
        return pack((age, token, text_of(hook.schema), opening))

    def _admit(self, change: Change, guard: KeyFree | KeyHeldBy) -> Call:
        run = change.run
        assert run is not None
        shards = self._shards
        keys = shards.whole(run.id)
        held_by, fence = (b"", None) if isinstance(guard, KeyFree) else (guard.run_id.encode(), guard.fence)
        if isinstance(guard, KeyHeldBy) and shards.of_run(guard.run_id) == shards.of_run(run.id):
            # Of a run in another shard the guard cannot hold: that is not where the key is.
            holder = shards.whole(guard.run_id)
            keys += (holder[3], holder[5], holder[6])
        envelopes: list[bytes] = []
        for envelope in change.envelopes:
            message = envelope.message
            envelopes += (
                b"" if envelope.run_id == run.id else envelope.run_id.encode(),
                message.id.encode(),
                scope_name(envelope.scope, message.id),
                former_name(envelope),
                rows.encode_message(message),
            )
        attributes = rows.attribute_members(run)
        members = [*rows.lasting_members(run), *rows.moving_members(run), *attributes]
        args = (
            self._instant(),
            run.id.encode(),
            rows.key_name(run.namespace, run.workflow, run.key),
            held_by,
            *((b"", b"") if fence is None else (b"%d" % fence.epoch, fence.nonce.encode())),
            rows.encode_entries(change.entries),
            *listed(rows.new_fields(run, attributes)),
            *listed(_scored(members)),
            *listed(_blob_fields(change.blobs)),
            *listed(self._plain_aux(run, change)),
            *listed([self._claim(run, hook) for hook in change.opens if hook.token is not None]),
            *listed(envelopes),
        )
        return Call(scripts.ADMIT, keys, args)

    def _plain_aux(self, run: Run, change: Change) -> list[bytes]:
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

    def _update(self, change: Change, run: Run, guard: Fenced) -> Call:
        keys = self._shards.whole(run.id)
        position = b"%d" % (run.length - len(change.entries))
        fence = (run.id.encode(), b"%d" % guard.epoch, guard.nonce.encode(), position)
        entries = rows.encode_entries(change.entries) if change.entries else b""
        read = listed([message_id.encode() for message_id in change.read])
        if _is_plain_progress(change, run):
            index, _, _, row, journal, box, mail, _, blobs = keys
            args = (*fence, b"%d" % run.length, change.id.encode(), entries, *read, *listed(_blob_fields(change.blobs)))
            return Call(scripts.PROGRESS, (index, row, journal, box, mail, blobs), args)
        attributes = rows.attribute_members(run) if change.shown is not None else []
        opens = [part for hook in change.opens for part in (hook_field(hook), self.opened(run.namespace, hook, ""))]
        args = (
            self._instant(),
            *fence,
            change.id.encode(),
            b"1" if run.status in ENDED else b"0",
            b"1" if change.anew else b"0",
            b"1" if change.takes_key else b"0",
            *listed(_changed_fields(change, run)),
            entries,
            *read,
            *listed(_blob_fields(change.blobs)),
            *listed(_beat_fields(change.beats)),
            b"" if change.shown is None else pack(attributes),
            *listed(opens),
            *listed([hook_field(hook) for hook in change.closes]),
            *self._successor(change),
        )
        if change.then is not None and change.then.run is not None:
            keys += self._shards.whole(change.then.run.id)[3:7] + self._shards.whole(change.then.run.id)[8:]
        return Call(scripts.SETTLE, keys, args)

    def _successor(self, change: Change) -> Fields:
        then = change.then
        if then is None or then.run is None:
            return (b"", b"0")
        run = then.run
        scope = hooks.key_scope(run.namespace, run.workflow, run.key or "")
        moves = [part for each in change.moves for part in (each.encode(), scope_name(scope, each))]
        inherits: list[bytes] = []
        for envelope in then.envelopes:
            message = envelope.message
            inherits += (message.id.encode(), scope_name(envelope.scope, message.id), rows.encode_message(message))
        attributes = rows.attribute_members(run)
        members = [*rows.lasting_members(run), *rows.moving_members(run), *attributes]
        return (
            run.id.encode(),
            *listed(moves),
            rows.key_name(run.namespace, run.workflow, run.key),
            *listed(rows.new_fields(run, attributes)),
            *listed(_scored(members)),
            rows.encode_entries(then.entries),
            *listed(_blob_fields(then.blobs)),
            *listed(inherits),
        )

    def _beat(self, change: Change, guard: Fenced) -> Call:
        keys = self._shards.whole(guard.run_id)
        args = (b"%d" % guard.epoch, guard.nonce.encode(), *listed(_beat_fields(change.beats)))
        return Call(scripts.BEAT, (keys[3], keys[7]), args)

    def _watch(self, change: Change, run_id: str) -> Call:
        keys, watcher = self._shards.whole(run_id), change.watcher
        told, life = (b"", 0) if watcher is None else (f"{watcher.run_id}\0{watcher.step}".encode(), watcher.epoch)
        return Call(scripts.WATCH, (keys[2], keys[3], keys[7]), (run_id.encode(), told, b"%d" % life))

    def _send(self, change: Change, guard: Alive) -> Call:
        envelopes: list[bytes] = []
        for envelope in change.envelopes:
            message, scope = envelope.message, scope_name(envelope.scope, envelope.message.id)
            envelopes += (message.id.encode(), scope, former_name(envelope), scope, rows.encode_message(message))
        return self.sending(guard.run_id, envelopes, needs_key=guard.holds_key, loses_key=change.takes_key)

    def sending(
        self,
        run_id: str,
        envelopes: list[bytes],
        *,
        needs_key: bool = False,
        loses_key: bool = False,
        blobs: tuple[Blob, ...] = (),
    ) -> Call:
        """The call that puts messages into the inbox of a run.

        Of each: its id, its scope in the shard of the run, the former one there, its scope at all, its body.
        """
        index, names, _, run, _, box, mail, _, large = self._shards.whole(run_id)
        args = (
            self._instant(),
            run_id.encode(),
            b"1" if needs_key else b"0",
            b"1" if loses_key else b"0",
            *listed(_blob_fields(blobs)),
            *listed(envelopes),
        )
        return Call(scripts.SEND, (index, names, run, box, mail, large), args)


def _is_plain_progress(change: Change, run: Run) -> bool:
    """Whether it only adds to the journal of a run that goes on: most changes do."""
    return run.status is Status.RUNNING and not (
        change.anew
        or change.takes_key
        or change.shown is not None
        or change.opens
        or change.closes
        or change.beats
        or change.then is not None
        or change.moves
    )


def _changed_fields(change: Change, run: Run) -> Fields:
    shown = rows.shown_fields(run) if change.shown is not None or change.anew else ()
    begun_anew = rows.input_field(run) if change.anew else ()
    if run.status is Status.RUNNING:  # its owner goes on: nothing else has moved
        return (b"l", number(run.length), b"c", change.id.encode(), *shown, *begun_anew)
    return (*rows.moved_fields(run), b"c", change.id.encode(), *shown, *begun_anew)


def _scored(members: list[str]) -> list[bytes]:
    """Members of the index, each behind its score: all have the same, so that they lie by their text."""
    return [part for member in members for part in (b"0", member.encode())]


def _blob_fields(blobs: tuple[Blob, ...]) -> Fields:
    return tuple(part for blob in blobs for part in (blob.digest.encode(), blob.data))


def _beat_fields(beats: tuple[Beat, ...]) -> Fields:
    return tuple(part for beat in beats for part in (b"t\0" + beat.step.encode(), beat.details))


def text_of(value: bytes | None) -> str:
    return "" if value is None else value.decode()
