"""The filters of the page of runs: read from the query, asked of the store, written back into links.

Attributes are written as people would say them, parted by blanks:

    customer=ada        text                     cents>=500 cents<900   a range of numbers
    vip=true            a truth value            due<2026-12-01         a range of instants, in UTC
    order="42"          text, whatever it looks like
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace
from starlette.datastructures import QueryParams

from holdfast.client import Caller, Runs
from holdfast.errors import UsageError
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.searches import Range

_TERM = re.compile(
    r"""\s*(?P<name>[A-Za-z_][A-Za-z0-9_.-]{0,63})(?P<op>>=|<=|=|>|<)(?P<value>"[^"]*"|[^\s"]+)(?=\s|$)"""
)
_BOUNDS = {">=": "ge", ">": "gt", "<=": "le", "<": "lt"}
_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,15})?")


class Filters(Struct, frozen=True, kw_only=True):
    """What the form of the page holds, as it was typed."""

    workflow: str = ""
    status: tuple[str, ...] = ()
    key: str = ""
    attributes: str = ""
    created_after: str = ""
    created_before: str = ""
    after: str = ""  # the cursor

    @property
    def is_set(self) -> bool:
        return replace(self, after="") != Filters()

    def runs(self, caller: Caller) -> Runs:
        """The search that is meant, or a `UsageError`."""
        return caller.runs(
            self.workflow or None,
            self.status or None,
            attributes=conditions(self.attributes),
            key_prefix=self.key or None,
            created_after=_instant(self.created_after),
            created_before=_instant(self.created_before),
        )

    def query(self, **changes: str | tuple[str, ...]) -> str:
        """These filters as a query, with some of them changed."""
        changed = replace(self, **changes)
        fields = {name: getattr(changed, name) for name in self.__struct_fields__}
        return urlencode({name: value for name, value in fields.items() if value}, doseq=True)


def from_query(query: QueryParams) -> Filters:
    """What a query says; what it does not know, it leaves alone."""
    texts = {name: query.get(name, "").strip() for name in Filters.__struct_fields__ if name != "status"}
    return Filters(**texts, status=tuple(dict.fromkeys(status for status in query.getlist("status") if status)))


def conditions(text: str) -> dict[str, Scalar | Range]:
    """The conditions that `text` says, or a `UsageError`."""
    exact: dict[str, Scalar] = {}
    bounds: dict[str, dict[str, int | float | datetime]] = {}
    at = 0
    text = text.strip()
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None:
            raise _unclear(text[at:])
        name, value = term["name"], _value(term["value"])
        if term["op"] == "=":
            exact[name] = value
        elif isinstance(value, int | float | datetime) and not isinstance(value, bool):
            bounds.setdefault(name, {})[_BOUNDS[term["op"]]] = value
        else:
            raise UsageError(
                f"{term[0].strip()!r} compares with {term['value']}, which is no number and no instant",
                hint="Ranges are of numbers or instants: cents>=500, due<2026-12-01.",
            )
        at = term.end()
    return exact | _ranges(bounds, exact)


def _ranges(bounds: Mapping[str, dict[str, int | float | datetime]], exact: Mapping[str, Scalar]) -> dict[str, Range]:
    both = sorted(bounds.keys() & exact.keys())
    if both:
        raise UsageError(f"attribute {both[0]!r} is to equal a value and to lie in a range", hint="Use one of them.")
    return {name: Range(**its_bounds) for name, its_bounds in bounds.items()}


def _value(text: str) -> Scalar:
    if text.startswith('"'):
        return text.strip('"')
    if text in {"true", "false"}:
        return text == "true"
    if number := _NUMBER.fullmatch(text):
        return float(text) if number[1] else int(text)
    if text[:4].isdigit() and text[4:5] == "-":
        return _instant(text) or text
    return text


def _instant(text: str) -> datetime | None:
    if not text:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r:.40} is not an instant", hint="Write 2026-11-16 or 2026-11-16T09:30.") from None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def _unclear(rest: str) -> UsageError:
    return UsageError(
        f"{rest!r:.60} is not a condition on an attribute", hint='Write customer=ada, cents>=500 or order="42".'
    )
