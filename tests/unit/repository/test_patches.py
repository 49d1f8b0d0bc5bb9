"""No test changes a constant of Holdfast. What it wants otherwise, it gives to the part that it tests.

A constant that is patched is another one for the whole process: for what an earlier test has left running, and for the
parts of a test that were to keep their pace. It also ties the test to the place where the number happens to stand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.unit.repository.sources import ROOT

TESTS = ROOT / "tests"
OF_ANOTHER_COMMIT = TESTS / "compatibility" / "write_fixtures.py"  # it runs in a checkout, and changes the code of that

# Most files need not be parsed: what changes a constant has one of these words, or assigns to it, or passes its name.
SUSPECT = re.compile(
    r"setattr|delattr|\bpatch\b|setitem|delitem|vars\(|__dict__|\._?[A-Z][A-Z0-9_]+\b[^=\n]*=(?!=)|[(,]\s*_?[A-Z][A-Z0-9_]+="
)
SETTERS = {"setattr", "delattr", "__setattr__", "__delattr__"}  # functions, or methods of a monkeypatch
METHODS = SETTERS | {"setitem", "delitem", "patch", "object", "dict", "multiple"}  # of a monkeypatch, of mock.patch
UNKNOWN = "?"  # stands before what is no import: a variable may well hold a module


def changed_constants(source: str) -> Iterator[str]:
    """The upper-case names of Holdfast's modules and classes to which this code gives another value."""
    tree = ast.parse(source)
    names = _imported(tree)
    for node in ast.walk(tree):
        for changed in _changed_by(node, names):
            owner, _, name = changed.rpartition(".")
            if name.isupper() and owner.startswith(("holdfast", UNKNOWN)):
                yield changed
        for script in _scripts(node):
            yield from changed_constants(script)


def _imported(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    root = alias.name.partition(".")[0]
                    names[alias.asname or root] = alias.name if alias.asname else root
            case ast.ImportFrom(module=str(module), names=aliases):
                names |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in aliases}
            case _:
                pass
    return names


def _changed_by(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            if not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}):
                yield _path(node, names)
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name)), ctx=ast.Store() | ast.Del()):
            if (namespace := _namespace(value)) is not None:
                yield f"{_path(namespace, names)}.{name}"
        case ast.Call(func=ast.Name(id=function)) if function in SETTERS:
            yield from _changed_by_call(node, names)
        case ast.Call(func=ast.Attribute(attr=function)) if function in METHODS:
            yield from _changed_by_call(node, names)
        case ast.Call(args=[owner, *_], keywords=keywords) if not _path(owner, names).startswith(UNKNOWN):
            yield from (f"{_path(owner, names)}.{keyword.arg}" for keyword in keywords)
        case _:
            return


def _changed_by_call(call: ast.Call, names: dict[str, str]) -> Iterator[str]:
    named = [keyword.value for keyword in call.keywords if keyword.arg in {"target", "name", "attribute", "dic"}]
    match [*call.args, *named]:
        case [owner, *rest]:
            place = _path(_namespace(owner) or owner, names)
            yield place  # a path as text, or a table that is changed where it is
            yield from (f"{place}.{each.value}" for each in rest[:1] if isinstance(each, ast.Constant))
            yield from (f"{place}.{keyword.arg}" for keyword in call.keywords)
        case _:
            return


def _namespace(value: ast.expr) -> ast.expr | None:
    """The module of `vars(module)` or `module.__dict__`."""
    match value:
        case ast.Call(func=ast.Name(id="vars"), args=[module]) | ast.Attribute(value=module, attr="__dict__"):
            return module
        case _:
            return None


