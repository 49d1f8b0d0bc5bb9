"""A store whose payloads are sealed: it stands before another one, and only closed values pass it.

Rules
- Sealed are the values of journals (inputs, results, payloads of signals that were received, arguments of effects that
  are recorded), what a run's row has of them (`input`, `output`), the large ones beside the journal, and the payloads
  of signals that are under way.
- Everything else passes as it is. The kernel compares digests of what was encoded, so they are those of plain text.
- A value that is sealed passes inwards as it is. So a process that cannot open a value can still move it.
- Histories and messages come out open. What cannot be opened comes out sealed, and says so: `Value.sealed`. Rows come
  out sealed: many are listed, few are looked into.
- How sealed values look is said in `kernel.seals`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.errors import SealedPayload, StoreUnavailable
from holdfast.kernel import seals
from holdfast.kernel.changes import Answer, Blob, Change
from holdfast.kernel.journal import Entry, Value
from holdfast.kernel.messages import Envelope, Message, OutcomeMessage, SignalMessage
from holdfast.kernel.runs import Run
from holdfast.ports.seal import Seal, Sealed
from holdfast.ports.store import Claim, Claimed, History, Store

VALUE_FIELDS = frozenset({"input", "original", "value"})  # of journal entries
_decode_value = msgspec.json.Decoder(Value).decode
_encode = msgspec.json.Encoder().encode


class SealedStore:
    """Whatever it does not do itself, the store behind it does."""

    def __init__(self, store: Store, seal: Seal) -> None:
        self._store = store
        self._seal = seal

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    async def commit(self, changes: Sequence[Change]) -> list[Answer]:
        return await self._store.commit([self._close_change(change) for change in changes])

    async def claim(self, claim: Claim) -> Claimed:
        claimed = await self._store.claim(claim)
        return replace(claimed, histories=tuple(map(self._open_history, claimed.histories)))

    async def histories(self, run_ids: Sequence[str]) -> list[History]:
        return [self._open_history(history) for history in await self._store.histories(run_ids)]

    async def messages(self, owner: str, among: Collection[str] | None = None) -> dict[str, list[Message]]:
        found = await self._store.messages(owner, among)
        return {run_id: [self._open_message(message) for message in messages] for run_id, messages in found.items()}

    async def blob(self, run_id: str, digest: str) -> bytes | None:
        data = await self._store.blob(run_id, digest)
        return data if data is None or not seals.is_sealed(data) else self._open(Sealed(*seals.parts_of(data)))

    def open_inline(self, value: Value) -> bytes:
        """The bytes of a sealed value that is kept inline; raises `SealedPayload` if they cannot be opened."""
        return self._open(Sealed(value.sealed, seals.data_in(bytes(value.json))))  # pyright: ignore[reportArgumentType]

    # -- inwards

    def _close_change(self, change: Change) -> Change:
        return replace(
            change,
            run=None if change.run is None else self._close_run(change.run),
            entries=tuple(map(self._close_entry, change.entries)),
            blobs=tuple(map(self._close_blob, change.blobs)),
            envelopes=tuple(map(self._close_envelope, change.envelopes)),
            then=None if change.then is None else self._close_change(change.then),
        )

    def _close_run(self, run: Run) -> Run:
        if run.input is not None:
            run = replace(run, input=self._close_value(run.input))
        if run.output is not None:
            run = replace(run, output=self._close_output(run.output))
        return run

    def _close_output(self, output: bytes) -> bytes:
        value = _decode_value(output)
        closed = self._close_value(value)
        return output if closed is value else _encode(closed)

    def _close_entry(self, entry: Entry) -> Entry:
        changed = {name: self._close_value(value) for name, value in _values_of(entry)}
        return replace(entry, **changed) if changed else entry

    def _close_value(self, value: Value) -> Value:
        if value.json is UNSET or value.sealed:
            return value
        sealed = self._close(bytes(value.json))
        return value if sealed is None else Value(seals.text_of(sealed.data), sealed=sealed.key_id)

    def _close_blob(self, blob: Blob) -> Blob:
        sealed = None if seals.is_sealed(blob.data) else self._close(blob.data)
        return blob if sealed is None else Blob(blob.digest, seals.blob_of(*sealed))

    def _close_envelope(self, envelope: Envelope) -> Envelope:
        message = envelope.message
        if isinstance(message, SignalMessage) and not message.sealed:
            sealed = self._close(bytes(message.payload))
            if sealed is not None:
                message = replace(message, payload=seals.text_of(sealed.data), sealed=sealed.key_id)
        elif isinstance(message, OutcomeMessage) and message.output is not UNSET:
            message = replace(message, output=Raw(self._close_output(bytes(message.output))))
        return envelope if message is envelope.message else replace(envelope, message=message)

    def _close(self, data: bytes) -> Sealed | None:
        try:
            sealed = self._seal.seal(data)
        except Exception as error:  # it is not ours
            raise StoreUnavailable(f"the seal could not seal a payload: {type(error).__name__}: {error}") from error
        if sealed is not None and not seals.is_key_id(sealed.key_id):
            raise StoreUnavailable(
                f"the seal named its key {sealed.key_id!r:.80}",
                hint=f"Use printable ASCII without spaces, of at most {seals.KEY_ID_LENGTH_MAX} characters.",
            )
        return sealed

    # -- outwards

    def _open_history(self, history: History) -> History:
        return replace(
            history,
            journal=tuple(map(self._open_entry, history.journal)),
            messages=tuple(map(self._open_message, history.messages)),
        )

    def _open_entry(self, entry: Entry) -> Entry:
        changed = {name: self._open_value(value) for name, value in _values_of(entry) if value.sealed}
        return replace(entry, **changed) if changed else entry

    def _open_value(self, value: Value) -> Value:
        """The same, open; sealed as it was if it cannot be opened. A large one is opened when it is read."""
        try:
            return Value(Raw(self.open_inline(value)))
        except SealedPayload:
            return value

    def _open_message(self, message: Message) -> Message:
        if isinstance(message, SignalMessage) and message.sealed:
            try:
                payload = Raw(self._open(Sealed(message.sealed, seals.data_in(bytes(message.payload)))))
            except SealedPayload:
                return message
            return replace(message, payload=payload, sealed="")
        if isinstance(message, OutcomeMessage) and message.output is not UNSET:
            value = _decode_value(message.output)
            return replace(message, output=Raw(_encode(self._open_value(value)))) if value.sealed else message
        return message

    def _open(self, sealed: Sealed) -> bytes:
        try:
            return self._seal.open(sealed)
        except Exception as error:  # it is not ours
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise seals.refusal(sealed.key_id, f"the seal of this process does not open it ({reason})") from error


def _values_of(entry: Entry) -> list[tuple[str, Value]]:
    found = ((name, getattr(entry, name)) for name in entry.__struct_fields__ if name in VALUE_FIELDS)
    return [(name, value) for name, value in found if value is not None]
