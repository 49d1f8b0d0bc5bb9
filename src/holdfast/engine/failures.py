"""Exceptions to data and back.

An exception reaches the workflow's code in the same shape when it happens and on every replay: as it was rebuilt
from its record, never as the live object. It is rebuilt as its own class if that can be imported under its name,
so `except CardDeclined` works; otherwise as `EffectFailed`, which names the class.

Neither way ever fails. An exception is foreign code: its `__str__`, its attributes, its constructor and even
its `__class__` may raise whatever they like. So what can be asked of Python is not asked of the exception, all else is
asked in a `try`, and what is too deep, too many or too long is cut, with a word about it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, TypeVar

from msgspec import UNSET, Raw, UnsetType

from holdfast.errors import EffectFailed
from holdfast.kernel.journal import Failure
from holdfast.ports.codec import Codec

_STEP = "__holdfast_step__"
DETAIL_MAX = 64 * 1024  # an exception explains; what is longer is data, and belongs into a result


DETAILS_MAX = 1024 * 1024  # of all members of a group together
MEMBERS_MAX = 1_000
DEPTH_MAX = 32  # of groups in groups, and of what an argument holds: a record must be readable from any stack
NAME_MAX = 1_000
_RELATED_MAX = 10_000
_GROUP = "ExceptionGroup"
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')  # of JSON
_BRACKETS = re.compile(rb"[\[\]{}]")

_dict: Any = dict  # its own methods: the attributes of an exception may be kept in a subclass

T = TypeVar("T")


def described(error: BaseException, codec: Codec) -> Failure:
    """`error` as data. Its arguments and attributes are kept if they can be stored."""
    failure = _tried(lambda: _described(error, codec, _Room(), DEPTH_MAX))
    return Failure("?.BaseException", "an exception that cannot be described") if failure is None else failure


def rebuilt(failure: Failure, codec: Codec, *, step: str = "") -> Exception:
    """The exception that `failure` describes; `step` is the step that raised it."""
    error = _tried(lambda: _noted(_instance(failure, codec), failure, step))
    return _noted(EffectFailed(failure.type, failure.message), failure, step) if error is None else error


def text_of(error: BaseException) -> str:
    """`str(error)`, in a form that can be stored."""
    text = _tried(lambda: str(error))
    return f"<{_class_name(type(error))} without words: its __str__ failed>" if text is None else _safe(text)


def worded(error: BaseException) -> str:
    """`error` in a line: its class, and what it says."""
    return f"{_class_name(type(error))}: {text_of(error)}"


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """The members of an exception group, whatever its class makes of them; none of any other exception."""
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    members: tuple[BaseException, ...] = _true(BaseExceptionGroup, "exceptions", error)
    return members


def tame(error: BaseException) -> BaseException:
    """`error`, unless it cannot even be asked what it is: then what could be learned about it."""
    if _tried(lambda: (isinstance(error, _Nothing),)) is not None:
        return error
    return EffectFailed(_name_of(type(error)), text_of(error))


class _Nothing:
    """No exception is an instance of it."""


class _Room:
    """How much may still be recorded of one exception with all its members."""

    def __init__(self) -> None:
        self.members = MEMBERS_MAX
        self.details = DETAILS_MAX

    def takes(self, length: int) -> bool:
        if length > self.details:
            return False
        self.details -= length
        return True


def _described(error: BaseException, codec: Codec, room: _Room, depth: int) -> Failure:
    is_group = issubclass(type(error), BaseExceptionGroup)
    message = _safe(_true(BaseExceptionGroup, "message", error)) if is_group else text_of(error)
    if not room.takes(len(message)):
        message = message[:NAME_MAX]
    attributes: dict[str, Any] = {
        name: value
        for name, value in _dict.items(_attributes_of(error))
        if issubclass(type(name), str) and not str.startswith(name, "__")
    }
    return Failure(
        type=_name_of(type(error)),
        message=message,
        args=UNSET if is_group else _stored(_tried(lambda: _args_of(error)), codec, room),
        state=_stored(attributes or None, codec, room),
        line=_tried(lambda: _line_of(error)) or "",
        step=_step_of(error),
        members=_members(error, codec, room, depth) if is_group else (),
    )


def _members(error: BaseException, codec: Codec, room: _Room, depth: int) -> tuple[Failure, ...]:
    if depth == 0:
        return (Failure(_GROUP, "what is grouped here lies too deep to be recorded"),)
    members, described_members = members_of(error), list[Failure]()
    for number, member in enumerate(members):
        if room.members == 0:
            described_members.append(Failure(_GROUP, f"{len(members) - number} more exceptions, not recorded"))
            break
        room.members -= 1
        described_members.append(_described(member, codec, room, depth - 1))
    return tuple(described_members)


def _noted(error: Exception, failure: Failure, step: str) -> Exception:
    if step:
        _dict.__setitem__(_attributes_of(error), _STEP, step)
        BaseException.add_note(error, f"raised by step {step}" + (f" at {failure.line}" if failure.line else ""))
    return error


def _tried(ask: Callable[[], T]) -> T | None:
    """What `ask` returns, or None if it raises: code of an exception may raise anything."""
    try:
        return ask()
    except BaseException:  # noqa: BLE001 - also SystemExit: it must not stop the worker
        return None


def _true(cls: type, name: str, of: object) -> Any:
    """The attribute as `cls` has it, even if a subclass has something else in its place."""
    return vars(cls)[name].__get__(of)


def _attributes_of(error: BaseException) -> dict[str, Any]:
    attributes: dict[str, Any] = _true(BaseException, "__dict__", error)
    return attributes


def _args_of(error: BaseException) -> list[Any]:
    if issubclass(type(error), OSError) and (filename := _true(OSError, "filename", error)) is not None:
        return [_true(OSError, "errno", error), _true(OSError, "strerror", error), filename]  # its args leave it out
    return list(_true(BaseException, "args", error))


def _stored(value: object, codec: Codec, room: _Room) -> Raw | UnsetType:
    if value is None:
        return UNSET
    data = _tried(lambda: codec.encode(value, what="an exception"))
    if data is None or len(data) > DETAIL_MAX or _is_deep(data) or not room.takes(len(data)):
        return UNSET
    return Raw(data)


def _is_deep(data: bytes) -> bool:
    """Whether the JSON is nested so deeply that a reader with less of its stack left might fail."""
    if data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(_TEXTS.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        if depth > DEPTH_MAX:
            return True
    return False


def _safe(text: str) -> str:
    """File names may bring lone surrogates into messages, which cannot be stored; and some messages are books."""
    return str.__getitem__(text, slice(0, DETAIL_MAX)).encode("utf-8", "backslashreplace").decode()


def _instance(failure: Failure, codec: Codec) -> Exception:
    if failure.members:
        return ExceptionGroup(failure.message, [rebuilt(member, codec, step=member.step) for member in failure.members])
    cls = _class_named(failure.type)
    args = [failure.message] if failure.args is UNSET else codec.decode(bytes(failure.args), list[Any])
    state: dict[str, Any] = {} if failure.state is UNSET else codec.decode(bytes(failure.state), dict[str, Any])
    error = None if cls is None else _tried(lambda: _constructed(cls, args, failure.message))
    if error is None and cls is not None:
        error = _tried(lambda: _unconstructed(cls, args, state))
    if error is None or tame(error) is not error:
        return EffectFailed(failure.type, failure.message)
    _dict.update(_attributes_of(error), state)
    if str(error) != failure.message:
        BaseException.add_note(error, failure.message)
    return error


def _constructed(cls: type[Exception], args: list[Any], message: str) -> Exception | None:
    """Made by its constructor, if that gives the same exception again: many pass on other arguments than they take."""
    error = cls(*args)
    return error if isinstance(error, cls) and str(error) == message else None


def _unconstructed(cls: type[Exception], args: list[Any], state: dict[str, Any]) -> Exception | None:
    """Made without its constructor, as pickle would."""
    error = cls.__new__(cls, *args)
    if not isinstance(error, cls):
        return None
    error.args = tuple(args)
    _dict.update(_attributes_of(error), state)
    str(error)
    return error


def _name_of(cls: type[BaseException]) -> str:
    module: Any = _tried(lambda: _true(type, "__module__", cls))
    name = _class_name(cls, "__qualname__")
    if not issubclass(type(module), str):
        return f"?.{name}"  # no module has this name, so it is rebuilt as nothing else
    return name if str.__eq__(module, "builtins") else f"{_safe(module)[:NAME_MAX]}.{name}"


def _class_name(cls: type, attribute: str = "__name__") -> str:
    return _safe(_true(type, attribute, cls))[:NAME_MAX]


def _class_named(name: str) -> type[Exception] | None:
    """The exception class of this name, if its module has been imported. Nothing is imported on its behalf."""
    module_name, _, qualname = name.rpartition(".")
    while module_name and module_name not in sys.modules:
        module_name, _, outer = module_name.rpartition(".")
        qualname = f"{outer}.{qualname}"
    found: Any = sys.modules.get(module_name or "builtins")
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, Exception):
        return None
    return None if issubclass(found, StopIteration) else found  # a future cannot carry that one


def _line_of(error: BaseException) -> str:
    trace = _true(BaseException, "__traceback__", error)
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{_safe(PurePath(trace.tb_frame.f_code.co_filename).name)}:{trace.tb_lineno}"


def _step_of(error: BaseException) -> str:
    """The step whose failure this exception is, or was caused by."""
    for related in _related(error):
        step: Any = _dict.get(_attributes_of(related), _STEP, "")
        if issubclass(type(step), str) and step:
            return step
    return ""


def _related(error: BaseException) -> Iterator[BaseException]:
    """The exception, then its members and its cause, each with all that is related to it."""
    # Not recursive: such chains may be longer than Python's own stack.
    left, seen = [error], set[int]()
    while left and len(seen) < _RELATED_MAX:
        related = left.pop()
        if id(related) in seen:
            continue
        seen.add(id(related))
        yield related
        cause = _true(BaseException, "__cause__", related)
        if cause is None:
            cause = _true(BaseException, "__context__", related)
        if cause is not None:
            left.append(cause)
        left += reversed(members_of(related))
