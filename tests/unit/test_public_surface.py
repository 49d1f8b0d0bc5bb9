"""The public surface: what may be imported, and that every type in a signature is among it."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import typing
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import msgspec
import pytest

import holdfast
from docs.generate import NOT_BUILT, PUBLIC
from holdfast import assembly, errors, events
from holdfast.engine.api.documents import Documents
from holdfast.engine.api.rate_limits import RateLimits
from holdfast.engine.remote.tasks import Tasks
from holdfast.ports.bus import Bus
from holdfast.ports.store import Store

# Those who use their verbs write stores, gateways or workers of their own, and read the pages about that.
OPAQUE = (Store, Bus, Documents, RateLimits, Tasks)
EXPORTED = [getattr(module, name) for module in PUBLIC for name in module.__all__]
NAMED = [(module, name) for module in PUBLIC for name in module.__all__]
IDS = [f"{module.__name__}.{name}" for module, name in NAMED]


@cache
def _known_to(module: ModuleType) -> dict[str, Any]:
    """The names of a module, those included that it imports for the type checker only."""
    known = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("holdfast"):
            for each in node.names:
                known.setdefault(each.asname or each.name, getattr(importlib.import_module(node.module), each.name))
    return known


def _mentioned(annotation: Any, module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The names in an annotation, with what they stand for; names that only the type checker knows are left out."""
    text = getattr(annotation, "__forward_arg__", annotation)
    if not isinstance(text, str):
        text = text.__name__ if inspect.isclass(text) else "None"
    known = _known_to(module)
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.Name) and node.id in known:
            yield node.id, known[node.id]


def _is_ours(thing: Any) -> bool:
    if isinstance(thing, TypeVar | ParamSpec | ModuleType):
        return False
    if inspect.isclass(thing):
        return thing.__module__.startswith("holdfast.")
    return getattr(typing, getattr(thing, "__name__", None) or getattr(thing, "_name", None) or "", None) is not thing


def _of_callers(function: Any) -> list[Any]:
    """The annotations of a function, but those of parameters that are not for callers."""
    return [each for parameter, each in function.__annotations__.items() if not parameter.startswith("_")]


def _annotations(thing: Any, name: str) -> Iterator[tuple[str, Any, ModuleType]]:
    """Where something is annotated for callers, what the annotation is, and in which module it was written."""
    if not inspect.isclass(thing):
        if inspect.isfunction(thing):
            yield from ((name, each, sys.modules[thing.__module__]) for each in _of_callers(thing))
        return
    for owner in thing.__mro__:
        if not owner.__module__.startswith("holdfast.") or thing in OPAQUE:
            continue
        module = sys.modules[owner.__module__]
        if issubclass(owner, msgspec.Struct | tuple) or typing.is_typeddict(owner):
            yield from ((f"{name}.{field}", each, module) for field, each in inspect.get_annotations(owner).items())
        for member, value in vars(owner).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if not inspect.isfunction(function) or function.__module__ not in sys.modules:
                continue
            is_shown = not member.startswith("_") or (member == "__init__" and owner is thing and name not in NOT_BUILT)
            if is_shown and function.__module__.startswith("holdfast."):
                where = sys.modules[function.__module__]
                yield from ((f"{name}.{member}", each, where) for each in _of_callers(function))


@pytest.mark.parametrize(("module", "name"), NAMED, ids=IDS)
def test_every_type_in_a_public_signature_can_be_imported_from_a_public_module(module: ModuleType, name: str):
    hidden = {
        f"{where} mentions {mentioned}"
        for where, annotation, written_in in _annotations(getattr(module, name), name)
        for mentioned, thing in _mentioned(annotation, written_in)
        if _is_ours(thing)
        and not any(thing is each or (type(thing) is type(each) and thing == each) for each in EXPORTED)
    }
    assert hidden == set()


def test_the_walk_sees_what_is_hidden():
    """Otherwise the test above would hold whatever the code does."""
    seen = {
        mentioned
        for where, annotation, written_in in _annotations(assembly.Holdfast, "Holdfast")
        for mentioned, thing in _mentioned(annotation, written_in)
        if _is_ours(thing)
    }
    assert {"Store", "Bus", "Pack", "Duration", "Runtime", "Event", "Metrics", "Blocking", "Run", "Range"} <= seen
    assert _is_ours(assembly.Ports)
    assert not _is_ours(typing.Any)
    assert not _is_ours(typing.Literal)


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_a_public_module_lists_its_names_in_order_and_has_them(module: ModuleType):
    names = module.__all__
    assert len(names) == len(set(names))
    assert list(names) == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert [name for name in names if not hasattr(module, name)] == []


def test_the_root_is_small_and_has_the_roots_of_the_tree_of_errors():
    assert len(holdfast.__all__) <= 54
    assert {"HoldfastError", "UsageError", "RunError", "TransientError"} <= set(holdfast.__all__)


def test_a_name_of_the_root_is_the_one_that_type_checkers_see_imported():
    tree = ast.parse(inspect.getsource(holdfast))
    seen = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("holdfast.")
        for alias in node.names
    }
    homes = {name: f"holdfast.{home}" for home, names in holdfast._HOMES.items() for name in names.split()}
    assert homes == seen
    assert sorted(seen) == sorted(holdfast.__all__)
    for name, module in seen.items():
        assert getattr(holdfast, name) is getattr(importlib.import_module(module), name)
        assert name in dir(holdfast)


def test_a_public_module_is_reached_through_the_root():
    children = [module.__name__.removeprefix("holdfast.") for module in PUBLIC if module.__name__.count(".") == 1]
    assert len(children) > 8
    for name in children:
        assert name in holdfast._HOMES, name
        assert holdfast.__getattr__(name) is importlib.import_module(f"holdfast.{name}")


def test_a_name_that_is_not_there_is_told_apart_from_a_module_that_is_broken(monkeypatch: pytest.MonkeyPatch):
    assert not hasattr(holdfast, "Sleep")
    with pytest.raises(AttributeError, match="no attribute 'Sleep'"):
        holdfast.__getattr__("Sleep")
    with pytest.raises(ImportError, match="cannot import name 'Sleep'"):
        exec("from holdfast import Sleep")

    def broken(name: str) -> ModuleType:
        raise AttributeError("module 'msgspec' has no attribute 'Struct'")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ImportError, match=r"holdfast.pack cannot be imported: module 'msgspec' has no attribute"):
        holdfast.__getattr__("Pack")


def test_every_error_and_every_event_is_public():
    for module, root in ((errors, Exception), (events, events.Event)):
        defined = {
            name
            for name, thing in vars(module).items()
            if inspect.isclass(thing) and issubclass(thing, root) and thing.__module__ == module.__name__
        }
        assert defined == set(module.__all__)


def test_a_holdfast_shows_its_verbs_and_little_else():
    own = {name for name in vars(assembly.Holdfast) if not name.startswith("_")}
    assert own == {"blocking", "listen", "metrics", "namespaced", "runtime", "serve"}
