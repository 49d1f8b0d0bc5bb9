"""Writes the reference page of the HTTP API from the endpoints themselves."""  # noqa: INP001 - see docs/generate.py

from __future__ import annotations

import inspect
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from holdfast.gateway import limits, problems
from holdfast.gateway.app import ENDPOINTS
from holdfast.gateway.endpoints import Endpoint, GatewaySettings
from holdfast.gateway.openapi import document
from holdfast.gateway.schema_words import words_of
from holdfast.statuses import STATUS, title_of

LIMITS = GatewaySettings()
MALFORMED = [
    kind
    for module in (problems, limits)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, problems.Malformed) and kind.__module__ == module.__name__
]
INTRODUCTION = f"""\
A gateway speaks JSON over HTTP: `holdfast dev` and `holdfast serve` start one. Its `/docs` is this page in a browser,
with examples; `GET /openapi.json` is the same as an OpenAPI 3.1 document, from which clients can be generated.
[Calling it from another language](../guides/calling-over-http.md) shows it in use, and [securing
it](../guides/securing.md) whom to let in.

- **Keys.** `Authorization: Bearer hf_...`. Each endpoint names the scope that it needs; `admin` contains `write`, and
  `write` contains `read`. A key belongs to a namespace and sees nothing else. On a loopback address a gateway may be
  open to everybody on that machine.
- **Problems.** Whatever goes wrong is answered as `application/problem+json`: `status`, `code` (see
  [errors](errors.md)), `detail` (what happened, to which thing), `hint` (what to do now) and `instance`.
- **Waiting.** `?wait=30s` returns as soon as there is something to return, or as things are when the time is up; at
  most {LIMITS.wait_seconds_max:g} s.
- **Durations** are seconds (`1.5`) or text (`1500ms`, `30s`, `2h`, `3d`). **Instants** are RFC 3339, in UTC. An
  **attribute** that is an instant is written `{{"at": "2026-11-16T12:00:00Z"}}`.
- **Limits.** A body has at most {LIMITS.body_bytes_max // 1024:,} KiB and arrives within
  {LIMITS.body_seconds_max:g} s. A page has at most 1,000 runs. At most {LIMITS.waiting_max:,} requests wait at a time;
  the next ones get 503.
- What is not described here is refused: unknown parameters, unknown fields, a body where none belongs.\
"""


def lines() -> Iterator[str]:
    """The page."""
    described = document(ENDPOINTS)
    yield "# The HTTP API"
    yield ""
    yield from INTRODUCTION.splitlines()
    tags: dict[str, list[Endpoint]] = {}
    for each in ENDPOINTS:
        tags.setdefault(each.handler.__module__.rpartition(".")[2], []).append(each)
    for tag, endpoints in tags.items():
        yield from ("", f"## On {tag}")
        for each in endpoints:
            path = next(path for path in described["paths"] if path == each.path.replace(":path", ""))
            yield from _endpoint(each, described["paths"][path][each.method.lower()])
    yield from ("", "## Shapes", "", "What is sent and answered, field by field.")
    for name, schema in sorted(described["components"]["schemas"].items()):
        yield from _shape(name, schema)
    yield from _problems()


def _endpoint(endpoint: Endpoint, operation: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"### `{endpoint.method} {endpoint.path.replace(':path', '')}`", "")
    scope = "needs no key" if endpoint.scope is None else f"scope `{endpoint.scope}`"
    yield f"{endpoint.summary}; {scope}."
    if what := " ".join((inspect.getdoc(endpoint.handler) or "").split()):
        yield what
    yield ""
    for parameter in operation["parameters"]:
        if parameter["in"] != "path":
            yield f"- {parameter['in']} `{parameter['name']}`: {parameter['description']}"
    if "requestBody" in operation:
        needed = "" if operation["requestBody"]["required"] else ", or none"
        yield f"- body: {_content(operation['requestBody'])}{needed}"
    for status, response in operation["responses"].items():
        if "application/problem+json" not in response.get("content", {}):
            yield f"- {status} {HTTPStatus(int(status)).phrase}: {_content(response)}"
    refused = sorted(endpoint.refuses)
    if refused:
        yield "- refuses with " + ", ".join(f"{status} {HTTPStatus(status).phrase}" for status in refused)


def _content(holder: dict[str, Any]) -> str:
    for media, content in holder.get("content", {}).items():
        named = "" if media == "application/json" else f"`{media}`, "
        return f"{named}{_type(content['schema']) if 'schema' in content else 'text'}"
    return "nothing"


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"### {name}", "")
    if "description" in schema:
        yield from (schema["description"], "")
    for field, kind in schema.get("properties", {}).items():
        default = f"; `{kind['default']!r}` if left out" if "default" in kind else ""
        needed = "" if field in schema.get("required", ()) or default else "; may be missing"
        yield f"- `{field}`: {_type(kind)}{default}{needed}"


def _type(schema: dict[str, Any]) -> str:
    return "".join(f"[{text}](#{shape.lower()})" if shape else text for text, shape in words_of(schema))


def _problems() -> Iterator[str]:
    yield from ("", "## Problems", "", "Which error is answered with which status; the first row that fits counts.", "")
    yield from ("| error | status | what it means |", "|---|---|---|")
    for kind, status in STATUS:
        yield f"| `{kind.code}` | {status} | {title_of(kind)} |"
    for kind in MALFORMED:
        yield f"| `{kind.code}` | {kind.status} | {title_of(kind)} |"
