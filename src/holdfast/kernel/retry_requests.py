"""Retry now: a person asks that the next attempt of an effect begins at once, instead of at the end of its pause.

    the last that counts of the step's records      what is done
    ──────────────────────────────────────────────  ─────────────────────────────────────────────────────
    `attempted`, the retry is not due yet           the run is sent a request, named after that record
    `attempted`, the retry is due                   nothing: the attempt begins as soon as a worker has the run
    anything else, or the run stands still          refused

Rules
- The owner of the run takes the request: it records `attempted` once more, with the same attempt, a retry that is due,
  and who asked. So attempts that were made still count, and a replay takes the newer time.
- The id of a request names the record that it is about. Said twice, it is one request; after the next failed attempt it
  is about another record.
- A request whose pause is over when the owner reads it changes nothing.
- It travels as a signal to a hook that no code opens. A worker that does not know of requests keeps it as such, which
  does no harm, where it could not read a message of a new kind.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow
from holdfast.kernel import cancels, hooks, waits
from holdfast.kernel.changes import Change
from holdfast.kernel.journal import Attempted, ByHand, Entry, void_positions
from holdfast.kernel.messages import Message, SignalMessage
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant

HOOK = "holdfast retry now"
_BEGIN = "retry_now/"  # no signal of a caller has such an id
_LIVE = frozenset({Status.PENDING, Status.RUNNING, Status.WAITING})


class RetryRequest(Struct, frozen=True, gc=False):
    """What is sent: the record of the attempt that failed last, and who asks."""

    failed: Attempted
    by_hand: ByHand


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RetryRequest).decode


def waiting(run: Run, journal: tuple[Entry, ...]) -> dict[str, tuple[int, Attempted]]:
    """The steps of a run that wait for their next attempt, each with the record that says so and its position."""
    asked = cancels.request_in(run, journal)
    if run.status not in _LIVE or (asked is not None and asked.pausing):
        return {}
    void, last = void_positions(journal), dict[str, tuple[int, Entry]]()
    for position, entry in enumerate(journal, run.length - len(journal)):
        if position not in void and (step := getattr(entry, "step", "")):
            last[step] = position, entry
    found = {step: (at, entry) for step, (at, entry) in last.items() if isinstance(entry, Attempted)}
    if run.status is not Status.WAITING or run.waits is None:
        return found
    # The code may have stopped waiting for a step, and no record says so. Of a run that was let go more is known.
    awaited = {wait.step for wait in waits.decode(run.waits) if wait.kind == "retry"}
    return {step: each for step, each in found.items() if step in awaited}


def not_due(run: Run, journal: tuple[Entry, ...], *, now_ms: Instant) -> list[str]:
    """The steps of a run whose next attempt would not begin yet."""
    return [step for step, (_, failed) in waiting(run, journal).items() if failed.retry_at_ms > now_ms]


def requests(
    run: Run, journal: tuple[Entry, ...], step: str | None, by_hand: ByHand, *, now_ms: Instant
) -> dict[str, Change]:
    """What is to be sent, by step; nothing if what was asked for happens anyway. Without a step, all are meant.

    Raises `NotAllowedNow` if no step, or not this one, waits for its next attempt.
    """
    found = waiting(run, journal)
    if not found or (step is not None and step not in found):
        raise _refusal(run, found, step)
    return {
        name: hooks.to_run(run.id, _message(position, failed, by_hand))
        for name, (position, failed) in found.items()
        if step in {None, name} and failed.retry_at_ms > now_ms
    }


def _refusal(run: Run, found: Iterable[str], step: str | None) -> NotAllowedNow:
    what = "no step waits" if step is None else f"step {step!r} does not wait"
    waits_too = ", ".join(found)
    hint = "An effect waits for its next attempt after one that failed."
    if waits_too:
        hint = f"What waits for its next attempt: {waits_too}."
    elif run.status in {Status.BLOCKED, Status.FAILED}:
        hint = "Retry the run: what failed is tried again then."
    return NotAllowedNow(f"{what} for its next attempt: run {run.id} is {run.status}", hint=hint)


def _message(position: int, failed: Attempted, by_hand: ByHand) -> SignalMessage:
    request = RetryRequest(replace(failed, input=None), replace(by_hand, retry_now=True))
    return SignalMessage(f"{_BEGIN}{position}", HOOK, Raw(_encode(request)))


def request_in(message: Message) -> RetryRequest | None:
    """The request that this message brings, if it is one."""
    if not isinstance(message, SignalMessage) or not message.id.startswith(_BEGIN):
        return None
    return _decode(message.payload)


def entry_of(request: RetryRequest, *, attempts: int, retry_at_ms: Instant | None, now_ms: Instant) -> Attempted | None:
    """What the owner records of a request about a step that has made so many attempts, and waits until then, if so."""
    failed = request.failed
    if retry_at_ms is None or retry_at_ms <= now_ms or attempts != failed.attempt:
        return None
    return Attempted(now_ms, failed.step, failed.intent, failed.attempt, failed.error, now_ms, request.by_hand)
