"""What a shell may complete: workflow names and the ids of recent runs. It never complains and never makes a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable

from holdfast import config
from holdfast.cli.output import Output
from holdfast.cli.session import Session

RECENT = 20
PATIENCE_SECONDS = 2.0


def workflow_names(incomplete: str) -> list[str]:
    async def names(session: Session) -> Iterable[str]:
        return [each.name for each in await session.workflows()]

    return _complete(names, incomplete)


def run_ids(incomplete: str) -> list[str]:
    async def ids(session: Session) -> Iterable[str]:
        async with session.caller() as caller:
            return [run.id async for run in caller.runs(limit=RECENT)]

    return _complete(ids, incomplete)


def _complete(ask: Callable[[Session], Awaitable[Iterable[str]]], incomplete: str) -> list[str]:
    async def found() -> Iterable[str]:
        session = Session(lambda: config.read(file=None, environment=os.environ, options={}), Output(as_json=True))
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await ask(session)

    try:
        return [each for each in asyncio.run(found()) if each.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - between two key strokes no one wants to read an error
        return []
