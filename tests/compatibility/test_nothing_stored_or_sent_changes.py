"""What is stored and sent is, byte for byte, what an earlier commit has stored and sent.

A change on purpose (a new field with a default, a new endpoint) is added here beside a reader of the old form; what
was written then is never written again.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from holdfast import wire
from holdfast.gateway import app, openapi
from holdfast.kernel import hangs, idempotency, leaders, tasks
from holdfast.kernel.apikeys import Kept
from holdfast.kernel.documents import Document
from holdfast.kernel.journal import Entry
from holdfast.kernel.messages import Message
from holdfast.kernel.waits import Wait
from holdfast.ports.store import Depth, Member
from tests.compatibility import snapshots
from tests.compatibility.conftest import WRITTEN, Stored, StoredInSqlite
from tests.compatibility.requests_sent import responses
from tests.compatibility.story import told

FOR_PEOPLE = {"summary", "description"}  # sentences may be written better
ILLUSTRATING = {"example", "examples"}  # no client is generated from them

# Changed since: the holder of a lease is named after its process, with a shorter nonce behind.
HOLDER = re.compile(r"[\w.-]+-\d+-[0-9a-f]{4}\.<key id>")
# Added since: failures are stored with a traceback, attempts that began late with how long they took, what waits for
# its retry with the last error, and a divergence with what is known of the values.
ADDED = re.compile(
    r',"(?:traceback|error)":"(?:[^"\\]|\\.)*"|,"took_ms":\d+|(?<= there)\. The code asks with .*?, the environment'
)
# Added since: documents about the code of workers, as leases are about workers.
ABOUT_CODE = re.compile(
    r"documents .*kind: '(code|tried|handed)'|\{tag\}(docs|index) [^ ]*default\0(code|tried|handed)\0"
)

# Added since, from the fourth version of the schema on: lanes and the places in them, outs and audits, flow rules.
LANES_AND_KEPT = re.compile(
    r"^CREATE (TABLE|INDEX) (lanes|places|outs|audits|runs_in_lanes|sqlite_sequence"
    r"|rates|lines|shares|runs_by_turn)\w*[ (][^;]*;\n+"
    r"|, lane TEXT NOT NULL DEFAULT ''|, aside INTEGER NOT NULL DEFAULT 0|, tag\s+INTEGER|, share TEXT",
    re.MULTILINE,
)
_NO_LANE = r"lane: '', aside: 0(, tag: None, share: None)?"
NO_LANE = re.compile(rf"(?<=, )({_NO_LANE}(, )?)|, {_NO_LANE}$")

encode_json = msgspec.json.encode


def written(name: str) -> list[bytes]:
    return (WRITTEN / name).read_bytes().splitlines()


def tags(union: Any) -> set[str]:
    return {str(kind.__struct_config__.tag) for kind in get_args(union)}


@pytest.mark.parametrize("line", written("journal.jsonl"), ids=lambda line: msgspec.json.decode(line)["what"])
def test_an_entry_of_the_journal_is_read_and_written_as_before(line: bytes) -> None:
    assert encode_json(msgspec.json.decode(line, type=Entry)) == line


@pytest.mark.parametrize("line", written("messages.jsonl"), ids=lambda line: msgspec.json.decode(line)["what"])
def test_a_message_is_read_and_written_as_before(line: bytes) -> None:
    assert encode_json(msgspec.json.decode(line, type=Message)) == line


@pytest.mark.parametrize("line", written("waits.jsonl"), ids=lambda line: msgspec.json.decode(line)["kind"])
def test_what_a_run_waits_for_is_read_and_written_as_before(line: bytes) -> None:
    assert encode_json(msgspec.json.decode(line, type=Wait)) == line


SERVES = b'{"namespace":"n","workflows":["a"],"host":"h","pid":3,"concurrency":4}'
MEMBER = b'{"owner":"w","joined_ms":1,"until_ms":2,"serves":%b,"holds":5}' % SERVES
DEPTH = b'{"workflow":"w","queue":"q","ready":1,"oldest_ms":2}'


@pytest.mark.parametrize(("kind", "line"), [(Member, MEMBER), (Depth, DEPTH)])
def test_what_a_verb_returns_is_read_and_written_as_before(kind: Any, line: bytes) -> None:
    """An effect may have returned it: then it is in a journal."""
    assert encode_json(msgspec.json.decode(line, type=kind)) == line


@pytest.mark.parametrize(("name", "union"), [("journal.jsonl", Entry), ("messages.jsonl", Message)])
def test_every_kind_of_today_was_written_then(name: str, union: Any) -> None:
    assert {msgspec.json.decode(line)["what"] for line in written(name)} == tags(union)


DOCUMENTS: dict[str, tuple[Any, Callable[[Any], bytes], Callable[..., Any]]] = {
    "api_key": (Kept, msgspec.json.encode, msgspec.json.decode),
    "document": (Document, msgspec.msgpack.encode, msgspec.msgpack.decode),
    "duty": (leaders.Holder, msgspec.json.encode, msgspec.json.decode),
    "hangs": (hangs.HungThreads, msgspec.json.encode, msgspec.json.decode),
    "reply": (idempotency.State, msgspec.msgpack.encode, msgspec.msgpack.decode),
    "task": (tasks.Task, msgspec.json.encode, msgspec.json.decode),
}
BODIES = [tuple(msgspec.json.decode(line, type=list[str])) for line in written("documents.jsonl")]


@pytest.mark.parametrize(("name", "text"), BODIES)
def test_the_body_of_a_document_is_read_and_written_as_before(name: str, text: str) -> None:
    body = text.encode("latin-1")
    kind, encode, decode = DOCUMENTS[name.partition(" ")[0]]
    assert encode(decode(body, type=kind)) == body


def test_a_document_of_every_kind_and_state_was_written_then() -> None:
    assert {name.partition(" ")[0] for name, _ in BODIES} == set(DOCUMENTS)
    states = {msgspec.json.decode(text)["state"]["is"] for name, text in BODIES if name.startswith("task")}
    assert states == tags(tasks.TaskState)
    replies = {msgspec.msgpack.decode(text.encode("latin-1"))["type"] for name, text in BODIES if name[:5] == "reply"}
    assert replies == tags(idempotency.State)


async def test_the_schema_of_a_new_file_is_the_one_of_then(tmp_path: Path) -> None:
    stored = StoredInSqlite(tmp_path)
    store = stored.store()
    await store.open()
    await store.close()
    now = LANES_AND_KEPT.sub("", snapshots.schema_of(stored.path)).replace("user_version = 6", "user_version = 3")
    assert now == (WRITTEN / "schema.sql").read_text()


async def test_what_happens_is_stored_as_it_was_then(empty: Stored) -> None:
    """The same story is told again. Rows, keys of Redis, fields, members of indices, journals: all are the same."""
    async with asyncio.timeout(100), told(empty.store) as known:
        lines = [line for line in empty.lines(known) if not ABOUT_CODE.match(line)]
        now = [HOLDER.sub("<nonce>", NO_LANE.sub("", ADDED.sub("", line))) for line in lines]
    assert now == empty.lines_then()


async def test_a_gateway_responds_about_stored_runs_as_it_did_then(tmp_path: Path) -> None:
    """Every field of every view, and the status and the code of every refusal."""
    stored = StoredInSqlite(tmp_path)
    stored.load()
    now = [
        _without_instances(_without_errors(json.loads(line))) for line in await responses(stored.path, stored.told.runs)
    ]
    then = [json.loads(line) for line in snapshots.load_lines(WRITTEN / "responses.jsonl.gz")]
    then = [_told_truly(response, then) for response in then]
    assert {f"{method} {path}": response for method, path, *response in now} == {
        f"{method} {path}": response for method, path, *response in then
    }
    assert now == then


def test_the_openapi_document_is_the_one_of_then() -> None:
    then = json.loads((WRITTEN / "openapi.json").read_bytes())
    now = json.loads(encode_json(openapi.document(app.ENDPOINTS)))
    assert now["components"]["schemas"]["Error"]["properties"].pop("line") == {"type": "string", "default": ""}
    for name, added in (("Wait", ("instance", "effect")), ("Worker", ("instance",))):
        for each in added:
            del now["components"]["schemas"][name]["properties"][each]
    assert now["components"]["schemas"]["Line"]["properties"].pop("traceback") == {"type": "string"}
    start = now["paths"]["/v1/workflows/{name}/runs"]["post"]
    assert start["responses"]["201"]["headers"].pop("Idempotency-Replayed")["schema"] == {"type": "string"}
    search = now["paths"]["/v1/runs"]["get"]["parameters"]
    search.remove(next(each for each in search if each["name"] == "roots_only"))
    # Added since: a header that says that a signal was perhaps not meant so.
    assert set(now["paths"]["/v1/runs/{run_id}/signal"]["post"]["responses"]["202"].pop("headers")) == {wire.WARNING}
    # Added since: an input may be sealed, and the gateway without the key.
    assert now["paths"]["/v1/runs/{run_id}/input"]["get"]["responses"].pop("409")
    # Added since: any request may be refused by a limit, where there is one.
    for operations in now["paths"].values():
        assert all(operation["responses"].pop("429") for operation in operations.values())
    schemas = now["components"]["schemas"]
    for kind, added in (  # what no client has to know
        *(("Start", "timeout"), ("Run", "times_out_at"), ("Wait", "error"), ("Wait", "detail")),
        *(("Start", "lane"), ("Start", "width"), ("Start", "if_free")),
        *(("Run", "lane"), ("Wait", "lane"), ("Workflow", "lane")),
        *(("Workflow", "rules"), ("Wait", "ahead")),
    ):
        schemas[kind]["properties"].pop(added)
        assert added not in schemas[kind].get("required", ())
    assert now["components"]["schemas"]["Wait"]["properties"].pop("version") == {"type": "string"}
    for of_now, of_then in (
        (now["paths"], then["paths"]),
        (now["components"]["schemas"], then["components"]["schemas"]),
    ):
        assert set(of_now) >= set(of_then)
        for added in set(of_now) - set(of_then):  # an endpoint that is added breaks no client
            del of_now[added]
    assert json.dumps(_for_machines(now)) == json.dumps(_for_machines(then))


def _told_truly(response: list[Any], then: list[list[Any]]) -> list[Any]:
    """The receipt of a failed run that has effects said `completed_first` then."""
    method, path, *_, body = response
    if not path.endswith("/receipt") or '"outcome": "completed_first"' not in str(body):
        return response
    shown = next(each[-1] for each in then if each[:2] == [method, path.removesuffix("/receipt")])
    if json.loads(shown)["status"] != "failed":
        return response
    assert json.loads(body)["effects"]
    return [*response[:-1], body.replace("completed_first", "partial")]


def _without_errors(response: list[Any]) -> list[Any]:
    """Without what was added since: `error` of runs that are looked at, and its line."""
    *head, body = response
    if not isinstance(body, str) or '"line"' not in body or not body.startswith("{"):
        return response
    shown = json.loads(body)
    for run in (shown, *shown.get("runs", ())):
        if "next_actions" in run:
            run.pop("error", None)
        elif isinstance(run.get("error"), dict):
            run["error"].pop("line", None)
    return [*head, json.dumps(shown)]


def _without_instances(response: list[Any]) -> list[Any]:
    """Without what was added since: by which instance a run is executed."""
    *head, body = response
    if not isinstance(body, str) or '"instance"' not in body or '"waiting_on"' not in body:
        return response
    shown = json.loads(body)
    for run in (shown, *shown.get("runs", ())):
        for wait in run.get("waiting_on", ()):
            wait.pop("instance", None)
    return [*head, json.dumps(shown)]


def _for_machines(node: Any) -> Any:
    """Without the sentences, and without the version of the package. Properties may bear those names."""
    match node:
        case {"openapi": _, "info": _}:
            return {
                name: _for_machines(value) for name, value in node.items() if name not in {"info", "servers", "tags"}
            }
        case dict():
            return {
                name: _for_machines(value)
                for name, value in node.items()
                if (name not in FOR_PEOPLE or not isinstance(value, str)) and name not in ILLUSTRATING
            }
        case list():
            return [_for_machines(each) for each in node]
        case _:
            return node
