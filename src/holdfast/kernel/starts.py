"""Admission: the result of a start under a key.

A start offers one Change, guarded by `KeyFree`. If the key is taken, the holder decides:

    holder of the key                       answer
    ──────────────────────────────────────  ─────────────────────────────────────────────
    gone again                              try once more, guarded by KeyFree
    was admitted by this very request,
    and no signal is to be delivered        Mine: the reply was lost, created=True again
    ended, and its retention is over        try once more, taking the key over from it
    is a batch with room for the item       Tell: the item goes into it
    is another batch                        try once more, taking the key over from it
    is debounced, and has not begun         Renew: it gets the input of this start
    is debounced, and has begun             try once more, taking the key over from it
    is the one to be replaced               try once more, taking the key over from it
    is another than the one to be replaced  Overtook: another start was first
    ended, and a signal is to be delivered  try once more, taking the key over from it
    has another input                       Mismatch: nothing is started
    lives, and is not to be joined          Busy: nothing is started, and no signal delivered
    lives, and a signal is to be delivered  Tell: the signal goes to it
    anything else                           Theirs: created=False, the caller decides in code

A start whose key may be had, and whose lane has no room for it, is refused because of the first run of that lane:
NoPlace, nothing is started.

A start with a signal that has been received before does not come here: the store returns the run that received it.
So if it does, the signal is to be delivered, although the run is there already.

A start whose key is expected to be held may look at the holder first, and is offered only if it cannot join that.

The key never expires while its run is not ended: `expires_at_ms` is set when a run ends, never before.

Each line is one commit. Superseding moves the key, asks the former holder to cancel and admits the successor in the
same one, so there is no instant without an owner. A signal travels with the admission, or to the live holder.
"""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from holdfast.kernel import batches, debounces, hooks, ids, lanes, timeouts
from holdfast.kernel.changes import Blob, Change, HolderOf, KeyFree, KeyHeldBy
from holdfast.kernel.debounces import Debouncing, Newest
from holdfast.kernel.journal import Continued, Started, Value, original_input
from holdfast.kernel.lanes import Entering, NoRoom
from holdfast.kernel.messages import CancelRequest, Envelope, SignalMessage, Watcher
from holdfast.kernel.rates import Taking
from holdfast.kernel.runs import ENDED, PENDING, RUNNING, Run
from holdfast.kernel.timeouts import TimeLimit
from holdfast.kernel.times import Instant, Millis

SUPERSEDED_DEADLINE_MS = Millis(30_000)  # as long as any cancellation has by default


class Wanted(Struct, frozen=True, gc=False):
    """The run that a start would like to admit."""

    run_id: str
    namespace: str
    workflow: str
    key: str | None
    queue: str
    priority: int
    delay_ms: Millis
    retention_ms: Millis
    digest: str
    request_id: str
    input: Value
    blobs: tuple[Blob, ...] = ()
    watcher: Watcher | None = None
    version: str = ""
    attributes: bytes = b""
    replaces: str | None = None  # the run whose key it takes over
    signal: SignalMessage | None = None
    join: bool = True  # whether another's live run will do
    limit: TimeLimit | None = None  # its attributes show it
    enters: Entering | None = None
    takes: Taking | None = None
    shares: str = ""
    debounce: Debouncing | None = None
    gathers: int = 0  # the size of the batch that its signal, an item, goes into

    @property
    def scope(self) -> str:
        """Where the id of its signal counts."""
        return hooks.key_scope(self.namespace, self.workflow, self.key or "")


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


class Busy(Struct, frozen=True, gc=False):
    run: Run


class Overtook(Struct, frozen=True, gc=False):
    run: Run


class NoPlace(Struct, frozen=True, gc=False):
    """The lane has no room; `run` is the first one in it."""

    why: NoRoom
    run: Run | None


class Tell(Struct, frozen=True, gc=False):
    change: Change


class Renew(Struct, frozen=True, gc=False):
    change: Change


class Again(Struct, frozen=True, gc=False):
    guard: KeyFree | KeyHeldBy


