from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.kernel.journal import Attempted, Completed, Failure, Performed, Received, Retried
from holdfast.lab.gate import checker
from holdfast.lab.gate.evidence import (
    DutySeen,
    EffectCall,
    Evidence,
    FailedCall,
    InjectedFault,
    KeyUse,
    LogNotice,
    Searched,
)
from holdfast.lab.gate.world_rules import repeats
from tests.unit.lab.gate.evidences import (
    CHAT,
    LEADER,
    LEASE_MS,
    NAP,
    OTHER,
    WORKER,
    flawless,
    performed,
    value,
    with_calls,
    with_final,
)

FIRST, SECOND = "kills-00001", "kills-00002"
RUN = f"run-{FIRST}"
Plant = Callable[[Evidence], Evidence]


def kinds(seen: Evidence) -> set[str]:
    return {found.kind for found in checker.violations(seen)}


def again(step: str, *, at_ms: int, pid: int = OTHER, key: str = "", attempt: int = 1) -> EffectCall:
    return EffectCall(key or f"{FIRST}/{step}", RUN, step, FIRST, attempt, pid, at_ms)


def journal_of(seen: Evidence, run_id: str = RUN) -> tuple:
    return next(each.journal for each in seen.finals if each.id == run_id)


def without(what: type, seen: Evidence) -> Evidence:
    return with_final(seen, FIRST, journal=tuple(each for each in journal_of(seen) if not isinstance(each, what)))


def behind(seen: Evidence, *entries: object) -> Evidence:
    return with_final(seen, FIRST, journal=(*journal_of(seen), *entries))


def inserted(seen: Evidence, *entries: object) -> Evidence:
    """Entries in front of the one that ends the run."""
    journal = journal_of(seen)
    return with_final(seen, FIRST, journal=(*journal[:-1], *entries, journal[-1]))


def renamed(seen: Evidence) -> Evidence:
    """The journal has the charge under another key than the ledger."""
    entries = tuple(
        replace(each, intent=replace(each.intent, key="charge:other"))
        if isinstance(each, Performed) and each.step == "charge"
        else each
        for each in journal_of(seen)
    )
    return with_final(seen, FIRST, journal=entries)


def with_another_start(seen: Evidence, **changes: object) -> Evidence:
    """The last answer about the first order was another one."""
    return replace(seen, accepted_starts=(*seen.accepted_starts, replace(seen.accepted_starts[2], **changes)))


def with_call_at(seen: Evidence, step: str, at_ms: int) -> Evidence:
    """The first call of a step came at another time."""
    at = next(at for at, call in enumerate(seen.calls) if call.step == step)
    calls = list(seen.calls)
    calls[at] = replace(calls[at], at_ms=at_ms)
    return replace(seen, calls=tuple(calls))


def heard(seen: Evidence, *cursors: int) -> Evidence:
    return replace(seen, heard=(replace(seen.heard[0], cursors=cursors),))


