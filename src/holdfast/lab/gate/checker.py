"""The checker: a pure function from what was seen to what must never be.

    kind                 what it means
    ───────────────────  ─────────────────────────────────────────────────────────────────────────────────────────
    call_failed          a client call failed for good, though it was repeated as clients do
    lost                 an order has no run at the end, or a run that a start returned is not there: in ≠ done
    unasked              there is a run that no client asked for
    two_runs             one key has two runs, or two starts of it returned different ones
    admitted_twice       two requests were both told that they had created the run of one key
    not_completed        a run did not end as completed; FAILED counts as what it is
    wrong_result         a run returned something else than its effects, its signal and its child gave
    not_recorded         a run completed without the record of an effect
    recorded_twice       an effect, a child or a signal is in the journals more than once
    after_the_end        a journal goes on behind the entry that ended the run
    rewritten            a run that had ended is no longer what it was
    another_key          an effect was called, or recorded, under more than one key
    attempt_used         an effect was called as a later attempt, and no failed one is recorded
    repeated_for_nothing an effect was called again though nothing had happened to the process that called it before
    called_after_record  an effect was called again though it had been recorded
    timer_early          a timer elapsed, or a delayed run began, before its time by the ledger's clock
    signal_lost          a signal was accepted, and no run that had the key has it in its journal
    signal_twice         a signal was received twice
    signal_order         the signals of one sender were received in another order than they were sent in
    event_missed         a reader of events was never told of an entry of the journal
    event_repeated       a reader of events was told of an entry twice, or of an earlier one behind a later one
    not_found            a search did not find a run that it should have found
    found_wrongly        a search found a run that it should not have found, or found it twice
    revoked_key          an API key was accepted longer after its revocation than is promised
    unconfirmed          a start was confirmed although no replica of Redis could have had it
    lease_taken          a process lost a lease that it could rely on, and nothing had happened to it
    not_given_back       a process ended in order, and its run had to wait for the end of its lease
    two_leaders          two processes led one duty at the same time
    not_leading          a process did what only a leader does, and had lost the duty long before

Rules
- A repeated call is no violation if the process that called before was killed or stopped in between, or lost its lease:
  no engine can close the window between an effect and its record. That is why effects have keys.
- A process that was stopped, or lost its lease, may have passed its last look at the lease before that: its late calls
  are counted and count as explained. Its late writes are not.
- Every explanation has its time: a loss explains nothing that was long before it, or long after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.lab.gate import gateway_rules, lease_rules, run_rules, signal_rules, timer_rules, world_rules
from holdfast.lab.gate.evidence import Evidence, Violation

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
    timer_rules.early,
    signal_rules.lost,
    signal_rules.twice,
    signal_rules.out_of_order,
    gateway_rules.events_missed,
    gateway_rules.events_repeated,
    gateway_rules.searches,
    gateway_rules.revoked_keys,
    gateway_rules.unconfirmed,
    lease_rules.taken_from_the_living,
    lease_rules.not_given_back,
    lease_rules.two_leaders,
    lease_rules.acted_without_leading,
)


def violations(evidence: Evidence) -> tuple[Violation, ...]:
    """All that is wrong with what was seen."""
    return tuple(found for rule in RULES for found in rule(evidence))
