"""The filters of the page of runs: read from the query, asked of the store, written back into links.

What a person types is one line, `q`; how it is written is said in `wire.run_queries`. The other parameters are those
that links to this page have always had: each is the same as a word of that line, and is shown as one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace
from starlette.datastructures import QueryParams

from holdfast.client import Caller, Runs
from holdfast.errors import UsageError
from holdfast.wire import run_queries
from holdfast.wire.filters import parse as attribute_conditions
from holdfast.wire.run_queries import QueryWord, RunQuery

WITH_CHILDREN = "shown"


class Filters(Struct, frozen=True, kw_only=True):
    """What the address holds, as it was typed."""

    q: str = ""
    children: str = ""  # whether runs that other runs have started are shown, too
    workflow: str = ""
    status: tuple[str, ...] = ()
    key: str = ""
    attributes: str = ""
    created_after: str = ""
    created_before: str = ""
    after: str = ""  # the cursor

    @property
    def is_set(self) -> bool:
        return replace(self, after="", children="") != Filters()

    @property
    def text(self) -> str:
        """All of it as one line."""
        words = [
            *(QueryWord("workflow", self.workflow) for _ in self.workflow[:1]),
            *(QueryWord("status", ",".join(self.status)) for _ in self.status[:1]),
            *(QueryWord("key", self.key) for _ in self.key[:1]),
            *(QueryWord("created_after", self.created_after) for _ in self.created_after[:1]),
            *(QueryWord("created_before", self.created_before) for _ in self.created_before[:1]),
        ]
        return " ".join(part for part in (*map(str, words), self.attributes, self.q) if part)

    @property
    def in_one_line(self) -> Filters:
        """The same with everything in `q`."""
        return Filters(q=self.text, children=self.children, after=self.after)

    @property
    def roots_only(self) -> bool:
        return self.children != WITH_CHILDREN

    def meant(self, now: datetime) -> RunQuery:
        """What it says, or a `UsageError`."""
        attribute_conditions(self.attributes)  # there a lone word is a mistake, and nothing to look for
        return run_queries.parse(self.text, now=now)

    def runs(self, caller: Caller, now: datetime) -> Runs[Any]:
        """The runs that it means, or a `UsageError`: not one that is named by its id."""
        meant = self.meant(now)
        if meant.id:
            raise UsageError(f"id:{meant.id} means one run", hint="Act on the page of that run.")
        return meant.by_key.runs(caller, roots_only=self.roots_only)

    def settled(self, now: datetime) -> Filters:
        """The same in one line, with instants instead of how long ago: a form that is sent twice means the same."""
        meant, text = self.meant(now), self.text
        for name in run_queries.INSTANTS:
            if (instant := getattr(meant, name)) is not None:
                text = run_queries.with_field(text, name, instant.isoformat())
        return Filters(q=text, children=self.children)

    def query(self, **changes: str | tuple[str, ...]) -> str:
        """These filters as a query, with some of them changed."""
        changed = replace(self, **changes)
        fields = {name: getattr(changed, name) for name in self.__struct_fields__}
        return urlencode({name: value for name, value in fields.items() if value}, doseq=True)


def from_query(query: QueryParams) -> Filters:
    """What a query says, of that which it may say."""
    texts = {name: query.get(name, "").strip() for name in Filters.__struct_fields__ if name != "status"}
    return Filters(**texts, status=tuple(dict.fromkeys(status for status in query.getlist("status") if status)))


def link(text: str, *, children: bool = False) -> str:
    """The address of the page of runs that shows what a line means."""
    filters = Filters(q=text, children=WITH_CHILDREN if children else "")
    return f"/runs?{filters.query()}" if filters != Filters() else "/runs"
