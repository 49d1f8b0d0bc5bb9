from __future__ import annotations

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.errors import NotAllowedNow
from holdfast.kernel import tasks
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.journal import Resumed, Retried
from holdfast.kernel.tasks import (
    ASIDE_MS,
    DONE_KEPT_MS,
    HEARD_KEPT_MS,
    OPEN_KEPT_MS,
    Done,
    LookAgain,
    NoOutcome,
    Offered,
    Task,
    TaskBeat,
    TaskClaim,
    TaskClaimed,
    TaskOutcome,
    TaskPlace,
    TaskRaised,
    TaskReturned,
    TaskState,
    Withdrawn,
)
from tests.builders import NOW_MS, a_run, attempted, performed, with_journal

PLACE = TaskPlace("default", "shop.charge", "t-1")
TASK = Task("run-1", "charge:o-1", 1, '{"order":"o-1"}')
ONCE = msgspec.structs.replace(TASK, once=True)
DEADLINE_MS = NOW_MS + 10_000
DUE = msgspec.structs.replace(TASK, deadline_at_ms=DEADLINE_MS)
LEASE_MS = 30_000
FENCE = NOW_MS + 7
CLAIMED = TaskClaimed("w-1", "n-1", FENCE, LEASE_MS, NOW_MS, NOW_MS + LEASE_MS)
UNWANTED = msgspec.structs.replace(CLAIMED, wanted=False)
PAID = TaskReturned('"paid"')
DONE = Done("w-1", FENCE, PAID)
BY = TaskClaim("w-2", "n-2", LEASE_MS)


def stored(state: TaskState, *, task: Task = TASK) -> Document:
    """The task in this state, as the store has it."""
    return Document(
        "default", "task/shop.charge", "t-1", FENCE, msgspec.json.encode(msgspec.structs.replace(task, state=state))
    )


def state_after(writing: Writing | None) -> TaskState | None:
    """What the task becomes; None if it stays as it is. What is written replaces what was read."""
    if writing is None:
        return None
    assert writing.replaces == FENCE
    assert writing.document.version > FENCE
    return tasks.task_of(writing.document).state


# -- names


def test_a_task_is_named_by_its_effect_and_its_id():
    assert PLACE.name == "shop.charge.t-1"
    assert tasks.place_named("default", PLACE.name) == PLACE
    assert tasks.place_of(stored(CLAIMED)) == PLACE
    assert PLACE.kind == tasks.kind_of("shop.charge") == "task/shop.charge"


def id_of(*entries, step="charge#1", attempt=1, run_id="run-1", first=0):
    _, journal = with_journal(a_run(), *entries, first=first)
    return tasks.id_of(run_id, journal, step, attempt, first=first)


def test_whoever_holds_the_run_gives_the_attempt_the_same_name():
    assert id_of() == id_of(performed("ship#1"))


def test_another_step_attempt_run_or_generation_is_another_task():
    names = {id_of(), id_of(step="charge#2"), id_of(attempt=2), id_of(run_id="run-2"), id_of(attempted(), first=5)}
    assert len(names) == 5


@pytest.mark.parametrize("why", [Retried(NOW_MS, (1,)), Resumed(NOW_MS, (1,))])
def test_a_step_whose_records_were_voided_is_another_task_and_its_neighbours_are_not(why):
    assert id_of(attempted(), why) != id_of(attempted())
    assert id_of(attempted(), why, step="ship#1") == id_of(attempted(), step="ship#1")


# -- the run's side


@pytest.mark.parametrize(
    ("now", "in_doubt", "becomes"),
    [
        (Offered(), False, None),
        (CLAIMED, False, None),
        (CLAIMED, True, None),
        (DONE, False, None),
        (DONE, True, None),
        (UNWANTED, False, CLAIMED),  # somebody wants it again
        (UNWANTED, True, CLAIMED),
        (Withdrawn(), False, Offered()),
        (Withdrawn(), True, Offered()),  # nobody can have begun it
        (Withdrawn(FENCE), False, Offered(FENCE)),
        (Withdrawn(FENCE), True, None),  # somebody may have: it is not put up again
    ],
)
def test_a_task_that_is_out_is_joined(now, in_doubt, becomes):
    assert state_after(tasks.offer(stored(now), PLACE, TASK, in_doubt=in_doubt, now_ms=NOW_MS)) == becomes


