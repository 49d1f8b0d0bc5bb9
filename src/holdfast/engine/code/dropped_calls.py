"""Calls that the code of a run has made and let go of without awaiting them: where in its own files that was.

A call does not remember where it was made: that would be asked for every effect, to be told of one that was forgotten.
What is known is the frame in which its last reference went away. Nearly always that is the statement itself, since
nothing else ever referred to the call. If the frame is gone, the code says where the name of the call stands in it.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable
from pathlib import PurePath
from types import CodeType
from typing import Any, NamedTuple

from holdfast.calls import Call
from holdfast.engine.code.lines import is_foreign

_FRAMES = 3  # dropped_here ← Machine.dropped ← _drop ← Call.__del__


class DroppedCall(NamedTuple):
    """A call that was never awaited, and the place in the author's code."""

    name: str  # of the effect or workflow: `shop.charge`
    path: str
    number: int

    @property
    def line(self) -> str:
        return f"{PurePath(self.path).name}:{self.number}"


def dropped_here(call: Call[Any], workflow: Callable[..., Any]) -> DroppedCall:
    """The call whose last reference has just gone away in the code of this workflow."""
    frame = sys._getframe(_FRAMES).f_back  # noqa: SLF001 - the only way to see it
    name = call.target.step_name
    if frame is not None and not is_foreign(frame.f_code.co_filename):
        code, number = frame.f_code, _line_of_name(name, frame.f_code, frame.f_lineno) or frame.f_lineno
    else:  # it was kept until its function returned
        code = inspect.unwrap(workflow).__code__
        number = _line_of_name(name, code, sys.maxsize) or code.co_firstlineno
    return DroppedCall(call.target.name, code.co_filename, number)


def _line_of_name(name: str, code: CodeType, last: int) -> int:
    """The last line, up to this one, on which the code refers to the name; 0 if there is none."""
    lines = (
        instruction.positions.lineno
        for instruction in dis.get_instructions(code)
        if instruction.argval == name and instruction.opname.startswith("LOAD_") and instruction.positions is not None
    )
    return max((line for line in lines if line is not None and line <= last), default=0)
