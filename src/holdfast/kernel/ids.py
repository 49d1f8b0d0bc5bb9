"""Ids of runs: 12 hexadecimal digits of time, 20 of chance or of a digest, and the name of the shard if there are any.

Rules
- Ids sort by time, so that new rows land side by side.
- A run that another one brings forth has an id that follows from it: the same on every replay.
- Texts that people choose are joined by `joined` wherever the whole names something: then distinct texts never give the
  same name. One separator between them is not enough, for any of them may contain it.
"""

from __future__ import annotations

from hashlib import blake2b

_TIME = 12
_LENGTH = 32
SHARD = "-"  # what parts the rest from the name of a shard


def joined(*texts: str) -> str:
    """The texts as one; distinct texts, equally many of them, never give the same one.

    Only the last may contain the separator: `a/b/c/d` is (a, b, c/d). If another one does, each has its length before
    it. That form begins with the separator, and the plain one never does. Nearly all names are plain, and what earlier
    versions joined without looking at the texts (ids of requests, scopes of dedupe ids) is found under the same name.
    """
    *front, last = texts
    if front and front[0] and not any("/" in text for text in front):
        return "/".join(texts)
    return "/" + "".join(f"{len(text)}/{text}" for text in (*front, last))


def without_shard(run_id: str) -> str:
    return run_id[:_LENGTH] if run_id[_LENGTH:].startswith(SHARD) else run_id


def derived(run_id: str, name: str) -> str:
    """The id of what `run_id` brings forth under this name, without a shard."""
    return run_id[:_TIME] + blake2b(joined(run_id, name).encode(), digest_size=10).hexdigest()


def derived_beside(run_id: str, name: str) -> str:
    """The same, in the shard of `run_id`: for what has its key."""
    return derived(run_id, name) + run_id[_LENGTH:]
