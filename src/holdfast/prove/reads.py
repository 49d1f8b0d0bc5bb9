"""What the code of a workflow reads that no journal records: the time, chance, the environment, its process.

A replay in another process reads something else. It is looked for while the clean run is lived, and only at lines of
the user's own: of the packages that the packs are in, wherever they are installed, and of all files that no
installation has brought. A library may look at the clock for a log line.

A generator of chance that the workflow seeds by itself, `Random(order)`, gives the same on every replay, and may be
used; one that was there before goes on where others have left it.
"""

from __future__ import annotations

import opcode
import os
import random  # noqa: TID251 - to recognise its use
import secrets
import sys
import sysconfig
import uuid
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path, PurePath
from types import CodeType, FrameType, FunctionType
from typing import Any

import holdfast
from holdfast.workflow import running_scope

CURES = {
    "the time": "now()",
    "chance": "random()",
    "an id by chance": "uuid4()",
    "the environment": "an argument of the workflow, or an effect",
    "its process": "an effect",
}
_OWN = "holdfast"
_FOREIGN = (
    *(
        str(PurePath(path)) + os.sep
        for path in (
            *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
            Path(os.__file__).resolve().parent,
            PurePath(holdfast.__file__).parent,
        )
    ),
    "<frozen",
)
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
_BUILTIN: dict[str, str] = {
    **dict.fromkeys((f"time.{name}{unit}" for name in _CLOCKS for unit in ("", "_ns")), "the time"),
    **dict.fromkeys(("datetime.now", "datetime.utcnow", "datetime.today", "date.today"), "the time"),
    **dict.fromkeys(("Random.random", "Random.getrandbits", "posix.urandom", "nt.urandom"), "chance"),
    **dict.fromkeys(("posix.getpid", "nt.getpid", "socket.gethostname"), "its process"),
}
_OF_NOW = {  # with so few arguments they are about the present time
    "time.localtime": 0,
    "time.gmtime": 0,
    "time.ctime": 0,
    "time.asctime": 0,
    "time.strftime": 1,
}
_PASSES_ON = {"os.py", "_collections_abc.py", "random.py", "secrets.py", "uuid.py"}
_STATE = {"seed", "getstate", "setstate"}
_environment: Any = type(os.environ)
_DRAWS: set[CodeType] = {
    each.__code__
    for drawing in (random.Random, random.SystemRandom)
    for name, each in vars(drawing).items()
    if isinstance(each, FunctionType) and not name.startswith("_") and name not in _STATE
}
_SEEDS = random.Random.__init__.__code__
_PYTHON: dict[CodeType, str] = {
    uuid.uuid4.__code__: "an id by chance",  # noqa: TID251 - to recognise its use
    uuid.uuid1.__code__: "an id by chance",  # noqa: TID251
    _environment.__getitem__.__code__: "the environment",
    **{
        each.__code__: "chance"
        for each in (secrets.token_bytes, secrets.token_hex, secrets.token_urlsafe, secrets.randbelow)
    },
    **dict.fromkeys(_DRAWS, "chance"),
    _SEEDS: "chance",
}


@contextmanager
def reads_noted(note: Callable[[str, str], None], *, packages: Collection[str] = ()) -> Generator[None]:
    """Until the end of the block, tell what workflows read that is not recorded, and on which line.

    `packages` are the user's own, wherever they are installed, by their first names.
    """
    before = sys.getprofile()
    reader = _Reader(note, frozenset(packages) - {_OWN})
    sys.setprofile(reader.look)
    try:
        yield
    finally:
        sys.setprofile(before)


class _Reader:
    """Is told of every call."""

    def __init__(self, note: Callable[[str, str], None], packages: frozenset[str]) -> None:
        self._note = note
        self._packages = packages
        self._seeded: dict[int, object] = {}  # generators of chance that workflows have seeded

    def look(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            what, is_seeded = _read_by(argument, frame), id(getattr(argument, "__self__", None)) in self._seeded
            if what is not None and not is_seeded and running_scope() is not None and not self._is_foreign(frame):
                self._note(what, _line(frame))
        elif event == "call":
            what = _PYTHON.get(frame.f_code)
            if what is not None and running_scope() is not None and not self._is_seeded(frame):
                self._note_who_asked(what, frame)

    def _is_seeded(self, frame: FrameType) -> bool:
        """Whether this is a draw of a generator that the workflow has seeded, or if it seeds one just now."""
        if frame.f_code is not _SEEDS and frame.f_code not in _DRAWS:
            return False
        generator = frame.f_locals.get("self")
        if frame.f_code is _SEEDS and frame.f_locals.get("x") is not None:
            if not isinstance(generator, random.SystemRandom):
                self._seeded[id(generator)] = generator
            return True
        return id(generator) in self._seeded

    def _note_who_asked(self, what: str, frame: FrameType) -> None:
        asked = frame.f_back
        while asked is not None and self._is_of_the_library(asked):
            asked = asked.f_back
        if asked is not None and not self._is_foreign(asked):
            self._note(what, _line(asked))

    def _is_foreign(self, frame: FrameType) -> bool:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        return package not in self._packages and frame.f_code.co_filename.startswith(_FOREIGN)

    def _is_of_the_library(self, frame: FrameType) -> bool:
        """Whether it only passes the question on: `os.getenv`, `Mapping.get`, `random.choice`."""
        path = frame.f_code.co_filename
        return path.startswith("<frozen") or (self._is_foreign(frame) and PurePath(path).name in _PASSES_ON)


def _read_by(function: Any, frame: FrameType) -> str | None:
    """What a builtin function reads that is called just now; nothing if it is given the time."""
    name = _named(function)
    if (most := _OF_NOW.get(name)) is not None:
        return "the time" if _count_of_arguments(frame) in range(most + 1) else None
    return _BUILTIN.get(name)


def _count_of_arguments(frame: FrameType) -> int | None:
    """With how many arguments this frame calls something, if its code says that."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at + 1] if opcode.opname[code[at]] in {"CALL", "PRECALL"} else None


def _named(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__qualname__", "")
    if "." in name:  # a method: `datetime.now`, `Random.random`
        return name
    module = getattr(function, "__module__", None) or getattr(owner, "__name__", "")
    return f"{module}.{name}".removeprefix("_")


def _line(frame: FrameType) -> str:
    return f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"
