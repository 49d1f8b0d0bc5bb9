"""The effects that run now, as the worker that performs them has told the store.

One document per worker, under the name of its lease. It is written beside the runs, so a run commits nothing for it,
and an effect that ends soon is never told at all.

    effects that have run for a while   the document says   what the worker writes
    ──────────────────────────────────  ──────────────────  ─────────────────────────────────────────────
    none                                none                nothing
    none                                some                one that has expired
    some                                the same, lately    nothing
    some                                others, or is old   what runs now

Rules
- A worker looks every sixth of its lease, and tells of what has run for a sixth: within a third, everyone can see it.
- An effect counts as running only while its run is held under the same lease and the same epoch. So what a dead or a
  slow worker has told says nothing about a run that another one has taken over.
- What the journal has recorded since has ended. If the run has recorded nothing since, all of it still runs.
- What a worker told whose lease has expired since is shown as what it was at: it may have happened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from holdfast.kernel.changes import Beat
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.journal import Attempted, Dropped, Entry, GaveUp, Late, Performed
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import utc_of, utc_or_none

KIND = "running"
KEPT_MS = Millis(600_000)  # after the lease: so long it can be seen what a dead worker was at
EFFECTS_MAX = 500  # of one worker, those that have run longest
OF_A_RUN_MAX = 20
HEARTBEAT_BYTES_MAX = 1_024  # of what is told of one; the whole of it is stored with the run


class RunningEffect(Struct, frozen=True, gc=False, omit_defaults=True):
    """An attempt of an effect that has begun, and has not come to its end.

    `remote`: it was handed to remote workers. `lost`: the lease of its worker has expired, so it may have ended.
    """

    name: str
    attempt: int
    since_ms: Instant
    timeout_ms: Millis | None = None
    remote: bool = False
    lost: bool = False
    heartbeat_json: Raw | UnsetType = field(default=UNSET, name="heartbeat")
    heartbeat_at_ms: Instant | None = None

    @property
    def since(self) -> datetime:
        """When the attempt began, by the store's clock."""
        return utc_of(self.since_ms)

    @property
    def timeout(self) -> timedelta | None:
        """How long the attempt may take; None if it may take forever."""
        return None if self.timeout_ms is None else timedelta(milliseconds=self.timeout_ms)

    @property
    def until_ms(self) -> Instant | None:
        """When the attempt times out."""
        return None if self.timeout_ms is None else self.since_ms + self.timeout_ms

    @property
    def heartbeat(self) -> Any:
        """The details of the last heartbeat, of this attempt or an earlier one; None if there is none."""
        return None if self.heartbeat_json is UNSET else msgspec.json.decode(self.heartbeat_json)

    @property
    def heartbeat_at(self) -> datetime | None:
        """When the last heartbeat of this attempt came."""
        return utc_or_none(self.heartbeat_at_ms)


class StepAtWork(Struct, frozen=True, gc=False, omit_defaults=True):
    """A step whose effect runs, and how far its run had come when that was told."""

    run_id: str
    epoch: int
    length: int
    step: str
    effect: RunningEffect


class Announcement(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a worker says about its effects; it is good until `until_ms` if nothing else is heard of the worker."""

    until_ms: Instant
    steps: tuple[StepAtWork, ...] = ()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Announcement).decode


def look_every_ms(ttl_ms: Millis) -> float:
    """How often a worker looks at what it performs."""
    return ttl_ms / 6


def tell(
    namespace: str,
    owner: str,
    running: Iterable[StepAtWork],
    *,
    last: Document | None,
    now_ms: Instant,
    ttl_ms: Millis,
) -> Writing | None:
    """What the worker writes; None if the store knows it. `last` is what it wrote before, under this name."""
    steps = _worth_telling(running, now_ms, ttl_ms)
    told = None if last is None else announced_in(last)
    if told is None and not steps:
        return None
    if told is not None and told.steps == steps and (not steps or told.until_ms - now_ms > ttl_ms * 2 / 3):
        return None
    replaces = None if last is None else last.version
    until_ms = now_ms + ttl_ms
    return Writing(
        Document(
            namespace,
            KIND,
            owner,
            next_version(replaces, now_ms=now_ms),
            _encode(Announcement(until_ms, steps)),
            expires_at_ms=until_ms + KEPT_MS if steps else now_ms,
        ),
        replaces,
    )


def _worth_telling(running: Iterable[StepAtWork], now_ms: Instant, ttl_ms: Millis) -> tuple[StepAtWork, ...]:
    """Those that have run for a while, the longest first, within bounds."""
    long = [step for step in running if now_ms - step.effect.since_ms >= look_every_ms(ttl_ms)]
    long.sort(key=lambda step: (step.effect.since_ms, step.run_id, step.step))
    of_run: dict[str, int] = {}
    told: list[StepAtWork] = []
    for step in long:
        of_run[step.run_id] = of_run.get(step.run_id, 0) + 1
        if of_run[step.run_id] <= OF_A_RUN_MAX:
            told.append(replace(step, effect=_with_short_heartbeat(step.effect)))
    return tuple(told[:EFFECTS_MAX])


def _with_short_heartbeat(effect: RunningEffect) -> RunningEffect:
    details = effect.heartbeat_json
    if details is UNSET or len(bytes(details)) <= HEARTBEAT_BYTES_MAX:
        return effect
    return replace(effect, heartbeat_json=UNSET)


def announced_in(document: Document) -> Announcement:
    """What the worker said."""
    return _decode(document.body)


def steps_of(run: Run, steps: Iterable[StepAtWork]) -> tuple[StepAtWork, ...]:
    """Those of the run, as far as it is still in the hands of the worker that tells of them."""
    if run.status is not Status.RUNNING:
        return ()
    return tuple(step for step in steps if step.run_id == run.id and step.epoch == run.epoch)


def are_as_told(run: Run, steps: Collection[StepAtWork]) -> bool:
    """Whether the run has recorded nothing since these steps were told: then none of them has ended."""
    return all(step.length == run.length for step in steps)


def not_ended(steps: Iterable[StepAtWork], journal: Sequence[Entry], *, first: int) -> tuple[StepAtWork, ...]:
    """Those of which the journal has recorded nothing since they were told; `first` is the position where it begins."""
    last: dict[str, int] = {}
    for position, entry in enumerate(journal, first):
        if isinstance(entry, Performed | GaveUp | Attempted | Dropped | Late):
            last[entry.step] = position
    # A journal that begins later than that has begun again: its steps have other names.
    return tuple(step for step in steps if first <= step.length and last.get(step.step, -1) < step.length)


def with_beats(steps: Iterable[StepAtWork], beats: Iterable[Beat]) -> tuple[StepAtWork, ...]:
    """The same, with the last heartbeat of each as the store has it."""
    newest = {beat.step: beat.details for beat in beats}
    return tuple(
        replace(step, effect=replace(step.effect, heartbeat_json=Raw(newest[step.step])))
        if step.step in newest
        else step
        for step in steps
    )


def lost(steps: Iterable[StepAtWork]) -> tuple[StepAtWork, ...]:
    """The same, told by a worker whose lease has expired since."""
    return tuple(replace(step, effect=replace(step.effect, lost=True)) for step in steps)
