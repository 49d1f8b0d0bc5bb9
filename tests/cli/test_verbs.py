"""The verbs from the command line: the same through a store and through a gateway."""

from __future__ import annotations

import itertools
import os
import re

import pytest

from tests.cli.conftest import Cli, until

_numbers = itertools.count()
BAKERY = ["bakery.bake", "bakery.prove", "bakery.order", "bakery.delivery"]
SHARED = 4  # ids of 49 days begin alike in so many characters


@pytest.fixture
def name() -> str:
    """A name that no other test has used."""
    return f"loaf-{os.getpid()}-{next(_numbers)}"


def started(there, workflow, *arguments):
    return there("start", workflow, *arguments, "--json").json


def until_opened(there, run):
    """Wait until the hook of an order is open."""
    until(
        lambda: any(entry["what"] == "opened" for entry in there("journal", run["id"]).lines),
        lambda: there("explain", run["id"]),
    )


def test_start_answers_the_run_and_whether_it_was_created(there, name):
    first = there("start", "bake", f"name={name}", "grams=750", "--json").json
    second = there("start", "bake", f"name={name}", "grams=750", "--json").json
    assert (first["created"], second["created"]) == (True, False)
    assert first["id"] == second["id"]
    assert first["workflow"] == "bakery.bake"
    assert first["key"] == f"bake:{name}"
    assert {*first} - {*there("show", first["id"], "--json").json} == {"created"}, (
        "the shape is that of a run over HTTP"
    )


def test_start_with_wait_prints_the_result(there, name):
    said = there("start", "bake", f"name={name}", "grams=750", "--wait")
    assert said.json == {"name": name, "grams": 750}
    assert f"under key bake:{name}" in said.err
    document = there("start", "bake", f"name={name}", "grams=750", "--wait", "--json").json
    assert document["result"] == {"name": name, "grams": 750}
    assert document["status"] == "completed"