def _path(value: ast.expr, names: dict[str, str]) -> str:
    """What an expression names: the path of an import, or a text that looks like one."""
    match value:
        case ast.Constant(value=str(path)):
            return path
        case ast.JoinedStr():
            return _text(value)
        case ast.Name(id=name):
            return names.get(name, f"{UNKNOWN}.{name}")
        case ast.Attribute(value=owner, attr=attr):
            return f"{_path(owner, names)}.{attr}"
        case ast.Call(func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"), args=[module, *_]):
            return _path(module, names)
        case ast.Subscript(value=ast.Attribute(attr="modules"), slice=module):
            return _path(module, names)
        case _:
            return UNKNOWN


def _scripts(node: ast.AST) -> Iterator[str]:
    """Code that is a text here, for another process."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        text = dedent(_text(node))
        if "import holdfast" in text or "from holdfast" in text:
            try:
                ast.parse(text)
            except SyntaxError:
                return
            yield text


def _text(node: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values)


@pytest.mark.parametrize(
    "code",
    [
        'monkeypatch.setattr("holdfast.stores.sqlite.files.BUSY_MS", 1)',
        'monkeypatch.setattr(f"holdfast.stores.{store}.files.BUSY_MS", 1)',
        'from holdfast.stores.sqlite import files\nmonkeypatch.setattr(files, "BUSY_MS", 1)',
        'from holdfast.stores.sqlite import files as f\npatch.setattr(f, "BUSY_MS", 1)',
        'from holdfast.stores.sqlite import files\nmonkeypatch.setattr(target=files, name="BUSY_MS", value=1)',
        'import holdfast.stores.sqlite.files\nmonkeypatch.setattr(holdfast.stores.sqlite.files, "BUSY_MS", 1)',
        'import holdfast.stores.sqlite.files as f\nmonkeypatch.delattr(f, "BUSY_MS")',
        'from holdfast.stores.sqlite import SqliteStore\nmonkeypatch.setattr(SqliteStore, "BUSY_MS", 1)',
        'from holdfast.stores.sqlite import files\nsetattr(files, "BUSY_MS", 1)',
        'for module in modules:\n    monkeypatch.setattr(module, "BUSY_MS", 1)',
        'monkeypatch.setattr(import_module("holdfast.stores.sqlite.files"), "BUSY_MS", 1)',
        'monkeypatch.setattr(sys.modules["holdfast.stores.sqlite.files"], "BUSY_MS", 1)',
        'with mock.patch("holdfast.stores.sqlite.files.BUSY_MS", 1): ...',
        'from holdfast.stores.sqlite import files\n@mock.patch.object(files, "BUSY_MS", 1)\ndef test(): ...',
        'with mock.patch.multiple("holdfast.stores.sqlite.files", BUSY_MS=1): ...',
        "from holdfast.stores.sqlite import files\nwith plant(files, BUSY_MS=1): ...",
        "from holdfast.stores.sqlite import files\nfiles.BUSY_MS = 1",
        "from holdfast.stores.sqlite import files\nfiles.BUSY_MS: int = 1",
        "from holdfast.stores.sqlite import files\nfiles.BUSY_MS += 1",
        "from holdfast.stores.sqlite import files\nfiles.BUSY_MS, other = 1, 2",
        "import holdfast.stores.sqlite.files\nholdfast.stores.sqlite.files.BUSY_MS = 1",
        'from holdfast.stores.sqlite import files\nvars(files)["BUSY_MS"] = 1',
        'from holdfast.stores.sqlite import files\nfiles.__dict__["BUSY_MS"] = 1',
        'from holdfast.stores.sqlite import files\nmonkeypatch.setitem(vars(files), "BUSY_MS", 1)',
        'from holdfast.cli import session\nmonkeypatch.setitem(session.EXIT_CODES, "error", 1)',
        'SCRIPT = """\n  from holdfast.stores.sqlite import files\n  files.BUSY_MS = 1\n"""',
        'run(f"""\nfrom holdfast.stores.sqlite import files\nfiles.BUSY_MS = {number}\n""")',
    ],
)
def test_a_changed_constant_is_recognized(code: str) -> None:
    assert SUSPECT.search(code)
    assert len(list(changed_constants(code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        'monkeypatch.setattr("holdfast.engine.runs.performer.Performer.attempt", 1)',
        'from holdfast.lab.cluster import redis\nmonkeypatch.setattr(redis, "free_port", lambda: 1)',
        'from examples import shop\nmonkeypatch.setattr(shop, "BOOKS", books)',
        'monkeypatch.setenv("HOLDFAST_URL", "memory://")',
        "from holdfast.stores.sqlite import files\nassert files.BUSY_MS == 1",
        "from holdfast.stores.sqlite.pace import SqlitePace\nPACE = SqlitePace(busy_ms=1)",
    ],
)
def test_what_else_a_test_does_is_let_pass(code: str) -> None:
    assert list(changed_constants(code)) == []


def test_no_test_changes_a_constant_of_holdfast() -> None:
    paths = set(TESTS.rglob("*.py")) - {Path(__file__), OF_ANOTHER_COMMIT}
    sources = {path: path.read_text(encoding="utf-8") for path in paths}
    found = {
        str(path.relative_to(TESTS)): changed
        for path, source in sources.items()
        if SUSPECT.search(source) and (changed := list(changed_constants(source)))
    }
    assert found == {}, "give the part that is tested another value instead"


def test_no_file_is_excused_that_changes_none_by_now() -> None:
    assert list(changed_constants(OF_ANOTHER_COMMIT.read_text(encoding="utf-8")))
