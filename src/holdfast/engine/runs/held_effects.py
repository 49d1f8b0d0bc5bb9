"""The effects of one run that a breaker or a limit stands before: those that wait there, and those that may be called.

begun ──▶ waits ──▶ passed ──▶ called ──▶ ended
            │          └─ dropped, or the run is not here any more: what it was given is given back
            └─ the run is let go, and begins it again when it is woken
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from holdfast.engine.code.commands import Command
from holdfast.engine.failures import described
from holdfast.engine.flow.gate import Passage, Waiter
from holdfast.engine.runs.completions import HELD_BACK, PASSED, Completion
from holdfast.engine.runs.host import RunHost
from holdfast.engine.runs.performer import Turn
from holdfast.errors import NotPerformed, TimedOut
from holdfast.kernel import retries
from holdfast.kernel.effect_rules import EffectRules, Stay
from holdfast.kernel.runs import Run
from holdfast.kernel.steps import Expired, Raised, Returned
from holdfast.kernel.times import EPOCH, Instant

Work = Coroutine[Any, Any, Completion | None]


class Entered(NamedTuple):
    """What an effect has that may be called: the leave of its rules, and room here unless it is remote."""

    passage: Passage
    turn: Turn | None


class HeldEffects:
    """What stands before the effects of one run."""

    def __init__(self) -> None:
        self.stays: dict[str, Stay] = {}  # of those that wait
        self.since_ms = EPOCH  # of the last one that began to wait
        self._passages: dict[str, Entered] = {}  # of those that may be called, or are
        self._called: set[str] = set()

    def may_call(self, step: str) -> bool:
        """Whether the effect may be called; if not, it has to wait for that."""
        return step in self._passages

    async def wait(
        self, command: Command, rules: EffectRules, host: RunHost, run: Run, complete: Callable[[Completion], None]
    ) -> Completion:
        """Wait until the effect may begin, or its deadline is over. That it has to wait is told by a completion."""
        step, policy = command.step, command.policy_on(host)
        left_ms = retries.left_ms(policy.retry, asked_at_ms=command.asked_at_ms, now_ms=host.store.now_ms())
        deadline_at_ms = None if left_ms is None else Instant(host.store.now_ms() + left_ms)
        mine: Stay | None = None

        def hold(stay: Stay | None) -> None:
            nonlocal mine
            if stay is None:  # it is about to begin: a run that were let go now would take what it is given along
                self.stays.pop(step, None)
                return
            wake_at_ms = stay.wake_at_ms if deadline_at_ms is None else min(stay.wake_at_ms, deadline_at_ms)
            is_first, is_news, mine = mine is None, step not in self.stays, Stay(stay.wait, wake_at_ms)
            self.stays[step] = mine
            if is_first:
                self.since_ms = host.store.now_ms()
                host.gate.hold(run.id, stay.wait)
            if is_news:
                complete(Completion(step, HELD_BACK))

        waiter = Waiter(run.id, step, policy.timeout_ms, hold)
        try:
            async with asyncio.timeout(None if left_ms is None else left_ms / 1000):
                self._passages[step] = await _entered(command, rules, host, waiter)
        except TimeoutError:
            name, made = command.intent.name, command.failures
            error = TimedOut(f"the deadline of effect {name} was over before attempt {made + 1} could begin")
            return Completion(step, Expired(described(error, host.codec)))
        finally:
            if mine is not None and self.stays.get(step) is mine:
                del self.stays[step]
        return Completion(step, PASSED)

    async def call(self, step: str, make: Callable[[Turn | None], Work]) -> Completion | None:
        """Call an effect that may be called, and tell its rules what came of that."""
        (passage, turn), completion = self._passages[step], None
        self._called.add(step)
        try:
            completion = await make(turn)
            return completion
        finally:
            self._called.discard(step)
            self._passages.pop(step, None)
            if turn is not None:
                turn.end()
            _end(passage, completion)

    def give_back(self, step: str) -> None:
        """The effect is not called after all."""
        if step not in self._called and (entered := self._passages.pop(step, None)) is not None:
            if entered.turn is not None:
                entered.turn.end()
            entered.passage.end(is_known=False)

    def leave(self) -> dict[str, Stay]:
        """Nothing waits here any longer: what each of them waited for."""
        left, self.stays = self.stays, {}
        return left

    def close(self) -> None:
        """The run is not here any more. A call that is under way counts until it ends."""
        for step in tuple(self._passages):
            self.give_back(step)


async def _entered(command: Command, rules: EffectRules, host: RunHost, waiter: Waiter) -> Entered:
    """Room and the leave of the rules, both at once: what has leave is called without another wait."""
    effect, performer = command.effect, host.performer
    assert effect is not None
    while True:
        if not effect.remote and performer.room <= 0:
            (await performer.turn(host, in_thread=not effect.is_async)).end()
        passage = await host.gate.enter(rules, waiter)
        if effect.remote:
            return Entered(passage, None)
        turn = performer.turn_now(in_thread=not effect.is_async)
        if turn is not None:
            return Entered(passage, turn)
        passage.end(is_known=False)
        (await performer.turn(host, in_thread=not effect.is_async)).end()


def _end(passage: Passage, completion: Completion | None) -> None:
    match None if completion is None else completion.event:
        case Returned():
            passage.end()
        case Raised(error=error, interrupted=False) if not isinstance(error, NotPerformed):
            passage.end(error=error)
        case _:
            passage.end(is_known=False)
