"""The OpenAPI document is what clients are generated from: whatever is renamed inside, it stays as it was published.

`openapi.json` beside this file is the published document. An endpoint or a field that is added is added there, too, on
purpose; a line of it that changes or goes away breaks a client.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast import wire
from holdfast.gateway import openapi
from holdfast.gateway.app import ENDPOINTS

PUBLISHED = Path(__file__).with_name("openapi.json")


def test_the_document_is_the_one_that_was_published():
    document = openapi.document(ENDPOINTS)
    published = msgspec.json.decode(PUBLISHED.read_bytes())
    document["info"]["version"] = published["info"]["version"]
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    assert text.splitlines() == PUBLISHED.read_text().splitlines()


def test_no_two_types_are_published_under_one_name():
    types = [name for name in wire.__all__ if isinstance(getattr(wire, name), type)]
    assert len({wire.published_name(name) for name in types}) == len(types)
