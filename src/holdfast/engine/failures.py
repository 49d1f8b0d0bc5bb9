"""Exceptions to data and back.

An exception reaches the workflow's code in the same shape when it happens and on every replay: as it was rebuilt
from its record, never as the live object. It is rebuilt as its own class if that can be imported under its name,
so `except CardDeclined` works; otherwise as `EffectFailed`, which names the class.

Neither way ever fails. An exception is foreign code: its `__str__`, its attributes, its constructor and even
its `__class__` may raise whatever they like. So what can be asked of Python is not asked of the exception, all else is
asked in a `try`, and what is too deep, too many or too long is cut, with a word about it.
"""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from types import FrameType, TracebackType
from typing import Any, TypeVar

from msgspec import UNSET, Raw, UnsetType

from holdfast.errors import EffectFailed
from holdfast.kernel.journal import Failure
from holdfast.ports.codec import Codec

_STEP = "__holdfast_step__"
_TRACE = "__holdfast_trace__"
DETAIL_MAX = 64 * 1024  # an exception explains; what is longer is data, and belongs into a result


DETAILS_MAX = 1024 * 1024  # of all members of a group together
MEMBERS_MAX = 1_000
DEPTH_MAX = 32  # of groups in groups, and of what an argument holds: a record must be readable from any stack
NAME_MAX = 1_000
FRAMES_MAX = 20  # of one exception with its causes: the innermost ones
TRACEBACK_MAX = 8 * 1024
TRACEBACKS_MAX = 64 * 1024  # of all members of a group together
_CAUSES_MAX = 5
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
        self.traces = TRACEBACKS_MAX

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
        traceback=_traceback(error, room),
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
    if failure.traceback:
        _dict.__setitem__(_attributes_of(error), _TRACE, failure.traceback)
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


def place_of(error: BaseException) -> str:
    """The line that raised `error`, be it in Holdfast: for reports about Holdfast itself."""
    places = _places(error)
    return _brief(places[-1]) if places else ""


def _line_of(error: BaseException) -> str:
    """The user's line: where their own code was, or else the library that it called; never Holdfast's or asyncio's."""
    places = [each for each in _places(error) if _is_users(each[0])]
    own = [each for each in places if not _is_library(each[0])]
    return _brief((own or places)[-1]) if places else ""


_Place = tuple[FrameType, int]


def _places(error: BaseException) -> list[_Place]:
    """The frames that `error` has passed, outermost first, and the line in each."""
    trace: TracebackType | None = _true(BaseException, "__traceback__", error)
    places: list[_Place] = []
    while trace is not None:
        places.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return places


def _brief(place: _Place) -> str:
    return f"{_safe(PurePath(place[0].f_code.co_filename).name)}:{place[1]}"


_OURS = f"{Path(__file__).parents[1]}/"
_STDLIB = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_LIBRARIES = ("/site-packages/", "/dist-packages/")


def _is_library(frame: FrameType) -> bool:
    return any(each in frame.f_code.co_filename for each in _LIBRARIES)


def _is_users(frame: FrameType) -> bool:
    """Whether a frame is neither Holdfast's nor Python's own."""
    name = frame.f_code.co_filename
    if name.startswith((_OURS, "<frozen ")):
        return False
    return _is_library(frame) or not name.startswith(_STDLIB)


def _traceback(error: BaseException, room: _Room) -> str:
    """The user's frames as text, within bounds; formed only where something was raised."""
    text = _tried(lambda: _safe(_frames_text(error)))
    if not text:
        return ""
    most = min(TRACEBACK_MAX, room.traces)
    if len(text.encode()) > most:
        # The end is where it happened.
        text = text.encode()[-max(0, most - 8) :].decode("utf-8", "ignore") if most > NAME_MAX else ""
        text = f"  ...\n{text.partition(chr(10))[2]}" if text else ""
    room.traces -= len(text.encode())
    return text


def _frames_text(error: BaseException) -> str:
    """What led to the error, as Python prints it: the causes first."""
    left, parts = FRAMES_MAX, list[str]()
    each: BaseException | None = error
    seen: set[int] = set()  # a cause may be its own: Python prints each once, too
    for number in range(_CAUSES_MAX):
        if each is None or left <= 0 or id(each) in seen:
            break
        seen.add(id(each))
        places = [place for place in _places(each) if _is_users(place[0])]
        cut = "  ...\n" if len(places) > left else ""
        frames = cut + "".join(_frame_text(place) for place in places[-left:])
        recorded: Any = _dict.get(_attributes_of(each), _TRACE, "")
        if issubclass(type(recorded), str) and recorded:  # of the step that raised it, perhaps in another process
            frames += recorded
        left -= len(places)
        if frames:
            parts.append(frames if number == 0 else f"{worded(each)[:NAME_MAX]}\n{frames}")
        each = _cause_of(each)
    return "caused:\n".join(reversed(parts))


def _frame_text(place: _Place) -> str:
    frame, number = place
    code = frame.f_code
    # A file may have a name that no file can have; its frame is told without its source.
    line = _tried(lambda: linecache.getline(code.co_filename, number, frame.f_globals))
    source = (line or "").strip()[:NAME_MAX]
    text = f'  File "{code.co_filename}", line {number}, in {code.co_qualname}\n'
    return f"{text}    {source}\n" if source else text


def _cause_of(error: BaseException) -> BaseException | None:
    cause: BaseException | None = _true(BaseException, "__cause__", error)
    if cause is None and not _true(BaseException, "__suppress_context__", error):
        cause = _true(BaseException, "__context__", error)
    return cause


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
