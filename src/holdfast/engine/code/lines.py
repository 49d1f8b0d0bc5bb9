"""Where in its own files the code of a run asks for something: for messages, and beside the intent in the journal."""

from __future__ import annotations

import asyncio
from pathlib import PurePath
from types import CodeType, FrameType

from holdfast import calls

_lines: dict[tuple[CodeType, str, int], str] = {}
_FOREIGN = (str(PurePath(asyncio.__file__).parent), str(PurePath(__file__).parent), calls.__file__)


def line_of(frame: FrameType) -> str:
    """`file.py:12` of the code that asks; nothing if asyncio asks on its behalf (gather)."""
    code = frame.f_code
    path = code.co_filename  # equal code objects may stand in two files
    place = (code, path, frame.f_lasti)  # what the line is found by: to ask the frame for it takes longer
    line = _lines.get(place)
    if line is None:
        line = _lines[place] = "" if is_foreign(path) else f"{PurePath(path).name}:{frame.f_lineno}"
    return line


def is_foreign(path: str) -> bool:
    """Whether the code of this file is no author's: asyncio's, or the engine's."""
    return path.startswith(_FOREIGN)
