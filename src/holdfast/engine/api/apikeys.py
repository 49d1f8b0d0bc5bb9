"""API keys in the store: made, checked, listed, revoked.

What is read of a key is remembered, until a notice says that another process has changed a key, and for two seconds at
most. So a key that is revoked anywhere is refused everywhere at once, and two seconds later if the notice was lost.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.engine.pace import Pace
from holdfast.errors import NotAuthenticated, UnknownApiKey, UsageError
from holdfast.kernel.apikeys import (
    SCOPES,
    TAIL,
    ApiKey,
    Kept,
    Scope,
    Standing,
    Token,
    digest_of,
    lasting,
    parse,
    standing,
)
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.keys import checked
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import Duration, milliseconds
from holdfast.ports.store import Store

KIND = "api_key"
SHOWN_AFTERWARDS_MS = Millis(30 * 86_400_000)  # how long a key that no longer works is listed
NAME_MAX = 100
_EVERYWHERE = ""  # keys are looked up by id, before the namespace is known

_REFUSALS: dict[Standing, str] = {
    "unknown": "this API key is not known here",
    "revoked": "this API key was revoked",
    "expired": "this API key has expired",
}


class _Read(NamedTuple):
    kept: Kept | None
    at_ms: Instant


class ApiKeys:
    """The API keys of all namespaces of a store."""

    def __init__(self, store: Store, *, pace: Pace) -> None:
        self._store = store
        self._pace = pace
        self._remembered: OrderedDict[str, _Read] = OrderedDict()
        self._forgotten = 0  # how often

    def forget(self) -> None:
        """Another process has changed a key: what is remembered, or being read, may be outdated."""
        self._remembered.clear()
        self._forgotten += 1

    async def create(
        self, name: str, *, namespace: str, scope: Scope, expires_in: Duration | None = None
    ) -> tuple[str, ApiKey]:
        """A new key. The token is returned this once: it cannot be read later."""
        checked(namespace, what="namespace")
        if not 1 <= len(name) <= NAME_MAX:
            raise UsageError(f"a key's name of {len(name)} characters is not possible", hint=f"Use 1 to {NAME_MAX}.")
        if scope not in SCOPES:
            raise UsageError(f"scope {scope!r} is not possible", hint=f"Use one of {', '.join(SCOPES)}.")
        # Not from the port of ids: what a test may seed, an attacker could guess.
        token = Token(secrets.token_hex(8), secrets.token_urlsafe(32))
        now_ms = self._store.now_ms()
        key = ApiKey(
            id=token.id,
            name=name,
            namespace=namespace,
            scope=scope,
            tail=token.text[-TAIL:],
            created_at_ms=now_ms,
            expires_at_ms=None if expires_in is None else now_ms + milliseconds(expires_in),
        )
        stored = await self._store.write(
            [Writing(_document(Kept(key, digest_of(token)), replaces=None, now_ms=now_ms))]
        )
        assert stored == [True]  # an id of 64 random bits is new
        return token.text, key

    async def authenticate(self, token: str) -> ApiKey:
        """The key whose token this is. Raises `NotAuthenticated`."""
        parts = parse(token)
        if parts is None:
            raise NotAuthenticated("this is no API key")
        kept = await self._recently(parts.id)
        return _accepted(kept, standing(kept, parts, now_ms=self._store.now_ms()))

    async def known(self, id: str) -> ApiKey:
        """The key of this id as it is now, for a caller that has authenticated it before. Raises `NotAuthenticated`."""
        kept = await self._read(id)
        return _accepted(kept, "unknown" if kept is None else lasting(kept.key, now_ms=self._store.now_ms()))

    async def listed(self, namespace: str) -> list[ApiKey]:
        """The keys of a namespace, oldest first; those that no longer work are shown for a while."""
        found: list[ApiKey] = []
        after, limit = "", self._pace.api_keys_page
        while True:
            page = await self._store.documents(_EVERYWHERE, KIND, after=after, limit=limit)
            found += [key for document in page if (key := _kept(document).key).namespace == namespace]
            if len(page) < limit:
                return sorted(found, key=lambda key: (key.created_at_ms, key.id))
            after = page[-1].id

    async def revoke(self, namespace: str, id: str) -> ApiKey:
        """Make a key worthless, for good. Other processes are told, or notice within two seconds."""
        while True:
            document = await self._store.document(_EVERYWHERE, KIND, id)
            if document is None or (kept := _kept(document)).key.namespace != namespace:
                raise UnknownApiKey(f"no API key of namespace {namespace!r} has the id {id!r}")
            now_ms, version = self._store.now_ms(), document.version
            if kept.key.revoked_at_ms is None:
                revoked = replace(kept, key=replace(kept.key, revoked_at_ms=now_ms))
                document = _document(revoked, replaces=version, now_ms=now_ms)
            else:
                revoked = kept  # offered again all the same: what was read may not be safe from a failover yet
            [stored] = await self._store.write([Writing(document, version)])
            if stored:
                self._remembered.pop(id, None)
                return revoked.key

    async def _read(self, id: str) -> Kept | None:
        document = await self._store.document(_EVERYWHERE, KIND, id)
        return None if document is None else _kept(document)

    async def _recently(self, id: str) -> Kept | None:
        """What is stored under an id, or was two seconds ago. That nothing is there is remembered as well."""
        known = self._remembered.get(id)
        if known is not None and self._store.now_ms() - known.at_ms < self._pace.api_key_ms:
            return known.kept
        asked_at_ms, forgotten = self._store.now_ms(), self._forgotten
        kept = await self._read(id)
        if forgotten != self._forgotten:
            return kept  # it may have been read before the change
        self._remembered[id] = _Read(kept, asked_at_ms)
        self._remembered.move_to_end(id)
        if len(self._remembered) > self._pace.api_keys_max:
            self._remembered.popitem(last=False)
        return kept


def _accepted(kept: Kept | None, standing: Standing) -> ApiKey:
    if kept is None or standing != "good":
        raise NotAuthenticated(_REFUSALS[standing])
    return kept.key


def _document(kept: Kept, *, replaces: int | None, now_ms: Instant) -> Document:
    ends_at_ms = kept.key.expires_at_ms if kept.key.revoked_at_ms is None else kept.key.revoked_at_ms
    return Document(
        _EVERYWHERE,
        KIND,
        kept.key.id,
        next_version(replaces, now_ms=now_ms),
        msgspec.json.encode(kept),
        expires_at_ms=None if ends_at_ms is None else ends_at_ms + SHOWN_AFTERWARDS_MS,
    )


def _kept(document: Document) -> Kept:
    return msgspec.json.decode(document.body, type=Kept)
