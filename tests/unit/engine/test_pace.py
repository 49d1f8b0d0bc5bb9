"""Every cadence of the engine is in one value, and no test changes one for the whole process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine.pace import Pace

TESTS = Path(__file__).parents[2]
ENGINE = TESTS.parent / "src" / "holdfast" / "engine"
LENGTHS = ("_SECONDS", "_MS")
KEPT = {
    "SHOWN_AFTERWARDS_MS",  # a promise about data, not a cadence
    "LEASE_MS_MAX",  # a limit of what callers may ask for
}


def patched_constants(source: str) -> Iterator[str]:
    """The upper-case names of engine modules that this code sets by `monkeypatch.setattr`."""
    tree = ast.parse(source)
    modules = {
        name.asname or name.name: f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for name in node.names
    }
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "setattr"):
            continue
        match call.args:
            case [ast.Constant(value=str(path)), _]:
                target = path
            case [ast.JoinedStr() as path, _]:
                target = ast.unparse(path)[2:-1]
            case [ast.Name(id=module), ast.Constant(value=str(name)), _]:
                target = f"{modules.get(module, module)}.{name}"
            case _:
                continue
        if target.startswith("holdfast.engine") and target.rpartition(".")[2].isupper():
            yield target


@pytest.mark.parametrize(
    "line",
    [
        'monkeypatch.setattr("holdfast.engine.worker.waker.SAFETY_POLL_SECONDS", 1)',
        'monkeypatch.setattr(f"holdfast.engine.{part}.SAFETY_POLL_SECONDS", 1)',
        'from holdfast.engine.duties import pruner\nmonkeypatch.setattr(pruner, "CADENCE_SECONDS", 1)',
        'from holdfast.engine.duties import pruner as p\nmonkeypatch.setattr(p, "CADENCE_SECONDS", 1)',
    ],
)
def test_a_patched_constant_is_recognized(line: str) -> None:
    assert len(list(patched_constants(line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        'monkeypatch.setattr("holdfast.engine.runs.performer.Performer.attempt", 1)',
        'from holdfast.telemetry import metrics\nmonkeypatch.setattr(metrics, "LOOK_EVERY_MS", 0)',
    ],
)
def test_what_else_a_test_may_patch_is_let_pass(line: str) -> None:
    assert list(patched_constants(line)) == []


def test_no_test_patches_a_constant_of_the_engine() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py") if path != Path(__file__)}
    found = {
        str(path.relative_to(TESTS)): names
        for path, source in sources.items()
        if "setattr" in source and (names := list(patched_constants(source)))  # most need not be parsed
    }
    assert found == {}, "give the Holdfast another Pace instead"


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
