"""One execution of a handler: it is given the request, and its response is kept before it is sent.

    stage        begins when                                       a message of the handler
    ───────────  ────────────────────────────────────────────────  ────────────────────────────────────────────
    COLLECTING   it is called                                      is collected; with the last one, the
                                                                   response is kept, and then sent
    PASSING      its response is too large to be kept,             is sent at once
                 or a stream of events: the key is settled without
    CLOSED       its response is complete, or another process has  is dropped
                 taken the request over

While its response is collected, the handler is not told that the client has gone: it runs to its end, for the client
that will ask again. Once its response is passed on, it is told, or a stream might never end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from holdfast.asgi.errors import problem
from holdfast.asgi.messages import DISCONNECTED, App, Message, Receive, Response, Scope, Send
from holdfast.asgi.request_lease import RequestLease
from holdfast.errors import HoldfastError, TransientError
from holdfast.events import Emit, ReplyNotKept, RequestOvertaken
from holdfast.kernel.idempotency import Reply, is_final, kept_headers

FAILED = Reply(500)


class ResponseStage(Enum):
    """How far the response has come; see the table above."""

    COLLECTING = "collecting"
    PASSING = "passing"
    CLOSED = "closed"


class RequestExecution:
    """Stands between a handler and the client."""

    def __init__(
        self,
        lease: RequestLease,
        *,
        scope: Scope,
        body: bytes,
        receive: Receive,
        send: Send,
        response_max: int,
        instead: Callable[[], Awaitable[Response]],
        emit: Emit,
    ) -> None:
        self._lease = lease
        # Without the extensions of responses, a handler responds with the two plain messages.
        extensions: dict[str, Any] = scope.get("extensions") or {}
        plain = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
        self._scope: Scope = {**scope, "extensions": plain}
        self._request: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._receive = receive
        self._send = send
        self._response_max = response_max
        self._instead = instead  # what to send if another process has taken the request over
        self._emit = emit
        self._stage = ResponseStage.COLLECTING
        self._collected = asyncio.Event()
        self._start: Message = {}
        self._body = bytearray()

    async def execute(self, app: App) -> None:
        """Call the handler. Whatever it raises before it has responded is raised, and the next attempt may begin."""
        try:
            await app(self._scope, self.receive, self.send)
        finally:
            if self._stage is ResponseStage.COLLECTING:
                with contextlib.suppress(HoldfastError):  # then the lease says it
                    await self._settle(FAILED)
            self._become(ResponseStage.CLOSED)

    async def receive(self) -> Message:
        """What the handler is told by the client."""
        if self._request is not None:
            request, self._request = self._request, None
            return request
        await self._collected.wait()
        return await self._receive() if self._stage is ResponseStage.PASSING else {"type": DISCONNECTED}

    async def send(self, message: Message) -> None:
        """What the handler tells the client."""
        if self._stage is ResponseStage.PASSING:
            await self._send(message)
        elif self._stage is ResponseStage.CLOSED:
            return
        elif message["type"] == "http.response.start":
            self._start = message
            if why := self._cannot_be_kept():
                await self._pass_on(why)
        else:
            await self._collect(message)

    async def _collect(self, message: Message) -> None:
        self._body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(self._body) > self._response_max:
            await self._pass_on(f"it has more than {self._response_max:,} bytes", more=more)
        elif not more:
            status, headers, body = self._start["status"], self._start.get("headers", ()), bytes(self._body)
            instead = await self._keep(Reply(status, kept_headers(headers), body))
            await self._finish(instead or (self._start, {**message, "body": body}))

    async def _pass_on(self, why: str, *, more: bool = True) -> None:
        """Settle the key without the response, and pass the response on from now on."""
        if is_final(self._start["status"]):
            self._emit(ReplyNotKept(self._scope["method"], self._scope["path"], why))
        if instead := await self._keep(Reply(self._start["status"])):
            await self._finish(instead)
            return
        self._become(ResponseStage.PASSING)
        await self._send(self._start)
        if self._body:
            await self._send({"type": "http.response.body", "body": bytes(self._body), "more_body": more})

    async def _keep(self, reply: Reply) -> Response | None:
        """Keep this response of the handler. Returns what has to be sent instead of it, or None."""
        try:
            return None if await self._settle(reply) else await self._instead()
        except TransientError as error:
            self._emit(ReplyNotKept(self._scope["method"], self._scope["path"], error.message))
            # While no other process can have taken it over, the response is true, even if it cannot be kept.
            return None if self._lease.left_ms > 0 else problem(error, self._scope)

    async def _settle(self, reply: Reply) -> bool:
        stored = await self._lease.settle(reply)
        if not stored:
            self._emit(RequestOvertaken(self._scope["method"], self._scope["path"]))
        return stored

    async def _finish(self, messages: Response) -> None:
        self._become(ResponseStage.CLOSED)
        with contextlib.suppress(OSError):  # the client has gone, and will ask again
            for message in messages:
                await self._send(message)

    def _become(self, stage: ResponseStage) -> None:
        self._stage = stage
        self._collected.set()

    def _cannot_be_kept(self) -> str:
        for name, value in self._start.get("headers", ()):
            if name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream"):
                return "it is a stream of events"
            if name.lower() == b"content-length" and value.isdigit() and int(value) > self._response_max:
                return f"it has {int(value):,} bytes; the limit is {self._response_max:,}"
        return ""
