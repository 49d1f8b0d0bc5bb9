"""`Idempotency-Key` on the routes of somebody's own application, over every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient, Response as Answer
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from holdfast import Holdfast
from holdfast.asgi import Idempotent
from holdfast.engine.duties.leaders import DUTIES
from holdfast.errors import InvalidConfig, StoreUnavailable, UsageError
from holdfast.events import ReplyNotKept, RequestOvertaken, RequestReplayed, RequestTakenOver
from holdfast.kernel import idempotency
from holdfast.kernel.documents import Writing
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, heard
from tests.integration.wrappers import CountingStore, LossyStore, SeverableStore

KEY = {"Idempotency-Key": "k-1"}
PROBLEM = "application/problem+json"


class Shop:
    """Somebody's application. It counts what it really does."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()
        self.status = 201
        self.tidied: list[str] = []
        self.left = asyncio.Event()

    async def order(self, request: Request) -> Response:
        self.done.append((await request.body()).decode())
        number = len(self.done)
        response = JSONResponse({"order": number}, self.status, headers={"Location": f"/orders/{number}"})
        response.set_cookie("basket", str(number))
        response.set_cookie("seen", "yes")
        return response

    async def slow(self, request: Request) -> Response:
        self.done.append("slow")
        self.begun.set()
        await self.gate.wait()
        return PlainTextResponse(f"slow {len(self.done)}")

    async def fails(self, request: Request) -> Response:
        self.done.append("fails")
        if len(self.done) == 1:
            raise RuntimeError("boom")
        return PlainTextResponse("better now")

    async def chunks(self, request: Request) -> Response:
        self.done.append("chunks")
        size = int(request.query_params["size"])
        slowly = "slowly" in request.query_params

        async def body() -> AsyncIterator[bytes]:
            for piece in range(4):
                if slowly and piece == 1:
                    self.begun.set()
                    await self.gate.wait()
                yield b"x" * (size // 4)

        return StreamingResponse(body(), media_type="text/plain")

    async def large(self, request: Request) -> Response:
        self.done.append("large")
        return Response(b"y" * int(request.query_params["size"]), int(request.query_params.get("status", "200")))

    async def events(self, request: Request) -> Response:
        self.done.append("events")

        async def body() -> AsyncIterator[str]:
            try:
                yield "data: 1\n\n"
                await self.gate.wait()
                yield "data: 2\n\n"
            finally:
                self.left.set()

        return StreamingResponse(body(), media_type="text/event-stream")

    async def tidy(self, request: Request) -> Response:
        self.done.append("tidy")

        async def afterwards() -> None:
            self.begun.set()
            await self.gate.wait()
            self.tidied.append("tidied")

        return PlainTextResponse("done", background=BackgroundTask(afterwards))

    async def asks_whether_anybody_listens(self, request: Request) -> Response:
        self.done.append("asked")
        await request.body()
        return JSONResponse({"gone": await request.is_disconnected()})

    async def file(self, request: Request) -> Response:
        self.done.append("file")
        return FileResponse(__file__)

    def app(self, hf: Holdfast, **options: Any) -> Starlette:
        routes = {
            "/orders": self.order,
            "/orders/{id}": self.order,
            "/slow": self.slow,
            "/fails": self.fails,
            "/chunks": self.chunks,
            "/large": self.large,
            "/events": self.events,
            "/tidy": self.tidy,
            "/listening": self.asks_whether_anybody_listens,
            "/file": self.file,
        }
        return Starlette(
            routes=[
                Route(path, handler, methods=["GET", "POST", "PATCH", "PUT", "DELETE"])
                for path, handler in routes.items()
            ],
            middleware=[Middleware(Idempotent, holdfast=hf, **options)],
        )

    def client(self, hf: Holdfast, **options: Any) -> AsyncClient:
        return client_of(self.app(hf, **options))


def client_of(app: Any) -> AsyncClient:
    return AsyncClient(transport=ASGITransport(app), base_url="http://shop", timeout=PATIENCE_SECONDS)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@asynccontextmanager
async def opened(shop: Shop, home: Home, **options: Any) -> AsyncIterator[tuple[AsyncClient, Holdfast]]:
    """A client of the shop, on a Holdfast of this home."""
    through = options.pop("through", None)
    async with home.holdfast(worker=False, through=through) as hf, shop.client(hf, **options) as client:
        yield client, hf


def replayed(answer: Answer) -> bool:
    return answer.headers.get("Idempotency-Replayed") == "true"


def code(answer: Answer) -> tuple[int, str]:
    """The status and the code of a refusal."""
    assert answer.headers["Content-Type"] == PROBLEM
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"] == f"urn:holdfast:problem:{problem['code']}"
    assert problem["title"]
    assert problem["detail"]
    assert problem["hint"]
    return answer.status_code, problem["code"]


# -- the same again


async def test_a_repetition_gets_the_first_status_headers_and_body(shop, home):
    async with opened(shop, home) as (client, hf):
        first = await client.post("/orders", content=b"tea", headers=KEY)
        second = await client.post("/orders", content=b"tea", headers=KEY)
        await heard(hf).until(RequestReplayed, method="POST", path="/orders", status=201)
    assert (second.status_code, second.content) == (first.status_code, first.content) == (201, b'{"order":1}')
    assert second.headers.get_list("set-cookie") == first.headers.get_list("set-cookie")
    assert len(second.headers.get_list("set-cookie")) == 2
    assert second.headers["Location"] == "/orders/1"
    assert (replayed(first), replayed(second)) == (False, True)
    assert shop.done == ["tea"]


async def test_another_process_answers_the_repetition(shop, sqlite_home):
    async with opened(shop, sqlite_home) as (one, _), opened(shop, sqlite_home) as (other, _):
        first = await one.post("/orders", content=b"tea", headers=KEY)
        second = await other.post("/orders", content=b"tea", headers=KEY)
    assert (second.content, replayed(second)) == (first.content, True)


async def test_an_answer_survives_a_restart(shop, sqlite_home):
    async with opened(shop, sqlite_home) as (client, _):
        await client.post("/orders", content=b"tea", headers=KEY)
    async with opened(shop, sqlite_home) as (client, _):
        assert replayed(await client.post("/orders", content=b"tea", headers=KEY))


async def test_a_quoted_key_is_the_same_as_a_bare_one(shop, home):
    async with opened(shop, home) as (client, _):
        await client.post("/orders", headers={"Idempotency-Key": "k-1"})
        assert replayed(await client.post("/orders", headers={"Idempotency-Key": '"k-1"'}))


async def test_another_key_is_another_request(shop, home):
    async with opened(shop, home) as (client, _):
        for key in ("a", "b", "c"):
            assert not replayed(await client.post("/orders", content=b"tea", headers={"Idempotency-Key": key}))
    assert len(shop.done) == 3


async def test_an_answer_is_forgotten_when_its_retention_is_over(shop, home):
    async with opened(shop, home, retention="50ms") as (client, _):
        await client.post("/orders", content=b"tea", headers=KEY)

        async def executed_again() -> bool:
            return not replayed(await client.post("/orders", content=b"tea", headers=KEY))

        assert await eventually(executed_again)
    assert len(shop.done) == 2


async def test_answers_whose_retention_is_over_are_cleared_away(shop, sqlite_home):
    sqlite_home.paced(prune_seconds=0.02)
    async with sqlite_home.holdfast() as hf, shop.client(hf, retention="50ms") as client:
        for key in "abc":
            await client.post("/orders", headers={"Idempotency-Key": key})
        # What is left are the leases of duties, and which code the worker has.
        await eventually(lambda: sqlite_home.rows()["documents"] == len(DUTIES) + 1)


async def test_a_new_key_costs_two_writes_and_a_repetition_costs_one_and_a_read(shop, home):
    async with opened(shop, home, through=CountingStore) as (client, hf):
        counts = hf._replica._ports.store.calls
        await client.post("/orders", headers=KEY)
        assert (counts["write"], counts["document"]) == (2, 0)
        await client.post("/orders", headers=KEY)
        assert (counts["write"], counts["document"]) == (3, 1)


# -- what is left alone


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
async def test_other_methods_are_left_alone(shop, home, method):
    async with opened(shop, home, required=True) as (client, _):
        for _ in range(2):
            assert not replayed(await client.request(method, "/orders", headers=KEY))
    assert len(shop.done) in {0, 2}


async def test_methods_may_be_chosen(shop, home):
    async with opened(shop, home, methods=["put"]) as (client, _):
        await client.put("/orders", headers=KEY)
        assert replayed(await client.put("/orders", headers=KEY))
        assert not replayed(await client.post("/orders", headers=KEY))


async def test_a_request_without_a_key_is_executed_each_time(shop, home):
    async with opened(shop, home) as (client, _):
        for _ in range(2):
            assert not replayed(await client.post("/orders", content=b"tea"))
    assert shop.done == ["tea", "tea"]


@pytest.mark.parametrize("kind", ["websocket", "something new"])
async def test_other_scopes_are_passed_through(home, kind):
    seen: list[Any] = []

    async def app(*args: Any) -> None:
        seen.append(args)

    hf = home.holdfast(worker=False)
    scope, receive, send = {"type": kind, "headers": []}, object(), object()
    await Idempotent(app, holdfast=hf, required=True)(scope, receive, send)
    assert seen == [(scope, receive, send)]


# -- refused


async def test_a_missing_key_is_refused_where_it_is_required(shop, home):
    async with opened(shop, home, required=True) as (client, _):
        assert code(await client.post("/orders")) == (400, "idempotency_key_missing")
        assert (await client.post("/orders", headers=KEY)).status_code == 201


async def test_where_it_is_required_a_function_may_say(shop, home):
    async with opened(shop, home, required=lambda scope: scope["path"] == "/orders") as (client, _):
        assert code(await client.post("/orders")) == (400, "idempotency_key_missing")
        assert (await client.post("/orders/7")).status_code == 201


@pytest.mark.parametrize("key", ["", '"', '"open', "x" * 201, "schlüssel".encode()])
async def test_a_malformed_key_is_refused(shop, home, key):
    async with opened(shop, home) as (client, _):
        answer = await client.post("/orders", headers={"Idempotency-Key": key})
        assert code(answer) == (400, "idempotency_key_malformed")
    assert shop.done == []


async def test_two_keys_are_refused(shop, home):
    async with opened(shop, home) as (client, _):
        headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
        assert code(await client.post("/orders", headers=headers)) == (400, "idempotency_key_malformed")


@pytest.mark.parametrize(
    ("method", "url", "body"),
    [
        ("POST", "/orders", b"coffee"),
        ("POST", "/orders?gift=1", b"tea"),
        ("POST", "/orders/1", b"tea"),
        ("PATCH", "/orders", b"tea"),
    ],
    ids=["body", "query", "path", "method"],
)
async def test_a_key_is_refused_for_another_request(shop, home, method, url, body):
    async with opened(shop, home) as (client, _):
        await client.post("/orders", content=b"tea", headers=KEY)
        assert code(await client.request(method, url, content=body, headers=KEY)) == (422, "request_mismatch")
        assert replayed(await client.post("/orders", content=b"tea", headers=KEY))
    assert shop.done == ["tea"]


async def test_a_failure_does_not_free_the_key_for_another_request(shop, home):
    shop.status = 500
    async with opened(shop, home) as (client, _):
        await client.post("/orders", content=b"tea", headers=KEY)
        assert code(await client.post("/orders", content=b"coffee", headers=KEY)) == (422, "request_mismatch")


async def test_a_body_over_the_limit_is_refused(shop, home):
    async def in_pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"12345"

    async with opened(shop, home, body_max=10) as (client, _):
        assert code(await client.post("/orders", content=b"12345678901", headers=KEY)) == (413, "body_too_large")
        assert code(await client.post("/orders", content=in_pieces(), headers=KEY)) == (413, "body_too_large")
        assert (await client.post("/orders", content=b"1234567890", headers=KEY)).status_code == 201
    assert shop.done == ["1234567890"]


async def test_a_body_in_pieces_reaches_the_handler_whole(shop, home):
    async def in_pieces() -> AsyncIterator[bytes]:
        for piece in (b"green ", b"", b"tea"):
            yield piece

    async with opened(shop, home) as (client, _):
        await client.post("/orders", content=in_pieces(), headers=KEY)
        assert replayed(await client.post("/orders", content=b"green tea", headers=KEY))
    assert shop.done == ["green tea"]


async def test_a_problem_names_the_route(shop, home):
    async with opened(shop, home, required=True) as (client, _):
        assert (await client.post("/orders?x=1")).json()["instance"] == "/orders"


def test_options_that_cannot_work_are_refused(home):
    hf = home.holdfast(worker=False)
    with pytest.raises(InvalidConfig):
        Idempotent(Starlette(), holdfast=hf, methods="POST")
    with pytest.raises(UsageError):
        Idempotent(Starlette(), holdfast=hf, lease="10ms")
    with pytest.raises(UsageError):
        Idempotent(Starlette(), holdfast=hf, retention="soon")


async def test_a_holdfast_that_is_not_open_is_a_mistake_and_executes_nothing(shop, home):
    async with shop.client(home.holdfast(worker=False)) as client:
        with pytest.raises(UsageError, match="not open"):
            await client.post("/orders", headers=KEY)
    assert shop.done == []


# -- whose key it is


async def test_callers_do_not_meet_in_a_key(shop, home):
    async with opened(shop, home) as (client, _):
        answers = [
            await client.post("/orders", content=b"tea", headers=KEY | {"Authorization": who})
            for who in ("Bearer ada", "Bearer bob", "Bearer ada")
        ]
    assert [replayed(answer) for answer in answers] == [False, False, True]
    assert [answer.json()["order"] for answer in answers] == [1, 2, 1]


async def test_the_application_may_say_who_the_caller_is(shop, home):
    def tenant(scope: Any) -> str:
        return dict(scope["headers"])[b"x-tenant"].decode()

    async with opened(shop, home, caller=tenant) as (client, _):
        for who, token, again in [("a", "1", False), ("a", "2", True), ("b", "2", False)]:
            headers = KEY | {"X-Tenant": who, "Authorization": token}
            assert replayed(await client.post("/orders", headers=headers)) is again


async def test_namespaces_do_not_meet_in_a_key(shop, sqlite_home):
    for namespace in ("one", "two"):
        async with sqlite_home.holdfast(worker=False, namespace=namespace) as hf, shop.client(hf) as client:
            assert not replayed(await client.post("/orders", headers=KEY))


async def test_neither_the_key_nor_the_caller_can_be_read_from_the_store(shop, sqlite_home):
    async with opened(shop, sqlite_home) as (client, _):
        secret = {"Idempotency-Key": "key-4711", "Authorization": "Bearer secret-0815"}
        await client.post("/orders", content=b"body-0042", headers=secret)
    files = b"".join(path.read_bytes() for path in sqlite_home.path.parent.iterdir())
    assert b"Location".lower() in files  # the answer is there
    assert not [word for word in (b"key-4711", b"secret-0815", b"body-0042") if word in files]


# -- in flight


async def test_a_repetition_of_a_request_at_work_is_refused_and_told_to_try_again(shop, home):
    async with opened(shop, home) as (client, _):
        first = asyncio.create_task(client.post("/slow", headers=KEY))
        await shop.begun.wait()
        second = await client.post("/slow", headers=KEY)
        assert code(second) == (409, "in_flight")
        assert int(second.headers["Retry-After"]) >= 1
        shop.gate.set()
        assert (await first).text == "slow 1"
        assert replayed(await client.post("/slow", headers=KEY))


async def test_another_request_under_a_key_at_work_is_refused_for_good(shop, home):
    async with opened(shop, home, join=True) as (client, _):
        first = asyncio.create_task(client.post("/slow", headers=KEY))
        await shop.begun.wait()
        assert code(await client.post("/orders", headers=KEY)) == (422, "request_mismatch")
        shop.gate.set()
        await first


async def test_joined_repetitions_get_the_answer_of_the_first(shop, home):
    async with opened(shop, home, join=True) as (one, _), opened(shop, home, join=True) as (other, hf):
        asked = [asyncio.create_task(client.post("/slow", headers=KEY)) for client in (one, other) * 10]
        await shop.begun.wait()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while followers(hf) < 9:
                await asyncio.sleep(0)
        shop.gate.set()
        answers = await asyncio.gather(*asked)
    assert {answer.text for answer in answers} == {"slow 1"}
    assert sum(not replayed(answer) for answer in answers) == 1
    assert shop.done == ["slow"]


def followers(hf: Holdfast) -> int:
    """How many requests of this Holdfast wait for news of a document."""
    return max((len(events) for events in hf._replica.subscriptions._following.values()), default=0)


async def test_whoever_waits_asks_the_store_only_when_something_has_changed(shop, home):
    async with opened(shop, home, join=True, through=CountingStore) as (client, hf):
        counts = hf._replica._ports.store.calls
        asked = [asyncio.create_task(client.post("/slow", headers=KEY)) for _ in range(2)]
        await eventually(lambda: shop.begun.is_set() and counts["write"] == 2 and counts["document"])
        for _ in range(50):  # time enough to ask again
            await asyncio.sleep(0.001)
        assert counts["document"] <= 3
        shop.gate.set()
        await asyncio.gather(*asked)


async def test_fifty_at_once_are_executed_once(shop, home):
    async with opened(shop, home, join=True) as (one, _), opened(shop, home, join=True) as (other, _):
        answers = await asyncio.gather(*(client.post("/orders", headers=KEY) for client in (one, other) * 25))
    assert {answer.content for answer in answers} == {b'{"order":1}'}
    assert len(shop.done) == 1


async def test_whoever_joined_a_failure_executes_it(shop, home):
    """Nothing was kept of the first attempt, so one of those that waited makes the next."""
    shop.status = 503
    async with opened(shop, home, join=True) as (client, _):
        answers = await asyncio.gather(*(client.post("/orders", headers=KEY) for _ in range(3)))
    assert [answer.status_code for answer in answers] == [503, 503, 503]
    assert len(shop.done) == 3


async def test_a_client_that_leaves_while_it_waits_is_let_go(shop, home):
    async with home.holdfast(worker=False) as hf:
        app = shop.app(hf, join=True)
        first = Visit("/slow")
        second = Visit("/slow")
        at_work, waiting = asyncio.create_task(app(*first.call)), asyncio.create_task(app(*second.call))
        await shop.begun.wait()
        second.leave()
        await asyncio.wait([at_work, waiting], return_when=asyncio.FIRST_COMPLETED)
        assert waiting.done()
        assert second.sent == []
        shop.gate.set()
        await at_work
    assert shop.done == ["slow"]


class Visit:
    """One request as a server makes it of one connection, by which the client may leave."""

    def __init__(self, path: str, *, query: bytes = b"", extensions: Any = None, whole: bool = True) -> None:
        self.sent: list[Any] = []
        self._gone = asyncio.Event()
        self._messages = [{"type": "http.request", "body": b"", "more_body": False}] if whole else []
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "method": "POST",
            "path": path,
            "query_string": query,
            "headers": [(b"idempotency-key", b"k-1")],
            "extensions": extensions or {},
        }
        self.call = (self.scope, self.receive, self.send)

    async def receive(self) -> Any:
        if self._messages:
            return self._messages.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self._gone.is_set():
            raise OSError("the client has gone")
        self.sent.append(message)

    def leave(self) -> None:
        self._gone.set()

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


