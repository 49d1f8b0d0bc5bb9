from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.engine.code.sandbox import keep_order, keep_the_collector_out
from tests.unit.engine.driving import PLAYS

keep_order()  # as a worker does
keep_the_collector_out()


@pytest.fixture(autouse=True)
def _nothing_is_left_in_memory() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Every run that a test played is let go, as the engine does: its `finally` blocks run in their own context."""
    yield
    while PLAYS:
        PLAYS[-1].evict()
