"""JSON schemas in words: what a reference says about a parameter, a field or a body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class Word(NamedTuple):
    """A part of a phrase; `shape` is the name of the schema that it refers to, if it does."""

    text: str
    shape: str = ""


_PLAIN = {"string": "text", "integer": "a whole number", "null": "null", None: "any JSON"}


def words_of(schema: dict[str, Any]) -> tuple[Word, ...]:
    """What a value of this schema is."""
    return tuple(_words(schema))


def _words(schema: dict[str, Any]) -> Iterator[Word]:
    kind = schema.get("type")
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield Word(name, name)
    elif "anyOf" in schema:
        for number, member in enumerate(dict.fromkeys(map(words_of, schema["anyOf"]))):
            if number:
                yield Word(" or ")
            yield from member
    elif "enum" in schema:
        yield Word(", ".join(f"`{each}`" for each in schema["enum"]))
    elif kind == "array":
        yield Word("a list of ")
        yield from _words(schema["items"])
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        yield Word("an object of ")
        yield from _words(schema["additionalProperties"])
    elif schema.get("format") == "date-time":
        yield Word("an instant")
    else:
        yield Word(_PLAIN.get(kind, f"{kind}"))
