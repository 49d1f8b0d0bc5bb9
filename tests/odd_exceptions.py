"""Exceptions that make trouble when they are asked about: real ones are seldom this odd, and never all at once.

Each is raised by a function of `ODD`, by its name. The classes are here, at the top of a module, so that they can be
rebuilt where they behave.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, NoReturn, Self

from holdfast.errors import HoldfastError, Permanent, RetryAfter


class NoWords(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class WordsThatExit(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class WordsThatAreNoText(Exception):
    def __str__(self) -> Any:
        return 5  # noqa: PLE0307 - that is what is odd about it


class WordsWithoutEnd(Exception):
    def __str__(self) -> str:
        return str(self)


class NoRepr(Exception):
    def __repr__(self) -> str:
        raise ValueError("no repr")


class Text(str):
    """Text that is another thing than it seems."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> NoReturn:
        raise ValueError(key)

    def encode(self, encoding: str = "", errors: str = "") -> NoReturn:
        raise ValueError(encoding + errors)

    def __str__(self) -> str:
        raise ValueError


class WordsOfAnOddKind(Exception):
    def __str__(self) -> str:
        return Text("odd")


class NoSlotsLeft(Exception):
    __slots__ = ("code",)

    def __init__(self) -> None:
        super().__init__("slots")
        self.code = 7