REPLICA = InjectedFault(at_ms=0, deed="stop", part="redis-2", role="redis", pid=301)
STOPPED = InjectedFault(at_ms=10_130, deed="stop", part="worker-1", role="worker", pid=WORKER)
PLANTED: dict[str, tuple[str, Plant]] = {
    "a client call failed": (
        "call_failed",
        lambda seen: replace(seen, failed=(FailedCall(FIRST, "start", "still after 40 tries"),)),
    ),
    "a run was lost": ("lost", lambda seen: replace(seen, finals=seen.finals[1:])),
    "a child was lost": ("lost", lambda seen: replace(seen, finals=(seen.finals[0], *seen.finals[2:]))),
    "an answered run is not there": ("lost", lambda seen: with_another_start(seen, run="run-nowhere", order=FIRST)),
    "a run that nobody asked for": (
        "unasked",
        lambda seen: replace(seen, finals=(*seen.finals, replace(seen.finals[0], id="x", key="kills-99999"))),
    ),
    "a key has two runs": (
        "two_runs",
        lambda seen: replace(seen, finals=(*seen.finals, replace(seen.finals[0], id="run-second"))),
    ),
    "a child's key has two runs": (
        "two_runs",
        lambda seen: replace(seen, finals=(*seen.finals, replace(seen.finals[1], id="child-second"))),
    ),
    "two gateways answer with two runs": ("two_runs", lambda seen: with_another_start(seen, run="run-second")),
    "two requests were told that they created it": (
        "admitted_twice",
        lambda seen: with_another_start(seen, created=True, request="r2"),
    ),
    "a run failed": ("not_completed", lambda seen: with_final(seen, FIRST, status="failed")),
    "a run still waits": ("not_completed", lambda seen: with_final(seen, FIRST, status="waiting")),
    "a run is blocked": ("not_completed", lambda seen: with_final(seen, FIRST, status="blocked")),
    "a result lacks an effect": ("wrong_result", lambda seen: with_final(seen, FIRST, result="[]")),
    "a result is that of another order": (
        "wrong_result",
        lambda seen: with_final(seen, FIRST, result=seen.finals[2].result),
    ),
    "an effect has no record": ("not_recorded", lambda seen: without(Performed, seen)),
    "an effect was recorded twice": (
        "recorded_twice",
        lambda seen: inserted(seen, performed(FIRST, "charge", 10_125)),
    ),
    "an effect was recorded by two runs": (
        "recorded_twice",
        lambda seen: inserted(seen, performed(SECOND, "charge", 11_125)),
    ),
    "a signal was taken twice": (
        "recorded_twice",
        lambda seen: inserted(seen, Received(10_125, "go", "dedupe", value(f"{FIRST} go"))),
    ),
    "a journal goes on behind its end": (
        "after_the_end",
        lambda seen: behind(seen, Received(10_140, "other", "x", value(1))),
    ),
    "a run ended twice": ("after_the_end", lambda seen: behind(seen, Completed(10_140))),
    "a zombie wrote to a run that had ended": (
        "rewritten",
        lambda seen: behind(replace(seen, before=seen.finals), performed(FIRST, "reserve", 10_140)),
    ),
    "a run came back from its end": (
        "rewritten",
        lambda seen: with_final(replace(seen, before=seen.finals), FIRST, status="running"),
    ),
    "a result changed after the end": (
        "rewritten",
        lambda seen: with_final(replace(seen, before=seen.finals), FIRST, result="null"),
    ),
    "an effect was called under another key": (
        "another_key",
        lambda seen: with_calls(seen, again("charge", at_ms=10_031, key="charge:other")),
    ),
    "an effect was recorded under another key": ("another_key", renamed),
    "a key stands for two effects": (
        "another_key",
        lambda seen: with_calls(seen, EffectCall(f"{FIRST}/ship", RUN, "charge", FIRST, 1, WORKER, 10_131)),
    ),
    "a crash used up an attempt": (
        "attempt_used",
        lambda seen: with_calls(seen, again("ship", at_ms=10_131, attempt=2)),
    ),
    "an effect was called again for nothing": (
        "repeated_for_nothing",
        lambda seen: with_calls(seen, again("ship", at_ms=10_131)),
    ),
    "an effect was called again before its caller was killed": (
        "repeated_for_nothing",
        lambda seen: replace(
            with_calls(seen, again("ship", at_ms=10_131)),
            faults=(InjectedFault(at_ms=10_200, deed="kill", part="worker-1", role="worker", pid=WORKER),),
        ),
    ),
    "an effect was called again long before its caller lost anything": (
        "repeated_for_nothing",
        lambda seen: replace(
            with_calls(seen, again("ship", at_ms=10_131)), notices=(LogNotice(15_131, "lease lost", WORKER),)
        ),
    ),
    "an effect was called again long after its caller had been stopped": (
        "repeated_for_nothing",
        lambda seen: replace(
            with_calls(seen, again("ship", at_ms=10_131)),
            faults=(replace(STOPPED, at_ms=5_000), replace(STOPPED, at_ms=6_000, deed="continue")),
        ),
    ),
    "an effect was called long after its record by one that had noticed its loss": (
        "called_after_record",
        lambda seen: replace(
            with_calls(seen, again("ship", at_ms=20_000)), notices=(LogNotice(12_000, "overtaken", OTHER, (RUN,)),)
        ),
    ),
    "an effect was called long after its record": (
        "called_after_record",
        lambda seen: with_calls(seen, again("ship", at_ms=20_000)),
    ),
    "an effect was called behind a later one": (
        "called_after_record",
        lambda seen: with_calls(seen, again("reserve", at_ms=10_130)),
    ),
    "a timer elapsed early": ("timer_early", lambda seen: with_call_at(seen, "wake", 13_813)),
    "a delayed run began early": ("timer_early", lambda seen: with_call_at(seen, "doze", 12_298)),
    "the timer of an errand elapsed early": ("timer_early", lambda seen: with_call_at(seen, "wrap", 10_077)),
    "a run went on with another value than the recorded one": (
        "wrong_result",
        lambda seen: with_final(seen, NAP, result=f'["{NAP} doze","{NAP} wake 7"]'),
    ),
    "a nap was lost": ("lost", lambda seen: replace(seen, finals=seen.finals[:-2])),
    "an accepted signal is in no journal": (
        "signal_lost",
        lambda seen: with_final(seen, CHAT, journal=journal_of(seen, f"run-{CHAT}")[:2]),
    ),
    "a signal is in a journal twice": (
        "signal_twice",
        lambda seen: with_final(
            seen, CHAT, journal=(*journal_of(seen, f"run-{CHAT}"), Received(14_015, "word", "other id", value("a/1")))
        ),
    ),
    "a signal was taken by two runs of a key": (
        "signal_twice",
        lambda seen: replace(seen, finals=(*seen.finals, replace(seen.finals[-1], id="run-second"))),
    ),
    "the signals of a sender were received in another order": (
        "signal_order",
        lambda seen: with_final(seen, CHAT, journal=journal_of(seen, f"run-{CHAT}")[::-1]),
    ),
    "a reader missed an event": ("event_missed", lambda seen: heard(seen, 0, 1, 3, 4)),
    "a reader was told of an event twice": ("event_repeated", lambda seen: heard(seen, 0, 1, 1, 2, 3, 4)),
    "a search missed a run": (
        "not_found",
        lambda seen: replace(seen, searched=(Searched("closed", (RUN,), ()),)),
    ),
    "a search found a run that is not meant": (
        "found_wrongly",
        lambda seen: replace(seen, searched=(Searched("open", (), (RUN,)),)),
    ),
    "a search found a run twice": (
        "found_wrongly",
        lambda seen: replace(seen, searched=(Searched("closed", (RUN,), (RUN, RUN)),)),
    ),
    "a revoked key was accepted": (
        "revoked_key",
        lambda seen: replace(seen, key_uses=(KeyUse(gateway="a", after_ms=2_300, accepted=True),)),
    ),
    "a start was answered while no replica had it": (
        "unconfirmed",
        lambda seen: replace(
            seen, faults=(replace(REPLICA, at_ms=11_900), replace(REPLICA, at_ms=13_000, deed="continue"))
        ),
    ),
    "a lease was taken from a process that had renewed it": (
        "lease_taken",
        lambda seen: replace(seen, notices=(LogNotice(20_000, "lease lost", WORKER, age_ms=900),)),
    ),
    "a process that ended in order kept its run": (
        "not_given_back",
        lambda seen: replace(
            seen,
            faults=(InjectedFault(at_ms=12_000, deed="terminate", part="worker-1", role="worker", pid=WORKER),),
            notices=(LogNotice(15_000, "rescued", LEADER, (RUN,)),),
        ),
    ),
    "two led at once": (
        "two_leaders",
        lambda seen: replace(
            seen, sights=tuple(DutySeen(at, pid, "rescuer", True, 1) for at, pid in enumerate((1, 2, 1)))
        ),
    ),
    "one that had lost the duty rescued runs": (
        "not_leading",
        lambda seen: replace(
            seen,
            notices=(
                LogNotice(20_000, "elected", LEADER, duty="rescuer", term=1),
                LogNotice(30_000, "deposed", LEADER, duty="rescuer", term=1),
                LogNotice(40_000, "rescued", LEADER, (RUN,)),
            ),
        ),
    ),
    "an effect was called again after the death of whoever had recorded it": (
        "called_after_record",
        lambda seen: replace(
            with_calls(seen, again("ship", at_ms=20_000)),
            faults=(InjectedFault(at_ms=15_000, deed="kill", part="worker-1", role="worker", pid=WORKER),),
        ),
    ),
}


