"""The scripts: each checks a guard and writes, or reads. What they decide is in `holdfast.kernel.changes`.

Each is put together from files of `lua/`: what it shares with others first, its own text last. Every key that a script
touches is among its KEYS. So while a slot moves to another node, Redis itself sees that some of them are not there, and
lets us wait, instead of showing half a shard.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from holdfast.stores.redis.net.client import Script


@cache
def _text(name: str) -> str:
    return (files("holdfast.stores.redis") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def _script(*names: str) -> Script:
    return Script("\n".join(map(_text, names)))


# Changes
ADMIT = _script("arguments", "clock", "inbox", "received", "admit")
PROGRESS = _script("arguments", "progress")
SETTLE = _script("arguments", "clock", "rows", "inbox", "outbox", "settle")
SEND = _script("arguments", "clock", "inbox", "received", "send")
WATCH = _script("arguments", "clock", "rows", "outbox", "watch")
BEAT = _script("arguments", "beat")

# Tokens, which live in a shard of their own
CLAIM_TOKEN = _script("arguments", "claim_token")
FREE_TOKEN = _script("arguments", "free_token")
OPEN_HOOK = _script("arguments", "open_hook")
END_WISH = _script("arguments", "end_wish")
RESERVE = _script("arguments", "received", "reserve")
RESERVED = _script("arguments", "reserved")
FORGET_SCOPE = _script("arguments", "forget_scope")

# Messages between shards
LEFT = _script("arguments", "clock", "left")
DELIVERED = _script("delivered")

# Claims and leases
READY = _script("arguments", "clock", "ready")
WAKES = _script("arguments", "wakes")
TAKE = _script("arguments", "clock", "rows", "take")
FREE = _script("arguments", "clock", "rows", "free")
JOIN = _script("arguments", "clock", "join")
RENEW = _script("arguments", "clock", "renew")
LEASES = _script("arguments", "clock", "leases")
END_LEASES = _script("arguments", "clock", "end_leases")

# Reads
ROW = _script("row")
HISTORY = _script("history")
MAIL = _script("mail")
FIELD = _script("field")
BLOB = _script("blob")
RANGE = _script("range")
COUNT = _script("count")
FIRSTS = _script("firsts")

# Retention
FORGET = _script("arguments", "clock", "rows", "outbox", "forget")

# Documents
WRITE_DOCUMENT = _script("arguments", "clock", "write_document")
DOCUMENTS = _script("arguments", "clock", "documents")
FORGET_DOCUMENT = _script("arguments", "clock", "forget_document")

SHARDS = _script("shards")