# -- which answers are kept


@pytest.mark.parametrize("status", [200, 302, 400, 404, 409, 422])
async def test_a_final_answer_is_kept(shop, home, status):
    shop.status = status
    async with opened(shop, home) as (client, _):
        for again in (False, True):
            answer = await client.post("/orders", headers=KEY)
            assert (answer.status_code, replayed(answer)) == (status, again)
    assert len(shop.done) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_after_a_failure_the_next_attempt_is_executed(shop, home, status):
    shop.status = status
    async with opened(shop, home) as (client, _):
        assert (await client.post("/orders", headers=KEY)).status_code == status
        shop.status = 201
        answer = await client.post("/orders", headers=KEY)
        assert (answer.json(), replayed(answer)) == ({"order": 2}, False)
        assert replayed(await client.post("/orders", headers=KEY))
    assert len(shop.done) == 2


async def test_what_a_handler_raises_is_raised_and_the_next_attempt_is_executed(shop, home):
    async with opened(shop, home) as (client, _):
        with pytest.raises(RuntimeError, match="boom"):
            await client.post("/fails", headers=KEY)
        assert (await client.post("/fails", headers=KEY)).text == "better now"
        assert replayed(await client.post("/fails", headers=KEY))
    assert len(shop.done) == 2


async def test_a_handler_that_says_nothing_may_be_asked_again(home):
    calls: list[str] = []

    async def silent(scope: Any, receive: Any, send: Any) -> None:
        calls.append("call")

    async with home.holdfast(worker=False) as hf:
        app = Idempotent(silent, holdfast=hf)
        for _ in range(2):
            await app(*Visit("/").call)
    assert calls == ["call", "call"]


