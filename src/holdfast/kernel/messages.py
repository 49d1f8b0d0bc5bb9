"""What is sent to a run: how another one ended, a signal, a request to cancel, the loss of its key.

Rules
- A message is received once: by its run, whose inbox remembers its id, and within its scope if it has one.
- The id of a message about an end names the run that ended, which of its lives, and the step that waits for it.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from holdfast.kernel.journal import Failure, Value
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant

_decode_value = msgspec.json.Decoder(Value).decode
_encode = msgspec.json.Encoder().encode


class Watcher(Struct, frozen=True, gc=False):
    """A parent's wish to be told how a run ended.

    `epoch` is that of the parent when it asks about a run that may have ended already. It is not kept: it makes the
    message about that end another one than those that an earlier life of the parent has read (it was cancelled then,
    or failed, and had no use for it).
    """

    run_id: str
    step: str
    epoch: int = 0


class _Message(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="what", tag=str.lower):
    id: str


class OutcomeMessage(_Message, frozen=True, tag="outcome"):
    """How a watched run ended."""

    step: str
    from_run: str
    status: Status
    output: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class SignalMessage(_Message, frozen=True, tag="signal"):
    """A payload for a hook. `by_key` says that it was sent to the owner of the key, not to this very run."""

    hook: str
    payload: Raw
    by_key: bool = False
    sealed: str = ""  # the id of the key that opens the payload; empty if it is open


class CancelRequest(_Message, frozen=True, tag="cancel"):
    """The run is to be cancelled, and its cleanup ended by the deadline."""

    deadline_at_ms: Instant = field(name="deadline_ms")
    reason: str = ""
    error: Failure | None = None  # what the run fails with instead: it has taken too long


class KeyTaken(_Message, frozen=True, tag="key_taken"):
    """The run has lost its key, and shall record it."""

    reason: str = ""


Message = OutcomeMessage | SignalMessage | CancelRequest | KeyTaken


class Envelope(Struct, frozen=True, gc=False):
    """A message and whom it is for. `scope` is where its id counts beyond the run: a key or a token.

    Within its scope it has been received before, too, if a message with the id `formerly` has.
    """

    run_id: str
    message: Message
    scope: str = ""
    formerly: str = ""


def outcome_message(run: Run, watcher: Watcher) -> OutcomeMessage:
    """What `watcher` is told about the end of `run`."""
    return outcome(run.id, run.epoch, run.status, output=run.output, error=run.error, watcher=watcher)


def outcome(
    run_id: str, epoch: int, status: Status, *, output: bytes | None, error: bytes | None, watcher: Watcher
) -> OutcomeMessage:
    """What `watcher` is told about the end of a run. Its id makes a repetition harmless."""
    life = f"{epoch}.{watcher.epoch}" if watcher.epoch else f"{epoch}"
    return OutcomeMessage(
        f"{run_id}/{life}/{watcher.step}",
        watcher.step,
        run_id,
        status,
        UNSET if output is None else Raw(output),
        UNSET if error is None else Raw(error),
    )


def size(message: Message) -> int:
    """How many bytes the message takes."""
    return len(_encode(message))


def blob_of(message: Message) -> str | None:
    """The digest of the blob that holds the message's value; a store copies it to the run that is told."""
    if not isinstance(message, OutcomeMessage) or message.output is UNSET:
        return None
    return _decode_value(message.output).blob or None
