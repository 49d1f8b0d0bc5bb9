"""The files of the user's own code that a pack is made of: its modules, and whatever of the user's they import.

The user's own is what lies neither in Python's library nor where packages are installed; and the packages of the pack
itself, wherever they are. Imports are read from the source, in functions, too, so it does not matter what has been
imported by now: a digest made before a run and one made after it are equal.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import holdfast

_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")
_INSTALLED = tuple({Path(sysconfig.get_path(name)).resolve() for name in _PATHS})
_HOLDFAST = Path(holdfast.__file__).resolve().parent


def own_modules(names: Iterable[str]) -> dict[str, bytes]:
    """By name, what is in the files of these modules and of all of the user's own that they import."""
    waiting = sorted(set(names))
    packages = {name.partition(".")[0] for name in waiting}
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        file = _file_of(name)
        if file is None or not _is_own(file, is_of_pack=name.partition(".")[0] in packages):
            continue
        found[name] = file.read_bytes()
        waiting += _parents(name)
        if file.suffix == ".py":
            waiting += _imported(found[name], name, is_package=file.name == "__init__.py")
    return found


def _file_of(name: str) -> Path | None:
    spec = _spec_of(name)
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    file = Path(spec.origin)
    return file if file.is_file() else None


def _spec_of(name: str) -> ModuleSpec | None:
    """Found without importing anything."""
    known = getattr(sys.modules.get(name), "__spec__", None)
    if isinstance(known, ModuleSpec):
        return known
    spec, path, so_far = None, None, ""
    for part in name.split("."):
        so_far = f"{so_far}.{part}" if so_far else part
        spec = PathFinder.find_spec(so_far, path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
        if path is None and so_far != name:
            return None
    return spec


def _is_own(file: Path, *, is_of_pack: bool) -> bool:
    path = file.resolve()
    if path.is_relative_to(_HOLDFAST):
        return False
    return is_of_pack or not any(path.is_relative_to(place) for place in _INSTALLED)


def _parents(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _imported(source: bytes, name: str, *, is_package: bool) -> Iterator[str]:
    """Every module that this source may import: of `from a import b`, both `a` and `a.b`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base_of(node, name, is_package=is_package)
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _base_of(node: ast.ImportFrom, name: str, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = name.split(".") if is_package else name.split(".")[:-1]
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, *([node.module] if node.module else [])])
