from __future__ import annotations

import logging
import re

import httpx2
import pytest

from holdfast import Pack
from holdfast.errors import InvalidConfig
from holdfast.gateway.app import ENDPOINTS
from holdfast.gateway.auth import ApiKeyAuth
from holdfast.gateway.endpoints import Endpoint
from holdfast.gateway.server import HttpServer
from holdfast.gateway.wait_limit import WaitLimit
from holdfast.kernel.apikeys import SCOPES, allows
from tests.gateway.conftest import Gateway, Serve
from tests.integration.conftest import Home, eventually, heard

GUARDED = [endpoint for endpoint in ENDPOINTS if endpoint.scope is not None]
UNKNOWN = "hf_0123456789abcdef_" + "x" * 43


async def asked(http: httpx2.AsyncClient, endpoint: Endpoint, **headers: str | bytes) -> httpx2.Response:
    """A request of this endpoint for something that does not exist."""
    return await http.request(endpoint.method, re.sub(r"\{.*?\}", "nothing", endpoint.path), headers=headers)


def problem(answer: httpx2.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["type"] == f"urn:holdfast:problem:{said['code']}"
    assert all(said[name] for name in ("title", "detail", "hint", "instance")), said
    return answer.status_code, said["code"]


@pytest.fixture
async def gateway(serve: Serve) -> Gateway:
    return await serve(Pack("p"), keys=True)


async def test_nobody_gets_past_any_endpoint_without_a_key_that_is_known(gateway: Gateway) -> None:
    token, key = await gateway.hf.api_keys.create("revoked", namespace="default", scope="admin")
    await gateway.hf.api_keys.revoke("default", key.id)
    shown = {
        "nothing": {},
        "another scheme": {"Authorization": "Basic aGY6aGY="},
        "no token": {"Authorization": "Bearer"},
        "no token at all": {"Authorization": ""},
        "no such key": {"Authorization": f"Bearer {UNKNOWN}"},
        "a wrong secret": {"Authorization": f"Bearer {token[:-1]}{'a' if token[-1] != 'a' else 'b'}"},
        "a revoked key": {"Authorization": f"Bearer {token}"},
        "a token beyond ASCII": {"Authorization": b"Bearer hf_\xff"},
    }
    for endpoint in GUARDED:
        for what, headers in shown.items():
            answer = await asked(gateway.http, endpoint, **headers)
            where = f"{endpoint.method} {endpoint.path} with {what}"
            assert problem(answer) == (401, "not_authenticated"), where
            assert answer.headers["www-authenticate"] == "Bearer", where


async def test_a_key_may_do_what_its_scope_contains_and_no_more(gateway: Gateway) -> None:
    clients = {scope: await gateway.client(scope=scope) for scope in SCOPES}
    for endpoint in GUARDED:
        assert endpoint.scope is not None
        for scope, http in clients.items():
            answer = await asked(http, endpoint)
            where = f"{endpoint.method} {endpoint.path} with scope {scope}"
            if allows(scope, endpoint.scope):
                assert answer.status_code not in {401, 403}, where
                assert answer.status_code < 500, where
            else:
                assert problem(answer) == (403, "not_permitted"), where


def test_whatever_changes_something_needs_more_than_read() -> None:
    assert [endpoint.path for endpoint in GUARDED if endpoint.method != "GET" and endpoint.scope == "read"] == []
    assert {endpoint.scope for endpoint in ENDPOINTS if "api-keys" in endpoint.path} == {"admin"}


async def test_the_scheme_is_not_case_sensitive(gateway: Gateway) -> None:
    token, _ = await gateway.hf.api_keys.create("ci", namespace="default", scope="read")
    answer = await gateway.http.get("/openapi.json", headers={"Authorization": f"bearer  {token}"})
    assert answer.status_code == 200


async def test_keys_are_made_listed_used_and_revoked_over_http(serve: Serve, home: Home) -> None:
    gateway = await serve(Pack("p"), on=home, keys=True)
    admin = await gateway.client(scope="admin")

    made = await admin.post("/v1/api-keys", json={"name": "ci", "scope": "write", "expires_in": "1d"})
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    token, key = made.json()["token"], made.json()["key"]
    assert (key["name"], key["scope"], key["namespace"], key["tail"]) == ("ci", "write", "default", token[-4:])
    assert key["expires_at"] > key["created_at"]
    assert key["revoked_at"] is None

    writer = await gateway.client(token=token)
    assert (await writer.get("/openapi.json")).status_code == 200
    assert problem(await writer.get("/v1/api-keys")) == (403, "not_permitted")

    listed = await admin.get("/v1/api-keys")
    assert key in listed.json()["keys"]
    assert token not in listed.text

    revoked = await admin.delete(f"/v1/api-keys/{key['id']}")
    assert revoked.status_code == 200
    assert revoked.json()["revoked_at"]
    assert problem(await writer.get("/openapi.json")) == (401, "not_authenticated")
    assert (await admin.delete(f"/v1/api-keys/{key['id']}")).json() == revoked.json()
    assert problem(await admin.delete("/v1/api-keys/0123456789abcdef")) == (404, "unknown_api_key")


@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "scope": "read"},
        {"name": "x" * 101, "scope": "read"},
        {"name": "x", "scope": "root"},
        {"name": "x"},
        {"scope": "read"},
        {"name": "x", "scope": "read", "namespace": "theirs"},
        {"name": "x", "scope": "read", "expires_in": "soon"},
        {"name": "x", "scope": "read", "expires_in": -1},
        {"name": "x", "scope": "read", "expires_in": "2000000d"},
    ],
)
async def test_a_key_that_cannot_be_is_refused(serve: Serve, body: object) -> None:
    gateway = await serve()
    answer = await gateway.http.post("/v1/api-keys", json=body)
    assert problem(answer)[0] == 400


