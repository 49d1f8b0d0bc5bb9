"""One command to a Redis server: what starting and forming servers needs, without a client of any kind."""

from __future__ import annotations

import socket
from typing import BinaryIO

Reply = str | int | None | list["Reply"]
TIMEOUT_SECONDS = 5.0


class RedisCommandError(Exception):
    """The server replied with an error."""


def ask(host: str, port: int, *words: str | int, password: str | None = None) -> Reply:
    """Send one command on a connection of its own, and return the reply.

    Raises `RedisCommandError`, or `OSError` if there is no reply.
    """
    with socket.create_connection((host, port), TIMEOUT_SECONDS) as connection, connection.makefile("rb") as replies:
        login = b"" if password is None else _encode("AUTH", password)
        connection.sendall(login + _encode(*words))
        if login:
            _read(replies)
        return _read(replies)


def _encode(*words: str | int) -> bytes:
    parts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def _read(replies: BinaryIO) -> Reply:
    line = replies.readline()
    if not line:
        raise ConnectionResetError("the server closed the connection")
    kind, rest = line[:1], line[1:-2].decode()
    match kind:
        case b"+":
            return rest
        case b"-":
            raise RedisCommandError(rest)
        case b":":
            return int(rest)
        case b"$":
            return None if rest == "-1" else replies.read(int(rest) + 2)[:-2].decode(errors="replace")
        case b"*":
            return None if rest == "-1" else [_read(replies) for _ in range(int(rest))]
        case _:
            raise RedisCommandError(f"not a reply of a Redis server: {line!r}")
