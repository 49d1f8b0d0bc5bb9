"""The declared keys of the effects of one run: what each names, and how often it was undone.

Rules
- A key names one piece of work. In one run the same effect under the same key with another input is a mistake, and is
  refused where it is awaited: the other side would take it for a repetition, and return what came of the first.
- An effect that the code performs again after it has undone it has a key of its own: the other side, which knows the
  first key, would return what has been taken back. `charge:o-1` becomes `charge:o-1{2}`, then `charge:o-1{3}`. The
  undo of the second one has the same mark. No key that is filled from arguments contains a brace.
- What is recorded stays: a step that has a record keeps the key that it was begun with, and is not refused. Earlier
  versions compared nothing.
- Effects of `safety="natural"` are not compared: a repetition of them does no harm, and nothing relies on their keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from holdfast.calls import Call
from holdfast.errors import EffectKeyReused
from holdfast.kernel.journal import Entry, Intent, IntentEntry
from holdfast.pack import UNDO_RESULT, Effect

_Named = tuple[str, str]  # an effect and its key, as it is filled from the arguments


class EffectKeys(Struct):
    """The declared keys of one run."""

    _journal: tuple[Entry, ...]
    _undone: Mapping[_Named, int]  # how often the code has undone what was performed under a key
    _inputs: dict[_Named, str] = {}  # under each key as it is used, a digest of the arguments
    _recorded: dict[str, Intent] | None = None

    def claim(self, effect: Effect[..., Any], key: str, step: str, digest: str, mark: str) -> str:
        """The key for a step of this effect. Raises `EffectKeyReused` if it stands for another input.

        `mark` is that of the effect which it undoes, if it does.
        """
        if self._undone:
            key = self._marked(effect, key, step, mark)
        known = self._inputs.setdefault((effect.name, key), digest)
        if known != digest and effect.policy.safety != "natural" and self._record_of(step) is None:
            raise EffectKeyReused(effect.name, key)
        return key

    def _marked(self, effect: Effect[..., Any], key: str, step: str, mark: str) -> str:
        times = self._undone.get((effect.name, key), 0)
        mark = mark or (f"{{{times + 1}}}" if times else "")
        recorded = self._record_of(step) if mark else None
        return key if recorded is not None and recorded.key == key else f"{key}{mark}"

    def _record_of(self, step: str) -> Intent | None:
        if self._recorded is None:
            self._recorded = {entry.step: entry.intent for entry in self._journal if isinstance(entry, IntentEntry)}
        return self._recorded.get(step)


def mark_of(effect: Effect[..., Any], arguments: Mapping[str, Any], key: str) -> str:
    """The mark that the key of an effect has, since it was performed again after an undo; nearly always none."""
    if effect.key is None or not key.endswith("}"):
        return ""
    filled = effect.key.fill(arguments)
    return key.removeprefix(filled) if key.startswith(filled) else ""


def is_undo_of(undo: Call[Any], call: Call[Any]) -> bool:
    """Whether a call of the code takes back what another one did: it has the arguments that both take."""
    assert isinstance(call.target, Effect)
    if call.target.undo is not undo.target:
        return False
    shared = call.target.signature.names & undo.target.signature.names - {UNDO_RESULT}
    return bool(shared) and all(_are_equal(call.arguments[name], undo.arguments[name]) for name in shared)


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - types may compare as they like
        return False
