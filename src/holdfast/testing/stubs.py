"""Stubs: what stands in for the function of an effect, in one simulation.

    hf.stub(charge, returns="pay_1")                the function is not called
    hf.stub(charge, calls=fake)                     this function is called instead, with the same arguments
    hf.stub(charge, fails=2)                        the first two attempts under each key fail, then it goes on
    hf.stub(charge, fails=Declined("no"))           every attempt fails with this
    hf.stub(charge, fails=Declined("no"), then=1)   the first attempt under each key does, the others return 1
    hf.stub(charge, loses_reply=True)               it happens, and the first reply under each key is lost
    hf.stub(charge, latency="50ms")                 it takes that long, of virtual time

They can be combined. Where nothing says what comes back, the effect's own function is called.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct

from holdfast.adapters.payloads import JsonCodec
from holdfast.errors import NotSerializable, TimedOut, UsageError
from holdfast.kernel.units import Duration, milliseconds
from holdfast.pack import Effect

CODEC = JsonCodec()


class StubFailure(ConnectionError):
    """What an effect raises that `fails=2` made fail."""


class ReplyLost(TimedOut):
    """The effect has happened, and its reply did not arrive: whether it happened is not known to the one who asked."""


class Stub(Struct, kw_only=True):
    """What one effect does in a simulation."""

    returns: Any = UNSET
    then: Any = UNSET
    fails: int | BaseException | None = None
    loses_reply: int = 0
    latency_seconds: float = 0.0
    calls: Callable[..., Any] | None = None
    _made: Counter[str] | None = None
    _lost: Counter[str] | None = None

    @property
    def replaces(self) -> bool:
        """Whether the effect's own function is never called."""
        return self.calls is not None or self.returns is not UNSET or self.then is not UNSET or self._always_fails

    @property
    def _always_fails(self) -> bool:
        return isinstance(self.fails, BaseException) and self.then is UNSET

    def failure(self, key: str) -> BaseException | None:
        """What the next attempt under this key raises, if it fails."""
        if self.fails is None:
            return None
        made = self._made = self._made or Counter()
        made[key] += 1
        if isinstance(self.fails, int):
            return StubFailure(f"failure {made[key]} of {self.fails}") if made[key] <= self.fails else None
        return self.fails.with_traceback(None) if self._always_fails or made[key] == 1 else None

    def loses(self, key: str) -> bool:
        """Whether the reply to the attempt that has just happened is lost."""
        lost = self._lost = self._lost or Counter()
        lost[key] += 1
        return lost[key] <= self.loses_reply

    async def value(self, effect: Effect[..., Any], arguments: Mapping[str, Any]) -> Any:
        """What comes back from the stand-in."""
        if self.calls is None:
            return self.then if self.returns is UNSET else self.returns
        made = effect.signature.apply(self.calls, arguments)
        return await made if inspect.isawaitable(made) else made


def stub_of(
    effect: object,
    *,
    returns: Any,
    then: Any,
    fails: int | BaseException | type[BaseException] | None,
    loses_reply: bool | int,
    latency: Duration | None,
    calls: Callable[..., Any] | None,
) -> Stub:
    """A stub for this effect. Raises `UsageError` if what is asked for contradicts itself."""
    if not isinstance(effect, Effect):
        raise UsageError(
            f"{effect!r:.60} is not an effect", hint="Pass what @pack.effect returned: hf.stub(charge, ...)."
        )
    if effect.remote:
        raise UsageError(
            f"effect {effect.name!r} is remote, and no worker here performs it",
            hint="Test it with a gateway and a remote worker, or declare it as a plain effect.",
        )
    if calls is not None and not callable(calls):
        raise UsageError(f"calls={calls!r:.60} cannot be called", hint="Pass a function with the effect's parameters.")
    if sum(each is not UNSET for each in (returns, then)) + (calls is not None) > 1:
        raise UsageError("a stub can return one thing", hint="Pass one of returns=, then= and calls=.")
    if then is not UNSET and fails is None:
        raise UsageError("then= says what comes after fails=", hint="Pass fails=, or returns= in place of then=.")
    if isinstance(fails, type) and issubclass(fails, BaseException):
        fails = fails()
    if fails is not None and not isinstance(fails, int | BaseException):
        raise UsageError(
            f"fails={fails!r:.60} is neither a number nor an error", hint="Write fails=2 or fails=Declined()."
        )
    for name, number in (("fails", fails), ("loses_reply", loses_reply)):
        if isinstance(number, int) and number < 0:
            raise UsageError(f"{name}={number} is less than nothing", hint="It says how many attempts under each key.")
    if isinstance(fails, BaseException) and returns is not UNSET:
        raise UsageError("an effect that always fails returns nothing", hint="Write then= in place of returns=.")
    return Stub(
        returns=returns,
        then=then,
        fails=fails,
        loses_reply=int(loses_reply),
        latency_seconds=0.0 if latency is None else milliseconds(latency) / 1000,
        calls=calls,
    )


def check_result(effect: Effect[..., Any], value: object) -> None:
    """Whether the effect could return this: it is written and read as the engine does. Raises `UsageError` if not."""
    if value is UNSET:
        return
    try:
        CODEC.decode(CODEC.encode(value, what=effect.result_name), effect.signature.returns)
    except NotSerializable as error:
        raise UsageError(
            f"effect {effect.name!r} cannot return {value!r:.60}: {error.message}",
            hint="Let the stub return what the effect is declared to return.",
        ) from error
