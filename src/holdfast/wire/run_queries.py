"""A search for runs in one line, as people write it: what the search box of the dashboard and `holdfast runs` take.

    o-1042                      a run id or a part of one, or the beginning of a key
    status:failed,blocked       one of these statuses; a status alone will do: failed
    workflow:shop.checkout      of this workflow
    key:order:                  keys that begin so
    id:4f1c                     a run id, the beginning or the end of one
    created_after:2h            an instant, or how long ago; created_before, finished_after, finished_before
    customer=ada cents>=500     conditions on attributes, see `wire.filters`

Rules
- Words are parted by blanks, all of them must hold, and each may be said once. A value with blanks needs quotes.
- A field of the run is written with a colon, an attribute with a sign. So no attribute is hidden by a field.
- One word that is none of these is looked for: as a whole id, as the beginning of a key, then as a part of an id.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast.client import Caller, Page, Run, Runs
from holdfast.errors import UnknownRun, UsageError
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.runs import Status
from holdfast.kernel.searches import Range
from holdfast.wire import filters, short_ids
from holdfast.wire.times import instant_of

INSTANTS = ("created_after", "created_before", "finished_after", "finished_before")
FIELDS = ("status", "workflow", "key", "id", *INSTANTS)
_STATUSES = frozenset(map(str, Status))
_WORD = re.compile(r"""(?:"[^"]*"|\{[^}]*\}|[^\s"{]|(?<=\S)[{])+""")
_FIELD = re.compile(r"([a-z_]+):(.*)", re.DOTALL)
_HINT = "Write status:failed, workflow:shop.checkout, key:order:, created_after:2h or customer=ada."


class QueryWord(NamedTuple):
    """One condition as it was written. `field` is empty for what has none: an attribute, or a word to look for."""

    field: str
    value: str

    def __str__(self) -> str:
        if not self.field:
            return self.value
        return f"{self.field}:{quoted(self.value)}"


class RunQuery(Struct, frozen=True, kw_only=True):
    """What the words mean."""

    statuses: tuple[str, ...] = ()
    workflow: str = ""
    key: str = ""
    id: str = ""
    lookup: str = ""  # a word that may be an id or a key
    attributes: dict[str, Scalar | Range] = {}
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None

    @property
    def means_one_run(self) -> bool:
        """Whether nothing but an id, or what may be one, was written."""
        wanted = self.id or self.lookup
        return bool(wanted) and self in (RunQuery(id=wanted), RunQuery(lookup=wanted))

    @property
    def by_key(self) -> RunQuery:
        """The same, with a word that may be an id or a key taken for the beginning of a key."""
        return replace(self, lookup="", key=self.key or self.lookup)

    @property
    def misspelt(self) -> str:
        """What to write instead, if the word that is looked for seems to be a field with a wrong letter; else empty.

        Only a guess: `order:o-1` is a word to look for, and so is `statue:7` if keys begin so.
        """
        field = _FIELD.fullmatch(self.lookup)
        meant = difflib.get_close_matches(field[1], FIELDS, n=1) if field is not None else []
        if field is None or not meant:
            return ""
        return f"{field[1]!r} is not a field; is {meant[0]}:{field[2]} meant? The fields are {', '.join(FIELDS)}."

    def runs(
        self, caller: Caller, *, roots_only: bool = False, newest_first: bool = True, limit: int | None = None
    ) -> Runs[Any]:
        """The search that is meant, without its id: a run is found by that alone, see `find`."""
        return caller.runs(
            self.workflow or None,
            self.statuses or None,
            attributes=self.attributes,
            key_prefix=self.key or None,
            created_after=self.created_after,
            created_before=self.created_before,
            finished_after=self.finished_after,
            finished_before=self.finished_before,
            newest_first=newest_first,
            roots_only=roots_only,
            limit=limit,
        )


def words_of(text: str) -> tuple[QueryWord, ...]:
    """The words of a line. Raises `UsageError` if a quote is open."""
    words: list[QueryWord] = []
    at, text = 0, text.strip()
    while at < len(text):
        found = _WORD.match(text, at)
        if found is None or (found.end() < len(text) and not text[found.end()].isspace()):
            raise UsageError(f"{text[at:]!r:.60} has a quote that is not closed", hint=_HINT)
        words.append(_word(found[0]))
        at = found.end()
        while at < len(text) and text[at].isspace():
            at += 1
    return tuple(words)


def _word(text: str) -> QueryWord:
    field = _FIELD.fullmatch(text)
    if field is not None and field[1] in FIELDS:
        return QueryWord(field[1], field[2].replace('"', "") if field[2].startswith('"') else field[2])
    return QueryWord("status", text) if text in _STATUSES else QueryWord("", text)


def parse(text: str, *, now: datetime) -> RunQuery:
    """What a line means; `now` is what times that are written as durations are counted from. Raises `UsageError`."""
    query, conditions = _meaning(words_of(text), now)
    return replace(query, attributes=filters.parse(" ".join(conditions)))


def parse_each(texts: Iterable[str], *, now: datetime) -> RunQuery:
    """The same of texts that are one word each, as a shell has parted them: blanks in them need no quotes."""
    query, conditions = _meaning(tuple(map(_word, texts)), now)
    return replace(query, attributes=filters.parse_each(conditions))


def _meaning(words: Iterable[QueryWord], now: datetime) -> tuple[RunQuery, list[str]]:
    """What the words mean, but for the conditions on attributes."""
    said: dict[str, str] = {}
    conditions: list[str] = []
    for word in words:
        field = word.field
        if not field and any(sign in word.value for sign in "=<>"):
            conditions.append(word.value)
            continue
        if not word.value:
            raise UsageError(f"{word} says no {field}", hint=_HINT)
        if field == "status" and field in said:
            said[field] += f",{word.value}"
        elif said.setdefault(field, word.value) is not word.value:
            before = str(QueryWord(field, said[field]))
            raise UsageError(f"{before!r} and {str(word)!r} cannot both be meant", hint=_HINT)
    instants: dict[str, Any] = {name: instant_of(said.get(name), now=now) for name in INSTANTS}
    query = RunQuery(
        statuses=_statuses(said.get("status", "")),
        workflow=said.get("workflow", ""),
        key=said.get("key", ""),
        id=said.get("id", ""),
        lookup=said.get("", ""),
        **instants,
    )
    return query, conditions


def _statuses(text: str) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(text.split(","))) if text else ()
    for each in wanted:
        if each not in _STATUSES:
            raise UsageError(f"{each!r:.40} is not a status", hint=f"A status is one of: {', '.join(Status)}.")
    return wanted


def text_of(words: Iterable[QueryWord]) -> str:
    """The line that these words make."""
    return " ".join(map(str, words))


def quoted(value: str) -> str:
    """A value as a word: in quotes if it has blanks."""
    return f'"{value}"' if re.search(r"\s", value) or not value else value


def with_status(text: str, status: str) -> str:
    """The line with one status more, or without it if it is there: what a click on it means."""
    words = words_of(text)
    before = [each for word in words if word.field == "status" for each in word.value.split(",")]
    after = [each for each in before if each != status] if status in before else [*before, status]
    others = [word for word in words if word.field != "status"]
    return text_of([*others, QueryWord("status", ",".join(after))] if after else others)


def with_field(text: str, field: str, value: str) -> str:
    """The line with another value of a field; without the field if the value is empty."""
    others = [word for word in words_of(text) if word.field != field]
    return text_of([*others, QueryWord(field, value)] if value else others)


async def find(caller: Caller, query: RunQuery, *, roots_only: bool, after: str | None, limit: int) -> Page[Any]:
    """A page of the runs that a query means."""
    if query.id:
        return _only(query, await _by_id(caller, query.id))
    if not query.lookup:
        return await query.runs(caller, roots_only=roots_only).page(after=after, limit=limit)
    if query.key:
        raise UsageError(f"{query.lookup!r} and the key {query.key!r} cannot both be meant", hint=_HINT)
    found = await _whole_id(caller, query.lookup)
    if found is not None:
        return _only(query, found)
    page = await query.by_key.runs(caller, roots_only=roots_only).page(after=after, limit=limit)
    if page.runs or after or not short_ids.is_short(query.lookup):
        return page
    try:
        return _only(query, await short_ids.find(caller, query.lookup))
    except UnknownRun:
        return page


def is_id_of(query: RunQuery, run: Run[Any]) -> bool:
    """Whether a query means this run by its id, and not by its key."""
    wanted = query.id or query.lookup
    return run.id == wanted or (not (run.key or "").startswith(wanted) and wanted in run.id)


async def _by_id(caller: Caller, reference: str) -> Run[Any] | None:
    try:
        if short_ids.is_short(reference):
            return await short_ids.find(caller, reference)
        return await caller.get(reference)
    except UnknownRun:
        return None


async def _whole_id(caller: Caller, reference: str) -> Run[Any] | None:
    try:
        return await caller.get(reference)
    except UnknownRun:
        return None


def _only(query: RunQuery, run: Run[Any] | None) -> Page[Any]:
    """The run that an id names, unless something else that was said about it is not so."""
    fits = (
        run is not None
        and query.workflow in {"", run.workflow}
        and (not query.statuses or run.status in query.statuses)
    )
    return Page((cast("Run[Any]", run),) if fits else (), None)
