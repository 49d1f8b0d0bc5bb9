"""Paths of endpoints, found by their segments: one look into a dict for each, however many paths there are.

Rules
- `{name}` is any one segment that is not empty. A path with another kind of parameter is not kept here.
- A segment that is written out comes before a parameter, and nothing is tried twice. So a path that is not found here
  may still be one that the general router knows.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class _Branch(Generic[T]):
    """Where some segments lead."""

    __slots__ = ("any_segment", "parameter", "segments", "value")

    def __init__(self) -> None:
        self.value: T | None = None  # of the path that ends here
        self.segments: dict[str, _Branch[T]] = {}
        self.any_segment: _Branch[T] | None = None
        self.parameter = ""  # what any other segment is called


class PathTree(Generic[T]):
    """What is known under which path."""

    def __init__(self) -> None:
        self._root = _Branch[T]()

    def add(self, path: str, value: T) -> None:
        """Know `value` under `path`, unless that has a parameter of more than one segment."""
        if ":" in path:
            return
        branch = self._root
        for segment in path.split("/"):
            if segment.startswith("{"):
                branch.parameter = segment[1:-1]
                branch.any_segment = branch.any_segment or _Branch[T]()
                branch = branch.any_segment
            else:
                branch = branch.segments.setdefault(segment, _Branch[T]())
        branch.value = value

    def find(self, path: str) -> tuple[T, dict[str, str]] | None:
        """What is known under `path`, and its parameters; None if there is nothing here."""
        branch = self._root
        parameters: dict[str, str] = {}
        for segment in path.split("/"):
            following = branch.segments.get(segment)
            if following is None:
                following = branch.any_segment
                if following is None or not segment:
                    return None
                parameters[branch.parameter] = segment
            branch = following
        return None if branch.value is None else (branch.value, parameters)
