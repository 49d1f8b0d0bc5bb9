"""What becomes of mail that a run has not read, or not taken from its hooks, when it ends.

Every signal was accepted, so the journal says where it went: it is recorded as left over, or it goes to the next owner
of the key. Other messages are read, and change nothing any more.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Raw
from msgspec.structs import replace

from holdfast.engine.runs.completions import ActivationRecord
from holdfast.engine.runs.loaded_run import LoadedRun
from holdfast.kernel import retry_requests
from holdfast.kernel.journal import Received
from holdfast.kernel.messages import KeyTaken, Message, SignalMessage


def record_leftovers(loaded: LoadedRun, record: ActivationRecord, *, but: Collection[str] = ()) -> None:
    """Record the signals that had come before the code ended, so that the journal says where they went."""
    left = [each for each in loaded.unread_signals() if each.id not in {*but, *record.read}]
    dismiss(loaded, left, record)


def dismiss(loaded: LoadedRun, messages: Collection[Message], record: ActivationRecord) -> None:
    """Read what came too late to change anything.

    Signals are recorded all the same, since they were accepted; and that the key was released.
    """
    for message in messages:
        record.read += (message.id,)
        if isinstance(message, SignalMessage | KeyTaken) and retry_requests.request_in(message) is None:
            entry = loaded.entry_of_message(message, record)
            record.entries.append(replace(entry, left=True) if isinstance(entry, Received) else entry)


def for_a_successor(loaded: LoadedRun) -> tuple[tuple[SignalMessage, ...], tuple[str, ...]]:
    """The signals that the next owner of the key should see: those recorded, and the ids of those not even read."""
    unheard = tuple(
        SignalMessage(each.id, each.hook, Raw(loaded.data_of(each.value)), by_key=True)
        for each in loaded.machine.inbox.untaken()
        if _is_for_a_successor(loaded, each)
    )
    unread = (each for each in loaded.unread_signals() if _is_for_a_successor(loaded, each))
    return unheard, tuple(each.id for each in unread)


def _is_for_a_successor(loaded: LoadedRun, signal: SignalMessage | Received) -> bool:
    """Whether the next owner of the key should see this signal.

    It was sent to the key, which the run still has, and for a hook that the code did take from: so each run takes
    one at least, and a hook that is never read does not start one run after the other.
    """
    has_key = loaded.run.key is not None and loaded.run.holds_key
    return signal.by_key and has_key and loaded.machine.inbox.took_any(signal.hook)