def test_a_task_that_is_not_there_is_put_up_for_all_to_claim():
    writing = tasks.offer(None, PLACE, TASK, in_doubt=False, now_ms=NOW_MS)
    assert isinstance(writing, Writing)
    assert writing.replaces is None
    assert writing.document == Document(
        "default", "task/shop.charge", "t-1", NOW_MS, msgspec.json.encode(TASK), NOW_MS, NOW_MS + OPEN_KEPT_MS
    )
    assert tasks.task_of(writing.document) == TASK


def test_a_task_that_must_happen_once_and_is_not_there_is_not_put_up():
    assert tasks.offer(None, PLACE, TASK, in_doubt=True, now_ms=NOW_MS) is None


@pytest.mark.parametrize(
    ("now", "in_doubt", "becomes"),
    [
        (None, False, NoOutcome(begun=False, dropped=False)),
        (None, True, None),  # it may have been put up and be gone since
        (Offered(), False, None),  # it is out: whoever looks at it next withdraws it
        (CLAIMED, False, None),
        (UNWANTED, False, CLAIMED),  # a worker is at it: what comes of it is wanted
        (DONE, False, None),
        (Withdrawn(), False, None),
        (Withdrawn(), True, None),
        (Withdrawn(FENCE), False, None),
    ],
)
@pytest.mark.parametrize("past_ms", [0, 1])
def test_after_its_deadline_a_task_is_not_put_up(now, in_doubt, becomes, past_ms):
    current = None if now is None else stored(now, task=DUE)
    answer = tasks.offer(current, PLACE, DUE, in_doubt=in_doubt, now_ms=DEADLINE_MS + past_ms)
    assert (answer if isinstance(answer, NoOutcome) else state_after(answer)) == becomes


def test_before_its_deadline_a_task_is_put_up_and_claimed_as_any_other():
    put_up = tasks.offer(None, PLACE, DUE, in_doubt=False, now_ms=DEADLINE_MS - 1)
    assert isinstance(put_up, Writing)
    assert tasks.task_of(put_up.document) == DUE
    again = tasks.offer(stored(Withdrawn(), task=DUE), PLACE, DUE, in_doubt=False, now_ms=DEADLINE_MS - 1)
    assert isinstance(again, Writing)
    claimed = tasks.claim(put_up.document, BY, run_lives=True, now_ms=DEADLINE_MS - 1)
    assert claimed is not None
    assert isinstance(tasks.task_of(claimed.document).state, TaskClaimed)


@pytest.mark.parametrize(
    ("now", "becomes"), [(Offered(), Withdrawn()), (CLAIMED, Withdrawn(FENCE)), (DONE, None), (Withdrawn(), None)]
)
def test_after_its_deadline_a_task_is_claimed_by_no_worker(now, becomes):
    """Also if the process that had put it up has died since: then no other looks at the clock."""
    now_ms = max(DEADLINE_MS, NOW_MS + LEASE_MS)
    assert state_after(tasks.claim(stored(now, task=DUE), BY, run_lives=True, now_ms=now_ms)) == becomes


def looked(now: TaskState | None, *, task=TASK, wanted=True, timeout_ms=None, deadline_at_ms=None, now_ms=NOW_MS):
    current = None if now is None else stored(now, task=task)
    answer = tasks.look(current, wanted=wanted, timeout_ms=timeout_ms, deadline_at_ms=deadline_at_ms, now_ms=now_ms)
    return state_after(answer) if isinstance(answer, Writing) else answer


AT_LAST = NOW_MS + LEASE_MS


