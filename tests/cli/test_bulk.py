"""`holdfast bulk`: one command on many runs, the same through a store and through a gateway."""

from __future__ import annotations

import itertools
import os

import pytest

from tests.cli.conftest import Process, until

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A beginning of names that no other test has used."""
    return f"{os.getpid()}-{next(_numbers)}"


def burnt(there, name, count):
    """Loaves that have failed."""
    runs = [there("start", "bake", f"name=burnt-{name}-{n}", "--json").json["id"] for n in range(count)]
    for run in runs:
        assert there("result", run).code == 1
    return runs


def orders(there, name, count):
    """Orders that wait for a word."""
    runs = [there("start", "order", f"name={name}-{n}", "--json").json["id"] for n in range(count)]
    for run in runs:
        until(
            lambda run=run: any(entry["what"] == "opened" for entry in there("journal", run).lines),
            lambda run=run: there("explain", run),
        )
    return runs


def retries(there, run):
    return [entry["bulk"] for entry in there("journal", run).lines if entry["what"] == "retried"]


def test_one_command_retries_all_that_failed(there, name):
    runs = burnt(there, name, 3)
    filters = ("--status", "failed", "--workflow", "bakery.bake", "--key-prefix", f"bake:burnt-{name}")
    dry = there("bulk", "retry", *filters, "--dry-run")
    assert dry.code == 0
    assert "3 runs would be retried. Nothing was changed." in dry.out
    assert all(run in dry.out for run in runs)
    assert [retries(there, run) for run in runs] == [[], [], []]
    document = there("bulk", "retry", *filters, "--dry-run", "--json").json
    assert (document["verb"], document["matched"], document["is_all"]) == ("retry", 3, True)
    said = there("bulk", "retry", *filters, "--rate", "100/1s", "--reason", "flour came", "--follow", "--json")
    assert said.code == 0, said
    bulk = said.lines[-1]
    assert (bulk["workflow"], bulk["status"]) == ("holdfast.bulk", "completed")
    assert (bulk["attributes"]["matched"], bulk["attributes"]["done"]) == (3, 3)
    assert [retries(there, run) for run in runs] == [[bulk["id"]]] * 3
    assert "attribute" in there("show", bulk["id"]).out
    assert there("result", bulk["id"]).json["done"] == 3


def test_words_mean_the_same_as_for_runs(there, name):
    runs = burnt(there, name, 2)
    words = ("failed", "workflow:bakery.bake", f"key:bake:burnt-{name}")
    assert {run["id"] for run in there("runs", *words, "--json").json["runs"]} == {*runs}
    dry = there("bulk", "retry", *words, "--dry-run", "--json").json
    assert {each["run"]["id"] for each in dry["first"]} == {*runs}
    limited = there("bulk", "retry", *words, "--oldest-first", "--limit", "1", "--dry-run", "--json").json
    assert [each["run"]["id"] for each in limited["first"]] == runs[:1]


def test_progress_is_a_line_for_people(there, name):
    burnt(there, name, 2)
    said = there("bulk", "retry", "--key-prefix", f"bake:burnt-{name}", "--limit", "1", "--follow")
    assert said.code == 0, said
    assert said.out.splitlines()[-1] == "completed  retry: 1 of 1 done, 0 skipped, 0 failed"
    assert "started bulk run" in said.err


def test_without_a_worker_it_says_what_it_waits_for(cli, tmp_path):
    where = ("--url", f"sqlite:///{tmp_path}/idle.db")
    assert cli("start", "bake", "name=idle", *where, HOLDFAST_PACKS="tests.cli.bakery").code == 0
    process = Process("bulk", "cancel", "--status", "pending", "--follow", *where, cwd=tmp_path)
    try:
        assert (
            process.line().strip() == "pending  cancel: not begun; it waits for a worker: none serves queue 'default'"
        )
    finally:
        process.close()


def test_it_is_started_once_per_key(there, name):
    command = ("bulk", "cancel", "--key-prefix", f"nothing-{name}", "--key", f"outage-{name}", "--json")
    first, again = there(*command).json, there(*command).json
    assert (first["created"], again["created"], again["id"]) == (True, False, first["id"])


def test_a_word_reaches_all_and_all_are_cancelled(there, name):
    told, left = orders(there, f"{name}-a", 2), orders(there, f"{name}-b", 2)
    said = there("bulk", "signal", "go", "now", "--key-prefix", f"order:{name}-a", "--follow")
    assert said.code == 0, said
    assert [there("result", run).json for run in told] == [f"{name}-a-{n}: now" for n in range(2)]
    refused = there("bulk", "signal", "go", "7", "--key-prefix", f"order:{name}-b", "--follow")
    assert refused.code == 1
    assert "0 of 2 done, 0 skipped, 2 failed" in refused.out
    assert "hook 'go'" in refused.err
    said = there("bulk", "cancel", "--key-prefix", f"order:{name}-b", "--reason", "closed", "--deadline", "5s", "-f")
    assert said.code == 0, said
    for run in left:
        until(
            lambda run=run: there("show", run, "--json").json["status"] == "cancelled",
            lambda run=run: there("explain", run),
        )
        assert "closed (bulk run " in there("receipt", run, "--json").json["reason"]
    dry = there("bulk", "resume", "--key-prefix", f"order:{name}-b", "--dry-run")
    assert "2 runs match; 2 of the first 2 would be refused. Nothing was changed." in dry.out
    assert "no: " in dry.out  # what they had done was undone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("retry",), "no filter is given, so every run is meant"),
        (("retry", "--oldest-first"), "no filter is given, so every run is meant"),
        (("retry", "--status", "completed"), "a run that is completed cannot be retried"),
        (("cancel", "--all", "--rate", "soon"), "'soon' is not a rate"),
        (("cancel", "--attribute", "nonsense"), "is not a condition"),
        (("retry", "failed", "--workflow", "bakery.bake"), "words and options cannot both say"),
        (("retry", "staus:failed"), "'staus' is not a field; is status:failed meant?"),
        (("retry", "id:4f1c0000"), "an id means one run"),
        (("retry", "key:a", "o-1"), "cannot both be meant"),
    ],
)
def test_what_cannot_be_is_said_and_starts_nothing(there, arguments, message):
    said = there("bulk", *arguments)
    assert (said.code, message in said.err) == (2, True), said


def test_a_dry_run_of_all_needs_no_filter(there):
    assert there("bulk", "cancel", "--dry-run", "--json").json["verb"] == "cancel"
