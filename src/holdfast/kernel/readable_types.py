"""Annotations of what is stored: which of them can never be read back.

A value is stored as JSON, and read back as a value of its annotation. That takes a type which says what is in it: the
types of JSON, dataclasses, Structs, typed dicts, named tuples, enums, dates, Decimal, UUID, bytes, unions of them, and
models that validate by themselves (pydantic). Any is whatever the JSON says. Of `object`, of a plain class, of a
callable or a generator nothing is known, so the first value of it would fail, after the work was done. `object` alone,
as the whole annotation, is taken for Any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import inspect

_MODEL = "model_validate"
_ANYTHING = "Write Any where it may be anything that JSON holds."
_SOMETHING = "Use a dataclass, a msgspec Struct, a pydantic model or types of JSON, or Any for whatever JSON holds."


class Unreadable(msgspec.Struct, frozen=True):
    """The part of an annotation that cannot be read back, and what to write instead."""

    part: str
    cure: str


def unreadable(annotation: Any) -> Unreadable | None:
    """What cannot be read back in values of this annotation, if anything; None if that is not known."""
    if annotation is object:
        return None
    try:
        described = inspect.type_info(annotation)
    except Exception:  # noqa: BLE001 - a type may raise anything while it is looked at, and is not refused for it
        return None
    for where, part in _parts(described):
        if isinstance(part, inspect.CustomType):
            name = part.cls.__name__
            return Unreadable(f"{name}{where}", _ANYTHING if name == "object" else _SOMETHING)
    return None


def _parts(described: inspect.Type) -> Iterator[tuple[str, inspect.Type]]:
    """The types that an annotation is made of, each with where it stands; models are left to themselves."""
    left: list[tuple[str, inspect.Type]] = [("", described)]
    seen: set[int] = set()  # a type may contain itself
    while left:
        where, part = left.pop()
        if id(part) in seen or (isinstance(part, inspect.CustomType) and hasattr(part.cls, _MODEL)):
            continue
        seen.add(id(part))
        yield where, part
        for name in reversed(part.__struct_fields__):
            for child in _several(getattr(part, name)):
                if isinstance(child, inspect.Field):
                    left.append((f" in {part.cls.__name__}.{child.name}", child.type))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
                elif isinstance(child, inspect.Type):
                    left.append((where, child))


def _several(value: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
