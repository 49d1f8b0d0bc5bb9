"""Bad input, for every endpoint that there is: always a problem of the caller's, never a 5xx, never a hang.

Driven by the table of endpoints: a new one is tried without being named here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest

from holdfast import Pack, hook
from holdfast.gateway.app import ENDPOINTS
from holdfast.gateway.endpoints import Endpoint, GatewaySettings, NoParameters
from tests.gateway.conftest import PATIENCE_SECONDS, Gateway, Serve

pack = Pack("p")


@pack.workflow
async def waits(n: int = 0) -> Any:
    return await hook("go", f"token-{n}")


GUARDED = [endpoint for endpoint in ENDPOINTS if endpoint.scope is not None]
WITH_BODY = [endpoint for endpoint in GUARDED if endpoint.body is not None]
DEEP = "[" * 50_000 + "]" * 50_000
JSON = {"Content-Type": "application/json"}

# What may stand where something else belongs. Each is sent in each field of each body.
VALUES = [
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e400",
    b"123456789012345678901234567890",
    b"0.1",
    b'""',
    b'"x"',
    b'"\\u0000"',
    b'"\\ud800"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    json.dumps("x" * 20_000).encode(),
    b"[]",
    b"[null]",
    b"{}",
    b'{"": null}',
    b'{"x": {"at": "2026-01-01T00:00:00Z"}}',
    DEEP.encode(),
    b"nul",
]
TEXTS = ["", "x", "-1", "1e999", "9" * 400, "\0", "\ufffd", "💥" * 50, "{}", "[" * 5000, "null", "%", "2026-01-01"]


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def fields_of(kind: Any) -> list[str]:
    return list(kind.__struct_fields__) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else []


def a_body(endpoint: Endpoint, **replaced: bytes) -> bytes:
    """A body in which all that is required is there, and some of it is `replaced`."""
    required = {
        field.name: b'"x"' if field.type in {str, "str"} else b'"read"' if field.name == "scope" else b"1"
        for field in (msgspec.structs.fields(endpoint.body) if fields_of(endpoint.body) else ())
        if field.required
    }
    return (
        b"{" + b",".join(b'"%b": %b' % (name.encode(), value) for name, value in (required | replaced).items()) + b"}"
    )


def path_of(endpoint: Endpoint, run_id: str, value: str = "nothing") -> str:
    """Where to ask: for a run that there is, and otherwise for `value`."""
    known = {"run_id": run_id, "name": "p.waits"}
    path = re.sub(r"\{(\w+)(:path)?\}", lambda found: known.get(found[1], value), endpoint.path)
    required = [f"{field.name}=x" for field in msgspec.structs.fields(endpoint.query) if field.required]
    return f"{path}?{'&'.join(required)}" if required else path


async def a_run(gateway: Gateway) -> str:
    return (await gateway.hf.start(waits())).run.id


def assert_refused(answer: httpx2.Response, where: str, *statuses: int) -> None:
    assert answer.status_code in statuses, f"{where}: {answer.status_code} {answer.text:.500}"
    assert answer.headers["content-type"] == "application/problem+json", where
    assert answer.json()["detail"], where


@pytest.fixture
async def gateway(serve: Serve) -> Gateway:
    return await serve(pack)


async def test_a_body_over_the_limit_is_refused_whatever_its_length_is_said_to_be(gateway: Gateway) -> None:
    async def in_parts() -> AsyncIterator[bytes]:
        for _ in range(33):
            yield b" " * 32 * 1024

    for endpoint in GUARDED:
        path = path_of(endpoint, "nothing")
        declared = await gateway.http.request(endpoint.method, path, headers=JSON, content=b" " * (1024 * 1024 + 1))
        assert_refused(declared, named(endpoint), 413)
        chunked = await gateway.http.request(endpoint.method, path, headers=JSON, content=in_parts())
        assert_refused(chunked, named(endpoint), 413)


async def test_a_body_that_does_not_arrive_in_time_is_refused(serve: Serve) -> None:
    gateway = await serve(settings=GatewaySettings(require_keys=False, body_seconds_max=0.1))

    async def slow(endpoint: Endpoint) -> None:
        reader, writer = await asyncio.open_connection(*gateway.address)
        head = (
            f"{endpoint.method} {path_of(endpoint, 'nothing')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        )
        writer.write(head.encode() + b"[")
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await reader.readline()
        assert line == b"HTTP/1.1 408 Request Timeout\r\n", f"{named(endpoint)}: {line!r}"
        writer.close()

    await asyncio.gather(*map(slow, GUARDED))


async def test_a_body_where_none_belongs_is_refused(gateway: Gateway) -> None:
    for endpoint in GUARDED:
        if endpoint.body is None:
            answer = await gateway.http.request(endpoint.method, path_of(endpoint, "nothing"), json={})
            assert_refused(answer, named(endpoint), 400)


async def test_a_body_of_another_kind_is_refused(gateway: Gateway) -> None:
    for endpoint in WITH_BODY:
        for media in ("text/plain", "application/xml", "application/x-www-form-urlencoded", ""):
            headers = {"Content-Type": media} if media else {}
            path = path_of(endpoint, "nothing")
            answer = await gateway.http.request(endpoint.method, path, headers=headers, content=b"{}")
            assert_refused(answer, named(endpoint), 415)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{}}",
        b"nul",
        b'{"a": 1,}',
        b"\xff\xfe{}",
        b'"\xff"',
        b'{"\xff": 1}',
        DEEP.encode(),
        DEEP[:50_000].encode(),
        b'{"x":' * 30_000 + b"1" + b"}" * 30_000,
        b'"' + b"x" * 100_000,
    ],
    ids=[
        "nothing",
        "half",
        "too much",
        "no word",
        "a comma",
        "utf-16",
        "latin-1",
        "a name",
        "deep",
        "open",
        "objects",
        "text",
    ],
)
async def test_what_is_not_json_is_refused(gateway: Gateway, body: bytes) -> None:
    for endpoint in WITH_BODY:
        if body or not endpoint.body_optional:
            path = path_of(endpoint, await a_run(gateway))
            answer = await gateway.http.request(endpoint.method, path, headers=JSON, content=body)
            assert_refused(answer, named(endpoint), 400)


async def test_json_of_another_shape_is_refused(gateway: Gateway) -> None:
    shapes = [b"null", b"[]", b'"x"', b"1", b'{"no such field": 1}']
    for endpoint, body in itertools.product(WITH_BODY, shapes):
        if fields_of(endpoint.body):
            path = path_of(endpoint, await a_run(gateway))
            answer = await gateway.http.request(endpoint.method, path, headers=JSON, content=body)
            assert_refused(answer, f"{named(endpoint)} with {body!r}", 400)


async def test_a_field_that_is_missing_is_named(gateway: Gateway) -> None:
    for endpoint in WITH_BODY:
        if fields_of(endpoint.body) and any(field.required for field in msgspec.structs.fields(endpoint.body)):
            path = path_of(endpoint, await a_run(gateway))
            answer = await gateway.http.request(endpoint.method, path, headers=JSON, content=b"{}")
            assert_refused(answer, named(endpoint), 400)
            assert "missing required field" in answer.json()["detail"]


async def test_no_value_in_any_field_is_our_fault(gateway: Gateway) -> None:
    for endpoint in WITH_BODY:
        run_id = await a_run(gateway)
        bodies = [a_body(endpoint, **{name: value}) for name in fields_of(endpoint.body) for value in VALUES] or VALUES
        for body in bodies:
            path = path_of(endpoint, run_id)
            answer = await gateway.http.request(endpoint.method, path, headers=JSON, content=body)
            assert answer.status_code < 500, f"{named(endpoint)} with {body!r:.200}: {answer.text:.500}"


async def test_a_query_parameter_that_nobody_knows_is_refused(gateway: Gateway) -> None:
    for endpoint in ENDPOINTS:
        path = path_of(endpoint, await a_run(gateway))
        answer = await gateway.http.request(endpoint.method, path, params={"nobody": "knows"})
        assert_refused(answer, named(endpoint), 400)


async def test_no_text_in_any_query_parameter_is_our_fault(gateway: Gateway) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.query is NoParameters:
            continue
        for name in fields_of(endpoint.query):
            path = path_of(endpoint, await a_run(gateway))
            for value in TEXTS:
                answer = await gateway.http.request(endpoint.method, path, params={name: value}, headers=JSON)
                assert answer.status_code < 500, f"{named(endpoint)} with {name}={value!r:.60}: {answer.text:.500}"
            twice = await gateway.http.request(endpoint.method, path, params={name: ["1", "2"]}, headers=JSON)
            assert twice.status_code < 500, f"{named(endpoint)} with {name} twice: {twice.text:.500}"


async def test_no_text_in_any_path_is_our_fault(gateway: Gateway) -> None:
    texts = ["%00", "%FF", "%ED%A0%80", "%2e%2e", "%F0%9F%92%A5", "a%2Fb", "x" * 5000, "%0d%0aX: y", "%20", "%25"]
    for endpoint in ENDPOINTS:
        if "{" not in endpoint.path:
            continue
        for text in texts:
            body = a_body(endpoint) if endpoint.body is not None else b""
            path = re.sub(r"\{.*?\}", text, endpoint.path)
            answer = await gateway.http.request(endpoint.method, path, headers=JSON, content=body)
            assert 400 <= answer.status_code < 500, f"{named(endpoint)} with {text:.60}: {answer.text:.500}"


async def test_no_header_that_an_endpoint_knows_is_our_fault(gateway: Gateway) -> None:
    values = [b"", b"x" * 201, b"\xff", b"\xf0\x9f\x92\xa5", b"-1", b"9" * 400, b'"quoted"', b"a, b"]
    for endpoint in ENDPOINTS:
        for name, value in itertools.product(endpoint.headers, values):
            body = a_body(endpoint) if endpoint.body is not None else b""
            path = path_of(endpoint, "nothing")
            headers = {**JSON, name: value}
            answer = await gateway.http.request(endpoint.method, path, headers=headers, content=body)
            assert answer.status_code < 500, f"{named(endpoint)} with {name}: {value!r}: {answer.text:.500}"


async def test_every_path_says_which_methods_it_takes(gateway: Gateway) -> None:
    for path in {endpoint.path for endpoint in ENDPOINTS}:
        taken = {endpoint.method for endpoint in ENDPOINTS if endpoint.path == path}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - taken:
            answer = await gateway.http.request(method, re.sub(r"\{.*?\}", "nothing", path))
            if answer.status_code != 404:  # a longer path of another endpoint may take it
                assert answer.status_code == 405, f"{method} {path}: {answer.status_code}"
                assert answer.headers["allow"]
