"""Writes the fixtures: what the code of one commit stores and sends. Run it in a checkout of that commit, never later.

    git worktree add --detach ../before b631bb3 && cd ../before && make setup
    cp -r <here>/tests/compatibility tests/ && .venv/bin/python -m tests.compatibility.write_fixtures

Then copy `tests/compatibility/b631bb3` back. The names below are those of that commit, and stay so: the fixtures prove
that later code reads what it wrote, so they are never written again. For another commit, write a directory beside it.

Time is shifted: everything happened on the first of January 2025, and what waits for days is due by now.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Raw, UnsetType

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.gateway import app
from holdfast.gateway.openapi import document
from holdfast.kernel import changes, hangs, journal, leaders, replies, tasks
from holdfast.kernel.apikeys import ApiKey, Kept
from holdfast.kernel.documents import Document
from holdfast.kernel.waits import Wait
from holdfast.local import servers
from holdfast.ports.store import Store
from holdfast.stores.redis import RedisStore, urls
from holdfast.stores.redis.pubsub import PubSub
from holdfast.stores.redis.urls import RedisUrl
from holdfast.stores.sqlite import SqliteStore
from tests.compatibility import snapshots
from tests.compatibility.requests_sent import responses
from tests.compatibility.story import Told, told

BEGIN_MS = 1_735_689_600_000  # 2025-01-01
CENTURY_MS = 100 * 365 * 86_400_000
HERE = Path(__file__).parent / "b631bb3"
STORE = "stored"


class ShiftedClock(SystemClock):
    """The machine's clock, set back."""

    def __init__(self) -> None:
        self._started_ms = self.steady_ms()

    def wall_ms(self) -> int:
        return BEGIN_MS + int(self.steady_ms() - self._started_ms)

    def boot_id(self) -> str:
        return "of the fixtures"


class ShiftedRedisStore(RedisStore):
    """The store on Redis, by that clock."""

    def __init__(self, url: RedisUrl, clock: ShiftedClock) -> None:
        self._shifted = clock
        super().__init__(url, clock=clock, bus=PubSub(url, clock=clock, ids=SystemIds()))

    def now_ms(self) -> int:
        return self._shifted.wall_ms()

    def _instant(self) -> bytes:
        return b"%d" % self.now_ms()


async def tell(make_store: Callable[[], Store], save: Callable[[Told], None]) -> None:
    """Tell the story and save the store in the middle of it; what is at work then is given up."""

    async def middle() -> None:
        async with told(make_store) as known:
            save(known)
            saved.set_result(None)
            await asyncio.Event().wait()

    saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    at_work = asyncio.create_task(middle())
    await asyncio.wait([saved, at_work], return_when=asyncio.FIRST_COMPLETED)
    if at_work.done():
        at_work.result()


async def write_stores(directory: Path) -> None:
    tasks.OPEN_KEPT_MS = CENTURY_MS  # the fixtures must not expire
    clock = ShiftedClock()
    file = directory / "store.db"

    def save_sqlite(known: Told) -> None:
        snapshots.save_sqlite(file, HERE / "store.db.gz")
        (HERE / "schema.sql").write_text(snapshots.schema_of(file))
        save_told("sqlite", known)

    await tell(lambda: SqliteStore(file, clock=clock), save_sqlite)

    server = servers.start_redis(directory / "redis")
    url = urls.parse(f"{server.url}?name={STORE}&shards=4")

    def save_redis(known: Told) -> None:
        connection = snapshots.Server("127.0.0.1", server.port)
        snapshots.save_redis(connection.keys_of(STORE), HERE / "redis.jsonl.gz")
        save_told("redis", known)

    await tell(lambda: ShiftedRedisStore(url, clock), save_redis)
    server.kill()


def save_told(store: str, known: Told) -> None:
    (HERE / f"told-{store}.json").write_text(json.dumps(known._asdict(), indent=2) + "\n")


# -- what is encoded: one line for each kind, with every field

A_VALUE = journal.Value(Raw(b'{"order":["o-1",null,1.5,"\\u00fc"]}'))
A_BLOB = journal.Value(blob="d1", size=300_000)
AN_INTENT = journal.Intent("effect", "shop.charge", "charge:o-1", "d2", "shop.py:12", {"width": "d3"})
AN_OTHER = journal.Other("run-2", "shop.child", "child:1")
A_FAILURE = journal.Failure(
    "ValueError",
    "boom",
    Raw(b'["boom"]'),
    Raw(b'{"code":7}'),
    "shop.py:13",
    "charge#1",
    (journal.Failure("OSError", "inner"),),
)
SAMPLES: dict[Any, Any] = {
    int: BEGIN_MS,
    str: "text",
    Raw: Raw(b'{"colour":"red"}'),
    journal.Value: A_VALUE,
    journal.Failure: A_FAILURE,
    journal.Intent: AN_INTENT,
    journal.Other: AN_OTHER,
    tuple[journal.Other, ...]: (AN_OTHER,),
    tuple[int, ...]: (3, 5),
    changes.Status: changes.Status.COMPLETED,
}


