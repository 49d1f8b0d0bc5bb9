"""Stores that a test has to itself, and that are gone afterwards."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

from holdfast.assembly import Holdfast, Options


@contextmanager
def temporary_store() -> Generator[str]:
    """The URL of a new store: a SQLite file in a directory of its own, which is removed at the end.

    What one Holdfast leaves in it the next one finds, in this process or another: so a test can stop and start.
    """
    with TemporaryDirectory(prefix="holdfast-test-") as directory:
        yield f"sqlite:///{Path(directory) / 'holdfast.db'}"


@asynccontextmanager
async def temporary_holdfast(*, worker: bool = True, **options: Unpack[Options]) -> AsyncGenerator[Holdfast]:
    """A running Holdfast on a temporary store, with the options that `Holdfast` has."""
    with temporary_store() as url:
        async with Holdfast(url, worker=worker, **options) as hf:
            yield hf
