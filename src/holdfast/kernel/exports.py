"""Exported journals: one run in one file, with all that a replay needs, so that code can be tried on it anywhere.

    {"format": 1, "run": {...}, "journal": [...], "blobs": {digest: base64}}

Rules
- A file says its format. One that is newer is refused, and one that is damaged as well: nothing is guessed.
- `journal` is the journal as it is stored. `blobs` are the large values that it names.
- A file has the id of its run as its name.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct, field

from holdfast.errors import UsageError
from holdfast.kernel.journal import Entry
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import NO_TIME, Instant

FORMAT = 1
SUFFIX = ".json"
_HINT = "Export it again: holdfast journals export DIR"


class ExportedRun(Struct, frozen=True, gc=False, kw_only=True):
    """What a replay needs of a run's row."""

    id: str
    namespace: str
    workflow: str
    key: str | None
    version: str
    status: Status
    length: int
    created_at_ms: Instant = field(name="created_ms")
    started_at_ms: Instant | None = field(name="started_ms")


class ExportedJournal(Struct, frozen=True, gc=False, kw_only=True):
    """One run, as it is in a file."""

    format: int = FORMAT
    run: ExportedRun
    journal: tuple[Entry, ...]
    blobs: dict[str, bytes] = {}

    def row(self) -> Run:
        """The row of the run, as far as a replay needs it."""
        return Run(
            **{name: getattr(self.run, name) for name in ExportedRun.__struct_fields__},
            queue="",
            priority=0,
            digest="",
            request_id="",
            retention_ms=NO_TIME,
        )


def export(run: Run, journal: tuple[Entry, ...], blobs: Mapping[str, bytes]) -> ExportedJournal:
    """The run and its journal, to be written into a file."""
    chosen = ExportedRun(**{name: getattr(run, name) for name in ExportedRun.__struct_fields__})
    return ExportedJournal(run=chosen, journal=journal, blobs=dict(blobs))


def name_of(run_id: str) -> str:
    """The name of the file in which the run is."""
    return f"{run_id}{SUFFIX}"


encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ExportedJournal).decode


def decode(data: bytes, *, name: str) -> ExportedJournal:
    """What was exported; `name` is that of the file, for the error if it cannot be read."""
    try:
        exported = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{name} is not an exported journal: {error}", hint=_HINT) from error
    if exported.format > FORMAT:
        raise UsageError(f"{name} has format {exported.format}, this version reads {FORMAT}", hint=_HINT)
    if not exported.journal or len(exported.journal) > exported.run.length:
        raise UsageError(f"{name} is not an exported journal: it is cut off", hint=_HINT)
    return exported
