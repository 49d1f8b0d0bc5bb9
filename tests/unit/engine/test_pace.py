"""Every cadence of the engine is in one value."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from holdfast.engine.pace import Pace

ENGINE = Path(__file__).parents[3] / "src" / "holdfast" / "engine"
LENGTHS = ("_SECONDS", "_MS")
KEPT = {
    "SHOWN_AFTERWARDS_MS",  # a promise about data, not a cadence
    "LEASE_MS_MAX",  # a limit of what callers may ask for
}


def test_no_module_of_the_engine_keeps_a_cadence_of_its_own() -> None:
    found = {
        f"{path.relative_to(ENGINE)}: {target.id}"
        for path in ENGINE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper() and target.id.endswith(LENGTHS)
        if target.id not in KEPT
    }
    assert found == set(), "put it into engine/pace.py"


def test_a_pace_is_a_value() -> None:
    with pytest.raises(AttributeError):
        Pace().idle_ms = 1  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]
    assert Pace() == Pace()
    assert all(number > 0 for number in (getattr(Pace(), field) for field in Pace.__struct_fields__))