Resolution = Mine | Theirs | Mismatch | Busy | Overtook | NoPlace | Tell | Renew | Again


def admission(
    wanted: Wanted, *, now_ms: Instant, hand: Hand | None, guard: KeyFree | KeyHeldBy | None = None
) -> Change:
    """The change that admits `wanted`, and hands it to a worker in the same commit if one is at hand."""
    status, epoch, nonce, owner, wake_at_ms, started_at_ms = PENDING, 0, "", None, now_ms + wanted.delay_ms, None
    if hand is not None and not wanted.delay_ms:
        status, epoch, nonce, owner, wake_at_ms, started_at_ms = RUNNING, 1, hand.nonce, hand.owner, None, now_ms
    run_id, key, attributes = wanted.run_id, wanted.key, wanted.attributes
    run = Run(
        run_id,
        wanted.namespace,
        wanted.workflow,
        key,
        wanted.queue,
        wanted.priority,
        wanted.digest,
        wanted.request_id,
        wanted.retention_ms,
        now_ms,
        status,
        epoch,
        nonce,
        owner,
        wake_at_ms,
        1,  # entry
        0,  # messages unread
        key is not None,
        started_at_ms,
        change_id=run_id,
        version=wanted.version,
        attributes=attributes,
        lane="" if wanted.enters is None else wanted.enters.lane,
        input=wanted.input,
    )
    if wanted.debounce is not None:
        run = replace(run, waits=debounces.WAITS)
    elif wanted.gathers:
        run = replace(run, waits=batches.WAITS)
    first = Started(now_ms, wanted.input, Raw(attributes) if attributes else UNSET)
    envelopes = _envelopes(wanted, now_ms) if wanted.replaces or wanted.signal else ()
    guard = guard or first_guard(wanted)
    return Change(
        run_id,
        guard,
        run,
        (first,),
        wanted.blobs,
        watcher=wanted.watcher,
        envelopes=envelopes,
        enters=wanted.enters,
        takes=wanted.takes,
        shares=wanted.shares,
    )


def successor(
    run: Run,
    first: Started | Continued,
    signals: tuple[SignalMessage, ...],
    *,
    blobs: tuple[Blob, ...],
    now_ms: Instant,
) -> Change:
    """The run that takes over the key of one that ends over signals which were sent to the key.

    A sender to a key wants the payload to be seen by some run: one that the owner did not take begins the next.
    """
    scope = hooks.key_scope(run.namespace, run.workflow, run.key or "")
    successor_id = ids.derived_beside(run.id, "successor")
    after = Run(
        id=successor_id,
        namespace=run.namespace,
        workflow=run.workflow,
        key=run.key,
        queue=run.queue,
        priority=run.priority,
        digest=run.digest,
        request_id=successor_id,
        retention_ms=run.retention_ms,
        created_at_ms=now_ms,
        wake_at_ms=now_ms,
        length=1,
        change_id=successor_id,
        version=run.version,
        lane=run.lane,
        attributes=timeouts.shown_without(b"" if first.attributes is UNSET else bytes(first.attributes)),
        input=original_input(first),
    )
    assert after.input is not None
    attributes = Raw(after.attributes) if after.attributes else UNSET
    return Change(
        id=successor_id,
        guard=KeyHeldBy(run.id, run.fence),
        run=after,
        entries=(Started(now_ms, after.input, attributes),),
        blobs=blobs,
        envelopes=tuple(Envelope(successor_id, signal, scope) for signal in signals),
        inherits=run.id,
        enters=lanes.again(run),
    )


def first_guard(wanted: Wanted) -> KeyFree | KeyHeldBy:
    """What is tried first."""
    return KeyFree() if wanted.replaces is None else KeyHeldBy(wanted.replaces)


class Joining(Struct, frozen=True, gc=False):
    """A start under a key that is expected to be held, as far as its holder is concerned: it has nothing to tell it."""

    run_id: str
    namespace: str
    workflow: str
    key: str
    digest: str
    request_id: str
    join: bool = True


