from __future__ import annotations

import faulthandler
import signal
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