@pytest.mark.parametrize(
    ("now", "given", "answer"),
    [
        (None, {}, NoOutcome(begun=True, dropped=False)),
        (None, {"wanted": False}, NoOutcome(begun=True, dropped=True)),
        (DONE, {}, PAID),
        (DONE, {"wanted": False}, PAID),
        (Withdrawn(), {}, NoOutcome(begun=False, dropped=False)),
        (Withdrawn(FENCE), {"wanted": False}, NoOutcome(begun=True, dropped=True)),
        # nobody has claimed it: its timeout does not count, the deadline does
        (Offered(), {}, LookAgain(None)),
        (Offered(), {"timeout_ms": 0}, LookAgain(None)),
        (Offered(), {"deadline_at_ms": NOW_MS + 1}, LookAgain(NOW_MS + 1)),
        (Offered(), {"deadline_at_ms": NOW_MS}, Withdrawn()),
        (Offered(), {"wanted": False}, Withdrawn()),
        (Offered(FENCE), {"wanted": False}, Withdrawn(FENCE)),  # an earlier claim may have begun it
        # claimed: whichever ends first
        (CLAIMED, {}, LookAgain(None)),
        (CLAIMED, {"timeout_ms": 5}, LookAgain(NOW_MS + 5)),
        (CLAIMED, {"deadline_at_ms": NOW_MS + 9}, LookAgain(NOW_MS + 9)),
        (CLAIMED, {"timeout_ms": 5, "deadline_at_ms": NOW_MS + 9}, LookAgain(NOW_MS + 5)),
        (CLAIMED, {"timeout_ms": 5, "now_ms": NOW_MS + 5}, Withdrawn(FENCE)),
        (CLAIMED, {"deadline_at_ms": NOW_MS}, Withdrawn(FENCE)),
        (CLAIMED, {"now_ms": AT_LAST}, LookAgain(None)),  # somebody else will claim it
        # dropped: the worker has the rest of its lease
        (CLAIMED, {"wanted": False}, UNWANTED),
        (UNWANTED, {"wanted": False}, LookAgain(AT_LAST)),
        (UNWANTED, {"wanted": False, "now_ms": AT_LAST}, Withdrawn(FENCE)),
        (CLAIMED, {"wanted": False, "now_ms": AT_LAST}, Withdrawn(FENCE)),
    ],
)
def test_what_follows_for_the_run_that_waits(now, given, answer):
    assert looked(now, **given) == answer


@pytest.mark.parametrize(
    ("now", "given", "answer"),
    [
        (Offered(), {}, LookAgain(None)),
        (CLAIMED, {}, LookAgain(AT_LAST)),  # nobody else claims it: there will be no other end
        (CLAIMED, {"timeout_ms": 5}, LookAgain(NOW_MS + 5)),
        (CLAIMED, {"deadline_at_ms": AT_LAST + 1}, LookAgain(AT_LAST)),
        (CLAIMED, {"now_ms": AT_LAST - 1}, LookAgain(AT_LAST)),
        (CLAIMED, {"now_ms": AT_LAST}, Withdrawn(FENCE)),
        (Withdrawn(FENCE), {}, NoOutcome(begun=True, dropped=False)),
        (DONE, {"now_ms": AT_LAST}, PAID),
    ],
)
def test_a_run_does_not_wait_longer_than_the_lease_for_what_must_happen_once(now, given, answer):
    assert looked(now, task=ONCE, **given) == answer


def test_an_outcome_that_was_heard_is_kept_for_an_hour():
    done = tasks.finish(stored(CLAIMED), PAID, fence=FENCE, now_ms=NOW_MS)
    assert done is not None
    assert done.document.expires_at_ms == NOW_MS + DONE_KEPT_MS
    heard = tasks.heard(done.document, now_ms=NOW_MS + 5)
    assert tasks.task_of(heard.document).state == DONE
    assert heard.document.expires_at_ms == NOW_MS + 5 + HEARD_KEPT_MS


def test_the_input_goes_with_the_last_who_could_need_it():
    claimed = tasks.claim(stored(Offered()), BY, run_lives=True, now_ms=NOW_MS)
    done = tasks.finish(stored(CLAIMED), PAID, fence=FENCE, now_ms=NOW_MS)
    withdrawn = tasks.look(stored(Offered()), wanted=False, timeout_ms=None, deadline_at_ms=None, now_ms=NOW_MS)
    assert claimed is not None
    assert done is not None
    assert isinstance(withdrawn, Writing)
    assert [tasks.task_of(each.document).input for each in (claimed, done, withdrawn)] == [TASK.input, "", ""]
    again = tasks.offer(withdrawn.document, PLACE, TASK, in_doubt=False, now_ms=NOW_MS)
    assert isinstance(again, Writing)
    assert tasks.task_of(again.document) == TASK


# -- the worker's side

NEWLY = TaskClaimed("w-2", "n-2", FENCE + 1, LEASE_MS, NOW_MS, NOW_MS + LEASE_MS)


