"""What a supervisor does about its processes, for every state and everything that can happen."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.kernel.supervision import (
    ALIVE,
    Announce,
    Deed,
    Finish,
    Happening,
    HasBegun,
    HasEnded,
    IsReady,
    Kill,
    Launch,
    ProcessGroup,
    ProcessState,
    ReportEnd,
    RestartAsked,
    StopAsked,
    SupervisionPolicy,
    Terminate,
    TimeUp,
    decide,
    group_of,
    how_ended,
    next_due,
)

POLICY = SupervisionPolicy(soon_ms=10_000, failures_max=3, rest_ms=500, rest_ms_max=700, grace_ms=20_000, again_ms=500)
KILLED, TERMINATED = -9, -15


class Course:
    """A group of processes, and what was done about everything that happened to it."""

    def __init__(self, count: int) -> None:
        self.now_ms = 0
        self.group: ProcessGroup = group_of(count)

    def tell(self, happening: Happening, *, after_ms: int = 0) -> list[Deed]:
        self.now_ms += after_ms
        decided = decide(self.group, happening, now_steady_ms=self.now_ms, policy=POLICY)
        self.group = decided.group
        return list(decided.deeds)

    @property
    def states(self) -> list[str]:
        return [each.state.value for each in self.group.processes]

    @property
    def due_ms(self) -> int | None:
        return next_due(self.group, POLICY)


def ready(count: int) -> Course:
    """All are ready, and it was said."""
    course = Course(count)
    course.tell(HasBegun())
    for number in range(count):
        course.tell(IsReady(number))
    return course


def test_the_first_process_starts_alone_and_the_others_when_it_is_ready():
    course = Course(3)
    assert course.tell(HasBegun()) == [Launch(0)]
    assert course.states == ["starting", "waiting", "waiting"]
    assert course.tell(IsReady(0)) == [Launch(1), Launch(2)]
    assert course.tell(IsReady(2)) == []
    assert course.tell(IsReady(1)) == [Announce()]
    assert course.states == ["ready"] * 3
    assert course.due_ms is None


def test_that_all_are_ready_is_said_once():
    course = ready(2)
    course.tell(HasEnded(1, KILLED), after_ms=60_000)
    assert course.tell(IsReady(1)) == []


def test_a_process_that_was_ready_for_long_is_started_again_at_once():
    course = ready(2)
    assert course.tell(HasEnded(1, KILLED), after_ms=POLICY.soon_ms) == [ReportEnd(1, KILLED, 0), Launch(1)]
    assert course.states == ["ready", "starting"]


def test_a_process_that_ends_soon_rests_longer_each_time_up_to_a_bound():
    course = ready(2)
    assert course.tell(HasEnded(0, 1), after_ms=POLICY.soon_ms - 1) == [ReportEnd(0, 1, 500)]
    assert course.due_ms == course.now_ms + 500
    assert course.tell(TimeUp(), after_ms=499) == []
    assert course.tell(TimeUp(), after_ms=1) == [Launch(0)]
    assert course.tell(HasEnded(0, 1)) == [ReportEnd(0, 1, 700)]  # a thousand, but for the bound
    assert course.states == ["resting", "ready"]


def test_a_long_life_makes_up_for_earlier_failures():
    course = ready(2)
    for _ in range(POLICY.failures_max - 1):
        course.tell(HasEnded(0, 1))
        course.tell(TimeUp(), after_ms=1_000)
    course.tell(IsReady(0))
    course.tell(HasEnded(0, 1), after_ms=POLICY.soon_ms)
    assert course.tell(HasEnded(0, 1)) == [ReportEnd(0, 1, 500)]


def test_a_process_that_ends_soon_too_often_in_a_row_ends_the_whole():
    course = ready(2)
    for _ in range(POLICY.failures_max - 1):
        course.tell(HasEnded(0, KILLED))
        course.tell(TimeUp(), after_ms=1_000)
    assert course.tell(HasEnded(0, KILLED)) == [Terminate(1)]
    assert course.states == ["gone", "stopping"]
    [finish] = course.tell(HasEnded(1, 0))
    assert finish == Finish(1, "process 1 of 2 ended 3 times in a row soon after its start, the last time by SIGKILL")


def test_failures_are_counted_for_each_process_by_itself():
    course = ready(3)
    for number in (0, 1, 2, 0, 1, 2):
        [report] = course.tell(HasEnded(number, 1))
        assert isinstance(report, ReportEnd)
        course.tell(TimeUp(), after_ms=1_000)
    assert course.states == ["starting"] * 3


def test_settings_that_cannot_work_are_not_tried_again():
    course = Course(4)
    course.tell(HasBegun())
    assert course.tell(HasEnded(0, 2)) == [Finish(2)]
    assert course.states == ["gone"] * 4


def test_settings_that_one_process_finds_wrong_end_those_that_had_begun():
    course = Course(2)
    course.tell(HasBegun())
    course.tell(IsReady(0))
    assert course.tell(HasEnded(1, 2)) == [Terminate(0)]
    assert course.tell(HasEnded(0, 0)) == [Finish(2)]


@pytest.mark.parametrize("was_ready", [True, False])
def test_the_same_exit_code_of_a_process_that_works_already_is_a_failure_like_others(was_ready):
    course = ready(2)
    if not was_ready:  # its successor finds the settings wrong, perhaps because they are being changed
        course.tell(HasEnded(1, KILLED), after_ms=60_000)
    assert course.tell(HasEnded(1, 2)) == [ReportEnd(1, 2, 500)]


def test_a_stop_tells_each_process_once_and_ends_when_all_have():
    course = ready(2)
    assert course.tell(StopAsked()) == [Terminate(0), Terminate(1)]
    assert course.tell(HasEnded(1, 0)) == []
    assert course.tell(HasEnded(0, 0)) == [Finish(0)]


def test_a_stop_while_none_is_running_ends_at_once():
    course = Course(2)
    course.tell(HasBegun())
    course.tell(HasEnded(0, 1))
    assert course.tell(StopAsked()) == [Finish(0)]


def test_a_stop_in_the_middle_of_the_start_starts_no_more():
    course = Course(2)
    course.tell(HasBegun())
    assert course.tell(StopAsked()) == [Terminate(0)]
    assert course.tell(IsReady(0)) == []
    assert course.states == ["stopping", "gone"]
    assert course.tell(HasEnded(0, TERMINATED)) == [Finish(0)]


def test_what_does_not_stop_within_the_grace_is_killed():
    course = ready(2)
    course.tell(StopAsked())
    course.tell(HasEnded(0, 0))
    assert course.due_ms == course.now_ms + POLICY.grace_ms
    assert course.tell(TimeUp(), after_ms=POLICY.grace_ms - 1) == []
    assert course.tell(TimeUp(), after_ms=1) == [Kill(1)]
    assert course.due_ms is None
    assert course.tell(TimeUp(), after_ms=1) == []
    assert course.tell(HasEnded(1, KILLED)) == [Finish(1)]


def test_a_second_request_to_stop_kills():
    course = ready(2)
    course.tell(StopAsked())
    course.tell(HasEnded(1, 0))
    assert course.tell(StopAsked(), after_ms=POLICY.again_ms) == [Kill(0)]
    assert course.tell(StopAsked(), after_ms=POLICY.again_ms) == []


def test_a_second_request_that_comes_with_the_first_is_the_same():
    course = ready(2)
    course.tell(StopAsked())
    assert course.tell(StopAsked(), after_ms=POLICY.again_ms - 1) == []


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([0, 0], 0),
        ([TERMINATED, -2], 0),  # the signal came before the process could handle it, or when it was done
        ([0, 1], 1),
        ([3, 0], 3),
        ([KILLED, 0], 1),  # the machine was out of memory, perhaps
        ([3, 4], 3),
    ],
)
def test_how_the_processes_stop_is_the_exit_code(codes, code):
    course = ready(2)
    course.tell(StopAsked())
    course.tell(HasEnded(0, codes[0]))
    assert course.tell(HasEnded(1, codes[1])) == [Finish(code)]


def test_a_restart_goes_from_one_process_to_the_next():
    course = ready(2)
    assert course.tell(RestartAsked()) == [Terminate(0)]
    assert course.tell(HasEnded(0, 0)) == [Launch(0)]
    assert course.tell(IsReady(0)) == [Terminate(1)]
    assert course.tell(HasEnded(1, 0)) == [Launch(1)]
    assert course.tell(IsReady(1)) == []
    assert course.states == ["ready", "ready"]


def test_a_restart_kills_what_does_not_stop_and_goes_on():
    course = ready(2)
    course.tell(RestartAsked())
    assert course.due_ms == POLICY.grace_ms
    assert course.tell(TimeUp(), after_ms=POLICY.grace_ms) == [Kill(0)]
    assert course.tell(HasEnded(0, KILLED)) == [Launch(0)]


def test_a_restart_waits_until_all_are_ready():
    course = ready(2)
    course.tell(HasEnded(1, KILLED), after_ms=60_000)
    assert course.tell(RestartAsked()) == []
    assert course.tell(IsReady(1)) == [Terminate(0)]


def test_a_restart_that_brings_code_which_cannot_start_stops_no_further_process():
    course = ready(2)
    course.tell(RestartAsked())
    course.tell(HasEnded(0, 0))
    assert course.tell(HasEnded(0, 2)) == [ReportEnd(0, 2, 500)]
    assert course.states == ["resting", "ready"]


def test_a_restart_while_all_start_or_stop_changes_nothing():
    course = Course(2)
    course.tell(HasBegun())
    assert course.tell(RestartAsked()) == []
    course = ready(2)
    course.tell(StopAsked())
    assert course.tell(RestartAsked()) == []


def test_a_stop_in_the_middle_of_a_restart_tells_the_stopping_process_nothing_more():
    course = ready(3)
    course.tell(RestartAsked())
    assert course.tell(StopAsked()) == [Terminate(1), Terminate(2)]
    for number in (1, 2):
        assert course.tell(HasEnded(number, 0)) == []
    assert course.tell(HasEnded(0, 0)) == [Finish(0)]


@pytest.mark.parametrize(
    ("code", "words"), [(1, "with exit code 1"), (-9, "by SIGKILL"), (-11, "by SIGSEGV"), (-41, "by signal 41")]
)
def test_an_end_in_words(code, words):
    assert how_ended(code) == words


class AnyCourse(RuleBasedStateMachine):
    """Whatever happens in whatever order: no process is started twice, signalled when it is gone, or forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.course = Course(3)
        self.running: set[int] = set()
        self.told: set[int] = set()
        self.over = False
        self.do(self.course.tell(HasBegun()))

    def do(self, deeds: list[Deed]) -> None:
        for deed in deeds:
            assert not self.over
            match deed:
                case Launch(number):
                    assert number not in self.running
                    self.running.add(number)
                case Terminate(number):
                    assert number in self.running
                    assert number not in self.told
                    self.told.add(number)
                case Kill(number):
                    assert number in self.told
                case Finish():
                    assert not self.running
                    self.over = True
                case _:
                    pass

    @precondition(lambda self: self.running and not self.over)
    @rule(data=st.data(), code=st.sampled_from([0, 1, 2, KILLED, TERMINATED]))
    def end(self, data, code):
        number = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(number)
        self.told.discard(number)
        self.do(self.course.tell(HasEnded(number, code)))

    @precondition(lambda self: self.running and not self.over)
    @rule(data=st.data())
    def become_ready(self, data):
        self.do(self.course.tell(IsReady(data.draw(st.sampled_from(sorted(self.running))))))

    @precondition(lambda self: not self.over)
    @rule(happening=st.sampled_from([StopAsked(), RestartAsked(), RestartAsked()]))
    def ask(self, happening):
        self.do(self.course.tell(happening))

    @rule(after_ms=st.sampled_from([0, 1, 500, 5_000, 20_000]))
    def wait(self, after_ms):
        if not self.over:
            self.do(self.course.tell(TimeUp(), after_ms=after_ms))

    @invariant()
    def the_group_knows_what_runs(self):
        alive = {number for number, each in enumerate(self.course.group.processes) if each.state in ALIVE}
        assert alive == self.running

    @invariant()
    def something_goes_on_until_it_is_over(self):
        assert self.over or self.running or self.course.due_ms is not None

    @invariant()
    def after_a_time_that_was_due_nothing_is_due_any_more(self):
        due_ms = self.course.due_ms
        if not self.over and due_ms is not None and due_ms <= self.course.now_ms:
            self.do(self.course.tell(TimeUp()))
            assert self.course.due_ms is None or self.course.due_ms > self.course.now_ms


TestAnyCourse = AnyCourse.TestCase


@given(st.integers(1, 40))
@settings(max_examples=20)
def test_any_number_of_processes_becomes_ready(count):
    assert ready(count).group.is_announced
    assert ready(count).states == [ProcessState.READY.value] * count
