"""`holdfast retry-now`: the same through a store and through a gateway."""

from __future__ import annotations

import itertools
import os
import time

import pytest

from holdfast.testing import PATIENCE_SECONDS
from tests.cli.conftest import Cli

_numbers = itertools.count()


@pytest.fixture
def run(there: Cli) -> str:
    """A run whose effect waits for its next attempt."""
    name = f"frozen-{os.getpid()}-{next(_numbers)}"
    said = there("start", "bake", f"name={name}", "--json")
    assert said.code == 0, said
    run_id = said.json["id"]
    until = time.monotonic() + PATIENCE_SECONDS
    while there("show", run_id, "--json").json["status"] != "waiting":
        assert time.monotonic() < until
    return run_id


@pytest.mark.parametrize("step", [("knead#1",), ()], ids=["one step", "all that wait"])
def test_the_next_attempt_begins(there: Cli, run: str, step: tuple[str, ...]):
    assert "retry-now" in there("explain", run).out
    said = there("retry-now", run, *step, "--by", "eve", "--reason", "it has thawed")
    assert said.code == 0, said
    assert there("result", run, "--timeout", "30s").json["grams"] == 500
    entries = [each for each in there("journal", run).lines if each["what"] == "attempted"]
    assert [each.get("by_hand") for each in entries] == [
        None,
        {"by": "eve", "reason": "it has thawed", "retry_now": True},
    ]
    assert "attempt 2 of knead#1 was to begin at once; asked for by eve" in there("explain", run).out


def test_a_step_that_does_not_wait_is_refused(there: Cli, run: str):
    said = there("retry-now", run, "knead#2", "--json")
    assert (said.code != 0, said.problem["code"]) == (True, "not_allowed_now")
    assert "knead#1" in there("retry-now", run, "knead#2").err
