"""Forks: a new run that begins with what another one has done.

Rules
- The fork has the journal of its source before the first record of a step; from there on it is a run of its own.
- What was recorded stays as it was: results, keys of effects, chance. Effects of the fork itself have its own keys.
- What was undone cannot be built upon.
- It takes over the key of a source that has ended and still holds it, in the commit that admits it. Under another
  key it leaves the source alone, whatever its status: the source's effects and children stay the source's.
- What was taken back in the source (a retry, a resumption) stays taken back, even if that came later. A fork cannot
  begin in a cancellation.
"""

from __future__ import annotations

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow, UsageError
from holdfast.kernel import attributes, lanes, markers, timeouts
from holdfast.kernel.attributes import FORKED_FROM, Scalar
from holdfast.kernel.cancels import UNDO
from holdfast.kernel.changes import Change, HookOpen, KeyFree, KeyHeldBy
from holdfast.kernel.journal import (
    CancelAsked,
    Closed,
    Continued,
    EffectEntry,
    Entry,
    Forked,
    Joined,
    Late,
    Marked,
    Opened,
    Performed,
    Received,
    Retried,
    Spawned,
    Started,
    StepEntry,
    Stopped,
    Tagged,
    Value,
    step_of,
    void_positions,
)
from holdfast.kernel.runs import ENDED, Run, Status
from holdfast.kernel.times import Instant


def prefix(source: Run, journal: tuple[Entry, ...], step: str) -> tuple[Entry, ...]:
    """The part of the journal that a fork at `step` begins with, or a `UsageError`."""
    first = source.length - len(journal)
    if first:
        raise NotAllowedNow(
            f"run {source.id} has continued as new", hint="Its earlier journal is gone; start a run with its input."
        )
    void = void_positions(journal)
    recorded = {n: entry.step for n, entry in enumerate(journal) if isinstance(entry, StepEntry) and n not in void}
    at = next((n for n, name in recorded.items() if name == step), None)
    if at is None:
        steps = list(dict.fromkeys(map(step_of, journal)))
        known = ", ".join(name for name in steps if name) or "none"
        raise UsageError(f"run {source.id} has no record of step {step!r}", hint=f"Its steps: {known}.")
    if any(isinstance(entry, CancelAsked) and n not in void for n, entry in enumerate(journal[:at])):
        raise NotAllowedNow(f"step {step!r} belongs to the cancellation of run {source.id}", hint="Choose one before.")
    if any(isinstance(entry, Stopped) and entry.error and n not in void for n, entry in enumerate(journal[:at])):
        raise NotAllowedNow(f"step {step!r} belongs to the undoing of run {source.id}", hint="Choose one before.")
    copied = set(map(step_of, journal[:at]))
    undone = next((each for each in journal if step_of(each).removeprefix(UNDO) in copied and _undoes(each)), None)
    if undone is not None:
        raise NotAllowedNow(
            f"a fork at {step!r} would build on what was taken back: {undone.what} {step_of(undone)}",
            hint="Fork it at that step, or at one before it.",
        )
    return journal[:at]


def _undoes(entry: Entry) -> bool:
    return step_of(entry).startswith(UNDO)


def origin_of(source: Run, journal: tuple[Entry, ...]) -> str:
    """The run whose id seeds chance and default keys in the part that a fork of `source` has in common with it."""
    return next((entry.origin for entry in reversed(journal) if isinstance(entry, Forked)), source.id)


def open_hooks(entries: tuple[Entry, ...]) -> tuple[HookOpen, ...]:
    """The hooks with tokens that were open where the copied part ends: the fork needs them too."""
    hooks: dict[str, HookOpen] = {}
    for entry in entries:
        if isinstance(entry, Opened) and entry.holder is None:
            hooks[entry.intent.name] = HookOpen(entry.intent.name, entry.intent.key)
        elif isinstance(entry, Closed):
            hooks.pop(entry.hook, None)
    return tuple(hooks.values())


