"""The ledger: what really happened, as the outside world saw it. It knows nothing of Holdfast.

See `holdfast.testing.Ledger`. An effect writes its line before it does anything else.

    {"call": key, "step": ..., "order": ..., "attempt": ..., "pid": ...}    an effect was called
    {"recorded": key, "pid": ...}                                          the store has confirmed that it is recorded
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from holdfast import testing
from holdfast.testing import Line


class Ledger(testing.Ledger):
    """A ledger whose lines are calls and records of effects, and that can check them."""

    def calls(self, step: str | None = None) -> list[Line]:
        """The calls of effects, or of one of them."""
        return [line for line in self.lines() if "call" in line and step in {None, line["step"]}]

    def check(self, *, lost: Collection[int] = (), stopped: Collection[int] = ()) -> None:
        """Raise unless every call was right. `lost` holds the processes that were killed, or lost their lease.

        - All calls of an effect have the same key, and the first attempt's number: a crash uses no attempt up.
        - An effect is recorded at most once, and never called again once it is recorded.
        - A call is repeated only if the process that made it was lost before it was recorded.

        Those in `stopped` were stopped at any moment, so perhaps between the last look at the lease and the call. No
        engine can close that window; it is why effects have keys. Their late calls count as explained.
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
    return testing.Ledger(path).lines()


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
