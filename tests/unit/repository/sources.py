"""The source files and pages of this repository, as the tests about them see them."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "holdfast"


def modules() -> dict[str, ast.Module]:
    """Every module of the package, by its path below it."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def pages() -> list[Path]:
    """Every page that people read, but the changelog, which speaks of names that are gone."""
    beside = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "deploy/README.md")
    templates = (ROOT / ".github").rglob("*.md")
    return [*(ROOT / name for name in beside), *sorted(templates), *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported_by(path: str) -> set[str]:
    """The files of the package that the file at `path` imports, type checking included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "holdfast":
            below = PACKAGE.joinpath(*(node.module or "").split(".")[1:])
            found |= {file for name in node.names for file in _files_of(below, name.name)}
    return found


def _files_of(below: Path, name: str) -> set[str]:
    candidates = [below / f"{name}.py", below / name / "__init__.py", below.with_suffix(".py"), below / "__init__.py"]
    return {path.relative_to(PACKAGE).as_posix() for path in candidates if path.is_file()}
