"""What is known of the values where code and journal part, in words that are short enough for a message.

Of the input of a step the journal has a digest, and not the input: what the code asks for now can be shown, and what
came of the recorded step. Both are cut, as they may be large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import UNSET

from holdfast.engine.code.commands import Command
from holdfast.kernel.journal import Attempted, Entry, Failure, GaveUp, IntentEntry, Joined, Performed, Value, step_of

SHOWN_MAX = 200
CAUSES = (
    "If the code has not changed, it depends on something that has: the time, chance, a global, the order of a set, the"
    " environment"
)


def values_at(entry: Entry, opened: Mapping[str, Command], bytes_of: Callable[[Value], bytes]) -> str:
    """What is known of the values where the code contradicts this entry, and what the usual causes are."""
    known = [*_asked(entry, opened.get(step_of(entry))), *_recorded(entry, bytes_of), CAUSES]
    return ". ".join(known)


def _asked(entry: Entry, command: Command | None) -> list[str]:
    """What the code asks for now, if it is the input that differs."""
    if command is None or not isinstance(entry, IntentEntry) or not command.arguments:
        return []
    if (entry.intent.kind, entry.intent.name) != (command.intent.kind, command.intent.name):
        return []
    if entry.intent.digest == command.intent.digest:
        return []
    return [f"The code asks with {shown(command.arguments)}; of the input that was recorded only the digest is kept"]


def _recorded(entry: Entry, bytes_of: Callable[[Value], bytes]) -> list[str]:
    """What came of the recorded step."""
    match entry:
        case Performed(value=value) | Joined(value=Value() as value):
            return [f"What was recorded returned {_shown_value(value, bytes_of)}"]
        case GaveUp(error=Failure() as error) | Attempted(error=error) | Joined(error=Failure() as error):
            return [f"What was recorded failed with {_cut(f'{error.type}: {error.message}')}"]
        case _:
            return []


def _shown_value(value: Value, bytes_of: Callable[[Value], bytes]) -> str:
    return f"{value.size:,} bytes" if value.json is UNSET and value.size > SHOWN_MAX else shown(bytes_of(value))


def shown(data: bytes) -> str:
    """An encoded value, cut to a length that fits into a message."""
    return _cut(data.decode(errors="replace"))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}… ({len(text):,} characters)"
