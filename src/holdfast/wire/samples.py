"""JSON that fits a schema, to begin with: empty for a form that a person fills in, plausible for a command to paste.

Both are found in the same way and differ only in the leaves: where the schema leaves a value open, a form gets nothing
("", 0) and a command something that one could mean ("order-1", 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.engine.api.registry import Description

DEPTH_MAX = 8  # a schema may contain itself
_EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False}
_PLAUSIBLE = {"integer": 1, "number": 1.5, "boolean": True}
_FORMATS = {"date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "uuid": "6f1c4f5e-8d2b-4c53-9a55-2f3a6d1c0b7e"}

Schema = Mapping[str, Any]
Leaf = Callable[[str, Schema, str], Any]  # the value for a type, given its schema and the name of its field


def form_input(schema: Schema | None) -> str:
    """What stands in a form before anything was typed: an object with what the schema requires, and no values yet."""
    value = {} if schema is None else _object(_resolved(schema, schema), schema, _empty, depth=0)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def form_value(schema: Schema | None) -> str:
    """The same for a value that need not be an object."""
    if schema is None:
        return ""
    value = _value(schema, schema, _empty, name="", depth=0)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def sample(schema: Schema) -> Any:
    """A value that fits `schema`, as far as types and lower bounds tell: something that one could mean."""
    return _value(schema, schema, _plausible, name="", depth=0)


def sample_start(workflows: Sequence[Description]) -> tuple[Description, dict[str, Any]] | None:
    """The workflow that shows most, and an input for it."""
    described = [each for each in workflows if each.input_schema is not None]
    if not described:
        return None
    chosen = max(described, key=lambda each: (each.key is not None, len(parameters(each))))
    return chosen, sample(chosen.input_schema or {})


def parameters(workflow: Description) -> list[str]:
    """The names of what a workflow takes, as far as its schema tells."""
    schema = workflow.input_schema or {}
    return list(_resolved(schema, schema).get("properties", {}))


def _value(part: Schema, root: Schema, leaf: Leaf, *, name: str, depth: int) -> Any:
    part = _resolved(part, root)
    if "default" in part:
        return part["default"]
    if "const" in part:
        return part["const"]
    if part.get("enum"):
        return part["enum"][0]
    if options := part.get("anyOf"):
        return _value(options[0], root, leaf, name=name, depth=depth)
    match part.get("type"):
        case "object":
            return _object(part, root, leaf, depth=depth)
        case "array":
            items: Schema | None = part.get("items")
            if items is None or depth >= DEPTH_MAX:
                return []
            return [_value(items, root, leaf, name=name.removesuffix("s"), depth=depth + 1)]
        case "integer" | "number" if part.get("minimum"):
            return part["minimum"]
        case kind:
            return leaf(kind or "", part, name)


def _object(part: Schema, root: Schema, leaf: Leaf, *, depth: int) -> dict[str, Any]:
    if depth >= DEPTH_MAX:
        return {}
    fields: Mapping[str, Schema] = part.get("properties", {})
    required: Sequence[str] = part.get("required", ())
    return {each: _value(fields.get(each, {}), root, leaf, name=each, depth=depth + 1) for each in required}


def _empty(kind: str, part: Schema, name: str) -> Any:
    del part, name
    return _EMPTY.get(kind)


def _plausible(kind: str, part: Schema, name: str) -> Any:
    if kind == "string":
        return _FORMATS.get(part.get("format", ""), f"{name or 'text'}-1")
    return _PLAUSIBLE.get(kind)


def _resolved(part: Schema, root: Schema) -> Schema:
    """What a reference leads to."""
    while reference := part.get("$ref"):
        part = root.get("$defs", {}).get(reference.rpartition("/")[2], {})
    return part


def fields(schema: Schema | None) -> tuple[tuple[str, str], ...]:
    """The fields of an object, each with its type in a word or two; none if it is no object, or not known."""
    if schema is None:
        return ()
    part = _resolved(schema, schema)
    required: Sequence[str] = part.get("required", ())
    properties: Mapping[str, Schema] = part.get("properties", {})
    return tuple(
        (name, _type_of(each, schema) + ("" if name in required else ", may be left out"))
        for name, each in properties.items()
    )


def _type_of(part: Schema, root: Schema) -> str:
    part = _resolved(part, root)
    if "const" in part:
        return msgspec.json.encode(part["const"]).decode()
    if part.get("enum"):
        return " or ".join(msgspec.json.encode(each).decode() for each in part["enum"])
    if options := part.get("anyOf"):
        return " or ".join(dict.fromkeys(_type_of(each, root) for each in options))
    names = {"string": "text", "integer": "whole number", "boolean": "true or false", "array": "list"}
    kind = str(part.get("type", "anything"))
    return names.get(kind, kind) + (f" ({part['format']})" if "format" in part else "")
