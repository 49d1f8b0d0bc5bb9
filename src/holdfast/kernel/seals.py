"""How sealed payloads look at rest, and how a process that cannot open them knows them.

Rules
- A value that is kept inline is JSON in a journal: sealed it is a string of base64, and `Value.sealed` names the key.
  A signal that is under way has the same in `payload` and `sealed`.
- A large value says by its first bytes that it is sealed, and under which key. Its name cannot: it is a digest of the
  plain text, which the run may have stored before it was sealed. JSON never begins with these bytes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode

from msgspec import Raw

from holdfast.errors import SealedPayload

KEY_ID_LENGTH_MAX = 64
_MARK = b"\x00sealed\x00"


def text_of(data: bytes) -> Raw:
    """Sealed bytes as JSON."""
    return Raw(b'"' + b64encode(data) + b'"')


def data_in(text: bytes) -> bytes:
    """The sealed bytes in such JSON; none if it was damaged, which is the seal's to refuse."""
    try:
        return b64decode(text[1:-1], validate=True)
    except ValueError:
        return b""


def blob_of(key_id: str, data: bytes) -> bytes:
    """Sealed bytes as a large value is stored."""
    return b"".join((_MARK, key_id.encode(), b"\x00", data))


def is_sealed(blob: bytes) -> bool:
    """Whether a stored large value is sealed."""
    return blob.startswith(_MARK)


def parts_of(blob: bytes) -> tuple[str, bytes]:
    """The id of the key, and the sealed bytes, of a large value that is sealed."""
    key_id, _, data = blob[len(_MARK) :].partition(b"\x00")
    return key_id.decode(errors="replace"), data


def is_key_id(key_id: object) -> bool:
    """Whether the id of a key can be stored and shown: printable ASCII without spaces, and short."""
    return (
        isinstance(key_id, str)
        and 0 < len(key_id) <= KEY_ID_LENGTH_MAX
        and key_id.isascii()
        and key_id.isprintable()
        and " " not in key_id
    )


def refusal(key_id: str, why: str = "this process cannot open it") -> SealedPayload:
    """What is raised where a payload is needed, and sealed."""
    return SealedPayload(f"a payload is sealed under key {key_id!r}, and {why}")
