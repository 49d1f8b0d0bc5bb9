"""What may become of one key: the moves of clients, parents and runs, and what each is told.

    move                       possible if the key                         leaves it
    ─────────────────────────  ──────────────────────────────────────────  ──────────────────────────
    start: created             is free, or its holder's time is over       held by the new run
    start: created, again      is held by the run of the same request      as it is
    start: found               is held, by a run of the same input         as it is
    start: input_mismatch      is held, by a run of another input          as it is
    start: in_flight           is held by a live run                       as it is
    replace: created           is free, or held by the run to be replaced  held by the new run
    replace: overtaken         is held by another run                      as it is
    signal-or-start: created   is free, or its holder has ended            held by the new run
    signal-or-start: found     is held by a live run                       as it is
    find                       is held by that run; not found: is free     as it is
    release                    is held by that run                         free
    fork: with the key         is free, or held by its ended source        held by the fork
    a run ends                 in any case                                 held, and the run has ended
    a run goes on again        is still held by it                         held by a live run
    a successor begins         is held by the run that ends                held by the successor
    its retention is over      in any case                                 to be had, if it has ended
    the store forgets          in any case                                 as it was at any time before

A start that was refused for any other reason says nothing about the key. A start or a fork whose outcome is unknown, or
a parent, may have created a run that no other move created. Ends, and what follows from them, are seen exactly in the
store's writes, or else in the journals: then they may have been committed at any time after they were decided.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from math import inf
from typing import Literal, NamedTuple

from holdfast.kernel import ids
from holdfast.kernel.journal import Cancelled, Completed, Failed, Resumed, Retried, Started
from holdfast.kernel.times import Instant
from holdfast.testing.histories.history import FaultApplied, HistoryViolation, RunMoved
from holdfast.testing.histories.linearizability import STEPS_MAX, Move, linearize
from holdfast.testing.histories.seen import Durable, Operation, Place, Seen

Phase = Literal["live", "closing", "ended", "over"]  # closing: it lives, and its time is over as soon as it ends
UNDECIDED = "undecided"
_ENDS = Completed | Failed | Cancelled


class KeyState(NamedTuple):
    """The run that holds the key, none if empty, and how it stands."""

    holder: str = ""
    phase: Phase = "live"


FREE = KeyState()
_States = tuple[KeyState, ...]
_After = Callable[[KeyState], _States]


def illegal_orders(seen: Seen, *, steps_max: int = STEPS_MAX) -> Iterator[HistoryViolation]:
    """For each key, whether what everyone was told fits one order. An undecided search is no pass."""
    of_place: dict[Place, list[Operation]] = defaultdict(list)
    for each in seen.operations:
        if (place := _place_of(each, seen)) is not None:
            of_place[place].append(each)
    lives = _Lives(seen)
    for place, operations in of_place.items():
        verdict = linearize(list(_Key(place, operations, lives).moves()), FREE, steps_max=steps_max)
        if verdict.found == "illegal":
            detail = f"no order is legal; these fit nowhere: {'; '.join(verdict.stuck)}"
            yield HistoryViolation("I1", "no_legal_order", place[2], detail)
        elif verdict.found == "undecided":
            detail = f"{len(operations)} operations: no order was found in {steps_max} steps"
            yield HistoryViolation("I1", UNDECIDED, place[2], detail)


def _place_of(each: Operation, seen: Seen) -> Place | None:
    """The key that an operation is about."""
    if each.called.verb in {"start", "find"}:
        return each.place if each.called.key else None
    if each.called.verb == "release":
        return seen.places.get(each.called.run)
    if each.called.verb == "fork":
        return seen.places.get(each.run if each.outcome == "ok" else each.called.run)
    return None


class _Lives:
    """The lives of all runs, as far as their keys are concerned."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._times = list(accumulate((record.at_ms for record in seen.history), max))
        self._admitted = {write.run: at for at, write in (*seen.writes, *seen.forgotten) if write.admits}
        self.forks = seen.forks
        self.forgotten = {write.run for _, write in seen.forgotten if write.admits}
        self._pruned = {moved.run: at for at, moved in seen.of(RunMoved) if moved.how == "pruned"}
        self.runs: dict[Place, set[str]] = defaultdict(set)
        for run, place in seen.places.items():
            self.runs[place].add(run)

    def moves(self, run: str) -> Iterator[Move[KeyState]]:
        """How a run ends, goes on again, and lets go of its key in time."""
        end: Durable | None = None
        for each in self._seen.ever.get(run, ()):
            if isinstance(each.entry, _ENDS):
                end = each
                yield Move(f"{run} ended", *self._span(each), _changed(run, {"live": "ended", "closing": "over"}))
            elif isinstance(each.entry, Retried | Resumed) and end is not None:
                end = None
                yield Move(f"{run} went on", *self._span(each), _create(run, lambda state: state.holder == run))
        if end is not None:
            yield from self._expiry(run, end)

    def _expiry(self, run: str, end: Durable) -> Iterator[Move[KeyState]]:
        final = self._seen.finals.get(run)
        words, after = f"the retention of {run} was over", _changed(run, {"live": "closing", "ended": "over"})
        if run in self._pruned:  # so it was over before
            yield Move(words, self._span(end)[0], self._pruned[run], after)
        elif final is not None and final.retention_ms is not None:
            expires_at_ms = end.entry.at_ms + final.retention_ms
            if expires_at_ms <= self._times[-1]:
                slack_ms = self._seen.head.slack_ms
                until = bisect_right(self._times, expires_at_ms + slack_ms) - 0.5
                yield Move(words, self._since(expires_at_ms), until, after)

    def lapses(self, place: Place) -> Iterator[Move[KeyState]]:
        """Where the store may have forgotten what became of the key: it is as it was at any time before."""
        runs = self.runs[place]
        states = (FREE, *(KeyState(run, phase) for run in sorted(runs) for phase in ("live", "ended")))

        def after(state: KeyState) -> _States:
            return (state, *states)

        for at, fault in self._seen.of(FaultApplied):
            lost = {write.run for _, write in self._seen.forgotten if write.write in fault.lost}
            if fault.fault == "forgot" and (runs & (lost | {*fault.runs}) or not (fault.lost or fault.runs)):
                yield Move("the store forgot", at, at, after)

    def birth(self, run: str) -> tuple[float, float]:
        """When the run may have been admitted."""
        if run in self._admitted:
            return self._admitted[run], self._admitted[run]
        first = self._seen.durable.get(run, ())[:1]
        return self._span(first[0]) if first and isinstance(first[0].entry, Started) else (-1, inf)

    def _span(self, each: Durable) -> tuple[float, float]:
        """When an entry may have been committed: exactly then, or at any time after it was made."""
        return (each.at, each.at) if each.at is not None else (self._since(each.at_ms), inf)

    def _since(self, at_ms: Instant) -> float:
        """The first place in the history at which this instant may have been: between two records."""
        return bisect_left(self._times, at_ms - self._seen.head.slack_ms) - 0.5


