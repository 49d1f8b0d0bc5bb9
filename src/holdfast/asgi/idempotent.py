"""`Idempotency-Key` for people's own routes: a request that comes again gets the response of the first time.

The rules are in `holdfast.kernel.idempotency`; what is known about a key is a document in the store of a Holdfast. So
any process that has the same store may get the repetition.

    request                                   response
    ────────────────────────────────────────  ────────────────────────────────────────────────────────────────
    other method, websocket, no key needed    that of the application, untouched
    key is missing but required, or malformed 400
    body over the limit                       413
    new key                                   that of the application, kept before it is sent
    key of a request that is at work          409 with Retry-After; with `join=True` its response, once it is there
    key of a request that has its response    the same status, headers and body, with `Idempotency-Replayed: true`
    key of another request                    422
    the store cannot be asked                 503 with Retry-After; nothing was executed

All refusals are `application/problem+json`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple

from holdfast.asgi.errors import (
    AnotherRequest,
    AtWork,
    KeyMalformed,
    KeyMissing,
    NotKept,
    Refusal,
    RequestTooLarge,
    problem,
)
from holdfast.asgi.exchanges import RequestExecution
from holdfast.asgi.messages import DISCONNECTED, App, Message, Receive, Response, Scope, Send, header_values, response
from holdfast.asgi.request_lease import RequestLease
from holdfast.assembly import Holdfast
from holdfast.errors import InvalidConfig, TransientError, UsageError
from holdfast.events import RequestReplayed, RequestTakenOver
from holdfast.kernel import idempotency
from holdfast.kernel.documents import Document
from holdfast.kernel.idempotency import (
    KIND,
    Proceed,
    Replay,
    Reply,
    RequestBusy,
    RequestMismatch,
    RequestWanted,
    Unkept,
)
from holdfast.kernel.leases import checked_ttl
from holdfast.kernel.times import Millis
from holdfast.kernel.units import Duration, milliseconds

MIB = 1024 * 1024
DRAIN_SECONDS = 10.0


class ClientGone(Exception):
    """The client has closed its connection, and nothing has been begun for it."""


class AdmittedRequest(NamedTuple):
    """A request that this process may execute."""

    body: bytes
    wanted: RequestWanted
    held: Document


def authorization(scope: Scope) -> str:
    """The caller, by what it has shown to be let in."""
    return b",".join(header_values(scope, b"authorization")).decode("latin-1")


class Idempotent:
    """Middleware that executes a request with an `Idempotency-Key` once, and gives its repetitions the same response.

    `required` says whether a key must be sent: always, never, or as a function of the ASGI scope has it. `caller`
    names whose key it is: no caller ever gets the response of another. `retention` is how long a response is kept.
    With `join=True` the repetition of a request that is at work waits for its response. `lease` bounds how long the
    request of a process that died stays at work.
    """

    def __init__(
        self,
        app: App,
        *,
        holdfast: Holdfast,
        methods: Collection[str] = ("POST", "PATCH"),
        required: bool | Callable[[Scope], bool] = False,
        caller: Callable[[Scope], str] = authorization,
        retention: Duration = "24h",
        join: bool = False,
        lease: Duration = "30s",
        body_max: int = MIB,
        response_max: int = MIB,
    ) -> None:
        if isinstance(methods, str):
            raise InvalidConfig(
                f"methods={methods!r} is one text", hint='Pass a collection, such as {"POST", "PATCH"}.'
            )
        self._app = app
        self._documents = holdfast.runtime.documents
        self._methods = frozenset(method.upper() for method in methods)
        self._required = required
        self._caller = caller
        self._retention_ms = milliseconds(retention)
        self._join = join
        self._lease_ms = checked_ttl(milliseconds(lease))
        self._body_max = body_max
        self._response_max = response_max
        self._at_work: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, self._drain_first(receive), send)
        elif scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
        else:
            await self._handle(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            key = self._key(scope)
            admitted = None if key is None else await self._admit(key, scope, receive)
        except (Refusal, TransientError) as error:
            await _send(send, problem(error, scope))
        except ClientGone:
            return
        else:
            if admitted is None:
                await self._app(scope, receive, send)
            elif isinstance(admitted, Reply):
                await _send(send, self._replay(admitted, scope))
            else:
                await self._execute(admitted, scope, receive, send)

    def _key(self, scope: Scope) -> str | None:
        match header_values(scope, b"idempotency-key"):
            case []:
                if self._required(scope) if callable(self._required) else self._required:
                    raise KeyMissing(f"{scope['method']} {scope['path']} needs the header Idempotency-Key")
                return None
            case [value]:
                try:
                    return idempotency.key_of(value)
                except UsageError as error:
                    raise KeyMalformed(error.message, hint=error.hint) from error
            case values:
                raise KeyMalformed(f"the request has {len(values)} keys", hint="Send the header once.")

    async def _admit(self, key: str, scope: Scope, receive: Receive) -> AdmittedRequest | Reply:
        """The right to execute the request, or the response that it has got already."""
        body = await _body(scope, receive, self._body_max)
        path = scope.get("raw_path") or scope["path"].encode()
        wanted = RequestWanted(
            namespace=self._documents.namespace,
            id=idempotency.id_of(self._caller(scope), key),
            digest=idempotency.digest_of(scope["method"], path, scope["query_string"], body),
            holder=self._documents.ids.nonce(),
            lease_ms=self._lease_ms,
            retention_ms=self._retention_ms,
        )
        found: Document | None = None  # most keys are new: so the first look is a try
        with self._documents.following(KIND, wanted.id) as changed:
            while True:
                match idempotency.decide(found, wanted, now_ms=self._documents.now_ms()):
                    case Proceed(writing, overdue):
                        if await self._documents.write(writing):
                            if overdue:
                                self._documents.emit(RequestTakenOver(scope["method"], scope["path"]))
                            return AdmittedRequest(body, wanted, writing.document)
                    case Replay(reply):
                        return reply
                    case RequestBusy(for_ms) if self._join:
                        await _until(changed, receive, within_ms=for_ms)
                    case RequestBusy():
                        raise AtWork("the first request with this key is being executed")
                    case Unkept(status):
                        raise _not_kept(status)
                    case RequestMismatch():
                        raise AnotherRequest("the key was first sent with another request")
                changed.clear()
                found = await self._documents.read(KIND, wanted.id)

    async def _execute(self, admitted: AdmittedRequest, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application in a task of its own: it goes on to its end even if this request is cancelled."""
        wanted = admitted.wanted
        exchange = RequestExecution(
            RequestLease(self._documents, wanted, admitted.held),
            scope=scope,
            body=admitted.body,
            receive=receive,
            send=send,
            response_max=self._response_max,
            instead=lambda: self._response_of_the_other(wanted, scope),
            emit=self._documents.emit,
        )
        task = asyncio.create_task(exchange.execute(self._app))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)
        await asyncio.wait([task])
        await task

    async def _response_of_the_other(self, wanted: RequestWanted, scope: Scope) -> Response:
        """What the client gets if another process has taken its request over while it was executed here."""
        found = await self._documents.read(KIND, wanted.id)
        match idempotency.decide(found, wanted, now_ms=self._documents.now_ms()):
            case Replay(reply):
                return self._replay(reply, scope)
            case Unkept(status):
                return problem(_not_kept(status), scope)
            case _:
                return problem(AtWork("another process has taken this request over"), scope)

    def _replay(self, reply: Reply, scope: Scope) -> Response:
        self._documents.emit(RequestReplayed(scope["method"], scope["path"], reply.status))
        return response(reply.status, (*reply.headers, (b"idempotency-replayed", b"true")), reply.body or b"")

    def _drain_first(self, receive: Receive) -> Receive:
        """What is at work ends before the application shuts down: it needs the store, and what else it uses."""

        async def drained() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown" and self._at_work:
                await asyncio.wait(self._at_work, timeout=DRAIN_SECONDS)
            return message

        return drained


async def _body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body of the request."""
    for length in header_values(scope, b"content-length"):
        if length.isdigit() and int(length) > limit:
            raise RequestTooLarge(f"the body has {int(length):,} bytes; the limit is {limit:,}")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == DISCONNECTED:
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > limit:
            raise RequestTooLarge(f"the body has more than {limit:,} bytes")
        if not message.get("more_body", False):
            return bytes(body)


async def _until(changed: asyncio.Event, receive: Receive, *, within_ms: Millis) -> None:
    """Returns when the document may have changed, or in any case after that time."""
    changing, leaving = asyncio.ensure_future(changed.wait()), asyncio.ensure_future(receive())
    try:
        await asyncio.wait([changing, leaving], timeout=within_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        if leaving.done():
            raise ClientGone
    finally:
        changing.cancel()
        leaving.cancel()


async def _send(send: Send, messages: Response) -> None:
    for message in messages:
        await send(message)


def _not_kept(status: int) -> NotKept:
    return NotKept(f"the first request with this key got a response with status {status}")
