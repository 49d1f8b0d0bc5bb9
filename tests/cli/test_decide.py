"""`holdfast decide`: the same through a store and through a gateway."""

from __future__ import annotations

import itertools
import os

import pytest

from tests.cli.conftest import Cli

_numbers = itertools.count()


@pytest.fixture
def run(there: Cli) -> dict[str, object]:
    """A run whose outcome is not known."""
    name = f"cake-{os.getpid()}-{next(_numbers)}"
    said = there("start", "delivery", f"name={name}", "--wait")
    assert (said.code, "unknown_outcome" in said.err or "not known" in said.err) == (1, True), said
    return there("show", f"delivery/delivery:{name}", "--json").json


def told(there: Cli, run: dict[str, object], what: str) -> dict[str, object]:
    [entry] = [each for each in there("journal", str(run["id"])).lines if each["what"] == what]
    return entry


def test_what_was_returned_reaches_the_code_and_is_recorded_with_who_said_it(there: Cli, run):
    said = there("decide", run["id"], "deliver#1", "--returned", "it arrived", "--by", "eve", "--reason", "I saw it")
    assert said.code == 0, said
    assert there("result", run["id"], "--timeout", "30s").json == "it arrived"
    assert told(there, run, "performed")["by_hand"] == {"by": "eve", "reason": "I saw it"}
    assert "decided by eve, since I saw it" in there("explain", run["id"]).out
    again = there("decide", run["id"], "deliver#1", "--returned", "it arrived")
    assert again.code == 0, again
    other = there("decide", run["id"], "deliver#1", "--failed", "lost", "--json")
    assert (other.code != 0, other.problem["code"]) == (True, "not_allowed_now")


def test_why_it_is_blocked_is_shown_once(there: Cli, run):
    message = run["error"]["message"]
    said = there("show", run["id"], COLUMNS="4000").out
    assert said.count(message) == 1
    assert "is blocked (unknown_outcome): see error" in said
    assert said.count("a person: see error") == 2
    assert run["next_actions"][0] == "decide"


def test_a_failure_is_raised_in_the_code(there: Cli, run):
    assert there("decide", run["id"], "deliver#1", "--failed", "eaten by the dog", "--json").json["id"] == run["id"]
    assert "eaten by the dog" in there("result", run["id"], "--timeout", "30s").err
    assert told(there, run, "gave_up")["by_hand"] == {}


def test_what_never_happened_is_done(there: Cli, run):
    assert there("decide", run["id"], "deliver#1", "--not-performed").code == 0
    assert there("result", run["id"], "--timeout", "30s").json.endswith("has arrived")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("deliver#1",), "usage"),
        (("deliver#1", "--returned", "x", "--failed", "y"), "usage"),
        (("deliver#1", "--returned", "7"), "usage"),
        (("deliver#9", "--returned", "x"), "not_allowed_now"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_the_run_stays_in_doubt(there: Cli, run, arguments, code):
    refused = there("decide", run["id"], *arguments, "--json")
    assert (refused.code != 0, refused.problem["code"]) == (True, code), refused
    assert there("show", run["id"], "--json").json["status"] == "blocked"