async def test_a_streamed_answer_within_the_limit_is_kept(shop, home):
    async with opened(shop, home, response_max=400) as (client, _):
        first = await client.post("/chunks?size=400", headers=KEY)
        second = await client.post("/chunks?size=400", headers=KEY)
    assert first.content == second.content == b"x" * 400
    assert (replayed(second), shop.done) == (True, ["chunks"])


@pytest.mark.parametrize("path", ["/chunks?size=404", "/large?size=401"])
async def test_an_answer_over_the_limit_is_passed_on_but_not_kept_and_never_executed_again(shop, home, path):
    async with opened(shop, home, response_max=400) as (client, hf):
        first = await client.post(path, headers=KEY)
        assert (first.status_code, len(first.content)) == (200, int(path[-3:]))
        assert code(await client.post(path, headers=KEY)) == (409, "reply_not_kept")
        await heard(hf).until(ReplyNotKept, method="POST", path=path.partition("?")[0])
    assert len(shop.done) == 1


async def test_a_failure_over_the_limit_is_passed_on_and_the_next_attempt_is_executed(shop, home):
    async with opened(shop, home, response_max=400) as (client, hf):
        for _ in range(2):
            answer = await client.post("/large?size=401&status=500", headers=KEY)
            assert (answer.status_code, len(answer.content)) == (500, 401)
        assert heard(hf).all(ReplyNotKept) == []  # nobody expects it to be kept
    assert len(shop.done) == 2


