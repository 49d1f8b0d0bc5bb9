"""What must hold in every world, whatever its faults were. Pure: a world that is over in, broken rules out.

The rules stand in tables: of calls (`calls.py`), of ends and of what is left behind (`ends.py`), of receipts
(`receipts.py`), of journals (`journals.py`). Some show only while a world goes on; those are in its trace.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.prove.rules.calls import broken_by_calls
from holdfast.prove.rules.declarations import Declarations
from holdfast.prove.rules.ends import broken_by_end, broken_by_observations
from holdfast.prove.rules.journals import PrefixReplays, broken_by_records
from holdfast.prove.rules.receipts import broken_by_receipts
from holdfast.prove.worlds.outcomes import WorldOutcome
from holdfast.prove.worlds.trace import BrokenRule


class Judge:
    """Compares worlds with the clean one."""

    def __init__(self, clean: WorldOutcome, declared: Declarations) -> None:
        self._clean = clean
        self._declared = declared
        self._replays = PrefixReplays(declared)

    def judge(self, world: WorldOutcome) -> list[BrokenRule]:
        """Everything that is wrong with a world, the most telling first."""
        clean, declared = self._clean, self._declared
        found = [
            *world.noted,
            *broken_by_calls(world, clean, declared),
            *self._replays.broken_by(world),
            *broken_by_end(world, clean, declared),
            *broken_by_receipts(world, declared),
            *broken_by_records(world, declared),
            *broken_by_observations(world, clean, declared),
        ]
        lines = world.lines_by_step() | clean.lines_by_step()
        return [each if each.line else replace(each, line=_line_of(each.step, lines)) for each in found]


def _line_of(step: str, lines: dict[str, str]) -> str:
    return lines.get(step) or lines.get(step.removeprefix("undo:"), "")
