"""What is stored, with all that differs from one telling of the story to the next taken out of it.

Ids and nonces, instants, hosts, and how often a run has changed hands: the rest has to be the same, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.compatibility.snapshots import RedisKey, tables_of

# In the order in which they are replaced. Instants are those of this century, and of a hundred years later.
_REPLACED = (
    (re.compile(r"\{hf:[^}]*\}"), "{tag}"),
    (re.compile("\xcf\0\0[\1\4][\0-\xff]{5}"), "<packed instant>"),
    (re.compile(r"x{1000,}"), "<large>"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])"), "<digest>"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])(-0\d)?"), "<nonce>"),
    (re.compile(r"(?<![0-9a-f])(1[6-9]|4[5-9])\d{11}(?![0-9a-f])"), "<instant>"),
    (re.compile(r"(?<![0-9a-f])0[14][0-9a-f]{10}(?![0-9a-f])"), "<instant>"),
    (re.compile(r"(?<![0-9a-f])0[14][0-9a-f]{10}(?=[0-9a-f]{12}(?![0-9a-f]))"), "<instant>"),  # and a count
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])"), "<key id>"),
    (re.compile(r'"tail":"[^"]*"'), '"tail":"<tail>"'),
    (re.compile(r"shop\.py:\d+"), "shop.py:<line>"),
)
# What depends on the machine and the moment: leases, the clock, messages under way, how often a run has changed hands.
_TABLES = {"leases", "clock"}
_KEYS = (b"}until", b"}members", b"}out")
_COLUMNS = {"epoch", "rowid", "arrival", "opening"}
_FIELDS = {b"e"}


class Normal:
    """Knows the runs of one telling by their names."""

    def __init__(self, runs: Mapping[str, str]) -> None:
        self._runs = {run_id: f"<{name}>" for name, run_id in runs.items()}

    def of_redis(self, keys: Iterable[RedisKey]) -> list[str]:
        """One line for each key, and for each thing in it."""
        kept = [key for key in keys if not key.name.endswith(_KEYS)]
        # Documents and children have the shard of their id, which is drawn: how many shards hold some differs.
        types = {f"{key.type} {self._text(key.name)}" for key in kept}
        return sorted([*types, *(line for key in kept for line in self._lines(key))])

    def of_sqlite(self, path: Path) -> list[str]:
        """One line for each row."""
        return sorted(
            f"{table} {self._row(row)}" for table, rows in tables_of(path) if table not in _TABLES for row in rows
        )

    def _lines(self, key: RedisKey) -> Iterable[str]:
        name = self._text(key.name)
        match key.type:
            case "hash":
                for field, value in key.content.items():
                    yield f"{name} {self._text(field)} = {'<e>' if field in _FIELDS else self._text(value)}"
            case "zset":
                for member, score in key.content:
                    yield f"{name} {self._text(member)} {self._text(score)}"
            case "list":
                for place, each in enumerate(key.content):
                    yield f"{name} {place} {self._text(each)}"
            case "string":
                yield f"{name} = {self._text(key.content)}"
            case other:
                raise AssertionError(other)

    def _row(self, row: Mapping[str, Any]) -> str:
        shown = {column: f"<{column}>" if column in _COLUMNS else self._value(value) for column, value in row.items()}
        return ", ".join(f"{column}: {value}" for column, value in shown.items())

    def _value(self, value: Any) -> str:
        return self._text(value) if isinstance(value, bytes) else self._text(repr(value).encode())

    def _text(self, data: bytes) -> str:
        """Each byte as one character: much of it is packed."""
        text = data.decode("latin-1")
        for run_id, name in self._runs.items():
            text = text.replace(run_id, name)
        for pattern, name in _REPLACED:
            text = pattern.sub(name, text)
        return text
