"""The plugin for pytest: the fixture `simulated`, and the seed of its simulations.

    async def test_an_order_is_charged_once(simulated):
        async with simulated(packs=[shop]) as hf:
            ...

It is found by pytest where Holdfast is installed, and loads nothing of Holdfast until a test asks for the fixture. It
needs no plugin for async tests: a test that is not async calls `asyncio.run`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.testing.simulated import Simulated


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--holdfast-seed`."""
    parser.getgroup("holdfast").addoption(
        "--holdfast-seed",
        default="0",
        metavar="SEED",
        help="decides the ids, the jitter and the order of processes in the simulations of the fixture `simulated`",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say the seed if it was chosen."""
    seed = str(config.getoption("--holdfast-seed"))
    return None if seed == "0" else f"holdfast seed: {seed}"


@pytest.fixture
def simulated(request: pytest.FixtureRequest) -> Callable[..., Simulated]:
    """What makes simulations, with the seed of `--holdfast-seed`."""
    from holdfast.testing.simulated import Simulated  # noqa: PLC0415 - only where it is used

    text = str(request.config.getoption("--holdfast-seed"))
    seed = int(text) if text.lstrip("-").isdigit() else text

    def make(*args: Any, **options: Any) -> Simulated:
        return Simulated(*args, **{"seed": seed, **options})

    return make
