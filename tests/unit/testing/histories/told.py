"""Small histories by hand: a clock that goes on by ten milliseconds a record, and one method per kind of record."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.kernel.journal import Entry, Intent, Performed
from holdfast.testing.histories.history import (
    EffectObserved,
    FaultApplied,
    FenceSeen,
    FinalKey,
    FinalRun,
    HistoryHead,
    LaneSeen,
    LeaderActed,
    LeaseChanged,
    MessageDelivered,
    OperationCalled,
    OperationReturned,
    PlaceSeen,
    Record,
    RunMoved,
    SentMessage,
    StoreWrite,
)
from tests.builders import STARTED, a_value

LEASE_MS = 1_000
WORKFLOW = "shop.checkout"


def done(
    step: str = "a", *, key: str = "", attempt: int = 1, at_ms: int = 0, run: str = "r1", **fields: Any
) -> Performed:
    """An effect of a run that has a key of its run and its step, unless another one is given."""
    intent = Intent("undo" if step.startswith("undo:") else "effect", "shop.charge", key or _key_of(run, step))
    return replace(Performed(at_ms, step, intent, attempt, a_value()), **fields)


def _key_of(run: str, step: str) -> str:
    return f"undo:{run}/{step.removeprefix('undo:')}" if step.startswith("undo:") else f"{run}/{step}"


class Told:
    """A history that grows."""

    def __init__(self, **head: Any) -> None:
        self.now_ms = 0
        self.records: list[Record] = [HistoryHead(source="hand", lease_ms=LEASE_MS, **head)]
        self._lengths: dict[str, int] = {}

    def add(self, record: Record) -> Told:
        self.now_ms += 10
        self.records.append(replace(record, at_ms=self.now_ms))
        return self

    def wait(self, ms: int) -> Told:
        self.now_ms += ms
        return self

    # -- clients

    def call(self, op: str, verb: Any = "start", *, key: str = "k", **fields: Any) -> Told:
        about = {"workflow": WORKFLOW, "key": key} if verb in {"start", "find"} else {}
        return self.add(OperationCalled(op=op, client=op, verb=verb, **about, **fields))

    def back(self, op: str, outcome: Any = "ok", **fields: Any) -> Told:
        return self.add(OperationReturned(op=op, outcome=outcome, **fields))

    def start(self, op: str, run: str, *, created: bool = True, **fields: Any) -> Told:
        return self.call(op, **fields).back(op, run=run, created=created)

    def find(self, op: str, run: str, **fields: Any) -> Told:
        return self.call(op, "find", **fields).back(op, run=run)

    def not_found(self, op: str, **fields: Any) -> Told:
        return self.call(op, "find", **fields).back(op, "refused", error="unknown_run")

    def refused(self, op: str, error: str, run: str = "", **fields: Any) -> Told:
        return self.call(op, **fields).back(op, "refused", error=error, run=run)

    def release(self, op: str, run: str) -> Told:
        return self.call(op, "release", run=run).back(op, run=run)

    def signal(self, op: str, run: str, dedupe: str, outcome: Any = "ok", **fields: Any) -> Told:
        return self.call(op, "signal", run=run, hook="go", dedupe=dedupe, **fields).back(op, outcome, run=run)

    # -- the world

    def began(self, step: str = "a", *, run: str = "r1", host: str = "h1", key: str = "", **fields: Any) -> Told:
        return self.add(
            EffectObserved(
                host=host,
                run=run,
                step=step,
                key=key or _key_of(run, step),
                phase="began",
                undo=step.startswith("undo:"),
                **fields,
            )
        )

    def effect(self, step: str = "a", *, returned: bool = True, **fields: Any) -> Told:
        """A call that comes to its end."""
        call = self.began(step, **fields).records[-1]
        return self.add(replace(call, phase="ended", returned=returned))

    def fault(self, fault: Any, host: str = "", **fields: Any) -> Told:
        return self.add(FaultApplied(fault=fault, host=host, **fields))

    # -- the store

    def write(
        self,
        *entries: Entry,
        run: str = "r1",
        at: tuple[int, str] | None = (1, "n1"),
        outcome: Any = "accepted",
        messages: tuple[str, ...] = (),
        **fields: Any,
    ) -> Told:
        """A write at a fence, which follows the last one."""
        before = fields.pop("length_before", self._lengths.get(run, 0))
        after = fields.pop("length", before + len(entries))
        if outcome == "accepted":
            self._lengths[run] = after
        fence = None if at is None else FenceSeen(*at)
        write = StoreWrite(
            host="h1",
            write=f"{run}.{after}.{len(self.records)}",
            run=run,
            outcome=outcome,
            presented=fence,
            fence=fence,
            length_before=before,
            length=after,
            entries=entries,
            messages=tuple(SentMessage(run, each, "signal") for each in messages),
        )
        return self.add(replace(write, **fields))

    def admit(self, run: str = "r1", *entries: Entry, key: str = "k", **fields: Any) -> Told:
        """The first write of a run that holds a key."""
        about = {"workflow": WORKFLOW, "key": key, "holds_key": bool(key)}
        return self.write(*(entries or (STARTED,)), run=run, at=None, admits=True, **about, **fields)

    def moved(self, how: Any, run: str = "r1", *, at: tuple[int, str] | None = None) -> Told:
        return self.add(RunMoved(how=how, run=run, fence=None if at is None else FenceSeen(*at)))

    def lane(
        self,
        *active: str,
        parked: tuple[str, ...] = (),
        width: int = 1,
        paused: bool = False,
        first: tuple[str, ...] = (),
    ) -> Told:
        """A lane with these runs, which have entered in the order of their ids; those that are `first` go first."""
        places = [
            tuple(PlaceSeen(run, int(run.removeprefix("r")), int(run in first)) for run in runs)
            for runs in (active, parked)
        ]
        return self.add(LaneSeen(lane="x", width=width, paused=paused, active=places[0], parked=places[1]))

    def lease(self, how: Any, host: str) -> Told:
        return self.add(LeaseChanged(how=how, host=host))

    def elected(self, host: str, term: int) -> Told:
        return self.add(LeaderActed(how="elected", host=host, duty="rescuer", term=term))

    def delivered(self, run: str, message: str) -> Told:
        return self.add(MessageDelivered(what="message", run=run, id=message))

    # -- the end

    def final(
        self,
        run: str = "r1",
        *entries: Entry,
        status: str = "completed",
        key: str = "k",
        holds_key: bool = True,
        **fields: Any,
    ) -> Told:
        """A run in the end, with these entries after its input."""
        journal = (STARTED, *entries) if not entries or entries[0].what not in {"started", "continued"} else entries
        final = FinalRun(
            run=run,
            workflow=WORKFLOW,
            status=status,
            key=key,
            holds_key=holds_key,
            length=len(journal),
            journal=journal,
        )
        return self.add(replace(final, **fields))

    def key(self, run: str, key: str = "k") -> Told:
        return self.add(FinalKey(workflow=WORKFLOW, key=key, run=run))
