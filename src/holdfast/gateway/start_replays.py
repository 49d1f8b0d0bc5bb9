"""Starts that come again under their `Idempotency-Key`, where the run has a business key too.

The decisions are those of `kernel/start_requests`; this is the reading and writing around them.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast import wire
from holdfast.client import Run, Started
from holdfast.engine.api.documents import Documents
from holdfast.errors import TransientError, UnknownRun
from holdfast.events import RequestReplayed
from holdfast.gateway.endpoints import ApiRequest
from holdfast.gateway.problems import KeyOfAnotherRequest
from holdfast.kernel import start_requests
from holdfast.kernel.documents import Document
from holdfast.kernel.start_requests import AlreadyStarted, BindFirst, NamedStart, OtherStart, StartOnce
from holdfast.kernel.units import utc_of

CLOCK_MARGIN = timedelta(seconds=1)


class StartReplay:
    """One start under one header: what it led to the first time, or the right to make it now."""

    def __init__(self, request: ApiRequest[Any, wire.StartBody], *, header: str, workflow: str, join: bool) -> None:
        self._request = request
        self._verbs = request.caller.verbs
        self._documents: Documents = request.context.hf.runtime.documents_in(self._verbs.namespace)
        self._wanted: NamedStart = start_requests.named(
            self._verbs.namespace,
            caller=request.caller.id,
            header=header,
            workflow=workflow,
            join=join,
            body=_canonical(request.body),
        )
        self._held: Document | None = None
        self._began_at = utc_of(self._documents.now_ms())
        self._is_first = False  # of all that are remembered

    async def earlier(self) -> Started[Any] | None:
        """What the first request led to; None if the run is to be started now.

        Raises `KeyOfAnotherRequest` if the header belongs to another start.
        """
        found: Document | None = None  # most headers are new: so the first look is a try
        while True:
            match start_requests.decide(found, self._wanted, now_ms=self._documents.now_ms()):
                case BindFirst(writing):
                    if await self._documents.write(writing):
                        self._held, self._is_first = writing.document, True
                        return None
                    found = await self._documents.read(start_requests.KIND, self._wanted.id)
                case StartOnce(held):
                    self._held = held
                    return None
                case AlreadyStarted(run_id, created, held):
                    self._held = held
                    return await self._kept(run_id, created=created)
                case OtherStart():
                    raise KeyOfAnotherRequest("the Idempotency-Key was first sent with another start")

    async def keep(self, run: Run[Any], *, created: bool) -> None:
        """Remember what the start led to."""
        assert self._held is not None, "earlier() comes first"
        now_ms = self._documents.now_ms()
        writing = start_requests.started(self._held, self._wanted, run.id, created=created, now_ms=now_ms)
        # If it is refused, a repetition at the same time has stored the same run. If the store is in trouble, the run
        # is there all the same, and a repetition finds it by the id of its request.
        with suppress(TransientError):
            await self._documents.write(writing)

    def was_there(self, run: Run[Any]) -> bool:
        """Whether the run is older than this request: then an earlier one started it, and could not remember that."""
        # Where the header was new, an earlier request is a day old, or came by an earlier version. So there is room for
        # the clock of a server, which may be set back by a hair.
        return run.created_at < (self._began_at - CLOCK_MARGIN if self._is_first else self._began_at)

    def tell(self, status: int) -> None:
        """Report that a repetition gets the run of the first request."""
        self._documents.emit(RequestReplayed("POST", self._request.sent.path, status))

    async def _kept(self, run_id: str, *, created: bool) -> Started[Any] | None:
        try:
            return Started(await self._verbs.get(run_id), created)
        except UnknownRun:
            return None  # its retention is over, and the run was removed


def _canonical(body: wire.StartBody) -> bytes:
    """The body in a form that does not depend on the order of fields and on white space."""
    if body.input is not UNSET:
        body = replace(body, input=Raw(msgspec.json.encode(msgspec.json.decode(body.input), order="sorted")))
    return msgspec.json.encode(body, order="sorted")
