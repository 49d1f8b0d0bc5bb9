"""Replay: whether the code asks for what the journal holds.

Rules
- A step's id is its lineage (which task of the run), its name and its occurrence: `charge#2`, `1.0/charge#1`.
- Recorded entries reach the code in the order in which they were committed, one at a time; after each the code
  runs until it can do nothing more. So when an entry's turn comes, the code must be waiting for just that step.
- If it is not, or if it asks for something else under the same step, the code contradicts the journal. The run
  is blocked with both sides named. It is never failed for it, and never silently wrong.
- A default value that a deploy has changed is another input. It does not matter to a step that has been performed,
  which is not called again; a step that may have been called, and would be called again under the same key, must be
  called with the same input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Protocol

from msgspec import Struct

from holdfast.kernel.journal import (
    Attempted,
    CancelAsked,
    Closed,
    Elapsed,
    Entry,
    Forked,
    GaveUp,
    Ignored,
    Intended,
    Intent,
    IntentEntry,
    Joined,
    Late,
    Marked,
    Opened,
    Patched,
    Performed,
    Received,
    ReplayedEntry,
    Retried,
    Spawned,
    StepEntry,
    Stopped,
    Tagged,
    step_of,
)

TIMER = Intent("timer", "timer")
_DELIVERS = (
    Performed | GaveUp | Elapsed | Spawned | Joined | Attempted | Intended | Received | Opened | CancelAsked | Stopped
)


_BEGUN = Attempted | Intended  # called already, or about to be, and called again


class Noted(Struct, frozen=True):
    """What the notes of a journal say: the code must not note it again.

    `origin` and `keys` are there if the run is a fork: the run that seeds chance, and the keys under which the
    effects of the copied part were performed. `shows_again` says that what the run shows comes from a try that no
    longer counts.
    """

    steps: frozenset[str] = frozenset()
    patches: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    origin: str = ""
    keys: Mapping[str, str] = {}
    shows_again: bool = False


NOTHING_NOTED = Noted()


def noted(journal: tuple[Entry, ...], *, first: int = 0) -> Noted:
    """What the notes of this journal say; `first` is the position of its first entry.

    What the code noted about a failure that is tried again does not count: the next try notes for itself.
    """
    forks = [entry for entry in journal if isinstance(entry, Forked)]
    tried = {
        position
        for end, entry in enumerate(journal, first)
        if isinstance(entry, Retried) and entry.void
        for position in range(min(entry.void), end)
    }
    counting = [entry for position, entry in enumerate(journal, first) if position not in tried]
    return Noted(
        frozenset(entry.step for entry in counting if isinstance(entry, Marked | Tagged | Closed | Late)),
        frozenset(entry.name for entry in counting if isinstance(entry, Patched)),
        frozenset(entry.id for entry in journal if isinstance(entry, Ignored)),
        forks[-1].origin if forks else "",
        {
            entry.step: entry.intent.key
            for entry in journal
            if isinstance(entry, Performed | GaveUp | Attempted | Intended)
        }
        if forks
        else {},
        any(isinstance(journal[position - first], Marked | Tagged) for position in tried),
    )


def last_delivery(entries: list[ReplayedEntry]) -> int:
    """The index of the last entry that the code must meet; what the code does after it, it does for the first time."""
    return max((n for n, each in enumerate(entries) if each.strict and isinstance(each.entry, _DELIVERS)), default=-1)


class TaskLineage:
    """The place of one task among the tasks of its run; numbers its children and its steps as they come."""

    __slots__ = ("_children", "_occurrences", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._children = 0
        self._occurrences: dict[str, int] = {}

    def child(self) -> TaskLineage:
        """The lineage of the next task that this one creates."""
        number, self._children = self._children, self._children + 1
        return TaskLineage(f"{self.path}.{number}" if self.path else str(number))

    def step(self, name: str) -> str:
        """The id of the next step of this name."""
        occurrence = self._occurrences[name] = self._occurrences.get(name, 0) + 1
        return f"{self.path}/{name}#{occurrence}" if self.path else f"{name}#{occurrence}"


class Divergence(Struct, frozen=True, gc=False):
    """Where the code and the journal part."""

    recorded: str
    asked: str

    def __str__(self) -> str:
        return f"the journal has {self.recorded}; the code {self.asked}"


class Asked(Protocol):
    """What the code asks for, by the ids of its open steps: a mapping is one."""

    def get(self, step: str, /) -> Intent | None: ...
    def items(self) -> Iterable[tuple[str, Intent]]: ...


def contradiction(entry: Entry, position: int, asked: Asked) -> Divergence | None:
    """How `entry` contradicts what the code asks for, if it does."""
    if not isinstance(entry, StepEntry):
        return None
    step, recorded = entry.step, entry.intent if isinstance(entry, IntentEntry) else None
    intent = asked.get(step)
    if recorded is intent and intent is not None:
        return None  # it was made of what the code asks for
    if intent is None:
        return Divergence(_recorded(entry, position, step, recorded), _waiting_for(asked))
    if recorded is not None and not recorded.same_as(intent):
        return Divergence(_recorded(entry, position, step, recorded), f"asks for {_named(intent)} there")
    if recorded is not None and isinstance(entry, _BEGUN) and (changed := recorded.changed_defaults(intent)):
        asks = f"asks for {_named(intent)} there, with another default value of {', '.join(changed)}"
        return Divergence(_recorded(entry, position, step, recorded), asks)
    if isinstance(entry, Elapsed) != (intent is TIMER) or not _may_join(entry, intent):
        return Divergence(_recorded(entry, position, step, recorded), f"asks for {_named(intent)} there")
    return None


def _may_join(entry: Entry, intent: Intent) -> bool:
    """Whether the outcome of a run is recorded where the code waits for that very run."""
    if not isinstance(entry, Joined):
        return True
    return intent.kind in {"child", "stop"} or (intent.kind == "join" and entry.run_id == intent.key)


def ended_early(entry: Entry, position: int) -> Divergence:
    """The code has ended although the journal goes on."""
    intent = entry.intent if isinstance(entry, IntentEntry) else None
    return Divergence(_recorded(entry, position, step_of(entry), intent), "has already ended there")


def _recorded(entry: Entry, position: int, step: str, intent: Intent | None) -> str:
    of_run = f" of run {entry.run_id}" if isinstance(entry, Joined) else ""
    return f"{entry.what} {step}{of_run} as entry {position}" + (f" ({_named(intent)})" if intent else "")


def _waiting_for(asked: Asked) -> str:
    first = sorted(asked.items(), key=itemgetter(0))[:5]
    return "waits for " + (", ".join(f"{step} ({_named(intent)})" for step, intent in first) or "nothing there")


def _named(intent: Intent) -> str:
    parts = [f"{intent.kind} {intent.name}"]
    if intent.key:
        parts.append(f"key {intent.key!r}")
    if intent.digest:
        parts.append(f"input {intent.digest[:8]}")
    if intent.line:
        parts.append(f"at {intent.line}")
    return ", ".join(parts)
