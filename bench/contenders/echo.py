"""The floor of W8: a bare JSON echo on the gateway's own server."""

from functools import partial

from bench.contenders.holdfast_http import open_http
from bench.entry import contend

if __name__ == "__main__":
    contend(partial(open_http, mode="--echo"))
