"""Each example is a program that ends by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "last_line"),
    [
        ("examples.orders", "declined: Order(status='rejected'"),
        ("examples.agent", "    "),
        ("examples.onboarding", "the child confirmation:ada is completed"),
        ("examples.encryption", "completed"),
        ("examples.transfers", "left: {'ada': 20, 'bob': 0}"),
        ("examples.approvals", "reserved: {'e-1': 4200}, paid: {'pay:e-1': 4200}"),
    ],
)
def test_an_example_runs_from_the_root_and_ends_by_itself(module, last_line):
    done = subprocess.run(
        [sys.executable, "-m", module], cwd=ROOT, capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(last_line)
    assert "Traceback" not in done.stderr
