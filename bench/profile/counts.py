"""Counts the bytecode instructions that Python executes for a load, function by function.

`python -m bench.profile.counts W1 --size 200 --out FILE` keeps them as a tree, in JSON.

Python's own tracing tells of each instruction, in every thread. It makes the work many times slower and changes nothing
of what is executed, so the counts are the same on every machine that has the same version of Python, and on a busy one.
What they leave out is work in C: the interpreter's own, SQLite, msgspec, the event loop. `machine` counts that.

Periodic work is executed more often, the slower the rest is. It is counted apart, by its cause.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import msgspec

from bench.profile.causes import OTHER, Cause, cause_below, place_of
from bench.profile.load import drive, wanted

Trace = Callable[[FrameType, str, Any], Any]


class Frame(msgspec.Struct):
    """A function, reached by one way through the others, with what was executed in it and in those it called."""

    place: str
    function: str
    cause: str
    instructions: int = 0
    calls: int = 0
    below: list[Frame] = []

    def walk(self) -> Iterator[Frame]:
        yield self
        for frame in self.below:
            yield from frame.walk()


def by_cause(tree: Frame) -> Counter[str]:
    """The instructions of each cause."""
    counted: Counter[str] = Counter()
    for frame in tree.walk():
        counted[frame.cause] += frame.instructions
    return counted


def by_place(tree: Frame) -> Counter[tuple[str, str]]:
    """The instructions of each file and cause."""
    counted: Counter[tuple[str, str]] = Counter()
    for frame in tree.walk():
        counted[frame.place, frame.cause] += frame.instructions
    return counted


class Node:
    """A `Frame` that is being counted."""

    __slots__ = ("below", "calls", "cause", "code", "instructions", "trace")

    def __init__(self, code: CodeType | None, cause: Cause) -> None:
        self.code = code
        self.cause = cause
        self.instructions = 0
        self.calls = 0
        self.below: dict[CodeType, Node] = {}
        self.trace: Trace = self._count  # bound once: Python asks for it with every instruction

    def _count(self, _frame: FrameType, event: str, _value: Any) -> Trace:
        if event == "opcode":
            self.instructions += 1
        return self.trace

    def enter(self, code: CodeType) -> Node:
        found = self.below.get(code)
        if found is None:
            found = self.below[code] = Node(code, cause_below(code, self.cause))
        return found

    def clear(self) -> None:
        self.instructions = self.calls = 0
        for node in self.below.values():
            node.clear()

    def frame(self) -> Frame:
        place, function = ("", "") if self.code is None else (place_of(self.code), self.code.co_qualname)
        below = [node.frame() for node in self.below.values()]
        return Frame(
            place, function, self.cause.name, self.instructions, self.calls, [each for each in below if _is_any(each)]
        )


def _is_any(frame: Frame) -> bool:
    return bool(frame.instructions or frame.below)


class InstructionCounter:
    """Counts between `begin` and `end`. It is installed before there are threads to be counted."""

    def __init__(self) -> None:
        self.counted: Frame | None = None
        self._root = Node(None, OTHER)
        self._pausing = False

    def install(self) -> None:
        # Python 3.12 tells of instructions only if some frame has asked for it before.
        sys._getframe().f_trace_opcodes = True
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def remove(self) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def begin(self) -> None:
        self._pausing = True
        self._root.clear()
        self._pausing = False

    def end(self) -> None:
        self._pausing = True
        self.counted = self._root.frame()

    def _trace(self, frame: FrameType, _event: str, _value: Any) -> Trace | None:
        """Called for each call, and each time a coroutine goes on: its caller is another one then."""
        if self._pausing:
            return None
        caller = frame.f_back.f_trace if frame.f_back is not None else None
        node = (self._root if caller is None else _node_of(caller)).enter(frame.f_code)
        node.calls += 1
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return node.trace


def _node_of(trace: Any) -> Node:
    return trace.__self__


def count(contender: str, workload: str, size: int) -> Frame:
    """What is executed for a load of this size, in this process."""
    counter = InstructionCounter()
    counter.install()
    try:
        drive(contender, workload, size, begin=counter.begin, end=counter.end)
    finally:
        counter.remove()
    assert counter.counted is not None
    return counter.counted


def main() -> None:
    told = wanted(__doc__)
    found = count(told.contender, told.workload, told.size)
    if told.out is not None:
        told.out.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
