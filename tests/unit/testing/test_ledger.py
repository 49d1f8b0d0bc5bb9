from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing import Ledger


def test_lines_are_chosen_by_their_fields(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.lines() == []
    ledger.write(step="charge", order="o-1")
    ledger.write(step="charge", order="o-2")
    ledger.write(step="ship", order="o-1")
    assert ledger.count(step="charge") == 2
    assert ledger.count(step="charge", order="o-1") == 1
    assert ledger.count(order="o-3") == 0


def test_a_line_that_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write(step="charge")
    with ledger.path.open("ab") as file:
        file.write(b'{"step": "sh')
    assert ledger.count() == 1


async def test_a_line_is_waited_for(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write(step="charge", order="o-1")
    ledger.write(step="charge", order="o-2")
    assert (await ledger.until(count=2, step="charge"))["order"] == "o-2"
    with pytest.raises(TimeoutError, match=r"line 3 with .*charge"):
        await ledger.until(count=3, within=0.01, step="charge")
