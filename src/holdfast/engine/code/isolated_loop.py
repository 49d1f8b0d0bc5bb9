"""An event loop without the outside world: no sockets, threads, processes or signals, and it is not run by its user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from holdfast.errors import UsageError


class IsolatedLoop(asyncio.AbstractEventLoop):
    """Refuses whatever reaches the outside world, with an error that names the cure: an effect."""


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: IsolatedLoop, *_args: Any, **_kwargs: Any) -> NoReturn:
        del self
        raise UsageError(
            f"a workflow used {name}(), which reaches the outside world",
            hint="Move it into a function decorated with @pack.effect and await that.",
        )

    return refuse


for _name in [
    "run_forever",
    "run_until_complete",
    "run_in_executor",
    "call_soon_threadsafe",
    "set_default_executor",
    "getaddrinfo",
    "getnameinfo",
    "create_connection",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "create_datagram_endpoint",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "subprocess_shell",
    "subprocess_exec",
    "add_reader",
    "remove_reader",
    "add_writer",
    "remove_writer",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendto",
    "sock_connect",
    "sock_accept",
    "sock_sendfile",
    "sendfile",
    "start_tls",
    "add_signal_handler",
    "remove_signal_handler",
]:
    setattr(IsolatedLoop, _name, _refusing(_name))
