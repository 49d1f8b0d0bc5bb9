"""What the code of a run does besides waiting: markers, attributes, patches, hooks that others may know.

Each is a note in the journal, made once: on a replay the code does it again, and what has been noted is not noted
again. Notes travel with the next commit of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.engine.code.lineage import LINEAGE
from holdfast.kernel import attributes, keys, markers
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.changes import HookOpen, Shown
from holdfast.kernel.journal import Closed, Failure, Ignored, Intent, Late, Marked, Note, Patched, Received, Tagged
from holdfast.kernel.replay import Noted
from holdfast.kernel.times import Instant


class RunTime(Protocol):
    """The time as the code of a run sees it."""

    now_ms: Instant


class Notes(Struct):
    """The notes of one run."""

    _noted: Noted
    _run_id: str
    _workflow: str
    _ways: markers.Ways
    _time: RunTime
    _shows: bool  # whether what the run shows is to be written
    is_replaying: bool = False
    are_there: bool = False  # whether there is something to be taken
    _new: list[Note] = []
    _opens: tuple[HookOpen, ...] = ()
    _closes: tuple[HookOpen, ...] = ()
    _attributes: dict[str, Scalar] = {}
    _markers: markers.Reached = ()
    _patches: dict[str, bool] = {}

    # -- taken by the engine

    def take(self) -> list[Note]:
        """What the code did besides, since the last time; then the hooks, and what the run shows."""
        self.are_there = False
        new, self._new = self._new, []
        return new

    def take_hooks(self) -> tuple[tuple[HookOpen, ...], tuple[HookOpen, ...]]:
        """The hooks that the code has opened for others to know, and those that it has closed."""
        opens, closes, self._opens, self._closes = self._opens, self._closes, (), ()
        return opens, closes

    def take_shown(self) -> Shown | None:
        """What the run shows, if that has changed."""
        if not self._shows:
            return None
        self._shows = False
        return Shown(attributes.encode(self._attributes), markers.encode(self._markers))

    def attributes_now(self) -> Raw | UnsetType:
        """What a new generation of the run begins with."""
        return Raw(attributes.encode(self._attributes)) if self._attributes else UNSET

    def unasked_patches(self) -> list[str]:
        """The patches of the journal that the code has not asked for."""
        return sorted(self._noted.patches.difference(self._patches))

    # -- made by the code

    def begin_with(self, seeded: Raw | UnsetType) -> None:
        """The attributes that the run was started with."""
        if seeded is not UNSET:
            self._attributes = attributes.decode(bytes(seeded))

    def mark(self, marker: str) -> None:
        present = self._markers[-1][0] if self._markers else None
        if not markers.step(self._ways, present, marker, owner=f"run {self._run_id} of {self._workflow}"):
            return
        step, now_ms = LINEAGE.get().step("mark"), self._time.now_ms
        self._markers += ((marker, now_ms),)
        if step not in self._noted.steps:
            self._note(Marked(now_ms, step, marker))
            self._shows = True

    def set_attributes(self, changes: Mapping[str, Scalar | None]) -> None:
        step = LINEAGE.get().step("set_attributes")
        self._attributes = attributes.merged(self._attributes, changes)
        if step not in self._noted.steps:
            self._note(Tagged(self._time.now_ms, step, Raw(attributes.encode_changes(changes))))
            self._shows = True

    def patched(self, name: str) -> bool:
        if name not in self._patches:
            keys.checked(name, what="patch name")
            noted = name in self._noted.patches
            self._patches[name] = noted or not self.is_replaying
            if self._patches[name] and not noted:
                self._note(Patched(self._time.now_ms, name))
        return self._patches[name]

    def hook_opened(self, hook: HookOpen) -> None:
        if not self.is_replaying:
            self._opens += (hook,)
            self.are_there = True

    def hook_closed(self, hook: HookOpen) -> None:
        step = LINEAGE.get().step(f"close:{hook.name}")
        if step not in self._noted.steps:
            self._note(Closed(self._time.now_ms, step, hook.name))
            self._closes += (hook,)

    def undo_failed(self, step: str, intent: Intent, error: Failure) -> None:
        if step not in self._noted.steps:
            self._note(Late(self._time.now_ms, step, intent, 0, error=error))

    def ignored(self, received: Received, why: str) -> None:
        if received.id not in self._noted.ignored:
            self._note(Ignored(self._time.now_ms, received.hook, received.id, why))

    def _note(self, note: Note) -> None:
        self._new.append(note)
        self.are_there = True
