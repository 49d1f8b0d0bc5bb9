"""For authors of effects: what the body of an effect may ask.

    effect_key()    the key of this effect: the same in every attempt, process and rollout
    attempt()       1 for the first attempt; counts recorded failures, never crashes
    heartbeat(d)    record how far a long effect has come; the next attempt reads it back
    await limit(n, r)   whether as much may go now: a limit of your own, counted for all processes
    cancel_requested()  whether the outcome is no longer wanted; a sync effect cannot be interrupted, but may look

They work in async effects and in sync ones, which run in a thread; but `limit` is awaited, so in async ones. Asked
anywhere else they raise `UsageError`.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final, Protocol

from holdfast.errors import UsageError
from holdfast.kernel.limits import LimitVerdict
from holdfast.kernel.rates import Rate

__all__ = [
    "attempt",
    "cancel_requested",
    "effect_key",
    "heartbeat",
    "limit",
]


class EffectScope(Protocol):
    """What the engine tells one attempt of an effect about itself."""

    @property
    def key(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def dropped(self) -> bool:
        """Whether the run does not wait for the outcome any more."""
        ...

    def last_beat(self) -> Any:
        """What was recorded last, by this attempt or an earlier one."""
        ...

    def beat(self, details: Any) -> None: ...
    async def limit(self, name: str, rate: Rate, cost: int) -> LimitVerdict: ...


RUNNING_EFFECT: ContextVar[EffectScope | None] = ContextVar("holdfast_effect", default=None)
_NOTHING: Final = object()


def effect_key() -> str:
    """The key under which the world may recognise this effect: pass it on as an idempotency key."""
    return _scope("effect_key").key


def attempt() -> int:
    """The number of this attempt, from 1. A crash or a lost lease does not use one up."""
    return _scope("attempt").attempt


def cancel_requested() -> bool:
    """Whether the run was cancelled, or no longer waits for this effect. Its result is recorded all the same."""
    return _scope("cancel_requested").dropped


def heartbeat(details: Any = _NOTHING) -> Any:
    """Record `details` durably and return what was recorded before, by this attempt or an earlier one.

    Without an argument it records nothing. It never waits: the newest details are written by the next commit.
    """
    scope = _scope("heartbeat")
    before = scope.last_beat()
    if details is not _NOTHING:
        scope.beat(details)
    return before


async def limit(name: str, rate: Rate, *, cost: int = 1) -> LimitVerdict:
    """Take `cost` of what may happen under this name, if all of it may go now; see `Holdfast.limit`.

    An effect that may not go yet raises `RetryAfter(verdict.retry_after)`: it is tried again when as much may.
    """
    return await _scope("limit").limit(name, rate, cost)


def _scope(asked: str) -> EffectScope:
    scope = RUNNING_EFFECT.get()
    if scope is None:
        raise UsageError(
            f"{asked}() was called outside an effect", hint="Call it in a function decorated with @pack.effect."
        )
    return scope
