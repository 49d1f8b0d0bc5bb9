"""Throttled starts are late, and never refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import throttles, waits
from holdfast.kernel.rates import Micros, Rate, Taking
from holdfast.kernel.runs import Status
from tests.builders import NOW_MS, a_run

NAMES = frozenset({"tenant", "pages"})
RATE = Rate(10, per="1s")


def declared(rate: object) -> throttles.Throttle:
    return throttles.declared(rate, parameters=NAMES, owner="workflow 'shop.sync'")


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("100/s", "is no rate"),
        (Rate(1, per="1s", by="{shop}"), "names 'shop', which is not a parameter"),
        (Rate(1, per="1s", by="{tenant"), "unmatched brace"),
        (Rate(1, per="1s", cost="weight"), "cost='weight', which is not a parameter"),
    ],
)
def test_what_is_wrong_with_a_declaration(rate: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        declared(rate)
    assert "shop.sync" in raised.value.message


def test_a_rate_is_counted_for_each_value_of_its_template() -> None:
    throttle = declared(Rate(10, per="1s", by="{tenant}"))
    names = {throttle.taking("shop.sync", {"tenant": tenant}).name for tenant in ("a", "b", "a")}
    assert len(names) == 2
    assert declared(RATE).taking("shop.sync", {"tenant": "a"}) == declared(RATE).taking("shop.sync", {"tenant": "b"})


def test_rates_of_workflows_never_meet() -> None:
    throttle = declared(Rate(10, per="1s", by="{tenant}"))
    assert throttle.taking("a", {"tenant": "b/c"}).name != throttle.taking("a/b", {"tenant": "c"}).name


def test_the_cost_is_that_of_the_argument() -> None:
    throttle = declared(Rate(10, per="1s", cost="pages"))
    assert throttle.taking("shop.sync", {"pages": 7}).cost == 7
    assert declared(RATE).taking("shop.sync", {"pages": 7}).cost == 1


@pytest.mark.parametrize("cost", [0, -1, True, 1.5, "3", None, 1_000_001])
def test_a_cost_that_is_no_number_is_refused(cost: object) -> None:
    with pytest.raises(UsageError, match=r"pages=.*takes of its rate"):
        declared(Rate(10, per="1s", cost="pages")).taking("shop.sync", {"pages": cost})


def test_a_run_that_may_go_now_stays_as_it_is() -> None:
    run = a_run()
    kept_us, after = throttles.take(Taking("t", RATE), run, Micros(0), now_ms=NOW_MS)
    assert after is run
    assert kept_us == NOW_MS * 1000 + 100_000


def test_a_run_that_has_to_wait_says_so() -> None:
    run = a_run()
    _, after = throttles.take(Taking("t", RATE), run, Micros(NOW_MS * 1000 + 250_000), now_ms=NOW_MS)
    assert (after.wake_at_ms, after.status) == (NOW_MS + 250, Status.PENDING)
    assert after.waits is not None
    assert [wait.kind for wait in waits.decode(after.waits)] == ["throttle"]


def test_a_worker_does_not_get_a_run_that_has_to_wait() -> None:
    run = a_run(status=Status.RUNNING, owner="w", nonce="n", epoch=1, wake_at_ms=None, started_at_ms=NOW_MS)
    after = throttles.late(run, NOW_MS + 5, now_ms=NOW_MS)
    assert (after.status, after.owner, after.nonce, after.epoch) == (Status.PENDING, None, "", 0)
    assert (after.wake_at_ms, after.started_at_ms) == (NOW_MS + 5, None)


def test_a_delay_is_added_and_what_it_waits_for_before_stays() -> None:
    run = a_run(wake_at_ms=NOW_MS + 1000, waits=b'[{"kind":"debounce"}]')
    after = throttles.late(run, NOW_MS + 5, now_ms=NOW_MS)
    assert (after.wake_at_ms, after.waits) == (NOW_MS + 1005, run.waits)
    assert replace(after, wake_at_ms=run.wake_at_ms) == run
