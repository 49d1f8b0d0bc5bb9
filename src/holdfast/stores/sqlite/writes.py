"""Applies Changes: each checks its guard and writes, inside a transaction that others may share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import asdict

from holdfast.kernel import batches
from holdfast.kernel.changes import (
    Alive,
    Answer,
    Beat,
    Change,
    Committed,
    Gathering,
    HandedOver,
    HolderOf,
    HookOpen,
    KeyFree,
    KeyHeldBy,
    Known,
    NotBegun,
    Refused,
    TokenFree,
    TokenHeldBy,
)
from holdfast.kernel.lanes import Entering
from holdfast.kernel.messages import Envelope, Watcher, blob_of, outcome_message
from holdfast.kernel.runs import ENDED, RUNNING, WAITING, Fenced, Run, with_key_released
from holdfast.kernel.times import Instant
from holdfast.stores.sqlite import kept
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.lanes import SqlLanes
from holdfast.stores.sqlite.queries import SQL, numbered
from holdfast.stores.sqlite.rows import FIELDS, attribute_rows, encode_entries, encode_message, row_of, run_of
from holdfast.stores.sqlite.rules import SqlRules

_HOLDER = ("run_id", "held_epoch", "held_nonce", "position", "change")
_ADMIT, _bind_admission = numbered("admit", FIELDS)
_SETTLE, _bind_end = numbered("settle", (*FIELDS, *_HOLDER, "read", "now_ms"))
_PROGRESS, _bind_progress = numbered("progress", (*_HOLDER, "length"))
_PROGRESS_AND_READ, _bind_progress_and_read = numbered("progress_and_read", (*_HOLDER, "length", "read"))
_APPEND, _bind_entries = numbered("append", ("run_id", "position", "entries"))
_HOLDER_OF, _ = numbered("holder_of", ("namespace", "workflow", "key", "run_id"))
_RUN, _ = numbered("run", ("run_id",))
_WATCHERS, _ = numbered("watchers", ("run_id",))


def run_by_id(db: Database, run_id: str) -> Run | None:
    rows = db.execute(_RUN, (run_id,)).fetchall()
    return run_of(rows[0]) if rows else None


def run_of_key(db: Database, namespace: str, workflow: str, key: str) -> Run | None:
    place = {"namespace": namespace, "workflow": workflow, "key": key}
    rows = db.execute(SQL["run_of_key"], place).fetchall()
    return run_of(rows[0]) if rows else None


class SqlWrites:
    """How each kind of Change is written."""

    def __init__(self, now_ms: Callable[[], Instant]) -> None:
        self._now_ms = now_ms
        self._lanes = SqlLanes(now_ms)
        self._rules = SqlRules(now_ms)

    @property
    def lanes(self) -> SqlLanes:
        return self._lanes

    @property
    def rules(self) -> SqlRules:
        return self._rules

    def apply(self, db: Database, change: Change) -> Answer:  # noqa: C901 - a table, as long as there are guards
        """Check the guard and write, or write nothing."""
        guard, run = change.guard, change.run
        if type(guard) is Fenced and run is not None:  # the most frequent first
            return self._update(db, change, run, guard)
        if type(guard) is KeyFree:
            return self._admit(db, change)
        if isinstance(guard, HolderOf):
            rows = db.execute(_HOLDER_OF, (guard.namespace, guard.workflow, guard.key, guard.run_id)).fetchall()
            return Refused(run_of(rows[0]) if rows else None)
        match guard:
            case KeyFree() | KeyHeldBy():
                return self._admit(db, change)
            case Fenced(run_id, epoch, nonce):
                fence = {"run_id": run_id, "epoch": epoch, "nonce": nonce}
                if not db.execute(SQL["at_fence"], fence).fetchall():
                    return Refused(run_by_id(db, run_id))
                self._write_beats(db, run_id, change.beats)
                return Committed(None)
            case HandedOver(fence):
                return self._hand_over(db, change, fence)
            case Known(run_id):
                run = run_by_id(db, run_id)
                if run is None:
                    return Refused(None)
                return Committed(run, self._add_watcher(db, run, change.watcher))
            case Alive() | TokenHeldBy():
                return self._send(db, change)
            case TokenFree():
                return self._open_token(db, change)
            case NotBegun() | Gathering():
                return self._renew(db, change) if isinstance(guard, NotBegun) else self._gather(db, change)

    def _admit(self, db: Database, change: Change) -> Answer:  # noqa: C901 - a line for each thing that a run may bring
        run = change.run
        assert run is not None
        if change.envelopes and not change.inherits and run_by_id(db, run.id) is None:
            receiver = self._receiver(db, change)
            if receiver is not None:
                return Committed(receiver)
        if change.enters is not None and (refused := self._no_room(db, change, run, change.enters)) is not None:
            return refused
        if type(change.guard) is KeyHeldBy:
            self._take_key(db, change.guard, run)
        db.execute(_ADMIT, _bind_admission(row_of(run)))
        if not db.changes():
            place = {"run_id": run.id, "namespace": run.namespace, "workflow": run.workflow, "key": run.key}
            rows = db.execute(SQL["in_the_way"], place).fetchall()
            found = run_of(rows[0])
            return Committed(found) if found.id == run.id else Refused(found)  # the same one: after a lost reply
        db.execute(_APPEND, _bind_entries((run.id, 0, encode_entries(change.entries))))
        if change.takes is not None or change.shares:
            run = self._rules.admit(db, change, run)
        if change.blobs:
            self._keep_blobs(db, run.id, change)
        if change.outs or change.audits:
            kept.keep(db, change.outs, change.audits)
        if run.attributes:
            self._index_attributes(db, run)
        if change.watcher is not None:
            self._add_watcher(db, run, change.watcher)
        if change.opens:
            self._open_free_hooks(db, run, change.opens)
        active = () if change.enters is None else self._lanes.enter(db, run, change.enters)
        if not change.envelopes and (change.enters is None or active == (run.id,)):
            return Committed(run)
        told = self._inherit(db, change) if change.inherits else self._deliver(db, change.envelopes)
        return Committed(run_by_id(db, run.id), (*told, *(each for each in active if each != run.id)))

    def _no_room(self, db: Database, change: Change, run: Run, entering: Entering) -> Refused | None:
        """The lane's refusal, if the run would be admitted otherwise: what stands before the lane is told first."""
        no_room = self._lanes.no_room(db, run.namespace, entering)
        if not no_room:
            return None
        place = {"run_id": run.id, "namespace": run.namespace, "workflow": run.workflow, "key": run.key}
        guard = change.guard
        taken_over = guard.run_id if isinstance(guard, KeyHeldBy) else None
        if any(run_of(row).id != taken_over for row in db.execute(SQL["in_the_way"], place).fetchall()):
            return None
        first = self._lanes.first(db, run.namespace, entering.lane)
        return Refused(None if first is None else run_by_id(db, first), no_room)

    def _inherit(self, db: Database, change: Change) -> tuple[str, ...]:
        """Take messages over from another run, in the order in which they came."""
        for envelope in change.envelopes:
            message = envelope.message
            row = {
                "run_id": envelope.run_id,
                "body": encode_message(message),
                "inherits": change.inherits,
                "message_id": message.id,
                "scope": envelope.scope,
            }
            db.execute(SQL["hand_on"], row)
            if db.changes():
                db.execute(SQL["tell"], {"now_ms": self._now_ms(), "run_id": envelope.run_id})
        return tuple(envelope.run_id for envelope in change.envelopes)

    def _take_key(self, db: Database, guard: KeyHeldBy, successor: Run) -> None:
        """Take the key from its holder, if that is as the guard says. Not for a successor that is there already."""
        assert successor.key is not None
        holder = run_of_key(db, successor.namespace, successor.workflow, successor.key)
        if holder is None or holder.id != guard.run_id or guard.fence not in {None, holder.fence}:
            return
        if run_by_id(db, successor.id) is None:
            epoch = with_key_released(holder).epoch
            db.execute(SQL["release_key"], {"run_id": holder.id, "epoch": epoch})

    def _receiver(self, db: Database, change: Change) -> Run | None:
        """The run that has received a message of this change before."""
        for envelope in change.envelopes:
            message_id = envelope.message.id
            named = {
                "run_id": envelope.run_id,
                "scope": envelope.scope,
                "message_id": message_id,
                "formerly": envelope.formerly or message_id,
            }
            rows = db.execute(SQL["receiver_in_scope"], named).fetchall() if envelope.scope else []
            if not rows and change.run is None:
                rows = db.execute(SQL["received"], named).fetchall()
            if rows:
                return run_by_id(db, rows[0][0])
        return None

    def _send(self, db: Database, change: Change) -> Answer:
        guard = change.guard
        assert isinstance(guard, Alive | TokenHeldBy)
        if (known := self._receiver(db, change)) is not None:
            return Committed(known)
        run = run_by_id(db, guard.run_id)
        if run is None or run.finished_at_ms is not None:
            return Refused(run)
        if isinstance(guard, Alive) and guard.holds_key and not run.holds_key:
            return Refused(run)
        if isinstance(guard, TokenHeldBy):
            holders = db.execute(SQL["token_holder"], {"namespace": guard.namespace, "token": guard.token}).fetchall()
            if holders != [(run.id,)]:
                return Refused(run)
        if change.takes_key:
            db.execute(SQL["release_key"], {"run_id": run.id, "epoch": run.epoch})
        kept.keep(db, change.outs, change.audits)
        told = self._deliver(db, change.envelopes)
        return Committed(run_by_id(db, run.id), told)

    def _deliver(self, db: Database, envelopes: tuple[Envelope, ...]) -> tuple[str, ...]:
        """Put messages into the inboxes of runs that have not ended; returns the runs that got one."""
        told: list[str] = []
        for run_id, message, scope in ((each.run_id, each.message, each.scope or None) for each in envelopes):
            row = {"run_id": run_id, "message_id": message.id, "scope": scope, "body": encode_message(message)}
            db.execute(SQL["add_message"], row)
            if db.changes():
                db.execute(SQL["tell"], {"now_ms": self._now_ms(), "run_id": run_id})
                told.append(run_id)
        return tuple(told)

    def _renew(self, db: Database, change: Change) -> Answer:
        guard, run = change.guard, change.run
        assert isinstance(guard, NotBegun)
        assert run is not None
        fence = guard.fence
        row = {name: getattr(run, name) for name in ("digest", "version", "attributes", "nonce", "change_id")}
        holder = {"run_id": run.id, "held_epoch": fence.epoch, "held_nonce": fence.nonce}
        db.execute(SQL["renew_input"], {**row, **holder, "wake_ms": run.wake_at_ms})
        if not db.changes():
            current = run_by_id(db, run.id)
            repeated = current is not None and current.change_id == change.id
            return Committed(current) if repeated else Refused(current)
        self._lanes.put_off(db, run)
        db.execute(SQL["forget_journal"], {"run_id": run.id})
        db.execute(SQL["forget_blobs"], {"run_id": run.id})
        db.execute(_APPEND, _bind_entries((run.id, 0, encode_entries(change.entries))))
        self._keep_blobs(db, run.id, change)
        db.execute(SQL["forget_attributes"], {"run_id": run.id})
        self._index_attributes(db, run)
        return Committed(run_by_id(db, run.id))

    def _gather(self, db: Database, change: Change) -> Answer:
        guard = change.guard
        assert isinstance(guard, Gathering)
        receiver = self._receiver(db, change)
        if receiver is not None:
            return Committed(receiver)
        run = run_by_id(db, guard.run_id)
        if run is None or not batches.has_room(run, guard.size):
            return Refused(run)
        [(taken,)] = db.execute(SQL["bytes_unread"], {"run_id": run.id}).fetchall()
        if taken + sum(len(encode_message(each.message)) for each in change.envelopes) > guard.bytes_max:
            return Refused(run)
        told = self._deliver(db, change.envelopes)
        if batches.is_full(run.unread + len(told), guard.size):
            db.execute(SQL["wake_sooner"], {"run_id": run.id, "wake_ms": self._now_ms()})
        return Committed(run_by_id(db, run.id), told)

    def _open_token(self, db: Database, change: Change) -> Answer:
        guard = change.guard
        assert isinstance(guard, TokenFree)
        current = run_by_id(db, guard.fence.run_id)
        if current is None or current.fence != guard.fence:
            return Refused(current)
        holder = self._live_holder(db, current, guard.token)
        if holder is not None:
            return Refused(holder)
        self._open_hooks(db, current, change.opens)
        return Committed(current)

    def _live_holder(self, db: Database, run: Run, token: str | None) -> Run | None:
        """The other live run that holds the token."""
        place = {"namespace": run.namespace, "token": token}
        for (holder_id,) in db.execute(SQL["token_holder"], place).fetchall():
            holder = run_by_id(db, holder_id)
            if holder is not None and holder.id != run.id and holder.finished_at_ms is None:
                return holder
        return None

    def _open_free_hooks(self, db: Database, run: Run, opens: tuple[HookOpen, ...]) -> None:
        """Open those of them whose tokens no other live run holds."""
        free = tuple(hook for hook in opens if self._live_holder(db, run, hook.token) is None)
        self._open_hooks(db, run, free)

    def _open_hooks(self, db: Database, run: Run, opens: tuple[HookOpen, ...]) -> None:
        for hook in opens:
            row = {**asdict(hook), "run_id": run.id, "namespace": run.namespace}
            db.execute(SQL["close_hook"], row)
            if hook.token is not None:
                db.execute(SQL["free_token"], row)
            db.execute(SQL["open_hook"], row)

    def _update(self, db: Database, change: Change, run: Run, guard: Fenced) -> Answer:
        entries, status = change.entries, run.status
        position = run.length - len(entries)
        holder = (run.id, guard.epoch, guard.nonce, position, change.id)
        if status is not RUNNING:
            self._settle_row(db, change, run, holder)
        elif change.read:
            db.execute(_PROGRESS_AND_READ, _bind_progress_and_read((*holder, run.length, len(change.read))))
        else:
            db.execute(_PROGRESS, _bind_progress((*holder, run.length)))
        if not db.changes():
            current = run_by_id(db, run.id)
            repeated = current is not None and current.change_id == change.id
            return Committed(current) if repeated else Refused(current)
        if change.replaces_journal:
            db.execute(SQL["forget_journal"], {"run_id": run.id})
            db.execute(SQL["forget_blobs"], {"run_id": run.id})
        if entries:
            db.execute(_APPEND, _bind_entries((run.id, position, encode_entries(entries))))
        if change.blobs:
            self._keep_blobs(db, run.id, change)
        if change.outs or change.audits:
            kept.keep(db, change.outs, change.audits)
        for message_id in change.read:
            db.execute(SQL["read_message"], {"run_id": run.id, "message_id": message_id})
        if change.shown or change.opens or change.closes or change.beats or change.replaces_journal or change.takes_key:
            self._write_beside(db, change, run)
        if status is RUNNING:
            return Committed(run)
        return self._settle(db, change, run)

    def _settle(self, db: Database, change: Change, run: Run) -> Committed:
        """What follows when a run goes on no longer, or goes on again."""
        if run.status in ENDED and not change.takes_key:  # an ended run that loses its key has told its end before
            return Committed(run, self._end(db, change, run))
        if run.aside:
            return Committed(run, self._lanes.leave(db, run))
        active = () if change.enters is None else self._lanes.enter(db, run, change.enters)
        if run.status is WAITING or change.enters is not None:
            # The store may have set another wake-up
            return Committed(run_by_id(db, run.id), tuple(each for each in active if each != run.id))
        return Committed(run)

    def _end(self, db: Database, change: Change, run: Run) -> tuple[str, ...]:
        """What follows from the end of a run. Returns the runs that were told."""
        told = self._tell_watchers(db, run)
        if run.lane:
            told += self._lanes.leave(db, run)
        return told if change.then is None else told + self._succeed(db, change, change.then)

    def _hand_over(self, db: Database, change: Change, fence: Fenced) -> Answer:
        """As the end of a holder's work, and the beginning of another's: the row is written whole."""
        run = change.run
        assert run is not None
        position = run.length - len(change.entries)
        self._settle_row(db, change, run, (run.id, fence.epoch, fence.nonce, position, change.id))
        if not db.changes():
            current = run_by_id(db, run.id)
            repeated = current is not None and current.change_id == change.id
            return Committed(current) if repeated else Refused(current)
        if change.entries:
            db.execute(_APPEND, _bind_entries((run.id, position, encode_entries(change.entries))))
        kept.keep(db, change.outs, change.audits)
        return Committed(run_by_id(db, run.id))

    def _write_beside(self, db: Database, change: Change, run: Run) -> None:
        """What a change of a run may bring besides its row, its entries and what it has read."""
        if change.beats:
            self._write_beats(db, run.id, change.beats)
        if change.shown is not None or change.replaces_journal:
            shown = {"run_id": run.id, "attributes": run.attributes, "markers": run.markers}
            db.execute(SQL["show"], shown)
        if change.shown is not None:
            db.execute(SQL["forget_attributes"], {"run_id": run.id})
            self._index_attributes(db, run)
        if change.opens:
            self._open_hooks(db, run, change.opens)
        for hook in change.closes:
            db.execute(SQL["close_hook"], {"run_id": run.id, "name": hook.name, "token": hook.token})
        if change.takes_key:
            db.execute(SQL["release_key"], {"run_id": run.id, "epoch": run.epoch})

    def _succeed(self, db: Database, change: Change, admission: Change) -> tuple[str, ...]:
        """Admit the successor, and hand it the messages that it inherits. Returns the runs that were told."""
        former, successor = run_by_id(db, admission.inherits), admission.run
        assert former is not None
        assert successor is not None
        if not former.holds_key:
            return ()  # the key was released or taken over, so there is no successor
        if not change.moves and not self._may_inherit(db, admission):
            return ()  # its journal was copied from the run that has received them: nothing would be handed over
        self.apply(db, admission)
        moves = msgspec.json.encode(change.moves).decode()
        moved = {"successor": successor.id, "run_id": admission.inherits, "message_ids": moves}
        db.execute(SQL["move_messages"], moved)
        db.execute(SQL["count_unread"], {"run_id": successor.id, "count": len(change.moves)})
        return (successor.id,)

    def _may_inherit(self, db: Database, admission: Change) -> bool:
        """Whether the other run has received any of the messages."""
        named = (
            {"run_id": admission.inherits, "message_id": each.message.id, "scope": each.scope}
            for each in admission.envelopes
        )
        return any(db.execute(SQL["received_in_scope"], each).fetchall() for each in named)

    def _settle_row(self, db: Database, change: Change, run: Run, holder: tuple[Any, ...]) -> None:
        read = len(change.read)
        if run.status in ENDED and (change.read or change.moves):
            read = self._leave_the_inbox(db, change, run.id)
        # The clock matters to a run that waits: it is not asked for the others.
        now_ms = self._now_ms() if run.status is WAITING else None
        db.execute(_SETTLE, _bind_end((*row_of(run), *holder, read, now_ms)))

    def _leave_the_inbox(self, db: Database, change: Change, run_id: str) -> int:
        """How many messages are unread, and are not when this change is written.

        A process that ends a run that is not its own may name some that the owner has read since. And without its key
        the run has no successor: what that was to take over stays.
        """
        current = run_by_id(db, run_id) if change.moves else None
        moves = change.moves if current is not None and current.holds_key else ()
        named = msgspec.json.encode((*change.read, *moves)).decode()
        [(count,)] = db.execute(SQL["unread_among"], {"run_id": run_id, "message_ids": named}).fetchall()
        return count

    def _index_attributes(self, db: Database, run: Run) -> None:
        for row in attribute_rows(run):
            db.execute(SQL["index_attribute"], row)

    def _keep_blobs(self, db: Database, run_id: str, change: Change) -> None:
        for blob in change.blobs:
            db.execute(SQL["keep_blob"], {"run_id": run_id, "digest": blob.digest, "data": blob.data})

    def _write_beats(self, db: Database, run_id: str, beats: tuple[Beat, ...]) -> None:
        for beat in beats:
            db.execute(SQL["keep_beat"], {"run_id": run_id, "step": beat.step, "details": beat.details})

    def _add_watcher(self, db: Database, run: Run, watcher: Watcher | None) -> tuple[str, ...]:
        if watcher is None:
            return ()
        db.execute(SQL["add_watcher"], {"run_id": run.id, "watcher": watcher.run_id, "step": watcher.step})
        return self._tell(db, run, watcher) if run.status in ENDED else ()

    def _tell_watchers(self, db: Database, run: Run) -> tuple[str, ...]:
        told: tuple[str, ...] = ()
        for watcher, step in db.execute(_WATCHERS, (run.id,)).fetchall():
            told += self._tell(db, run, Watcher(watcher, step))
        return told

    def _tell(self, db: Database, run: Run, watcher: Watcher) -> tuple[str, ...]:
        message = outcome_message(run, watcher)
        told = self._deliver(db, (Envelope(watcher.run_id, message),))
        if told and (digest := blob_of(message)) is not None:
            db.execute(SQL["copy_blob"], {"run_id": run.id, "watcher": watcher.run_id, "digest": digest})
        return told
