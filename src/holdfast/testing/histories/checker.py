"""The checker: a pure function from a history to what must never be.

    invariant  what must hold                               kinds of violation
    ─────────  ───────────────────────────────────────────  ──────────────────────────────────────────────────────
    I1         one run holds a key                          two_holders, key_astray, created_twice, no_legal_order
    I2         an accepted run comes to its end             lost, never_ended, cancel_lost
    I3         what is recorded stays, and is not done      rewritten, unrecorded, recorded_twice, after_the_end,
               again                                        called_after_record, attempts_miscounted, timer_twice,
                                                            chain_broken, undone_for_nothing, undo_order,
                                                            receipt_incomplete, receipt_untrue
    I4         one effect key over all attempts             another_key, shared_key, repeated_for_nothing
    I5         nothing is acknowledged before it is kept    acknowledged_early
    I6         a stale fence is refused                     stale_write_accepted, length_not_checked
    I7         an accepted signal is received once          signal_lost, signal_twice, signal_refused, signal_order
    I8         a term has one leader                        two_leaders
    I9         nothing happens before its time; there are   timer_early
               no schedules yet
    I10        what a write sends arrives, and nothing else message_lost, message_invented
    I11        in = done + pending                          unasked, and lost
    I12        limits hold: lanes keep their order and      lane_width, lane_order, lane_forgotten
               their width
    I13        namespaces are apart                         other_namespace
    I14        what a policy denies is not done             there are no policies yet
    I15        all comes to rest after the last fault       never_ended
    I16        the audit chain is whole                     there is no audit yet

Rules
- A rule looks at what the history has. Where there are no records of the store's writes, journals stand for them.
- A repeated call of an effect is no violation if no engine could have prevented it, see `explained`.
- Whether there is a legal order of what clients were told of a key is searched for, see `key_moves`. A search that
  gives up says `undecided`, which is neither a violation nor a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from holdfast.testing.histories import effect_rules, key_rules, lane_rules, run_rules, signal_rules, store_rules
from holdfast.testing.histories.history import HistoryViolation, Record
from holdfast.testing.histories.key_moves import UNDECIDED, illegal_orders
from holdfast.testing.histories.linearizability import STEPS_MAX
from holdfast.testing.histories.seen import Seen

HistoryRule = Callable[[Seen], Iterator[HistoryViolation]]
HISTORY_RULES: tuple[HistoryRule, ...] = (
    key_rules.two_holders,
    key_rules.final_holders,
    key_rules.created_twice,
    run_rules.lost,
    run_rules.unasked,
    run_rules.restless,
    run_rules.cancel_lost,
    run_rules.other_namespaces,
    run_rules.rewritten,
    run_rules.unrecorded,
    run_rules.recorded_twice,
    run_rules.after_the_end,
    run_rules.broken_chains,
    run_rules.early,
    effect_rules.other_keys,
    effect_rules.shared_keys,
    effect_rules.repeated_for_nothing,
    effect_rules.called_after_record,
    effect_rules.attempts,
    effect_rules.undone_wrongly,
    effect_rules.receipts,
    store_rules.stale_writes,
    store_rules.lengths,
    store_rules.acknowledged_early,
    lane_rules.widths_and_orders,
    lane_rules.out_of_turn,
    lane_rules.places_of_the_ended,
    lane_rules.left_waiting,
    store_rules.terms,
    store_rules.messages,
    signal_rules.lost_or_twice,
    signal_rules.out_of_order,
)


class Examined(Struct, frozen=True):
    """What the checker says of a history. `undecided` are keys for which the search gave up."""

    violations: tuple[HistoryViolation, ...]
    undecided: tuple[HistoryViolation, ...] = ()

    @property
    def has_passed(self) -> bool:
        return not self.violations and not self.undecided


def examine(
    history: Sequence[Record], *, steps_max: int = STEPS_MAX, rules: Sequence[HistoryRule] = HISTORY_RULES
) -> Examined:
    """All that is wrong with a history, and what could not be decided. `steps_max` is for the search of each key."""
    return examine_seen(Seen(history), steps_max=steps_max, rules=rules)


def examine_seen(seen: Seen, *, steps_max: int = STEPS_MAX, rules: Sequence[HistoryRule] = HISTORY_RULES) -> Examined:
    """As `examine`, of a history whose records have been sorted already."""
    found = [violation for rule in rules for violation in rule(seen)]
    found += illegal_orders(seen, steps_max=steps_max)
    return Examined(
        tuple(each for each in found if each.kind != UNDECIDED), tuple(each for each in found if each.kind == UNDECIDED)
    )


def check(history: Sequence[Record], *, steps_max: int = STEPS_MAX) -> tuple[HistoryViolation, ...]:
    """As `examine`, in one: what could not be decided is among the rest, since it is no pass."""
    examined = examine(history, steps_max=steps_max)
    return (*examined.violations, *examined.undecided)