def taken_back_later(journal: tuple[Entry, ...], length: int) -> tuple[int, ...]:
    """The positions of the first `length` entries that an entry behind them has taken back."""
    return tuple(sorted(at for at in void_positions(journal[length:]) if at < length))


def values(entries: tuple[Entry, ...]) -> list[Value]:
    """The values in these entries."""
    found: list[Value | None] = [
        entry.input if isinstance(entry, Started | Continued) else entry.value
        for entry in entries
        if isinstance(entry, Started | Continued | Performed | Joined | Received | Late)
    ]
    found += [entry.input for entry in entries if isinstance(entry, EffectEntry)]
    return [value for value in found if value is not None]


def key_of_fork(source: Run, key: str | None) -> str | None:
    """The key that a fork of `source` gets if `key` is asked for."""
    return key if key is not None else source.key if _takes_over(source, key) else None


def _takes_over(source: Run, key: str | None) -> bool:
    return source.key is not None and source.holds_key and key in {None, source.key}


def fork(
    source: Run,
    entries: tuple[Entry, ...],
    *,
    fork_id: str,
    step: str,
    key: str | None,
    origin: str,
    void: tuple[int, ...],
    now_ms: Instant,
) -> Change:
    """The change that admits the fork.

    `origin` is the run that seeds the chance of this lineage; `void` are the positions that the source has taken back
    later.
    """
    takes_over = _takes_over(source, key)
    if takes_over and source.status not in ENDED:
        raise NotAllowedNow(
            f"run {source.id} is {source.status} and needs its key {source.key!r}",
            hint="Cancel it first, or fork it under another key: fork(at=..., key=...).",
        )
    first = entries[0]
    assert isinstance(first, Started), first
    known = timeouts.shown_without(b"" if first.attributes is UNSET else bytes(first.attributes))
    seeded = attributes.decode(known) | {FORKED_FROM: source.id}
    first = replace(first, attributes=Raw(attributes.encode(seeded)))
    taken_back = (Retried(now_ms, void),) if void else ()
    # The children of the source are its own: the fork may see how they end, and does not cancel them.
    copied = (replace(each, created=False) if isinstance(each, Spawned) else each for each in entries[1:])
    recorded = (first, *copied, *taken_back, Forked(now_ms, source.id, origin, step, beside=not takes_over))
    own_key = key_of_fork(source, key)
    run = Run(
        id=fork_id,
        namespace=source.namespace,
        workflow=source.workflow,
        key=own_key,
        queue=source.queue,
        priority=source.priority,
        digest=source.digest,
        request_id=fork_id,
        retention_ms=source.retention_ms,
        created_at_ms=now_ms,
        status=Status.PENDING,
        wake_at_ms=now_ms,
        length=len(recorded),
        holds_key=own_key is not None,
        # The source's clock goes on in the part that is copied.
        started_at_ms=source.started_at_ms,
        change_id=fork_id,
        version=source.version,
        lane=source.lane,
        attributes=attributes.encode(_shown(seeded, entries)),
        markers=markers.encode(tuple((each.marker, each.at_ms) for each in entries if isinstance(each, Marked))),
        input=first.input,
    )
    guard = KeyHeldBy(source.id, source.fence) if takes_over else KeyFree()
    return Change(fork_id, guard, replace(run, epoch=0), recorded, enters=lanes.again(source))


def _shown(seeded: dict[str, Scalar], entries: tuple[Entry, ...]) -> dict[str, Scalar]:
    for entry in entries:
        if isinstance(entry, Tagged):
            seeded = attributes.merged(seeded, attributes.decode_changes(bytes(entry.attributes)))
    return seeded


def check_key(source: Run, key: str | None, holder: Run | None) -> None:
    """Raises if the fork cannot have the key it wants: another run has it."""
    if holder is not None and holder.id != source.id:
        wanted = key if key is not None else source.key or ""
        raise NotAllowedNow(
            f"key {wanted!r} belongs to run {holder.id}", hint="Fork it under another key: fork(at=..., key=...)."
        )
