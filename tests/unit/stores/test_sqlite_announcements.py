"""Whether a process may rely on being told: a commit that no datagram announced makes it look often, for a minute."""

from __future__ import annotations

import pytest

from holdfast.stores.sqlite.announcements import Announcements
from holdfast.stores.sqlite.pace import SqlitePace

PACE = SqlitePace()
OFTEN, NOW_AND_THEN = True, False
GRACE, LONG = int(PACE.announced_ms), int(PACE.unannounced_ms)


class Process:
    """Looks at instants of the test's own."""

    def __init__(self) -> None:
        self.announcements = Announcements(PACE)
        self.now_ms = 0.0

    def after(self, ms: float, *, found: bool) -> bool:
        """Look so much later; whether to look often from now on."""
        self.now_ms += ms
        self.announcements.look(found=found, now_steady_ms=self.now_ms)
        return self.announcements.wants_looks(self.now_ms)

    @property
    def is_complete(self) -> bool:
        return self.announcements.complete(self.now_ms)


@pytest.fixture
def process() -> Process:
    process = Process()
    assert process.after(0, found=True) is NOW_AND_THEN  # what was there before it came
    return process


def test_while_nothing_happens_there_is_nothing_to_look_for(process: Process) -> None:
    assert [process.after(1_000, found=False) for _ in range(100)] == [NOW_AND_THEN] * 100


def test_what_is_announced_before_it_is_found_is_no_reason_to_look(process: Process) -> None:
    for _ in range(100):
        process.announcements.hear()
        assert process.after(1_000, found=True) is NOW_AND_THEN


def test_what_is_found_on_its_way_is_waited_for_a_moment(process: Process) -> None:
    assert process.after(1_000, found=True) is OFTEN
    assert process.is_complete
    process.announcements.hear()
    assert process.after(10, found=False) is NOW_AND_THEN
    assert process.after(LONG, found=False) is NOW_AND_THEN


def test_what_is_never_announced_makes_it_look_for_a_minute(process: Process) -> None:
    assert process.after(1_000, found=True) is OFTEN
    assert process.after(GRACE, found=False) is OFTEN
    assert not process.is_complete
    assert process.after(LONG - 1, found=False) is OFTEN
    assert process.after(1, found=False) is NOW_AND_THEN
    assert process.is_complete


def test_the_minute_begins_again_with_each_of_them(process: Process) -> None:
    for _ in range(20):
        process.after(LONG // 2, found=True)
        process.after(GRACE, found=False)
        assert not process.is_complete


def test_the_announcements_of_one_do_not_vouch_for_another(process: Process) -> None:
    """As long as there are looks between which only the silent one commits."""
    for _ in range(10):
        process.announcements.hear()
        process.after(10, found=True)
        process.after(10, found=True)
        assert process.after(GRACE, found=False) is OFTEN


def test_datagrams_without_commits_change_nothing(process: Process) -> None:
    for _ in range(10):
        process.announcements.hear()
        assert process.after(1_000, found=False) is NOW_AND_THEN
