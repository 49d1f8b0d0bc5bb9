"""The OpenAPI 3.1 document, made from the endpoints and their types. Nothing in it is written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from holdfast import wire
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse, NoParameters
from holdfast.gateway.requests import JSON
from holdfast.wire.problems import MEDIA_TYPE

PARAMETER = re.compile(r"\{(\w+)(:path)?\}")
REF = "#/components/schemas/{name}"
ANYWHERE = (400, 401, 403, 503)
WITH_A_BODY = (408, 413, 415)


def endpoint(others: Sequence[Endpoint]) -> Endpoint:
    """The endpoint that returns the document, which describes itself and the others."""

    async def described(request: ApiRequest[NoParameters, None]) -> JsonResponse:
        del request
        return JsonResponse(encoded)

    itself = Endpoint(
        method="GET",
        path="/openapi.json",
        handler=described,
        summary="This document",
        scope="read",
        responses={200: dict[str, Any]},
    )
    encoded = msgspec.json.format(msgspec.json.encode(document([*others, itself])), indent=2)
    return itself


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """All of it."""
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


def _operation(endpoint: Endpoint, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.handler.__module__.rpartition('.')[2]}.{endpoint.handler.__name__}",
        "summary": endpoint.summary,
        "tags": [endpoint.handler.__module__.rpartition(".")[2]],
        "parameters": [*_path(endpoint), *_query(endpoint, components), *_headers(endpoint)],
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.scope is not None:
        operation["description"] = f"Needs the scope `{endpoint.scope}`."
        operation["security"] = [{}, {"key": []}]  # {}: a gateway on loopback may be open
    if endpoint.body is not None:
        content = {JSON: {"schema": schemas[endpoint.body]}}
        operation["requestBody"] = {"required": not endpoint.body_optional, "content": content}
    return operation


def _path(endpoint: Endpoint) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, "schema": schema} for name, _ in PARAMETER.findall(endpoint.path)
    ]


def _query(endpoint: Endpoint, components: dict[str, Any]) -> list[dict[str, Any]]:
    shape = components[endpoint.query.__name__]
    return [
        {"name": name, "in": "query", "required": name in shape.get("required", ()), "schema": schema}
        for name, schema in shape["properties"].items()
    ]


def _headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "description": header.what,
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
            responses[str(status)]["content"] = {endpoint.media: content}
    problem = {MEDIA_TYPE: {"schema": schemas[wire.ProblemView]}}
    body = WITH_A_BODY if endpoint.body is not None else (413,)
    for status in sorted({*ANYWHERE, *body, *endpoint.refuses}):
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": problem})
    return responses