async def test_a_file_is_kept_like_any_other_answer(shop, home):
    """Where the server could send a file by itself, it would never be seen here."""
    visit = Visit("/file", extensions={"http.response.pathsend": {}, "tls": {}})
    async with home.holdfast(worker=False) as hf:
        app = shop.app(hf)
        await app(*visit.call)
        again = Visit("/file")
        await app(*again.call)
    assert visit.body == again.body
    assert b"would never be seen here" in again.body
    assert shop.done == ["file"]


async def test_events_are_passed_on_as_they_come(shop, home):
    async with home.holdfast(worker=False) as hf:
        app = shop.app(hf)
        visit = Visit("/events")
        at_work = asyncio.create_task(app(*visit.call))
        await eventually(lambda: visit.body == b"data: 1\n\n")
        again = Visit("/events")
        await app(*again.call)
        assert again.status == 409
        shop.gate.set()
        await at_work
        assert visit.body == b"data: 1\n\ndata: 2\n\n"
    assert shop.done == ["events"]


async def test_a_stream_learns_that_its_client_has_gone(shop, home):
    async with home.holdfast(worker=False) as hf:
        visit = Visit("/events")
        at_work = asyncio.create_task(shop.app(hf)(*visit.call))
        await eventually(lambda: visit.body)
        visit.leave()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await shop.left.wait()
            await at_work


