"""The floor through redis-py, on a Redis that syncs once a second."""

from functools import partial

from bench.contenders.floor_redis_py import open_floor
from bench.entry import contend

if __name__ == "__main__":
    contend(partial(open_floor, fsync="everysec"))
