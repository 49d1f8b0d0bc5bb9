"""Scripts and calls that the tests have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.stores.redis.client import Call, Script

ADD = Script("return redis.call('INCR', KEYS[1])")
READ = Script("return redis.call('GET', KEYS[1])")
ECHO = Script("return ARGV[1]")


def add(key: bytes) -> Call:
    return Call(ADD, (key,), ())


def read(key: bytes) -> Call:
    return Call(READ, (key,), ())


def echo(key: bytes, word: bytes) -> Call:
    return Call(ECHO, (key,), (word,))


async def until(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
