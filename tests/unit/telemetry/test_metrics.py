from __future__ import annotations

import asyncio
import math
import re
import sys
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from holdfast import events
from holdfast.buses.memory import MemoryBus, MemoryExchange
from holdfast.errors import InvalidConfig, StoreUnavailable
from holdfast.kernel.runs import Status
from holdfast.ports.store import Backlog, Depth, Member, Serves
from holdfast.telemetry import metrics
from holdfast.telemetry.metrics import METRICS, Metrics
from tests.builders import FakeClock

W, E = "shop.checkout", "shop.charge"


class Sight:
    """Says what it is told to, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.now_ms = 1_000_000
        self.trouble: Exception | None = None
        self.duties_led = {"rescuer": True, "pruner": False}
        self.bus: MemoryBus | None = None
        self.poll_reason = ""
        self.threads_given_up = 2
        self.limits_by_itself = True

    async def backlog(self) -> Backlog:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        depths = (Depth(W, "default", 7, self.now_ms - 2_500), Depth("shop.refund", "slow", 0, None))
        return Backlog({Status.PENDING: 7, Status.COMPLETED: 10_000}, depths)

    async def workers(self) -> list[Member]:
        return [Member("w-1", 0, 1, Serves("default", (W,)), 3)]


@pytest.fixture
def sight() -> Sight:
    return Sight()


@pytest.fixture
def counted(sight: Sight) -> Metrics:
    return Metrics(sight, instance="box-1-a0f3", now_ms=lambda: sight.now_ms)


def value(counted: Metrics, name: str, **labels: str) -> float | None:
    return counted.registry.get_sample_value(name, labels)


async def rendered(counted: Metrics) -> dict[str, list[Any]]:
    """Samples by the name of their family, read as Prometheus reads them."""
    body, _ = await counted.render()
    return {family.name: family.samples for family in text_string_to_metric_families(body.decode())}


MOVES: list[tuple[events.Event, str, dict[str, str], float]] = [
    (events.RunsPruned(5), "holdfast_runs_pruned_total", {}, 5),
    (
        events.EffectHeld("r", "charge#1", "breaker", "stripe"),
        "holdfast_effects_held_total",
        {"kind": "breaker", "rule": "stripe"},
        1,
    ),
    (
        events.BreakerChanged("stripe", "half-open"),
        "holdfast_breaker_changes_total",
        {"breaker": "stripe", "state": "half-open"},
        1,
    ),
    (events.BreakerProbed("stripe"), "holdfast_breaker_probes_total", {"breaker": "stripe"}, 1),
    (
        events.DecidesAlone("limit", "stripe", "away"),
        "holdfast_rules_decided_alone_total",
        {"kind": "limit", "rule": "stripe"},
        1,
    ),
    (events.MessagesRelayed(3), "holdfast_messages_relayed_total", {}, 3),
    (events.Elected("relay", 7), "holdfast_elections_total", {"duty": "relay", "outcome": "elected"}, 1),
    (events.Deposed("relay", 7), "holdfast_elections_total", {"duty": "relay", "outcome": "deposed"}, 1),
    (events.RunAdmitted("r", W, None), "holdfast_runs_started_total", {"workflow": W}, 1),
    (events.RunForked("r", "q", W), "holdfast_runs_started_total", {"workflow": W}, 1),
    (events.RunJoined("r", W, "k"), "holdfast_runs_joined_total", {"workflow": W}, 1),
    (events.RunParked("r", W, "x"), "holdfast_runs_parked_total", {"workflow": W}, 1),
    (
        events.RunEnded("r", W, "failed", elapsed_ms=70),
        "holdfast_runs_finished_total",
        {"workflow": W, "status": "failed"},
        1,
    ),
    (events.RunEnded("r", W, "completed", elapsed_ms=70), "holdfast_run_duration_seconds_sum", {"workflow": W}, 0.07),
    (
        events.RunEnded("r", W, "completed", elapsed_ms=70),
        "holdfast_run_duration_seconds_bucket",
        {"workflow": W, "le": "0.1"},
        1,
    ),
    (
        events.RunBlocked("r", "replay_diverged", "why", W),
        "holdfast_runs_blocked_total",
        {"workflow": W, "code": "replay_diverged"},
        1,
    ),
    (
        events.EffectPerformed("r", "charge#1", 1, E, 20.0),
        "holdfast_effect_attempts_total",
        {"effect": E, "outcome": "performed"},
        1,
    ),
    (
        events.EffectWillRetry("r", "charge#1", 1, 5, "boom", E, 20.0),
        "holdfast_effect_attempts_total",
        {"effect": E, "outcome": "retried"},
        1,
    ),
    (
        events.EffectGaveUp("r", "charge#1", 3, "boom", E, 20.0),
        "holdfast_effect_attempts_total",
        {"effect": E, "outcome": "gave_up"},
        1,
    ),
    (
        events.EffectGaveUp("r", "charge#1", 3, "boom", E, 20.0),
        "holdfast_effect_duration_seconds_sum",
        {"effect": E},
        0.02,
    ),
    (events.RunsClaimed(3, 40), "holdfast_claim_latency_seconds_sum", {}, 0.04),
    (events.BatchCommitted(12), "holdfast_commit_batch_size_bucket", {"le": "16.0"}, 1),
    (events.AskedInVain("claim"), "holdfast_idle_reads_total", {"part": "claim"}, 1),
    (events.LeaseWasLost("w-1", 2), "holdfast_lease_losses_total", {}, 1),
    (events.ThreadGivenUp("r", "charge#1", E, 3), "holdfast_effect_threads_given_up_total", {"effect": E}, 1),
    (
        events.RunHandedOver("a", "shop.checkout", "w-2", "why"),
        "holdfast_runs_handed_over_total",
        {"workflow": "shop.checkout"},
        1,
    ),
    (events.RunTakenUp("a", "shop.checkout"), "holdfast_runs_taken_up_total", {"workflow": "shop.checkout"}, 1),
    (events.RunSuspected("a", "shop.checkout", 2), "holdfast_runs_suspected_total", {"workflow": "shop.checkout"}, 1),
    (
        events.CallDropped("a", "shop.checkout", "shop.charge", "shop.py:12"),
        "holdfast_calls_dropped_total",
        {"workflow": "shop.checkout"},
        1,
    ),
    (
        events.RunDebounced("a", "shop.checkout", "k"),
        "holdfast_runs_debounced_total",
        {"workflow": "shop.checkout"},
        1,
    ),
    (
        events.RunThrottled("a", "shop.checkout", 5),
        "holdfast_runs_throttled_total",
        {"workflow": "shop.checkout"},
        1,
    ),
    (events.RunsRescued(("a", "b")), "holdfast_runs_rescued_total", {}, 2),
    (
        events.LimitChecked("tenant", "refused"),
        "holdfast_limit_checks_total",
        {"limit": "tenant", "verdict": "refused"},
        1,
    ),
    (events.StoreTroubled("locked"), "holdfast_store_troubles_total", {}, 1),
    (events.DutyFailed("pruner", "x"), "holdfast_part_failures_total", {"part": "pruner"}, 1),
    (events.PartFailed("Worker.claim", "x"), "holdfast_part_failures_total", {"part": "Worker.claim"}, 1),
]


@pytest.mark.parametrize(("event", "name", "labels", "becomes"), MOVES)
def test_an_event_moves_its_metric(counted, event, name, labels, becomes):
    assert not value(counted, name, **labels)
    counted(event)
    assert value(counted, name, **labels) == pytest.approx(becomes)
    counted(event)
    assert value(counted, name, **labels) == pytest.approx(2 * becomes)


def test_every_metric_that_events_move_is_tried_here():
    tried = {re.sub(r"_(sum|bucket)$", "", name) for _, name, _, _ in MOVES}
    assert tried == {metric.name for metric in METRICS if metric.kind != "gauge"}


def test_an_effect_that_was_only_reconciled_has_no_duration(counted):
    counted(events.EffectPerformed("r", "charge#1", 1, E, None))
    assert value(counted, "holdfast_effect_attempts_total", effect=E, outcome="performed") == 1
    assert value(counted, "holdfast_effect_duration_seconds_count", effect=E) is None


def test_how_a_breaker_stands_and_who_has_which_slots(counted):
    for state, number in (("open", 2), ("half-open", 1), ("closed", 0)):
        counted(events.BreakerChanged("stripe", state))
        assert value(counted, "holdfast_breaker_state", breaker="stripe") == number
    counted(events.SlotsMoved("stripe", 7, 10))
    assert value(counted, "holdfast_limit_slots", limit="stripe") == 7


def test_other_events_are_nothing_to_count(counted):
    before = list(counted.registry.collect())
    counted(events.RunSignalled("r", "approval"))
    assert list(counted.registry.collect()) == before


async def test_what_the_store_knows_is_asked_when_somebody_looks(counted, sight):
    samples = await rendered(counted)
    assert {sample.labels["status"]: sample.value for sample in samples["holdfast_runs"]} == {
        "pending": 7,
        "completed": 10_000,
    }
    assert value(counted, "holdfast_queue_ready_runs", queue="default", workflow=W) == 7
    assert value(counted, "holdfast_queue_oldest_seconds", queue="default", workflow=W) == 2.5
    assert value(counted, "holdfast_queue_oldest_seconds", queue="slow", workflow="shop.refund") == 0
    assert value(counted, "holdfast_workers") == 1
    [info] = samples["holdfast_build_info"]
    assert info.value == 1
    assert set(info.labels) == {"version", "python", "instance_id"}


async def test_the_store_is_asked_at_most_once_a_second(counted, sight):
    for _ in range(3):
        await counted.render()
    await asyncio.gather(*(counted.render() for _ in range(3)))
    assert sight.asked == 1
    sight.now_ms += metrics.LOOK_EVERY_MS
    await asyncio.gather(*(counted.render() for _ in range(3)))
    assert sight.asked == 2


@pytest.mark.parametrize("trouble", [StoreUnavailable("locked"), TimeoutError()])
async def test_what_the_store_does_not_say_is_missing_and_the_rest_is_there(counted, sight, trouble):
    counted(events.RunAdmitted("r", W, None))
    await counted.render()
    sight.trouble = trouble
    sight.now_ms += metrics.LOOK_EVERY_MS
    samples = await rendered(counted)
    assert samples["holdfast_runs"] == []
    assert samples["holdfast_queue_ready_runs"] == []
    [workers] = samples["holdfast_workers"]
    assert workers.value != workers.value  # not a number: nobody knows
    assert value(counted, "holdfast_runs_started_total", workflow=W) == 1
    sight.trouble = None
    sight.now_ms += metrics.LOOK_EVERY_MS
    assert (await rendered(counted))["holdfast_runs"]


async def test_a_store_that_does_not_answer_holds_up_no_scrape(sight, monkeypatch):
    counted = Metrics(sight, instance="box-1-a0f3", now_ms=lambda: sight.now_ms, look_seconds_max=0.0)

    async def for_ever() -> Backlog:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(sight, "backlog", for_ever)
    assert (await rendered(counted))["holdfast_runs"] == []


async def test_every_series_names_the_instance(counted):
    for event, *_ in MOVES:
        counted(event)
    samples = [sample for family in (await rendered(counted)).values() for sample in family]
    assert {sample.labels["instance_id"] for sample in samples} == {"box-1-a0f3"}
    body, _ = await counted.render("application/openmetrics-text")
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    assert all('instance_id="box-1-a0f3"' in line for line in lines)


async def test_a_bus_is_connected_or_not_or_not_needed(counted, sight):
    async def shown():
        [sample] = (await rendered(counted))["holdfast_bus_connected"]
        return sample.value

    assert math.isnan(await shown())
    sight.bus = MemoryBus(MemoryExchange(), clock=FakeClock())
    assert await shown() == 0
    await sight.bus.open()
    assert await shown() == 1
    await sight.bus.close()


async def test_a_process_that_has_to_look_for_what_others_commit_shows_it(counted, sight):
    async def shown():
        [sample] = (await rendered(counted))["holdfast_notices_pushed"]
        return sample.value

    assert await shown() == 1
    sight.poll_reason = "no socket can be made"
    assert await shown() == 0


async def test_what_is_led_here_is_asked_when_somebody_looks(counted, sight):
    def leads(family):
        return {sample.labels["duty"]: sample.value for sample in family}

    assert leads((await rendered(counted))["holdfast_leads"]) == {"rescuer": 1, "pruner": 0}
    sight.duties_led = {"rescuer": False, "pruner": True}
    assert leads((await rendered(counted))["holdfast_leads"]) == {"rescuer": 0, "pruner": 1}


async def test_a_scrape_gets_the_format_it_asks_for(counted):
    body, content_type = await counted.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    body, content_type = await counted.render()
    assert content_type.startswith("text/plain")
    assert b"# EOF" not in body


def test_names_and_labels_follow_the_rules():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"holdfast_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(metric.buckets)
        assert metric.help.endswith(".")
        # Never a run's id or key: each would be a series of its own.
        assert set(metric.labels) <= {
            "workflow",
            "status",
            "code",
            "effect",
            "outcome",
            "part",
            "queue",
            "duty",
            "limit",
            "verdict",
            "version",
            "python",
            "rule",
            "breaker",
            "kind",
            "state",
        }


def test_two_of_them_share_nothing(sight):
    first, second = (Metrics(sight, instance="box-1-a0f3", now_ms=lambda: 0) for _ in range(2))
    first(events.StoreTroubled("x"))
    assert value(first, "holdfast_store_troubles_total") == 1
    assert value(second, "holdfast_store_troubles_total") == 0


def test_without_the_library_it_says_what_to_install(sight, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InvalidConfig, match="prometheus-client") as caught:
        Metrics(sight, instance="box-1-a0f3", now_ms=lambda: 0)
    assert "extra `server`" in caught.value.hint


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
async def test_what_several_processes_say_is_merged_into_what_one_would(sight, accept):
    each = [Metrics(sight, instance=f"box-{number}", now_ms=lambda: sight.now_ms) for number in (1, 2, 3)]
    for number, counted in enumerate(each, 1):
        for _ in range(number):
            counted(events.RunJoined("r", W, None))
    bodies = [(await counted.render(accept)).body for counted in each]
    text = metrics.merged(bodies).decode()
    parse = openmetrics_families if accept else text_string_to_metric_families
    families = list(parse(text))  # raises for a metric that is named twice
    alone = list(parse(bodies[0].decode()))
    assert [family.name for family in families] == [family.name for family in alone]
    [joined] = [family for family in families if family.name == "holdfast_runs_joined"]
    totals = {sample.labels["instance_id"]: sample.value for sample in joined.samples if sample.name.endswith("_total")}
    assert totals == {"box-1": 1.0, "box-2": 2.0, "box-3": 3.0}
    assert sum(len(family.samples) for family in families) == 3 * sum(len(family.samples) for family in alone)


async def test_what_one_process_says_is_not_changed_by_merging(counted):
    body = (await counted.render()).body
    assert metrics.merged([body]) == body
