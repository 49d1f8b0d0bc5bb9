"""What a workflow declares about when and how its runs go."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.kernel import flow_rules
from holdfast.kernel.batches import Batch
from holdfast.kernel.debounces import Debounce
from holdfast.kernel.flow_rules import NO_RULES, FlowRules, RuleOptions, Subject
from holdfast.kernel.rates import Rate

SUBJECT = Subject(owner="workflow 'shop.sync'", parameters=frozenset({"tenant"}), has_key=True)
DEBOUNCED = flow_rules.declared(RuleOptions(debounce=Debounce("5s")), SUBJECT)
OF_ITEMS = Subject(owner="workflow 'shop.embed'", parameters=frozenset({"items"}))


def test_a_workflow_without_rules() -> None:
    assert flow_rules.declared(RuleOptions(), SUBJECT) is NO_RULES
    assert RuleOptions().texts == ()


def test_all_that_go_together() -> None:
    options = RuleOptions(
        throttle=Rate(100, per="1m", burst=20, by="{tenant}"), fair="{tenant}", debounce=Debounce("5s", at_most="1m")
    )
    rules = flow_rules.declared(options, SUBJECT)
    assert None not in (rules.throttle, rules.fair, rules.debounce)
    assert rules.batch is None
    assert options.texts == (
        "throttle: 100 in 1m, 20 of them at once after a rest, for each {tenant}",
        "fair: {tenant} take turns",
        "debounce: until it is quiet for 5s, at most 1m",
    )


def test_a_batch() -> None:
    options = RuleOptions(batch=Batch(100, wait="2s", by="{tenant}"), throttle=Rate(1, per="1s"))
    rules = flow_rules.declared(options, OF_ITEMS)
    assert rules.batch is not None
    assert rules.throttle is not None
    assert options.texts == ("throttle: 1 in 1s", "batch: 100 items, or what has come in 2s, for each {tenant}")
    assert RuleOptions(batch=Batch(5)).texts == ("batch: 5 items, or what has come in 1s",)


def test_other_words() -> None:
    assert RuleOptions(throttle=Rate(5, per="1s", cost="n")).texts == ("throttle: 5 in 1s, counted by n",)
    assert RuleOptions(debounce=Debounce("5s")).texts == ("debounce: until it is quiet for 5s",)


@pytest.mark.parametrize(
    ("options", "subject", "named"),
    [
        ({"batch": Batch(3)}, {"has_key": True}, "key="),
        ({"batch": Batch(3)}, {"has_lane": True}, "lane="),
        ({"batch": Batch(3), "fair": "{items}"}, {}, "fair="),
        ({"batch": Batch(3), "debounce": Debounce("1s")}, {}, "debounce="),
        ({"batch": Batch(3), "throttle": Rate(1, per="1s", by="{items}")}, {}, "by="),
        ({"batch": Batch(3), "throttle": Rate(1, per="1s", cost="items")}, {}, "cost="),
        ({"debounce": Debounce("1s")}, {"has_key": True, "has_lane": True}, "lane="),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], subject: dict[str, Any], named: str) -> None:
    of = Subject(owner="workflow 'shop.embed'", parameters=frozenset({"items"}), **subject)
    with pytest.raises(UsageError, match=named) as raised:
        flow_rules.declared(RuleOptions(**options), of)
    assert raised.value.hint


@pytest.mark.parametrize(("rules", "lane"), [(NO_RULES, "deploy"), (NO_RULES, None), (DEBOUNCED, None)])
def test_a_start_may_name_a_lane_unless_its_runs_have_an_order_already(rules: FlowRules, lane: str | None) -> None:
    flow_rules.check_start(rules, lane, owner="workflow 'reindex'")


def test_a_start_of_a_debounced_workflow_names_no_lane() -> None:
    with pytest.raises(UsageError, match="workflow 'reindex' has debounce=, and was started with lane='deploy'"):
        flow_rules.check_start(DEBOUNCED, "deploy", owner="workflow 'reindex'")
