from __future__ import annotations

from msgspec import Raw
from msgspec.structs import replace

from holdfast.dashboard.shown_waits import TEXT_MAX, Fact, shown
from holdfast.kernel.running_effects import RunningEffect
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import utc_of
from holdfast.kernel.waits import Wait


def test_a_wait_is_its_sentence():
    [found] = shown([Wait("timer", "sleep#1", 60_000, "sleep#1")])
    assert (found.kind, found.facts) == ("timer", ())
    assert found.text.startswith("timer sleep#1 until")
    assert found.until == utc_of(60_000)


def test_a_child_is_named_by_its_key_where_that_is_known_and_can_be_visited():
    waits = [Wait("child", "run-2", step="500/one#1"), Wait("child", "run-3", step="501/one#1")]
    first, second = shown(waits, {"run-2": "item:500", "run-4": None})
    assert (first.text, first.run_id, first.run_name, first.step) == ("child run", "run-2", "item:500", "500/one#1")
    assert (second.run_id, second.run_name) == ("run-3", "run-3")
    assert shown(waits, {"run-2": None})[0].run_name == "run-2"


def test_an_effect_that_runs_is_told_by_its_facts():
    effect = RunningEffect(
        "shop.charge",
        3,
        Instant(60_000),
        Millis(90_000),
        heartbeat_json=Raw(b'{"done": 7}'),
        heartbeat_at_ms=Instant(70_000),
    )
    [found] = shown([Wait("running", "web-1-7-a1b2.nonce", Instant(150_000), "charge#1", effect)])
    assert found.text == "effect charge#1"
    assert (found.until, found.until_is) == (utc_of(150_000), "times out")
    assert found.facts == (
        Fact("effect", "shop.charge"),
        Fact("attempt", "3"),
        Fact("began", "", utc_of(60_000)),
        Fact("on instance", "web-1-7-a1b2"),
        Fact("last heartbeat", '{"done": 7}'),
        Fact("heard", "", utc_of(70_000)),
    )


def test_where_it_is_performed_and_whether_that_is_known_is_a_fact():
    effect = RunningEffect("shop.charge", 1, Instant(60_000), remote=True)
    facts = {fact.label: fact.text for fact in shown([Wait("running", "web.nonce", None, "charge#1", effect)])[0].facts}
    assert facts["on instance"] == "web, by remote workers"
    lost = replace(effect, remote=False, lost=True)
    facts = {fact.label: fact.text for fact in shown([Wait("running", "web.nonce", None, "charge#1", lost)])[0].facts}
    assert facts["on instance"] == "web, until its lease expired"


def test_a_long_heartbeat_is_cut():
    effect = RunningEffect("shop.charge", 1, Instant(60_000), heartbeat_json=Raw(b'"' + b"x" * 1_000 + b'"'))
    [found] = shown([Wait("running", "web.nonce", None, "charge#1", effect)])
    assert len(found.facts[-1].text) == TEXT_MAX + 2