def test_a_flawless_scenario_has_no_violations() -> None:
    assert checker.violations(flawless()) == ()


@pytest.mark.parametrize(("after_ms", "is_found"), [(-1, True), (0, False), (LEASE_MS - 1, False), (LEASE_MS, True)])
def test_who_goes_on_after_a_stop_may_believe_for_a_while_that_it_leads(after_ms, is_found) -> None:
    went_on = InjectedFault(at_ms=20_000, deed="continue", part="scheduler-1", role="scheduler", pid=1)
    spoken = ((11_000, 1), (19_000, 2), (20_000 + after_ms, 1))
    sights = tuple(DutySeen(at_ms, pid, "rescuer", True, 1) for at_ms, pid in spoken)
    found = checker.violations(replace(flawless(), faults=(went_on,), sights=sights))
    assert [each.kind for each in found] == ["two_leaders"] * is_found


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    kind, plant = PLANTED[bug]
    assert kind in kinds(plant(flawless())), bug


def test_every_kind_of_violation_has_a_planted_bug_and_a_line_in_the_table() -> None:
    assert checker.__doc__ is not None
    table = checker.__doc__.partition("Rules\n")[0]
    told = {line.split()[0] for line in table.splitlines() if line.startswith("    ")} - {"kind"}
    told = {word for word in told if word.isidentifier()}
    assert {kind for kind, _ in PLANTED.values()} == told


