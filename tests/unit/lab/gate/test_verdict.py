from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.lab.gate import page, suite
from holdfast.lab.gate.evidence import InjectedFault, LogNotice, Violation
from holdfast.lab.gate.report import Report, curve, make_report, percentiles, result_of
from holdfast.lab.gate.scenario import Findings, Recovery
from holdfast.lab.gate.timeline import Outage, outages
from holdfast.lab.gate.verdict import Checked, Counts, Proof, judge, proofs_of, together
from tests.unit.lab.gate.evidences import flawless

KILL = InjectedFault(at_ms=10_000, deed="kill", part="worker-1", role="worker", pid=1, scenario="kills")
START = replace(KILL, at_ms=12_000, deed="start")


def checked() -> Checked:
    return judge(replace(flawless(), faults=(KILL, START)))


def report(findings: Findings) -> Report:
    outcome = result_of("kills", "killed in turn", findings, began_at_ms=9_000, ended_at_ms=14_000)
    return make_report([outcome], [KILL, START], began_at_ms=9_000, ended_at_ms=14_000)


def verdict(findings: Findings) -> str:
    return report(findings).scenarios[0].verdict


def test_everything_that_was_seen_is_counted() -> None:
    assert checked().counts == Counts(
        orders=4,
        completed=4,
        starts=7,
        joined=2,
        tried_again=0,
        recorded=10,
        calls=10,
        faults=1,
        rescued=1,
        timers=4,
        timer_late_ms=30,
        signals=5,
        events=5,
    )
    assert checked().completions == (10_131, 11_131, 13_831, 14_020)


def test_of_what_was_measured_the_most_is_told() -> None:
    early = tuple(replace(call, at_ms=call.at_ms - 13) if call.step == "wake" else call for call in flawless().calls)
    counts = [checked().counts, judge(replace(flawless(), calls=early)).counts]
    assert together(counts).timers == 8
    assert (together(counts).timer_early_ms, together(counts).timer_late_ms) == (2, 30)


def test_stale_writes_takeovers_and_terms_are_counted() -> None:
    notices = (
        LogNotice(1, "stale", 7, ("a",)),
        LogNotice(2, "stale", 7, ("b",)),
        LogNotice(3, "elected", 8, duty="relay"),
    )
    calls = tuple(replace(call, pid=9) if call.step == "ship" else call for call in flawless().calls)
    counts = judge(replace(flawless(), notices=notices, calls=calls)).counts
    assert (counts.stale, counts.terms, counts.taken_over, counts.refused) == (2, 1, 2, 0)


@pytest.mark.parametrize(
    ("missing", "change"),
    [
        ("faults", {"faults": ()}),
        ("runs completed under faults", {"faults": (KILL,)}),
        ("starts that joined a run by its key", {"accepted_starts": flawless().accepted_starts[:2]}),
        ("runs rescued", {"notices": ()}),
    ],
)
def test_a_scenario_that_did_not_see_what_it_was_for_is_not_proved(missing: str, change: dict) -> None:
    seen = judge(replace(flawless(), **({"faults": (KILL, START)} | change)))
    proofs = proofs_of(seen)
    assert missing in {proof.what for proof in proofs if not proof.holds}
    assert verdict(Findings(checked=(seen,), proofs=proofs)) == "not proved"
    assert not report(Findings(checked=(seen,), proofs=proofs)).proved


def test_a_scenario_passes_if_nothing_is_wrong_and_everything_was_seen() -> None:
    assert verdict(Findings(checked=(checked(),), proofs=proofs_of(checked()))) == "passed"
    assert report(Findings(checked=(checked(),), proofs=proofs_of(checked()))).proved


def test_a_scenario_that_claims_no_proof_is_not_proved() -> None:
    assert verdict(Findings(checked=(checked(),))) == "not proved"


def test_a_violation_fails_a_scenario_whatever_was_proved() -> None:
    broken = judge(replace(flawless(), finals=flawless().finals[1:]))
    assert verdict(Findings(checked=(broken,), proofs=(Proof("enough", 1),))) == "failed"
    assert verdict(Findings(violations=(Violation("unhealthy", "worker-1", "dead"),))) == "failed"


def test_a_gate_without_scenarios_proves_nothing() -> None:
    assert not make_report([], [], began_at_ms=0, ended_at_ms=1).proved


def test_counts_of_several_loads_are_summed() -> None:
    assert together([Counts(orders=1, late=2), Counts(orders=3, faults=4)]) == Counts(orders=4, late=2, faults=4)


def test_the_curve_has_every_completion_in_its_stretch_and_none_outside_of_the_time() -> None:
    assert curve([9_999, 10_000, 10_999, 12_400, 13_000], began_at_ms=10_000, ended_at_ms=12_500).completed == (2, 0, 1)
    assert len(curve([], began_at_ms=0, ended_at_ms=7_200_000).completed) <= 600


def test_percentiles_are_those_of_values_that_really_occurred() -> None:
    times = [Recovery(part="worker-1", role="worker", at_ms=0, next_ms=ms, caught_up_ms=2 * ms) for ms in range(1, 101)]
    worker, everything = percentiles(times)
    assert (worker.role, worker.count) == ("worker", 100)
    assert (worker.next_p50_ms, worker.next_p99_ms, worker.caught_up_p99_ms) == (50, 99, 198)
    assert everything.role == "all"
    assert percentiles([]) == ()


def test_an_outage_lasts_from_the_harm_until_the_part_is_up_again_or_to_the_end() -> None:
    second = replace(KILL, at_ms=13_000, deed="stop", part="worker-2")
    assert outages([KILL, START, second], ended_at_ms=14_000) == [
        Outage("worker-1", "worker", "kill", 10_000, 12_000),
        Outage("worker-2", "worker", "stop", 13_000, 14_000),
    ]


def test_the_report_is_json_that_can_be_read_back() -> None:
    made = report(Findings(checked=(checked(),), proofs=proofs_of(checked())))
    assert msgspec.json.decode(msgspec.json.encode(made), type=Report) == made


def test_the_page_shows_verdicts_and_violations_as_text_and_loads_nothing() -> None:
    bad = Violation("unhealthy", "<script>alert(1)</script>", "dead & gone")
    times = (Recovery(part="worker-1", role="worker", at_ms=0, next_ms=1234, caught_up_ms=2345),)
    shown = page.page(report(Findings(checked=(checked(),), violations=(bad,), recoveries=times)))
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "dead &amp; gone" in shown
    assert "1,234" in shown
    assert "<svg" in shown
    assert not [word for word in ("http://", "https://", "src=", "@import", "url(") if word in shown]


def test_scenarios_are_chosen_by_name_and_a_soak_needs_a_duration() -> None:
    assert "soak" not in suite.choose((), soak_ms=0)
    assert suite.choose((), soak_ms=1)[-1] == "soak"
    assert suite.choose(("zombies", "health"), soak_ms=0) == ("health", "zombies")
    with pytest.raises(UsageError, match="no scenario"):
        suite.choose(("earthquake",), soak_ms=0)
    assert "confirmations" not in suite.choose((), soak_ms=0)
    assert "amnesia" not in suite.choose((), soak_ms=0, redis="cluster")
    assert "confirmations" in suite.choose((), soak_ms=0, redis="sentinel")
    with pytest.raises(UsageError, match="another kind of Redis"):
        suite.choose(("confirmations",), soak_ms=0)
    with pytest.raises(UsageError, match="how long"):
        suite.choose(("soak",), soak_ms=0)
