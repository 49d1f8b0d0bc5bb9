"""The same with a second worker: what it adds, where there are cores for it."""

from functools import partial

from bench.contenders.holdfast_redis_split import open_split
from bench.entry import contend

if __name__ == "__main__":
    contend(partial(open_split, workers=2))
