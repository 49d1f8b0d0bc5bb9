"""Rules: of two worlds that are made by hand, what is wrong with the second."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.kernel.cancels import Receipt
from holdfast.kernel.journal import CancelAsked
from holdfast.kernel.runs import Status
from holdfast.kernel.times import Instant, Millis
from holdfast.prove.rules.calls import broken_by_calls
from holdfast.prove.rules.declarations import Declarations
from holdfast.prove.rules.ends import broken_by_end, broken_by_observations
from holdfast.prove.rules.receipts import broken_by_receipts
from holdfast.prove.schedules import CLEAN
from holdfast.prove.worlds.outcomes import WorldOutcome
from holdfast.prove.worlds.performing import ProvedCall
from holdfast.testing import EffectLedger
from holdfast.testing.proofs import WorldCall
from holdfast.testing.simulation.hosts import BEGAN_AT_MS
from tests.builders import a_run
from tests.unit.prove.cases_of_shop import shop

DECLARED = Declarations([shop])
RUN = replace(a_run(workflow="prover_shop.checkout"), status=Status.COMPLETED, output=b'{"json":"done"}')


def a_call(step: str = "charge#1", **changes: Any) -> ProvedCall:
    effect = f"prover_shop.{step.removeprefix('undo:').partition('#')[0]}"
    known: dict[str, Any] = {"effect": effect, "run": RUN.id, "step": step, "key": "charge:o-1", "attempt": 1}
    known |= {"arguments": {}, "worker": "worker-1", "at": datetime.now(UTC), "outcome": "returned", "happened": True}
    return ProvedCall(**{**known, "encoded": b'{"cents":1}', "after_ms": Millis(10), **changes})


def a_world(*calls: ProvedCall, **changes: Any) -> WorldOutcome:
    ledger = EffectLedger()
    for call in calls:
        ledger.write(call)
    known: dict[str, Any] = {"schedule": CLEAN, "boundaries": [], "happenings": [], "ledger": ledger, "runs": [RUN]}
    known |= {"journals": {RUN.id: ()}, "blobs": {RUN.id: {}}, "receipts": {}, "root": RUN.id, "noted": [], "seen": []}
    known |= {"before": {}, "after": {}, "is_over": True, "lasted_seconds": 1.0, "faults_met": []}
    return WorldOutcome(**{**known, **changes})


CALLED = a_call()


@pytest.mark.parametrize(
    ("calls", "rules"),
    [
        ([CALLED], []),
        ([a_call(happened=False, outcome="raised"), a_call(attempt=2)], []),
        ([CALLED, a_call(happened=False, after_record=True)], ["done again after its record"]),
        ([CALLED, a_call()], ["a once-effect was called twice"]),
        ([CALLED, a_call(key="other", happened=False)], ["another key"]),
        ([CALLED, a_call(encoded=b'{"cents":2}', happened=False)], ["another key"]),
        ([a_call(key="other")], ["another key"]),  # than in the clean run
        ([a_call(encoded=b'{"cents":2}')], ["another key"]),
        ([CALLED, a_call("charge#2")], ["one key for two steps"]),
        ([a_call("undo:refund#1", key="r"), a_call("undo:refund#2", key="r")], []),  # an undo by hand is the undo
        (
            [a_call("undo:refund#1", key="r"), a_call("undo:refund#2", key="r", encoded=b"{}")],
            ["one key for two steps"],
        ),
    ],
)
def test_calls_are_judged(calls, rules):
    assert [each.rule for each in broken_by_calls(a_world(*calls), a_world(CALLED), DECLARED)] == rules


@pytest.mark.parametrize(("keys", "count"), [(["k", "k"], 0), (["k", "l"], 1)])
def test_what_a_provider_is_asked_for_has_one_key(keys, count):
    seen = [WorldCall("charge", key, RUN.id, "charge#1") for key in keys]
    assert len(list(broken_by_calls(a_world(seen=seen), a_world(), DECLARED))) == count


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({}, []),
        ({"runs": []}, ["it never ended"]),
        ({"is_over": False}, ["it never ended"]),
        ({"runs": [replace(RUN, status=Status.BLOCKED)]}, ["it is blocked"]),
        ({"runs": [replace(RUN, status=Status.FAILED)]}, ["another end"]),
        ({"runs": [replace(RUN, output=b'{"json":"other"}')]}, ["another end"]),
        ({"runs": [RUN, replace(RUN, id="a child", key="c")]}, ["other runs"]),
    ],
)
def test_ends_are_judged(changes, rules):
    assert [each.rule for each in broken_by_end(a_world(**changes), a_world(), DECLARED)] == rules


@pytest.mark.parametrize(
    ("status", "calls", "what"),
    [
        (Status.CANCELLED, [CALLED], []),
        (Status.COMPLETED, [CALLED], ["it was cancelled, and completed"]),
        (
            Status.CANCELLED,
            [CALLED, a_call("charge#2", after_ms=Millis(30))],
            ["it was cancelled, and went on: it began charge#2 after that"],
        ),
    ],
)
def test_a_run_that_is_asked_to_cancel_stops(status, calls, what):
    asked = CancelAsked(at_ms=Instant(BEGAN_AT_MS + 20), deadline_at_ms=Instant(BEGAN_AT_MS + 9_000))
    world = a_world(*calls, runs=[replace(RUN, status=status)], journals={RUN.id: (asked,)})
    assert [each.what for each in broken_by_end(world, a_world(), DECLARED)] == what


@pytest.mark.parametrize(
    ("status", "outcome", "left", "broken"),
    [
        (Status.COMPLETED, None, "100", []),
        (Status.COMPLETED, None, "200", ["the money taken: 200, and 100 in the clean run"]),
        (Status.CANCELLED, "compensated", "0", []),
        (
            Status.CANCELLED,
            "compensated",
            "100",
            ["the money taken: 100; before the run, which was undone, it was 0"],
        ),
        (Status.CANCELLED, "partial", "100", []),
    ],
)
def test_what_is_observed_is_as_in_the_clean_run_or_as_before_it(status, outcome, left, broken):
    receipts = {} if outcome is None else {RUN.id: Receipt(RUN.id, outcome=outcome)}
    money = {"before": {"the money taken": "0"}, "after": {"the money taken": left}}
    world = a_world(runs=[replace(RUN, status=status)], receipts=receipts, **money)
    clean = a_world(after={"the money taken": "100"})
    assert [each.what for each in broken_by_observations(world, clean, DECLARED)] == broken


def test_a_receipt_names_every_effect_that_happened():
    [broken] = broken_by_receipts(a_world(CALLED, receipts={RUN.id: Receipt(RUN.id, outcome="no_effects")}), DECLARED)
    assert broken.what == "charge#1 happened, and the receipt does not name it"
    assert not list(broken_by_receipts(a_world(receipts={RUN.id: Receipt(RUN.id, outcome="no_effects")}), DECLARED))
