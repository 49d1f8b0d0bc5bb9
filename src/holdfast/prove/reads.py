"""What the code of a workflow reads that no journal records: the time, chance, the environment, its process.

A replay in another process reads something else. It is looked for while the clean run is lived, and only at lines of
the user's own files: a library may look at the clock for a log line.
"""

from __future__ import annotations

import os
import random  # noqa: TID251 - to recognise its use
import sys
import sysconfig
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path, PurePath
from types import CodeType, FrameType
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
_OWN = str(PurePath(holdfast.__file__).parent)
_FOREIGN = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(os.__file__).resolve().parent),
    _OWN,
    "<frozen",
)
_BUILTIN: dict[str, str] = {
    **dict.fromkeys(
        (f"time.{name}" for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "localtime")),
        "the time",
    ),
    **dict.fromkeys(("datetime.now", "datetime.utcnow", "datetime.today", "date.today"), "the time"),
    **dict.fromkeys(("Random.random", "Random.getrandbits"), "chance"),
    **dict.fromkeys(("posix.getpid", "posix.urandom", "nt.getpid", "nt.urandom", "socket.gethostname"), "its process"),
}
_PASSES_ON = {"os.py", "_collections_abc.py", "random.py", "uuid.py"}
_environment: Any = type(os.environ)
_PYTHON: dict[CodeType, str] = {
    uuid.uuid4.__code__: "an id by chance",  # noqa: TID251 - to recognise its use
    uuid.uuid1.__code__: "an id by chance",  # noqa: TID251
    _environment.__getitem__.__code__: "the environment",
    **{
        getattr(random.Random, name).__code__: "chance"
        for name in ("choice", "randint", "randrange", "shuffle", "sample", "uniform", "choices", "gauss")
    },
}


@contextmanager
def reads_noted(note: Callable[[str, str], None]) -> Generator[None]:
    """Until the end of the block, tell what workflows read that is not recorded, and on which line."""
    before = sys.getprofile()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            what = _BUILTIN.get(_named(argument))
            if what is not None and running_scope() is not None and not _is_foreign(frame):
                note(what, _line(frame))
        elif event == "call" and (what := _PYTHON.get(frame.f_code)) is not None and running_scope() is not None:
            asked = frame.f_back
            while asked is not None and _is_of_the_library(asked):
                asked = asked.f_back
            if asked is not None and not _is_foreign(asked):
                note(what, _line(asked))

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def _named(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__qualname__", "")
    if "." in name:  # a method: `datetime.now`, `Random.random`
        return name
    module = getattr(function, "__module__", None) or getattr(owner, "__name__", "")
    return f"{module}.{name}".removeprefix("_")


def _is_foreign(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_FOREIGN)


def _is_of_the_library(frame: FrameType) -> bool:
    """Whether it only passes the question on: `os.getenv`, `Mapping.get`, `random.choice`."""
    path = frame.f_code.co_filename
    return path.startswith("<frozen") or (_is_foreign(frame) and PurePath(path).name in _PASSES_ON)


def _line(frame: FrameType) -> str:
    return f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"
