from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from holdfast.testing.histories import files
from holdfast.testing.histories.checker import check
from holdfast.testing.histories.history import EffectObserved, FaultApplied, FinalRun, OperationReturned

pytestmark = [pytest.mark.faults, pytest.mark.slow]
SECONDS_MAX = 110.0


def test_a_small_gate_passes_and_writes_its_reports_whatever_the_settings_of_the_project_are(tmp_path) -> None:
    (tmp_path / "holdfast.toml").write_text('require_keys = true\nqueues = ["others"]\nnamespace = "others"\n')
    wanted = [word for name in ("health", "kills", "workers") for word in ("--only", name)]
    reports = ["--report", "gate.json", "--html", "gate.html"]
    command = [sys.executable, "-m", "holdfast", "gate", *wanted, "--runs", "30", "--strict", "--keep", *reports]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "gate.json").read_text())
    assert [(each["name"], each["verdict"]) for each in report["scenarios"]] == [
        ("health", "passed"),
        ("kills", "passed"),
        ("workers", "passed"),
    ]
    killed = {fault["part"] for fault in report["faults"] if fault["deed"] == "kill"}
    assert killed == {"scheduler-1", "scheduler-2", "worker-1", "worker-2", "gateway-1", "gateway-2"}
    assert report["counts"]["completed"] == report["counts"]["orders"] >= 30
    assert report["counts"]["rescued"] >= 1
    assert "kills" in (tmp_path / "gate.html").read_text()
    (file,) = tmp_path.glob("holdfast-gate-*/history-kills.*.jsonl")
    history = files.read(file)
    assert check(history) == ()
    told = Counter(type(record) for record in history)
    assert told[OperationReturned] == 3 * report["counts"]["orders"], "each order is started three times over"
    assert told[FinalRun] == 2 * report["counts"]["orders"], "an errand and its parcel"
    assert told[FaultApplied] >= len(killed)
    assert told[EffectObserved] >= 4 * report["counts"]["orders"]
