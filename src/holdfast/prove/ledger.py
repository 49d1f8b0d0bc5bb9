"""The ledger of a world: each call of an effect, as the world outside saw it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

CallOutcome = Literal["", "returned", "raised", "reply lost"]  # empty: it never came back


class EffectCallLine(Struct, kw_only=True):
    """A call of an effect."""

    effect: str
    step: str
    key: str
    run_id: str
    host: str
    attempt: int
    arguments: bytes
    began_ms: int
    ended_ms: int | None = None
    outcome: CallOutcome = ""
    after_record: bool = False  # the store had recorded the end of the step by then
    is_undo: bool = False

    @property
    def happened(self) -> bool:
        """Whether the world has seen it happen."""
        return self.outcome in {"returned", "reply lost"}


class WorldLedger(Struct):
    """All calls of one world, in the order in which they began."""

    lines: list[EffectCallLine] = []

    def of_step(self, run_id: str, step: str) -> list[EffectCallLine]:
        return [line for line in self.lines if line.run_id == run_id and line.step == step]

    def steps(self) -> dict[tuple[str, str], list[EffectCallLine]]:
        """The calls by run and step."""
        found: dict[tuple[str, str], list[EffectCallLine]] = {}
        for line in self.lines:
            found.setdefault((line.run_id, line.step), []).append(line)
        return found
