"""A store as small as the rules in `kernel/changes.py` allow: dictionaries, one thread, no indexes."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.kernel.changes import Alive, Answer, Change, Committed, KeyFree, KeyHeldBy, Refused
from holdfast.kernel.journal import Entry
from holdfast.kernel.messages import Envelope, Message
from holdfast.kernel.runs import ENDED, Fenced, Run, Status, with_key_released


class ModelStore:
    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.journals: dict[str, tuple[Entry, ...]] = {}
        self.written: dict[str, Change] = {}
        self.inboxes: dict[str, dict[str, Message | None]] = {}  # None: it has been read
        self.scopes: dict[tuple[str, str], str] = {}  # (scope, message) -> the run that received it

    def commit(self, change: Change) -> Answer:
        """The answer to `change`. Ids must tell changes apart, or a new one would be taken for a repetition."""
        match change.guard:
            case Fenced():
                return self._update(change, change.guard)
            case KeyFree() | KeyHeldBy():
                return self._admit(change)
            case Alive():
                return self._send(change, change.guard)
            case _:
                raise AssertionError(change.guard)

    def _update(self, change: Change, guard: Fenced) -> Answer:
        run = change.run
        assert run is not None
        current = self.runs.get(run.id)
        if change.id in self.written:
            assert _same(self.written[change.id], change), f"two changes have the id {change.id}"
            return Committed(current) if current and current.change_id == change.id else Refused(current)
        if current is None or current.fence != guard or current.length != run.length - len(change.entries):
            return Refused(current)
        unread = current.unread - len(change.read) - len(change.moves)
        if run.status in ENDED and current.finished_at_ms is None and unread:
            return Refused(current)
        self.written[change.id] = change
        self.runs[run.id] = replace(run, unread=unread, holds_key=current.holds_key and not change.takes_key)
        self.journals[run.id] = (() if change.replaces_journal else self.journals[run.id]) + change.entries
        self.inbox(run.id).update(dict.fromkeys(change.read))
        if change.then is not None:
            self._succeed(change, change.then)
        return Committed(self.runs[run.id])

    def _admit(self, change: Change) -> Answer:
        run, guard = change.run, change.guard
        assert run is not None
        if run.id in self.runs:
            return Committed(self.runs[run.id])
        if not change.inherits and (receiver := self._received(change.envelopes)) is not None:
            return Committed(receiver)
        holder = self.holder_of(run.key)
        if holder is not None:
            if not isinstance(guard, KeyHeldBy) or guard.run_id != holder.id:
                return Refused(holder)
            if guard.fence is not None and guard.fence != holder.fence:
                return Refused(holder)
            self.runs[holder.id] = with_key_released(holder)
        self.written[change.id] = change
        self.runs[run.id] = run
        self.journals[run.id] = change.entries
        if not change.inherits:
            self.deliver(change.envelopes)
        return Committed(self.runs[run.id])

    def _succeed(self, change: Change, admission: Change) -> None:
        """Admit the successor and move to it what nobody has taken, unless somebody else has the key."""
        former = self.inbox(admission.inherits)
        moving = {message_id: former[message_id] for message_id in change.moves}
        former.update(dict.fromkeys(change.moves))
        if isinstance(self._admit(admission), Refused):
            return
        assert admission.run is not None
        for message_id in [*moving, *(each.message.id for each in admission.envelopes)]:
            del former[message_id]
        scopes = [scope for scope, run_id in self.scopes.items() if run_id == admission.inherits]
        envelopes = [
            Envelope(admission.run.id, message, scope)
            for scope, message_id in scopes
            if (message := moving.get(message_id)) is not None
        ]
        self.deliver((*admission.envelopes, *envelopes))

    def _send(self, change: Change, guard: Alive) -> Answer:
        receiver = self._received(change.envelopes)
        if receiver is not None:
            return Committed(receiver)
        run = self.runs.get(guard.run_id)
        if run is None or run.status in ENDED or (guard.holds_key and not run.holds_key):
            return Refused(run)
        if change.takes_key:
            self.runs[run.id] = with_key_released(run)
        self.deliver(change.envelopes)
        return Committed(self.runs[run.id])

    def _received(self, envelopes: tuple[Envelope, ...]) -> Run | None:
        """The run that has received one of these before."""
        for envelope in envelopes:
            run_id = self.scopes.get((envelope.scope, envelope.message.id))
            if run_id is None and envelope.message.id in self.inbox(envelope.run_id):
                run_id = envelope.run_id
            if run_id in self.runs:
                return self.runs[run_id]
        return None

    def deliver(self, envelopes: tuple[Envelope, ...]) -> None:
        for envelope in envelopes:
            run = self.runs.get(envelope.run_id)
            if run is None or run.status in ENDED:
                continue
            self.inbox(run.id)[envelope.message.id] = envelope.message
            if envelope.scope:
                self.scopes[envelope.scope, envelope.message.id] = run.id
            self.runs[run.id] = replace(run, unread=run.unread + 1)

    def inbox(self, run_id: str) -> dict[str, Message | None]:
        return self.inboxes.setdefault(run_id, {})

    def unread_of(self, run_id: str) -> list[Message]:
        return [message for message in self.inbox(run_id).values() if message is not None]

    def holder_of(self, key: str | None) -> Run | None:
        return next((run for run in self.runs.values() if run.key == key and run.holds_key), None)

    def claim(self, run_id: str, *, owner: str, nonce: str, now_ms: int) -> Run | None:
        """A store selects by `wake_at_ms` alone, or by a message: whatever must not run has neither."""
        run = self.runs[run_id]
        has_mail = run.status is Status.WAITING and run.unread
        if not has_mail and (run.wake_at_ms is None or run.wake_at_ms > now_ms):
            return None
        self.runs[run_id] = replace(
            run,
            status=Status.RUNNING,
            owner=owner,
            nonce=nonce,
            epoch=run.epoch + 1,
            wake_at_ms=None,
            started_at_ms=run.started_at_ms or now_ms,
        )
        return self.runs[run_id]

    def rescue(self, run_id: str, *, now_ms: int) -> None:
        run = self.runs[run_id]
        assert run.owner is not None
        self.runs[run_id] = replace(
            run, status=Status.PENDING, owner=None, nonce="", epoch=run.epoch + 1, wake_at_ms=now_ms
        )

    def prune(self, *, now_ms: int) -> None:
        for run in [run for run in self.runs.values() if run.expires_at_ms is not None and run.expires_at_ms <= now_ms]:
            del self.runs[run.id], self.journals[run.id]
            self.inboxes.pop(run.id, None)
            self.scopes = {scope: run_id for scope, run_id in self.scopes.items() if run_id != run.id}
            self.written = {
                name: change for name, change in self.written.items() if change.run and change.run.id != run.id
            }


def _same(one: Change, other: Change) -> bool:
    """Whether both are one decision. Two people may ask for the same, at different times."""
    if _is_by_a_person(one) and _is_by_a_person(other):
        return (one.guard, _status_of(one), one.takes_key) == (other.guard, _status_of(other), other.takes_key)
    return one == other


def _is_by_a_person(change: Change) -> bool:
    """Only its owner moves a run without raising its epoch."""
    return change.run is not None and isinstance(change.guard, Fenced) and change.run.epoch != change.guard.epoch


def _status_of(change: Change) -> Status | None:
    return None if change.run is None else change.run.status
