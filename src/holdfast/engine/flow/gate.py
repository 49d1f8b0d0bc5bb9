"""The rules of all effects of one replica: lets each effect begin when its breaker and its limit let it.

    breaker open ──▶ waits ──▶ limit has room ──▶ breaker still closed, or this is its probe ──▶ begins
                                                   │ not any more: gives the room back, waits

Other replicas are told of a change at once; a look every few seconds is behind that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from holdfast import events
from holdfast.engine.alarms import Alarm
from holdfast.engine.flow.context import FlowContext, Told
from holdfast.engine.flow.shared_breaker import BreakerCall, SharedBreaker
from holdfast.engine.flow.shared_limit import LimitCall, SharedLimit
from holdfast.engine.ports import Ports
from holdfast.errors import TransientError
from holdfast.kernel import breakers, effect_limits
from holdfast.kernel.breakers import Breaker
from holdfast.kernel.changes import Answer, Change
from holdfast.kernel.effect_limits import Limit
from holdfast.kernel.effect_rules import EffectRules
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Millis
from holdfast.kernel.waits import Wait

KINDS = frozenset({breakers.KIND, effect_limits.KIND})


class Waiter(Struct, frozen=True):
    """An effect that wants to begin. `told` hears what it waits for, if it has to."""

    run_id: str
    step: str
    timeout_ms: Millis | None
    told: Told


class Passage(Struct):
    """An effect may begin, and counts as under way until `end`."""

    _breaker: tuple[SharedBreaker, BreakerCall] | None
    _limit: tuple[SharedLimit, LimitCall] | None

    def end(self, *, error: BaseException | None = None, is_known: bool = True) -> None:
        """The call has returned, or raised `error`; not `is_known`: it was cancelled. Only the first time counts."""
        breaker, limit = self._breaker, self._limit
        self._breaker = self._limit = None
        if breaker is not None:
            shared, call = breaker
            shared.end(call, failed=(error is not None and shared.rule.is_failure(error)) if is_known else None)
        if limit is not None:
            limit[0].end(limit[1])


class EffectGate:
    """Lets effects begin that have rules."""

    def __init__(
        self,
        ports: Ports,
        *,
        namespace: str,
        owner: Callable[[], str],
        is_trusted: Callable[[], bool],
        commit: Callable[[Change], Awaitable[Answer]],
        on_woken: Callable[[Run], None],
    ) -> None:
        self._context = FlowContext(
            store=ports.store,
            clock=ports.clock,
            ids=ports.ids,
            emit=ports.emit,
            pace=ports.pace,
            namespace=namespace,
            owner=owner,
            commit=commit,
            on_woken=on_woken,
        )
        self._is_trusted = is_trusted
        self._breakers: dict[str, SharedBreaker] = {}
        self._limits: dict[str, SharedLimit] = {}
        self._news = Alarm()

    async def enter(self, rules: EffectRules, waiter: Waiter) -> Passage:
        """Returns when the effect may begin."""
        breaker = None if rules.breaker is None else self._breaker(rules.breaker)
        limit = None if rules.limit is None else self._limit(rules.limit)
        for shared in (breaker, limit):
            if shared is not None:
                shared.parked.forget(waiter.run_id)
        while True:
            if breaker is not None:
                await breaker.until_open(waiter.step, waiter.told)
            room = None if limit is None else await limit.take(waiter.run_id, waiter.step, waiter.told)
            passage = Passage(None, None if limit is None or room is None else (limit, room))
            if breaker is None:
                return passage
            waiter.told(None)
            try:
                call = await breaker.begin(waiter.timeout_ms)
            except BaseException:
                passage.end(is_known=False)
                raise
            if call is not None:
                return Passage((breaker, call), passage._limit)  # noqa: SLF001 - it becomes part of the other one
            passage.end(is_known=False)

    def hold(self, run_id: str, wait: Wait) -> None:
        """An effect begins to wait."""
        self._context.emit(events.EffectHeld(run_id, wait.step, wait.kind, wait.name))

    def park(self, wait: Wait, run: Run) -> None:
        """A run was let go while it waits for this."""
        if wait.kind == "breaker" and (breaker := self._breakers.get(wait.name)) is not None:
            breaker.park(run)
        if wait.kind == "limit" and (limit := self._limits.get(wait.name)) is not None:
            limit.park(run)

    def _breaker(self, rule: Breaker) -> SharedBreaker:
        shared = self._breakers.get(rule.name)
        if shared is None:
            shared = self._breakers[rule.name] = SharedBreaker(rule, self._context)
            self._news.set()
        return shared

    def _limit(self, rule: Limit) -> SharedLimit:
        shared = self._limits.get(rule.name)
        if shared is None:
            shared = self._limits[rule.name] = SharedLimit(rule, self._context, is_trusted=self._is_trusted)
            self._news.set()
        return shared

    # -- what other processes do

    def look(self) -> None:
        """Another process has changed a breaker or a limit."""
        if self._breakers or self._limits:
            self._news.set()

    async def watch(self) -> None:
        """Look what other processes have done, forever; only when told to, as long as no effect here has rules."""
        pace, clock = self._context.pace, self._context.clock
        while True:
            await self._news.wait(pace.rules_poll_seconds if self._breakers or self._limits else None)
            self._news.clear()
            began_steady_ms = clock.steady_ms()
            try:
                await self._look_up()
            except TransientError:  # the rules say so themselves
                await clock.pause(pace.trouble_pause_seconds)
                continue
            rest = pace.rest_factor * (clock.steady_ms() - began_steady_ms) / 1000
            await clock.pause(min(rest, pace.rules_poll_seconds))

    async def _look_up(self) -> None:
        namespace = self._context.namespace
        places = [(namespace, breakers.KIND, name) for name in self._breakers]
        places += [(namespace, effect_limits.KIND, name) for name in self._limits]
        if not places:
            return
        for document in await self._context.store.named(places):
            shared = (self._breakers if document.kind == breakers.KIND else self._limits).get(document.id)
            if shared is not None:
                shared.see(document)

    # -- ways out

    def lose(self) -> None:
        """The lease of the worker is lost."""
        for limit in self._limits.values():
            limit.lose()

    async def leave(self) -> None:
        """Tell what is left to be told, and give back what is held."""
        await asyncio.gather(*(breaker.told() for breaker in self._breakers.values()))
        await asyncio.gather(*(limit.leave() for limit in self._limits.values()))
