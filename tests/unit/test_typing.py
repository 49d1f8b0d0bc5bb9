from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_arguments_and_results_are_inferred_and_mistakes_are_seen():
    """The files under tests/typing are the cases: `assert_type`, and ignores that must be needed."""
    checker = Path(sys.executable).with_name("basedpyright")
    done = subprocess.run([checker, "tests/typing"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 errors, 0 warnings" in done.stdout
