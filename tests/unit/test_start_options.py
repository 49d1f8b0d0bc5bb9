"""A start option is declared in `StartOptions` and carried by every place through which a start goes.

Each option is given at each place with the other options left out, and must be what reaches the backend. A new field
of `StartOptions` fails here until it has a value in `VALUES`, and every place carries it or says in `LEFT_OUT` why not.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec
import pytest
from msgspec.structs import asdict, replace

from holdfast.adapters.payloads import JsonCodec
from holdfast.blocking import Blocking
from holdfast.cli import starts as cli_starts
from holdfast.client import Caller, Run, Signal, Snapshot
from holdfast.config import Config
from holdfast.dashboard import actions
from holdfast.dashboard.forms import Form
from holdfast.engine.api.start_options import StartOptions
from holdfast.gateway import requests, starts as gateway_starts
from holdfast.gateway.endpoints import ApiCaller, ApiRequest, GatewaySettings
from holdfast.gateway.requests import Sent
from holdfast.gateway_client.service import GatewayBackend
from holdfast.kernel.units import milliseconds
from holdfast.pack import Call, Pack
from holdfast.wire import StartBody
from tests.builders import FakeClock, SeededIds, a_run
from tests.unit.engine.api.conftest import Api, checkout as shop_checkout

PACK = Pack("shop")
ROW = a_run("run-7")
AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
FIELDS = StartOptions.__struct_fields__
DEFAULTS = asdict(StartOptions())
TEMPLATE = Path(actions.__file__).parent / "templates" / "workflow.html"
DURATIONS = ("retention", "delay", "timeout")


@PACK.workflow
async def checkout(order: str) -> str:
    return order


# A value of each option that is not its default, as it is given in code.
VALUES: dict[str, Any] = {
    "key": "order:7",
    "retention": timedelta(hours=2),
    "request_id": "request-7",
    "delay": "1500ms",
    "priority": 3,
    "attributes": {"customer": "ada", "cents": 500, "paid_at": AT},
    "replace": ROW,
    "signal": Signal("approve", {"by": "ada"}, "signal-7"),
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "join": False,
    "timeout": "90m",
    "lane": "customer:ada",
    "width": 3,
    "if_free": True,
}
# How the command line and the form have it, where that is not `str(value)` under the name of the option.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "retention": {"retention": "2h"},
    "priority": {"priority": 3},
    "timeout": {"run_timeout": "90m"},
    "width": {"width": 3},
    "if_free": {"if_free": True},
    "attributes": {"attribute": ["customer=ada", "cents=500", f'paid_at={{"at": "{AT.isoformat()}"}}']},
    "replace": {"replace": ROW.id},
    "signal": {"signal": 'approve={"by":"ada"}', "dedupe": "signal-7"},
}
FORM = {"request_id": {"nonce": "request-7"}}
LEFT_OUT: dict[str, dict[str, str]] = {
    "command line": {
        "request_id": "a command that is repeated is another request; its key is what counts",
        "traceparent": "a shell has no span",
        "join": "a person sees from the reply whether the run was there already",
    },
    "form": {
        "retention": "the workflow's own will do",
        "attributes": "the workflow sets them",
        "replace": "the page of the run cancels it",
        "signal": "the page of the run has a form for signals",
        "traceparent": "a form has no span",
        "join": "the page says whether the run was there already",
        "width": "the page of the lane sets it",
        "if_free": "the page of the lane says who is ahead",
    },
}


class Arrived(Exception):
    """Not an error: nothing is started, and these are the options that have reached the backend."""

    def __init__(self, options: StartOptions) -> None:
        super().__init__(options)
        self.options = options


class Backend:
    """Gets as far as the options of a start."""

    namespace = "default"

    def call(self, workflow: str, arguments: object) -> Call[Any]:
        del workflow, arguments
        return checkout("o-1")

    async def start(self, call: Call[Any], options: StartOptions) -> None:
        assert call.arguments == {"order": "o-1"}
        raise Arrived(options)

    async def get(self, run_id: str) -> Any:
        assert run_id == ROW.id
        return ROW

    @property
    def queries(self) -> Backend:
        return self

    async def served(self, runs: object) -> None:
        del runs


VERBS = Caller(Backend())  # pyright: ignore[reportArgumentType] - as much of it as a start needs


class GatewayTransport:
    """Hands what a client sends to the endpoint of a gateway."""

    async def post(
        self, path: str, body: object, *, query: Mapping[str, str], headers: Mapping[str, str], again: bool
    ) -> None:
        assert path == "/v1/workflows/shop.checkout/runs"
        assert again
        scope = {
            "path": path,
            "query_string": "&".join(f"{name}={value}" for name, value in query.items()).encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        [endpoint] = gateway_starts.ENDPOINTS
        sent = Sent(scope, receive=None)  # pyright: ignore[reportArgumentType] - the body has been read
        request = ApiRequest(
            SimpleNamespace(settings=GatewaySettings()),  # pyright: ignore[reportArgumentType]
            ApiCaller("ada", "write", VERBS),
            {"name": "shop.checkout"},
            requests.query_of(sent, endpoint.query),
            msgspec.json.decode(msgspec.json.encode(body), type=endpoint.body),
            sent,
        )
        await endpoint.handler(request)


class Request(Exception):
    """Not an error: nothing is sent, and this is what would have been."""

    def __init__(self, body: bytes, query: Mapping[str, str], headers: Mapping[str, str]) -> None:
        super().__init__(body)
        self.body = body
        self.query = query
        self.headers = headers


class NoTransport:
    """Gets as far as the request."""

    async def post(self, path: str, body: object, *, query: Any, headers: Any, again: bool) -> None:
        del path, again
        raise Request(msgspec.json.encode(body), query, headers)


class CommandSession:
    """A session of the command line whose verbs are these."""

    config = Config()

    @asynccontextmanager
    async def caller(self, *, creates: bool = False) -> AsyncGenerator[Caller]:
        assert creates
        yield VERBS


def _in_code(name: str) -> Any:
    value = VALUES[name]
    return Run(value, VERBS._service) if value is ROW else value


def _client(transport: Any) -> Caller:
    return Caller(GatewayBackend(transport, workflows={}, codec=JsonCodec(), ids=SeededIds(1), clock=FakeClock()))


async def _sent(options: dict[str, Any]) -> Request:
    with pytest.raises(Request) as request:
        await _client(NoTransport()).start(checkout("o-1"), **options)
    return request.value


async def _by_a_caller(name: str) -> None:
    await VERBS.start(checkout("o-1"), **{name: _in_code(name)})


async def _by_blocking(name: str) -> None:
    @asynccontextmanager
    async def opens() -> AsyncGenerator[Caller]:
        yield VERBS

    def start() -> None:
        with Blocking(opens) as hf:
            given: Any = hf.get(ROW.id) if name == "replace" else VALUES[name]
            hf.start(checkout("o-1"), **{name: given})

    await asyncio.to_thread(start)


async def _over_http(name: str) -> None:
    await _client(GatewayTransport()).start(checkout("o-1"), **{name: _in_code(name)})


async def _by_a_command(name: str) -> None:
    session: Any = CommandSession()
    given = ARGUMENTS.get(name) or {name: str(VALUES[name])}
    await cli_starts.start(session, "shop.checkout", ["order=o-1"], **given)


async def _by_a_form(name: str) -> None:
    fields = FORM.get(name) or {name: str(VALUES[name])}
    visit: Any = SimpleNamespace(caller=VERBS, form=Form(fields), part=lambda _: "shop.checkout")
    await actions.start(visit)


PLACES = {
    "caller": _by_a_caller,
    "blocking": _by_blocking,
    "http": _over_http,
    "command line": _by_a_command,
    "form": _by_a_form,
}
CARRIED = [(place, name) for place in PLACES for name in FIELDS if name not in LEFT_OUT.get(place, ())]
NOT_CARRIED = [(place, name) for place, names in LEFT_OUT.items() for name in names]


def _meaning(options: StartOptions) -> dict[str, Any]:
    """The options, with durations in one unit and without the empty values of those that were not given."""
    given = asdict(options)
    for name in DURATIONS:
        given[name] = given[name] and milliseconds(given[name])
    given["signal"] = given["signal"] and tuple(given["signal"])
    return {name: value for name, value in given.items() if value != DEFAULTS[name] and value != {}}


async def _arrived(place: str, name: str) -> dict[str, Any]:
    with pytest.raises(Arrived) as arrived:
        await PLACES[place](name)
    return _meaning(arrived.value.options)


def test_each_option_has_a_value_that_is_not_its_default():
    assert VALUES.keys() == set(FIELDS)
    assert [name for name in FIELDS if VALUES[name] == DEFAULTS[name]] == []


def test_the_body_has_the_input_and_options_only():
    """A field of it that is no option would be taken, and dropped."""
    assert set(StartBody.__struct_fields__) - set(FIELDS) == {"input"}


@pytest.mark.parametrize(("place", "name"), CARRIED)
async def test_an_option_that_is_given_at_a_place_reaches_the_backend_as_it_is(place: str, name: str):
    arrived = await _arrived(place, name)
    if place == "http":
        # A request over HTTP has an id in any case, and it counts for the caller that sends it.
        sent = arrived.pop("request_id")
        assert sent.startswith("ada:")
        if name == "request_id":
            arrived[name] = sent.removeprefix("ada:")
    assert arrived == _meaning(StartOptions(**{name: VALUES[name]}))


@pytest.mark.parametrize(("place", "name"), NOT_CARRIED)
async def test_an_option_that_a_place_leaves_out_cannot_be_given_there(place: str, name: str):
    """Otherwise the list of what is left out would say what is no longer so."""
    assert name in FIELDS
    if place == "command line":
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            await _by_a_command(name)
    else:
        assert await _arrived(place, name) == {}


@pytest.mark.parametrize("name", [name for place, name in CARRIED if place == "form"])
def test_the_page_has_a_field_for_each_option_of_the_form(name: str):
    [field] = FORM.get(name, {name: ""})
    assert f'name="{field}"' in TEMPLATE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FIELDS)
def test_an_option_makes_another_wish_of_the_service(name: str):
    """What the service does not read would be taken everywhere, and do nothing."""
    service = Api().service
    value = a_run("run-7", key="k", workflow="shop.checkout") if name == "replace" else VALUES[name]
    plain = {"key": "k", "lane": "customer:eve"} if name in {"width", "if_free"} else {"key": "k"}
    given = plain | {name: value}
    wishes = [
        service._wanted(service._asked(shop_checkout("o-1"), each), each, is_plain=each.are_plain)
        for each in (StartOptions(**plain), StartOptions(**given))
    ]
    same_ids = [replace(each, run_id="", request_id=each.request_id.removeprefix(each.run_id)) for each in wishes]
    assert same_ids[0] != same_ids[1]


async def test_what_a_client_sends_with_a_start_stays_byte_for_byte():
    sent = await _sent({name: _in_code(name) for name in FIELDS})
    assert sent.body == (
        b'{"input":{"order":"o-1"},"key":"order:7",'
        b'"attributes":{"customer":"ada","cents":500,"paid_at":{"at":"2026-01-02T03:04:05.678000Z"}},'
        b'"retention":7200.0,"delay":1.5,"priority":3,"replace":"run-7",'
        b'"signal":{"hook":"approve","payload":{"by":"ada"},"dedupe":"signal-7"},"request_id":"request-7",'
        b'"timeout":5400.0,"lane":"customer:ada","width":3,"if_free":true}'
    )
    assert sent.query == {"join": "false"}
    assert sent.headers == {"traceparent": VALUES["traceparent"]}


async def test_what_a_client_sends_with_a_start_without_options_stays_byte_for_byte():
    sent = await _sent({})
    request_id = SeededIds(1).nonce()
    assert sent.body == (
        b'{"input":{"order":"o-1"},"key":null,"attributes":null,"retention":null,"delay":null,"priority":0,'
        b'"replace":null,"signal":null,"request_id":"%b"}' % request_id.encode()
    )
    assert (sent.query, sent.headers) == ({}, {})


def test_the_keywords_that_users_see_have_the_types_and_defaults_of_the_options():
    assert {name: each.default for name, each in _keywords(Caller.start).items()} == DEFAULTS
    seen, declared = get_type_hints(Caller.start), get_type_hints(StartOptions)
    assert {name: seen[name] for name in FIELDS} == declared | {"replace": Snapshot | None}  # a caller has no rows


def test_without_async_users_see_the_same_keywords():
    assert _keywords(Blocking.start) == _keywords(Caller.start)
    assert inspect.signature(Blocking.start).return_annotation == "BlockingStarted[R]"


def _keywords(verb: Any) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(verb).parameters.items()
    return {name: each for name, each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
