"""All that a store holds, as plain values: the whole of a SQLite file, and every key of a store on Redis."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import hiredis

Content = Any  # lists, dicts and bytes


class RedisKey(NamedTuple):
    name: bytes
    type: str
    content: Content


class Server:
    """A connection that knows bytes only: what is stored is compared as it is."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._reader = hiredis.Reader()

    def ask(self, *words: bytes | str | float) -> Any:
        self._socket.sendall(hiredis.pack_command(words))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65_536))
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def close(self) -> None:
        self._socket.close()

    def keys_of(self, store: str) -> list[RedisKey]:
        """Every key of the store of this name, sorted."""
        names = sorted(self.ask("KEYS", f"{{hf:{store}:*}}*"))
        types = [self.ask("TYPE", name).decode() for name in names]
        return [RedisKey(name, kind, self._content(name, kind)) for name, kind in zip(names, types, strict=True)]

    def _content(self, name: bytes, kind: str) -> Content:
        match kind:
            case "string":
                return self.ask("GET", name)
            case "hash":
                flat = self.ask("HGETALL", name)
                return dict(sorted(zip(flat[::2], flat[1::2], strict=True)))
            case "zset":
                flat = self.ask("ZRANGE", name, 0, -1, "WITHSCORES")
                return list(zip(flat[::2], flat[1::2], strict=True))
            case "list":
                return self.ask("LRANGE", name, 0, -1)
            case "set":
                return sorted(self.ask("SMEMBERS", name))
            case "stream":
                return self.ask("XRANGE", name, "-", "+")
            case other:
                raise AssertionError(other)

    def put(self, key: RedisKey) -> None:
        match key.type:
            case "string":
                self.ask("SET", key.name, key.content)
            case "hash":
                self.ask("HSET", key.name, *(part for pair in key.content.items() for part in pair))
            case "zset":
                self.ask("ZADD", key.name, *(part for member, score in key.content for part in (score, member)))
            case "list":
                self.ask("RPUSH", key.name, *key.content)
            case "set":
                self.ask("SADD", key.name, *key.content)
            case "stream":
                for entry_id, fields in key.content:
                    self.ask("XADD", key.name, entry_id, *fields)
            case other:
                raise AssertionError(other)


# -- files


def save_redis(keys: list[RedisKey], file: Path) -> None:
    """One line of JSON for each key; bytes are text of as many characters, so that a person can read most of it."""
    lines = [json.dumps([_text(key.name), key.type, _text(key.content)], sort_keys=True) for key in keys]
    save_lines(lines, file)


def load_redis(file: Path) -> list[RedisKey]:
    lines = map(json.loads, load_lines(file))
    return [RedisKey(name.encode("latin-1"), kind, _bytes(content)) for name, kind, content in lines]


def save_lines(lines: list[str], file: Path) -> None:
    _save("\n".join(lines).encode(), file)


def load_lines(file: Path) -> list[str]:
    return gzip.decompress(file.read_bytes()).decode().splitlines()


def save_sqlite(path: Path, file: Path) -> None:
    """The file of a store that may be in use, without its free pages."""
    copy = path.with_suffix(".copy")
    db = apsw.Connection(str(path))
    db.execute("VACUUM INTO ?", (str(copy),))
    db.close()
    _save(copy.read_bytes(), file)
    copy.unlink()


def load_sqlite(file: Path, path: Path) -> None:
    path.write_bytes(gzip.decompress(file.read_bytes()))


def tables_of(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The rows of each table."""
    db = apsw.Connection(str(path))
    for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall():
        columns = [column[1] for column in db.execute(f"PRAGMA table_info({name})")]
        yield str(name), [dict(zip(columns, row, strict=True)) for row in db.execute(f"SELECT * FROM {name}")]
    db.close()


def schema_of(path: Path) -> str:
    db = apsw.Connection(str(path))
    statements = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")]
    [(version,)] = db.execute("PRAGMA user_version")
    db.close()
    return ";\n\n".join([*statements, f"PRAGMA user_version = {version}"]) + ";\n"


def _save(data: bytes, file: Path) -> None:
    file.write_bytes(gzip.compress(data, mtime=0))


def _text(content: Content) -> Content:
    match content:
        case bytes():
            return content.decode("latin-1")
        case dict():
            return {_text(key): _text(value) for key, value in content.items()}
        case list() | tuple():
            return [_text(each) for each in content]
        case _:
            return content


def _bytes(content: Content) -> Content:
    match content:
        case str():
            return content.encode("latin-1")
        case dict():
            return {_bytes(key): _bytes(value) for key, value in content.items()}
        case list():
            return [_bytes(each) for each in content]
        case _:
            return content
