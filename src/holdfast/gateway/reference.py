"""The reference of the HTTP API as a page: made from the OpenAPI document, without scripts and without other servers.

It says nothing about an installation that its OpenAPI document would not say about any other, so it needs no key: a
browser could not show one.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from holdfast.gateway.endpoints import ApiRequest, Endpoint, NoParameters
from holdfast.gateway.requests import Sent
from holdfast.gateway.schema_words import Word, words_of

if TYPE_CHECKING:  # loaded with the first page
    from jinja2 import Template
    from markupsafe import Markup

MEDIA_TYPE = "text/html"
PAGES_MAX = 8  # a process is reached by few names
_TEMPLATES = Path(__file__).with_name("templates")
_CODE = re.compile(r"`([^`]+)`")
_ANCHOR = re.compile(r"[^a-z0-9]+")

Described = Callable[[Sent], dict[str, Any]]


class ShownField(NamedTuple):
    """One row of a table: a parameter, a header or a field."""

    name: str
    where: str
    words: tuple[Word, ...]
    is_required: bool
    what: str
    example: str = ""
    default: str = ""


class ShownResponse(NamedTuple):
    """A response of an operation."""

    status: str
    what: str
    media: str
    words: tuple[Word, ...]
    headers: tuple[tuple[str, str], ...]
    is_problem: bool


class ShownOperation(NamedTuple):
    """One method of one path."""

    anchor: str
    method: str
    path: str
    summary: str
    what: str
    parameters: tuple[ShownField, ...]
    body: tuple[Word, ...]
    body_required: bool
    responses: tuple[ShownResponse, ...]
    request: str
    response: str


class ShownTag(NamedTuple):
    """Operations that belong together."""

    name: str
    what: str
    operations: tuple[ShownOperation, ...]


class ShownShape(NamedTuple):
    """A type of the JSON that is sent and returned."""

    name: str
    what: str
    fields: tuple[ShownField, ...]


def endpoint(described: Described, origin_of: Callable[[Sent], str]) -> Endpoint:
    """The endpoint of the page about what `described` returns."""
    pages: dict[str, bytes] = {}

    async def page(request: ApiRequest[NoParameters, None]) -> Response:
        """The same as `/openapi.json`, for people: it needs no script, and loads nothing from elsewhere."""
        origin = origin_of(request.sent)
        if origin not in pages:
            if len(pages) >= PAGES_MAX:
                pages.clear()
            pages[origin] = render(described(request.sent))
        return Response(pages[origin], media_type=MEDIA_TYPE, headers=_headers())

    return Endpoint(
        method="GET",
        path="/docs",
        handler=page,
        summary="This reference, as a page",
        scope=None,
        responses={200: str},
        media=MEDIA_TYPE,
    )


def render(document: dict[str, Any]) -> bytes:
    """The page about this document."""
    html = _template().render(
        title=document["info"]["title"],
        version=document["info"]["version"],
        summary=document["info"]["summary"],
        origin=document["servers"][0]["url"],
        style=_style(),
        tags=tuple(_tags(document)),
        shapes=tuple(_shapes(document)),
    )
    return html.encode()


# -- what is shown


def _tags(document: dict[str, Any]) -> Iterator[ShownTag]:
    for tag in document["tags"]:
        operations = tuple(
            _operation(document, method, path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if tag["name"] in operation["tags"]
        )
        yield ShownTag(tag["name"], tag["description"], operations)


def _operation(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> ShownOperation:
    body = operation.get("requestBody", {})
    return ShownOperation(
        anchor=_ANCHOR.sub("-", operation["operationId"].lower()),
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        what=operation["description"],
        parameters=tuple(map(_parameter, operation["parameters"])),
        body=words_of(next(iter(body["content"].values()))["schema"]) if body else (),
        body_required=body.get("required", False),
        responses=tuple(_response(status, each) for status, each in operation["responses"].items()),
        request=_curl(document["servers"][0]["url"], method, path, operation),
        response=_example(operation["responses"]),
    )


def _parameter(parameter: dict[str, Any]) -> ShownField:
    return ShownField(
        name=parameter["name"],
        where=parameter["in"],
        words=_without_null(parameter["schema"]),
        is_required=parameter.get("required", False),
        what=parameter["description"],
        example=_text(parameter["example"]),
        default=_default(parameter["schema"]),
    )


def _without_null(schema: dict[str, Any]) -> tuple[Word, ...]:
    """A parameter that may be left out is never sent as null."""
    members = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return words_of({"anyOf": members} if members else schema)


def _response(status: str, response: dict[str, Any]) -> ShownResponse:
    [(media, content)] = response.get("content", {"": {}}).items()
    return ShownResponse(
        status=status,
        what=response["description"],
        media=media,
        words=words_of(content["schema"]) if "schema" in content else (),
        headers=tuple((name, each["description"]) for name, each in response.get("headers", {}).items()),
        is_problem=media == "application/problem+json",
    )


def _shapes(document: dict[str, Any]) -> Iterator[ShownShape]:
    for name, schema in sorted(document["components"]["schemas"].items()):
        required = schema.get("required", ())
        fields = tuple(
            ShownField(
                name=field,
                where="",
                words=words_of(kind),
                is_required=field in required,
                what=kind.get("description", ""),
                default=_default(kind),
            )
            for field, kind in schema.get("properties", {}).items()
        )
        yield ShownShape(name, schema.get("description", ""), fields)


def _curl(origin: str, method: str, path: str, operation: dict[str, Any]) -> str:
    """The operation as a command, with the examples of what it needs."""
    needed = [each for each in operation["parameters"] if each.get("required")]
    for each in needed:
        path = path.replace(f"{{{each['name']}}}", quote(each["example"]))
    query = "&".join(f"{each['name']}={quote(each['example'], safe='')}" for each in needed if each["in"] == "query")
    parts = ["curl -sS" if method == "get" else f"curl -sS -X {method.upper()}"]
    if operation.get("security"):
        parts.append('-H "Authorization: Bearer $HOLDFAST_API_KEY"')
    if "requestBody" in operation:
        body = msgspec.json.encode(operation["requestBody"]["content"]["application/json"]["example"]).decode()
        parts += ["-H 'Content-Type: application/json'", f"-d '{body}'"]
    parts.append(f"'{origin}{path}{'?' if query else ''}{query}'")
    return " \\\n  ".join(parts)


def _example(responses: dict[str, Any]) -> str:
    """What the first response of success looks like."""
    [(_, content)] = next(iter(responses.values())).get("content", {"": {}}).items()
    return _text(content.get("example", ""))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "" if default is None else msgspec.json.encode(default).decode()


# -- how it is shown


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - see above

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = _prose
    return environment.get_template("reference.html")


def _prose(text: str) -> Markup:
    """A sentence in which names stand between backquotes."""
    from markupsafe import Markup, escape  # noqa: PLC0415 - see above

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


@cache
def _style() -> str:
    return (_TEMPLATES / "reference.css").read_text()


@cache
def _headers() -> dict[str, str]:
    digest = base64.b64encode(sha256(_style().encode()).digest()).decode()
    return {
        "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
