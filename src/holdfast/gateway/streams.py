"""What happens to a run, as it happens: Server-Sent Events.

    retry: 1000                 how soon to come back when the connection breaks
    id: 4                       the cursor; a reader that comes back sends it as `Last-Event-ID`, to any replica
    event: performed            the word of the journal's entry
    data: {...}                 the entry
    event: end                  the run has ended; `data` is the run. Do not come back
    : a comment                 nothing, now and then, so that a dead connection is noticed

Rules
- A stream that breaks off without `end` is to be continued: the gateway closes, the store is in trouble, or it has
  lasted long enough. A reader that comes back sends its key again, so that a revoked key is of no more use.
- What is sent waits for the reader. A slow one holds up itself and no other; the server cuts it off at last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from typing import Annotated, Any, Protocol, cast

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.client import Run
from holdfast.errors import HoldfastError
from holdfast.events import PartFailed
from holdfast.gateway.endpoints import ApiRequest, Endpoint, Header
from holdfast.gateway.problems import Malformed
from holdfast.journal import RunEvent
from holdfast.wire import outbound

MEDIA_TYPE = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
RECONNECT = b"retry: 1000\n\n"
HEARTBEAT = b": still here\n\n"
_encode = msgspec.json.Encoder().encode


class Write(Protocol):
    """Sends a part of the body; returns when the reader has room for more."""

    async def __call__(self, data: bytes, *, more: bool = True) -> None: ...


class FollowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Where to go on; `Last-Event-ID` counts more."""

    after: (
        Annotated[int, Meta(ge=0, description="The cursor of the last event that was seen.", examples=[12])] | None
    ) = None


async def events(request: ApiRequest[FollowQuery, None]) -> Response:
    """Server-sent events: each entry of the journal, with its cursor as the id, and `end` with the run at last.

    A reader that comes back goes on behind the last event that it saw, at any gateway of the store.
    """
    run = await request.caller.verbs.get(request.path["run_id"])
    after = _cursor(request)
    with ExitStack() as stack:
        stack.enter_context(request.context.wait_limit.slot())
        return Following(request, run, after=after, slot=stack.pop_all())  # it frees the slot when it is over


def _cursor(request: ApiRequest[FollowQuery, None]) -> int | None:
    seen = request.sent.header(LAST_EVENT_ID) or ""
    if not seen:
        return request.query.after
    if not (seen.isascii() and seen.isdigit() and len(seen) <= 18):
        raise Malformed(f"{LAST_EVENT_ID} {seen!r:.40} is not a cursor", hint="Send the `id` of the last event.")
    return int(seen)


class Following(Response):
    """A response that lasts as long as the run, the reader and the gateway do."""

    def __init__(
        self, request: ApiRequest[FollowQuery, None], run: Run[Any], *, after: int | None, slot: ExitStack
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}, media_type=MEDIA_TYPE)
        del self.headers["content-length"]  # it is not known yet
        self._request = request
        self._run = run
        self._after = after
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's shape
        async def write(data: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        wait_limit = self._request.context.wait_limit
        seconds = self._request.context.settings.stream_seconds_max
        with self._slot:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await wait_limit.first_of(self._tell(write), seconds=seconds, gone=self._request.sent.until_gone)
            await write(b"", more=False)

    async def _tell(self, write: Write) -> None:
        """All that happens, and at last that it has ended."""
        beating = asyncio.create_task(self._beat(write))
        try:
            await write(RECONNECT)
            async with aclosing(cast("AsyncGenerator[RunEvent]", self._run.events(self._after))) as events:
                async for event in events:
                    await self._check_key()
                    await write(_event(event.entry.what, outbound.entry(event.entry), cursor=event.cursor))
            await self._check_key()
            await write(_event("end", _encode(outbound.run(await self._run.refresh()))))
        except HoldfastError:
            pass  # a reader that comes back is told what is the matter
        except Exception as error:  # noqa: BLE001 - as in any handler
            self._request.context.hf.runtime.emit(
                PartFailed("GET /v1/runs/{run_id}/events", f"{type(error).__name__}: {error}")
            )
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _check_key(self) -> None:
        """Raises once the key was revoked, or has expired: nothing is told to its holder any more."""
        await self._request.context.auth.caller(self._request.sent.header("authorization"))

    async def _beat(self, write: Write) -> None:
        closing = self._request.context.wait_limit.closing
        seconds = self._request.context.settings.heartbeat_seconds
        while not closing.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await closing.wait()
            except TimeoutError:
                await write(HEARTBEAT)


def _event(name: str, data: bytes, *, cursor: int | None = None) -> bytes:
    identified = b"" if cursor is None else b"id: %d\n" % cursor
    return b"%sevent: %s\ndata: %s\n\n" % (identified, name.encode(), data)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/events",
        handler=events,
        summary="What happens to a run, as it happens, until it has ended",
        scope="read",
        query=FollowQuery,
        responses={200: str},
        refuses=(404,),
        headers={
            LAST_EVENT_ID: Header(
                "The cursor of the last event that was seen.", pattern="^[0-9]+$", length_max=18, example="12"
            )
        },
        media=MEDIA_TYPE,
    ),
)
