from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.faults
SECONDS_MAX = 110.0


def test_a_small_gate_passes_and_writes_its_reports_whatever_the_settings_of_the_project_are(tmp_path) -> None:
    (tmp_path / "holdfast.toml").write_text('require_keys = true\nqueues = ["others"]\nnamespace = "others"\n')
    wanted = [word for name in ("health", "kills", "workers") for word in ("--only", name)]
    reports = ["--report", "gate.json", "--html", "gate.html"]
    command = [sys.executable, "-m", "holdfast", "gate", *wanted, "--runs", "30", "--strict", *reports]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
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
