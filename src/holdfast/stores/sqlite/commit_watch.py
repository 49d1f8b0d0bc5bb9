"""Finds commits of other processes by `PRAGMA data_version`, which reads a counter in shared memory.

While all announce what they commit, this is the safety net: see `announcements`. Where a process cannot, it is how
commits are noticed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import apsw

from holdfast.errors import HoldfastError
from holdfast.ports.clock import Clock
from holdfast.ports.notices import ANYTHING, Notice
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.notifier import FileNotifier
from holdfast.stores.sqlite.pace import SqlitePace

AskWriter = Callable[[Callable[[Database], None]], Awaitable[None]]


class CommitWatch:
    """Tells commits of other processes from our own.

    A connection's data_version moves when any other connection commits. The writer looks at its own when it begins, so
    it sees just the foreign ones; while it is idle, so does the connection that is looked at here. In doubt, since both
    may have happened between two looks, the writer is asked.
    """

    def __init__(
        self,
        notifier: FileNotifier,
        *,
        connect: Callable[[], Database],
        ask_writer: AskWriter,
        clock: Clock,
        pace: SqlitePace,
    ) -> None:
        self._notifier = notifier
        self._connect = connect
        self._ask_writer = ask_writer
        self._clock = clock
        self._pace = pace
        self._writer_version: object = None
        self._is_foreign = False
        self._tended_steady_ms = clock.steady_ms()
        self.own_commits = 0  # counted by the writer

    @property
    def poll_reason(self) -> str:
        """Why the file is looked at often; empty if it is not."""
        if self._notifier.peers.trouble:
            return self._notifier.peers.trouble
        if self._notifier.announcements.complete(self._clock.steady_ms()):
            return ""
        return "a process commits to the file and does not tell it"

    def look_from_writer(self, db: Database) -> None:
        """On the thread and the connection that writes."""
        version = db.execute("PRAGMA data_version").fetchall()
        if version != self._writer_version:
            self._writer_version = version
            self._is_foreign = True

    async def watch(self, on_notice: Callable[[Notice], bool]) -> None:
        """Look forever, whatever the trouble: this is the safety net, and none waits for its end."""
        db: Database | None = None
        seen, own, in_doubt = None, -1, True
        try:
            while True:
                try:
                    if db is None:
                        db = self._connect()
                    version = db.execute("PRAGMA data_version").fetchall()
                except (apsw.Error, HoldfastError):
                    version = None  # the process that is told will meet the trouble, and say it
                moved, seen = version != seen, version
                idle, own = own == self.own_commits, self.own_commits
                in_doubt = in_doubt or moved or not idle
                if moved and idle:
                    on_notice(ANYTHING)  # at once: the writer may have to wait for a lock before it can be asked
                if in_doubt and (idle or not self._looks_often):
                    in_doubt = False
                    with contextlib.suppress(HoldfastError):
                        await self._ask_writer(self.look_from_writer)
                found = self._is_foreign
                if found:
                    self._is_foreign = False
                    if not (moved and idle):
                        on_notice(ANYTHING)
                self._notifier.announcements.look(found=found, now_steady_ms=self._clock.steady_ms())
                self._tend_peers()
                await self._clock.pause(self._pace.notice_seconds if self._looks_often else self._pace.safety_seconds)
        finally:
            if db is not None:
                db.close()

    @property
    def _looks_often(self) -> bool:
        now_steady_ms = self._clock.steady_ms()
        return bool(self._notifier.peers.trouble) or self._notifier.announcements.wants_looks(now_steady_ms)

    def _tend_peers(self) -> None:
        """See who is there, whatever was lost; and try again where no socket could be made."""
        peers, now_steady_ms = self._notifier.peers, self._clock.steady_ms()
        pause_ms = self._pace.unannounced_ms if peers.trouble else self._pace.safety_seconds * 1000
        if now_steady_ms - self._tended_steady_ms >= pause_ms:
            self._tended_steady_ms = now_steady_ms
            peers.look()
