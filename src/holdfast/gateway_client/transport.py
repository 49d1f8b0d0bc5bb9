"""Requests to a gateway: JSON there, JSON or a raised error back.

Rules
- A request that changes something is repeated after a broken connection only if a repetition does no harm: it reads, or
  carries an id by which the gateway knows it again. Otherwise the caller is told that it is not known what happened.
- What a limit has refused was not done: it is sent again when the gateway says, if that is within two seconds.
- A problem becomes the error that it was at the gateway, by its code.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec
from msgspec import UNSET, Struct

from holdfast import errors, wire
from holdfast.errors import GatewayUnavailable, HoldfastError, InvalidConfig
from holdfast.ports.clock import Clock

if TYPE_CHECKING:  # not part of the core install
    import httpx2

T = TypeVar("T")
JSON = {"Content-Type": "application/json"}
RESPONSE_SECONDS = 30.0  # beyond what the request itself asks the gateway to wait
PAUSES_SECONDS = (0.1, 0.5, 1.0)
LIMIT_SECONDS_MAX = 2.0  # a limit that asks for more patience is for the caller to see
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_encode = msgspec.json.Encoder().encode


def _kinds(root: type[HoldfastError]) -> dict[str, type[HoldfastError]]:
    found = {root.code: root}
    for kind in root.__subclasses__():
        found |= _kinds(kind)
    return found


KINDS = _kinds(errors.HoldfastError)


class GatewayReply(Struct, frozen=True):
    """The response of a gateway, if it is no problem."""

    status: int
    body: bytes
    warning: str = ""

    def of(self, kind: type[T]) -> T:
        """The body, as this type."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except ValueError as error:  # msgspec's errors, and that of text which is no UTF-8
            raise GatewayUnavailable(
                "the response is not that of a gateway of Holdfast, or of one of another version"
            ) from error


class Transport:
    """A connection to one gateway."""

    def __init__(self, url: str, *, api_key: str | None, clock: Clock) -> None:
        parts = _parts(url)
        self.url = url.rstrip("/")
        # A password for a proxy may be part of the address, and is not for logs and messages.
        self.shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self.namespace = ""  # as the last reply has said it
        self._clock = clock
        self._httpx2 = _httpx2()
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        near = parts.hostname in LOOPBACK  # a proxy of the machine has nothing to do with it
        self._http = self._httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=RESPONSE_SECONDS, trust_env=not near
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def get(
        self, path: str, query: Mapping[str, Any] | None = None, *, wait_seconds: float = 0.0
    ) -> GatewayReply:
        """Read something."""
        return await self._ask("GET", path, query=query, wait_seconds=wait_seconds, again=True)

    async def post(
        self,
        path: str,
        body: object = UNSET,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
        again: bool,
    ) -> GatewayReply:
        """Change something; `again` says that the same request may be made twice."""
        data = None if body is UNSET else _encode(body)
        return await self._ask(
            "POST", path, query=query, body=data, headers=headers, wait_seconds=wait_seconds, again=again
        )

    async def patch(self, path: str, body: object) -> GatewayReply:
        """Set something: to do so twice is to do it once."""
        return await self._ask("PATCH", path, body=_encode(body), again=True)

    async def delete(self, path: str) -> GatewayReply:
        return await self._ask("DELETE", path, again=True)

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncGenerator[httpx2.Response]:
        """A response that goes on. Raises `GatewayUnavailable` if it breaks off."""
        timeout = self._httpx2.Timeout(
            RESPONSE_SECONDS, read=2 * RESPONSE_SECONDS
        )  # the gateway gives a sign every 15 s
        try:
            async with self._http.stream("GET", path, headers=dict(headers), timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                    raise _error(response)
                yield response
        except self._httpx2.HTTPError as error:
            raise self._unavailable(error) from error

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
        again: bool,
    ) -> GatewayReply:
        for pause in (*PAUSES_SECONDS, None):
            delay = pause
            try:
                response = await self._http.request(
                    method,
                    path,
                    params=None if query is None else dict(query),
                    content=body,
                    headers={**(JSON if body is not None else {}), **(headers or {})},
                    timeout=RESPONSE_SECONDS + wait_seconds,
                )
            except self._httpx2.ConnectError as error:  # it was not even sent
                problem, repeat = self._unavailable(error), True
            except self._httpx2.HTTPError as error:
                problem, repeat = self._unavailable(error), again
            except AttributeError as error:
                # On uvloop a connection whose peer is gone right after the connect has no socket any more, and anyio
                # stumbles over that before anything is sent.
                problem, repeat = self._unavailable(error), again
            else:
                if response.is_success:
                    self.namespace = unquote(response.headers.get(wire.NAMESPACE, "")) or self.namespace
                    warning = unquote(response.headers.get(wire.WARNING, ""))
                    return GatewayReply(response.status_code, response.content, warning)
                problem = _error(response)
                if isinstance(problem, errors.LimitExceeded):  # it was refused before anything was done
                    repeat, delay = True, _patience(problem, pause)
                else:
                    repeat = isinstance(problem, errors.TransientError) and again
            if delay is None or not repeat:
                raise problem
            await self._clock.pause(delay)
        raise AssertionError  # pragma: no cover - the last round returns or raises

    def _unavailable(self, error: Exception) -> GatewayUnavailable:
        why = str(error) or type(error).__name__
        problem = GatewayUnavailable(f"the gateway at {self.shown} did not respond: {why}")
        problem.__cause__ = error
        return problem


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and url.isprintable():
            return parts
    except ValueError:  # a port that is none, brackets that do not match
        pass
    raise InvalidConfig(
        f"{url.rpartition('@')[2]!r} is not the address of a gateway", hint="Use, for example, http://127.0.0.1:8787."
    )


def _httpx2() -> Any:
    try:
        import httpx2  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            "a Client needs the package httpx2",
            hint="Install Holdfast with its extra `client`.",
        ) from error
    return httpx2


def _patience(refusal: errors.LimitExceeded, pause: float | None) -> float | None:
    """How long to wait before it is sent again: as long as the gateway says, if that is not long."""
    return None if pause is None or refusal.retry_after > LIMIT_SECONDS_MAX else max(pause, refusal.retry_after)


def _error(response: httpx2.Response) -> HoldfastError:
    """What went wrong at the gateway, as the error that it was there."""
    try:
        problem = msgspec.json.decode(response.content, type=wire.ProblemView)
    except ValueError:  # as above
        return GatewayUnavailable(
            f"{response.url.path} returned {response.status_code}, and not as a gateway of Holdfast does",
            hint=f"Use the address {target}." if (target := response.headers.get("location")) else "",
        )
    kind = KINDS.get(problem.code, errors.TransientError if problem.status >= 500 else errors.UsageError)
    error = kind.__new__(kind)  # each class words its message from parts; here it is worded already
    HoldfastError.__init__(error, problem.detail, hint=problem.hint)
    error.__dict__["run_id"] = None if problem.run_id is UNSET else problem.run_id
    if isinstance(error, errors.LimitExceeded):
        after = response.headers.get("retry-after", "")
        error.retry_after = float(after) if after.isdigit() else 1.0
    if problem.error is not UNSET:
        error.__dict__ |= {
            "error_type": problem.error.type,
            "error_message": problem.error.message,
            "line": problem.error.line,
        }
    return error
