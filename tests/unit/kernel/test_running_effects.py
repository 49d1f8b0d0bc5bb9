from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.kernel import running_effects
from holdfast.kernel.changes import Beat
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.journal import Attempted, Dropped, Entry, Failure, GaveUp, Intent, Late, Performed
from holdfast.kernel.leases import instance_of, owner_named
from holdfast.kernel.running_effects import (
    EFFECTS_MAX,
    HEARTBEAT_BYTES_MAX,
    KEPT_MS,
    OF_A_RUN_MAX,
    RunningEffect,
    StepAtWork,
    are_as_told,
    look_every_ms,
    not_ended,
    steps_of,
    with_beats,
)
from holdfast.kernel.runs import Status
from holdfast.kernel.units import utc_of
from tests.builders import NOW_MS, STARTED, a_run, a_value, running

TTL_MS = 30_000
LONG_MS = round(look_every_ms(TTL_MS))
INTENT = Intent("effect", "shop.charge")


def at_work(
    step: str = "charge#1", *, run_id: str = "run-1", ran_ms: int = LONG_MS, length: int = 1, beat: bytes | None = None
) -> StepAtWork:
    effect = RunningEffect(
        "shop.charge", 1, NOW_MS - ran_ms, 60_000, heartbeat_json=UNSET if beat is None else Raw(beat)
    )
    return StepAtWork(run_id, 1, length, step, effect)


def told(*steps: StepAtWork, last: Document | None = None, later_ms: int = 0) -> Writing | None:
    return running_effects.tell("default", "w-1", steps, last=last, now_ms=NOW_MS + later_ms, ttl_ms=TTL_MS)


def written(*steps: StepAtWork) -> Document:
    writing = told(*steps)
    assert writing is not None
    return writing.document


def steps_in(writing: Writing | None) -> list[str] | None:
    return None if writing is None else [step.step for step in running_effects.announced_in(writing.document).steps]


def test_a_worker_that_performs_nothing_for_long_writes_nothing():
    assert told() is None
    assert told(at_work(ran_ms=LONG_MS - 1)) is None


def test_what_has_run_for_a_while_is_told_under_the_name_of_the_workers_lease():
    writing = told(at_work())
    assert writing is not None
    assert writing.replaces is None
    assert (writing.document.namespace, writing.document.kind, writing.document.id) == ("default", "running", "w-1")
    assert writing.document.expires_at_ms == NOW_MS + TTL_MS + KEPT_MS
    announced = running_effects.announced_in(writing.document)
    assert (announced.until_ms, announced.steps) == (NOW_MS + TTL_MS, (at_work(),))


def test_everyone_knows_within_a_third_of_the_lease():
    assert 2 * look_every_ms(TTL_MS) == TTL_MS / 3


