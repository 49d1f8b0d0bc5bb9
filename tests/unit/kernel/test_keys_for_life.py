"""The owner of a key while it is superseded, signalled and released: `kernel.starts` over a store that has guards."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct
from msgspec.structs import replace

from holdfast.kernel import hooks, starts, transitions
from holdfast.kernel.changes import Alive, Change, Committed, KeyFree, KeyHeldBy, Refused
from holdfast.kernel.journal import Started
from holdfast.kernel.messages import CancelRequest, Envelope, KeyTaken, SignalMessage
from holdfast.kernel.runs import ENDED, Run, Status
from holdfast.kernel.starts import Again, Mine, Mismatch, Overtook, Tell, Theirs, Wanted
from tests.builders import NOW_MS, a_failure, a_value, wanted
from tests.unit.kernel.model import ModelStore

RETENTION_MS = 10_000
KEYS = ("a", "b")
OF_KEYS = st.sampled_from(["a", "a", "a", "b"])
INPUTS = st.sampled_from([1, 1, 1, 2])
STEPS = st.sampled_from([1, 1, 3, 0])  # how far a call goes before something else happens
Received = tuple[str, str]  # scope and id of a signal


class WatchedStore(ModelStore):
    """A store that checks, whenever a signal to a key is delivered, whom it is delivered to."""

    def deliver(self, envelopes: tuple[Envelope, ...]) -> None:
        for envelope in envelopes:
            if isinstance(envelope.message, SignalMessage):
                run = self.runs[envelope.run_id]
                assert run.holds_key, "a signal went to a run that does not own the key"
                assert run.status not in ENDED, "a signal went to a run that has ended"
        super().deliver(envelopes)


class Call(Struct):
    """A start under way: what it wants, and what it offers next."""

    wish: Wanted
    guard: KeyFree | KeyHeldBy
    tell: Change | None = None


class KeysForLife(RuleBasedStateMachine):
    """Callers interleave freely: each offer, each delivery to an owner and each end of a run is a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.store = WatchedStore()
        self.now_ms = NOW_MS
        self.calls: list[Call] = []
        self.releases: list[Change] = []
        self.minted = 0
        self.owned: set[str] = set()  # keys that must have an owner at this instant
        self.acknowledged: set[Received] = set()  # signals whose senders were told that all is well
        self.unheard: dict[str, list[SignalMessage]] = {}  # recorded, and not taken by the code yet
        self.taken: dict[Received, str] = {}  # by the code of which run

    # -- callers

    @rule(key=OF_KEYS, input=INPUTS, dedupe=st.sampled_from([None, "d-1", "d-2"]), steps=STEPS)
    def signal_or_start(self, key: str, input: int, dedupe: str | None, steps: int) -> None:
        self._begin(key, input, steps, signal=self._a_signal(dedupe))

    @rule(key=OF_KEYS, input=INPUTS, steps=STEPS)
    def start(self, key: str, input: int, steps: int) -> None:
        self._begin(key, input, steps)

    @precondition(lambda self: self.store.runs)
    @rule(data=st.data(), input=INPUTS, with_signal=st.booleans(), steps=STEPS)
    def supersede(self, data: Any, input: int, steps: int, *, with_signal: bool) -> None:
        """Of whomever the caller has seen last: most often the owner, sometimes one that is long gone."""
        run = data.draw(st.sampled_from(sorted(self.store.runs.values(), key=lambda run: (not run.holds_key, run.id))))
        signal = self._a_signal(None) if with_signal else None
        self._begin(run.key or "", input, steps, replaces=run.id, signal=signal)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), steps=STEPS)
    def a_caller_begins_anew(self, data: Any, steps: int) -> None:
        """It has lost the reply, or died: another run id, the same request and the same signal."""
        wish = data.draw(st.sampled_from(self.calls)).wish
        self.minted += 1
        self._walk(replace(wish, run_id=f"run-{self.minted:03}"), steps)

    def _a_signal(self, dedupe: str | None) -> SignalMessage:
        return hooks.signal("items", b"1", dedupe=dedupe, nonce=f"n-{self.minted}", by_key=True)

    def _begin(self, key: str, input: int, steps: int, **fields: Any) -> None:
        """A call that goes so far at once, and then stands still until it is its turn again."""
        self.minted += 1
        run_id = f"run-{self.minted:03}"
        self._walk(wanted(run_id, key=key, input=input, retention_ms=RETENTION_MS, **fields), steps)

    def _walk(self, wish: Wanted, steps: int) -> None:
        call = Call(wish, starts.first_guard(wish))
        self.calls.append(call)
        for _ in range(steps):
            if call in self.calls:
                self._go_on(call, reply_lost=False)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), reply_lost=st.sampled_from([False, False, False, True]))
    def a_call_goes_on(self, data: Any, *, reply_lost: bool) -> None:
        self._go_on(data.draw(st.sampled_from(self.calls)), reply_lost=reply_lost)

    def _go_on(self, call: Call, *, reply_lost: bool) -> None:
        run = self._told(call) if call.tell is not None else self._offered(call)
        if run is None or reply_lost:
            return
        self.calls.remove(call)
        assert run.key == call.wish.key
        if call.wish.signal is not None:
            self.acknowledged.add((call.wish.scope, call.wish.signal.id))

    def _told(self, call: Call) -> Run | None:
        assert call.tell is not None
        answer = self.store.commit(call.tell)
        if isinstance(answer, Committed):
            return answer.run
        call.tell, call.guard = None, KeyFree()  # it has ended, or lost its key: look again
        return None

    def _offered(self, call: Call) -> Run | None:
        wish = call.wish
        was_there, holder = wish.run_id in self.store.runs, self.store.holder_of(wish.key)
        answer = self.store.commit(starts.admission(wish, now_ms=self.now_ms, hand=None, guard=call.guard))
        if isinstance(answer, Committed):
            if wish.run_id in self.store.runs and not was_there:
                self._admitted(wish, holder)
            return answer.run
        assert answer.current == holder, "refused, and not by the owner"
        match starts.resolve(wish, answer.current, now_ms=self.now_ms):
            case Again(guard):
                call.guard = guard
            case Tell(change):
                assert wish.replaces is None
                call.tell = change
            case Mine(run) | Theirs(run):
                assert run.digest == wish.digest
                assert (run.request_id == wish.request_id) or (wish.signal is None and wish.replaces is None)
                return run
            case Mismatch(run):
                assert run.digest != wish.digest
                assert wish.replaces is None
                self.calls.remove(call)
            case Overtook(run):
                assert run.holds_key
                assert run.id != wish.replaces
                assert (run.request_id, run.digest) != (wish.request_id, wish.digest), "overtaken by itself"
                self.calls.remove(call)
        return None

    def _admitted(self, wish: Wanted, holder: Run | None) -> None:
        owner = self.store.holder_of(wish.key)
        assert owner is not None
        assert owner.id == wish.run_id
        self.owned.add(wish.key or "")
        if holder is None or holder.id == wish.replaces:
            return
        assert holder.expires_at_ms is not None, "a key was taken from a run that has not ended"
        assert holder.expires_at_ms <= self.now_ms or wish.signal is not None, "a key was taken before its time"

    # -- operators

    @precondition(lambda self: self.store.runs)
    @rule(data=st.data())
    def ask_for_the_release_of_a_key(self, data: Any) -> None:
        run = self.store.runs[data.draw(st.sampled_from(sorted(self.store.runs)))]
        if run.holds_key:
            nonce = f"n-{len(self.releases)}-{self.minted}"
            self.releases.append(transitions.release_key(run, reason="", nonce=nonce, now_ms=self.now_ms))

    @precondition(lambda self: self._failed_owners())
    @rule(data=st.data(), order=st.permutations(["call", "call", "retry"]), replaces=st.booleans())
    def a_retry_meets_a_takeover(self, data: Any, order: list[str], *, replaces: bool) -> None:
        """Both have seen the same failed owner; whoever comes first is right."""
        run = data.draw(st.sampled_from(self._failed_owners()))
        retry = transitions.retry(run, self.store.journals[run.id], now_ms=self.now_ms)
        if replaces:
            self._begin(run.key or "", 1, 0, replaces=run.id)
        else:
            self._begin(run.key or "", 1, 0, signal=self._a_signal(None))
        call = self.calls[-1]
        for whose in order:
            if whose == "retry":
                self.store.commit(retry)
            elif call in self.calls:
                self._go_on(call, reply_lost=False)

    def _failed_owners(self) -> list[Run]:
        return [run for run in self.store.runs.values() if run.status is Status.FAILED and run.holds_key]

    @precondition(lambda self: self.releases)
    @rule()
    def release_a_key(self) -> None:
        """It was asked for earlier; the key may have gone to another run since."""
        change = self.releases.pop()
        run_id = change.guard.run_id if isinstance(change.guard, Alive) else change.run.id if change.run else ""
        run = self.store.runs.get(run_id)
        answer = self.store.commit(change)
        if run is not None and run.holds_key and isinstance(answer, Committed):
            assert not self.store.runs[run_id].holds_key
            self.owned.discard(run.key or "")

    # -- the runs

    @precondition(lambda self: self.store.runs)
    @rule(data=st.data(), how=st.sampled_from(["take", "take", "return", "return", "raise", "let go", "cancel"]))
    def a_run_goes_on(self, data: Any, how: str) -> None:
        run = self.store.runs[data.draw(st.sampled_from(sorted(self.store.runs)))]
        if run.status is not Status.RUNNING:
            claimed = self.store.claim(run.id, owner="w-1", nonce="n", now_ms=self.now_ms)
            if claimed is None:
                return
            run = claimed
        unheard, unread = self.unheard.setdefault(run.id, []), self.store.unread_of(run.id)
        match how:
            case "take":
                self._takes(run, unheard, unread)
            case "let go":
                self._commit(run, transitions.LetGo(None))
            case "return":
                self._returns(run, unheard, unread)
            case _:
                event = transitions.RunRaised(a_failure()) if how == "raise" else transitions.CancelledItself()
                if unread:  # it must not end over them
                    assert self.store.commit(transitions.decide(run, event, now_ms=self.now_ms)) == Refused(run)
                self._commit(run, event, read=tuple(message.id for message in unread))
                unheard.clear()

    def _takes(self, run: Run, unheard: list[SignalMessage], unread: list[Any]) -> None:
        """The engine records what has come; the code takes the first of it."""
        if unread:
            self._commit(run, transitions.Progressed(), read=tuple(message.id for message in unread))
            unheard += [message for message in unread if isinstance(message, SignalMessage)]
        if unheard:
            signal = unheard.pop(0)
            received = (hooks.key_scope(run.namespace, run.workflow, run.key or ""), signal.id)
            assert received not in self.taken, "a signal was taken twice"
            self.taken[received] = run.id

    def _returns(self, run: Run, unheard: list[SignalMessage], unread: list[Any]) -> None:
        first = self.store.journals[run.id][0]
        assert isinstance(first, Started)
        moves = tuple(message.id for message in unread if isinstance(message, SignalMessage))
        event = transitions.RunReturned(a_value(), first, tuple(unheard), moves)
        before = set(self.store.runs)
        self._commit(run, event, read=tuple(message.id for message in unread if message.id not in moves))
        if (unheard or moves) and self.store.runs[run.id].holds_key:
            raise AssertionError("it has ended over signals, and keeps the key")
        for run_id in set(self.store.runs) - before:
            self.owned.add(self.store.runs[run_id].key or "")
        unheard.clear()

    def _commit(self, run: Run, event: transitions.Event, *, read: tuple[str, ...] = ()) -> None:
        entries = tuple(Started(self.now_ms, a_value()) for _ in read)  # any entry: they make each change another one
        change = transitions.decide(run, event, recorded=transitions.Recorded(entries, read=read), now_ms=self.now_ms)
        assert isinstance(self.store.commit(change), Committed)

    # -- time

    @rule(ms=st.sampled_from([1, RETENTION_MS]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def prune(self) -> None:
        before = dict(self.store.runs)
        self.store.prune(now_ms=self.now_ms)
        gone = {run.id: run for run in before.values() if run.id not in self.store.runs}
        self.owned -= {run.key or "" for run in gone.values() if run.holds_key}
        # A dedupe id is remembered as long as the run that received it.
        self.acknowledged = {received for received in self.acknowledged if received in self.store.scopes}
        self.taken = {received: run_id for received, run_id in self.taken.items() if run_id not in gone}

    # -- always

    @invariant()
    def a_key_has_one_owner_at_most(self) -> None:
        for key in KEYS:
            assert sum(run.holds_key for run in self.store.runs.values() if run.key == key) <= 1

    @invariant()
    def a_key_is_never_without_an_owner_unless_it_was_released_or_is_over(self) -> None:
        """K7: not for an instant while it is superseded."""
        assert {key for key in KEYS if self.store.holder_of(key) is not None} == self.owned

    @invariant()
    def a_live_run_without_its_key_has_been_told(self) -> None:
        for run in self.store.runs.values():
            if run.status not in ENDED and not run.holds_key:
                told = [name for name in self.store.inbox(run.id) if name.startswith(("superseded/", "key_taken/"))]
                assert told, run

    @invariant()
    def every_signal_is_received_exactly_once(self) -> None:
        """K8: never lost, never twice."""
        found = [
            (scope, message_id)
            for scope, message_id in self.store.scopes
            for run_id in self.store.runs
            if message_id in self.store.inbox(run_id) and scope.endswith(f"/{self.store.runs[run_id].key}")
        ]
        assert len(found) == len(set(found))
        assert self.acknowledged <= set(found)

    @invariant()
    def nothing_is_unread_in_a_run_that_has_ended(self) -> None:
        for run in self.store.runs.values():
            unread = self.store.unread_of(run.id)
            assert run.unread == len(unread)
            assert not unread or run.status not in ENDED
            assert all(isinstance(message, SignalMessage | CancelRequest | KeyTaken) for message in unread)


TestKeysForLife = KeysForLife.TestCase
