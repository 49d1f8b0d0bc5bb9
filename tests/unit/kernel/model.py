"""A store as small as the rules in `kernel/changes.py` allow: dictionaries, one thread, no indexes."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.kernel.changes import (
    Answer,
    Change,
    Committed,
    Fenced,
    KeyFree,
    KeyHeldBy,
    Refused,
    Run,
    Status,
    with_key_released,
)
from holdfast.kernel.journal import Entry


class ModelStore:
    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.journals: dict[str, tuple[Entry, ...]] = {}
        self.written: dict[str, Change] = {}

    def commit(self, change: Change) -> Answer:
        """The answer to `change`. Ids must tell changes apart, or a new one would be taken for a repetition."""
        run, guard = change.run, change.guard
        assert run is not None
        current = self.runs.get(run.id)
        match guard:
            case Fenced():
                if change.id in self.written:
                    assert _same(self.written[change.id], change), f"two changes have the id {change.id}"
                    return Committed(current) if current and current.change_id == change.id else Refused(current)
                if current is None or current.fence != guard:
                    return Refused(current)
                run = replace(run, holds_key=current.holds_key)
            case KeyFree() | KeyHeldBy():
                if current is not None:
                    return Committed(current)
                holder = self.holder_of(run.key)
                if holder is not None:
                    if not isinstance(guard, KeyHeldBy) or holder.fence != Fenced(
                        guard.run_id, guard.epoch, guard.nonce
                    ):
                        return Refused(holder)
                    self.runs[holder.id] = with_key_released(holder)
            case _:
                raise AssertionError(guard)
        self.written[change.id] = change
        self.runs[run.id] = run
        self.journals[run.id] = self.journals.get(run.id, ()) + change.entries
        return Committed(run)

    def holder_of(self, key: str | None) -> Run | None:
        return next((run for run in self.runs.values() if run.key == key and run.holds_key), None)

    def claim(self, run_id: str, *, owner: str, nonce: str, now_ms: int) -> Run | None:
        """A store selects by `wake_ms` alone: whatever must not run has none."""
        run = self.runs[run_id]
        if run.wake_ms is None or run.wake_ms > now_ms:
            return None
        self.runs[run_id] = replace(
            run,
            status=Status.RUNNING,
            owner=owner,
            nonce=nonce,
            epoch=run.epoch + 1,
            wake_ms=None,
            started_ms=run.started_ms or now_ms,
        )
        return self.runs[run_id]

    def rescue(self, run_id: str, *, now_ms: int) -> None:
        run = self.runs[run_id]
        assert run.owner is not None
        self.runs[run_id] = replace(
            run, status=Status.PENDING, owner=None, nonce="", epoch=run.epoch + 1, wake_ms=now_ms
        )

    def prune(self, *, now_ms: int) -> None:
        for run in [run for run in self.runs.values() if run.expires_ms is not None and run.expires_ms <= now_ms]:
            del self.runs[run.id], self.journals[run.id]
            self.written = {
                name: change for name, change in self.written.items() if change.run and change.run.id != run.id
            }


def _same(one: Change, other: Change) -> bool:
    """Whether both are one decision. Two people may ask for the same retry, at different times."""
    assert one.run is not None
    assert other.run is not None
    if one.run.status is Status.PENDING:
        return one.guard == other.guard and other.run.status is Status.PENDING
    return one == other
