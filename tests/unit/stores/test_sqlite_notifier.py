"""What a process tells the others on its file, when it tells it, and what it makes of what it hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from holdfast.kernel.changes import Answer, Committed, Refused
from holdfast.kernel.runs import Run, Status
from holdfast.ports import notices
from holdfast.ports.notices import ANYTHING, NOTHING, Notice, Ready
from holdfast.stores.sqlite.notifier import FileNotifier, merged, notice_of
from holdfast.stores.sqlite.pace import SqlitePace
from holdfast.stores.sqlite.peers import EVERYTHING
from tests.builders import NOW_MS, FakeClock, a_run

PACE = SqlitePace()
PROGRESS = Notice(runs=("run-1",))
WAKES = {
    "work": Notice(ready=(Ready("default", "p.work", NOW_MS),)),
    "a message": Notice(told=("run-1",)),
    "an end": Notice(("run-1",), settled=("run-1",)),
    "a document": Notice(documents=(("default", "task"),)),
    "anything": ANYTHING,
}


class Pair:
    """Two processes on one file: what the one tells, the other hears."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.teller = FileNotifier(path, clock=self.clock, pace=PACE)
        self.hearer = FileNotifier(path, clock=self.clock, pace=PACE)
        self.heard: list[Notice] = []

    async def open(self) -> None:
        self.teller.open()
        self.hearer.open()
        await self.delivered()
        self.hearer.watch(lambda notice: not self.heard.append(notice))

    async def delivered(self) -> list[Notice]:
        """What is heard of that which was sent before."""
        for _ in range(5):
            await asyncio.sleep(0)
        return self.heard

    async def moment(self) -> list[Notice]:
        """What is heard when the moment is over for which notices are gathered."""
        await self.delivered()
        self.clock.advance(PACE.gather_seconds * 1000)
        return await self.delivered()

    def close(self) -> None:
        self.teller.close()
        self.hearer.close()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    path = tmp_path / "shop.db"
    path.touch()
    pair = Pair(path)
    await pair.open()
    yield pair
    pair.close()


# -- when


@pytest.mark.parametrize("notice", WAKES.values(), ids=WAKES)
async def test_what_a_process_may_wait_for_is_told_at_once(pair: Pair, notice: Notice) -> None:
    pair.teller.tell(notice)
    assert await pair.delivered() == [notice]


async def test_what_none_waits_for_is_told_together_a_moment_later(pair: Pair) -> None:
    for number in range(5):
        pair.teller.tell(Notice(runs=(f"run-{number}", "run-0")))
    assert await pair.delivered() == []
    assert await pair.moment() == [Notice(runs=tuple(f"run-{number}" for number in range(5)))]


async def test_what_was_gathered_travels_with_what_is_told_at_once(pair: Pair) -> None:
    pair.teller.tell(PROGRESS)
    pair.teller.tell(Notice(("run-2",), settled=("run-2",)))
    assert await pair.delivered() == [Notice(("run-1", "run-2"), settled=("run-2",))]
    assert len(await pair.moment()) == 1
    pair.teller.tell(PROGRESS)
    assert len(await pair.moment()) == 2


async def test_a_moment_in_which_nothing_is_told_ends_the_gathering(pair: Pair) -> None:
    """While nothing is committed, nothing may wake this process."""
    pair.teller.tell(PROGRESS)
    await pair.moment()
    await pair.moment()
    assert pair.clock._pauses == []


async def test_a_commit_that_concerns_no_process_is_announced_all_the_same(pair: Pair) -> None:
    """Else the others would take it for that of a process which tells nothing, and would look for its commits."""
    announcements = pair.hearer.announcements
    announcements.look(found=False, now_steady_ms=0.0)
    pair.teller.tell(NOTHING)
    assert await pair.moment() == []
    announcements.look(found=True, now_steady_ms=1.0)
    assert not announcements.wants_looks(1.0)


async def test_what_is_left_is_told_before_a_process_goes(pair: Pair) -> None:
    pair.teller.tell(PROGRESS)
    pair.teller.close()
    assert await pair.delivered() == [PROGRESS]


async def test_a_process_that_is_alone_gathers_nothing(pair: Pair) -> None:
    pair.hearer.close()
    pair.teller.tell(ANYTHING)  # it learns that the other one has gone
    pair.teller.tell(PROGRESS)
    assert pair.teller._gathered == []
    assert pair.teller._gathering is None


