"""Counts the processor's own instructions for a load, library by library, with Valgrind where it is installed.

`python -m bench.profile.machine W1 --size 200` does the load and nothing else: it is what Valgrind executes.

Valgrind's callgrind executes one thread at a time and counts each instruction, on any machine and however busy that is.
Start, imports and warm-up are in the count, so the same process without the load is counted too, and subtracted. What
the system does for the process (reading, writing, syncing) is in neither.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from bench.profile.load import drive, wanted
from bench.runner import ROOT

OBJECT = re.compile(r"c?ob=(\(\d+\))(?: (.*))?")
# What a library is called on the page, by its file and the folder of that.
PARTS = {
    "apsw/*": "SQLite, and apsw",
    "uvloop/*": "uvloop",
    "msgspec/*": "msgspec",
    "*/_asyncio.*": "asyncio's tasks and futures",
    "*/libpython3*": "the interpreter",
    "*/python3*": "the interpreter",
    "*/libc.so*": "the C library",
}
THE_REST = "other libraries"


def is_there() -> bool:
    return shutil.which("valgrind") is not None


def count(contender: str, workload: str, size: int) -> Counter[str]:
    """The instructions of a process that does a load of this size, by part."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable]
        command += ["-m", "bench.profile.machine", workload, "--contender", contender, "--size", str(size)]
        # A fixed seed for the hashes of texts: dictionaries take the same way each time.
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        with out.open(encoding="utf-8", errors="replace") as lines:
            return parts_of(by_object(lines))


def by_object(lines: Iterable[str]) -> Counter[str]:
    """The instructions of each shared object, from the lines of callgrind's own format."""
    names: dict[str, str] = {}
    counted: Counter[str] = Counter()
    here, is_called = "", False
    for line in lines:
        if line.startswith(("ob=", "cob=")):  # a name is written once, and its number from then on
            found = OBJECT.match(line)
            assert found is not None, line
            number, name = found.groups()
            if name:
                names[number] = name
            if line.startswith("ob="):
                here = names[number]
        elif line.startswith("calls="):
            is_called = True  # the next line has the costs of the function that is called, which has lines of its own
        elif line[:1].isdigit() or line.startswith(("+", "-", "*")):
            if not is_called:
                counted[here] += int(line.split()[1])
            is_called = False
    return counted


def parts_of(counted: Counter[str]) -> Counter[str]:
    parts: Counter[str] = Counter()
    for path, instructions in counted.items():
        named = "/".join(Path(path).parts[-2:])
        parts[next((part for known, part in PARTS.items() if fnmatchcase(named, known)), THE_REST)] += instructions
    return parts


def main() -> None:
    told = wanted(__doc__)
    drive(told.contender, told.workload, told.size, begin=_nothing, end=_nothing)


def _nothing() -> None:
    """Valgrind counts from the start of the process to its end."""


if __name__ == "__main__":
    main()
