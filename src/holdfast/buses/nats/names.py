"""Any text as one token of a NATS subject, or as the name of a stream or a consumer.

Small letters, digits and `-` stay as they are; every other byte of the text, as UTF-8, becomes `_` and two hex digits.
So `.`, `*`, `>` and spaces cannot widen a subject or end it, two texts never share a token, and not even on a file
system that takes capitals for small letters do two streams share a directory.

After a `_` comes a hex digit. So `__` never occurs in a token, and may join several. A token that would be too long
is cut, and `__` and the hash of the whole text follow.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from string import ascii_lowercase, digits

_PLAIN = frozenset((ascii_lowercase + digits + "-").encode())
_LENGTH_MAX = 120
_CUT_AT = 48


@lru_cache(maxsize=1024)  # every hint asks, and mostly for the same few
def token(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    # No token of a subject may be empty.
    spelled = "".join(chr(byte) if byte in _PLAIN else f"_{byte:02x}" for byte in raw) or "_"
    if len(spelled) <= _LENGTH_MAX:
        return spelled
    return f"{spelled[:_CUT_AT]}__{sha256(raw).hexdigest()}"


class Names:
    """What things of one store are called in NATS. `hf` keeps them apart from what others use the same servers for."""

    def __init__(self, store: str) -> None:
        self._store = token(store)

    def for_all(self, subject: str) -> str:
        return f"hf.{self._store}.all.{token(subject)}"

    def for_one(self, group: str) -> str:
        return f"hf.{self._store}.one.{token(group)}"

    def topic(self, topic: str) -> str:
        return f"hf.{self._store}.topic.{token(topic)}"

    def stream(self, topic: str) -> str:
        return f"{self.streams}{token(topic)}"

    @property
    def streams(self) -> str:
        """What the name of every stream of this store begins with."""
        return f"hf__{self._store}__"
