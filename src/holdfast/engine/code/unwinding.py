"""After a cancellation: what the code has left behind, and how that is taken back.

Runs in the workflow's own loop, as steps of the run, so that it is as durable as the code was: recorded, retried by
the policy of the undoing effects, continued after a crash where it stood.

    1. children that this run created are cancelled too, and waited for
    2. effects are undone, the last one first

An undo that fails for good does not stop the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Any, Protocol

from msgspec import Struct

from holdfast.calls import Call
from holdfast.engine.code.effect_keys import is_undo_of, mark_of
from holdfast.errors import ReplayDiverged
from holdfast.kernel.cancels import STOP, UNDO
from holdfast.kernel.journal import (
    TIMED_OUT,
    Attempted,
    Dropped,
    Entry,
    Forked,
    GaveUp,
    Intent,
    Joined,
    Late,
    Other,
    Performed,
    Spawned,
    Value,
)
from holdfast.pack import Effect

_OF_CHILDREN = frozenset({Spawned, Late, Joined})


class Undoer(Protocol):
    """The machine, as far as unwinding needs it."""

    def undo(self, step: str, call: Call[Any], key: str, mark: str) -> Awaitable[Any]: ...
    def cannot_undo(self, step: str, intent: Intent, error: Exception) -> None: ...
    def stop_child(self, step: str, run_id: str) -> Awaitable[Any]: ...
    def has_record_of(self, step: str) -> bool: ...
    def result_of(self, value: Value, as_type: Any) -> Any: ...


class LeftBehind(Struct):
    """What has been done so far, in the order of its records."""

    _calls: dict[str, tuple[Call[Any], Intent]] = {}  # of effects that can be undone, by step
    _done: dict[str, tuple[Intent, Value | None]] = {}  # as it was performed, and its result, by step
    _timed_out: set[str] = set()  # steps with an attempt that may have happened, whatever became of later ones
    _children: dict[str, Other] = {}  # by step; those of an earlier generation by their id
    _steps_of: dict[str, list[str]] = {}  # where each child stands there
    _undoing: dict[str, Call[Any]] = {}  # what the code has asked for to undo an effect by itself, by step
    _taken_back: set[str] = set()  # steps that it has undone so
    undone: dict[tuple[str, str], int] = {}  # how often, by the effect and its declared key

    def asked(self, step: str, call: Call[Any], intent: Intent) -> None:
        """An effect that can be undone, or undoes another, is about to be performed."""
        effect = call.target
        assert isinstance(effect, Effect)
        if effect.undo is not None:
            self._calls[step] = (call, intent)
        if effect.is_undo and next(self._undone_by(call), None) is not None:
            self._undoing[step] = call

    def _undone_by(self, undo: Call[Any]) -> Iterator[str]:
        """The steps that this call takes back, the last one first."""
        for step in reversed(self._done):
            if step not in self._taken_back and is_undo_of(undo, self._calls[step][0]):
                yield step

    def mark_for(self, undo: Call[Any]) -> str:
        """The mark of the effect that this call takes back, if it does: the undo of the second one is another undo."""
        for step in self._undone_by(undo):
            call, (performed, _) = self._calls[step][0], self._done[step]
            assert isinstance(call.target, Effect)
            return mark_of(call.target, call.arguments, performed.key)
        return ""

    def _take_back(self, undo: Call[Any]) -> None:
        """The code has undone something: what it performs again has a key of its own."""
        named: set[tuple[str, str]] = set()
        for step in list(self._undone_by(undo)):
            effect, arguments = self._calls[step][0].target, self._calls[step][0].arguments
            self._taken_back.add(step)
            if effect.key is not None:
                named.add((effect.name, effect.key.fill(arguments)))
        for each in sorted(named):
            self.undone[each] = self.undone.get(each, 0) + 1

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known that would have to be taken back."""
        return not self._done and not self._children

    def children(self) -> tuple[Other, ...]:
        """The runs that were started, are this run's own, and have not ended as far as is known."""
        return tuple(self._children.values())

    def begin_with(self, children: tuple[Other, ...]) -> None:
        """What earlier generations have started."""
        for child in children:
            self._add(child.run_id, child)

    def _add(self, step: str, child: Other) -> None:
        self._children[step] = child
        self._steps_of.setdefault(child.run_id, []).append(step)

    def recorded(self, entry: Entry) -> None:
        """Learn from an entry what is left behind now."""
        if not self._calls and type(entry) not in _OF_CHILDREN:
            return
        if self._undoing and isinstance(entry, Performed) and entry.step in self._undoing:
            self._take_back(self._undoing.pop(entry.step))
        match entry:
            case Performed(step=step, intent=intent, value=value) if step in self._calls:
                self._done[step] = (intent, value)
            case Late(step=step, intent=intent, value=value) if step in self._calls:
                self._came_late(step, intent, value)
            case Dropped(step=step, intent=intent) if step in self._calls:
                self._done[step] = (intent, None)
            case Attempted(step=step, intent=intent, error=error) | GaveUp(step=step, intent=intent, error=error) if (
                step in self._calls and error.type == TIMED_OUT
            ):
                self._done[step] = (intent, None)  # it may have happened, or be happening still
                self._timed_out.add(step)
            case Spawned(step=step, intent=intent, run_id=run_id, created=True, detached=False):
                self._add(step, Other(run_id, intent.name))
            case Late(step=step, intent=intent, run_id=run_id) if run_id:
                self._add(step, Other(run_id, intent.name))
            case Forked(beside=True):
                self._done.clear()  # that was the work of the run it was forked from
            case Joined(run_id=run_id):
                for step in self._steps_of.pop(run_id, ()):
                    self._children.pop(step, None)
            case _:
                pass

    def _came_late(self, step: str, intent: Intent, value: Value | None) -> None:
        if value is not None:
            self._done[step] = (intent, value)
        elif step not in self._timed_out:
            self._done.pop(step, None)  # it failed: it did not happen

    async def unwind(self, undoer: Undoer) -> None:
        """Stop the children, then undo the effects in reverse order."""
        for step, child in list(self._children.items()):
            await _whatever_comes_of_it(undoer.stop_child(f"{STOP}{step}", child.run_id))
        for step, (performed, value) in reversed(list(self._done.items())):
            if step in self._taken_back and not undoer.has_record_of(f"{UNDO}{step}"):
                continue  # the code has undone it itself; an earlier version may have begun to do it again
            call, asked = self._calls[step]
            effect, key = call.target, performed.key
            assert isinstance(effect, Effect)
            if value is None and effect.undo_needs_result:
                continue  # what it did is not known: the receipt says so
            try:
                _check_defaults(effect, performed, asked)
                result = None if value is None else undoer.result_of(value, effect.signature.returns)
                mark = mark_of(effect, call.arguments, key)
                undo = undoer.undo(f"{UNDO}{step}", effect.undo_call(call.arguments, result), f"{UNDO}{key}", mark)
            except Exception as error:  # noqa: BLE001 - it cannot even be called: the receipt says why
                undoer.cannot_undo(f"{UNDO}{step}", Intent("undo", effect.name, f"{UNDO}{key}"), error)
            else:
                await _whatever_comes_of_it(undo)


def _check_defaults(effect: Effect[..., Any], performed: Intent, asked: Intent) -> None:
    """Raises if the undo would be given another value than the effect was performed with."""
    assert effect.undo is not None
    changed = [name for name in performed.changed_defaults(asked) if name in effect.undo.signature.names]
    if changed:
        raise ReplayDiverged(
            f"the default value of {', '.join(changed)} has changed since {effect.name} was performed, and its undo "
            "would be called with another one",
            hint="Undo it by hand, with the value that it was performed with.",
        )


async def _whatever_comes_of_it(step: Awaitable[Any]) -> None:
    try:
        await step
    except Exception:  # noqa: BLE001 - it is recorded, and the receipt says it
        return
