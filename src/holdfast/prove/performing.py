"""How effects are performed in a world that is proved: through stubs, into a ledger, past two boundaries.

No effect is called for real unless the proof says so. Remote effects are performed here, too: there are no others.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Protocol, cast

from holdfast.engine.attempts import AttemptOutcome, AttemptRefused, EffectAttempt, StepWork
from holdfast.engine.runs.performer import Performer, Turn
from holdfast.kernel.times import NO_TIME, Millis
from holdfast.pack import Effect, Pack
from holdfast.testing.effect_ledger import LedgerCall
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.performing import StandIn, StandInSignature, call_original


class ProvedCall(LedgerCall, eq=False):
    """One attempt of an effect, and what was known when it began."""

    encoded: bytes = b""  # its arguments, as they were
    after_record: bool = False  # the store had recorded the end of the step by then
    after_ms: Millis = NO_TIME  # since the world began

    @property
    def is_undo(self) -> bool:
        return self.step.startswith("undo:")


class PerformsEffects(Protocol):
    """A world in which effects are performed."""

    def is_real(self, effect: Effect[..., Any]) -> bool: ...
    async def perform(
        self,
        host: Host,
        effect: Effect[..., Any],
        arguments: dict[str, Any],
        scope: EffectAttempt,
        original: Callable[[], Coroutine[Any, Any, Any]],
    ) -> Any: ...
    async def reconcile(self, effect: Effect[..., Any], key: str) -> Any: ...


class ProvedPerformer(Performer):
    """Performs stand-ins. The rest is the engine's."""

    def __init__(self, world: PerformsEffects, host: Host, **options: Any) -> None:
        super().__init__(**options)
        self._world = world
        self._host = host

    async def perform(
        self, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt
    ) -> AttemptOutcome:
        return await super().perform(self._stand_in(effect, arguments, scope), arguments, scope)

    def attempt(
        self, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt, turn: Turn, *, once: bool
    ) -> Coroutine[Any, Any, AttemptOutcome | AttemptRefused]:
        return super().attempt(self._stand_in(effect, arguments, scope), arguments, scope, turn, once=once)

    def reconcile(
        self, effect: Effect[..., Any], ask: Callable[[str], Any], key: str, scope: StepWork, turn: Turn
    ) -> Coroutine[Any, Any, AttemptOutcome | AttemptRefused]:
        async def asked(key: str) -> Any:
            return await self._world.reconcile(effect, key)

        is_real = self._world.is_real(effect)
        return super().reconcile(effect, ask if is_real else asked, key, scope, turn)

    def _stand_in(self, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt) -> Effect[..., Any]:
        is_real = self._world.is_real(effect)

        async def perform(*args: Any, **kwargs: Any) -> Any:
            original = lambda: call_original(effect.fn, args, kwargs)  # noqa: E731
            return await self._world.perform(self._host, effect, arguments, scope, original)

        signature = effect.signature if is_real else StandInSignature(effect)
        made = StandIn(perform, signature, effect.name, effect.described, effect.result_name)
        return cast("Effect[..., Any]", cast("object", made))


@contextmanager
def performed_here(packs: Iterable[Pack]) -> Generator[None]:
    """Until the end of the block, remote effects of these packs are performed by workers like any other."""
    remote = [effect for pack in packs for effect in pack.effects.values() if effect.remote]
    for effect in remote:
        effect.remote = False
    try:
        yield
    finally:
        for effect in remote:
            effect.remote = True