@pytest.mark.parametrize("form", ["text", "file", "stdin"])
def test_the_input_comes_from_an_option_a_file_or_stdin(there, name, form, tmp_path):
    text = f'{{"name": "{name}", "grams": 1}}'
    (tmp_path / "input.json").write_text(text)
    given = {"text": text, "file": f"@{tmp_path}/input.json", "stdin": "-"}[form]
    said = there("start", "bake", "--input", given, "grams=2", "--wait", input=text if form == "stdin" else None)
    assert said.json == {"name": name, "grams": 2}, "pairs add to the input and overrule it"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--input", "{nonsense"), "--input is not JSON"),
        (("--input", "[1]"), "--input is not a JSON object"),
        (("--input", "@/no/such/file"), "cannot be read"),
        (("grams",), "'grams' is not NAME=VALUE"),
        (("name=x", "grams=many"), "$.grams"),
        (("name=x", "colour=brown"), "'colour'"),
        (("name=x", "--delay", "soon"), "'soon' is not a duration"),
    ],
)
def test_input_that_does_not_fit_is_a_usage_error(there, arguments, says):
    said = there("start", "bake", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert says in said.err


def test_a_workflow_that_nobody_knows_is_a_usage_error(there):
    said = there("start", "nope", "--json")
    assert (said.code, said.problem["code"], said.problem["exit_code"]) == (2, "unknown_workflow", 2)


def test_the_same_key_with_another_input_is_refused(there, name):
    there("start", "bake", f"name={name}", "grams=1")
    said = there("start", "bake", f"name={name}", "grams=2", "--json")
    assert (said.code, said.problem["code"]) == (2, "input_mismatch")


def test_options_of_a_start_reach_the_run(there, name):
    run = started(
        there,
        "bake",
        f"name={name}",
        *("--key", f"other:{name}", "--attribute", "shelf=3", "--attribute", f"note={name}"),
        *("--attribute", 'since={"at": "2026-01-31T12:00:00Z"}', "--delay", "1h", "--priority", "7"),
    )
    assert (run["key"], run["priority"], run["status"]) == (f"other:{name}", 7, "pending")
    assert run["attributes"] == {"shelf": 3, "note": name, "since": {"at": "2026-01-31T12:00:00Z"}}
    assert [wait["kind"] for wait in run["waiting_on"]] == ["delay"]
    successor = started(there, "bake", f"name={name}", "--key", f"other:{name}", "--replace", run["id"])
    assert successor["id"] != run["id"]


def test_a_failed_run_exits_with_1_and_can_be_tried_again(there, name):
    run = started(there, "bake", f"name=burnt-{name}")
    said = there("result", run["id"])
    assert said.code == 1
    assert "there is no flour" in said.err
    assert "Traceback" not in said.err
    problem = there("result", run["id"], "--json").problem
    assert (problem["code"], problem["exit_code"], problem["run_id"]) == ("run_failed", 1, run["id"])
    assert there("retry", run["id"], "--json").json["id"] == run["id"]
    assert there("result", run["id"]).code == 1


def test_a_result_that_does_not_come_in_time_exits_with_75(there, name):
    run = started(there, "order", f"name={name}")
    said = there("result", run["id"], "--timeout", "50ms", "--json")
    assert (said.code, said.problem["code"]) == (75, "timed_out")
    there("cancel", run["id"])


@pytest.mark.parametrize(
    "command", ["show", "result", "explain", "journal", "input", "cancel", "receipt", "resume", "retry", "release-key"]
)
def test_a_run_that_nobody_knows_is_a_usage_error(there, command):
    for reference in ("0" * 32, "bakery.bake/bake:nobody"):
        said = there(command, reference, "--json")
        assert (said.code, said.problem["code"]) == (2, "unknown_run")
        assert said.problem["hint"]


def test_a_run_is_named_by_its_id_or_by_workflow_and_key(there, name):
    run = started(there, "bake", f"name={name}")
    for reference in (run["id"], f"bake/bake:{name}", f"bakery.bake/bake:{name}"):
        assert there("show", reference, "--json").json["id"] == run["id"]


def test_a_run_is_named_by_the_beginning_or_the_end_of_its_id(there, name):
    run, other = (started(there, "bake", f"name={name}-{each}")["id"] for each in "ab")
    assert run[:SHARED] == other[:SHARED]
    for reference in (run[:20], run[-12:]):
        assert there("show", reference, "--json").json["id"] == run
    said = there("show", run[:SHARED], "--json")
    assert (said.code, said.problem["code"]) == (2, "usage")
    assert "is part of more than one run id" in said.problem["message"]
    for reference in ("f" * 31, f"{run[:20]}fffff", "0000"):
        assert there("show", reference, "--json").problem["code"] == "unknown_run"


def test_a_key_that_no_run_holds_is_told_in_a_sentence(tmp_path):
    store = Cli(HOLDFAST_URL=f"sqlite:///{tmp_path}/keys.db")
    assert store("start", "bake", "name=a", "--delay", "1h", "--pack", "tests.cli.bakery").code == 0
    problem = store("show", "nope/xx", "--json").problem
    assert problem["message"] == "no run of a workflow 'nope' holds the key 'xx'"


def test_show_draws_attempts_and_children(there, name):
    there("start", "bake", f"name=sticky-{name}", "--wait")
    shown = there("show", f"bake/bake:sticky-{name}").out
    assert "✓ knead#1" in shown
    assert "attempt 1: ConnectionError: the dough sticks" in shown
    assert "marker" in shown
    started(there, "order", f"name={name}")
    there("signal", f"order/order:{name}", "go", "now")
    there("result", f"order/order:{name}")
    shown = there("show", f"order/order:{name}").out
    assert "of bakery.bake completed" in shown
    assert f"knead:{name}-dough" in shown


def test_follow_tells_what_happens_to_the_end(there, name):
    run = started(there, "order", f"name={name}")
    there("signal", run["id"], "go", "now", "--dedupe", "d-1")
    events = there("show", run["id"], "--follow", "--json").lines
    assert [event["cursor"] for event in events] == list(range(len(events)))
    assert events[0]["entry"]["what"] == "started"
    assert events[-1]["entry"]["what"] == "completed"
    told = there("show", run["id"], "--follow").out.splitlines()
    assert "completed" in told[-1]
    assert all(re.match(r" *\d+  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  ", line) for line in told), told


def test_signals_reach_hooks_by_run_and_by_token(there, name):
    run = started(there, "order", f"name={name}")
    assert there("signal", run["id"], "go", '"by run"', "--json").json["id"] == run["id"]
    assert there("result", run["id"], "--json").json == {"result": f"{name}: by run"}
    other = started(there, "order", f"name={name}-b")
    until_opened(there, other)
    assert there("resume-hook", f"go:{name}-b", "by token", "--json").json["id"] == other["id"]
    assert there("result", other["id"], "--json").json == {"result": f"{name}-b: by token"}
    assert there("resume-hook", "go:nobody", "--json").problem["code"] == "unknown_hook"
    assert there("signal", run["id"], "go", "late", "--json").problem["code"] == "not_allowed_now"


def test_a_signal_to_a_hook_that_is_not_open_says_which_are(there, name):
    run = started(there, "order", f"name={name}")
    until(
        lambda: there("show", run["id"], "--json").json["status"] == "waiting",
        lambda: there("explain", run["id"]),
    )
    said = there("signal", run["id"], "goo", "now")
    assert said.code == 0
    assert "warning: " in said.err
    assert "it waits for 'go'" in said.err

    def is_warned() -> bool:
        # A run that looks at the signal before waits for nothing, and its row may not say so yet: then, once more.
        if there("show", run["id"], "--json").json["status"] != "waiting":
            return False
        said = there("signal", run["id"], "goo", "now", "--json")
        return bool(said.err) and "it waits for 'go'" in said.problem["warning"]

    until(is_warned, lambda: there("explain", run["id"]))
    assert there("signal", run["id"], "go", "now").err == ""


def test_a_start_may_carry_a_signal_and_a_live_run_gets_it(there, name):
    first = there("start", "order", f"name={name}", "--signal", "go=now", "--dedupe", "d-1", "--wait", "--json").json
    assert (first["created"], first["result"]) == (True, f"{name}: now")


def test_an_ended_run_is_watched_only_once(there, name):
    run = started(there, "bake", f"name={name}")
    there("result", run["id"])
    assert there("show", run["id"], "--watch", "--json").lines[0]["status"] == "completed"
    assert "knead#1" in there("show", run["id"], "--watch", FORCE_COLOR="1").out


def test_a_terminal_shows_that_one_waits(there, name):
    said = there("start", "bake", f"name={name}", "--wait", FORCE_COLOR="1")
    assert said.code == 0
    assert " is running" in said.err or " is pending" in said.err or " is completed" in said.err


def test_cancel_says_what_was_left_behind(there, name):
    run = started(there, "order", f"name={name}")
    until_opened(there, run)
    receipt = there("cancel", run["id"], "--reason", "no oven", "--json").json
    assert (receipt["outcome"], receipt["reason"]) == ("partial", "no oven"), "its child had baked already"
    assert [(left["key"], left["state"]) for left in receipt["effects"]] == [(f"knead:{name}-dough", "undone")]
    assert there("receipt", run["id"], "--json").json == receipt
    shown = there("receipt", run["id"]).out
    assert "partial (no oven)" in shown
    assert f"undone knead:{name}-dough" in shown
    said = there("result", run["id"], "--json")
    assert (said.code, said.problem["code"]) == (1, "run_cancelled")


def test_a_misspelt_field_that_finds_nothing_is_guessed(there):
    said = there("runs", "staus:failed")
    assert (said.code, said.out.strip()) == (0, "No runs.")
    assert "hint: 'staus' is not a field; is status:failed meant? The fields are status, workflow," in said.err
    assert there("runs", "order:no-such-order").err == ""


def test_what_is_possible_is_what_the_journal_permits(there, name):
    run = started(there, "order", f"name={name}")
    until_opened(there, run)
    assert "undone" in there("cancel", run["id"]).out
    assert "✓ undid knead#1 " in there("show", run["id"]).out
    possible = there("explain", run["id"], "--json").json["next_actions"]
    assert possible == ["fork", "release_key"]  # it was undone: `resume` is refused
    assert there("show", run["id"], "--json").json["next_actions"] == possible
    assert re.search(r"possible +fork, release-key *$", there("show", run["id"]).out, re.MULTILINE)


def test_a_cancelled_run_that_did_nothing_can_be_resumed(there, name):
    run = started(there, "bake", f"name={name}", "--delay", "1h")
    assert there("cancel", run["id"], "--json").json["outcome"] == "no_effects"
    assert there("resume", run["id"], "--json").json["id"] == run["id"]


def test_fork_and_release_key(there, name):
    run = started(there, "bake", f"name={name}")
    there("result", run["id"])
    fork = there("fork", run["id"], "--at", "knead#1", "--json").json
    assert fork["id"] != run["id"]
    assert fork["attributes"]["holdfast.forked_from"] == run["id"]
    there("result", fork["id"])
    assert not there("release-key", fork["id"], "--reason", "mistake", "--json").json["holds_key"]
    assert there("fork", run["id"], "--at", "nowhere#1").code == 2


def test_runs_are_found_by_what_they_show(there, name):
    small = started(there, "bake", f"name={name}-s", "grams=100")["id"]
    large = started(there, "bake", f"name={name}-l", "grams=900")["id"]
    for run in (small, large):
        there("result", run)

    def found(*options: str) -> list[str]:
        answer = there("runs", "--workflow", "bake", "--key-prefix", f"bake:{name}", *options, "--json").json
        return [run["id"] for run in answer["runs"]]

    assert found() == [large, small]
    assert found("--oldest-first") == [small, large]
    assert found("--attribute", f"name={name}-s") == [small]
    assert found("--attribute", "grams>100") == [large]
    assert found("--attribute", "grams>=100", "--attribute", "grams<900") == [small]
    assert found("--status", "completed", "--status", "failed") == [large, small]
    assert found("--status", "waiting") == []
    assert found("--created-after", "1h", "--finished-after", "1h") == [large, small]
    assert found("--created-before", "2020-01-01T00:00:00Z") == []


def test_runs_are_found_by_the_words_of_the_dashboard(there, name):
    small = started(there, "bake", f"name={name} s", "grams=100")["id"]
    large = started(there, "bake", f"name={name} l", "grams=900")["id"]
    for run in (small, large):
        there("result", run)

    def found(*words: str) -> list[str]:
        return [run["id"] for run in there("runs", *words, "--json").json["runs"]]

    assert found(f"bake:{name}") == [large, small]
    assert found(f"key:bake:{name}", "completed", "workflow:bake", "grams>100", "created_after:1h") == [large]
    assert found(f"name={name} s") == [small]
    assert found(f"bake:{name}", "failed") == []
    assert found(small) == found(f"id:{small}") == [small]
    assert found(f"bake:{name}", "--roots-only") == [large, small]


def test_runs_come_in_pages(there, name):
    for number in range(3):
        started(there, "bake", f"name={name}-{number}", "--delay", "1h")
    options = ("runs", "--key-prefix", f"bake:{name}", "--limit", "2")
    first = there(*options, "--json").json
    second = there(*options, "--after", first["next"], "--json").json
    assert [run["key"][-1] for page in (first, second) for run in page["runs"]] == ["2", "1", "0"]
    assert second["next"] is None
    assert f"--after {first['next']}" in there(*options).out


@pytest.mark.parametrize(
    "options",
    [
        ("--status", "asleep"),
        ("--attribute", "=1"),
        ("--attribute", "grams>=x"),
        ("--attribute", "grams=1", "--attribute", "grams>0"),
        ("--attribute", "grams>0", "--attribute", "grams=1"),
        ("--created-after", "yesterday"),
        ("--limit", "0"),
        ("--after", "nonsense"),
        ("status:asleep",),
        ("one", "two"),
        ("failed", "--workflow", "bake"),
    ],
)
def test_a_search_that_makes_no_sense_is_a_usage_error(there, options):
    said = there("runs", *options)
    assert (said.code, said.out) == (2, ""), said


def test_surroundings_are_shown(there):
    workflows = there("workflows", "--json").json["workflows"]
    assert [each["name"] for each in workflows] == BAKERY
    assert workflows[0]["input_schema"]
    assert "Knead and bake." in there("workflows").out
    workers = there("workers", "--json").json
    assert [each["workflows"] for each in workers["workers"]] == [BAKERY]
    assert set(workers["backlog"]) == {"statuses", "depths"}
    assert "bakery.bake" in there("workers").out


def test_a_store_and_its_gateway_say_the_same(development, name):
    store = Cli(HOLDFAST_URL=development["store"], HOLDFAST_PACKS="tests.cli.bakery")
    gateway = Cli(HOLDFAST_URL=development["gateway"])
    run = started(store, "bake", f"name=sticky-{name}")["id"]
    store("result", run)
    for command in (
        *(("show", run, "--json"), ("explain", run), ("explain", run, "--json"), ("journal", run)),
        *(("result", run), ("result", run, "--json"), ("show", run, "--follow"), ("receipt", run, "--json")),
        *(("runs", "--key-prefix", f"bake:sticky-{name}", "--json"), ("workflows",), ("workflows", "--json")),
    ):
        first, second = store(*command), gateway(*command)
        assert (first.code, first.out, first.err) == (second.code, second.out, second.err), command
    assert store("input", run).json == gateway("input", run).json


def test_a_run_is_named_by_the_short_name_of_its_workflow_though_no_pack_is_at_hand(tmp_path):
    store = f"sqlite:///{tmp_path}/short.db"
    known = Cli(HOLDFAST_URL=store, HOLDFAST_PACKS="tests.cli.bakery")
    assert known("start", "bake", "name=a", "--delay", "1h", "--key", "the key").code == 0
    stranger = Cli(HOLDFAST_URL=store)
    said = [cli("input", "bake/the key", "--json") for cli in (known, stranger)]
    assert [each.code for each in said] == [0, 0]
    assert said[0].json == said[1].json
    assert stranger("show", "bake/another", "--json").problem["code"] == "unknown_run"
    assert stranger("replay-check", "--json").problem["code"] == "invalid_config"


def test_what_runs_now_is_shown_with_its_attempt_its_instance_and_its_last_heartbeat(there, name, tmp_path):
    flag = tmp_path / name
    run = started(there, "prove", f"flag={flag}")
    until(lambda: "effect rise#1" in there("show", run["id"]).out, lambda: there("show", run["id"]))
    [worker] = there("workers", "--json").json["workers"]
    [wait] = there("show", run["id"], "--json").json["waiting_on"]
    assert (wait["instance"], wait["effect"]["name"], wait["effect"]["heartbeat"]) == (
        worker["instance"],
        "bakery.rise",
        {"risen": "half"},
    )
    assert worker["instance"] in there("workers").out
    for said in (there("show", run["id"]), there("explain", run["id"]), there("runs", "--key-prefix", "prove:")):
        flat = " ".join(said.out.split())
        assert "effect rise#1, attempt 1, running since" in flat
        assert worker["instance"] in flat
    flag.touch()
    assert there("result", run["id"]).json == "risen"
    assert f'input: {{"flag":"{flag}"}}' in " ".join(there("show", run["id"], "--inputs").out.split())
    assert "input:" not in there("show", run["id"]).out
    [performed] = [line for line in there("journal", run["id"]).lines if line["what"] == "performed"]
    assert performed["input"] == {"json": {"flag": str(flag)}}
