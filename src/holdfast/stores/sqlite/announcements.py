"""Whether the other processes announce what they commit, and so how soon this one has to look for itself.

    announced     each commit that was found came with a datagram        look now and then
      | one was found, and no datagram came since the look before
      v
    suspected     it may be on its way                                   look often, for a moment
      | a datagram comes: announced
      v
    unannounced   a process commits and tells no other                   look often, for a minute

Such a process is of an earlier version, or it cannot reach our socket. It is noticed again and again as long as it
commits, so the minute begins again. A commit that hides behind the announced ones of other processes is found when this
one looks now and then.
"""

from __future__ import annotations

from holdfast.kernel.times import Steady
from holdfast.stores.sqlite.pace import SqlitePace


class Announcements:
    """What was heard and found, as far as it matters for the next look."""

    def __init__(self, pace: SqlitePace) -> None:
        self._pace = pace
        self._heard = True  # the first look finds what was there before
        self._suspected_steady_ms: Steady | None = None
        self._unannounced_until_steady_ms: Steady | None = None

    def hear(self) -> None:
        """A datagram has come."""
        self._heard = True

    def look(self, *, found: bool, now_steady_ms: Steady) -> None:
        """This process has looked: whether others have committed since the look before."""
        if self._heard:
            self._suspected_steady_ms = None
        elif found and self._suspected_steady_ms is None:
            self._suspected_steady_ms = now_steady_ms
        self._heard = False
        suspected = self._suspected_steady_ms
        if suspected is not None and now_steady_ms >= suspected + self._pace.announced_ms:
            self._suspected_steady_ms = None
            self._unannounced_until_steady_ms = now_steady_ms + self._pace.unannounced_ms

    def complete(self, now_steady_ms: Steady) -> bool:
        """Whether no commit was found lately that was not announced."""
        until = self._unannounced_until_steady_ms
        return until is None or now_steady_ms >= until

    def wants_looks(self, now_steady_ms: Steady) -> bool:
        """Whether to look often."""
        return self._suspected_steady_ms is not None or not self.complete(now_steady_ms)
