"""The plugin for pytest, in a pytest of its own. It is named here, as an installation may be older than the plugin."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest_plugins = "pytester"
PLUGIN = ("-p", "holdfast.testing.pytest_plugin", "-p", "no:cacheprovider")
PACK = """
import asyncio
from holdfast import Pack, sleep

shop = Pack("shop")

@shop.effect
async def charge() -> str:
    return "paid"

@shop.workflow
async def order() -> str:
    await sleep("30d")
    return await charge()

async def check(simulated, **options):
    async with simulated(packs=[shop], **options) as hf:
        run, _ = await hf.start(order())
        assert await run.result() == "paid"
        print("seed", repr(hf.seed), "run", run.id)
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that are installed are not loaded by themselves: that takes longer than the tests, which name theirs."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def ids_of(result: pytest.RunResult) -> list[str]:
    return re.findall(r"seed \S+ run \w+", result.stdout.str())


def test_the_fixture_works_without_a_plugin_for_async_tests(pytester: pytest.Pytester):
    pytester.makepyfile(PACK + "\ndef test_order(simulated):\n    asyncio.run(check(simulated))\n")
    result = pytester.runpytest_subprocess(*PLUGIN, "-s")
    result.assert_outcomes(passed=1)
    assert "holdfast seed" not in result.stdout.str()


def test_the_fixture_works_with_pytest_asyncio_and_its_seed_is_an_option(pytester: pytest.Pytester):
    pytester.makepyfile(PACK + "\nasync def test_order(simulated):\n    await check(simulated)\n")
    first, again, other = (
        pytester.runpytest_subprocess(
            *PLUGIN, "-p", "pytest_asyncio.plugin", "--asyncio-mode=auto", "-s", f"--holdfast-seed={seed}"
        )
        for seed in ("7", "7", "eight")
    )
    for result in (first, again, other):
        result.assert_outcomes(passed=1)
    assert "holdfast seed: 7" in first.stdout.str()
    assert len(ids_of(first)) == 1
    assert ids_of(first) == ids_of(again) != ids_of(other)
    assert "seed 'eight'" in other.stdout.str()


def test_a_test_may_choose_a_seed_itself(pytester: pytest.Pytester):
    pytester.makepyfile(PACK + "\ndef test_order(simulated):\n    asyncio.run(check(simulated, seed=5))\n")
    result = pytester.runpytest_subprocess(*PLUGIN, "-s", "--holdfast-seed=7")
    result.assert_outcomes(passed=1)
    assert "seed 5 " in result.stdout.str()


def test_the_plugin_loads_nothing_of_holdfast_for_those_who_do_not_use_it():
    code = (
        "import sys, pytest\nbefore = set(sys.modules)\nimport holdfast.testing.pytest_plugin\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['holdfast', 'holdfast.testing', 'holdfast.testing.pytest_plugin']"
