"""Whether a JSON value, such as what people send to a typed hook, fits the JSON Schema of its type.

Rules
- Schemas are those that `msgspec.json.schema` and pydantic's `model_json_schema` write. A keyword that is not named
  here is not checked, nor are formats (`date-time`, `uuid`, base64): what they stand for shows when it is decoded.
- What msgspec decodes is not refused. It takes a Decimal as a number too, and a Struct outside a union without its
  tag; its schemas say neither, so both are known here. (A first field that has to be one literal looks like a tag,
  and is not missed either.) Not known: the unlisted values of a Flag, or of an Enum with `_missing_`. Where pydantic
  would convert (`"5"` for an int), its schema counts.
- `true` is no number, and `1.0` is no integer, as msgspec has it. Of `oneOf`, as of `anyOf`, one that fits is enough.
- The answer is one fault: the first or, where no form of a union fits, that of the form which came closest.
- A deep value cannot exhaust the stack: a check is a generator that yields the checks it depends on, and `_settled`
  keeps them in a list. No place is held against a schema twice, or a recursive union would take exponential time.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

_Schema: TypeAlias = Mapping[str, Any] | bool  # `true` fits all, `false` nothing
_Check: TypeAlias = "Generator[tuple[_Place, _Schema], _Fault | None, _Fault | None]"

_PATH_MAX, _TEXT_MAX, _EXPECTED_MAX = 20, 60, 200  # keys of a path, characters of a value, and of what was expected
_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_SIZES = {
    "string": ("minLength", "maxLength", "characters"),
    "array": ("minItems", "maxItems", "items"),
    "object": ("minProperties", "maxProperties", "fields"),
}
_RANGES: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (operator.ge, "at least"),
    "exclusiveMinimum": (operator.gt, "more than"),
    "maximum": (operator.le, "at most"),
    "exclusiveMaximum": (operator.lt, "less than"),
    "multipleOf": (lambda value, step: value % step == 0, "a multiple of"),
}


def misfit(value: object, schema: Mapping[str, Any]) -> str | None:
    """Why `value` does not fit `schema`, such as `"$.by: expected string, got 5 (an integer)"`; None if it fits."""
    fault = _settled(_Place(value), schema)
    return fault and f"{fault.place}: expected {_clipped(fault.expected, _EXPECTED_MAX)}, got {fault.got}"


@dataclass(eq=False, repr=False, slots=True)
class _Place:
    """A place within the value, and what is known of it: the fault, or None, by the id of each schema."""

    value: Any
    above: _Place | None = None
    key: str | int = "$"
    depth: int = 0
    parts: dict[str | int, _Place] = field(default_factory=dict)
    faults: dict[int, _Fault | None] = field(default_factory=dict)

    def part(self, key: str | int, value: object = None) -> _Place:
        if key not in self.parts:
            self.parts[key] = _Place(value, self, key, self.depth + 1)
        return self.parts[key]

    def __str__(self) -> str:
        path, place = "", self
        while place.above and self.depth - place.depth < _PATH_MAX:
            plain = isinstance(place.key, str) and place.key.isidentifier() and len(place.key) <= _TEXT_MAX
            path = (f".{place.key}" if plain else f"[{_shown(place.key)}]") + path
            place = place.above
        return ("$…" if place.above else "$") + path


class _Fault(NamedTuple):
    """What is wrong at a place. A wrong literal suggests that another form of a union was meant; a limit does not."""

    place: _Place
    expected: str
    got: str
    about: Literal["kind", "literal", "limit"]


def _settled(place: _Place, schema: Mapping[str, Any]) -> _Fault | None:
    defs = schema.get("$defs", {})
    checks = [_check(place, schema, defs)]
    fault: _Fault | None = None
    while checks:
        try:
            asked = checks[-1].send(fault)
        except StopIteration as done:
            fault = done.value
            checks.pop()
        else:
            fault = None
            checks.append(_check(*asked, defs))
    return fault


def _check(place: _Place, schema: _Schema, defs: Mapping[str, _Schema]) -> _Check:
    if isinstance(schema, bool):
        return None if schema else _Fault(place, "nothing here", _said(place.value), "limit")
    if id(schema) not in place.faults:
        place.faults[id(schema)] = None  # a schema that, at one place, leads back to itself forbids nothing more
        place.faults[id(schema)] = yield from _judged(place, schema, defs)
    return place.faults[id(schema)]


def _judged(place: _Place, schema: Mapping[str, Any], defs: Mapping[str, _Schema]) -> _Check:
    if fault := _wrong_kind(place, schema) or _beyond_limit(place, schema):
        return fault
    for asked in _parts(place, schema, defs):
        if fault := (yield asked):
            return fault
    for forms in (schema.get("anyOf"), schema.get("oneOf")):
        if forms and (fault := (yield from _union(place, schema, forms))):
            return fault
    return _missing(place, schema)  # last, so that of a union's forms a wrong tag tells first


def _parts(place: _Place, schema: Mapping[str, Any], defs: Mapping[str, _Schema]) -> Iterator[tuple[_Place, _Schema]]:
    """All that has to fit as well."""
    if "$ref" in schema:
        yield place, defs.get(schema["$ref"].removeprefix("#/$defs/"), True)
    for wanted in schema.get("allOf", ()):
        yield place, wanted
    kind = _kind(place.value)
    if kind == "object" and schema.keys() & {"properties", "additionalProperties"}:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, item in place.value.items():
            yield place.part(name, item), properties.get(name, others)
    elif kind == "array" and schema.keys() & {"prefixItems", "items"}:
        first, rest = schema.get("prefixItems", ()), schema.get("items", True)
        for index, item in enumerate(place.value):
            yield place.part(index, item), first[index] if index < len(first) else rest


def _union(place: _Place, schema: Mapping[str, Any], forms: Sequence[_Schema]) -> _Check:
    tags = schema.get("discriminator", {})
    if tags and _kind(place.value) == "object" and tags["propertyName"] not in place.value:
        expected = _either(map(_shown, tags.get("mapping", ())))
        return _Fault(place.part(tags["propertyName"]), expected, "nothing", "limit")
    faults: list[_Fault] = []
    for form in forms:
        if (fault := (yield place, form)) is None:
            return None
        faults.append(fault)
    return _closest(place, faults)


def _closest(place: _Place, faults: Sequence[_Fault]) -> _Fault:
    """The fault of the form that came closest. Forms that differ only in what they expect there are named together."""

    def nearness(fault: _Fault) -> tuple[bool, bool, int, bool]:
        inside = fault.place is not place
        return inside and fault.about != "literal", inside, fault.place.depth, fault.about == "limit"

    best = max(faults, key=nearness)
    alike = [one for one in faults if (one.place, one.got, nearness(one)) == (best.place, best.got, nearness(best))]
    return best._replace(expected=_either(one.expected for one in alike))


def _wrong_kind(place: _Place, schema: Mapping[str, Any]) -> _Fault | None:
    literals, kinds = _literals(schema), set(_kinds(schema))
    if "number" in kinds or schema.get("format") == "decimal":
        kinds |= {"integer", "number"}
    if literals and not any(_same(place.value, literal) for literal in literals):
        return _Fault(place, _wanted(schema), _said(place.value), "literal")
    if kinds and _kind(place.value) not in kinds:
        return _Fault(place, _wanted(schema), _said(place.value), "kind")
    return None


def _missing(place: _Place, schema: Mapping[str, Any]) -> _Fault | None:
    required = schema.get("required", ()) if _kind(place.value) == "object" else ()
    for position, name in enumerate(required):
        found: _Schema = schema.get("properties", {}).get(name, True)
        wanted: Mapping[str, Any] = {} if isinstance(found, bool) else found
        tag = position == 0 and [*wanted] == ["enum"] and len(wanted["enum"]) == 1  # in a union `_union` asks for it
        if name not in place.value and not tag:
            return _Fault(place.part(name), _wanted(wanted), "nothing", "limit")
    return None


def _beyond_limit(place: _Place, schema: Mapping[str, Any]) -> _Fault | None:
    for fits, expected, got in _limits(place.value, schema):
        if not fits:
            return _Fault(place, expected, got or _said(place.value), "limit")
    return None


def _limits(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[bool, str, str]]:
    """For each limit whether the value keeps it, what it asks, and what was sent instead, if not the value."""
    kind = _kind(value)
    if kind in _SIZES:
        least, most, unit = _SIZES[kind]
        yield len(value) >= schema.get(least, 0), f"{schema.get(least)} or more {unit}", f"{len(value)}"
        yield len(value) <= schema.get(most, len(value)), f"{schema.get(most)} or fewer {unit}", f"{len(value)}"
    if kind == "string" and "pattern" in schema:
        yield _matches(value, schema["pattern"]), f"text that matches {schema['pattern']!r}", ""
    if kind in {"integer", "number"}:
        yield from (_range(value, keyword, schema) for keyword in _RANGES if keyword in schema)


def _range(value: float, keyword: str, schema: Mapping[str, Any]) -> tuple[bool, str, str]:
    (holds, words), bound = _RANGES[keyword], schema[keyword]
    if isinstance(bound, float) or "number" in _kinds(schema):
        # An integer that is sent for a float is compared as what it will be decoded to: beyond 2**53 that is another.
        return holds(_float(value), _float(bound)), f"{words} {bound}", ""
    return holds(value, bound), f"{words} {bound}", ""


def _matches(text: str, pattern: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError):  # pydantic's patterns are Rust's, and may mean nothing to Python
        return True


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _kind(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _kinds(schema: Mapping[str, Any]) -> Sequence[str]:
    kinds = schema.get("type", ())
    return [kinds] if isinstance(kinds, str) else kinds


def _literals(schema: Mapping[str, Any]) -> Sequence[object]:
    return schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else ()


def _same(value: object, literal: object) -> bool:
    """Whether they are equal in JSON: `true` is not 1. Here 1.0 is not 1 either, but 1 will do for 1.0."""
    kinds = _kind(value), _kind(literal)
    return value == literal and (kinds[0] == kinds[1] or kinds == ("integer", "number"))


def _wanted(schema: Mapping[str, Any]) -> str:
    return _either(map(_shown, _literals(schema)) if _literals(schema) else _kinds(schema))


def _either(texts: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(texts)) or "a value"


def _said(value: object) -> str:
    kind = _kind(value)
    named = kind if value is None else f"an {kind}" if kind[0] in "aio" else f"a {kind}"
    return f"{_shown(value)} ({named})" if isinstance(value, str | int | float) else named


def _shown(value: object) -> str:
    return {"None": "null", "True": "true", "False": "false"}.get(text := repr(value), _clipped(text, _TEXT_MAX))


def _clipped(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[:length_max]}…"
