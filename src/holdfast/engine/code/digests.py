"""A digest of the code of a workflow: the same in every process and on every machine that has the same source.

It covers the function and what it defines inside, and, as far as they are functions of the same package, the functions
that it names; of effects and workflows, how they are called. It does not cover lines, paths, and what an effect does:
none of these changes what the code asks for. Nor does it cover constants of modules, which may; a declared `version`
is for that.

It may differ where the code does not (another Python compiles otherwise): that costs one try more, see
`kernel.handovers`. It must not be the same where the code asks for something else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from holdfast.pack import Effect, Workflow

Target = Effect[..., Any] | Workflow[..., Any]

FUNCTIONS_MAX = 1_000  # of one workflow
DIGEST_BYTES = 8
_REACHABLE: tuple[type[Any], ...] = (FunctionType, MethodType, Effect, Workflow)


def digest_of_code(workflow: Workflow[..., Any]) -> str:
    """The digest of the workflow's code and of its declared version."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in (workflow.name, workflow.version or "", *_called(workflow), *_texts(workflow.fn)):
        digest.update(part.encode(errors="surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


def _texts(fn: Callable[..., Any]) -> Iterator[str]:
    """The function and all that it reaches, as text, in the order in which the code names them."""
    top = _top_package(fn)
    waiting, seen = [fn], set[int]()
    while waiting and len(seen) < FUNCTIONS_MAX:
        function = _plain(waiting.pop(0))
        if function is None or id(function) in seen:
            continue
        seen.add(id(function))
        yield function.__qualname__
        yield from _code(function.__code__)
        yield from map(_constant, (function.__defaults__ or (), *(function.__kwdefaults__ or {}).items()))
        for value in _reached(function):
            if isinstance(value, Effect | Workflow):
                yield from _called(cast("Target", value))
            elif _top_package(value) == top:
                waiting.append(value)


def _plain(value: object) -> FunctionType | None:
    """The Python function behind a method, a partial or a decorator that says what it wraps."""
    if isinstance(value, MethodType):
        value = value.__func__
    wrapped = inspect.unwrap(value) if callable(value) else value
    return wrapped if isinstance(wrapped, FunctionType) else None


def _reached(function: FunctionType) -> Iterator[Any]:
    """Functions, effects and workflows that the code of the function names."""
    names = list(_names(function.__code__))
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    found = [function.__globals__[name] for name in names if name in function.__globals__]
    for value in (*cells, *found):
        if isinstance(value, ModuleType):
            yield from _functions(vars(value)[name] for name in names if name in vars(value))
        elif inspect.isclass(value):
            yield from _functions(vars(value).values())
        else:
            yield from _functions([value])


def _functions(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, _REACHABLE):
            yield value


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # of a name that was never bound
        return False


def _called(target: Target) -> Iterator[str]:
    """What follows for a journal from how an effect or a workflow is declared: name, key, parameters, defaults."""
    yield target.name
    yield "" if target.key is None else target.key.text
    for parameter in inspect.signature(target.fn).parameters.values():
        yield f"{parameter.kind}{parameter.name}{_constant(parameter.default)}"


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _code(code: CodeType) -> Iterator[str]:
    """The instructions, without the place where they were written."""
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield _constant(constant)


def _constant(value: object) -> str:
    """A constant as text that is the same in every process; nothing of what is no constant."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes():
            return repr(value)
        case tuple():
            return f"({','.join(map(_constant, cast('tuple[object, ...]', value)))})"
        case frozenset():
            return f"{{{','.join(sorted(map(_constant, value)))}}}"
        case _:
            return type(value).__qualname__


def _top_package(value: object) -> str:
    return str(getattr(value, "__module__", None) or "").partition(".")[0]
