"""Rows to values and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from holdfast.kernel import attributes
from holdfast.kernel.journal import Continued, Entry, Started, Value
from holdfast.kernel.messages import Message
from holdfast.kernel.runs import Run, Status
from holdfast.ports.store import History, Member, Serves

# The table's columns bear the names that the fields are stored by. The input is the journal's first entry, and stays
# there.
FIELDS = Run.__struct_encode_fields__[:-1]
assert Run.__struct_encode_fields__[-1] == "input"
_FIRST = "(SELECT entries FROM journal WHERE run_id = runs.id ORDER BY position LIMIT 1)"
COLUMNS = f"{','.join(FIELDS)},{_FIRST}"
COLUMNS_OF_RUNS = f"{','.join(f'runs.{field}' for field in FIELDS)},{_FIRST}"  # where other tables are joined
_STATUS = FIELDS.index("status")
_STATUSES = {status.value: status for status in Status}
_HOLDS_KEY, _ASIDE = FIELDS.index("holds_key"), FIELDS.index("aside")

encode_entries = msgspec.json.Encoder().encode
_decode_entries = msgspec.json.Decoder(list[Entry]).decode
_decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_first = msgspec.json.Decoder(Started | Continued).decode
encode_message = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(Message).decode
decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


def run_of(row: Sequence[Any]) -> Run:
    values = list(row)
    values[_STATUS] = _STATUSES[values[_STATUS]]
    values[_HOLDS_KEY] = bool(values[_HOLDS_KEY])
    values[_ASIDE] = bool(values[_ASIDE])
    values[-1] = _input_of(values[-1])
    return Run(*values)


def _input_of(entries: bytes) -> Value | None:
    """The input that a journal begins with; None if it cannot be read. Reading the whole journal says why."""
    try:
        return _decode_first(_decode_raw(entries)[0]).input
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it must not hold up the claims of other runs
        return None


def journal_of(rows: Sequence[Sequence[Any]]) -> tuple[Entry, ...]:
    return tuple(entry for (entries,) in rows for entry in _decode_entries(entries))


def fresh_history_of(row: Sequence[Any]) -> History | None:
    """All that there is of a run which has just been claimed for the first time: the row has its whole journal.

    None of one that has been executed before, or has messages; and if it cannot be read: reading the history says why.
    """
    run = run_of(row)
    if run.epoch > 1 or run.unread:
        return None
    try:
        journal = journal_of([row[-1:]])
    except Exception:  # noqa: BLE001 - as above
        return None
    return History(run, journal) if len(journal) == run.length else None


def messages_of(rows: Sequence[Sequence[Any]]) -> tuple[Message, ...]:
    return tuple(_decode_message(body) for (body,) in rows)


def message_of(body: bytes) -> Message | None:
    """A message; None if it cannot be read, perhaps since a newer version wrote it. It must not hold up the others."""
    try:
        return _decode_message(body)
    except ValueError:  # msgspec's errors, and that of text which is no UTF-8
        return None


def member_of(row: Sequence[Any]) -> Member:
    owner, joined_at_ms, until_ms, namespace, workflows, host, pid, concurrency, holds = row
    serves = Serves(namespace, decode_names(workflows), host, pid, concurrency)
    return Member(owner, joined_at_ms, until_ms, serves, holds)


def attribute_rows(run: Run) -> list[dict[str, Any]]:
    """One row of the index for each attribute."""
    place = {"run_id": run.id, "namespace": run.namespace, "created_ms": run.created_at_ms}
    found: list[dict[str, Any]] = []
    for name, value in attributes.decode(run.attributes).items():
        kind, indexed = attributes.indexed(value)
        found.append({**place, "name": name, "kind": kind, "value": indexed})
    return found


def row_of(run: Run) -> tuple[Any, ...]:
    """The row of a run, in the order of `FIELDS`. The input is no column: it stays in the journal."""
    return astuple(run)[:-1]