# -- clients that leave, and what comes after the answer


async def test_the_handler_goes_on_when_its_client_leaves(shop, home):
    async with home.holdfast(worker=False) as hf:
        app = shop.app(hf)
        visit = Visit("/slow")
        at_work = asyncio.create_task(app(*visit.call))
        await shop.begun.wait()
        visit.leave()
        shop.gate.set()
        await at_work
        again = Visit("/slow")
        await app(*again.call)
    assert again.body == b"slow 1"
    assert (visit.sent, shop.done) == ([], ["slow"])


async def test_a_streamed_answer_is_produced_to_its_end_when_its_client_leaves(shop, home):
    async with home.holdfast(worker=False) as hf:
        app = shop.app(hf)
        visit, again = Visit("/chunks", query=b"size=400&slowly"), Visit("/chunks", query=b"size=400&slowly")
        at_work = asyncio.create_task(app(*visit.call))
        await shop.begun.wait()
        visit.leave()
        for _ in range(50):  # time enough to learn it, if it were told
            await asyncio.sleep(0)
        shop.gate.set()
        await at_work
        await app(*again.call)
    assert again.body == b"x" * 400
    assert shop.done == ["chunks"]


async def test_the_handler_goes_on_when_the_server_cancels_the_request(shop, home):
    async with home.holdfast(worker=False) as hf, shop.client(hf, join=True) as client:
        first = asyncio.create_task(client.post("/slow", headers=KEY))
        await shop.begun.wait()
        first.cancel()
        await asyncio.wait([first])
        shop.gate.set()
        assert (await client.post("/slow", headers=KEY)).text == "slow 1"
    assert shop.done == ["slow"]


