"""Words for what is wrong with a world."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from holdfast.kernel.journal import Failure
from holdfast.kernel.runs import Run

LETTERS_MAX = 120  # of a value

_decode_failure = msgspec.json.Decoder(Failure).decode


def place_of(fn: Callable[..., Any]) -> str:
    """Where a function of the user is, as journals name lines."""
    code = inspect.unwrap(fn).__code__
    return f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"


def failure_of(run: Run) -> Failure | None:
    """What a run has failed with, or is blocked by."""
    return None if run.error is None else _decode_failure(run.error)


def of_failure(failure: Failure | None) -> str:
    """Why a run failed."""
    return "nothing" if failure is None else f"{failure.type.rpartition('.')[2]}: {failure.message}"


def of_value(data: bytes | None) -> str:
    """A value as it is stored, without what it is wrapped in."""
    text = "nothing" if not data else data.decode()
    text = text.removeprefix('{"json":').removesuffix("}") if text.startswith('{"json":') else text
    return text if len(text) <= LETTERS_MAX else f"{text[: LETTERS_MAX - 3]}..."


def of_list(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" and {words[-1]}" if len(words) > 1 else "".join(words) or "none"


def of_times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
