"""What scripts and messages between shards say about places in lanes.

    enter   a run of this shard shall have a place in a lane of another one
    leave   it has ended, or stepped aside: its place is free
    go      it is its turn

Rules
- Each names the run and its epoch. A run enters at the epoch that it is parked with, and leaves with one that is not
  lower; when it enters again its epoch has grown. So a message that comes late, or twice, is told from a new one.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.kernel.lanes import Entering
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant
from holdfast.stores.redis import rows
from holdfast.stores.redis.net.client import Word

KINDS = frozenset({"enter", "leave", "go"})


class Reservation(Struct, frozen=True, gc=False):
    """What the shard of a lane has said to a run of another shard that is about to be admitted."""

    no_room: str = ""
    first: str = ""  # the run that stands in the way
    until_ms: str = ""

    def limits(self, entering: Entering | None) -> tuple[Word, ...]:
        """The limits of a start, for `ADMIT`."""
        assert entering is not None
        parked_max = "" if entering.parked_max is None else entering.parked_max
        return (parked_max, b"1" if entering.if_free else b"0", self.no_room, self.until_ms)


NO_PLACE = Reservation()


def enter_words(run: Run, entering: Entering, wake_at_ms: Instant) -> tuple[str, ...]:
    width = "" if entering.width is None else str(entering.width)
    rank = rows.rank(run.priority)
    return ("enter", run.namespace, entering.lane, run.id, str(run.epoch), width, rank, str(wake_at_ms))


def leave_words(run: Run) -> tuple[str, ...]:
    return ("leave", run.namespace, run.lane, run.id, str(run.epoch))
