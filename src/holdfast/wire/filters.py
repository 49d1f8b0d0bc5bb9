"""Conditions on attributes, as people write them: the one grammar of the command line and the dashboard.

    customer=ada        text                     cents>=500 cents<900   a range of numbers
    vip=true            a truth value            due<2026-12-01         a range of instants, in UTC
    order="42"          text, whatever it looks like
    due={"at": "2026-12-01T12:00:00Z"}           an instant, as JSON has it everywhere else

A value is JSON or else text; the bound of a range may be a date. The dashboard takes all conditions in one field,
parted by blanks, so a value with blanks needs quotes there; a shell parts them by itself. What sets an attribute
reads values in the same way, so that the same words find the run again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import UsageError
from holdfast.kernel.attributes import NAME, Scalar
from holdfast.kernel.searches import Range
from holdfast.wire.times import instant_of
from holdfast.wire.types import At

_BOUNDS = {">=": "ge", ">": "gt", "<=": "le", "<": "lt"}
_HEAD = re.compile(rf"\s*(?P<name>{NAME.pattern})(?P<sign>>=|<=|=|>|<)")
_VALUE = re.compile(r"""(?P<value>"[^"]*"|\{[^}]*\}|[^\s"{][^\s"]*)(?=\s|$)""")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


class Term(NamedTuple):
    """One condition, as it was written."""

    name: str
    sign: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.value}"


def parse(text: str) -> dict[str, Scalar | Range]:
    """The conditions that one text says, parted by blanks. Raises `UsageError`."""
    return _conditions(_terms(text.strip()))


def parse_each(texts: Iterable[str]) -> dict[str, Scalar | Range]:
    """The same of texts that hold one condition each, up to their ends."""
    return _conditions(map(_term, texts))


def value_of(text: str) -> Scalar:
    """The value that a person means: JSON if it is some, else the text itself."""
    try:
        value: Any = msgspec.json.decode(text)
    except RecursionError as error:
        raise UsageError("a value is nested too deeply", hint="Send less depth.") from error
    except (msgspec.DecodeError, UnicodeEncodeError):
        # A quoted text that JSON cannot read, such as one with a lone backslash, is still the text between its quotes.
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if isinstance(value, str | int | float):
        return value
    try:
        return msgspec.convert(value, At).at
    except msgspec.ValidationError as error:
        raise UsageError(
            f"an attribute cannot be {text:.60}", hint='Instants are written {"at": "2026-01-31T12:00:00Z"}.'
        ) from error


def _bound_of(text: str) -> Scalar:
    """The same of a bound, which may be a date as well: text has no ranges."""
    instant = instant_of(text) if _DATE.fullmatch(text) else None
    return value_of(text) if instant is None else instant


def _terms(text: str) -> Iterator[Term]:
    at = 0
    while at < len(text):
        head = _HEAD.match(text, at)
        value = None if head is None else _VALUE.match(text, head.end())
        if head is None or value is None:
            raise _unclear(text[at:])
        yield Term(head["name"], head["sign"], value["value"])
        at = value.end()


def _term(text: str) -> Term:
    head = _HEAD.match(text)
    if head is None:
        raise _unclear(text)
    return Term(head["name"], head["sign"], text[head.end() :])


def _conditions(terms: Iterable[Term]) -> dict[str, Scalar | Range]:
    exact: dict[str, Scalar] = {}
    bounds: dict[str, dict[str, float | datetime]] = {}
    for term in terms:
        value = value_of(term.value) if term.sign == "=" else _bound_of(term.value)
        if term.name in exact or (term.sign == "=" and term.name in bounds):
            raise UsageError(
                f"{str(term)!r} is one condition too many", hint=f"Say one value of {term.name!r}, or one range."
            )
        if term.sign == "=":
            exact[term.name] = value
        elif isinstance(value, int | float | datetime) and not isinstance(value, bool):
            bounds.setdefault(term.name, {})[_BOUNDS[term.sign]] = value
        else:
            raise UsageError(
                f"{str(term)!r} compares with {term.value}, which is no number and no instant",
                hint="Ranges are of numbers or instants: cents>=500, due<2026-12-01.",
            )
    return exact | {name: Range(**its_bounds) for name, its_bounds in bounds.items()}


def _unclear(rest: str) -> UsageError:
    return UsageError(
        f"{rest!r:.60} is not a condition on an attribute", hint='Write customer=ada, cents>=500 or order="42".'
    )
