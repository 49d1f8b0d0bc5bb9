"""The lifecycle of a key, over `kernel.starts` and a store that only checks guards."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct
from msgspec.structs import replace

from holdfast.kernel import transitions
from holdfast.kernel.changes import Change, Committed, KeyFree, KeyHeldBy
from holdfast.kernel.runs import ENDED, Run, Status
from holdfast.kernel.starts import Again, Mine, Mismatch, Theirs, Wanted, admission, resolve
from tests.builders import NOW_MS, a_failure, a_hand, a_value, wanted
from tests.unit.kernel.model import ModelStore

RETENTION_MS = 10_000


class Start(Struct):
    """A start under way: what it wants, and the guard that its next offer has."""

    wish: Wanted
    guard: KeyFree | KeyHeldBy
    offers: int = 0


class Admissions(RuleBasedStateMachine):
    """Starts interleave freely: each offer, each reading of its answer and each end of a run is a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ModelStore()
        self.now_ms = NOW_MS
        self.starts: list[Start] = []
        self.retries: list[Change] = []
        self.requests = 0
        self.minted = 0
        self.created: dict[str, str] = {}  # request -> the run that was created for it
        self.expiry: dict[str, int | None] = {}

    # -- callers

    @rule(key=st.sampled_from(["a", "a", "b", None]), input=st.sampled_from([1, 2]))
    def start(self, key: str | None, input: int) -> None:
        self.requests += 1
        self._begin(f"request-{self.requests}", key, input)

    @precondition(lambda self: self.starts)
    @rule(data=st.data())
    def start_again_with_the_same_request(self, data: Any) -> None:
        """The caller lost the reply, or died and begins anew: another run id, the same request id."""
        wish = data.draw(st.sampled_from(self.starts)).wish
        self.minted += 1
        again = replace(wish, run_id=f"run-{self.minted}")
        self.starts.append(Start(again, KeyFree()))

    @precondition(lambda self: any(run.expires_at_ms is not None for run in self.store.runs.values()))
    @rule(data=st.data())
    def start_when_the_holder_is_over(self, data: Any) -> None:
        """A takeover in one step, or hardly any example would come so far."""
        over = [run for run in self.store.runs.values() if run.expires_at_ms is not None and run.key and run.holds_key]
        if not over:
            return
        run = data.draw(st.sampled_from(sorted(over, key=lambda run: run.id)))
        assert run.expires_at_ms is not None
        self.now_ms = max(self.now_ms, run.expires_at_ms)
        self.start(run.key, 1)
        start = self.starts[-1]
        for _ in range(2):
            change = admission(start.wish, now_ms=self.now_ms, hand=None, guard=start.guard)
            holder = self.store.holder_of(run.key)
            answer = self.store.commit(change)
            if isinstance(answer, Committed):
                self._created(start.wish, holder)
                self.starts.remove(start)
                return
            again = resolve(start.wish, answer.current, now_ms=self.now_ms)
            assert isinstance(again, Again)
            start.guard = again.guard
        raise AssertionError("the key was never free")

    def _begin(self, request_id: str, key: str | None, input: int) -> None:
        self.minted += 1
        wish = wanted(f"run-{self.minted}", key=key, input=input, request_id=request_id, retention_ms=RETENTION_MS)
        self.starts.append(Start(wish, KeyFree()))

    @precondition(lambda self: self.starts)
    @rule(data=st.data(), handed=st.booleans(), reply_lost=st.booleans())
    def offer(self, data: Any, *, handed: bool, reply_lost: bool) -> None:
        start = data.draw(st.sampled_from(self.starts))
        wish = start.wish
        hand = a_hand("w-1") if handed else None
        change = admission(wish, now_ms=self.now_ms, hand=hand, guard=start.guard)
        was_there = wish.run_id in self.store.runs
        holder = self.store.holder_of(wish.key) if wish.key else None
        answer = self.store.commit(change)
        start.offers += 1
        if isinstance(answer, Committed):
            if not was_there:
                self._created(wish, holder)
            assert answer.run is not None
            if not reply_lost:
                self.starts.remove(start)
                self._answered(wish, answer.run, created=True)
            return
        assert answer.current == holder, "refused, and not by the holder"
        match resolve(wish, answer.current, now_ms=self.now_ms):
            case Again(guard):
                start.guard = guard
            case Mine(run):
                self.starts.remove(start)
                self._answered(wish, run, created=True)
            case Theirs(run):
                self.starts.remove(start)
                self._answered(wish, run, created=False)
            case Mismatch(run):
                self.starts.remove(start)
                assert run.digest != wish.digest
            case other:
                raise AssertionError(other)

    def _created(self, wish: Wanted, holder: Run | None) -> None:
        if holder is not None:
            assert holder.status in ENDED, "a key was taken from a run that has not ended"
            assert holder.expires_at_ms is not None
            assert holder.expires_at_ms <= self.now_ms, "a key was taken before its retention was over"
        before = self.created.get(wish.request_id)  # unless it was over and removed since
        if wish.key is not None and before in self.store.runs and before != wish.run_id:
            assert not self.store.runs[before].holds_key, "one request has created two runs"
        self.created[wish.request_id] = wish.run_id

    def _answered(self, wish: Wanted, run: Run, *, created: bool) -> None:
        assert (run.key, run.digest) == (wish.key, wish.digest), "answered with another's run"
        assert created is (run.request_id == wish.request_id)

    # -- the world

    @rule(ms=st.sampled_from([1, RETENTION_MS - 1, RETENTION_MS]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @precondition(lambda self: self.store.runs)
    @rule(data=st.data(), how=st.sampled_from(["return", "raise", "raise", "block", "cancel"]))
    def a_run_goes_on(self, data: Any, how: str) -> None:
        run = self.store.runs[data.draw(st.sampled_from(sorted(self.store.runs)))]
        if run.status is not Status.RUNNING:
            claimed = self.store.claim(run.id, owner="w-2", nonce="n", now_ms=self.now_ms)
            if claimed is None:
                return
            run = claimed
        event = {
            "return": transitions.RunReturned(a_value()),
            "raise": transitions.RunRaised(a_failure()),
            "block": transitions.Stuck("a", "b"),
            "cancel": transitions.CancelledItself(),
        }[how]
        assert isinstance(self.store.commit(transitions.decide(run, event, now_ms=self.now_ms)), Committed)

    @precondition(lambda self: any(run.status in {Status.FAILED, Status.BLOCKED} for run in self.store.runs.values()))
    @rule(data=st.data())
    def ask_for_a_retry(self, data: Any) -> None:
        able = [run for run in self.store.runs.values() if run.status in {Status.FAILED, Status.BLOCKED}]
        run = data.draw(st.sampled_from(sorted(able, key=lambda run: run.id)))
        if run.holds_key or run.key is None:
            self.retries.append(transitions.retry(run, self.store.journals[run.id], now_ms=self.now_ms))

    @precondition(lambda self: self.retries)
    @rule()
    def retry(self) -> None:
        """It was decided earlier; the key may have gone to another run since."""
        change = self.retries.pop()
        assert change.run is not None
        if change.run.id in self.store.runs:
            self.store.commit(change)

    @rule()
    def prune(self) -> None:
        alive = {
            run.id for run in self.store.runs.values() if run.expires_at_ms is None or run.expires_at_ms > self.now_ms
        }
        self.store.prune(now_ms=self.now_ms)
        assert set(self.store.runs) == alive

    # -- always

    @invariant()
    def a_key_has_one_live_run_at_most(self) -> None:
        for key in ("a", "b"):
            of_key = [run for run in self.store.runs.values() if run.key == key]
            assert sum(run.holds_key for run in of_key) <= 1
            assert sum(run.status not in ENDED for run in of_key) <= 1
            for run in of_key:
                assert run.holds_key or run.status in ENDED

    @invariant()
    def a_key_never_expires_while_its_run_has_not_ended(self) -> None:
        for run in self.store.runs.values():
            assert (run.expires_at_ms is None) is (run.status not in ENDED)
            if run.expires_at_ms is not None and run.finished_at_ms is not None:
                assert run.expires_at_ms - run.finished_at_ms == RETENTION_MS


TestAdmissions = Admissions.TestCase