KILLED = InjectedFault(at_ms=10_130, deed="kill", part="worker-1", role="worker", pid=WORKER)


def lost_before_its_record(*, faults: tuple[InjectedFault, ...] = (), notices: tuple[LogNotice, ...] = ()) -> Evidence:
    """The worker called `ship`, and another one called it again and recorded it."""
    seen = with_calls(flawless(), again("ship", at_ms=14_000))
    late = tuple(
        replace(each, at_ms=14_001) if getattr(each, "step", "") == "ship" else each for each in journal_of(seen)
    )
    return replace(with_final(seen, FIRST, journal=late), faults=faults, notices=notices)


@pytest.mark.parametrize(
    "what_happened",
    [
        {"faults": (KILLED,)},
        {"faults": (replace(KILLED, deed="stop"),)},
        {"notices": (LogNotice(10_135, "lease lost", WORKER, age_ms=2_500),)},
        {"notices": (LogNotice(14_500, "overtaken", WORKER, (RUN,)),)},
    ],
)
def test_a_repeated_call_is_explained_by_the_loss_of_whoever_called_before(what_happened: dict) -> None:
    seen = lost_before_its_record(**what_happened)
    assert checker.violations(seen) == ()
    assert repeats(seen) == (1, 0)


def test_the_first_harm_to_a_process_explains_as_well_as_the_last() -> None:
    later = replace(KILLED, at_ms=30_000)
    assert checker.violations(lost_before_its_record(faults=(replace(KILLED, deed="stop"), later))) == ()


