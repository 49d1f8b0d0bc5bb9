"""The ledger: what really happened, as the outside world saw it. It knows nothing of Holdfast.

One file, one JSON object per line, written with a single `O_APPEND` write, so that any number of processes may write
and a process that is killed leaves whole lines. An effect writes its line before it does anything else.

    {"call": key, "step": ..., "order": ..., "attempt": ..., "pid": ...}    an effect was called
    {"recorded": key, "pid": ...}                                          the store has answered that it is recorded
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Ledger:
    """An append-only file of lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **line: Any) -> None:
        """Append one line; it is there for all processes when this returns."""
        data = json.dumps(line | {"pid": os.getpid()}).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            assert os.write(file, data) == len(data)
        finally:
            os.close(file)

    def lines(self) -> list[Line]:
        """Everything so far, in the order in which it happened."""
        return read_lines(self.path)

    def calls(self, step: str | None = None) -> list[Line]:
        """The calls of effects, or of one of them."""
        return [line for line in self.lines() if "call" in line and step in {None, line["step"]}]

    def check(self, *, lost: Collection[int] = (), stopped: Collection[int] = ()) -> None:
        """Raise unless every call was right. `lost` holds the processes that were killed, or lost their lease.

        - All calls of an effect have the same key, and the first attempt's number: a crash uses no attempt up.
        - An effect is recorded at most once, and never called again once it is recorded.
        - A call is repeated only if whoever made it was lost before it was recorded.

        Those in `stopped` were stopped at any moment, so perhaps between the last look at the lease and the call. No
        engine can close that window; it is why effects have keys. Their late calls are pardoned.
        """
        lines = self.lines()
        keys: dict[tuple[str, str], set[str]] = defaultdict(set)
        for key in {line["call"] for line in lines if "call" in line}:
            calls = [(at, line) for at, line in enumerate(lines) if line.get("call") == key]
            records = [at for at, line in enumerate(lines) if line.get("recorded") == key]
            for _, line in calls:
                keys[line["step"], line["order"]].add(key)
            seen = {json.dumps({**line, "pid": 0}) for _, line in calls}
            assert len(seen) == 1, f"the calls of {key} differ: {seen}"
            assert calls[0][1]["attempt"] == 1, f"{key} was called as attempt {calls[0][1]['attempt']} at first"
            assert len(records) <= 1, f"{key} was recorded {len(records)} times"
            if records:
                late = [line for at, line in calls if at > records[0] and line["pid"] not in stopped]
                assert not late, f"{key} was called again after it had been recorded: {late}"
            causeless = [line for _, line in calls[:-1] if line["pid"] not in lost]
            assert not causeless, f"{key} was called again although process {causeless[0]['pid']} lives"
        for (step, order), of_step in keys.items():
            assert len(of_step) == 1, f"{step} of {order} was called under {len(of_step)} keys: {of_step}"


def read_lines(path: Path) -> list[Line]:
    """The whole JSON lines of a file that others are writing."""
    if not path.exists():
        return []
    text = path.read_bytes()
    return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines() if line.startswith(b"{")]


_ledger: Ledger | None = None


def use(path: Path) -> Ledger:
    """From now on the effects of this process write to this ledger."""
    global _ledger  # noqa: PLW0603 - an effect has no other way to know where the world is
    _ledger = Ledger(path)
    return _ledger


def here() -> Ledger:
    """The ledger that this process uses."""
    assert _ledger is not None
    return _ledger
