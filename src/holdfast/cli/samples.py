"""A plausible value for a JSON Schema: what one could type to try a workflow out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.engine.api.registry import Description

DEPTH_MAX = 8
_PLAIN = {"integer": 1, "number": 1.5, "boolean": True, "null": None}
_FORMATS = {"date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "uuid": "6f1c4f5e-8d2b-4c53-9a55-2f3a6d1c0b7e"}


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
    return list(_followed(schema, schema).get("properties", {}))


def sample(schema: dict[str, Any]) -> Any:
    """A value that fits `schema`, as far as types and lower bounds tell."""
    return _value(schema, schema, "", 0)


def _value(schema: dict[str, Any], root: dict[str, Any], name: str, depth: int) -> Any:
    schema = _followed(schema, root)
    if "default" in schema:
        return schema["default"]
    if "enum" in schema or "const" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    if options := schema.get("anyOf"):
        return _value(options[0], root, name, depth)
    match schema.get("type"):
        case "object" if depth < DEPTH_MAX:
            fields = schema.get("properties", {})
            wanted = schema.get("required", ())
            return {each: _value(fields[each], root, each, depth + 1) for each in fields if each in wanted}
        case "array" if depth < DEPTH_MAX:
            items: dict[str, Any] | None = schema.get("items")
            return [_value(items, root, name.removesuffix("s"), depth + 1)] if items else []
        case "string":
            return _FORMATS.get(schema.get("format", ""), f"{name or 'text'}-1")
        case "integer" | "number" as kind:
            return schema.get("minimum") or _PLAIN[kind]
        case kind:
            return _PLAIN.get(kind or "null")


def _followed(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """What a reference leads to."""
    while reference := schema.get("$ref"):
        schema = root.get("$defs", {}).get(reference.rpartition("/")[2], {})
    return schema
