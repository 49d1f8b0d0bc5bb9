"""Admission: what a start under a key answers.

A start offers one Change, guarded by `KeyFree`. If the key is taken, the holder decides:

    holder of the key                       answer
    ──────────────────────────────────────  ─────────────────────────────────────────────
    gone again                              try once more, guarded by KeyFree
    ended, and its retention is over        try once more, taking the key over from it
    has another input                       Mismatch: nothing is started
    was admitted by this very request       Mine: the reply was lost, created=True again
    anything else                           Theirs: created=False, the caller decides in code

The key never expires while its run is not ended: `expires_ms` is set when a run ends, never before.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.kernel.changes import Blob, Change, KeyFree, KeyHeldBy, Run, Status, Watcher
from holdfast.kernel.journal import Started, Value


class Wanted(Struct, frozen=True, gc=False):
    """The run that a start would like to admit."""

    run_id: str
    namespace: str
    workflow: str
    key: str | None
    queue: str
    priority: int
    delay_ms: int
    retention_ms: int
    digest: str
    request_id: str
    input: Value
    blobs: tuple[Blob, ...] = ()
    watcher: Watcher | None = None


class Hand(Struct, frozen=True, gc=False):
    """A worker that is free to take the run in the admitting commit."""

    owner: str
    nonce: str


class Mine(Struct, frozen=True, gc=False):
    run: Run


class Theirs(Struct, frozen=True, gc=False):
    run: Run


class Mismatch(Struct, frozen=True, gc=False):
    run: Run


class Again(Struct, frozen=True, gc=False):
    guard: KeyFree | KeyHeldBy


Resolution = Mine | Theirs | Mismatch | Again


def admission(wanted: Wanted, *, now_ms: int, hand: Hand | None, guard: KeyFree | KeyHeldBy | None = None) -> Change:
    """The change that admits `wanted`, and hands it to a worker in the same commit if one is at hand."""
    handed = hand is not None and wanted.delay_ms == 0
    run = Run(
        id=wanted.run_id,
        namespace=wanted.namespace,
        workflow=wanted.workflow,
        key=wanted.key,
        queue=wanted.queue,
        priority=wanted.priority,
        digest=wanted.digest,
        request_id=wanted.request_id,
        retention_ms=wanted.retention_ms,
        created_ms=now_ms,
        status=Status.RUNNING if handed else Status.PENDING,
        epoch=1 if handed else 0,
        nonce=hand.nonce if handed and hand else "",
        owner=hand.owner if handed and hand else None,
        started_ms=now_ms if handed else None,
        wake_ms=None if handed else now_ms + wanted.delay_ms,
        length=1,
        holds_key=wanted.key is not None,
        change_id=wanted.run_id,
        input=wanted.input,
    )
    return Change(
        id=wanted.run_id,
        guard=guard or KeyFree(),
        run=run,
        entries=(Started(now_ms, wanted.input),),
        blobs=wanted.blobs,
        watcher=wanted.watcher,
    )


def resolve(wanted: Wanted, holder: Run | None, *, now_ms: int) -> Resolution:
    """What a start answers whose change was refused because of `holder`."""
    if holder is None:
        return Again(KeyFree())
    if holder.expires_ms is not None and holder.expires_ms <= now_ms:
        return Again(KeyHeldBy(holder.id, holder.epoch, holder.nonce))
    if holder.digest != wanted.digest:
        return Mismatch(holder)
    if holder.request_id == wanted.request_id:
        return Mine(holder)
    return Theirs(holder)
