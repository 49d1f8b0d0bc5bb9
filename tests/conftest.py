from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections import deque
from collections.abc import Generator

import pytest

pytest_plugins = ["tests.servers"]

# A shell starts what it puts in the background with SIGINT ignored, and children inherit that. The tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TEARDOWN_SECONDS = 120.0
FAILED = pytest.StashKey[bool]()


def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """From here on pytest-timeout watches over the test no more."""
    node.stash[FAILED] = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """A test that failed may leave a task that takes no cancellation.

    Over the others pytest-timeout still watches: a second watch would start and end a thread for each of them.
    """
    if not item.stash.get(FAILED, False):
        return (yield)
    faulthandler.dump_traceback_later(TEARDOWN_SECONDS, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end, so the garbage collector need not look at it: neither now nor in a test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest tests begin first, so that no worker is left with one of them when the others have ended.

    Each worker of pytest-xdist begins with a stretch of the tests of its own: its share of them is at the head of that.
    Those of one file stay together, or several clusters would come up at the same time.
    """
    slow = deque(item for item in items if item.get_closest_marker("slow"))
    others = deque(item for item in items if not item.get_closest_marker("slow"))
    dealt: list[pytest.Item] = []
    for left in range(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), 0, -1):
        end = len(dealt) + (len(slow) + len(others)) // left
        dealt += [slow.popleft() for _ in range(-(-len(slow) // left))]
        dealt += [others.popleft() for _ in range(min(len(others), end - len(dealt)))]
    items[:] = [*dealt, *slow, *others]
