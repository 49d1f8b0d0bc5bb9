"""API keys: who may ask a gateway for what.

A token is `hf_<id>_<secret>`. The id finds the key; the secret proves that one holds it. Only a digest of the secret
is stored. A secret has 256 bits of chance, so that a plain digest is enough: there is nothing to guess.

Scopes, each of which contains the ones before it:

    read     look at runs, workflows, workers
    write    start, signal, cancel, retry, resume, fork; serve remote effects
    admin    release keys of runs; create and revoke API keys

Rules
- A key is bound to one namespace, forever.
- An id that no key has is checked like a wrong secret, with the same work and the same answer.
- Only who has the right secret is told that a key was revoked or has expired.
"""

from __future__ import annotations

import re
from datetime import datetime
from hashlib import blake2b
from hmac import compare_digest
from typing import Literal, NamedTuple, get_args

from msgspec import Struct, field

from holdfast.kernel.times import Instant
from holdfast.kernel.units import utc_of, utc_or_none

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Standing = Literal["good", "unknown", "revoked", "expired"]

TAIL = 4
_TOKEN = re.compile(r"hf_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)


class ApiKey(Struct, frozen=True, kw_only=True, gc=False):
    """A key as it may be shown: `tail` are the last characters of its token."""

    id: str
    name: str
    namespace: str
    scope: Scope
    tail: str
    created_at_ms: Instant = field(name="created_ms")
    expires_at_ms: Instant | None = field(default=None, name="expires_ms")
    revoked_at_ms: Instant | None = field(default=None, name="revoked_ms")

    @property
    def created_at(self) -> datetime:
        return utc_of(self.created_at_ms)

    @property
    def expires_at(self) -> datetime | None:
        """Until when it is good; None if it does not expire."""
        return utc_or_none(self.expires_at_ms)

    @property
    def revoked_at(self) -> datetime | None:
        """When it was revoked; None if it was not."""
        return utc_or_none(self.revoked_at_ms)


class Kept(Struct, frozen=True, gc=False):
    """A key as it is stored."""

    key: ApiKey
    digest: str


class Token(NamedTuple):
    """What a caller shows. Its text is a secret: it has no `str()` that tells it."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"Token(id={self.id!r})"

    @property
    def text(self) -> str:
        return f"hf_{self.id}_{self.secret}"


def parse(text: str) -> Token | None:
    """The parts of a token; None if it cannot be one."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else Token(found[1], found[2])


def digest_of(token: Token) -> str:
    """What is stored of a token. The id is part of it: a digest cannot be moved to another key."""
    return blake2b(token.text.encode(), digest_size=32, person=b"holdfast api key").hexdigest()


def standing(kept: Kept | None, token: Token, *, now_ms: Instant) -> Standing:
    """What a token is worth, given what is stored under its id."""
    proved = compare_digest(digest_of(token), _NO_DIGEST if kept is None else kept.digest)
    if kept is None or not proved:
        return "unknown"
    return lasting(kept.key, now_ms=now_ms)


def lasting(key: ApiKey, *, now_ms: Instant) -> Standing:
    """Whether a key is still good, apart from who holds it."""
    if key.revoked_at_ms is not None:
        return "revoked"
    if key.expires_at_ms is not None and key.expires_at_ms <= now_ms:
        return "expired"
    return "good"


_NO_DIGEST = "-" * 64


def allows(has: Scope, needs: Scope) -> bool:
    """Whether a key of scope `has` may do what `needs` the other."""
    return SCOPES.index(has) >= SCOPES.index(needs)
