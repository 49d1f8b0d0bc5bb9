"""Holdfast on a Redis that syncs once a second: what is lost with the machine is that second."""

from functools import partial

from bench.contenders.holdfast_redis import open_redis
from bench.entry import contend

if __name__ == "__main__":
    contend(partial(open_redis, fsync="everysec"))
