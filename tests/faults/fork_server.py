"""A process that has everything loaded and starts others by fork: `python -m tests.faults.fork_server`.

A test may need hundreds of processes; a fork costs a hundredth of starting Python. The fork server has one thread and
opens no database, so what it forks is as good as new. It speaks JSON lines:

    in    {"module": ..., "options": ..., "out": ..., "err": ...}
    out   {"forked": pid, "out": ...}, and at any time {"ended": pid, "code": ...}

When its input ends it kills whatever it has forked, and ends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
from typing import Any

import tests.faults.holdfast_process

living: set[int] = set()


def say(**line: Any) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def reap() -> None:
    """Report who has ended. SIGCHLDs may fall together, so look until there is none left."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            living.discard(pid)
            say(ended=pid, code=os.waitstatus_to_exitcode(status))


def fork(module: str, options: Any, out: str, err: str) -> int:
    importlib.import_module(module)  # once, here, for all that will need it
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os._exit(_be(module, options, out, err))
    living.add(pid)
    say(forked=pid, out=out)
    return pid


def _be(module: str, options: Any, out: str, err: str) -> int:
    for number, name in ((0, os.devnull), (1, out), (2, err)):
        file = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(file, number)
        os.close(file)
    try:
        importlib.import_module(module).main(options)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    assert tests.faults.holdfast_process  # loaded once, here, for all
    # A read would not be interrupted by a signal that comes just before it: the end of a process would be reported with
    # the next request only. So a signal writes into a pipe, which is waited for as well.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    say(ready=os.getpid())
    asked = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            reap()
        if 0 in ready:
            data = os.read(0, 65_536)
            if not data:
                break
            *lines, asked = (asked + data).split(b"\n")
            for line in lines:
                fork(**json.loads(line))
    for pid in list(living):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
