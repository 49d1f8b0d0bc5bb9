"""Rules about receipts: what a receipt says of each effect is what the ledger says.

rule                                   what it compares
─────────────────────────────────────  ──────────────────────────────────────────────────────────────────
the receipt is not what happened       the receipt with the ledger
left behind                            what happened and has an undo, with what was undone
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.kernel.cancels import Left, Receipt
from holdfast.kernel.journal import Attempted, GaveUp, IntentEntry
from holdfast.kernel.runs import Status
from holdfast.pack import Effect
from holdfast.prove.rules.declarations import Declarations
from holdfast.prove.worlds.outcomes import WorldOutcome
from holdfast.prove.worlds.trace import BrokenRule

RULE = "the receipt is not what happened"


def broken_by_receipts(world: WorldOutcome, declared: Declarations) -> Iterator[BrokenRule]:
    """What is wrong with the receipts of a world."""
    for run_id, receipt in world.receipts.items():
        happened = _happened_in(world, run_id)
        yield from _not_told(world, run_id, receipt, happened)
        for left in _told(receipt).values():
            if left.state == "performed" and left.step not in happened:
                what = f"the receipt says that {left.step} was performed, and it was not"
                yield BrokenRule(rule=RULE, what=what, step=left.step)
            if (
                left.step in happened
                and left.state != "undone"
                and _is_to_be_undone(world, run_id, receipt, left, declared)
            ):
                why = f": {left.problem}" if left.problem else ""
                what = f"{left.step} happened and has an undo, and is left {left.state}{why}"
                yield BrokenRule(rule="left behind", what=what, step=left.step)


def _told(receipt: Receipt) -> dict[str, Left]:
    return {left.step: left for left in receipt.effects}


def _happened_in(world: WorldOutcome, run_id: str) -> list[str]:
    """The steps of a run whose effects happened, without undos."""
    return [
        step
        for (of_run, step), calls in world.calls_by_step().items()
        if of_run == run_id and not step.startswith("undo:") and any(call.happened for call in calls)
    ]


def _not_told(world: WorldOutcome, run_id: str, receipt: Receipt, happened: list[str]) -> Iterator[BrokenRule]:
    told = _told(receipt)
    for step in happened:
        left = told.get(step)
        if left is None and not _gave_up(world, run_id, step) and not waited_for_retry(world, run_id, step):
            yield BrokenRule(rule=RULE, what=f"{step} happened, and the receipt does not name it", step=step)
        elif left is not None and left.state == "undone" and (run_id, f"undo:{step}") not in world.calls_by_step():
            yield BrokenRule(rule=RULE, what=f"the receipt says that {step} is undone, and it is not", step=step)


def _gave_up(world: WorldOutcome, run_id: str, step: str) -> bool:
    """Whether its last word was a failure: then the effect does not count as performed, as it said itself."""
    return any(isinstance(entry, GaveUp) and entry.step == step for entry in world.journals[run_id])


def waited_for_retry(world: WorldOutcome, run_id: str, step: str) -> bool:
    """Whether each attempt failed as far as the run knows, and it ended before the next: receipts leave it out."""
    last = [entry for entry in world.journals[run_id] if isinstance(entry, IntentEntry) and entry.step == step][-1:]
    happened = [call for call in world.calls_by_step()[run_id, step] if call.happened]
    return bool(last) and isinstance(last[0], Attempted) and all(call.outcome == "lost" for call in happened)


def _is_to_be_undone(world: WorldOutcome, run_id: str, receipt: Receipt, left: Left, declared: Declarations) -> bool:
    effect = declared.effects.get(left.name)
    if effect is None or effect.undo is None or receipt.outcome == "resumable":
        return False
    if _is_undone_by_hand(world, run_id, left.step, effect):
        return False
    run = next(run for run in world.runs if run.id == run_id)
    return run.status is Status.CANCELLED or declared.workflow(run.workflow).undo_ms is not None


def _is_undone_by_hand(world: WorldOutcome, run_id: str, step: str, effect: Effect[..., Any]) -> bool:
    """Whether the code has called the undo itself, with the arguments that both take."""
    assert effect.undo is not None
    known = world.calls_by_step()[run_id, step][0].arguments
    for call in world.calls:
        if call.run == run_id and call.effect == effect.undo.name and call.happened and not call.is_undo:
            shared = known.keys() & call.arguments.keys()
            if shared and all(known[name] == call.arguments[name] for name in shared):
                return True
    return False
