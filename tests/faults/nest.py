"""A process that has everything loaded and hatches others by fork: `python -m tests.faults.nest`.

A test may need hundreds of processes; a fork costs a hundredth of starting Python. The nest itself has one thread
and opens no database, so what it hatches is as good as new. It speaks JSON lines:

    in    {"module": ..., "options": ..., "out": ..., "err": ...}
    out   {"hatched": pid, "out": ...}, and at any time {"ended": pid, "code": ...}

When its input ends it kills whatever it has hatched, and ends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from typing import Any

import tests.faults.actor

living: set[int] = set()


def say(**line: Any) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def reap(*_: object) -> None:
    """Report who has ended. SIGCHLDs may fall together, so look until there is none left."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            living.discard(pid)
            say(ended=pid, code=os.waitstatus_to_exitcode(status))


def hatch(module: str, options: Any, out: str, err: str) -> int:
    importlib.import_module(module)  # once, here, for all that will need it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # "hatched" is said before "ended"
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os._exit(_be(module, options, out, err))
    living.add(pid)
    say(hatched=pid, out=out)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
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
    assert tests.faults.actor  # loaded once, here, for all
    signal.signal(signal.SIGCHLD, reap)
    say(ready=os.getpid())
    for line in sys.stdin:
        hatch(**json.loads(line))
    for pid in list(living):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
