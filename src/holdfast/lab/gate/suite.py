"""The suite: all scenarios that are asked for, one after the other, on one cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from msgspec.structs import replace

from holdfast.adapters.machine import SystemClock
from holdfast.errors import HoldfastError, UsageError
from holdfast.kernel.times import Millis
from holdfast.lab.gate.cluster import GateCluster
from holdfast.lab.gate.evidence import Violation
from holdfast.lab.gate.report import Report, ScenarioResult, make_report, result_of
from holdfast.lab.gate.scenario import Findings, GateOptions, Progress, ScenarioContext, Tell
from holdfast.lab.gate.scenarios.amnesia import amnesia
from holdfast.lab.gate.scenarios.confirmations import confirmations
from holdfast.lab.gate.scenarios.crossings import crossings
from holdfast.lab.gate.scenarios.departures import departures
from holdfast.lab.gate.scenarios.failovers import failovers
from holdfast.lab.gate.scenarios.health import health
from holdfast.lab.gate.scenarios.kills import kills
from holdfast.lab.gate.scenarios.leaders import leaders
from holdfast.lab.gate.scenarios.limits import limits
from holdfast.lab.gate.scenarios.revocations import revocations
from holdfast.lab.gate.scenarios.rolling import rolling
from holdfast.lab.gate.scenarios.soak import soak
from holdfast.lab.gate.scenarios.streams import streams
from holdfast.lab.gate.scenarios.talks import talks
from holdfast.lab.gate.scenarios.timers import timers
from holdfast.lab.gate.scenarios.workers import workers
from holdfast.lab.gate.scenarios.zombies import zombies

Scenario = Callable[[ScenarioContext], Awaitable[Findings]]
SCENARIOS: dict[str, tuple[Scenario, str]] = {
    "health": (health, "every replica of every role lives and is ready"),
    "kills": (kills, "keyed runs over all gateways while every replica is killed in turn"),
    "workers": (workers, "all gateways know the same live workers"),
    "failovers": (failovers, "one part of each kind dies; the time until the next run is done"),
    "rolling": (rolling, "everything is restarted in turn under load; no call fails"),
    "zombies": (zombies, "a worker and a scheduler stop past their leases, and go on later"),
    "leaders": (leaders, "the leader stops past its lease, and goes on when another one leads"),
    "departures": (departures, "a worker is asked to end, and what it held goes on at once"),
    "crossings": (crossings, "workers die over messages to other shards"),
    "timers": (timers, "timers measured by another clock, and across a takeover"),
    "talks": (talks, "signals by run, token and key until they are refused; searches"),
    "streams": (streams, "readers of events that come back at another gateway"),
    "revocations": (revocations, "an API key is revoked, and refused everywhere"),
    "limits": (limits, "three gateways are asked more than their limit lets through; what passes is counted"),
    "amnesia": (amnesia, "a single Redis forgets its last writes"),
    "confirmations": (confirmations, "nothing is confirmed while no replica of Redis can confirm it"),
    "soak": (soak, "faults at random for a while"),
}


def choose(only: Collection[str], *, soak_ms: Millis, redis: str = "single") -> tuple[str, ...]:
    """The scenarios to run, in their order. Without a duration there is no soak; some need Redis to be of one kind."""
    if unknown := sorted(set(only) - set(SCENARIOS)):
        raise UsageError(f"there is no scenario {', '.join(unknown)}", hint=f"There are: {', '.join(SCENARIOS)}.")
    if "soak" in only and not soak_ms:
        raise UsageError("the soak needs to know how long", hint="Say --soak 5m.")
    impossible = "confirmations" if redis == "single" else "amnesia"
    if impossible in only:
        needed = "sentinel" if redis == "single" else "single"
        raise UsageError(f"{impossible} needs another kind of Redis", hint=f"Say --redis {needed}.")
    left_out = {impossible} if soak_ms else {impossible, "soak"}
    return tuple(name for name in SCENARIOS if name in (only or SCENARIOS) and name not in left_out)


async def run(
    cluster: GateCluster, scenarios: Collection[str], *, ledger_file: Path, options: GateOptions, tell: Tell
) -> Report:
    """Do all of it. A scenario that breaks down has failed; the next one begins on a healed cluster."""
    clock = SystemClock()
    context = ScenarioContext(cluster, ledger_file=ledger_file, options=options, clock=clock, tell=tell)
    began_at_ms = clock.wall_ms()
    results: list[ScenarioResult] = []
    for name in scenarios:
        scenario, words = SCENARIOS[name]
        context.begin(name)
        context.tell(words)
        scenario_began_at_ms = clock.wall_ms()
        findings = await _findings(scenario, context)
        result = result_of(name, words, findings, began_at_ms=scenario_began_at_ms, ended_at_ms=clock.wall_ms())
        results.append(result)
        tell(Progress(scenario=name, words=words, done=result.counts.completed, verdict=result.verdict))
    return make_report(results, context.nemesis.faults, began_at_ms=began_at_ms, ended_at_ms=clock.wall_ms())


async def _findings(scenario: Scenario, context: ScenarioContext) -> Findings:
    name = context.nemesis.scenario
    try:
        findings = await scenario(context)
    except Exception as error:  # noqa: BLE001 - a gate that breaks down is no gate that passes
        findings = Findings(violations=(Violation("broke_down", name, _words(error)),))
    try:
        await context.nemesis.heal()
    except HoldfastError as error:
        unhealed = Violation("not_healed", name, str(error))
        findings = replace(findings, violations=(*findings.violations, unhealed))
    return findings


def _words(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        return "; ".join(_words(each) for each in error.exceptions)
    return f"{type(error).__name__}: {error}"
