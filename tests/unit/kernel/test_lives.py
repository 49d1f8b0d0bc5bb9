"""The life of a run, over `kernel.runs` and a store that only checks guards."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.errors import NotAllowedNow
from holdfast.kernel import transitions
from holdfast.kernel.changes import Change, Committed, Refused
from holdfast.kernel.journal import Entry
from holdfast.kernel.runs import ENDED, Run, Status
from holdfast.kernel.starts import admission
from tests.builders import NOW_MS, a_failure, a_hand, a_value, gave_up, performed, wanted
from tests.unit.kernel.model import ModelStore

WORKERS = st.sampled_from(["w-1", "w-2", "w-3"])
RUNS = st.sampled_from(["run-1", "run-1", "run-1", "run-2"])  # the second only shows that they do not meddle
STEPS = st.sampled_from(["charge#1", "charge#2"])
# Most of what happens to a run is no end of it.
EVENTS = st.sampled_from(
    [transitions.Progressed()] * 4
    + [transitions.LetGo(wake_at_ms) for wake_at_ms in (None, NOW_MS, NOW_MS, NOW_MS, NOW_MS + 60_000)]
    + [transitions.RunRaised(a_failure(step="charge#1")), transitions.RunRaised(a_failure())]
    + [
        transitions.RunReturned(a_value("done")),
        transitions.CancelledItself(),
        transitions.Stuck("replay_diverged", "why"),
    ]
)


class Life(RuleBasedStateMachine):
    """Workers act on the row that they hold, however stale. `term` counts, beside the store, who may still write."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ModelStore()
        self.now_ms = NOW_MS
        self.held: dict[tuple[str, str], tuple[Run, int]] = {}  # (worker, run) -> its row, and the term it took it in
        self.term: dict[str, int] = {}
        self.asked: list[tuple[Change, int]] = []  # by people, with the term they saw
        self.last: tuple[Change, int] | None = None  # the last change that was made, and the term it led to
        self.journals: dict[str, tuple[Entry, ...]] = {}
        self.may_run: set[str] = set()

    @initialize(handed=st.booleans(), delay_ms=st.sampled_from([0, 5_000]))
    def admit(self, *, handed: bool, delay_ms: int) -> None:
        for run_id in ("run-1", "run-2"):
            wish = wanted(run_id, key=f"key of {run_id}", delay_ms=delay_ms)
            change = admission(wish, now_ms=self.now_ms, hand=a_hand("w-1") if handed else None)
            answer = self.store.commit(change)
            assert isinstance(answer, Committed)
            self.term[run_id] = 1
            self.may_run.add(run_id)
            if answer.run is not None and answer.run.owner is not None:
                self.held["w-1", run_id] = (answer.run, 1)

    @rule(ms=st.integers(1, 50_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(worker=WORKERS, run_id=RUNS)
    def claim(self, worker: str, run_id: str) -> None:
        """Every claim of a worker has the same nonce here: the epoch alone must part them."""
        before = self.store.runs[run_id]
        run = self.store.claim(run_id, owner=worker, nonce=worker, now_ms=self.now_ms)
        if run is None:
            return
        assert before.status in {Status.PENDING, Status.WAITING}
        assert run_id in self.may_run, "it had ended or was blocked, and nobody has retried it"
        self.term[run_id] += 1
        self.held[worker, run_id] = (run, self.term[run_id])

    @rule(worker=WORKERS, run_id=RUNS, event=EVENTS, steps=st.lists(STEPS, max_size=2), failed=st.booleans())
    def act(self, worker: str, run_id: str, event: transitions.Event, steps: list[str], *, failed: bool) -> None:
        """A worker, perhaps one that lost the run long ago, writes what it thinks has become of it."""
        row, term = self.held.get((worker, run_id), (None, 0))
        if row is None or row.status is not Status.RUNNING:
            self.claim(worker, run_id)
            row, term = self.held.get((worker, run_id), (None, 0))
        if row is None or row.status is not Status.RUNNING:
            return
        entries = tuple(gave_up(step) if failed else performed(step) for step in steps)
        if isinstance(event, transitions.Progressed) and not entries:
            return  # nothing to commit
        change = transitions.decide(row, event, recorded=transitions.Recorded(entries), now_ms=self.now_ms)
        before = self.store.runs[run_id]
        answer = self.store.commit(change)
        if term != self.term[run_id]:
            assert answer == Refused(before), "a stale fence has written"
            assert self.store.runs[run_id] == before
            del self.held[worker, run_id]
            return
        assert isinstance(answer, Committed)
        assert answer.run is not None
        self.held[worker, run_id] = (answer.run, term)
        self.last = (change, term)
        if answer.run.status in ENDED | {Status.BLOCKED}:
            self.may_run.discard(run_id)

    @precondition(lambda self: self.last is not None)
    @rule()
    def offer_again(self) -> None:
        """The reply was lost, and time may have passed: nothing is written, and whoever lost the run can tell."""
        assert self.last is not None
        change, term = self.last
        assert change.run is not None
        before = (dict(self.store.runs), dict(self.store.journals))
        answer = self.store.commit(change)
        assert (self.store.runs, self.store.journals) == before
        if term == self.term[change.run.id]:
            assert answer == Committed(self.store.runs[change.run.id])
        elif isinstance(answer, Committed):
            assert answer.run is not None
            assert answer.run.fence != change.run.fence

    @rule(run_id=RUNS)
    def rescue(self, run_id: str) -> None:
        """The owner's lease has expired; it does not know yet."""
        if self.store.runs[run_id].owner is not None:
            self.store.rescue(run_id, now_ms=self.now_ms)
            self.term[run_id] += 1

    @rule(run_id=RUNS, verb=st.sampled_from(["retry", "resume", "stop"]), late=st.booleans())
    def ask(self, run_id: str, verb: str, *, late: bool) -> None:
        """A person wants to move the run; the store is asked later, perhaps after another person or its owner."""
        run, journal = self.store.runs[run_id], self.store.journals[run_id]
        allowed = {
            "retry": {Status.FAILED, Status.BLOCKED},
            "resume": {Status.CANCELLED},
            "stop": set(Status) - ENDED,
        }[verb]
        try:
            match verb:
                case "retry":
                    change = transitions.retry(run, journal, now_ms=self.now_ms)
                case "resume":
                    change = transitions.resume(run, journal, now_ms=self.now_ms)
                case _ if run.status in ENDED:
                    return
                case _:
                    change = transitions.stop(
                        run, journal, reason="", late=late, recorded=transitions.NOTHING, now_ms=self.now_ms
                    )
        except NotAllowedNow:
            assert run.status not in allowed or verb == "resume"
        else:
            assert run.status in allowed
            self.asked.append((change, self.term[run_id]))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def grant(self, data: Any) -> None:
        """What was asked for reaches the store."""
        change, term = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        assert change.run is not None
        run_id, before = change.run.id, self.store.runs[change.run.id]
        moved = before.fence != change.guard or before.length != change.run.length - len(change.entries)
        answer = self.store.commit(change)
        if not isinstance(answer, Committed):
            assert moved or term != self.term[run_id]
        elif self.store.runs[run_id] != before:
            assert term == self.term[run_id], "what was decided on an older row has been written"
            self.term[run_id] += 1
            self.last = (change, self.term[run_id])
            (self.may_run.add if change.run.status is Status.PENDING else self.may_run.discard)(run_id)
        # Else two people have asked for the same at the same moment: then it is one decision.

    @invariant()
    def the_journal_only_grows(self) -> None:
        for run_id, journal in self.store.journals.items():
            before = self.journals.get(run_id, ())
            assert journal[: len(before)] == before
            self.journals[run_id] = journal
            assert self.store.runs[run_id].length == len(journal)

    @invariant()
    def a_run_has_an_owner_exactly_while_it_runs(self) -> None:
        for run in self.store.runs.values():
            assert (run.owner is not None) is (run.status is Status.RUNNING)
            owners = [key for key, (_, term) in self.held.items() if key[1] == run.id and term == self.term[run.id]]
            assert len(owners) <= 1

    @invariant()
    def what_has_ended_or_is_blocked_never_wakes_by_itself(self) -> None:
        for run in self.store.runs.values():
            if run.status in ENDED | {Status.BLOCKED}:
                assert run.wake_at_ms is None
            assert (run.finished_at_ms is not None) is (run.status in ENDED)
            assert (run.expires_at_ms is not None) is (run.status in ENDED)


TestLife = Life.TestCase
