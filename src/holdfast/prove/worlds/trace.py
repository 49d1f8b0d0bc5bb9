"""What happened in one world, in order, and which rules were seen to be broken while it did."""

from __future__ import annotations

from msgspec import Struct

from holdfast.kernel.times import Millis
from holdfast.testing.simulation.world import World


class Happening(Struct, frozen=True):
    """Something that happened in a world, for those who read about it."""

    after_ms: Millis  # since the world began
    host: str
    kind: str  # call, commit, refused, fault, sent, end
    words: str
    step: str = ""


class BrokenRule(Struct, frozen=True, kw_only=True):
    """Something that must not be: which rule it breaks, what happened, and where in the user's code."""

    rule: str
    what: str
    step: str = ""
    line: str = ""


class WorldTrace:
    """Written by all parts of a world while it goes on."""

    def __init__(self, world: World) -> None:
        self.happenings: list[Happening] = []
        self.noted: list[BrokenRule] = []
        self._world = world

    @property
    def elapsed_ms(self) -> Millis:
        """Since the world began."""
        return Millis(int(self._world.now() * 1000))

    def tell(self, kind: str, words: str, *, host: str, step: str = "") -> None:
        """Something happens now."""
        self.happenings.append(Happening(self.elapsed_ms, host, kind, words, step))

    def note(self, rule: str, what: str, *, step: str = "", line: str = "") -> None:
        """A rule is broken, which only shows while it happens."""
        self.noted.append(BrokenRule(rule=rule, what=what, step=step, line=line))