@pytest.mark.parametrize("harmless", [(), (replace(KILLED, deed="terminate"),), (replace(KILLED, pid=OTHER),)])
def test_a_repeated_call_is_not_explained_by_an_end_in_order_or_by_the_loss_of_another(harmless: tuple) -> None:
    assert kinds(lost_before_its_record(faults=harmless)) == {"repeated_for_nothing"}


@pytest.mark.parametrize(
    "explained",
    [
        {"notices": (LogNotice(20_000, "lease lost", WORKER, age_ms=2_500),)},  # by its own clock it was over
        {
            "notices": (LogNotice(20_000, "lease lost", WORKER, age_ms=900),),
            "faults": (replace(STOPPED, at_ms=15_000),),
        },
        {"notices": (LogNotice(20_000, "lease lost", WORKER, age_ms=900),), "faults": (replace(REPLICA, deed="kill"),)},
    ],
)
def test_a_lease_may_be_lost_by_whoever_was_stopped_or_could_not_renew_it(explained: dict) -> None:
    assert kinds(replace(flawless(), **explained)) == set()


def test_a_start_that_was_sent_before_the_replicas_stood_still_or_answered_afterwards_may_be_confirmed() -> None:
    stands_still = (replace(REPLICA, at_ms=12_002), replace(REPLICA, at_ms=13_000, deed="continue"))
    assert kinds(replace(flawless(), faults=stands_still)) == set()
    goes_on_first = (replace(REPLICA, at_ms=11_900), replace(REPLICA, at_ms=12_003, deed="continue"))
    assert kinds(replace(flawless(), faults=goes_on_first)) == set()


def test_what_the_store_has_forgotten_may_be_called_again() -> None:
    seen = with_calls(flawless(), again("ship", at_ms=10_200))
    assert kinds(seen) == {"repeated_for_nothing"}
    assert kinds(replace(seen, faults=(replace(REPLICA, at_ms=10_150, deed="forget"),))) == set()


def test_the_late_call_of_a_zombie_is_counted_and_pardoned_but_not_its_late_record() -> None:
    stopped = (
        InjectedFault(at_ms=10_005, deed="stop", part="worker-1", role="worker", pid=WORKER),
        InjectedFault(at_ms=20_000, deed="continue", part="worker-1", role="worker", pid=WORKER),
    )
    seen = replace(flawless(), faults=stopped)
    calls = tuple(replace(call, pid=OTHER) if call.order == FIRST else call for call in seen.calls)
    late = EffectCall(f"{FIRST}/reserve", RUN, "reserve", FIRST, 1, WORKER, 20_001)
    seen = replace(seen, calls=(replace(late, at_ms=10_004), *calls, late))
    assert kinds(seen) == set()
    assert repeats(seen) == (2, 1)
    assert kinds(inserted(seen, performed(FIRST, "reserve", 20_003))) == {"recorded_twice"}


def test_an_attempt_that_failed_and_is_recorded_may_be_followed_by_the_next() -> None:
    seen = flawless()
    intent = next(each.intent for each in journal_of(seen) if isinstance(each, Performed) and each.step == "ship")
    failed = Attempted(10_128, "ship", intent, 1, Failure("TimeoutError", "late"), 10_129)
    journal = (*journal_of(seen)[:-2], failed, *journal_of(seen)[-2:])
    second = tuple(replace(call, attempt=2) if call.key == intent.key else call for call in seen.calls)
    assert kinds(replace(with_final(seen, FIRST, journal=journal), calls=second)) == set()


def test_what_a_person_had_tried_again_counts_once() -> None:
    journal = journal_of(flawless())
    retried = (*journal[:-1], Retried(10_131, void=(7,)), performed(FIRST, "ship", 10_132), journal[-1])
    assert kinds(with_final(flawless(), FIRST, journal=retried)) == set()
