"""Where a Redis is: the URL, taken apart and checked before anything is opened.

    redis://[user:password@]host:port[/db]            one server (or any node of a cluster: it says so itself)
    redis+cluster://host:port,host:port               some nodes of a cluster; the others are found
    redis+sentinel://host:port,host:port/<master>     some sentinels, and what they call the primary

`rediss` in the place of `redis` means TLS with a verified certificate; `valkey` and `valkeys` mean the same two.

    ?name=default    which store on this server; all processes of one system use the same name
    ?shards=16       into how many shards the store is split; fixed when it is created
    ?wait=1          how many replicas must confirm a write: 0, 1, 2 ..., or auto (one, while there is one). Where a
                     replica may be promoted (cluster, sentinel) it is 1 unless the URL says something else, and for
                     one server auto
    ?timeout=5s      how long an answer may take
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from holdfast.errors import InvalidConfig, UsageError
from holdfast.kernel.times import Millis
from holdfast.kernel.units import milliseconds

Kind = Literal["single", "cluster", "sentinel"]
Wait = int | Literal["auto"]

PORT, SENTINEL_PORT = 6379, 26379
SHARDS_MAX = 256  # two hexadecimal digits of a run id
WAIT_MAX = 8
TIMEOUT_MS_MIN = 100
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # no braces and no colon: it is part of the hash tag
_KINDS: dict[str, Kind] = {"": "single", "cluster": "cluster", "sentinel": "sentinel"}
_HINT = (
    "Write redis://host:6379, redis+cluster://host:6379,host:6379 or redis+sentinel://host:26379,host:26379/<master>;"
    " rediss for TLS."
)
_ESCAPES = "Inside a password write / as %2F, ? as %3F, # as %23, @ as %40, [ as %5B, ] as %5D and % as %25."


class ServerAddress(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RedisUrl(Struct, frozen=True, kw_only=True):
    """A URL that makes sense. Whether anybody listens there is another question."""

    kind: Kind
    addresses: tuple[ServerAddress, ...]
    tls: bool = False
    user: str | None = None
    password: str | None = None
    db: int = 0
    master: str = ""  # what the sentinels call the primary
    name: str = "default"
    shards: int = 16
    wait: Wait | None = None  # None: as the servers behind it need it
    timeout_ms: Millis = Millis(5_000)

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        """For people: without the password."""
        scheme = ("rediss" if self.tls else "redis") + ("" if self.kind == "single" else f"+{self.kind}")
        path = f"/{self.master}" if self.master else f"/{self.db}" if self.db else ""
        return f"{scheme}://{','.join(map(str, self.addresses))}{path}?name={self.name}"


def parse(text: str) -> RedisUrl:
    """The URL that `text` is. Raises `InvalidConfig`, which never shows the password."""
    try:
        parts = urlsplit(text)
        scheme, _, kind_named = parts.scheme.partition("+")
    except ValueError:  # whose words may hold the password
        raise InvalidConfig("the Redis URL cannot be read", hint=f"{_HINT} {_ESCAPES}") from None
    if scheme not in {"redis", "rediss", "valkey", "valkeys"} or kind_named not in _KINDS:
        raise InvalidConfig(f"{parts.scheme!r} is not a kind of Redis URL", hint=_HINT)
    if "@" in parts.path + parts.query + parts.fragment:  # then the host is a part of the password
        raise InvalidConfig("the password in the Redis URL holds a character with a meaning in URLs", hint=_ESCAPES)
    kind = _KINDS[kind_named]
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    if user and not password:
        raise InvalidConfig("the Redis URL names a user without a password", hint="Write user:password@ or :password@.")
    path = unquote(parts.path.strip("/"))
    return RedisUrl(
        kind=kind,
        addresses=_addresses(hosts, kind),
        tls=scheme in {"rediss", "valkeys"},
        user=unquote(user) or None,
        password=unquote(password) or None,
        db=_db(path) if kind == "single" else 0,
        master=_master(path) if kind == "sentinel" else _no_path(path) if kind == "cluster" else "",
        **_options(parts.query),
    )


def _addresses(hosts: str, kind: Kind) -> tuple[ServerAddress, ...]:
    usual = SENTINEL_PORT if kind == "sentinel" else PORT
    found = tuple(_address(host, usual) for host in hosts.split(","))
    if kind == "single" and len(found) > 1:
        raise InvalidConfig(f"{hosts} are several servers; redis:// takes one", hint=_HINT)
    return found


def _address(text: str, usual_port: int) -> ServerAddress:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port == 0:
        raise InvalidConfig(f"{text!r} is not host:port", hint=_HINT)
    return ServerAddress(host, usual_port if port is None else port)


def _db(path: str) -> int:
    if not path:
        return 0
    return _number(path, "the database behind the slash", 0, 1_000_000)


def _master(path: str) -> str:
    if not path or "/" in path:
        raise InvalidConfig("the sentinels must be told which primary is meant", hint=_HINT)
    return path


def _no_path(path: str) -> str:
    if path not in {"", "0"}:
        raise InvalidConfig(
            f"a cluster has one database only, not {path!r}", hint="Leave out what is behind the slash."
        )
    return ""


def _number(text: str, what: str, least: int, most: int) -> int:
    # int() takes more than people mean: signs, underscores, digits of other scripts.
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise InvalidConfig(f"{what} is {text!r}", hint=f"It must be a number from {least} to {most}.")
    return int(text)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise InvalidConfig(
            f"name={text!r} cannot name a store", hint="Use letters, digits, '_', '.' and '-'; at most 64."
        )
    return text


def _shards(text: str) -> int:
    return _number(text, "shards", 1, SHARDS_MAX)


def _wait(text: str) -> Wait:
    return "auto" if text == "auto" else _number(text, "wait (which may also be auto)", 0, WAIT_MAX)


def _timeout_ms(text: str) -> Millis:
    try:
        timeout_ms = milliseconds(text)
    except UsageError as error:
        raise InvalidConfig(f"timeout: {error.message}", hint=error.hint) from None
    if timeout_ms < TIMEOUT_MS_MIN:
        raise InvalidConfig(f"timeout={text!r} is too short for any server", hint="Use 1s to 30s.")
    return timeout_ms


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("name", _name),
    "shards": ("shards", _shards),
    "wait": ("wait", _wait),
    "timeout": ("timeout_ms", _timeout_ms),
}


def _options(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option, text in parse_qsl(query, keep_blank_values=True):
        if option not in _OPTIONS:
            raise InvalidConfig(f"a Redis URL has no option {option!r}", hint=f"It has {', '.join(_OPTIONS)}.")
        field, read = _OPTIONS[option]
        if field in found:
            raise InvalidConfig(f"{option} is given twice in the Redis URL", hint="Leave one of them out.")
        found[field] = read(text)
    return found