def look(wanted: Joining | Wanted) -> Change:
    """The change that looks at the holder of the key, for a start that has nothing to tell it."""
    assert wanted.key is not None, wanted
    return Change(wanted.run_id, HolderOf(wanted.run_id, wanted.namespace, wanted.workflow, wanted.key))


def joins(wanted: Joining | Wanted, holder: Run, *, now_ms: Instant) -> bool:
    """Whether the start joins the holder of its key, to which it has nothing to tell: what becomes of most of them."""
    if holder.digest != wanted.digest or holder.request_id == wanted.request_id:
        return False
    if holder.expires_at_ms is not None and holder.expires_at_ms <= now_ms:
        return False
    return wanted.join or holder.status in ENDED


def _envelopes(wanted: Wanted, now_ms: Instant) -> tuple[Envelope, ...]:
    envelopes: tuple[Envelope, ...] = ()
    if wanted.replaces is not None:
        reason, deadline_at_ms = f"superseded by run {wanted.run_id}", now_ms + SUPERSEDED_DEADLINE_MS
        message = CancelRequest(f"superseded/{wanted.run_id}", deadline_at_ms, reason)
        envelopes += (Envelope(wanted.replaces, message),)
    if wanted.signal is not None:
        envelopes += (hooks.scoped(wanted.run_id, wanted.signal, wanted.scope),)
    return envelopes


def resolve(wanted: Wanted, holder: Run | None, *, now_ms: Instant, no_room: NoRoom = "") -> Resolution:
    """The result of a start whose change was refused because of `holder`; with `no_room`, because of its lane."""
    if no_room:
        return NoPlace(no_room, holder)
    if holder is None:
        return Again(KeyFree())
    has_nothing_to_tell = wanted.signal is None and wanted.replaces is None and wanted.debounce is None
    if has_nothing_to_tell and joins(wanted, holder, now_ms=now_ms):
        return Theirs(holder)
    is_mine = holder.request_id == wanted.request_id and holder.digest == wanted.digest
    if is_mine and wanted.signal is None:
        return Mine(holder)
    if holder.expires_at_ms is not None and holder.expires_at_ms <= now_ms:
        return Again(KeyHeldBy(holder.id, holder.fence))
    if wanted.replaces is not None:
        return Again(KeyHeldBy(holder.id)) if holder.id == wanted.replaces else Overtook(holder)
    if wanted.gathers:
        return _gather(wanted, holder)
    if wanted.debounce is not None:
        return _debounce(wanted, wanted.debounce, holder, now_ms=now_ms)
    if wanted.signal is not None and holder.status in ENDED:
        return Again(KeyHeldBy(holder.id, holder.fence))
    if holder.digest != wanted.digest:
        return Mismatch(holder)
    if wanted.signal is None or not (wanted.join or is_mine):
        return Busy(holder)
    return Tell(hooks.to_owner(holder.id, wanted.signal, scope=wanted.scope))


def after_refusal(wanted: Wanted, refused_by: Run | None) -> KeyFree | KeyHeldBy:
    """What is tried next by a start whose signal could not be delivered to the holder of its key."""
    if wanted.gathers and refused_by is not None and batches.has_room(refused_by, wanted.gathers):
        return KeyHeldBy(refused_by.id)  # there is room by number: what it lacks is room for the bytes of this item
    return KeyFree()  # it has ended meanwhile: look again


def _gather(wanted: Wanted, holder: Run) -> Tell | Again:
    assert wanted.signal is not None, wanted
    if batches.has_room(holder, wanted.gathers):
        envelope = hooks.scoped(holder.id, wanted.signal, wanted.scope)
        return Tell(batches.add(holder, envelope, size=wanted.gathers))
    return Again(KeyHeldBy(holder.id))


def _debounce(wanted: Wanted, debouncing: Debouncing, holder: Run, *, now_ms: Instant) -> Renew | Again:
    if debounces.has_begun(holder):
        return Again(KeyHeldBy(holder.id))
    newest = Newest(wanted.run_id, wanted.digest, wanted.version, wanted.input, wanted.blobs, wanted.attributes)
    return Renew(debounces.renew(holder, debouncing, newest, now_ms=now_ms))