@pytest.mark.parametrize(
    ("now", "run_lives", "now_ms", "becomes"),
    [
        (Offered(), True, NOW_MS, NEWLY),
        (Offered(FENCE), True, NOW_MS, NEWLY),
        (Offered(), False, NOW_MS, Withdrawn()),
        (CLAIMED, True, AT_LAST - 1, None),
        (CLAIMED, True, AT_LAST, TaskClaimed("w-2", "n-2", AT_LAST, LEASE_MS, AT_LAST, AT_LAST + LEASE_MS)),
        (CLAIMED, False, AT_LAST, Withdrawn(FENCE)),
        (UNWANTED, True, AT_LAST - 1, None),
        (UNWANTED, True, AT_LAST, Withdrawn(FENCE)),
        (DONE, True, NOW_MS, None),
        (Withdrawn(), True, NOW_MS, None),
    ],
)
def test_what_a_claim_makes_of_a_task(now, run_lives, now_ms, becomes):
    writing = tasks.claim(stored(now), BY, run_lives=run_lives, now_ms=now_ms)
    assert state_after(writing) == becomes
    if isinstance(becomes, TaskClaimed):
        assert writing is not None
        assert writing.document.version == becomes.fence
        assert writing.document.due_at_ms == becomes.until_ms  # from then on it may be claimed again
    elif becomes is not None:
        assert writing is not None
        assert writing.document.due_at_ms is None


@pytest.mark.parametrize(
    ("now", "now_ms", "becomes"),
    [
        (Offered(), NOW_MS, NEWLY),
        (Offered(FENCE), NOW_MS, NEWLY),  # it was found out that it never happened
        (CLAIMED, AT_LAST - 1, None),
        (CLAIMED, AT_LAST, Withdrawn(FENCE)),  # whoever had it may have performed it
        (UNWANTED, AT_LAST, Withdrawn(FENCE)),
    ],
)
def test_a_task_that_must_happen_once_is_claimed_once(now, now_ms, becomes):
    assert state_after(tasks.claim(stored(now, task=ONCE), BY, run_lives=True, now_ms=now_ms)) == becomes


def test_a_task_that_cannot_be_read_is_left_as_it_is_and_set_aside_for_a_while():
    strange = Document("default", "task/shop.charge", "t-1", FENCE, b'{"v":2}', NOW_MS - 1, NOW_MS + OPEN_KEPT_MS)
    aside = tasks.set_aside(strange, now_ms=NOW_MS)
    assert aside.replaces == FENCE
    assert aside.document.version > FENCE
    expected = msgspec.structs.replace(strange, version=aside.document.version, due_at_ms=NOW_MS + ASIDE_MS)
    assert aside.document == expected


LATER = NOW_MS + 10_000


@pytest.mark.parametrize(
    ("now", "run_lives", "wanted", "until_ms", "becomes"),
    [
        (CLAIMED, True, True, LATER + LEASE_MS, msgspec.structs.replace(CLAIMED, until_ms=LATER + LEASE_MS)),
        (CLAIMED, False, False, AT_LAST, UNWANTED),
        (UNWANTED, True, False, AT_LAST, None),  # its lease goes on, and ends
        (DONE, True, False, LATER, None),
        (Withdrawn(FENCE), True, False, LATER, None),
    ],
)
def test_the_answer_to_a_heartbeat(now, run_lives, wanted, until_ms, becomes):
    beat = tasks.heartbeat(stored(now), fence=FENCE, run_lives=run_lives, now_ms=LATER)
    assert (beat.wanted, beat.until_ms) == (wanted, until_ms)
    assert state_after(beat.writing) == becomes


def test_the_last_details_of_a_heartbeat_stay_with_the_task():
    beat = tasks.heartbeat(stored(CLAIMED), fence=FENCE, details="50", run_lives=True, now_ms=LATER)
    assert beat.writing is not None
    silent = tasks.heartbeat(beat.writing.document, fence=FENCE, run_lives=True, now_ms=LATER + 1)
    assert silent.writing is not None
    assert tasks.task_of(silent.writing.document).details == "50"
    again = tasks.claim(silent.writing.document, BY, run_lives=True, now_ms=LATER + 1 + LEASE_MS)
    assert again is not None
    assert tasks.task_of(again.document).details == "50"


def test_a_worker_that_is_late_still_has_its_task_while_nobody_else_has():
    late = tasks.heartbeat(stored(CLAIMED), fence=FENCE, run_lives=True, now_ms=AT_LAST + 99)
    assert late.wanted
    assert state_after(tasks.finish(stored(CLAIMED), PAID, fence=FENCE, now_ms=AT_LAST + 99)) == DONE


NO = TaskRaised("Declined", "no money")


