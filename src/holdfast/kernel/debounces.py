"""Debounces: many starts under one key in a short time become one run, which gets the arguments of the newest.

    the holder of the key            a start with the same key
    ───────────────────────────────  ───────────────────────────────────────────────────────────────────
    there is none                    is admitted, and goes when nothing has come for `quiet`
    has not begun                    gives it its input, and puts it off: to `quiet` from now, and to `at_most`
                                     after the first start at the latest
    has begun, or has ended          takes the key over: its run is the next one, and goes after the holder

Rules
- A run has the arguments of one start, whole: what a claim and a start do to it is decided at its fence, and each start
  gives the run that has not begun another nonce. So a start is never lost: it is the input of that run or, if that has
  begun meanwhile, of the next one.
- Such a key says what is meant, and not what is to be done once: another input than the holder's is no mismatch.
- The run of the first start is what all of them get, with `created` False but for the first.
- Runs under one key go one after the other, in a lane of their own.
- What a throttle says of the first start stays: no run goes before that.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import ids
from holdfast.kernel.changes import Blob, Change, NotBegun
from holdfast.kernel.journal import Started, Value
from holdfast.kernel.lanes import Entering
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import Duration, milliseconds

LANE: Final = "debounce/"  # what the name of the lane of a key begins with
WAITS: Final = b'[{"kind":"debounce"}]'  # what the run waits for until it goes


class Debounce(Struct, frozen=True, gc=False):
    """A run begins when no start under its key has come for `quiet`, and `at_most` so long after the first of them.

    Without `at_most` starts that go on coming put it off for as long as they do.
    """

    quiet: Duration
    at_most: Duration | None = None

    def __post_init__(self) -> None:
        quiet_ms = milliseconds(self.quiet)
        if not quiet_ms:
            raise UsageError(
                f"Debounce({self.quiet!r}) waits for nothing", hint='Say how long it is to be quiet: Debounce("5s").'
            )
        if self.at_most is not None and milliseconds(self.at_most) < quiet_ms:
            raise UsageError(
                f"Debounce({self.quiet!r}, at_most={self.at_most!r}) ends before it has been quiet once",
                hint="at_most= is counted from the first start: make it longer than the quiet time.",
            )


class Debouncing(Struct, frozen=True, gc=False):
    """What a start asks for: see `Debounce`."""

    quiet_ms: Millis
    at_most_ms: Millis | None = None


class Newest(Struct, frozen=True, gc=False):
    """What the newest start brings along."""

    start_id: str  # of the run that it would have made
    digest: str
    version: str
    input: Value
    blobs: tuple[Blob, ...] = ()
    attributes: bytes = b""


def declared(debounce: object, *, has_key: bool, owner: str) -> Debouncing:
    """What `debounce=` says, or a `UsageError`."""
    if not isinstance(debounce, Debounce):
        raise UsageError(
            f"debounce={debounce!r:.60} of {owner} is no Debounce",
            hint='Say how long it is to be quiet: debounce=Debounce("5s", at_most="1m").',
        )
    if not has_key:
        raise UsageError(
            f"{owner} has debounce= and no key", hint="Its starts are told apart by the key: add key='reindex:{doc}'."
        )
    at_most_ms = None if debounce.at_most is None else milliseconds(debounce.at_most)
    return Debouncing(milliseconds(debounce.quiet), at_most_ms)


def entering(workflow: str, key: str) -> Entering:
    """The lane in which the runs of one key go one after the other."""
    return Entering(f"{LANE}{ids.joined(workflow, key)}", 1)


def key_of_lane(lane: str) -> tuple[str, str] | None:
    """The workflow and the key whose runs go one after the other in this lane; None if it is another kind of lane.

    A store with shards keeps such a lane where it keeps the key: then its runs need no messages.
    """
    workflow, separator, key = lane.removeprefix(LANE).partition("/")
    return (workflow, key) if lane.startswith(LANE) and separator and workflow else None


def has_begun(holder: Run) -> bool:
    """Whether the holder of a key has its input for good."""
    return holder.status is not Status.PENDING or holder.epoch > 0


def renew(holder: Run, debouncing: Debouncing, newest: Newest, *, now_ms: Instant) -> Change:
    """The change by which a run that has not begun gets the arguments of the newest start, and is put off."""
    assert not has_begun(holder), holder
    wake_at_ms = now_ms + debouncing.quiet_ms
    if debouncing.at_most_ms is not None:
        wake_at_ms = min(wake_at_ms, holder.created_at_ms + debouncing.at_most_ms)
    wake_at_ms = Instant(max(holder.wake_at_ms or wake_at_ms, wake_at_ms))
    attributes = Raw(newest.attributes) if newest.attributes else UNSET
    change_id = f"{holder.id}/newest/{newest.start_id}"
    after = replace(
        holder,
        digest=newest.digest,
        version=newest.version,
        attributes=newest.attributes,
        nonce=newest.start_id,
        wake_at_ms=wake_at_ms,
        input=newest.input,
        change_id=change_id,
    )
    first = Started(now_ms, newest.input, attributes)
    return Change(change_id, NotBegun(holder.fence), after, (first,), newest.blobs)
