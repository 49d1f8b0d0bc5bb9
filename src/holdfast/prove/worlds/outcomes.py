"""A world that is over: all that is judged of it."""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from holdfast.kernel.cancels import Receipt
from holdfast.kernel.journal import CancelAsked, Entry, IntentEntry
from holdfast.kernel.runs import Run
from holdfast.prove.schedules import Boundary, Schedule
from holdfast.prove.worlds.performing import ProvedCall
from holdfast.prove.worlds.trace import BrokenRule, Happening
from holdfast.testing.effect_ledger import EffectLedger


class WorldOutcome(Struct, kw_only=True):
    """What came of one world."""

    schedule: Schedule
    boundaries: list[Boundary]
    happenings: list[Happening]
    ledger: EffectLedger  # of `ProvedCall`s
    runs: list[Run]
    journals: dict[str, tuple[Entry, ...]]
    blobs: dict[str, dict[str, bytes]]
    receipts: dict[str, Receipt]
    root: str  # the id of the run that was started; the others are its children
    noted: list[BrokenRule]
    seen: list[Any]
    before: dict[str, str]
    after: dict[str, str]
    is_over: bool
    lasted_seconds: float
    faults_met: list[Boundary]
    slower: list[WorldOutcome] = []  # of the clean one: itself, later and when its effects take longer
    earlier: list[WorldOutcome] = []  # of the clean one: how it was lived before, with other leases

    @property
    def root_run(self) -> Run | None:
        return next((run for run in self.runs if run.id == self.root), None)

    @property
    def calls(self) -> list[ProvedCall]:
        """All attempts of effects, in order."""
        return cast("list[ProvedCall]", list(self.ledger))

    def calls_by_step(self) -> dict[tuple[str, str], list[ProvedCall]]:
        """The attempts of effects by run and step."""
        found: dict[tuple[str, str], list[ProvedCall]] = {}
        for call in self.calls:
            found.setdefault((call.run, call.step), []).append(call)
        return found

    def name_of(self, run_id: str) -> str:
        """A name of this run that it has in other worlds, too; its id, if there is none."""
        if run_id == self.root:
            return "root"
        return next((f"{run.workflow}/{run.key}" for run in self.runs if run.id == run_id), run_id)

    def cancel_position(self, run_id: str) -> int | None:
        """Where the journal of this run says that it was asked to cancel."""
        journal = self.journals[run_id]
        return next((at for at, entry in enumerate(journal) if isinstance(entry, CancelAsked)), None)

    def lines_by_step(self) -> dict[str, str]:
        """The lines of the user's code that the journals name."""
        return {
            entry.step: entry.intent.line
            for journal in self.journals.values()
            for entry in journal
            if isinstance(entry, IntentEntry) and entry.intent.line
        }