@pytest.mark.parametrize(
    ("now", "outcome", "becomes"),
    [
        (CLAIMED, PAID, DONE),
        (CLAIMED, NO, Done("w-1", FENCE, NO)),
        (UNWANTED, PAID, DONE),  # it was dropped, and comes late
        (DONE, PAID, None),
        (DONE, TaskReturned(' "paid" '), None),  # the same in other words
        (Done("w-1", FENCE, TaskReturned('{"a":1,"b":[2]}')), TaskReturned('{"b": [2], "a": 1}'), None),
        (Done("w-1", FENCE, NO), TaskRaised("Declined", "no money"), None),
    ],
)
def test_how_a_task_ends(now, outcome, becomes):
    assert state_after(tasks.finish(stored(now), outcome, fence=FENCE, now_ms=NOW_MS)) == becomes


@pytest.mark.parametrize(
    ("now", "outcome", "why"),
    [
        (DONE, TaskReturned('"paid twice"'), "has ended in another way already"),
        (DONE, NO, "has ended in another way already"),
        (Done("w-1", FENCE, TaskReturned("[1]")), TaskReturned("[true]"), "has ended in another way already"),
        (Done("w-1", FENCE, TaskReturned("[1]")), TaskReturned("[1.0]"), "has ended in another way already"),
        (Done("w-1", FENCE, TaskReturned("0.0")), TaskReturned("-0.0"), "has ended in another way already"),
        (DONE, TaskReturned("[" * 9999), "has ended in another way already"),  # nested too deeply to be compared
        (Withdrawn(FENCE), PAID, "is not wanted any more"),
    ],
)
def test_what_can_no_longer_be_said(now, outcome, why):
    with pytest.raises(NotAllowedNow, match=why) as caught:
        tasks.finish(stored(now), outcome, fence=FENCE, now_ms=NOW_MS)
    assert caught.value.hint


@pytest.mark.parametrize("now", [Offered(), Offered(FENCE), CLAIMED, UNWANTED, DONE, Withdrawn(), Withdrawn(FENCE + 1)])
def test_a_stale_fence_is_refused(now):
    stale = FENCE if isinstance(now, Offered | Withdrawn) else FENCE - 1
    with pytest.raises(NotAllowedNow, match=f"fence {stale} is not that of the last claim"):
        tasks.finish(stored(now), PAID, fence=stale, now_ms=NOW_MS)
    with pytest.raises(NotAllowedNow, match="claim again"):
        tasks.heartbeat(stored(now), fence=stale, run_lives=True, now_ms=NOW_MS)


# -- all of it, in any order


class Worker(msgspec.Struct):
    """A remote worker: what it believes to hold, and what it was told."""

    name: str
    fence: int | None = None
    completed: bool = False