async def test_no_secret_is_ever_said(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token, key = await gateway.hf.api_keys.create("ci", namespace="default", scope="read")
    secret = token.split("_", 2)[2]
    wrong = f"hf_{key.id}_{'w' * 43}"
    http, stranger = await gateway.client(token=token), await gateway.client(token=wrong)
    said = []
    for endpoint in GUARDED:
        for client in (http, stranger):
            answer = await asked(client, endpoint)
            said += [answer.text, str(answer.headers)]
    said += [record.getMessage() + str(record.__dict__) for record in caplog.records if record.name != "httpcore"]
    said += map(repr, heard(gateway.hf).events)
    door = gateway.context.auth
    assert isinstance(door, ApiKeyAuth)
    said += [repr(gateway.context), repr(vars(door)), repr(await door.caller(f"Bearer {token}")), repr(key)]
    for text in said:
        assert secret not in text
        assert "w" * 43 not in text


async def test_one_caller_is_kept_for_each_namespace(gateway: Gateway) -> None:
    door = gateway.context.auth
    headers = []
    for namespace in ("a", "a", "b"):
        token, _ = await gateway.hf.api_keys.create("ci", namespace=namespace, scope="read")
        headers.append(f"Bearer {token}")
    first, second, other = [await door.caller(header) for header in headers]
    assert first.verbs is second.verbs
    assert (first.verbs.namespace, other.verbs.namespace) == ("a", "b")
    assert first.id != second.id


# -- an open gateway


async def test_an_open_gateway_takes_everybody_for_the_admin_of_its_namespace(serve: Serve) -> None:
    gateway = await serve(namespace="mine")
    caller = await gateway.context.auth.caller(None)
    assert (caller.id, caller.scope, caller.verbs.namespace) == ("local", "admin", "mine")
    for endpoint in GUARDED:
        assert (await asked(gateway.http, endpoint)).status_code not in {401, 403}, endpoint.path


async def test_an_open_gateway_refuses_a_key_that_it_does_not_know_and_says_that_none_is_needed(serve: Serve) -> None:
    gateway = await serve(namespace="mine")
    token, key = await gateway.hf.api_keys.create("old", namespace="mine", scope="read")
    known = await gateway.client(token=token)
    assert (await known.get("/v1/runs")).status_code == 200
    assert (await known.get("/v1/api-keys")).status_code == 200  # as all callers of an open gateway
    for wrong in ("hf_wrong", "secret", f"{token[:-1]}{'a' if token[-1] != 'a' else 'b'}"):
        answer = await (await gateway.client(token=wrong)).get("/v1/runs")
        assert problem(answer) == (401, "not_authenticated")
        assert "open" in answer.json()["hint"]
        assert wrong not in answer.text
    await gateway.hf.api_keys.revoke("mine", key.id)
    assert problem(await known.get("/v1/runs")) == (401, "not_authenticated")
    assert (await (await gateway.client(token="hf_wrong")).get("/livez")).status_code == 200


async def test_an_open_gateway_leaves_other_kinds_of_authorization_to_whoever_set_them(serve: Serve) -> None:
    gateway = await serve()
    answer = await gateway.http.get("/v1/runs", headers={"Authorization": "Basic dXNlcjpwYXNz"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "evil.example:8787"},
        {"Host": "192.168.1.7"},
        {"Host": ""},
        {"Host": "[::1"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
    ],
    ids=lambda headers: " ".join(*headers.items()),
)
async def test_a_web_page_from_elsewhere_cannot_use_an_open_gateway(serve: Serve, headers: dict[str, str]) -> None:
    gateway = await serve()
    answer = await gateway.http.get("/openapi.json", headers=headers)
    assert problem(answer) == (403, "not_permitted")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost:8787"},
        {"Host": "127.0.0.1"},
        {"Host": "[::1]:8787"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://127.0.0.1:8787"},
    ],
    ids=lambda headers: " ".join(*headers.items()),
)
async def test_a_page_of_this_machine_can(serve: Serve, headers: dict[str, str]) -> None:
    gateway = await serve()
    assert (await gateway.http.get("/openapi.json", headers=headers)).status_code == 200


