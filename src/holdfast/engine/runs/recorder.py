"""Turns what has come back to a run into journal entries: what to record, what to try again, what needs a person."""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec import UNSET

from holdfast import events
from holdfast.engine.code.commands import Command
from holdfast.engine.failures import described, worded
from holdfast.engine.runs.completions import (
    Admitted,
    Attempt,
    Broken,
    Errand,
    Expired,
    Interrupted,
    NotAdmitted,
    Reconciled,
    Record,
    TokenClaimed,
    Watching,
    unknown_outcome,
)
from holdfast.engine.runs.host import RunHost
from holdfast.engine.runs.in_flight import InFlight
from holdfast.engine.runs.performer import AttemptRaised, AttemptReturned
from holdfast.engine.values import kept
from holdfast.errors import NotPerformed, RunCancelled, TimedOut
from holdfast.kernel import retries
from holdfast.kernel.journal import (
    Attempted,
    CancelAsked,
    Dropped,
    Entry,
    Failure,
    GaveUp,
    Intended,
    Joined,
    KeyReleased,
    Late,
    Opened,
    Other,
    Performed,
    Received,
    Spawned,
    Value,
)
from holdfast.kernel.messages import CancelRequest, KeyTaken, OutcomeMessage, Signal
from holdfast.pack import Effect, EffectPolicy


