"""Tells the other processes on the file what this one has committed, and this one what they have.

Every commit is announced, so that a process which finds one that was not knows that it has to look by itself. What a
process may wait for is told at once: work, messages, ends, documents. What none waits for (that a run has gone on, that
a lease was renewed) is gathered for a moment and told together: a busy worker would wake all others at each commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.kernel.changes import Answer, Committed
from holdfast.kernel.runs import SETTLED
from holdfast.ports import notices
from holdfast.ports.clock import Clock
from holdfast.ports.notices import ANYTHING, NOTHING, Notice, Ready
from holdfast.stores.sqlite.announcements import Announcements
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.pace import SqlitePace
from holdfast.stores.sqlite.peers import DATAGRAM_MAX, EVERYTHING, Peers
from holdfast.stores.sqlite.queries import SQL

T = TypeVar("T")


class FileNotifier:
    """The notices of one store, out and in."""

    def __init__(self, path: Path, *, clock: Clock, pace: SqlitePace) -> None:
        self.peers = Peers(path, self._hear)
        self.announcements = Announcements(pace)
        self._clock = clock
        self._pace = pace
        self._on_notice: Callable[[Notice], bool] | None = None
        self._gathered: list[Notice] = []
        self._gathering: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Be there for the others. Where that cannot be done, `peers.trouble` says why."""
        self.peers.open()

    def close(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
        self._send()
        self.peers.close()

    def watch(self, on_notice: Callable[[Notice], bool]) -> None:
        self._on_notice = on_notice

    # -- out

    def tell(self, notice: Notice) -> None:
        """This process has committed: what others may want to look at, perhaps nothing."""
        if not self.peers:
            return
        self._gathered.append(notice)
        if notice.told or notice.ready or notice.settled or notice.documents or notice.everything:
            self._send()
        elif self._gathering is None:
            self._gathering = asyncio.create_task(self._gather())

    async def _gather(self) -> None:
        while self._gathered:
            await self._clock.pause(self._pace.gather_seconds)
            self._send()
        self._gathering = None

    def _send(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            datagram = notices.encode(gathered[0] if len(gathered) == 1 else merged(gathered))
            self.peers.send(datagram if len(datagram) <= DATAGRAM_MAX else EVERYTHING)

    # -- in

    def _hear(self, datagrams: Sequence[bytes]) -> None:
        self.announcements.hear()
        if self._on_notice is None:
            return
        heard = [notices.decode(datagram) for datagram in datagrams]
        for notice in (ANYTHING,) if any(each.everything for each in heard) else heard:
            if notice != NOTHING:
                self._on_notice(notice)


def notice_of(answers: Iterable[Answer], woken: Sequence[Ready] | None) -> Notice:
    """What a batch of changes has done, with the work that its messages have made; None if that was not looked for.

    Then the first peer has come while the batch was being written.
    """
    if woken is None:
        return ANYTHING
    moved: list[str] = []
    told: list[str] = []
    ready: list[Ready] = [*woken]
    settled: list[str] = []
    for answer in answers:
        if not isinstance(answer, Committed) or (run := answer.run) is None:
            continue
        moved.append(run.id)
        told += answer.told
        if run.status in SETTLED:
            settled.append(run.id)
        elif run.wake_at_ms is not None:
            ready.append(Ready(run.namespace, run.workflow, run.wake_at_ms))
    return Notice(tuple(moved), tuple(told), _each_once(ready), settled=tuple(settled))


def woken_by(db: Database, answers: Iterable[Answer]) -> list[Ready]:
    """The work that the messages of a batch have made: runs that were let go, and may be claimed now."""
    told = [run_id for answer in answers if isinstance(answer, Committed) for run_id in answer.told]
    if not told:
        return []
    rows = db.execute(SQL["woken"], {"run_ids": msgspec.json.encode(told).decode()}).fetchall()
    return [Ready(*row) for row in rows]


def merged(gathered: Sequence[Notice]) -> Notice:
    """One notice that says what all of these say."""
    return Notice(
        _each_once(run_id for notice in gathered for run_id in notice.runs),
        _each_once(run_id for notice in gathered for run_id in notice.told),
        _each_once(ready for notice in gathered for ready in notice.ready),
        _each_once(place for notice in gathered for place in notice.documents),
        any(notice.everything for notice in gathered),
        _each_once(run_id for notice in gathered for run_id in notice.settled),
    )


def _each_once(things: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(things))
