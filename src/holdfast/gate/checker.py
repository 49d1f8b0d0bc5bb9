"""The checker: a pure function from what was seen to what must never be.

    kind                 what it means
    ───────────────────  ─────────────────────────────────────────────────────────────────────────────────────────
    call_failed          a client call failed for good, though it was repeated as clients do
    lost                 an order has no run at the end, or an answered run is not there: in = done does not hold
    unasked              there is a run that nobody asked for
    two_runs             one key has two runs, or two starts of it were answered with different ones
    admitted_twice       two requests were both told that they had created the run of one key
    not_completed        a run did not end as completed; FAILED counts as what it is
    wrong_result         a run returned something else than its effects, its signal and its child gave
    not_recorded         a run completed without the record of an effect
    recorded_twice       an effect, a child or a signal is in the journals more than once
    after_the_end        a journal goes on behind the entry that ended the run
    rewritten            a run that had ended is no longer what it was
    another_key          an effect was called, or recorded, under more than one key
    attempt_used         an effect was called as a later attempt, and no failed one is recorded
    repeated_for_nothing an effect was called again though nothing had happened to whoever called it before
    called_after_record  an effect was called again though it had been recorded

Rules
- A repeated call is no violation if whoever called before was killed or stopped in between, or lost its lease: no
  engine can close the window between an effect and its record. That is why effects have keys.
- A process that was stopped, or lost its lease, may have passed its last look at the lease before that: its late calls
  are counted and pardoned. Its late writes are not.
- Every pardon has its time: a loss explains nothing that was long before it, or long after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.gate import run_rules, world_rules
from holdfast.gate.evidence import Evidence, Violation

Rule = Callable[[Evidence], Iterator[Violation]]
RULES: tuple[Rule, ...] = (
    run_rules.failed_calls,
    run_rules.lost_or_unasked,
    run_rules.two_runs,
    run_rules.admitted_twice,
    run_rules.not_completed,
    run_rules.wrong_results,
    run_rules.not_recorded,
    run_rules.recorded_twice,
    run_rules.after_the_end,
    run_rules.rewritten,
    world_rules.other_keys,
    world_rules.attempts_used,
    world_rules.repeated_for_nothing,
    world_rules.called_after_record,
)


def violations(evidence: Evidence) -> tuple[Violation, ...]:
    """All that is wrong with what was seen."""
    return tuple(found for rule in RULES for found in rule(evidence))