async def test_where_keys_are_required_any_name_will_do(gateway: Gateway) -> None:
    reader = await gateway.client(scope="read")
    headers = {"Host": "holdfast.example", "Origin": "https://app.example"}
    assert (await reader.get("/openapi.json", headers=headers)).status_code == 200


# -- the address


async def test_a_port_in_use_is_said_to_be(serve: Serve) -> None:
    gateway = await serve()
    host, port = gateway.address
    with pytest.raises(InvalidConfig, match=f"port {port} of {host} is in use"):
        await HttpServer(WaitLimit(1)).start(gateway.context, host, port)  # pyright: ignore[reportArgumentType] - it gets no request


@pytest.mark.parametrize("host", ["203.0.113.9", "no.such.host.invalid", "2001:db8::9"])
async def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(InvalidConfig, match="cannot listen on"):
        await HttpServer(WaitLimit(1)).start(lambda *_: None, host, 0)  # pyright: ignore[reportArgumentType] - it gets no request


async def test_an_ipv6_address_is_shown_as_a_url_has_it() -> None:
    server = HttpServer(WaitLimit(1))
    url = await server.start(lambda *_: None, "::1", 0)  # pyright: ignore[reportArgumentType] - it gets no request
    assert re.fullmatch(r"http://\[::1\]:\d+", url)
    await server.stop()
    await server.stop()


async def test_a_key_that_is_revoked_at_one_gateway_is_refused_by_every_other_at_once(serve: Serve, home: Home) -> None:
    """S7: by a notice. What a gateway remembers would be good for an hour here."""
    home.paced(api_key_ms=3_600_000)
    one, other = await serve(on=home, keys=True, worker=False), await serve(on=home, keys=True, worker=False)
    token, key = await one.hf.api_keys.create("ci", namespace="default", scope="read")
    caller = await other.client(token=token)
    assert (await caller.get("/v1/runs")).status_code == 200
    admin = await one.client(scope="admin")
    assert (await admin.delete(f"/v1/api-keys/{key.id}")).status_code == 200

    async def refused() -> bool:
        return (await caller.get("/v1/runs")).status_code == 401

    await eventually(refused)
