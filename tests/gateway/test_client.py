"""`Client` has the verbs of a `Holdfast`: every test here runs against both, and must not see a difference."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Struct

from holdfast import (
    Client,
    InFlight,
    InputMismatch,
    NotAllowedNow,
    Overtaken,
    Pack,
    Range,
    Run,
    RunCancelled,
    RunFailed,
    Signal,
    TimedOut,
    UnknownRun,
    UsageError,
    hook,
    mark,
    set_attributes,
    sleep,
)
from holdfast.client import Caller
from holdfast.errors import (
    GatewayUnavailable,
    InputRefused,
    InvalidConfig,
    NotAuthenticated,
    NotPermitted,
    PayloadRefused,
    UnknownHook,
    UnknownWorkflow,
)
from tests.gateway.conftest import Gateway, Serve
from tests.integration.conftest import SqliteHome

pack = Pack("p")
DUE = datetime(2026, 11, 16, 12, 30, 0, 250_000, tzinfo=UTC)
PATIENCE = 30


class Total(Struct):
    cents: int


class Approval(Struct):
    by: str


@pack.effect(key="give-back:{order}")
async def give_back(order: str) -> str:
    return order


@pack.effect(key="take:{order}", undo=give_back)
async def take(order: str) -> str:
    return order


@pack.workflow(key="work:{order}", markers=("begun",))
async def work(order: str, fails: bool = False) -> Total:
    """Works."""
    await set_attributes({"order": order, "cents": len(order), "due": DUE, "vip": order == "a"})
    await mark("begun")
    await take(order)
    if fails:
        raise ValueError(order)
    return Total(len(order))


@pack.workflow(key="wait:{order}")
async def wait(order: str) -> str:
    await take(order)
    return (await hook("go", token=f"go:{order}", type=Approval)).by


@pack.workflow
async def large(size: int) -> str:
    await sleep(0)
    return "x" * size


words = Pack("words")


@words.workflow(key="talk:{name}")
async def talk(name: str) -> list[str]:
    heard = list[str]()
    async for word in hook("word", type=str):
        if word == "end":
            break
        heard.append(word)
    return heard


@pytest.fixture
async def gateway(serve: Serve, sqlite_home: SqliteHome) -> Gateway:
    return await serve(pack, on=sqlite_home)


@pytest.fixture(params=["holdfast", "client"])
async def hf(request: pytest.FixtureRequest, gateway: Gateway) -> AsyncGenerator[Caller]:
    if request.param == "holdfast":
        yield gateway.hf
        return
    async with Client(gateway.url, packs=[pack]) as client:
        yield client


async def until_recorded(run: Run[Any], what: str) -> None:
    async for event in run.events():
        if event.entry.what == what:
            return


async def test_a_start_creates_once_and_its_run_shows_all_there_is(hf: Caller) -> None:
    run, created = await hf.start(work("abc"), priority=3, retention="2h", attributes={"region": "eu"})
    again = await hf.start(work("abc"))
    assert (created, again.created, again.run.id) == (True, False, run.id)
    assert await run.result(timeout=PATIENCE) == Total(3)
    run = await run.refresh()
    assert (run.workflow, run.key, run.status, run.priority, run.queue, run.version) == (
        "p.work",
        "work:abc",
        "completed",
        3,
        "default",
        None,
    )
    assert run.attributes == {"region": "eu", "order": "abc", "cents": 3, "due": DUE, "vip": False}
    assert [marker.name for marker in run.markers] == ["begun"]
    assert run.finished_at is not None
    assert run.expires_at is not None
    assert (run.expires_at - run.finished_at).total_seconds() == 7200
    assert run.created_at <= run.markers[0].at <= run.finished_at
    assert (run.holds_key, run.waiting_on, run.next_actions) == (True, (), ("fork", "release_key"))
    assert await run.input() == {"order": "abc", "fails": False}
    assert run == await hf.get(run.id) == await hf.find("work", "work:abc") == await hf.find(work, "work:abc")


async def test_a_lost_reply_is_repeated_with_the_same_request_id(hf: Caller) -> None:
    first = await hf.start(work("a"), request_id="r-1")
    assert (await hf.start(work("a"), request_id="r-1")).created
    assert not (await hf.start(work("a"), request_id="r-2")).created
    unkeyed = await hf.start(large(1), request_id="r-3")
    again = await hf.start(large(1), request_id="r-3")
    assert (again.run.id, again.created) == (unkeyed.run.id, True)
    assert unkeyed.run.key is None
    assert first.created


async def test_a_start_by_name_is_checked_where_the_code_is(hf: Caller) -> None:
    assert await (await hf.start(hf.call("work", {"order": "abc"}))).run.result(timeout=PATIENCE) == Total(3)
    with pytest.raises(UnknownWorkflow):
        await hf.start(hf.call("nothing", {}))
    for wrong in ({"order": 5}, {}, {"order": "a", "more": 1}):
        with pytest.raises((InputRefused, UsageError), match=r"order|more"):
            await hf.start(hf.call("work", wrong))


async def test_a_taken_key_is_told_apart(hf: Caller) -> None:
    owner = (await hf.start(wait("a"))).run
    with pytest.raises(InputMismatch) as mismatch:
        await hf.start(work("other"), key="k") and await hf.start(work("another"), key="k")
    assert isinstance(mismatch.value.run, Run)
    with pytest.raises(InFlight):
        await hf.start(wait("a"), join=False)
    successor = (await hf.start(wait("a"), replace=owner)).run
    with pytest.raises(Overtaken) as overtaken:
        await hf.start(wait("a"), replace=owner)
    assert isinstance(overtaken.value.run, Run)
    assert overtaken.value.run.id == successor.id


async def test_signals_reach_the_run_once_and_are_checked(hf: Caller) -> None:
    run = (await hf.start(wait("a"))).run
    await until_recorded(run, "opened")
    with pytest.raises(PayloadRefused, match="by"):
        await run.signal("go", {"by": 5})
    with pytest.raises(PayloadRefused):
        await hf.resume_hook("go:a", [])
    with pytest.raises(UnknownHook):
        await hf.resume_hook("go:nobody", {"by": "me"})
    assert (await hf.resume_hook("go:a", {"by": "me"}, dedupe="1")).id == run.id
    assert await run.result(timeout=PATIENCE) == "me"
    with pytest.raises(NotAllowedNow):
        await run.signal("go", {"by": "late"})
    begun = await hf.start(wait("b"), signal=("go", {"by": "first"}, "d-1"))
    assert await begun.run.result(timeout=PATIENCE) == "first"


async def test_a_cancellation_answers_with_its_receipt(hf: Caller) -> None:
    run = (await hf.start(wait("a"))).run
    await until_recorded(run, "performed")
    receipt = await run.cancel("enough", deadline="10s")
    assert (receipt.outcome, receipt.reason, receipt.stopped) == ("compensated", "enough", False)
    assert [(str(left), left.state, left.name) for left in receipt.effects] == [("take:a", "undone", "p.take")]
    assert await run.receipt() == await run.cancel() == receipt
    with pytest.raises(RunCancelled):
        await run.result(timeout=PATIENCE)
    asked = await (await hf.start(wait("b"))).run.ask_cancel("soon")
    assert (await asked.receipt()).reason == "soon"


async def test_a_failed_run_says_why_and_is_retried_and_forked(hf: Caller) -> None:
    run = (await hf.start(work("abc", fails=True))).run
    with pytest.raises(RunFailed) as failed:
        await run.result(timeout=PATIENCE)
    assert (failed.value.run_id, failed.value.error_type.rpartition(".")[2]) == (run.id, "ValueError")
    assert failed.value.error_message == "abc"
    settled = await run.wait()
    assert (settled.status, settled.next_actions[:2]) == ("failed", ("retry", "fork"))
    retried = await settled.retry()
    assert (await retried.wait()).status == "failed"
    fork = await settled.fork("take#1", key="other")
    assert (fork.key, fork.attributes["holdfast.forked_from"]) == ("other", run.id)
    with pytest.raises(NotAllowedNow):
        await settled.resume()
    assert not (await (await run.refresh()).release_key("by hand")).holds_key


async def test_runs_are_found_by_everything(hf: Caller) -> None:
    await (await hf.start(large(1))).run.result(timeout=PATIENCE)
    before = (await anext(aiter(hf.runs()))).created_at + timedelta(milliseconds=1)  # by the store's clock
    for order in ("a", "bb", "ccc"):
        await (await hf.start(work(order))).run.result(timeout=PATIENCE)

    async def found(*args: Any, **wanted: Any) -> list[str]:
        return [str(run.attributes["order"]) async for run in hf.runs(*args, **wanted)]

    assert await found("work") == ["ccc", "bb", "a"]
    assert await found("work", ["completed", "failed"], newest_first=False, limit=2) == ["a", "bb"]
    assert await found(attributes={"cents": Range(gt=1, le=3), "due": DUE}) == ["ccc", "bb"]
    assert await found(attributes={"cents": Range(ge=2), "due": Range(lt=DUE)}) == []
    assert await found(attributes={"vip": True}) == ["a"]
    assert await found(key_prefix="work:b", created_after=before, finished_after=before) == ["bb"]
    assert await found("work", created_before=before) == []
    roots = [run.id async for run in hf.runs(roots_only=True)]
    assert roots == [run.id async for run in hf.runs() if "holdfast.parent" not in run.attributes]
    pages = hf.runs(work, newest_first=False)
    first = await pages.page(limit=2)
    second = await pages.page(limit=2, after=first.next)
    assert [run.key for run in (*first.runs, *second.runs)] == ["work:a", "work:bb", "work:ccc"]
    with pytest.raises(UsageError):
        await pages.page(after="rubbish")


async def test_what_happened_and_why_it_waits_can_be_read(hf: Caller) -> None:
    run = (await hf.start(wait("a"))).run
    await until_recorded(run, "opened")
    following = asyncio.create_task(_all_events(run))
    await run.signal("go", {"by": "me"})
    events = await following
    entries = await run.journal()
    assert [event.entry for event in events] == list(entries)
    assert [event.cursor for event in events] == list(range(len(entries)))
    assert [event.cursor async for event in run.events(after=1)] == list(range(2, len(entries)))
    assert (entries.first, entries.cursor, entries.events()) == (0, len(entries) - 1, tuple(events))
    rest = await run.journal(after=1)
    assert (rest.first, rest.cursor, tuple(rest)) == (2, entries.cursor, entries[2:])
    assert ((await run.journal(after=99)).cursor, list(await run.journal(after=99))) == (entries.cursor, [])
    assert run.created_at <= entries[0].at <= entries[-1].at
    story = await hf.explain(run)
    assert story == await hf.explain("wait", "wait:a")
    assert (story.run_id, len(story.lines)) == (run.id, len(entries))
    delayed = (await hf.start(work("later"), delay="1h")).run
    assert [each.kind for each in delayed.waiting_on] == ["delay"]


async def _all_events(run: Run[Any]) -> list[Any]:
    return [event async for event in run.events()]


async def test_what_there_is_to_do_and_who_does_it(hf: Caller) -> None:
    described = {each.name: each for each in await hf.workflows()}
    assert described.keys() == {"p.work", "p.wait", "p.large"}
    assert described["p.work"] == await hf.workflow("work")
    assert (described["p.work"].doc, described["p.work"].key) == ("Works.", "work:{order}")
    [worker] = await hf.workers()
    assert worker.serves.workflows == ("p.work", "p.wait", "p.large")
    assert worker.joined_at < worker.lease_until
    assert described["p.work"].retention == timedelta(days=30)
    await hf.start(work("later"), delay="1h")
    backlog = await hf.backlog()
    assert {status: count for status, count in backlog.statuses.items() if count} == {"pending": 1}


async def test_a_signal_goes_with_a_start_once_per_dedupe_id_or_request(hf: Caller) -> None:
    for signal, request_id in ((Signal("go", {"by": "me"}), "r-1"), (Signal("go", {"by": "me"}, "d-1"), None)):
        key = f"signalled:{request_id}"
        first = await hf.start(wait(key), signal=signal, request_id=request_id, key=key)
        await hf.start(wait(key), signal=signal, request_id=request_id, key=key)
        assert await first.run.result(timeout=PATIENCE) == "me"
        assert sum(entry.what == "received" for entry in await first.run.journal()) == 1


async def test_its_namespace_is_known(hf: Caller) -> None:
    await hf.workflows()
    assert hf.namespace == "default"
    [worker] = await hf.workers()
    assert worker.serves.namespace == "default"


async def test_over_http_the_namespace_is_that_of_the_key(serve: Serve, sqlite_home: SqliteHome) -> None:
    gateway = await serve(pack, on=sqlite_home, keys=True)
    token, _ = await gateway.hf.api_keys.create("b", namespace="tenant-ü/b", scope="admin")
    async with Client(gateway.url, api_key=token, packs=[pack]) as client:
        with pytest.raises(UsageError, match="not known"):
            _ = client.namespace
        await client.workflows()
        assert client.namespace == "tenant-ü/b"
        _, key = await client.api_keys.create("c", namespace=client.namespace, scope="read")
        assert key.namespace == "tenant-ü/b"
        assert key.created_at <= datetime.now(UTC)
        assert (key.expires_at, key.revoked_at) == (None, None)
        with pytest.raises(UsageError, match="namespace"):
            await client.api_keys.create("d", namespace="tenant-c", scope="read")


family = Pack("f")


@family.effect(key="touch:{name}")
async def touch(name: str) -> str:
    return name


@family.workflow(key="child:{name}")
async def child(name: str, touches: bool) -> None:
    if touches:
        await touch(name)


@family.workflow(key="middle:{name}")
async def middle(name: str, touches: bool) -> None:
    await child(f"{name}-inner", touches)


@family.workflow(key="parent:{name}")
async def parent(name: str) -> None:
    await child(f"{name}-idle", touches=False)
    await child(f"{name}-busy", touches=True)
    await middle(f"{name}-middle", touches=False)
    await middle(f"{name}-over-busy", touches=True)
    await hook("never")


async def test_what_children_left_behind_is_the_same_over_http(serve: Serve, sqlite_home: SqliteHome) -> None:
    gateway = await serve(family, on=sqlite_home)
    async with Client(gateway.url, packs=[family]) as client:
        for name, first, second in (("a", gateway.hf, client), ("b", client, gateway.hf)):
            run = (await first.start(parent(name))).run
            while not any(wait.kind == "hook" for wait in (await run.refresh()).waiting_on):
                await asyncio.sleep(0.05)
            receipt = await run.cancel("enough")
            assert [(each.workflow, each.outcome, each.is_empty) for each in receipt.children] == [
                ("f.child", "completed_first", True),
                ("f.child", "completed_first", False),
                ("f.middle", "completed_first", True),
                ("f.middle", "completed_first", False),
            ]
            assert await (await second.get(run.id)).receipt() == receipt


async def test_large_values_pass(hf: Caller) -> None:
    run = (await hf.start(large(700_000))).run
    assert len(await run.result(timeout=PATIENCE)) == 700_000


async def test_what_is_not_there_or_not_yet(hf: Caller) -> None:
    for rubbish in ("nobody", "a/b", "../x", "ü?#%", " "):
        with pytest.raises(UnknownRun):
            await hf.get(rubbish)
    with pytest.raises(UnknownRun):
        await hf.find("work", "a/b ü?#%")
    with pytest.raises(TimedOut):
        await (await hf.start(wait("a"))).run.result(timeout=0.05)


async def test_keys_with_any_characters_find_their_run(hf: Caller) -> None:
    for key in ("a/b", "a b", "ü", "?x=1&y", "#", "%2F", ".."):
        run, created = await hf.start(work(key), key=key)
        assert created
        assert (await hf.find("work", key)).id == run.id


async def test_over_http_a_key_opens_its_namespace_and_no_other(serve: Serve, sqlite_home: SqliteHome) -> None:
    gateway = await serve(pack, on=sqlite_home, keys=True)
    run = (await gateway.hf.start(wait("a"))).run
    token, _ = await gateway.hf.api_keys.create("b", namespace="tenant-b", scope="write")
    async with Client(gateway.url, api_key=token, packs=[pack]) as other:
        with pytest.raises(UnknownRun):
            await other.get(run.id)
        with pytest.raises(NotPermitted):
            await other.api_keys.listed()
        assert (await other.start(wait("a"))).created
    async with Client(gateway.url) as nobody:
        with pytest.raises(NotAuthenticated):
            await nobody.get(run.id)


async def test_over_http_keys_are_made_listed_and_revoked(serve: Serve, sqlite_home: SqliteHome) -> None:
    gateway = await serve(pack, on=sqlite_home, keys=True)
    token, _ = await gateway.hf.api_keys.create("boss", namespace="default", scope="admin")
    async with Client(gateway.url, api_key=token) as boss:
        made, key = await boss.api_keys.create("reader", scope="read", expires_in="1h")
        assert {each.name for each in await boss.api_keys.listed()} == {"boss", "reader"}
        async with Client(gateway.url, api_key=made) as reader:
            assert await reader.workflows()
            with pytest.raises(NotPermitted):
                await reader.start(reader.call("work", {"order": "a"}))
        await boss.api_keys.revoke("", key.id)
        assert [each.revoked_at_ms is None for each in await boss.api_keys.listed() if each.id == key.id] == [False]


async def test_a_gateway_that_is_away_is_said_so_and_an_address_that_is_none_is_refused(gateway: Gateway) -> None:
    await gateway.server.stop()
    async with Client(gateway.url) as client:
        with pytest.raises(GatewayUnavailable, match=gateway.url):
            await client.get("any")
    with pytest.raises(InvalidConfig):
        Client("sqlite:///shop.db")


async def test_what_needs_the_store_says_so(gateway: Gateway) -> None:
    async with Client(gateway.url) as client:
        run = (await client.start(client.call("work", {"order": "a"}))).run
        assert await run.input() == {"order": "a", "fails": False}
        with pytest.raises(UsageError, match="store"):
            await client.replay_check()


async def test_it_works_without_async(gateway: Gateway) -> None:
    def blocking() -> list[str | None]:
        with Client.blocking(gateway.url, packs=[pack]) as hf:
            assert hf.start(work("abc")).run.result(timeout=PATIENCE) == Total(3)
            return [run.key for run in hf.runs("work")]

    assert await asyncio.to_thread(blocking) == ["work:abc"]


class Elsewhere:
    """Something else that speaks HTTP, and answers everything alike."""

    def __init__(self, head: str, body: str = "") -> None:
        self.asked = 0
        self._answer = f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode(
            "latin-1"
        )

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        await writer.drain()
        writer.close()


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("301 Moved\r\nLocation: https://elsewhere.example", ""),
        ("200 OK\r\nContent-Type: text/html", "<h1>Welcome</h1>"),
        ("502 Bad Gateway", "<h1>Bad gateway</h1>"),
        ("200 OK\r\nContent-Type: application/json", '{"id":"\xff","code":"\xff"}'),
        ("502 Bad Gateway\r\nContent-Type: application/json", '{"code":"\xff"}'),
    ],
)
async def test_something_else_at_the_address_is_said_to_be_no_gateway(head: str, body: str) -> None:
    elsewhere = Elsewhere(head, body)
    server = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(f"http://user:sekret@127.0.0.1:{port}") as client:
        for verb in (client.get("any"), client.workflows(), client.start(client.call("work", {}))):
            with pytest.raises(GatewayUnavailable, match="gateway of Holdfast") as caught:
                await verb
            assert "sekret" not in str(caught.value)
    assert elsewhere.asked <= 12


def test_an_address_that_cannot_be_one_is_refused_at_once() -> None:
    for url in ("http://127.0.0.1:99999", "http://", "ftp://x", "http://[", "http://a\x00b", "127.0.0.1:8787"):
        with pytest.raises(InvalidConfig):
            Client(url)


async def test_over_http_two_callers_may_use_the_same_request_id_for_signals_of_their_own(
    serve: Serve, sqlite_home: SqliteHome
) -> None:
    gateway = await serve(words, on=sqlite_home, keys=True)
    tokens = [(await gateway.hf.api_keys.create(name, namespace="default", scope="write"))[0] for name in "ab"]
    for token in tokens:
        async with Client(gateway.url, api_key=token, packs=[words]) as client:
            for _ in range(2):
                await client.start(talk("1"), signal=("word", token[-4:]), request_id="1")
    run = await gateway.hf.find(talk, "talk:1")
    await run.signal("word", "end")
    assert await run.result(timeout=30) == [token[-4:] for token in tokens]