class Recorder:
    """Words the entries of one run. Raises `Stuck` where only a person can say what happened."""

    def __init__(self, host: RunHost, run_id: str, in_flight: InFlight, blobs: dict[str, bytes]) -> None:
        self._host = host
        self._run_id = run_id
        self._in_flight = in_flight
        self._blobs = blobs

    def intent_of(self, command: Command) -> Intended | None:
        """The entry that must be durable before the command is begun; only `once` effects have one."""
        policy = self._policy(command)
        if policy is None or policy.safety != "once" or self._in_flight.is_intended_here(command):
            return None
        if command.intended:  # by a process that died since: nobody calls again
            if policy.reconcile is None and not command.effect().remote:  # a task is there to be joined
                raise unknown_outcome(command, "the process died after it was begun")
            return None
        self._in_flight.may_call(command)
        return Intended(self._host.store.now_ms(), command.step, command.intent, command.failures + 1)

    def entry_of(self, arrival: Errand | OutcomeMessage, command: Command, record: Record) -> Entry | Command | None:
        """The entry that records `arrival`; a command that is to be called now; or nothing."""
        now_ms = self._host.store.now_ms()
        match arrival:
            case Attempt() | Reconciled():
                return self._of_outcome(arrival, command, now_ms, record)
            case Admitted(run=run, created=created):
                return Spawned(
                    now_ms,
                    command.step,
                    command.intent,
                    run.id,
                    run.key or "",
                    created=created,
                    detached=command.detached,
                )
            case NotAdmitted(error=error):
                return GaveUp(now_ms, command.step, command.intent, 1, described(error, self._host.codec))
            case TokenClaimed(holder=run):
                holder = None if run is None else Other(run.id, run.workflow, run.key or "")
                return Opened(now_ms, command.step, command.intent, holder)
            case Watching():
                return None
            case Interrupted(begun=begun):
                return Dropped(now_ms, command.step, command.intent) if begun else None
            case Expired():
                return self._of_expiry(command, now_ms)
            case Broken(error=error):
                raise error
            case OutcomeMessage():
                return self._of_outcome_of_a_run(command, arrival, now_ms)
            case _:  # pragma: no cover
                assert_never(arrival)

    def late_entry_of(self, arrival: Errand, command: Command, record: Record) -> Late | None:
        """What to note of an errand that comes back although nobody waits for it any more."""
        now_ms, attempt = self._host.store.now_ms(), command.failures + 1
        match arrival:
            case Attempt(outcome=AttemptReturned(value)) | Reconciled(outcome=AttemptReturned(value)):
                return Late(now_ms, command.step, command.intent, attempt, self.keep(value, record))
            case Attempt(outcome=AttemptRaised(raised)) if isinstance(raised, Exception):
                error = described(raised, self._host.codec)
                return Late(now_ms, command.step, command.intent, attempt, error=error)
            case Admitted(run=run, created=True) if not command.detached:
                return Late(now_ms, command.step, command.intent, attempt, run_id=run.id)
            case _:
                return None

    def entry_of_message(self, message: Signal | CancelRequest | KeyTaken, record: Record, *, pausing: bool) -> Entry:
        """The entry that records a message to the run itself."""
        now_ms = self._host.store.now_ms()
        match message:
            case Signal(id=id_, hook=hook, payload=payload, by_key=by_key):
                return Received(now_ms, hook, id_, self.keep(bytes(payload), record), by_key)
            case CancelRequest(deadline_ms=deadline_ms, reason=reason):
                return CancelAsked(now_ms, deadline_ms, reason, pausing)
            case KeyTaken(reason=reason):
                return KeyReleased(now_ms, reason)

    def keep(self, data: bytes, record: Record) -> Value:
        """`data` as a journal value; what is large is recorded beside it."""
        value, blobs = kept(data)
        for blob in blobs:
            self._blobs[blob.digest] = blob.data
            record.blobs.append(blob)
        return value

    def _of_outcome(
        self, arrival: Attempt | Reconciled, command: Command, now_ms: int, record: Record
    ) -> Entry | Command | None:
        outcome, attempt = arrival.outcome, command.failures + 1
        if isinstance(outcome, AttemptReturned):
            took_ms = arrival.took_ms if isinstance(arrival, Attempt) else None
            self._host.emit(events.EffectPerformed(self._run_id, command.step, attempt, command.intent.name, took_ms))
            return Performed(now_ms, command.step, command.intent, attempt, self.keep(outcome.value, record))
        if isinstance(arrival, Attempt):
            return self._of_failure(command, outcome.error, arrival.took_ms, now_ms)
        if isinstance(outcome.error, NotPerformed):
            self._in_flight.may_call(command)
            return command
        raise unknown_outcome(command, f"reconcile raised {worded(outcome.error)}")

    def _of_failure(self, command: Command, error: BaseException, took_ms: float, now_ms: int) -> Entry | None:
        policy = self._policy(command)
        assert policy is not None
        if policy.safety == "once" and isinstance(error, TimedOut):
            # It may be happening still. This is the case that `once` exists for.
            if policy.reconcile is None:
                raise unknown_outcome(command, "it did not answer in time")
            self._in_flight.reconcile(command)
            return None
        attempt, failure = command.failures + 1, described(error, self._host.codec)
        verdict = retries.decide(
            policy.retry,
            error,
            attempt=attempt,
            asked_ms=command.asked_ms,
            now_ms=now_ms,
            chance=self._host.ids.chance(),
        )
        text, effect = f"{failure.type}: {failure.message}", command.intent.name
        if isinstance(verdict, retries.GiveUp):
            self._host.emit(events.EffectGaveUp(self._run_id, command.step, attempt, text, effect, took_ms))
            return GaveUp(now_ms, command.step, command.intent, attempt, failure)
        self._in_flight.must_intend(command)
        self._host.emit(
            events.EffectWillRetry(self._run_id, command.step, attempt, verdict.delay_ms, text, effect, took_ms)
        )
        return Attempted(now_ms, command.step, command.intent, attempt, failure, now_ms + verdict.delay_ms)

    def _of_expiry(self, command: Command, now_ms: int) -> GaveUp:
        """No attempt is begun after the deadline. One that a former holder of the run had begun may have happened."""
        name, made = command.intent.name, command.failures
        error = TimedOut(f"the deadline of effect {name} was over before attempt {made + 1} could begin")
        self._host.emit(events.EffectGaveUp(self._run_id, command.step, made, f"TimedOut: {error}", name))
        return GaveUp(now_ms, command.step, command.intent, made, described(error, self._host.codec))

    def _of_outcome_of_a_run(self, command: Command, message: OutcomeMessage, now_ms: int) -> Joined:
        step, run_id = command.step, message.from_run
        if message.output is not UNSET:
            return Joined(now_ms, step, run_id, value=msgspec.json.decode(message.output, type=Value))
        if message.error is not UNSET:
            return Joined(now_ms, step, run_id, error=msgspec.json.decode(message.error, type=Failure))
        return Joined(now_ms, step, run_id, error=described(RunCancelled(run_id), self._host.codec))

    def _policy(self, command: Command) -> EffectPolicy | None:
        target = command.call.target if command.call else None
        return self._host.policy_of(target) if isinstance(target, Effect) else None
