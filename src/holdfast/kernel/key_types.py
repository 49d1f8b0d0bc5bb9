"""The types of key fields: which of them may give one text for two values.

Rules
- Within one type, distinct values have distinct texts. Between types they may not: 1 and "1", True and "true", a date
  and its text, an Enum and its value. The type of a parameter is part of its schema: a field of one type is injective.
- A field that may have one of several types is refused if a value of one and a value of another could have the same
  text. `int | float` and `int | bool` are good: no integer looks like a float or a bool. Text looks like anything.
- None has no text, and is refused when a key is filled with it. So `str | None` is as good as `str`.
- Members of an IntEnum are integers, those of a StrEnum texts: equal to their values, also where they are stored.
- Nothing is said about what has no annotation, or one that leaves the type open (Any, object, a type variable).
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag
from itertools import combinations
from typing import Annotated, Any, Literal, NamedTuple

from holdfast.errors import UsageError
from holdfast.kernel.keys import Template, text_of

_UNIONS = (types.UnionType, typing.Union)  # pyright: ignore[reportDeprecated] - some still write it so
_DATE = r"\d{4}-\d\d-\d\d"
# What the values of a type look like. Where they overlap at all, `_MEET` says it.
_LOOKS: dict[str, re.Pattern[str]] = {
    "str": re.compile(r".*", re.DOTALL),
    "bool": re.compile(r"true|false"),
    "int": re.compile(r"-?\d+"),
    "float": re.compile(r"-?(\d+\.\d+|\d(\.\d+)?e[+-]\d+|inf|nan)"),
    "Decimal": re.compile(r"-?(\d+(\.\d+)?(E[+-]\d+)?|s?NaN\d*|Infinity)"),
    "UUID": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "date": re.compile(_DATE),
    "datetime": re.compile(rf"{_DATE}T.*"),
}
_MEET = ({"Decimal", "int"}, {"Decimal", "float"}, *({"str", other} for other in _LOOKS if other != "str"))


class Kind(NamedTuple):
    """One of the types that a field may have; `texts` are those of its values if they are few and known."""

    type: object  # equal texts of one type are equal values
    name: str
    looks: str = ""
    texts: frozenset[str] | None = None


def check(template: Template, annotations: Mapping[str, Any], *, owner: str) -> None:
    """Raises `UsageError` if distinct values of a field could give one key, by the types it is annotated with."""
    for field in template.fields:
        kinds: list[Kind] = []
        path = (field.parameter, *field.path)
        for annotation in _at(annotations.get(field.parameter, Any), field.path):
            for each in _leaves(annotation):
                _check_enum(each, path, template, owner)
                kinds += _kinds(each)
        for one, other in combinations(dict.fromkeys(kinds), 2):
            if _may_meet(one, other):
                raise _refusal(f"may be {one.name} or {other.name}", path, template, owner)


def _check_enum(leaf: Any, path: tuple[str, ...], template: Template, owner: str) -> None:
    """An Enum may have members of several types."""
    if not (isinstance(leaf, type) and issubclass(leaf, Enum)):
        return
    texts = _texts(leaf)
    if len(set(texts)) < len(texts):
        raise _refusal(f"is of {leaf.__name__}, which has members that look alike", path, template, owner)


def _refusal(what: str, path: tuple[str, ...], template: Template, owner: str) -> UsageError:
    field = f"the field {'.'.join(path)!r} of {template.described} of {owner}"
    return UsageError(
        f"{field} {what}: two values could give one {template.what}",
        hint=f"Annotate it with one type, or build the text of the {template.what} yourself, and pass that as one "
        "parameter.",
    )


def _may_meet(one: Kind, other: Kind) -> bool:
    if one.type == other.type:
        return False
    if one.texts is not None and other.texts is not None:
        return not one.texts.isdisjoint(other.texts)
    if one.texts is None and other.texts is None:
        return one.looks == other.looks or {one.looks, other.looks} in _MEET
    few, many = (one, other) if other.texts is None else (other, one)
    return any(_LOOKS[many.looks].fullmatch(text) for text in few.texts or ())


def _at(annotation: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """The annotations that are found at a dotted path into what is annotated so; none where that is not known."""
    if not path:
        yield annotation
        return
    for leaf in _leaves(annotation):
        inner = _annotations(leaf)
        if path[0] in inner:
            yield from _at(inner[path[0]], path[1:])


def _annotations(leaf: Any) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(leaf, include_extras=True)
    except Exception:  # noqa: BLE001 - a foreign class may be annotated with anything
        return {}


def _leaves(annotation: Any) -> Iterator[Any]:
    """The types that an annotation means, one by one; a value of a Literal stands for itself."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        yield from _leaves(annotation.__origin__)
    elif origin in _UNIONS:
        for each in typing.get_args(annotation):
            yield from _leaves(each)
    elif origin is Literal:
        for value in typing.get_args(annotation):
            yield _Value(value)
    elif hasattr(annotation, "__supertype__"):  # a NewType
        yield from _leaves(annotation.__supertype__)
    elif hasattr(annotation, "__value__"):  # `type Name = ...`
        yield from _leaves(annotation.__value__)
    else:
        yield annotation


class _Value(NamedTuple):
    """A value that a Literal lists."""

    value: object


# Of a type and its subclass, the subclass comes first.
_PLAIN: tuple[tuple[str, type], ...] = (
    ("str", str),
    ("bool", bool),
    ("int", int),
    ("float", float),
    ("Decimal", Decimal),
    ("datetime", datetime),
    ("date", date),
)


def _kinds(leaf: Any) -> list[Kind]:
    """What is known of the texts that such values have; nothing if their type is left open, or has none."""
    if isinstance(leaf, _Value):
        text = _text(leaf.value)
        return [] if text is None else [each._replace(texts=frozenset({text})) for each in _kinds(type(leaf.value))]
    if not isinstance(leaf, type):
        return []
    plain = next((name for name, of_type in _PLAIN if issubclass(leaf, of_type)), "")
    if issubclass(leaf, Flag):  # any sum of its members is a value, too
        return [Kind(plain or leaf, leaf.__name__, "int")]
    if issubclass(leaf, Enum):
        return [Kind(plain or leaf, leaf.__name__, plain, frozenset(_texts(leaf)))]
    if leaf.__module__ == "uuid":  # by name: the kernel imports no source of chance
        plain = "UUID"
    return [Kind(plain, plain, plain)] if plain else []


def _texts(leaf: type[Enum]) -> list[str]:
    """Those of its members that have one."""
    return [text for member in list(leaf) if (text := _text(member)) is not None]


def _text(value: object) -> str | None:
    """The text of a value in a key; None if it has none."""
    try:
        return text_of(value)
    except UsageError:
        return None
