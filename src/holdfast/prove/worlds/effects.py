"""The effects of one host of a world in virtual time: into a ledger, past two boundaries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.errors import NotPerformed
from holdfast.kernel.units import utc_of
from holdfast.pack import Effect
from holdfast.prove.rules.wording import place_of
from holdfast.prove.samples import CODEC
from holdfast.prove.schedules import Phase
from holdfast.prove.worlds.faults import FaultInjector
from holdfast.prove.worlds.performing import ProvedCall, RequestedAttempt, reconciled_in, result_in, stub_in
from holdfast.prove.worlds.trace import WorldTrace
from holdfast.testing.effect_ledger import EffectLedger
from holdfast.testing.proofs import FakeWorld
from holdfast.testing.simulation.hosts import Host


class StubbedEffects:
    """Performs effects for one host. `is_recorded` says of a run and a step whether its end is in the store."""

    def __init__(
        self,
        host: Host,
        fake: FakeWorld,
        ledger: EffectLedger,
        *,
        trace: WorldTrace,
        faults: FaultInjector,
        is_recorded: Callable[[str, str], bool],
        slower_seconds: float = 0.0,
    ) -> None:
        self._host = host
        self._fake = fake
        self._ledger = ledger
        self._trace = trace
        self._faults = faults
        self._is_recorded = is_recorded
        self._slower_seconds = slower_seconds

    def is_real(self, effect: Effect[..., Any]) -> bool:
        return effect.name in self._fake.real_effects

    async def perform(self, requested: RequestedAttempt) -> Any:
        effect, stub = requested.effect, stub_in(self._fake, requested.effect)
        call = self._begin(requested)
        await self._boundary("before", call)
        try:
            latency_seconds = 0.0 if self.is_real(effect) else stub.latency_seconds
            if latency_seconds or self._slower_seconds or not self.is_real(effect):
                await asyncio.sleep(self._slowed(effect, latency_seconds))  # noqa: TID251 - of virtual time
            returned = await result_in(self._fake, requested)
        except asyncio.CancelledError:
            call.outcome = "interrupted"
            raise
        except BaseException:
            call.outcome = "raised"
            await self._boundary("after", call)
            raise
        call.happened = True
        self._see_changed(requested, call)
        await self._boundary("after", call)
        if stub.loses_reply and stub.loses(call.key):
            call.outcome = "lost"
            raise ConnectionError(f"the reply of {effect.name} is lost")
        call.outcome = "returned"
        return returned

    async def reconcile(self, effect: Effect[..., Any], key: str) -> Any:
        if not self._ledger.count(effect, key=key):
            raise NotPerformed
        return await reconciled_in(self._fake, effect)

    def _slowed(self, effect: Effect[..., Any], seconds: float) -> float:
        """So long, and as much longer as this world is slower, as far as the effect has the time."""
        limit_ms = effect.policy.timeout_ms
        room = self._slower_seconds if limit_ms is None else max(0.0, (limit_ms / 1000 - seconds) / 2)
        return seconds + min(self._slower_seconds, room)

    def _begin(self, requested: RequestedAttempt) -> ProvedCall:
        effect, arguments, scope = requested.effect, requested.arguments, requested.scope
        call = ProvedCall(
            effect=effect.name,
            run=scope.run_id,
            step=scope.step,
            key=scope.key,
            attempt=scope.attempt,
            arguments=dict(arguments),
            worker=self._host.name,
            at=utc_of(self._host.clock.wall_ms()),
            encoded=CODEC.encode(arguments, what=effect.input_name),
            after_record=self._is_recorded(scope.run_id, scope.step),
            after_ms=self._trace.elapsed_ms,
        )
        self._ledger.write(call)
        self._trace.tell("call", f"calls {call.step} under the key {call.key}", host=self._host.name, step=call.step)
        return call

    def _see_changed(self, requested: RequestedAttempt, call: ProvedCall) -> None:
        effect = requested.effect
        if CODEC.encode(requested.arguments, what=effect.input_name) != call.encoded:
            self._trace.note(
                "an effect changed its argument",
                f"{effect.name} changes what it was given: after a replay, which does not call it, the workflow has it "
                "unchanged",
                step=call.step,
                line=place_of(effect.fn),
            )

    async def _boundary(self, phase: Phase, call: ProvedCall) -> None:
        host = self._host
        words = f"{call.step} is {'called' if phase == 'before' else 'done'}"
        self._faults.reach("effect", phase, host, about=words)
        while not host.is_running:  # not one line more, until it goes on
            turned: asyncio.Future[None] = host.loop.create_future()
            host.loop.call_soon(turned.set_result, None)
            await turned
