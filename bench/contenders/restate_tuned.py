"""Restate with partitions to suit the machine: its default of 24 is meant for more cores."""

import os
from functools import partial

from bench.contenders.restate import open_restate
from bench.entry import contend

PARTITIONS_PER_CORE = 2

if __name__ == "__main__":
    contend(partial(open_restate, partitions=PARTITIONS_PER_CORE * (os.cpu_count() or 1)))
