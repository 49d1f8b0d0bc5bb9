"""Kills what a process has started, once that process is gone in whatever way. Run as a script of its own.

Its standard input is a pipe that only the watched process can write to. A line `+123` adds process group 123,
`-123` takes it out. The end of the pipe means that the watched process is gone.

The kernel's own means (PR_SET_PDEATHSIG) is bound to the thread that has started a child, and exists on Linux only.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the one that it watches, and not before
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