class TaskLife(RuleBasedStateMachine):
    """Workers claim, sleep, wake and answer in any order, while the run waits, drops the task and takes it up again."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS
        self.task = TASK
        self.document: Document | None = None
        self.workers = [Worker("a"), Worker("b"), Worker("c")]
        self.claims: dict[int, str] = {}  # who was given which fence
        self.accepted: list[tuple[int, TaskOutcome]] = []  # outcomes that a worker was told are taken
        self.minted = 0

    def store(self, writing: Writing | None) -> bool:
        if writing is None:
            return False
        assert writing.replaces == (None if self.document is None else self.document.version)
        self.document = writing.document
        return True

    @initialize(once=st.booleans())
    def the_task(self, once: bool) -> None:
        self.task = ONCE if once else TASK

    @rule(in_doubt=st.booleans())
    def offer(self, in_doubt: bool) -> None:
        before = None if self.document is None else tasks.task_of(self.document).state
        stored = self.store(tasks.offer(self.document, PLACE, self.task, in_doubt=in_doubt, now_ms=self.now_ms))
        if stored and in_doubt:
            assert not isinstance(before, Withdrawn) or not before.fence, "it was put up again, and may have happened"

    @precondition(lambda self: self.document is not None)
    @rule(wanted=st.booleans(), timeout_ms=st.sampled_from([None, 50_000]))
    def look(self, wanted: bool, timeout_ms: int | None) -> None:
        answer = tasks.look(
            self.document, wanted=wanted, timeout_ms=timeout_ms, deadline_at_ms=None, now_ms=self.now_ms
        )
        match answer:
            case Writing():
                self.store(answer)
            case NoOutcome(begun=begun):
                assert begun == bool(self.claims), "nobody knows better who may have begun it"
            case TaskReturned() | TaskRaised():
                assert [answer] == [outcome for _, outcome in self.accepted], "the run heard something else"
            case LookAgain(until_ms=until_ms):
                assert until_ms is None or until_ms > self.now_ms, "it would look again for ever"

    @precondition(lambda self: self.document is not None)
    @rule(at=st.integers(0, 2), run_lives=st.sampled_from([True, True, True, False]))
    def claim(self, at: int, run_lives: bool) -> None:
        assert self.document is not None
        worker, before = self.workers[at], tasks.task_of(self.document).state
        self.minted += 1
        by = TaskClaim(worker.name, f"n-{self.minted}", LEASE_MS)
        if not self.store(tasks.claim(self.document, by, run_lives=run_lives, now_ms=self.now_ms)):
            return
        after = tasks.task_of(self.document).state
        if isinstance(after, TaskClaimed):
            assert run_lives
            assert self.task is not ONCE or isinstance(before, Offered), "what must happen once was handed out twice"
            assert not isinstance(before, TaskClaimed) or before.until_ms <= self.now_ms, (
                "it was taken from a live holder"
            )
            assert after.fence not in self.claims, "two claims have the same fence"
            self.claims[after.fence] = worker.name
            worker.fence, worker.completed = after.fence, False

    @precondition(lambda self: self.document is not None)
    @rule(at=st.integers(0, 2), details=st.sampled_from([None, "1"]))
    def heartbeat(self, at: int, details: str | None) -> None:
        assert self.document is not None
        fence, state = self.workers[at].fence or 1, tasks.task_of(self.document).state
        try:
            beat: TaskBeat = tasks.heartbeat(
                self.document, fence=fence, details=details, run_lives=True, now_ms=self.now_ms
            )
        except NotAllowedNow:
            assert isinstance(state, Offered) or state.fence != fence
        else:
            self.store(beat.writing)
            assert not beat.wanted or beat.until_ms == self.now_ms + LEASE_MS

    @precondition(lambda self: self.document is not None)
    @rule(at=st.integers(0, 2), outcome=st.sampled_from([PAID, NO]))
    def finish(self, at: int, outcome: TaskOutcome) -> None:
        assert self.document is not None
        fence = self.workers[at].fence or 1
        try:
            stored = self.store(tasks.finish(self.document, outcome, fence=fence, now_ms=self.now_ms))
        except NotAllowedNow:
            assert (fence, outcome) not in self.accepted, "it was accepted before, and is refused now"
        else:
            assert stored != ((fence, outcome) in self.accepted)
            if stored:
                self.accepted.append((fence, outcome))

    @rule(ms=st.sampled_from([0, 1, 10_000, 40_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @invariant()
    def one_outcome_at_most(self) -> None:
        assert len(self.accepted) <= 1, "two workers were told that their outcome counts"

    @invariant()
    def the_outcome_is_that_of_the_last_claim(self) -> None:
        if self.document is not None and isinstance(state := tasks.task_of(self.document).state, Done):
            assert self.accepted == [(state.fence, state.outcome)]
            assert state.fence == max(self.claims)

    @invariant()
    def whoever_may_be_claimed_is_in_the_queue(self) -> None:
        if self.document is not None:
            state = tasks.task_of(self.document).state
            assert (self.document.due_at_ms is None) == isinstance(state, Done | Withdrawn)


TestTaskLife = TaskLife.TestCase


@pytest.mark.parametrize(
    ("state", "stored_as"),
    [
        (Offered(), b'{"is":"offered"}'),
        (
            TaskClaimed("w", "n", 1, 2, 3, 4),
            b'{"is":"claimed","worker":"w","nonce":"n","fence":1,"lease_ms":2,"since_ms":3,"until_ms":4}',
        ),
        (
            Done("w", 1, TaskReturned("7")),
            b'{"is":"done","worker":"w","fence":1,"outcome":{"how":"returned","value":"7"}}',
        ),
        (
            Done("w", 1, TaskRaised("ValueError", "boom")),
            b'{"is":"done","worker":"w","fence":1,"outcome":{"how":"raised","type":"ValueError","message":"boom"}}',
        ),
        (Withdrawn(), b'{"is":"withdrawn"}'),
    ],
)
def test_what_is_stored_does_not_follow_the_names_of_classes(state, stored_as):
    assert msgspec.json.encode(state) == stored_as
