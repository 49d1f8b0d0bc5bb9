from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.adapters.payloads import JsonCodec
from holdfast.wire.samples import fields, form_input, form_value, sample
from tests.browser.demo import checkout


def test_the_sample_of_a_workflow_is_its_input_with_plain_values():
    schema = JsonCodec().schema(checkout.signature.arguments_type)
    value = msgspec.json.decode(form_input(schema))
    assert value == {"order": "", "customer": "", "items": [{"sku": "", "cents": 0}]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (None, {}),
        ({"type": "object"}, {}),
        ({"required": ["a"], "properties": {"a": {"enum": ["x", "y"]}}}, {"a": "x"}),
        ({"required": ["a"], "properties": {"a": {"type": "integer", "minimum": 3}}}, {"a": 3}),
        ({"required": ["a"], "properties": {"a": {"anyOf": []}}}, {"a": None}),
        ({"required": ["a"], "properties": {"a": {"$ref": "#/$defs/gone"}}}, {"a": None}),
    ],
)
def test_samples_of_schemas(schema: dict[str, Any] | None, value: dict[str, Any]):
    assert msgspec.json.decode(form_input(schema)) == value


def test_a_schema_that_contains_itself_has_an_end():
    tree = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/tree"}}}
    assert form_input({"$ref": "#/$defs/tree", "$defs": {"tree": tree}}).startswith("{")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "text-1"),
        ({"type": "string", "format": "date-time"}, "2026-01-31T12:00:00Z"),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "integer"}, 1),
        ({"type": "boolean"}, True),
        ({"enum": ["a", "b"]}, "a"),
        ({"const": 3}, 3),
        ({"default": [1]}, [1]),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, 1.5),
        ({"type": "array", "items": {"type": "string"}}, ["text-1"]),
        ({"type": "array"}, []),
        ({}, None),
        (
            {
                "$ref": "#/$defs/Order",
                "$defs": {
                    "Order": {
                        "type": "object",
                        "properties": {"id": {"type": "string"}, "next": {"$ref": "#/$defs/Order"}},
                        "required": ["id"],
                    }
                },
            },
            {"id": "id-1"},
        ),
    ],
)
def test_a_sample_fits_its_schema(schema: dict[str, Any], value: object):
    assert sample(schema) == value


ORDER = {
    "$ref": "#/$defs/Order",
    "$defs": {
        "Order": {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "cents": {"type": "integer"},
                "vip": {"type": "boolean"},
                "due": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
                "kind": {"enum": ["new", "old"]},
                "version": {"const": 1},
                "items": {"type": "array"},
                "other": {},
            },
            "required": ["id", "cents"],
        }
    },
}


def test_a_form_begins_with_what_is_required():
    assert msgspec.json.decode(form_value(ORDER)) == {"id": "", "cents": 0}
    assert form_value({"type": "boolean"}) == "false"
    assert form_value(None) == ""


def test_the_fields_of_an_object_are_told_in_words():
    assert dict(fields(ORDER)) == {
        "id": "text",
        "cents": "whole number",
        "vip": "true or false, may be left out",
        "due": "text (date-time) or null, may be left out",
        "kind": '"new" or "old", may be left out',
        "version": "1, may be left out",
        "items": "list, may be left out",
        "other": "anything, may be left out",
    }
    assert fields(None) == fields({"type": "string"}) == ()
