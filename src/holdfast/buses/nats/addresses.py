"""`nats://user:password@host:port,host:port`: which servers, and who we are to them."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from msgspec import Struct

from holdfast.errors import InvalidConfig

_ALLOWED = "Use nats://[user:password@]host[:port][,host[:port]...], or tls://... to refuse a connection without TLS."
_PORT = 4222


class NatsAddress(Struct, frozen=True):
    """The servers of one NATS cluster. `user` without `password` is a token."""

    servers: tuple[str, ...]
    tls: bool = False
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"{'tls' if self.tls else 'nats'}://{','.join(self.servers)}"


def parse(url: str) -> NatsAddress:
    """Raises `InvalidConfig`, without the password in its message."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("nats", "tls"):
        raise InvalidConfig(f"{scheme!r} is no scheme of a NATS URL", hint=_ALLOWED)
    # Each server may be written with the scheme and the user before it, as NATS itself does.
    parts = [part.removeprefix(f"{scheme}://").rpartition("@") for part in rest.removesuffix("/").split(",")]
    users = {who for who, at, _ in parts if at}
    if len(users) > 1:
        raise InvalidConfig("the servers of a NATS URL have different users", hint=_ALLOWED)
    user, colon, password = users.pop().partition(":") if users else ("", "", "")
    return NatsAddress(
        servers=tuple(_server(where) for _, _, where in parts),
        tls=scheme == "tls",
        user=unquote(user) or None,
        password=unquote(password) if colon else None,
    )


def _server(text: str) -> str:
    """`host:port`, with brackets round an IPv6 address."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidConfig(f"{text!r} is no server of NATS: {error}", hint=_ALLOWED) from error
    if not host or parts.path or parts.query or parts.fragment or any(c.isspace() for c in text):
        raise InvalidConfig(f"{text!r} is no server of NATS", hint=_ALLOWED)
    return f"[{host}]:{port or _PORT}" if ":" in host else f"{host}:{port or _PORT}"
