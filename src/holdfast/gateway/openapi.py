"""The OpenAPI 3.1 document, made from the endpoints and their types, with the examples of `examples.py`.

An operation is described by the docstring of its handler, a tag by the first line of the module.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from holdfast import wire
from holdfast.gateway import examples, reference
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse, NoParameters
from holdfast.gateway.limiting import HEADERS
from holdfast.gateway.requests import JSON, Sent
from holdfast.statuses import title_of
from holdfast.wire.problems import MEDIA_TYPE

PARAMETER = re.compile(r"\{(\w+)(:path)?\}")
REF = "#/components/schemas/{name}"
ANYWHERE = (400, 401, 403, 429, 503)
WITH_A_BODY = (408, 413, 415)


ORIGIN = "http://127.0.0.1:8787"  # where `holdfast dev` listens, unless it is told otherwise
_HOST = re.compile(r"[A-Za-z0-9._\-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


def endpoints(others: Sequence[Endpoint]) -> tuple[Endpoint, Endpoint]:
    """The endpoints that return the document: as JSON, and as a page. It describes both of them and the others."""

    async def described(request: ApiRequest[NoParameters, None]) -> JsonResponse:
        """Clients can be generated from it. Its server is the address at which it was asked for."""
        return JsonResponse(encoded(origin_of(request.sent)))

    @lru_cache(maxsize=8)  # a process is reached by few names
    def encoded(origin: str) -> bytes:
        return msgspec.json.format(msgspec.json.encode(document(every, origin=origin)), indent=2)

    itself = Endpoint(
        method="GET",
        path="/openapi.json",
        handler=described,
        summary="This document",
        scope="read",
        responses={200: dict[str, Any]},
    )
    page = reference.endpoint(lambda sent: document(every, origin=origin_of(sent)), origin_of)
    every = [*others, itself, page]
    return itself, page


def origin_of(sent: Sent) -> str:
    """The address at which a request has come, as its sender knows it."""
    host = sent.header("host") or ""
    if not _HOST.fullmatch(host):
        return ORIGIN
    is_secure = "https" in {sent.scope.get("scheme"), sent.header("x-forwarded-proto")}
    return f"{'https' if is_secure else 'http'}://{host}"


def document(endpoints: Sequence[Endpoint], *, origin: str = ORIGIN) -> dict[str, Any]:
    """All of it, for those who reach the gateway at this address."""
    types = list(dict.fromkeys(_types(endpoints)))
    shapes, by_type_name = msgspec.json.schema_components(types, ref_template=REF)
    schemas = dict(zip(types, map(_published, shapes), strict=True))
    components = {wire.published_name(name): _published(schema) for name, schema in by_type_name.items()}
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        path = PARAMETER.sub(r"{\1}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, schemas, components)
    for query in {each.query for each in endpoints}:
        components.pop(query.__name__, None)  # its fields stand with the parameters
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version("holdfast"),
            "summary": "Start durable work by key, watch it, signal it, cancel it.",
        },
        "servers": [{"url": origin, "description": "The gateway that this document comes from."}],
        "tags": [{"name": name, "description": what} for name, what in _tags(endpoints).items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
    }


def _published(node: Any) -> Any:
    """A schema with the published names of its types, in references and titles."""
    match node:
        case dict():
            return {key: _published_text(key, value) for key, value in node.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON
        case list():
            return [_published(each) for each in node]  # pyright: ignore[reportUnknownVariableType] - JSON
        case _:
            return node


def _published_text(key: str, value: Any) -> Any:
    return wire.published_name(value) if key in {"$ref", "title"} and isinstance(value, str) else _published(value)


def _types(endpoints: Iterable[Endpoint]) -> Iterable[Any]:
    yield wire.ProblemView
    for each in endpoints:
        yield each.query
        yield from (kind for kind in (each.body, *each.responses.values()) if kind is not None)


def operation_id(endpoint: Endpoint) -> str:
    """The name of an operation. Clients are generated from these names, so they never change."""
    return f"{_tag(endpoint)}.{endpoint.handler.__name__}"


def _tag(endpoint: Endpoint) -> str:
    return endpoint.handler.__module__.rpartition(".")[2]


def _tags(endpoints: Iterable[Endpoint]) -> dict[str, str]:
    modules = {_tag(each): sys.modules[each.handler.__module__] for each in endpoints}
    return {tag: (module.__doc__ or "").partition("\n")[0] for tag, module in modules.items()}


def _operation(endpoint: Endpoint, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    scope = "Needs no key." if endpoint.scope is None else f"Needs the scope `{endpoint.scope}`."
    operation: dict[str, Any] = {
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "description": " ".join([*(inspect.getdoc(endpoint.handler) or "").split(), scope]),
        "tags": [_tag(endpoint)],
        "parameters": [*_path(endpoint), *_query(endpoint, components), *_headers(endpoint)],
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.scope is not None:
        operation["security"] = [{}, {"key": []}]  # {}: a gateway on loopback may be open
    if endpoint.body is not None:
        example = examples.OF_BODY.get(operation_id(endpoint), examples.OF_TYPE.get(endpoint.body))
        content = {JSON: {"schema": schemas[endpoint.body], "example": example}}
        operation["requestBody"] = {"required": not endpoint.body_optional, "content": content}
    return operation


def _path(endpoint: Endpoint) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, **_described(name), "schema": schema}
        for name, _ in PARAMETER.findall(endpoint.path)
    ]


def _described(name: str) -> dict[str, str]:
    what, example = examples.PARAMETERS[name]
    return {"description": what, "example": example}


def _query(endpoint: Endpoint, components: dict[str, Any]) -> list[dict[str, Any]]:
    shape = components[endpoint.query.__name__]
    return [
        {
            "name": name,
            "in": "query",
            "required": name in shape.get("required", ()),
            **_said(schema),
            "schema": schema,
        }
        for name, schema in shape["properties"].items()
    ]


def _said(schema: dict[str, Any]) -> dict[str, Any]:
    """What the schema of a parameter, which may be left out, says about it: for tools that look at the parameter."""
    said: dict[str, Any] = {}
    for each in (schema, *schema.get("anyOf", ())):
        if "description" in each:
            said.setdefault("description", each["description"])
        if "examples" in each:
            said.setdefault("example", each["examples"][0])
    return said


def _headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "description": header.what,
            "example": header.example,
            "schema": {"type": "string", "minLength": 1, "maxLength": header.length_max, "pattern": header.pattern},
        }
        for name, header in endpoint.headers.items()
    ]


def _responses(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in endpoint.responses.items():
        responses[str(status)] = {"description": HTTPStatus(status).phrase}
        if headers := endpoint.response_headers.get(status):
            responses[str(status)]["headers"] = {
                name: {"description": what, "schema": {"type": "string"}} for name, what in headers.items()
            }
        if kind is not None:
            # What is no JSON has no schema: tools would hold each part of a stream against it.
            content = {"schema": schemas[kind]} if endpoint.media == JSON else {}
            content["example"] = examples.OF_RESPONSE.get(operation_id(endpoint), examples.OF_TYPE.get(kind))
            responses[str(status)]["content"] = {endpoint.media: content}
    body = WITH_A_BODY if endpoint.body is not None else (413,)
    for status in sorted({*ANYWHERE, *body, *endpoint.refuses}):
        content = {"schema": schemas[wire.ProblemView], "example": _problem(status, endpoint)}
        response: dict[str, Any] = {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: content}}
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            response["headers"] = {name: {"description": what, "schema": {"type": "string"}} for name, what in HEADERS}
        responses.setdefault(str(status), response)
    return responses


def _problem(status: int, endpoint: Endpoint) -> dict[str, Any]:
    kind, detail = examples.OF_PROBLEM[status]
    return {
        "type": f"urn:holdfast:problem:{kind.code}",
        "title": title_of(kind),
        "status": status,
        "detail": detail,
        "code": kind.code,
        "hint": kind.hint,
        "instance": PARAMETER.sub(lambda each: examples.PARAMETERS[each[1]][1], endpoint.path),
    }