def full(kind: type[Any]) -> Any:
    """One of this kind in which no field has its default value."""
    fields = {}
    for field in msgspec.structs.fields(kind):
        hinted = get_type_hints(kind)[field.name]
        wanted = [each for each in get_args(hinted) or (hinted,) if each not in {type(None), UnsetType, ...}]
        if hinted in SAMPLES:
            fields[field.name] = SAMPLES[hinted]
        elif hinted is bool:
            fields[field.name] = not field.default
        else:
            fields[field.name] = SAMPLES[wanted[0]]
    return kind(**fields)


def write_encoded() -> None:
    encode = msgspec.json.encode
    entries = [full(kind) for kind in get_args(journal.Entry)]
    entries.append(journal.Performed(BEGIN_MS, "charge#1", AN_INTENT, 2, A_BLOB))
    save_lines("journal.jsonl", map(encode, entries))
    save_lines("messages.jsonl", (encode(full(kind)) for kind in get_args(changes.Message)))
    waits = [Wait(kind, "name", BEGIN_MS, "step#1") for kind in get_args(get_type_hints(Wait)["kind"])]
    save_lines("waits.jsonl", map(encode, waits))
    save_lines("documents.jsonl", (encode([name, body.decode("latin-1")]) for name, body in documents()))


def documents() -> list[tuple[str, bytes]]:
    """The body of a document of each kind, in each of its states."""
    key = ApiKey(
        id="0" * 16,
        name="a till",
        namespace="default",
        scope="write",
        tail="abcd",
        created_ms=BEGIN_MS,
        expires_ms=BEGIN_MS + 1,
        revoked_ms=BEGIN_MS + 2,
    )
    task = tasks.Task("run-1", "resize:cat", 2, '{"image":"cat"}', tasks.Offered(3), '{"done":1}', True, "00-1-2-01", 9)
    claimed = tasks.TaskClaimed("painter", "n-1", BEGIN_MS, 30_000, BEGIN_MS, BEGIN_MS + 30_000, wanted=False)
    returned = tasks.Done("painter", BEGIN_MS, tasks.TaskReturned('"small"'))
    raised = tasks.Done("painter", BEGIN_MS, tasks.TaskRaised("TooLarge", "9 GB", retry=False, retry_after_ms=5))
    reply = replies.Reply(201, ((b"content-type", b"text/plain"),), b"made \xff")
    return [
        ("api_key", msgspec.json.encode(Kept(key, "digest"))),
        ("duty", msgspec.json.encode(leaders.Holder("box-1", "n-1"))),
        ("hangs", msgspec.json.encode(hangs.HungThreads(3))),
        *(
            (f"task {type(state).__name__.lower()}", msgspec.json.encode(msgspec.structs.replace(task, state=state)))
            for state in (tasks.Offered(3), claimed, returned, raised, tasks.Withdrawn(3))
        ),
        ("reply working", msgspec.msgpack.encode(replies.Working("d1", "n-1", BEGIN_MS))),
        ("reply vacant", msgspec.msgpack.encode(replies.Vacant("d1", "n-1"))),
        ("reply answered", msgspec.msgpack.encode(replies.Answered("d1", reply, "n-1"))),
        ("reply not kept", msgspec.msgpack.encode(replies.Answered("d1", replies.Reply(200), "n-1"))),
        ("document", msgspec.msgpack.encode(Document("default", "secret", "dashboard", 7, b"\x00\xff", 8, 9))),
    ]


def save_lines(name: str, lines: Any) -> None:
    (HERE / name).write_bytes(b"\n".join(lines) + b"\n")


def write_openapi() -> None:
    found = document(app.ENDPOINTS)
    (HERE / "openapi.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


async def write_responses(directory: Path) -> None:
    """Asks the gateway about the file that has been written."""
    file = directory / "served.db"
    snapshots.load_sqlite(HERE / "store.db.gz", file)
    known = json.loads((HERE / "told-sqlite.json").read_text())
    snapshots.save_lines(await responses(file, known["runs"]), HERE / "responses.jsonl.gz")


async def main() -> None:
    HERE.mkdir(exist_ok=True)
    socket.gethostname = lambda: "box"  # names of machines are stored, too
    write_encoded()
    write_openapi()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        await write_stores(Path(directory))
        await write_responses(Path(directory))
        os._exit(0)  # what is at work hangs on purpose


if __name__ == "__main__":
    asyncio.run(main())
