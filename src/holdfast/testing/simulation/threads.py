"""Sync effects without threads: the loop calls them itself, so that everything has one order."""

from __future__ import annotations

import asyncio
from asyncio import events

from holdfast.engine.runs.threads import DaemonThreads


class InlineThreads(DaemonThreads):
    """Calls what it is given at the next turn of the loop. In virtual time a call takes none, so none is given up."""

    def _hire(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(self._call_next)

    def _call_next(self) -> None:
        if self._jobs.empty() or (job := self._jobs.get()) is None:
            return
        loop = events._get_running_loop()  # noqa: SLF001 - documented for loop authors
        events._set_running_loop(None)  # noqa: SLF001 - as in a thread
        try:
            self._execute(job)
        finally:
            events._set_running_loop(loop)  # noqa: SLF001
