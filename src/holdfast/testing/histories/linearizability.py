"""A search for a legal order of moves (Wing and Gong), with unknown outcomes as moves that may happen later or never.

A move takes effect at one instant between its beginning and its end. An order is legal if it keeps to these spans and
every move is possible in the state that the moves before it left. A move that is not required has no end: it may come
at any later time, or not at all. What was tried before, the same state after the same moves, is not tried again.

The search counts its steps, not its time: the same history has the same verdict on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Generic, Literal, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)
STEPS_MAX = 50_000


class Move(NamedTuple, Generic[S]):
    """Something that happened, or may have. `after` returns the states that it leads to: none if it is impossible."""

    words: str
    began: float
    ended: float
    after: Callable[[S], Sequence[S]]
    required: bool = True


class OrderFound(NamedTuple):
    """`stuck` are the words of the moves that fit nowhere, in the order that came furthest."""

    found: Literal["legal", "illegal", "undecided"]
    stuck: tuple[str, ...] = ()


def linearize(moves: Sequence[Move[S]], first: S, *, steps_max: int = STEPS_MAX) -> OrderFound:
    """Whether there is a legal order of all required moves."""
    ordered = sorted(moves, key=lambda move: move.began)
    required = sum(1 << at for at, move in enumerate(ordered) if move.required)
    tried: set[tuple[S, int]] = set()
    ahead: list[tuple[S, int]] = [(first, 0)]
    furthest, most = 0, -1
    steps = 0
    while ahead:
        state, done = ahead.pop()
        if done & required == required:
            return OrderFound("legal")
        if (state, done) in tried:
            continue
        tried.add((state, done))
        if (reached := (done & required).bit_count()) > most:
            furthest, most = done, reached
        followers: list[tuple[S, int]] = []
        for at in _next(ordered, done):
            steps += 1
            followers += [(after, done | 1 << at) for after in ordered[at].after(state)]
        if steps > steps_max:
            return OrderFound("undecided")
        ahead += reversed(followers)  # what began first is tried first
    return OrderFound("illegal", tuple(ordered[at].words for at in _next(ordered, furthest) if ordered[at].required))


def _next(ordered: Sequence[Move[S]], done: int) -> list[int]:
    """The moves that may come next: they began before any that is left has ended."""
    found: list[int] = []
    ends: float = inf
    at = (~done & (done + 1)).bit_length() - 1  # the first that is left
    while at < len(ordered) and ordered[at].began <= ends:
        if not done >> at & 1:
            found.append(at)
            if ordered[at].required:
                ends = min(ends, ordered[at].ended)
        at += 1
    return [at for at in found if ordered[at].began <= ends]
