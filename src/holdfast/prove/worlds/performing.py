"""How effects are performed in a world that is proved: in place of each, a stub, a sample, or what its proof declares.

No effect is called for real unless the proof says so. Remote effects are performed here, too: there are no others.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from holdfast.engine.attempts import AttemptOutcome, AttemptRefused, EffectAttempt, StepWork
from holdfast.engine.runs.performer import Performer, Turn
from holdfast.kernel.times import NO_TIME, Millis
from holdfast.pack import Effect, Pack
from holdfast.prove.samples import result_of
from holdfast.testing.effect_ledger import LedgerCall
from holdfast.testing.proofs import FakeWorld, usual_latency
from holdfast.testing.simulation.performing import StandIn, StandInSignature, call_original
from holdfast.testing.stubs import Stub


class ProvedCall(LedgerCall, eq=False):
    """One attempt of an effect, and what was known when it began."""

    encoded: bytes = b""  # its arguments, as they were
    after_record: bool = False  # the store had recorded the end of the step by then
    after_ms: Millis = NO_TIME  # since the world began

    @property
    def is_undo(self) -> bool:
        return self.step.startswith("undo:")


class RequestedAttempt(NamedTuple):
    """An attempt of an effect that the engine asks for."""

    effect: Effect[..., Any]
    arguments: dict[str, Any]
    scope: EffectAttempt
    original: Callable[[], Coroutine[Any, Any, Any]]  # calls the effect's own function


class PerformsEffects(Protocol):
    """What performs effects in place of their functions."""

    def is_real(self, effect: Effect[..., Any]) -> bool: ...
    async def perform(self, requested: RequestedAttempt) -> Any: ...
    async def reconcile(self, effect: Effect[..., Any], key: str) -> Any: ...


class ProvedPerformer(Performer):
    """Performs stand-ins. The rest is the engine's."""

    def __init__(self, effects: PerformsEffects, **options: Any) -> None:
        super().__init__(**options)
        self._effects = effects

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
            return await self._effects.reconcile(effect, key)

        is_real = self._effects.is_real(effect)
        return super().reconcile(effect, ask if is_real else asked, key, scope, turn)

    def _stand_in(self, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt) -> Effect[..., Any]:
        async def perform(*args: Any, **kwargs: Any) -> Any:
            original = partial(call_original, effect.fn, args, kwargs)
            return await self._effects.perform(RequestedAttempt(effect, arguments, scope, original))

        signature = effect.signature if self._effects.is_real(effect) else StandInSignature(effect)
        made = StandIn(perform, signature, effect.name, effect.described, effect.result_name)
        return cast("Effect[..., Any]", cast("object", made))


def stub_in(fake: FakeWorld, effect: Effect[..., Any]) -> Stub:
    """The stub of this effect; one that only takes its time, if none was declared."""
    if effect.name not in fake.stubs:
        fake.stubs[effect.name] = Stub(latency_seconds=usual_latency(effect))
    return fake.stubs[effect.name]


async def result_in(fake: FakeWorld, requested: RequestedAttempt) -> Any:
    """What an attempt returns in this world, or raises: as its stub says, as its own function does, or a sample."""
    effect, stub = requested.effect, stub_in(fake, requested.effect)
    if (error := stub.failure(requested.scope.key)) is not None:
        raise error
    if effect.name in fake.real_effects:
        return await requested.original()
    return await stub.value(effect, requested.arguments) if stub.replaces else result_of(effect)


async def reconciled_in(fake: FakeWorld, effect: Effect[..., Any]) -> Any:
    """What the other side says of an attempt that happened, when it is asked later."""
    stub = stub_in(fake, effect)
    return await stub.value(effect, {}) if stub.replaces and stub.calls is None else result_of(effect)


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
