"""Replay: whether the code asks for what the journal holds.

Rules
- A step's id is its lineage (which task of the run), its name and its occurrence: `charge#2`, `1.0/charge#1`.
- Recorded entries reach the code in the order in which they were committed, one at a time; after each the code
  runs until it can do nothing more. So when an entry's turn comes, the code must be waiting for just that step.
- If it is not, or if it asks for something else under the same step, the code contradicts the journal. The run
  is blocked with both sides named. It is never failed for it, and never silently wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from holdfast.kernel.journal import Elapsed, Entry, Intent, Joined, Spawned

TIMER = Intent("timer", "timer")


class Lineage:
    """The place of one task among the tasks of its run; numbers its children and its steps as they come."""

    __slots__ = ("_children", "_occurrences", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._children = 0
        self._occurrences: dict[str, int] = {}

    def child(self) -> Lineage:
        """The lineage of the next task that this one creates."""
        number, self._children = self._children, self._children + 1
        return Lineage(f"{self.path}.{number}" if self.path else str(number))

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


def contradiction(entry: Entry, position: int, asked: Mapping[str, Intent]) -> Divergence | None:
    """How `entry` contradicts what the code asks for, if it does. `asked` holds the open steps by id."""
    step: str | None = getattr(entry, "step", None)
    if step is None:
        return None
    recorded = None if isinstance(entry, Elapsed | Joined) else getattr(entry, "intent", None)
    intent = asked.get(step)
    if intent is None:
        return Divergence(_recorded(entry, position, step, recorded), _waiting_for(asked))
    if recorded is not None and not recorded.same_as(intent):
        return Divergence(_recorded(entry, position, step, recorded), f"asks for {_named(intent)} there")
    if isinstance(entry, Elapsed) != (intent is TIMER) or not _may_join(entry, intent):
        return Divergence(_recorded(entry, position, step, recorded), f"asks for {_named(intent)} there")
    return None


def _may_join(entry: Entry, intent: Intent) -> bool:
    """Whether the outcome of a run is recorded where the code waits for that very run."""
    if not isinstance(entry, Joined):
        return True
    return intent.kind == "child" or (intent.kind == "join" and entry.run_id == intent.key)


def ended_early(entry: Entry, position: int) -> Divergence:
    """The code has ended although the journal goes on."""
    step: str = getattr(entry, "step", "")
    return Divergence(_recorded(entry, position, step, getattr(entry, "intent", None)), "has already ended there")


def _recorded(entry: Entry, position: int, step: str, intent: Intent | None) -> str:
    of_run = f" of run {entry.run_id}" if isinstance(entry, Joined) else ""
    return f"{entry.what} {step}{of_run} as entry {position}" + (f" ({_named(intent)})" if intent else "")


def _waiting_for(asked: Mapping[str, Intent]) -> str:
    if not asked:
        return "waits for nothing there"
    return "waits for " + ", ".join(f"{step} ({_named(intent)})" for step, intent in sorted(asked.items())[:5])


def _named(intent: Intent) -> str:
    parts = [f"{intent.kind} {intent.name}"]
    if intent.key:
        parts.append(f"key {intent.key!r}")
    if intent.digest:
        parts.append(f"input {intent.digest[:8]}")
    if intent.line:
        parts.append(f"at {intent.line}")
    return ", ".join(parts)


def waits_for_child(entry: Entry) -> bool:
    """Whether this entry says that a child was admitted whose outcome is still to come."""
    return isinstance(entry, Spawned) and entry.intent.kind == "child"
