"""The same on a Redis that syncs once a second."""

from functools import partial

from bench.contenders.holdfast_redis_limited import open_redis_limited
from bench.entry import contend

if __name__ == "__main__":
    contend(partial(open_redis_limited, fsync="everysec"))
