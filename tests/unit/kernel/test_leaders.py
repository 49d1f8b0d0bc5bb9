"""The lease of a duty: what its document means, and who may take, renew and release it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.kernel import leaders
from holdfast.kernel.documents import Document
from holdfast.kernel.leaders import Holder, bid, holder_of, look_again_in_ms, release

NOW_MS = 1_700_000_000_000
TTL_MS = 15_000
OURS, THEIRS = Holder("box-1", "n-1"), Holder("box-2", "n-2")


def held_by(holder: Holder, *, at_ms: int = NOW_MS) -> Document:
    writing = bid("rescuer", None, holder, now_ms=at_ms, ttl_ms=TTL_MS)
    assert writing is not None
    return writing.document


def test_a_lease_that_nobody_has_is_taken() -> None:
    writing = bid("rescuer", None, OURS, now_ms=NOW_MS, ttl_ms=TTL_MS)
    assert writing is not None
    assert writing.replaces is None
    taken = writing.document
    assert (taken.namespace, taken.kind, taken.id) == (leaders.EVERYWHERE, leaders.KIND, "rescuer")
    assert (taken.version, taken.expires_at_ms, taken.due_at_ms) == (NOW_MS, NOW_MS + TTL_MS, None)
    assert holder_of(taken) == OURS


def test_a_lease_of_ours_is_renewed_under_a_larger_version() -> None:
    held = held_by(OURS)
    writing = bid("rescuer", held, OURS, now_ms=NOW_MS + 5_000, ttl_ms=TTL_MS)
    assert writing is not None
    assert writing.replaces == held.version
    assert writing.document.version > held.version
    assert writing.document.expires_at_ms == NOW_MS + 5_000 + TTL_MS
    assert holder_of(writing.document) == OURS


@pytest.mark.parametrize("theirs", [THEIRS, replace(OURS, nonce="n-0"), replace(OURS, instance="box-0")])
def test_a_lease_of_somebody_else_is_left_alone(theirs: Holder) -> None:
    """The nonce tells two apart that look alike: after a failover one version may have been issued twice."""
    assert bid("rescuer", held_by(theirs), OURS, now_ms=NOW_MS + 1, ttl_ms=TTL_MS) is None


def test_a_release_replaces_only_the_version_that_was_held_and_counts_as_absent_at_once() -> None:
    held = held_by(OURS)
    writing = release(held, now_ms=NOW_MS + 7)
    assert writing.replaces == held.version
    assert writing.document.version > held.version
    assert writing.document.expires_at_ms == NOW_MS + 7
    assert (writing.document.id, holder_of(writing.document)) == ("rescuer", OURS)


@pytest.mark.parametrize(
    ("passed_ms", "sleeps_ms"),
    [
        (0, TTL_MS / 3),  # at a leader's pace
        (TTL_MS - 100, 100),  # then it expires, unless it is renewed
        (TTL_MS, 1),  # never for nothing: that would be a loop without a pause
    ],
)
def test_a_candidate_sleeps_until_the_lease_expires_that_it_has_seen(passed_ms: int, sleeps_ms: float) -> None:
    assert look_again_in_ms(held_by(THEIRS), now_ms=NOW_MS + passed_ms, ttl_ms=TTL_MS) == sleeps_ms


def test_a_candidate_that_was_too_slow_looks_again_soon() -> None:
    assert look_again_in_ms(None, now_ms=NOW_MS, ttl_ms=TTL_MS) == TTL_MS / 15


def test_a_duty_is_led_again_before_the_lease_of_a_worker_expires_that_died_with_its_leader() -> None:
    assert leaders.ttl_ms(30_000) == 15_000
    for worker_ms in (200, 1_000, 30_000, 3_600_000):
        assert leaders.ttl_ms(worker_ms) <= worker_ms / 2
