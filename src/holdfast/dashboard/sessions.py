"""Sessions: who looks at the pages, and the token that shows that a form came from them.

Rules
- A session is a signed cookie: an id drawn at random, the id of the API key that was shown at login, an end. Nothing is
  stored, so any replica knows a session; the secret behind the signature is one document that all replicas share.
- A session is renewed by use, for a week at most. Logging out forgets it in this browser; a thief of the cookie is
  shut out by that end, or by revoking the key.
- The cookie never holds the API key itself. That key is looked up for every request: revoked, it opens nothing more.
- The token of a form is the session's id, signed for another purpose. It dies with the session.
"""

from __future__ import annotations

import hmac
import secrets

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engine.api.documents import COMMON, Documents
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.times import Instant, Millis

COOKIE = "holdfast_session"
LIFETIME_MS = Millis(12 * 3_600_000)
LIFETIME_MS_MAX = Millis(7 * 86_400_000)
KIND, ID = "secret", "dashboard"


class BrowserSession(Struct, frozen=True):
    """A visitor; `key_id` is empty as long as no API key has been shown."""

    id: str
    key_id: str
    begun_at_ms: Instant
    until_ms: Instant


class Sessions:
    """Makes and knows sessions."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._secret: bytes | None = None

    async def prepare(self) -> None:
        """Know the secret. The process that needs it first makes it."""
        while self._secret is None:
            found = await self._documents.read(KIND, ID)
            if found is not None:
                self._secret = found.body
                return
            version = next_version(None, now_ms=self._documents.now_ms())
            await self._documents.write(Writing(Document(COMMON, KIND, ID, version, secrets.token_bytes(32))))

    def begin(self, key_id: str = "") -> BrowserSession:
        now_ms = self._documents.now_ms()
        return BrowserSession(secrets.token_urlsafe(24), key_id, now_ms, now_ms + LIFETIME_MS)

    def known(self, cookie: str | None) -> BrowserSession | None:
        """The session that a cookie holds, if it is one of ours and has not ended."""
        parts = (cookie or "").split(".")
        if len(parts) != 5 or not all(each.isascii() and each.isdigit() and len(each) <= 15 for each in parts[2:4]):
            return None
        session = BrowserSession(parts[0], parts[1], Instant(int(parts[2])), Instant(int(parts[3])))
        if not hmac.compare_digest(self.cookie(session).encode(), (cookie or "").encode("utf-8", "replace")):
            return None
        return session if session.until_ms > self._documents.now_ms() else None

    def renewed(self, session: BrowserSession) -> BrowserSession:
        """The same one with a later end, if half of its life is over. Forms that are open stay good."""
        now_ms = self._documents.now_ms()
        if session.until_ms - now_ms > LIFETIME_MS // 2:
            return session
        until_ms = min(now_ms + LIFETIME_MS, session.begun_at_ms + LIFETIME_MS_MAX)
        return replace(session, until_ms=max(session.until_ms, until_ms))

    def cookie(self, session: BrowserSession) -> str:
        body = f"{session.id}.{session.key_id}.{session.begun_at_ms}.{session.until_ms}"
        return f"{body}.{self._signed('session', body)}"

    def token(self, session: BrowserSession) -> str:
        """What every form of this session carries."""
        return self._signed("form", session.id)

    def fits(self, session: BrowserSession, token: str) -> bool:
        return hmac.compare_digest(self.token(session).encode(), token.encode("utf-8", "replace"))

    def _signed(self, purpose: str, text: str) -> str:
        assert self._secret is not None, "prepare() comes first"
        return hmac.new(self._secret, f"{purpose}|{text}".encode(), "sha256").hexdigest()
