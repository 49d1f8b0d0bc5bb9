"""A schedule: which faults a world has, and how often what is sent to it arrives. All that a repetition needs.

A boundary is a place between two things of which a crash may let the first happen and the second not. Boundaries are
numbered in the order in which a world reaches them. A world is determined by its case, its seed and its schedule, so
up to its first fault it is the clean run, and a number means the same place in both.

    boundary                     faults there
    ───────────────────────────  ──────────────────────────────────────────────────────────────────────────
    before a commit or a claim   crash: it is never sent · late: the sender stands still past its lease, and it arrives
                                 after the takeover · stale: the same, and it arrives after the end · cancel
    after it was applied         crash: the reply is never read · pause: the sender stands still past its lease · cancel
    an effect is entered, left   crash · pause · cancel
    before a lease is renewed    crash · pause
    a start, a signal, sent      crash of the caller, who repeats it from elsewhere
    and applied
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from holdfast.kernel.times import Millis

FaultKind = Literal["crash", "late", "stale", "pause", "cancel"]
BoundaryKind = Literal["commit", "claim", "effect", "renewal", "acknowledgement"]
Phase = Literal["before", "after"]
Repeat = Literal["once", "twice", "together", "late"]

FAULTS: dict[tuple[BoundaryKind, Phase], tuple[FaultKind, ...]] = {
    ("commit", "before"): ("crash", "late", "stale", "cancel"),
    ("commit", "after"): ("crash", "pause", "cancel"),
    ("claim", "before"): ("crash", "late"),
    ("claim", "after"): ("crash", "pause"),
    ("effect", "before"): ("crash", "pause", "cancel"),
    ("effect", "after"): ("crash", "pause", "cancel"),
    ("renewal", "before"): ("crash", "pause"),
    ("acknowledgement", "before"): ("crash",),
    ("acknowledgement", "after"): ("crash",),
}


class Boundary(Struct, frozen=True, kw_only=True):
    """A boundary that a world has reached."""

    number: int
    kind: BoundaryKind
    phase: Phase
    host: str
    after_ms: Millis  # since the world began
    about: str  # what is committed, performed or sent there
    line: str = ""  # of the user's code that asked for it

    @property
    def place(self) -> tuple[str, str, str]:
        """Where it is, apart from when: alike boundaries have alike places."""
        return self.kind, self.phase, self.about

    def __str__(self) -> str:
        where = f" ({self.line})" if self.line else ""
        return f"{'right before' if self.phase == 'before' else 'right after'} {self.about}{where}"


class PlannedFault(Struct, frozen=True):
    """What is done to a world when it reaches a boundary."""

    at: int
    what: FaultKind


class Schedule(Struct, frozen=True):
    """What happens to one world."""

    faults: tuple[PlannedFault, ...] = ()
    start: Repeat = "once"
    signals: Repeat = "once"

    @property
    def size(self) -> int:
        """How much happens: of two that show the same mistake, the smaller is told."""
        return len(self.faults) + (self.start != "once") + (self.signals != "once")


CLEAN = Schedule()
