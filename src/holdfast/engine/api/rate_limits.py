"""Limits, as gateways and callers ask them: counted in the store, and by this process alone while the store is away.

    the store                 what is counted
    ────────────────────────  ──────────────────────────────────────────────────────────────────
    counts within 0.1 s *     in the store: exact over all replicas
    fails, or takes longer    here, to this replica's share, for a second; then one call tries the store again
    * unless the settings of the gateway say otherwise

A limiter that is away must neither stop all requests nor let all pass. What a limit protects is more than a login or
the check of a key, which are refused while the store is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.engine.pace import Pace
from holdfast.errors import TransientError
from holdfast.events import Emit, LimitChecked, LimitsCountedAgain, LimitsFellBack
from holdfast.kernel import limits
from holdfast.kernel.limits import Cost, LimitVerdict, RateCounts, Verdicts
from holdfast.kernel.rates import Exceeded, Rate
from holdfast.kernel.times import Millis, Steady
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store

OWN = "own"


class RateLimits:
    """The limits of one process, of all namespaces of its store."""

    def __init__(
        self, store: Store, *, clock: Clock, emit: Emit, pace: Pace, on_first_use: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._pace = pace
        self._on_first_use: Callable[[], None] | None = on_first_use
        self._own = RateCounts()
        self._patience_seconds = pace.limit_seconds_max
        self._until_steady_ms = Steady(0.0)  # the store is left alone
        self._said_at_steady_ms: Steady | None = None
        self.replicas = 1  # that limit something, as the store has said last
        self.is_away = False

    def use(self, *, patience_ms: Millis | None = None) -> None:
        """Something is going to be limited: how many replicas do has to be known before the store is away."""
        if patience_ms is not None:
            self._patience_seconds = patience_ms / 1000
        first_use, self._on_first_use = self._on_first_use, None
        if first_use is not None:
            first_use()

    async def limit(self, namespace: str, name: str, rate: Rate, cost: int) -> LimitVerdict:
        """Take `cost` of a rate that the caller names; see `Caller.limit`."""
        [found] = await self.spend(namespace, [limits.checked(Cost(OWN, name, rate, cost))])
        return limits.verdict_of(found)

    async def spend(self, namespace: str, costs: Sequence[Cost]) -> Verdicts:
        """Take all of these costs, or none: a verdict on each."""
        self.use()
        verdicts = await self._counted(namespace, costs)
        are_refused = any(isinstance(each, Exceeded) for each in verdicts)
        for cost, each in zip(costs, verdicts, strict=True):
            if cost.cost and isinstance(each, Exceeded) is are_refused:
                self._emit(LimitChecked(cost.limit, "refused" if are_refused else "granted"))
        return verdicts

    async def _counted(self, namespace: str, costs: Sequence[Cost]) -> Verdicts:
        if self.is_away:
            if self._clock.steady_ms() < self._until_steady_ms:
                return self._by_itself(namespace, costs)
            self._leave_alone()  # the others need not wait for this one
        try:
            async with asyncio.timeout(self._patience_seconds):
                verdicts = await self._store.limiter.spend(namespace, costs)
        except (TimeoutError, TransientError) as error:
            self._fall_back(str(error) or f"it takes longer than {self._patience_seconds:g} s")
            return self._by_itself(namespace, costs)
        if self.is_away:
            self.is_away = False
            self._own.clear()
            self._emit(LimitsCountedAgain())
        return verdicts

    def _by_itself(self, namespace: str, costs: Sequence[Cost]) -> Verdicts:
        # What costs more than this replica's share of a burst does not pass before the store is back.
        shares = [replace(cost, rate=limits.share(cost.rate, self.replicas)) for cost in costs]
        return self._own.spend(shares, now_ms=self._store.now_ms(), within=namespace)

    def _fall_back(self, why: str) -> None:
        self.is_away = True
        self._leave_alone()
        now_steady_ms, said_at_steady_ms = self._clock.steady_ms(), self._said_at_steady_ms
        if said_at_steady_ms is None or now_steady_ms - said_at_steady_ms >= self._pace.limit_said_ms:
            self._said_at_steady_ms = now_steady_ms
            self._emit(LimitsFellBack(why, self.replicas))

    def _leave_alone(self) -> None:
        self._until_steady_ms = Steady(self._clock.steady_ms() + self._pace.limit_away_ms)
