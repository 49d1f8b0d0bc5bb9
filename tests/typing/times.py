"""Checked by basedpyright, never executed: instants, durations and readings of the steady clock are not mixed.

A `pyright: ignore` proves that a mistake is seen: an ignore that nothing needs is an error itself.
"""

from __future__ import annotations

from typing import assert_type

from holdfast.kernel import leases, retries
from holdfast.kernel.times import NO_TIME, Instant, Millis, Steady
from holdfast.kernel.units import milliseconds, utc_of
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store


def arithmetic(at: Instant, other_at: Instant, delay_ms: Millis, steady: Steady, other_steady: Steady) -> None:
    assert_type(at + delay_ms, Instant)
    assert_type(delay_ms + at, Instant)
    assert_type(at - delay_ms, Instant)
    assert_type(at - other_at, Millis)
    assert_type(delay_ms + delay_ms, Millis)
    assert_type(delay_ms - delay_ms, Millis)
    assert_type(delay_ms * 2, Millis)
    assert_type(delay_ms // 2, Millis)
    assert_type(delay_ms / 1000, float)
    assert_type(max(NO_TIME, at - other_at), Millis)
    assert_type(min(at, other_at), Instant)
    assert_type(steady + delay_ms, Steady)
    assert_type(steady - delay_ms, Steady)
    assert_type(steady - other_steady, float)

    at + other_at  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
    delay_ms - at  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
    assert at < delay_ms  # pyright: ignore[reportOperatorIssue]
    assert delay_ms >= at  # pyright: ignore[reportOperatorIssue]
    assert at < other_at
    assert delay_ms <= NO_TIME

    steady + other_steady  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
    steady + at  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
    at + steady  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
    steady - at  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
    at - steady  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
    assert steady < at  # pyright: ignore[reportOperatorIssue]
    assert at >= steady  # pyright: ignore[reportOperatorIssue]
    assert steady < delay_ms  # pyright: ignore[reportOperatorIssue]
    assert steady < other_steady


def plain_numbers_have_to_be_named(at: Instant, number: int) -> None:
    assert_type(at + number, int)
    later: Instant = at + number  # pyright: ignore[reportAssignmentType]
    delay_ms: Millis = 5  # pyright: ignore[reportAssignmentType]
    print(later, delay_ms, Instant(number) + Millis(5))


async def at_the_ports(clock: Clock, store: Store, ttl_ms: Millis) -> None:
    assert_type(store.now_ms(), Instant)
    assert_type(clock.wall_ms(), Instant)
    assert_type(clock.steady_ms(), Steady)
    assert_type(milliseconds("30s"), Millis)
    await store.renew("owner", ttl_ms)
    await store.renew("owner", store.now_ms() + ttl_ms)  # pyright: ignore[reportArgumentType] - until when
    await store.renew("owner", 30_000)  # pyright: ignore[reportArgumentType] - of what?
    utc_of(store.now_ms())
    utc_of(ttl_ms)  # pyright: ignore[reportArgumentType] - a duration
    utc_of(clock.steady_ms())  # pyright: ignore[reportArgumentType] - of another clock
    retries.begin(
        retries.DEFAULT,
        store.now_ms(),  # pyright: ignore[reportArgumentType] - an instant
        asked_at_ms=ttl_ms,  # pyright: ignore[reportArgumentType] - a duration
        now_ms=store.now_ms(),
    )
    leases.checked_ttl(store.now_ms())  # pyright: ignore[reportArgumentType] - an instant
