"""A ledger: what really happened, as the world outside of the engine saw it. It knows nothing of Holdfast.

One file, one JSON object per line. Each line is one write to a file that is opened for appending, so any number of
processes may write at once, and a process that is killed leaves whole lines.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.testing.waiting import PATIENCE_SECONDS, eventually

Line: TypeAlias = dict[str, Any]


class Ledger:
    """An append-only file that counts executions: let each effect write a line before it does anything else."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def write(self, **fields: Any) -> None:
        """Append a line with these fields and the `pid` of this process; every process sees it when this returns."""
        data = json.dumps(fields | {"pid": os.getpid()}).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            written = os.write(file, data)
        finally:
            os.close(file)
        if written != len(data):
            raise OSError(f"{self.path} took {written} of {len(data)} bytes of a line")

    def lines(self, **fields: Any) -> list[Line]:
        """The lines so far that have these fields, in the order in which they were written."""
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        lines: list[Line] = [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]
        return [line for line in lines if fields.items() <= line.items()]

    def count(self, **fields: Any) -> int:
        """How many lines have these fields."""
        return len(self.lines(**fields))

    async def until(self, *, count: int = 1, within: float = PATIENCE_SECONDS, **fields: Any) -> Line:
        """Return the `count`-th line with these fields as soon as it is there, whichever process writes it.

        Raises `TimeoutError` if it is not there `within` that many seconds.
        """
        what = f"line {count} with {fields} in {self.path}"
        found = await eventually(lambda: self.lines(**fields)[count - 1 : count], within=within, what=what)
        return found[0]
