"""Finds the packs that a person names: `shop.orders` is every pack of a module, `shop.orders:pack` is one of them.

A seal is named in the same way, with its attribute.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import cast

import holdfast
from holdfast.engine.failures import worded
from holdfast.errors import InvalidConfig
from holdfast.pack import Pack
from holdfast.ports.seal import Seal

_HOLDFAST = str(Path(holdfast.__file__).parent) + os.sep


def load(names: Iterable[str]) -> list[Pack]:
    """The packs, each once, in the order in which they were named. The current directory is looked in first."""
    _look_here_first()
    packs: list[Pack] = []
    for name in names:
        packs += [pack for pack in _find(name) if pack not in packs]
    return packs


def module_named(name: str) -> ModuleType:
    """The module of this name. The current directory is looked in first."""
    _look_here_first()
    return _module(name)


def load_seal(name: str) -> Seal:
    """The seal that is meant by `module:attribute`."""
    _look_here_first()
    module_name, _, attribute = name.partition(":")
    seal = getattr(_module(module_name), attribute, None) if attribute else None
    if not all(callable(getattr(seal, verb, None)) for verb in ("seal", "open")):
        raise InvalidConfig(
            f"{name!r} names no seal", hint="Name an object that has the methods seal and open: shop.keys:ring."
        )
    return cast("Seal", seal)


def _look_here_first() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _find(name: str) -> list[Pack]:
    module_name, _, attribute = name.partition(":")
    module = _module(module_name)
    if attribute:
        pack = getattr(module, attribute, None)
        if not isinstance(pack, Pack):
            what = "is not there" if pack is None else f"is no Pack but {type(pack).__name__}"
            raise InvalidConfig(f"{attribute!r} of module {module_name!r} {what}", hint=_packs_of(module))
        return [pack]
    packs = [value for value in vars(module).values() if isinstance(value, Pack)]
    if not packs:
        raise InvalidConfig(
            f"module {module_name!r} has no pack",
            hint='A pack is made by `shop = Pack("shop")` at the top of a module.',
        )
    return packs


def _module(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise InvalidConfig(f"{name!r} is a path, not a module", hint=f"Write {dotted!r}, and stand in its root.")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InvalidConfig(
                f"module {name!r} needs {error.name!r}, which is not installed", hint="Install it, or correct the name."
            ) from error
        raise InvalidConfig(
            f"there is no module {name!r}",
            hint=f"Modules are looked for in {Path.cwd()} and where Python is installed.",
        ) from error
    except Exception as error:  # whatever a module of the user's raises, it is the module's own fault
        raise InvalidConfig(
            f"module {name!r} cannot be imported: {worded(error)}", hint=f"It was raised at {_place(error)}."
        ) from error


def _place(error: Exception) -> str:
    """Where the user's code is at fault: never a line of Holdfast, which refuses it, or of what imports it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if not _is_machinery(frame.filename)), frames[-1])
    return f"{last.filename}:{last.lineno}"


def _is_machinery(filename: str) -> bool:
    return filename.startswith(("<frozen ", _HOLDFAST)) or filename == importlib.__file__


def _packs_of(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Pack)]
    return f"Its packs are: {', '.join(names) or 'none'}."
