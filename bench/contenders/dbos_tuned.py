"""DBOS that looks for messages every few milliseconds: on SQLite it does so once a second, unless it is told to."""

from functools import partial

from bench.contenders.dbos import open_dbos
from bench.entry import contend

POLL_S = 0.005

if __name__ == "__main__":
    contend(partial(open_dbos, poll_s=POLL_S))