async def test_more_than_fits_into_a_datagram_is_anything(pair: Pair) -> None:
    pair.teller.tell(Notice(told=tuple(f"run-{number}" for number in range(2_000))))
    assert await pair.delivered() == [ANYTHING]


# -- what is heard


async def test_what_cannot_be_read_is_anything(pair: Pair) -> None:
    """It may be of a later version, or forged: one look tells."""
    cut_short, no_text = notices.encode(NOTHING)[:-1], notices.encode(PROGRESS).replace(b"run", b"\xffun")
    too_deep = b"\x97" + notices.encode(NOTHING)[1:] + b"\x91" * 5_000  # with a field that we do not know
    for garbage in (b"\x00", b"\xc1", b"x" * 5_000, cut_short, b"\x91\xa3abc", no_text, too_deep):
        pair.heard.clear()
        pair.teller.peers.send(garbage)
        assert await pair.delivered() == [ANYTHING], garbage


async def test_one_that_cannot_be_read_takes_no_other_along(pair: Pair) -> None:
    for datagram in (b"\x91\x91\xa1\xff", notices.encode(PROGRESS)):
        pair.teller.peers.send(datagram)
    assert await pair.delivered() == [ANYTHING]  # which says what both say


async def test_of_several_that_name_nothing_one_is_enough(pair: Pair) -> None:
    for datagram in (EVERYTHING, notices.encode(PROGRESS), EVERYTHING, b"garbage"):
        pair.teller.peers.send(datagram)
    assert await pair.delivered() == [ANYTHING]


async def test_who_does_not_watch_may_be_told_anything(pair: Pair) -> None:
    pair.hearer.tell(ANYTHING)
    await pair.delivered()


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_whatever_comes_is_a_notice(datagrams: list[bytes]) -> None:
    notifier = FileNotifier(Path("shop.db"), clock=FakeClock(), pace=PACE)
    heard: list[Notice] = []
    notifier.watch(lambda notice: not heard.append(notice))
    notifier._hear(datagrams)
    assert all(isinstance(notice, Notice) for notice in heard)


# -- what


def _committed(run: Run, **fields: object) -> Committed:
    return Committed(replace(run, **fields))


@pytest.mark.parametrize(
    ("answer", "notice"),
    [
        (Refused(a_run("r")), NOTHING),
        (Committed(None), NOTHING),
        (_committed(a_run("r"), status=Status.RUNNING, wake_at_ms=None), Notice(("r",))),
        (
            _committed(a_run("r"), status=Status.PENDING, wake_at_ms=NOW_MS),
            Notice(("r",), ready=(Ready("default", a_run("r").workflow, NOW_MS),)),
        ),
        (
            _committed(a_run("r"), status=Status.WAITING, wake_at_ms=NOW_MS + 5),
            Notice(("r",), ready=(Ready("default", a_run("r").workflow, NOW_MS + 5),)),
        ),
        (_committed(a_run("r"), status=Status.BLOCKED, wake_at_ms=None), Notice(("r",), settled=("r",))),
        (_committed(a_run("r"), status=Status.FAILED, wake_at_ms=None), Notice(("r",), settled=("r",))),
        (
            Committed(replace(a_run("r"), status=Status.RUNNING, wake_at_ms=None), ("parent", "r")),
            Notice(("r",), ("parent", "r")),
        ),
    ],
)
def test_what_is_told_of_a_change(answer: Answer, notice: Notice) -> None:
    assert notice_of([answer], []) == notice


def test_the_work_that_messages_have_made_is_told_too() -> None:
    woken = Ready("default", "p.parent", NOW_MS)
    ended = Committed(replace(a_run("r"), status=Status.COMPLETED, wake_at_ms=None), ("parent",))
    assert notice_of([ended], [woken, woken]) == Notice(("r",), ("parent",), (woken,), settled=("r",))
    assert notice_of([ended], None) == ANYTHING


def test_merged_notices_say_what_each_of_them_says() -> None:
    both = merged([WAKES["work"], WAKES["a message"], WAKES["an end"], WAKES["a document"], WAKES["an end"]])
    assert both == Notice(
        ("run-1",), ("run-1",), WAKES["work"].ready, WAKES["a document"].documents, settled=("run-1",)
    )
    assert merged([PROGRESS, ANYTHING]).everything