async def test_a_client_that_leaves_before_its_request_is_complete_begins_nothing(shop, home):
    async with home.holdfast(worker=False) as hf:
        visit = Visit("/orders", whole=False)
        visit.leave()
        await shop.app(hf)(*visit.call)
    assert (visit.sent, shop.done) == ([], [])


async def test_a_handler_may_ask_whether_the_client_has_gone(shop, home):
    async with opened(shop, home) as (client, _):
        assert (await client.post("/listening", headers=KEY)).json() == {"gone": False}


async def test_background_tasks_run_after_the_answer_is_kept(shop, home):
    async with home.holdfast(worker=False) as hf:
        app = shop.app(hf)
        first = Visit("/tidy")
        at_work = asyncio.create_task(app(*first.call))
        await shop.begun.wait()
        again = Visit("/tidy")
        await app(*again.call)
        assert first.body == again.body == b"done"
        assert shop.tidied == []
        shop.gate.set()
        await at_work
    assert (shop.tidied, shop.done) == (["tidied"], ["tidy"])


async def test_a_background_task_that_fails_does_not_undo_the_answer(home):
    async def explode() -> None:
        raise RuntimeError("boom")

    async def handler(request: Request) -> Response:
        return PlainTextResponse("done", background=BackgroundTask(explode))

    async with home.holdfast(worker=False) as hf:
        app = Starlette(
            routes=[Route("/", handler, methods=["POST"])], middleware=[Middleware(Idempotent, holdfast=hf)]
        )
        with pytest.raises(RuntimeError, match="boom"):
            await app(*Visit("/").call)
        again = Visit("/")
        await app(*again.call)
    assert again.body == b"done"


async def test_an_application_shuts_down_after_what_is_at_work(shop, home):
    """Also if the server has given up waiting for it."""
    hf = home.holdfast(worker=False)
    finished_before_shutdown: list[bool] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with hf:
            yield
            finished_before_shutdown.append(shop.gate.is_set())

    app = shop.app(hf)
    app.router.lifespan_context = lifespan
    server = LifespanOfServer(app)
    await server.start()
    visit = Visit("/slow")
    request = asyncio.create_task(app(*visit.call))
    await shop.begun.wait()
    request.cancel()
    await asyncio.wait([request])
    stopped = asyncio.create_task(server.stop())
    for _ in range(50):  # time enough to shut down, if it did not wait
        await asyncio.sleep(0)
    shop.gate.set()
    await stopped
    assert finished_before_shutdown == [True]
    assert visit.body == b"slow 1"