@pytest.mark.parametrize(
    ("before", "now", "later_ms", "becomes"),
    [
        (["a"], ["a"], 0, None),
        (["a"], ["a"], TTL_MS // 3 - 1, None),
        (["a"], ["a"], TTL_MS // 3, ["a"]),  # so that the worker is known to live
        (["a"], ["a", "b"], 0, ["a", "b"]),
        (["a", "b"], ["b"], 0, ["b"]),
        (["a"], [], 0, []),
    ],
)
def test_it_is_told_again_when_it_has_changed_or_grown_old(before, now, later_ms, becomes):
    last = written(*map(at_work, before))
    writing = told(*map(at_work, now), last=last, later_ms=later_ms)
    assert steps_in(writing) == becomes
    if writing is not None:
        assert writing.replaces == last.version < writing.document.version


def test_a_heartbeat_that_says_something_else_is_told():
    last = written(at_work(beat=b"1"))
    assert told(at_work(beat=b"1"), last=last) is None
    assert told(at_work(beat=b"2"), last=last) is not None


def test_when_nothing_runs_any_more_what_was_told_expires_and_that_is_all():
    writing = told(last=written(at_work()), later_ms=1)
    assert writing is not None
    assert writing.document.expires_at_ms == NOW_MS + 1
    assert told(last=writing.document, later_ms=KEPT_MS) is None


def test_it_is_bounded_and_what_has_run_longest_comes_first():
    many = [at_work(f"a#{n}", ran_ms=LONG_MS + n) for n in range(OF_A_RUN_MAX + 1)]
    others = [at_work("b#1", run_id=f"other-{n}") for n in range(EFFECTS_MAX)]
    shown = steps_in(told(*others, *many))
    assert shown is not None
    assert (len(shown), shown[0], shown.count("b#1")) == (EFFECTS_MAX, f"a#{OF_A_RUN_MAX}", EFFECTS_MAX - OF_A_RUN_MAX)


@pytest.mark.parametrize(("size", "is_told"), [(HEARTBEAT_BYTES_MAX, True), (HEARTBEAT_BYTES_MAX + 1, False)])
def test_large_heartbeats_are_left_out(size, is_told):
    [step] = running_effects.announced_in(written(at_work(beat=b'"' + b"x" * (size - 2) + b'"'))).steps
    assert (step.effect.heartbeat is not None) is is_told


@pytest.mark.parametrize(
    ("run", "counts"),
    [
        (running(), True),
        (running("run-2"), False),
        (running(epoch=2), False),  # another worker has it, or the same one again
        (a_run(status=Status.WAITING), False),
        (a_run(status=Status.COMPLETED), False),
    ],
)
def test_a_step_counts_while_its_run_is_in_the_same_hands(run, counts):
    assert steps_of(run, [at_work()]) == ((at_work(),) if counts else ())


def test_nothing_has_ended_while_nothing_was_recorded():
    assert are_as_told(running(length=1), [at_work(length=1)])
    assert not are_as_told(running(length=2), [at_work(length=1)])


BROKEN = Failure("OSError", "broken")


@pytest.mark.parametrize(
    ("entry", "runs"),
    [
        (Performed(NOW_MS, "charge#1", INTENT, 1, a_value(1)), False),
        (GaveUp(NOW_MS, "charge#1", INTENT, 1, BROKEN), False),
        (Attempted(NOW_MS, "charge#1", INTENT, 1, BROKEN, NOW_MS), False),
        (Dropped(NOW_MS, "charge#1", INTENT), False),
        (Late(NOW_MS, "charge#1", INTENT, 1, a_value(1)), False),
        (Performed(NOW_MS, "ship#1", INTENT, 1, a_value(1)), True),
        (STARTED, True),
    ],
)
def test_what_the_journal_has_recorded_since_has_ended(entry: Entry, runs: bool):
    assert bool(not_ended([at_work(length=1)], (STARTED, entry), first=0)) is runs
    assert not_ended([at_work(length=2)], (STARTED, entry), first=0)  # it was recorded before: an earlier attempt


def test_nothing_runs_of_a_journal_that_has_begun_again_since():
    assert not not_ended([at_work(length=1)], (STARTED,), first=2)
    assert not_ended([at_work(length=3)], (STARTED,), first=2)


def test_the_store_has_the_newest_heartbeat():
    [first, second] = with_beats([at_work(beat=b"1"), at_work("other#1", beat=b"1")], [Beat("charge#1", b"2")])
    assert (first.effect.heartbeat, second.effect.heartbeat) == (2, 1)


def test_what_a_dead_worker_told_is_lost():
    [step] = running_effects.lost([at_work()])
    assert step.effect.lost
    assert not at_work().effect.lost


def test_what_is_shown_of_an_effect():
    effect = at_work(beat=b'{"page":3}').effect
    assert (effect.since, effect.timeout, effect.until_ms) == (
        utc_of(NOW_MS - LONG_MS),
        timedelta(seconds=60),
        NOW_MS - LONG_MS + 60_000,
    )
    assert (effect.heartbeat, effect.heartbeat_at) == ({"page": 3}, None)
    bare = replace(effect, timeout_ms=None, heartbeat_json=UNSET, heartbeat_at_ms=NOW_MS)
    assert (bare.timeout, bare.until_ms, bare.heartbeat, bare.heartbeat_at) == (None, None, None, utc_of(NOW_MS))


def test_the_name_of_a_holder_begins_with_that_of_its_process():
    owner = owner_named("web-1.example.org-4711-a1b2", "0123456789abcdef" * 2)
    assert owner == "web-1.example.org-4711-a1b2.0123456789abcdef"
    assert instance_of(owner) == "web-1.example.org-4711-a1b2"
    assert instance_of("0123456789abcdef" * 2) == "0123456789abcdef" * 2  # of an earlier version
