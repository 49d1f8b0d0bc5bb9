"""The filters of the page of runs: read from the query, asked of the store, written back into links.

How conditions on attributes are written is said in `wire.filters`.
"""

from __future__ import annotations

from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace
from starlette.datastructures import QueryParams

from holdfast.client import Caller, Runs
from holdfast.wire.filters import parse
from holdfast.wire.times import instant_of


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
            attributes=parse(self.attributes),
            key_prefix=self.key or None,
            created_after=instant_of(self.created_after or None),
            created_before=instant_of(self.created_before or None),
        )

    def query(self, **changes: str | tuple[str, ...]) -> str:
        """These filters as a query, with some of them changed."""
        changed = replace(self, **changes)
        fields = {name: getattr(changed, name) for name in self.__struct_fields__}
        return urlencode({name: value for name, value in fields.items() if value}, doseq=True)


def from_query(query: QueryParams) -> Filters:
    """What a query says, of that which it may say."""
    texts = {name: query.get(name, "").strip() for name in Filters.__struct_fields__ if name != "status"}
    return Filters(**texts, status=tuple(dict.fromkeys(status for status in query.getlist("status") if status)))
