"""The OpenAPI document is what clients are generated from: whatever is renamed inside, it stays as it was published.

`openapi.json` beside this file is the published document. An endpoint or a field that is added is added there, too, on
purpose; a line of it that changes or goes away breaks a client.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from holdfast import wire
from holdfast.gateway import examples, openapi, reference
from holdfast.gateway.app import ENDPOINTS
from holdfast.gateway.openapi import PARAMETER
from holdfast.gateway.requests import Sent
from holdfast.kernel.journal import Entry

PUBLISHED = Path(__file__).with_name("openapi.json")
DOCUMENT = openapi.document(ENDPOINTS)


def test_the_document_is_the_one_that_was_published():
    document = openapi.document(ENDPOINTS)
    published = msgspec.json.decode(PUBLISHED.read_bytes())
    document["info"]["version"] = published["info"]["version"]
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    assert text.splitlines() == PUBLISHED.read_text().splitlines()


def test_no_two_types_are_published_under_one_name():
    types = [name for name in wire.__all__ if isinstance(getattr(wire, name), type)]
    assert len({wire.published_name(name) for name in types}) == len(types)


# -- nothing is left undescribed

OPERATIONS = {openapi.operation_id(each): each for each in ENDPOINTS}


def described(name: str) -> dict[str, Any]:
    endpoint = OPERATIONS[name]
    return DOCUMENT["paths"][endpoint.path.replace(":path", "")][endpoint.method.lower()]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_described_and_shown_by_examples(name: str):
    operation = described(name)
    assert operation["summary"]
    scope = operation["description"].rpartition("Needs ")[0]
    assert len(scope) > 20, "the docstring of the handler describes the operation"
    bodies = [operation["requestBody"]] if "requestBody" in operation else []
    for holder in (*bodies, *operation["responses"].values()):
        assert holder.get("description") or holder in bodies
        for media, content in holder.get("content", {}).items():
            assert content.get("example") is not None, media
        for header in holder.get("headers", {}).values():
            assert header["description"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_parameter_is_described_and_has_an_example_that_fits(name: str):
    for parameter in described(name)["parameters"]:
        assert parameter["description"], parameter["name"]
        example = parameter["example"]
        match parameter["in"]:
            case "query":
                given = example if isinstance(example, list) else msgspec.json.encode(example).decode().strip('"')
                given = example if isinstance(example, str) else given
                msgspec.convert({parameter["name"]: given}, _optional(OPERATIONS[name].query), strict=False)
            case "header":
                schema = parameter["schema"]
                assert re.fullmatch(schema["pattern"], example)
                assert len(example) <= schema["maxLength"]
            case _:
                assert example


def _optional(query: type[msgspec.Struct]) -> Any:
    """The parameters of a query, none of which has to be there."""
    fields = [(name, kind, None) for name, kind in get_type_hints(query, include_extras=True).items()]
    return msgspec.defstruct("Some", fields, forbid_unknown_fields=True)


@pytest.mark.parametrize("kind", examples.OF_TYPE, ids=lambda kind: kind.__name__)
def test_an_example_fits_its_type_to_the_last_field(kind: Any):
    example = examples.OF_TYPE[kind]
    decoded = msgspec.json.decode(msgspec.json.encode(example), type=kind)
    assert _is_within(json.loads(msgspec.json.encode(example)), json.loads(msgspec.json.encode(decoded)))


def _is_within(small: Any, large: Any) -> bool:
    match small:
        case dict():
            return all(name in large and _is_within(value, large[name]) for name, value in small.items())
        case list():
            return len(small) == len(large) and all(map(_is_within, small, large))
        case str() if small != large and small.endswith("Z"):  # an instant may be written with more digits
            return datetime.fromisoformat(small) == datetime.fromisoformat(large)
        case _:
            return small == large


def test_examples_are_kept_for_what_there_is():
    assert examples.OF_BODY.keys() | examples.OF_RESPONSE.keys() <= OPERATIONS.keys()
    declared = {kind for each in ENDPOINTS for kind in (each.body, *each.responses.values())}
    assert examples.OF_TYPE.keys() <= declared
    assert examples.PARAMETERS.keys() == {name for each in ENDPOINTS for name, _ in PARAMETER.findall(each.path)}


def test_an_example_of_an_entry_is_one_of_a_journal():
    for entry in examples.OF_TYPE[wire.JournalView]["entries"]:
        text = msgspec.json.encode(entry)
        assert msgspec.json.encode(msgspec.json.decode(text, type=Entry)) == text


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ({"host": "holdfast.example"}, "http://holdfast.example"),
        ({"host": "10.0.0.7:8787", "x-forwarded-proto": "https"}, "https://10.0.0.7:8787"),
        ({"host": "[::1]:8787"}, "http://[::1]:8787"),
        ({"host": 'a"><script>'}, openapi.ORIGIN),
        ({"host": "a/b"}, openapi.ORIGIN),
        ({}, openapi.ORIGIN),
    ],
)
def test_the_server_is_the_address_at_which_the_document_was_asked_for(headers: dict[str, str], origin: str):
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    sent = Sent({"headers": raw, "scheme": "http", "path": "/openapi.json"}, None)  # pyright: ignore[reportArgumentType]
    assert openapi.origin_of(sent) == origin
    assert openapi.document(ENDPOINTS, origin=origin)["servers"][0]["url"] == origin


# -- the page


def test_the_page_has_every_operation_parameter_and_shape_and_loads_nothing():
    page = reference.render(DOCUMENT).decode()
    for name, endpoint in OPERATIONS.items():
        anchor = name.replace(".", "-").replace("_", "-")
        assert f'href="#{anchor}"' in page
        assert f'id="{anchor}"' in page
        for parameter in described(name)["parameters"]:
            assert f"<code>{parameter['name']}</code>" in page
        assert str(reference._prose(endpoint.summary)) in page
    for shape in DOCUMENT["components"]["schemas"]:
        assert f'id="shape-{shape}"' in page
    targets = set(re.findall(r'href="#([^"]+)"', page))
    assert targets <= set(re.findall(r'id="([^"]+)"', page))
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|\bon\w+=", page)
    assert set(re.findall(r'(?:src|href)="([^"#][^"]*)"', page)) == {"/openapi.json"}


def test_what_a_document_says_is_text_on_the_page():
    hostile = "</style><script>alert(1)</script>"
    document = openapi.document(ENDPOINTS, origin="http://x/" + hostile)
    document["info"]["summary"] = hostile
    document["paths"]["/v1/runs"]["get"]["summary"] = f"`{hostile}`"
    assert "<script" not in reference.render(document).decode()