class NoDict(Exception):
    @property
    def __dict__(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise ValueError("no dict")


class NoAttributes(Exception):
    def __getattribute__(self, name: str) -> NoReturn:
        raise ValueError(name)


class Gettable(Exception):
    def __getattr__(self, name: str) -> Any:
        return self


class NoArgs(Exception):
    args: Any = None  # pyright: ignore[reportIncompatibleVariableOverride]


class NoClass(Exception):
    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise ValueError("no class")


class Liar(Exception):
    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ExceptionGroup


class Falsy(Exception):
    def __bool__(self) -> bool:
        raise ValueError("neither")


class Empty(Exception):
    def __len__(self) -> int:
        return 0


class Unequal(Exception):
    def __eq__(self, other: object) -> bool:
        raise ValueError("not comparable")

    def __hash__(self) -> int:
        raise ValueError("not hashable")


class NeedsKeywords(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class ConstructedOnce(Exception):
    made = 0

    def __init__(self, *args: object) -> None:
        if type(self).made:
            raise SystemExit(4)
        super().__init__(*args)

    @classmethod
    def first(cls) -> Self:
        cls.made = 0
        error = cls("the only one")
        cls.made = 1
        return error


class MadeAsText(Exception):
    def __new__(cls, *args: object) -> Any:
        return super().__new__(cls, *args) if args and args[0] is cls else "text"


class Unsettable(Exception):
    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise ValueError(name)


class NoNotes(Exception):
    __notes__ = "no list"  # pyright: ignore[reportAssignmentType]

    def add_note(self, note: str, /) -> NoReturn:
        raise ValueError(note)


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in {"__module__", "__mro__", "__name__", "__qualname__"}:
            raise ValueError(name)
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=Meta):
    pass


class OddGroup(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise ValueError("no members")

    def derive(self, excs: Any, /) -> NoReturn:
        raise ValueError(excs)


class GroupWithoutWords(ExceptionGroup[Exception]):
    def __str__(self) -> str:
        raise ValueError("no words")


class BareBase(BaseException):
    pass


class OwnStop(StopIteration):
    pass


class OwnExit(SystemExit):
    pass


class NoSeconds(RetryAfter):
    def __init__(self) -> None:
        Exception.__init__(self, "soon")


class OwnPermanent(Permanent):
    def __init__(self) -> None:
        Exception.__init__(self)


class OwnHoldfastError(HoldfastError):
    hint: Any = property(lambda self: 1 / 0)  # pyright: ignore[reportIncompatibleVariableOverride]


class OddPath(OSError):
    filename: Any = property(lambda self: 1 / 0)  # pyright: ignore[reportIncompatibleVariableOverride]


def _deep_group(depth: int) -> ExceptionGroup[Exception]:
    group: ExceptionGroup[Exception] = ExceptionGroup("innermost", [ValueError("deep")])
    for level in range(depth):
        group = ExceptionGroup(f"level {level}", [group])
    return group


def _wide_group(width: int) -> ExceptionGroup[Exception]:
    return ExceptionGroup("wide", [ValueError("x" * 300, number) for number in range(width)])


def _long_chain(length: int) -> Exception:
    first = error = ValueError("the last")
    for number in range(length):
        cause = ValueError(number)
        if number % 2:
            error.__cause__ = cause
        else:
            error.__context__ = cause
        error = cause
    return first


def _in_a_circle() -> Exception:
    error, other = ValueError("a"), ValueError("b")
    error.__cause__, other.__context__ = other, error
    return error


def _of_class(name: str, **attributes: Any) -> Exception:
    cls: Any = type(name, (Exception,), attributes)
    return cls("made on the fly")


def _without_module() -> Exception:
    error = _of_class("Loose")
    del type(error).__module__
    return error


def _holding(value: object) -> Exception:
    error = ValueError("holds something", value)
    error.held = value  # pyright: ignore[reportAttributeAccessIssue]
    return error


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def _with_odd_attributes() -> Exception:
    class Dict(dict[Any, Any]):
        def items(self) -> NoReturn:
            raise ValueError

    error = ValueError("odd attributes")
    error.__dict__ = Dict({1: 2, "a\udcff": NoRepr(), "fine": 1})
    return error


def _noted() -> Exception:
    error = ValueError("noted")
    error.__notes__ = [1, NoWords(), None]  # pyright: ignore[reportAttributeAccessIssue]
    return error


class Unrepresentable:
    def __repr__(self) -> str:
        raise ValueError

    def model_dump(self, mode: str) -> NoReturn:
        raise KeyError(mode)


def _recursion() -> NoReturn:
    # A collection at the very end of the stack has no room for the callbacks that tools have put into the collector,
    # and Python would print that.
    gc.disable()
    try:
        _dive()
    finally:
        gc.enable()


def _dive() -> NoReturn:
    _dive()


def _raised(make: Callable[[], BaseException]) -> Callable[[], NoReturn]:
    def throw() -> NoReturn:
        raise make()

    return throw


ODD: dict[str, Callable[[], object]] = {
    "a 900-deep group": _raised(lambda: _deep_group(900)),
    "a group of 5,000": _raised(lambda: _wide_group(5_000)),
    "a group of odd ones": _raised(
        lambda: ExceptionGroup("odd", [NoWords(), NoDict(), NoAttributes(), _holding_itself()])
    ),
    "a group of bases": _raised(lambda: BaseExceptionGroup("bases", [KeyboardInterrupt(), SystemExit(1), BareBase()])),
    "an odd group": _raised(lambda: OddGroup("odd", [ValueError("x")])),
    "a group without words": _raised(lambda: GroupWithoutWords("mute", [ValueError("x")])),
    "a group with odd words": _raised(lambda: ExceptionGroup(Text("odd"), [ValueError("x")])),
    "a chain of 20,000": _raised(lambda: _long_chain(20_000)),
    "a circle": _raised(_in_a_circle),
    "no words": _raised(NoWords),
    "words that exit": _raised(WordsThatExit),
    "words that are no text": _raised(WordsThatAreNoText),
    "words without end": _raised(WordsWithoutEnd),
    "words of an odd kind": _raised(WordsOfAnOddKind),
    "words with surrogates": _raised(lambda: ValueError("\udcff\x00\u2028")),
    "words without measure": _raised(lambda: ValueError("x" * 5_000_000)),
    "no repr": _raised(NoRepr),
    "a key without repr": _raised(lambda: KeyError(NoRepr())),
    "slots": _raised(NoSlotsLeft),
    "no dict": _raised(NoDict),
    "no attributes": _raised(NoAttributes),
    "any attribute": _raised(Gettable),
    "odd attributes": _raised(_with_odd_attributes),
    "no args": _raised(NoArgs),
    "no class": _raised(NoClass),
    "another class": _raised(Liar),
    "falsy": _raised(Falsy),
    "empty": _raised(Empty),
    "unequal": _raised(Unequal),
    "keywords": _raised(lambda: NeedsKeywords(code=3)),
    "constructed once": _raised(ConstructedOnce.first),
    "made as text": _raised(lambda: MadeAsText(MadeAsText, "x")),
    "unsettable": _raised(Unsettable),
    "no notes": _raised(NoNotes),
    "odd notes": _raised(_noted),
    "nameless": _raised(Nameless),
    "a module that is none": _raised(lambda: _of_class("ValueError", __module__=None)),
    "a module that is a number": _raised(lambda: _of_class("ValueError", __module__=7)),
    "no module": _raised(_without_module),
    "a name with a surrogate": _raised(lambda: _of_class("\u00c4\udcff")),
    "a long name": _raised(lambda: _of_class("X" * 100_000)),
    "holds itself": _raised(lambda: _holding(itself())),
    "holds depth": _raised(lambda: _holding(_nested(800))),
    "holds what cannot be shown": _raised(lambda: _holding(Unrepresentable())),
    "holds an odd one": _raised(lambda: _holding(NoAttributes())),
    "a bare base": _raised(BareBase),
    "KeyboardInterrupt": _raised(KeyboardInterrupt),
    "SystemExit": _raised(lambda: SystemExit(NoRepr())),
    "an exit of its own": _raised(OwnExit),
    "GeneratorExit": _raised(GeneratorExit),
    "StopIteration": _raised(lambda: StopIteration(NoRepr())),
    "a stop of its own": _raised(OwnStop),
    "StopAsyncIteration": _raised(StopAsyncIteration),
    "MemoryError": _raised(MemoryError),
    "RecursionError": _recursion,
    "an odd path": _raised(lambda: OddPath(2, "no such file", "\udcff")),
    "no seconds": _raised(NoSeconds),
    "odd seconds": _raised(lambda: RetryAfter(float("nan"))),
    "permanent": _raised(OwnPermanent),
    "an odd hint": _raised(lambda: OwnHoldfastError("x")),
    "InvalidStateError": _raised(asyncio.InvalidStateError),
}


def _holding_itself() -> Exception:
    return _holding(itself())
