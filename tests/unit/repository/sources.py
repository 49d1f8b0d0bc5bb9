"""The source files and pages of this repository, as the tests about them see them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "holdfast"
# By text, since parsing all modules takes seconds.
IMPORT = re.compile(r"^[ \t]*from (holdfast[\w.]*) import (\([^)]*\)|[^\n#]*)", re.MULTILINE)


@cache
def sources() -> dict[str, str]:
    """The text of every module of the package, by its path below it."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def pages() -> list[Path]:
    """Every page that people read, but the changelog, which speaks of names that are gone."""
    beside = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "deploy/README.md")
    templates = (ROOT / ".github").rglob("*.md")
    return [*(ROOT / name for name in beside), *sorted(templates), *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports_of(source: str) -> set[str]:
    """The files of the package that a module with this text imports, those for type checking included."""
    return {
        file
        for module, names in IMPORT.findall(source)
        for name in re.findall(r"(\w+)(?: as \w+)?,?", names.strip("()"))
        for file in _files_of(PACKAGE.joinpath(*module.split(".")[1:]), name)
    }


@cache
def _files_of(below: Path, name: str) -> set[str]:
    candidates = [below / f"{name}.py", below / name / "__init__.py", below.with_suffix(".py"), below / "__init__.py"]
    return {path.relative_to(PACKAGE).as_posix() for path in candidates if path.is_file()}
