"""The heartbeats of a run's effects: taken from any thread, written by the next commit, the newest details winning."""

from __future__ import annotations

import asyncio
import math
from typing import Any, NamedTuple, Protocol

from msgspec import UNSET, Raw, Struct

from holdfast.engine.code.commands import Command
from holdfast.engine.runs.host import RunHost
from holdfast.errors import LeaseLost
from holdfast.kernel import retries
from holdfast.kernel.changes import Beat, Change
from holdfast.kernel.documents import Document
from holdfast.kernel.limits import LimitVerdict
from holdfast.kernel.rates import Rate
from holdfast.kernel.retries import Begin, GiveUp
from holdfast.kernel.running_effects import RunningEffect
from holdfast.kernel.runs import Run
from holdfast.kernel.times import EPOCH, Instant, Steady
from holdfast.pack import EffectPolicy


class RunAtWork(Protocol):
    """The run that an attempt is made for."""

    @property
    def run(self) -> Run: ...
    @property
    def host(self) -> RunHost: ...
    def heartbeats(self) -> Heartbeats: ...


class AttemptScope(Struct, gc=False):
    """One attempt of an effect, as its body sees it."""

    _command: Command
    attempt: int
    policy: EffectPolicy
    _at_work: RunAtWork
    _ahead_ms: float = 0.0  # of the store's clock, before the steady one; the time matters only if there is a deadline
    dropped: bool = False  # the outcome is not waited for any more; it is still recorded
    abandoned: bool = False  # the run is not here any more: the outcome could not be recorded
    entered: bool = False
    began_steady_ms: Steady = Steady(0.0)
    since_ms: Instant | None = None  # the same by the store's clock, once that was asked for
    task: Document | None = None  # of a remote effect, once its outcome is there

    @classmethod
    def of(cls, command: Command, at_work: RunAtWork) -> AttemptScope:
        """The next attempt of an effect."""
        host = at_work.host
        policy = command.policy_on(host)
        scope = cls(command, command.failures + 1, policy, at_work)
        if policy.retry.deadline is not None:  # a store's clock is not for other threads
            scope._ahead_ms = host.store.now_ms() - float(host.clock.steady_ms())
        return scope

    @property
    def run_id(self) -> str:
        return self._at_work.run.id

    @property
    def step(self) -> str:
        return self._command.step

    @property
    def effect(self) -> str:
        return self._command.intent.name

    @property
    def key(self) -> str:
        return self._command.intent.key

    def may_enter(self) -> Begin | GiveUp | None:
        """Whether the effect may be called at this very moment, asked in the thread that would call it.

        The lease first, then whether the run is still here: a new lease is opened only when the runs of the old one
        have been dropped, so one that is good for the run was good when it was looked at.
        """
        verdict, host = None, self._at_work.host
        if host.is_trusted() and not self.dropped:
            policy = self.policy
            now_ms = EPOCH
            if policy.retry.deadline is not None:
                now_ms = Instant(int(host.clock.steady_ms() + self._ahead_ms))
            verdict = retries.begin(
                policy.retry, policy.timeout_ms, asked_at_ms=self._command.asked_at_ms, now_ms=now_ms
            )
        self.entered = type(verdict) is Begin
        return verdict

    def last_beat(self) -> Any:
        return self._at_work.heartbeats().last(self._command.step)

    def beat(self, details: Any) -> None:
        self._at_work.heartbeats().beat(self._command, self.attempt, details)

    async def limit(self, name: str, rate: Rate, cost: int) -> LimitVerdict:
        return await self._at_work.host.limit(name, rate, cost)

    def running(self, beat: SeenBeat | None) -> RunningEffect:
        """The attempt, as others see it while it runs."""
        if self.since_ms is None:
            self.since_ms = _instant_of(self.began_steady_ms, self._at_work.host)
        return RunningEffect(
            self.effect,
            self.attempt,
            self.since_ms,
            self.policy.timeout_ms,
            remote=self._command.is_remote,
            heartbeat_json=UNSET if beat is None else Raw(beat.data),
            heartbeat_at_ms=None if beat is None else beat.at_ms,
        )


def _instant_of(steady_ms: Steady, host: RunHost) -> Instant:
    """The same by the store's clock. It differs by a millisecond from look to look, so it is asked for once."""
    ago_ms = host.clock.steady_ms() - steady_ms
    # Rounded up: the store's clock cuts off, and an attempt must not seem to begin before its run was created.
    return Instant(math.ceil(host.store.now_ms() - ago_ms))


class LastBeat(NamedTuple):
    """What the last heartbeat of a step said, and when it came if it came here, by the steady clock."""

    data: bytes
    steady_ms: Steady | None = None


class SeenBeat(NamedTuple):
    """The same by the store's clock, as others see it."""

    data: bytes
    at_ms: Instant | None = None


class Heartbeats:
    """What the steps of one run have said last."""

    def __init__(self, host: RunHost, run: Run, beats: tuple[Beat, ...]) -> None:
        self._host = host
        self._run = run
        self._newest = {beat.step: LastBeat(beat.details) for beat in beats}
        self._seen: dict[str, tuple[LastBeat, SeenBeat]] = {}
        self._unwritten: set[str] = set()
        self._writing: set[asyncio.Task[None]] = set()
        self._written = 0

    def last(self, step: str) -> Any:
        """What the last heartbeat of the step said, in whatever attempt."""
        beat = self._newest.get(step)
        return None if beat is None else self._host.codec.decode(beat.data, Any)

    def seen(self, step: str) -> SeenBeat | None:
        """The same, as others see it. Asked in the loop: a store's clock is not for other threads."""
        beat = self._newest.get(step)
        if beat is None or beat.steady_ms is None:
            return None if beat is None else SeenBeat(beat.data)
        if (known := self._seen.get(step)) is None or known[0] is not beat:
            known = self._seen[step] = (beat, SeenBeat(beat.data, _instant_of(beat.steady_ms, self._host)))
        return known[1]

    def beat(self, command: Command, attempt: int, details: Any) -> None:
        """Take a heartbeat of this attempt, in whatever thread it runs."""
        data = self._host.codec.encode(details, what="the details of heartbeat()")
        if attempt != command.failures + 1 or command.future.done():
            return  # a thread that goes on after its attempt was given up
        self._newest[command.step] = LastBeat(data, self._host.clock.steady_ms())
        if asyncio._get_running_loop() is self._host.loop:  # noqa: SLF001 - it is asked in any thread, with or without a loop
            self._write_soon(command.step)
        else:
            self._host.loop.call_soon_threadsafe(self._write_soon, command.step)

    def _write_soon(self, step: str) -> None:
        if step not in self._unwritten:
            self._unwritten.add(step)
            task = self._host.loop.create_task(self._write(step))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _write(self, step: str) -> None:
        self._unwritten.discard(step)
        self._written += 1
        change_id = f"{self._run.id}/{self._run.epoch}.beat{self._written}"
        try:
            await self._host.commit(Change(change_id, self._run.fence, beats=(Beat(step, self._newest[step].data),)))
        except LeaseLost:
            return  # another worker has the run; this one has said so
