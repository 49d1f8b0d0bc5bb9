"""Exceptions to data and back.

An exception reaches the workflow's code in the same shape when it happens and on every replay: as it was rebuilt
from its record, never as the live object. It is rebuilt as its own class if that can be imported under its name,
so `except CardDeclined` works; otherwise as `EffectFailed`, which names the class.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from holdfast.errors import EffectFailed, NotSerializable, PayloadTooLarge
from holdfast.kernel.journal import Failure
from holdfast.ports.codec import Codec

_STEP = "__holdfast_step__"
DETAIL_MAX = 64 * 1024  # an exception explains; what is longer is data, and belongs into a result


def described(error: BaseException, codec: Codec) -> Failure:
    """`error` as data. Its arguments and attributes are kept if they can be stored."""
    members: tuple[Failure, ...] = ()
    message = str(error)
    if isinstance(error, BaseExceptionGroup):
        members = tuple(described(member, codec) for member in error.exceptions)
        message = error.message
    return Failure(
        type=_name_of(type(error)),
        message=_safe(message),
        args=_stored(_args_of(error), codec),
        state=_stored({name: value for name, value in vars(error).items() if not name.startswith("__")} or None, codec),
        line=_line_of(error),
        step=_step_of(error),
        members=members,
    )


def rebuilt(failure: Failure, codec: Codec, *, step: str = "") -> Exception:
    """The exception that `failure` describes; `step` is the step that raised it."""
    error = _instance(failure, codec)
    if step:
        setattr(error, _STEP, step)
        error.add_note(f"raised by step {step}" + (f" at {failure.line}" if failure.line else ""))
    return error


def _args_of(error: BaseException) -> list[Any]:
    if isinstance(error, OSError) and error.filename is not None:
        return [error.errno, error.strerror, error.filename]  # its args leave the file name out
    return list(error.args)


def _stored(value: object, codec: Codec) -> Raw | UnsetType:
    if value is None:
        return UNSET
    try:
        data = codec.encode(value, what="an exception")
    except (NotSerializable, PayloadTooLarge):
        return UNSET
    return Raw(data) if len(data) <= DETAIL_MAX else UNSET


def _safe(text: str) -> str:
    """File names may bring lone surrogates into messages, which cannot be stored; and some messages are books."""
    return text[:DETAIL_MAX].encode("utf-8", "backslashreplace").decode()


def _instance(failure: Failure, codec: Codec) -> Exception:
    if failure.members:
        return ExceptionGroup(failure.message, [rebuilt(member, codec, step=member.step) for member in failure.members])
    cls = _class_named(failure.type)
    args = [failure.message] if failure.args is UNSET else codec.decode(bytes(failure.args), list[Any])
    state: dict[str, Any] = {} if failure.state is UNSET else codec.decode(bytes(failure.state), dict[str, Any])
    error = None if cls is None else _constructed(cls, args, failure.message) or _unconstructed(cls, args, state)
    if error is None:
        return EffectFailed(failure.type, failure.message)
    error.__dict__.update(state)
    if str(error) != failure.message:
        error.add_note(failure.message)
    return error


def _constructed(cls: type[Exception], args: list[Any], message: str) -> Exception | None:
    """Made by its constructor, if that gives the same exception again: many pass on other arguments than they take."""
    try:
        error = cls(*args)
        return error if str(error) == message else None
    except Exception:  # noqa: BLE001 - it wants other arguments
        return None


def _unconstructed(cls: type[Exception], args: list[Any], state: dict[str, Any]) -> Exception | None:
    """Made without its constructor, as pickle would."""
    try:
        error = cls.__new__(cls, *args)
        error.args = tuple(args)
        error.__dict__.update(state)
        str(error)
    except Exception:  # noqa: BLE001 - a class that cannot be made in any way we know
        return None
    return error


def _name_of(cls: type[BaseException]) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _class_named(name: str) -> type[Exception] | None:
    """The exception class of this name, if its module has been imported. Nothing is imported on its behalf."""
    module_name, _, qualname = name.rpartition(".")
    while module_name and module_name not in sys.modules:
        module_name, _, outer = module_name.rpartition(".")
        qualname = f"{outer}.{qualname}"
    found: Any = sys.modules.get(module_name or "builtins")
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _line_of(error: BaseException) -> str:
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def _step_of(error: BaseException) -> str:
    """The step whose failure this exception is, or was caused by."""
    for related in _related(error, set()):
        step = getattr(related, _STEP, "")
        if step:
            return step
    return ""


def _related(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _related(member, seen)
    yield from _related(error.__cause__ or error.__context__, seen)
