"""Writes exported journals into a directory, one file per run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import UsageError
from holdfast.kernel import exports
from holdfast.kernel.exports import ExportedJournal

EXPORTED_MAX = 1_000
EXPORTED_BYTES_MAX = 64 * 1024 * 1024


class Exported(NamedTuple):
    """What was written: the files, and the ids of runs that were left out because they are too large."""

    files: tuple[Path, ...]
    left_out: tuple[str, ...]


async def export_into(directory: Path, journals: AsyncIterator[ExportedJournal], bytes_max: int) -> Exported:
    """Write them. A file that is there already is replaced: the run may have gone on."""
    files: list[Path] = []
    left_out: list[str] = []
    async for journal in journals:
        data = exports.encode(journal)
        if len(data) > bytes_max:
            left_out.append(journal.run.id)
            continue
        path = directory / exports.name_of(journal.run.id)
        await asyncio.to_thread(_write, path, data)
        files.append(path)
    return Exported(tuple(files), tuple(left_out))


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all: a file that was cut off must not look like a journal."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="Name another directory.") from error
