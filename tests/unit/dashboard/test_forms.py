from __future__ import annotations

from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from holdfast.adapters.payloads import JsonCodec
from holdfast.dashboard import forms
from holdfast.dashboard.forms import BODY_BYTES_MAX, Form, NotAForm
from holdfast.errors import PayloadTooLarge, UsageError
from tests.browser.demo import checkout

FORM = "application/x-www-form-urlencoded"


def posted(body: bytes, media: str = FORM) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": [(b"content-type", media.encode())]}, receive)


async def test_fields_are_read_without_the_blanks_around_them():
    form = await forms.read(posted(b"hook=+approval+&payload=%7B%0D%0A%7D&reason=na%C3%AFve"))
    assert (form["hook"], form["payload"], form["reason"], form["missing"]) == ("approval", "{\n}", "naïve", "")


@pytest.mark.parametrize(
    ("body", "media"),
    [(b"{}", "application/json"), (b"a=%FF", FORM), (b"\xff", FORM), (b"&".join([b"a=1"] * 100), FORM), (b"", "")],
)
async def test_what_no_form_has_sent_is_refused(body: bytes, media: str):
    with pytest.raises(NotAForm):
        await forms.read(posted(body, media))


async def test_a_form_that_is_too_large_is_refused_before_it_is_kept():
    with pytest.raises(PayloadTooLarge):
        await forms.read(posted(b"a=" + b"x" * BODY_BYTES_MAX))


def test_a_field_holds_json_or_says_what_is_wrong_with_it():
    assert Form({"payload": '{"a": 1}'}).json("payload") == {"a": 1}
    assert Form({}).json("payload") is None
    with pytest.raises(UsageError, match="the payload is not JSON"):
        Form({"payload": "yes"}).json("payload")


def test_the_sample_of_a_workflow_is_its_input_with_plain_values():
    schema = JsonCodec().schema(checkout.signature.arguments_type)
    sample = msgspec.json.decode(forms.sample(schema))
    assert sample == {"order": "", "customer": "", "items": [{"sku": "", "cents": 0}]}


@pytest.mark.parametrize(
    ("schema", "sample"),
    [
        (None, {}),
        ({"type": "object"}, {}),
        ({"required": ["a"], "properties": {"a": {"enum": ["x", "y"]}}}, {"a": "x"}),
        ({"required": ["a"], "properties": {"a": {"type": "integer", "minimum": 3}}}, {"a": 3}),
        ({"required": ["a"], "properties": {"a": {"anyOf": []}}}, {"a": None}),
        ({"required": ["a"], "properties": {"a": {"$ref": "#/$defs/gone"}}}, {"a": None}),
    ],
)
def test_samples_of_schemas(schema: dict[str, Any] | None, sample: dict[str, Any]):
    assert msgspec.json.decode(forms.sample(schema)) == sample


def test_a_schema_that_contains_itself_has_an_end():
    tree = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/tree"}}}
    assert forms.sample({"$ref": "#/$defs/tree", "$defs": {"tree": tree}}).startswith("{")