class _Key:
    """The moves of one key."""

    def __init__(self, place: Place, operations: list[Operation], lives: _Lives) -> None:
        self._place = place
        self._operations = operations
        self._lives = lives
        self._runs = sorted(lives.runs[place])
        self._inputs: dict[str, str] = {}
        for each in operations:
            if each.outcome == "ok" and each.returned and (each.returned.created or each.called.verb == "fork"):
                self._inputs.setdefault(each.run, each.called.input)
        self._former = {
            after: run for run in self._runs if (after := ids.derived_beside(run, "successor")) in lives.runs[place]
        }
        # What no client is known to have created is the work of a parent, or of one whose outcome is unknown.
        self._orphans = lives.runs[place] - self._inputs.keys() - self._former.keys()

    def moves(self) -> Iterator[Move[KeyState]]:
        for each in self._operations:
            yield from self._of_operation(each)
        yield from self._lives.lapses(self._place)
        for run in self._runs:
            yield from self._lives.moves(run)
            if run in self._former:
                former = self._former[run]
                after = _create(run, lambda state, former=former: state.holder == former)
                yield Move(f"{run} followed {former}", *self._lives.birth(run), after)
            elif run in self._orphans:
                began, _ = self._lives.birth(run)
                yield Move(f"a parent started {run}", began, inf, _create(run, _is_to_be_had), required=False)

    # -- clients

    def _of_operation(self, each: Operation) -> Iterator[Move[KeyState]]:
        called, words = each.called, f"{each.called.verb} {each.called.op}: {each.outcome} {each.run}".rstrip()
        match called.verb, each.outcome:
            case "start", "ok":
                yield Move(words, each.began, each.ended, self._started(each))
                yield from self._sent_before(each, words)
            case "start", "refused":
                yield Move(words, each.began, each.ended, self._refused(each))
            case "start", _:
                same = {one.run for one in self._operations if called.request and one.called.request == called.request}
                for run in sorted((self._orphans | same) - {""}):
                    began = max(each.began, self._lives.birth(run)[0])
                    yield Move(f"{words} {run}", began, inf, _create(run, _may_create(each)), required=False)
            case "find", "ok":
                yield Move(words, each.began, each.ended, _if(lambda state: state.holder == each.run))
            case "find", "refused" if each.returned and each.returned.error in {"", "unknown_run"}:
                yield Move(words, each.began, each.ended, _if(lambda state: not state.holder or state.phase == "over"))
            case "release", "ok" | "unknown":
                yield Move(words, each.began, each.ended, self._released(each), required=each.outcome == "ok")
            case "fork", "ok":
                yield Move(words, each.began, each.ended, _create(each.run, _may_fork(called.run)))
            case "fork", "unknown":
                for run in sorted(self._orphans & self._lives.forks):
                    began = max(each.began, self._lives.birth(run)[0])
                    yield Move(f"{words} {run}", began, inf, _create(run, _may_fork(called.run)), required=False)
            case _:
                pass

    def _sent_before(self, each: Operation, words: str) -> Iterator[Move[KeyState]]:
        """A start whose first reply is lost is sent again; what it created first was seen until the store forgot it."""
        for run in sorted(self._orphans & self._lives.forgotten):
            admitted, _ = self._lives.birth(run)
            if each.began <= admitted <= each.ended:
                yield Move(f"{words} {run}", admitted, each.ended, _create(run, _may_create(each)), required=False)

    def _started(self, each: Operation) -> _After:
        assert each.returned is not None
        called, run = each.called, each.run
        known_signal = called.hook and any(
            one.called.op != called.op and one.called.hook == called.hook and _dedupe(one) == _dedupe(each) != ""
            for one in self._operations
        )
        if (
            known_signal
        ):  # it may have been received before: the run that received it is returned, whatever became of it
            may, is_created = _may_create(each), each.returned.created

            def after(state: KeyState) -> _States:
                return (state, *_create(run, may)(state)) if is_created else (state,)

            return after
        if each.returned.created:
            create = _create(run, _may_create(each))

            def again_or_created(state: KeyState) -> _States:
                if called.request and state.holder == run:
                    return (state,)
                return create(state)

            return again_or_created

        def is_found(state: KeyState) -> bool:
            live_enough = state.phase in {"live", "closing"} if called.hook else state.phase != "over"
            joined = called.join or state.phase == "ended" or self._may_be_own(each)
            return state.holder == run and live_enough and joined and self._may_have(run, called.input)

        found, create = _if(is_found), _create(run, _may_create(each))
        return (lambda state: found(state) or create(state)) if self._may_be_own(each) else found

    def _may_be_own(self, each: Operation) -> bool:
        """Whether a signal-or-start that created nothing may have found what it had created itself.

        The first sending may have created the run, and its reply may be lost: sent again, it finds its own signal.
        """
        since, until = self._lives.birth(each.run)
        was_born_during = since <= each.ended and each.began <= until
        return each.called.hook != "" and _dedupe(each) != "" and each.run in self._orphans and was_born_during

    def _refused(self, each: Operation) -> _After:
        assert each.returned is not None
        called = each.called
        match each.returned.error:
            case "input_mismatch":
                return _if(lambda state: self._holds(state, each.run) and not self._has(state.holder, called.input))
            case "in_flight":
                return _if(lambda state: self._holds(state, each.run) and state.phase in {"live", "closing"})
            case "overtaken":
                return _if(lambda state: self._holds(state, each.run) and state.holder != called.replaces)
            case _:
                return _if(lambda _: True)

    def _holds(self, state: KeyState, run: str) -> bool:
        return state.holder != "" and state.phase != "over" and run in {"", state.holder}

    def _has(self, run: str, wanted: str) -> bool:
        """Whether the run is known to have this input."""
        return bool(wanted) and self._inputs.get(run) == wanted

    def _may_have(self, run: str, wanted: str) -> bool:
        return not wanted or self._inputs.get(run, wanted) in {"", wanted}

    def _released(self, each: Operation) -> _After:
        run = each.called.run
        takers = (one for one in self._operations if one.called.op != each.called.op and one.outcome != "refused")
        # Of two who release the key of a live run at once, both are told that it is done.
        in_vain = any(
            run in {one.called.run if one.called.verb in {"release", "fork"} else "", one.called.replaces}
            and one.began <= each.ended
            and each.began <= one.ended
            for one in takers
        )
        return lambda state: (FREE,) if state.holder == run else (state,) if in_vain else ()


# -- what a move leaves


def _if(holds: Callable[[KeyState], bool]) -> _After:
    return lambda state: (state,) if holds(state) else ()


def _create(run: str, may: Callable[[KeyState], bool]) -> _After:
    return lambda state: (KeyState(run),) if may(state) else ()


def _changed(run: str, phases: dict[Phase, Phase]) -> _After:
    def after(state: KeyState) -> _States:
        return (KeyState(run, phases.get(state.phase, state.phase)),) if state.holder == run else (state,)

    return after


def _is_to_be_had(state: KeyState) -> bool:
    return not state.holder or state.phase == "over"


def _may_create(each: Operation) -> Callable[[KeyState], bool]:
    """Whether a start may create a run in a state of its key."""
    called = each.called
    if called.replaces:
        return lambda state: _is_to_be_had(state) or state.holder == called.replaces
    if called.hook:
        return lambda state: _is_to_be_had(state) or state.phase == "ended"
    return _is_to_be_had


def _may_fork(source: str) -> Callable[[KeyState], bool]:
    return lambda state: not state.holder or (state.holder == source and state.phase in {"ended", "over"})


def _dedupe(each: Operation) -> str:
    return each.called.message or each.called.dedupe or each.called.request
