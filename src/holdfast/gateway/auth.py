"""Who sends a request: any process of this machine where the gateway is open, the holder of an API key elsewhere.

Rules
- What callers show is a secret. It is not kept here, and no error, log line or `repr` has it.
- A browser is on this machine, but the pages in it are not: a page from elsewhere may neither send anything to an open
  gateway nor, by a name that it makes point here, read from it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from holdfast.assembly import Holdfast
from holdfast.client import Caller
from holdfast.errors import NotAuthenticated, NotPermitted
from holdfast.gateway.endpoints import ApiCaller

NAME_MAX = 300  # what is longer names nothing, and is not remembered
_NAMES_A_MACHINE = frozenset({b"host", b"origin"})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class OpenAuth:
    """For a gateway that only this machine can reach: all callers may do everything, in one namespace.

    No key is needed. One that is shown is still looked at: a caller with a wrong key is mistaken about where it is, and
    would learn that only from the next gateway.
    """

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._any_caller = ApiCaller("local", "admin", hf)

    async def caller(self, authorization: str | None) -> ApiCaller:
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() == "bearer":  # other kinds are for a proxy in front
                await self._check(token.strip())
        return self._any_caller

    async def _check(self, token: str) -> None:
        try:
            await self._hf.api_keys.authenticate(token)
        except NotAuthenticated as error:
            raise NotAuthenticated(
                error.message, hint="This gateway is open and needs no API key: send none, or one that it knows."
            ) from None


class ApiKeyAuth:
    """For a gateway that others can reach: `Authorization: Bearer hf_...`."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._verbs: dict[str, Caller] = {}  # by namespace: no more than there are namespaces with keys

    async def caller(self, authorization: str | None) -> ApiCaller:
        if authorization is None:
            raise NotAuthenticated("the request has no Authorization header")
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise NotAuthenticated("the Authorization header is not of the kind Bearer")
        key = await self._hf.api_keys.authenticate(token.strip())
        return ApiCaller(key.id, key.scope, self._verbs_in(key.namespace), key.name)

    def _verbs_in(self, namespace: str) -> Caller:
        if namespace not in self._verbs:
            self._verbs[namespace] = self._hf.namespaced(namespace)
        return self._verbs[namespace]


def refuse_foreign(headers: Iterable[tuple[bytes, bytes]]) -> NotPermitted | None:
    """Why a request with these headers is not served by an open gateway: a web page from elsewhere may have sent it."""
    refusal = None
    for name, value in headers:
        if name in _NAMES_A_MACHINE:
            url = b"//" + value if name == b"host" else value
            if len(value) > NAME_MAX or not _is_here(url):
                refusal = NotPermitted(
                    f"the {name.decode().capitalize()} header names another machine, and this gateway is open to its "
                    "own only",
                    hint="Use http://127.0.0.1 or http://localhost, or require API keys.",
                )
    return refusal


@lru_cache(maxsize=256)
def _is_here(url: bytes) -> bool:
    """Whether the URL names this machine."""
    try:
        return is_loopback(urlsplit(url.decode()).hostname or "")
    except ValueError:
        return False
