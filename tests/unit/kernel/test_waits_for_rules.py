"""A run that a rule of its workflow lets go later says which."""

from __future__ import annotations

import pytest

from holdfast.kernel import attributes, batches, debounces, throttles, waits
from holdfast.kernel.runs import NOT_BEGUN, Status
from holdfast.kernel.waits import Wait
from tests.builders import NOW_MS, a_run


@pytest.mark.parametrize(
    ("told", "kind", "words"),
    [
        (throttles.WAITS, "throttle", "its throttle, which lets it go at"),
        (debounces.WAITS, "debounce", "unless another start comes"),
        (batches.WAITS, "batch", "its batch, which has 2 items and goes at"),
        (None, "delay", "its delayed start at"),
        (NOT_BEGUN, "delay", "its delayed start at"),
    ],
)
def test_it_names_the_rule_until_it_is_due(told: bytes | None, kind: str, words: str) -> None:
    run = a_run(waits=told, wake_at_ms=NOW_MS + 10, unread=2)
    [wait] = waits.waits_of(run, served={run.workflow}, now_ms=NOW_MS)
    assert (wait.kind, wait.until_ms) == (kind, NOW_MS + 10)
    assert words in str(wait)
    [wait] = waits.waits_of(run, served={run.workflow}, now_ms=NOW_MS + 10)
    assert wait.kind == "worker"


def test_how_many_go_before_it() -> None:
    assert str(Wait("turn", "acme", ahead=1200)) == "its turn: 1,200 go before it, as 'acme' takes turns with others"


def test_a_batch_that_failed_may_be_retried_though_the_next_one_has_the_key() -> None:
    failed = a_run(status=Status.FAILED, holds_key=False)
    assert "retry" not in waits.next_actions(failed)
    batch = a_run(status=Status.FAILED, holds_key=False, attributes=attributes.encode({batches.BATCH: True}))
    assert "retry" in waits.next_actions(batch)
