"""How effects are performed in a simulation: through stubs, into a ledger, with faults at chosen places.

Everything that lies around an effect is the engine's own: turns, retries, limits, encoding. Only its function is
replaced, by one that writes into the ledger and calls it, or a stub.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import events
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, NamedTuple, cast

from msgspec import Struct

from holdfast.engine.attempts import AttemptOutcome, AttemptRefused, EffectAttempt, StepWork
from holdfast.engine.runs.performer import Performer, Turn
from holdfast.errors import UsageError
from holdfast.kernel.units import utc_of
from holdfast.pack import Effect
from holdfast.testing.effect_ledger import EffectLedger, LedgerCall
from holdfast.testing.simulation.calendar import Calendar, CalendarHost
from holdfast.testing.stubs import ReplyLost, Stub

FaultPlace = Literal["before", "after"]


class FaultAt(NamedTuple):
    """What is done to the worker that performs this effect next: before it, or when it has happened."""

    effect: str
    place: FaultPlace
    strike: Callable[[CalendarHost], None]


class StandInSignature(NamedTuple):
    """A signature without resources: a stub needs none."""

    effect: Effect[..., Any]
    resources: Mapping[str, Any] = {}

    @property
    def returns(self) -> Any:
        return self.effect.signature.returns

    def apply(self, fn: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        return fn(arguments)


class StandIn(Struct):
    """What a `Performer` needs of an effect. It is async, whatever the effect is: virtual time has no threads."""

    fn: Callable[..., Any]
    signature: Any
    name: str
    described: str
    result_name: str
    is_async: bool = True


class EffectsOfWorld:
    """The stubs, the ledger and the faults of one simulation, for all of its workers."""

    def __init__(self, calendar: Calendar) -> None:
        self.ledger = EffectLedger()
        self.stubs: dict[str, Stub] = {}
        self.faults: list[FaultAt] = []
        self._calendar = calendar

    def stand_in(
        self, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt, host: CalendarHost
    ) -> StandIn:
        """What is performed in place of this effect."""
        stub = self.stubs.get(effect.name)
        is_replaced = stub is not None and stub.replaces

        async def perform(*args: Any, **kwargs: Any) -> Any:
            call = LedgerCall(
                effect=effect.name,
                run=scope.run_id,
                step=scope.step,
                key=scope.key,
                attempt=scope.attempt,
                arguments=dict(arguments),
                worker=host.name,
                at=utc_of(self._calendar.now_ms()),
            )
            await self._meet(effect, "before", host)
            self.ledger.write(call)
            try:
                return await self._perform(effect, stub, call, host, lambda: call_original(effect.fn, args, kwargs))
            except asyncio.CancelledError:
                call.outcome = "lost" if call.happened else "interrupted"
                raise
            except ReplyLost as error:
                call.outcome, call.error = "lost", error
                raise
            except BaseException as error:
                call.outcome, call.error = "raised", error
                raise

        signature = StandInSignature(effect) if is_replaced else effect.signature
        return StandIn(perform, signature, effect.name, effect.described, effect.result_name)

    async def _perform(
        self,
        effect: Effect[..., Any],
        stub: Stub | None,
        call: LedgerCall,
        host: CalendarHost,
        original: Callable[[], Coroutine[Any, Any, Any]],
    ) -> Any:
        if stub is not None and stub.latency_seconds:
            await asyncio.sleep(stub.latency_seconds)  # noqa: TID251 - of virtual time
        if stub is not None and (error := stub.failure(call.key)) is not None:
            raise error
        is_replaced = stub is not None and stub.replaces
        call.result = await (stub.value(effect, call.arguments) if stub is not None and is_replaced else original())
        call.happened = True
        await self._meet(effect, "after", host, call)
        if stub is not None and stub.loses_reply and stub.loses(call.key):
            raise ReplyLost(f"the reply to effect {effect.name} was lost")
        call.outcome = "returned"
        return call.result

    async def _meet(
        self, effect: Effect[..., Any], place: FaultPlace, host: CalendarHost, call: LedgerCall | None = None
    ) -> None:
        fault = next((each for each in self.faults if each.effect == effect.name and each.place == place), None)
        if fault is None:
            return
        self.faults.remove(fault)
        fault.strike(host)
        if call is not None and not host.is_alive:
            call.outcome = "lost"
        if not host.is_alive:
            await asyncio.get_running_loop().create_future()  # it is dead: this never returns
        await asyncio.sleep(0)  # noqa: TID251 - if it stands still, then here

    def lose_calls_of(self, host: CalendarHost) -> None:
        """A worker was killed: nothing learns what came of its attempts."""
        for call in self.ledger:
            if call.worker == host.name and call.outcome == "under way":
                call.outcome = "lost"


class SimulatedPerformer(Performer):
    """Performs stand-ins. The rest is the engine's."""

    def __init__(self, effects: EffectsOfWorld, host: CalendarHost, **options: Any) -> None:
        super().__init__(**options)
        self._effects = effects
        self._host = host

    async def perform(
        self, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt
    ) -> AttemptOutcome:
        made = self._effects.stand_in(effect, arguments, scope, self._host)
        return await self._noted(scope, super().perform(_as_effect(made), arguments, scope))

    def attempt(
        self, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt, turn: Turn, *, once: bool
    ) -> Coroutine[Any, Any, AttemptOutcome | AttemptRefused]:
        made = self._effects.stand_in(effect, arguments, scope, self._host)
        return self._noted(scope, super().attempt(_as_effect(made), arguments, scope, turn, once=once))

    async def _noted(self, scope: StepWork, work: Coroutine[Any, Any, Any]) -> Any:
        self._host.attempts[id(scope)] = scope
        try:
            return await work
        finally:
            self._host.attempts.pop(id(scope), None)


def _as_effect(made: StandIn) -> Effect[..., Any]:
    return cast("Effect[..., Any]", cast("object", made))


async def call_original(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the effect's own function: one that is not async as in a thread, where no loop runs."""
    if inspect.iscoroutinefunction(fn):
        return await fn(*args, **kwargs)
    loop = events._get_running_loop()  # noqa: SLF001 - documented for loop authors
    events._set_running_loop(None)  # noqa: SLF001
    try:
        made = fn(*args, **kwargs)
    finally:
        events._set_running_loop(loop)  # noqa: SLF001
    if asyncio.iscoroutine(made):
        made.close()
        raise UsageError("a sync function returned a coroutine", hint="Write it as `async def`.")
    return made