class LifespanOfServer:
    """Starts and stops an application as a server does."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._to_app: asyncio.Queue[Any] = asyncio.Queue()
        self._from_app: asyncio.Queue[Any] = asyncio.Queue()

    async def start(self) -> None:
        call = self._app({"type": "lifespan", "asgi": {"version": "3.0"}}, self._to_app.get, self._from_app.put)
        self._task = asyncio.create_task(call)
        self._to_app.put_nowait({"type": "lifespan.startup"})
        assert (await self._from_app.get())["type"] == "lifespan.startup.complete"

    async def stop(self) -> None:
        self._to_app.put_nowait({"type": "lifespan.shutdown"})
        assert (await self._from_app.get())["type"] == "lifespan.shutdown.complete"
        await self._task


# -- processes that die or fall behind, and stores in trouble


async def test_the_request_of_a_dead_process_is_taken_over_after_its_lease(shop, sqlite_home):
    """The first process goes silent in the middle of the handler; a client that joins gets the second execution."""
    async with opened(shop, sqlite_home, through=SeverableStore, lease="300ms") as (one, dead):
        first = asyncio.create_task(one.post("/slow", headers=KEY))
        await shop.begun.wait()
        dead._replica._ports.store.sever()
        async with opened(shop, sqlite_home, join=True, lease="300ms") as (other, hf):
            second = asyncio.create_task(other.post("/slow", headers=KEY))
            await heard(hf).until(RequestTakenOver, method="POST", path="/slow")
            await eventually(lambda: len(shop.done) == 2)
            shop.gate.set()
            assert (await second).text == "slow 2"
        assert code(await first) == (503, "store_unavailable")


async def test_while_the_handler_works_nobody_takes_it_over(shop, sqlite_home):
    async with opened(shop, sqlite_home, lease="1500ms") as (one, hf), opened(shop, sqlite_home) as (other, _):
        first = asyncio.create_task(one.post("/slow", headers=KEY))
        await shop.begun.wait()
        over_ms = hf.runtime.documents.now_ms() + 1500

        async def outlived() -> bool:
            assert code(await other.post("/slow", headers=KEY)) == (409, "in_flight")
            return hf.runtime.documents.now_ms() > over_ms

        await eventually(outlived)
        shop.gate.set()
        assert (await first).text == "slow 1"
    assert shop.done == ["slow"]


async def test_a_late_answer_is_neither_kept_nor_sent(shop, sqlite_home):
    """It comes back after its lease; somebody else has answered. Its client gets the answer of that one."""
    async with opened(shop, sqlite_home, through=SeverableStore, lease="200ms") as (zombie, hf):
        store = hf._replica._ports.store
        first = asyncio.create_task(zombie.post("/slow", headers=KEY))
        await shop.begun.wait()
        store.sever()
        other_shop = Shop()
        other_shop.gate.set()
        other_shop.done.append("earlier")
        async with opened(other_shop, sqlite_home, join=True) as (other, _):
            assert (await other.post("/slow", headers=KEY)).text == "slow 2"
            store.severed = False
            shop.gate.set()
            late = await first
            assert (late.text, replayed(late)) == ("slow 2", True)
            await heard(hf).until(RequestOvertaken, method="POST", path="/slow")
            assert (await other.post("/slow", headers=KEY)).text == "slow 2"


async def test_a_late_answer_that_is_too_large_to_be_kept_is_not_sent_either(shop, sqlite_home):
    path, options = "/chunks?size=400&slowly", {"response_max": 150, "lease": "200ms"}
    async with opened(shop, sqlite_home, through=SeverableStore, **options) as (zombie, hf):
        store = hf._replica._ports.store
        first = asyncio.create_task(zombie.post(path, headers=KEY))
        await shop.begun.wait()
        store.sever()
        other_shop = Shop()
        other_shop.gate.set()
        async with opened(other_shop, sqlite_home, join=True, response_max=150) as (other, _):
            assert len((await other.post(path, headers=KEY)).content) == 400
            store.severed = False
            shop.gate.set()
            assert code(await first) == (409, "reply_not_kept")


async def test_a_renewal_that_comes_too_late_renews_nothing(shop, sqlite_home):
    class Watched(SeverableStore):
        reads = 0

        async def called(self, name, verb, args):
            answer = await super().called(name, verb, args)
            self.reads += name == "document"
            return answer

    async with opened(shop, sqlite_home, through=Watched, lease="200ms") as (zombie, hf):
        store = hf._replica._ports.store
        first = asyncio.create_task(zombie.post("/slow", headers=KEY))
        await shop.begun.wait()
        store.sever()
        other_shop = Shop()
        async with opened(other_shop, sqlite_home, join=True) as (other, _):
            second = asyncio.create_task(other.post("/slow", headers=KEY))
            await other_shop.begun.wait()
            store.severed = False
            await eventually(lambda: store.reads)  # it was refused, and has looked why
            other_shop.gate.set()
            assert not replayed(await second)
            shop.gate.set()
            assert replayed(await first)


async def test_a_late_answer_while_the_other_is_at_it_is_not_sent_either(shop, sqlite_home):
    async with opened(shop, sqlite_home, through=SeverableStore, lease="200ms") as (zombie, hf):
        store = hf._replica._ports.store
        first = asyncio.create_task(zombie.post("/slow", headers=KEY))
        await shop.begun.wait()
        store.sever()
        other_shop = Shop()
        async with opened(other_shop, sqlite_home, join=True) as (other, _):
            second = asyncio.create_task(other.post("/slow", headers=KEY))
            await other_shop.begun.wait()
            store.severed = False
            shop.gate.set()
            assert code(await first) == (409, "in_flight")
            other_shop.gate.set()
            assert not replayed(await second)


async def test_a_store_that_cannot_be_asked_executes_nothing(shop, home):
    async with opened(shop, home, through=SeverableStore) as (client, hf):
        hf._replica._ports.store.sever()
        answer = await client.post("/orders", headers=KEY)
        assert code(answer) == (503, "store_unavailable")
        assert answer.headers["Retry-After"]
        hf._replica._ports.store.severed = False
        assert (await client.post("/orders", headers=KEY)).json() == {"order": 1}


async def test_an_answer_that_cannot_be_kept_for_the_moment_is_kept_later(shop, home):
    async with opened(shop, home, through=SeverableStore, lease="15s") as (client, hf):
        store = hf._replica._ports.store
        first = asyncio.create_task(client.post("/slow", headers=KEY))
        await shop.begun.wait()
        store.sever()
        shop.gate.set()
        await eventually(lambda: followers(hf) == 1)  # it waits for the store
        assert not first.done()
        store.severed = False
        answer = await first
        assert (answer.text, replayed(answer)) == ("slow 1", False)
        assert replayed(await client.post("/slow", headers=KEY))


async def test_an_answer_that_cannot_be_kept_at_all_is_sent_while_nobody_can_have_another(shop, sqlite_home):
    async with opened(shop, sqlite_home, through=SeverableStore, lease="2s") as (client, hf):
        first = asyncio.create_task(client.post("/slow", headers=KEY))
        await shop.begun.wait()
        hf._replica._ports.store.sever()
        shop.gate.set()
        assert (await first).text == "slow 1"
        await heard(hf).until(ReplyNotKept, method="POST", path="/slow")


def _first_write_of(kind: type) -> Callable[[str, tuple[Any, ...]], bool]:
    """Loses the reply to the first write of a document in this state."""
    lost: list[str] = []

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        if name != "write" or lost:
            return False
        writing: Writing = args[0][0]
        if not isinstance(idempotency.state_of(writing.document), kind) or writing.replaces is None:
            return False
        lost.append(name)
        return True

    return loses


async def test_a_lost_reply_about_the_answer_is_asked_for_again(shop, home):
    async with opened(
        shop, home, through=lambda inner: LossyStore(inner, _first_write_of(idempotency.Answered)), lease="3s"
    ) as (client, hf):
        answer = await client.post("/orders", headers=KEY)
        assert (answer.status_code, replayed(answer)) == (201, False)
        assert hf._replica._ports.store.lost == ["write"]
        assert replayed(await client.post("/orders", headers=KEY))


async def test_a_lost_reply_about_a_renewal_does_not_lose_the_request(shop, home):
    async with opened(
        shop, home, through=lambda inner: LossyStore(inner, _first_write_of(idempotency.Working)), lease="300ms"
    ) as (client, hf):
        store = hf._replica._ports.store
        first = asyncio.create_task(client.post("/slow", headers=KEY))
        await eventually(lambda: store.lost)
        shop.gate.set()
        answer = await first
        assert (answer.text, replayed(answer)) == ("slow 1", False)
        assert replayed(await client.post("/slow", headers=KEY))


async def test_what_a_handler_raises_is_not_taken_for_trouble_of_the_middleware(home):
    async def handler(request: Request) -> Response:
        raise StoreUnavailable("the handler's own store")

    async with home.holdfast(worker=False) as hf:
        app = Starlette(
            routes=[Route("/", handler, methods=["POST"])], middleware=[Middleware(Idempotent, holdfast=hf)]
        )
        async with client_of(app) as client:
            with pytest.raises(StoreUnavailable, match="the handler's own store"):
                await client.post("/", headers=KEY)
