"""An attempt of an effect, as all see it who take part in it: who performs it, here or elsewhere, and who traces it.

Rooms that perform attempts (`runs`, `remote`) meet here, so neither has to know the other's classes.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Struct

from holdfast.effects import EffectScope
from holdfast.engine.failures import tame
from holdfast.kernel.documents import Document
from holdfast.kernel.retries import Begin, GiveUp
from holdfast.pack import EffectPolicy


class StepWork(Protocol):
    """What is done for one step of a run, and whether the engine has dropped it.

    If it has, and only then, a cancellation is the engine's.
    """

    @property
    def run_id(self) -> str: ...
    @property
    def step(self) -> str: ...
    @property
    def effect(self) -> str: ...

    dropped: bool
    abandoned: bool

    def may_enter(self) -> Begin | GiveUp | None:
        """Asked where it is entered, in any thread; None if it may not now, but perhaps later."""
        ...


class EffectAttempt(StepWork, EffectScope, Protocol):
    """An attempt of an effect, which its body sees as its scope."""

    dropped: bool  # pyright: ignore[reportIncompatibleMethodOverride] - the effect may only look
    task: Document | None
    policy: EffectPolicy


class LeaseTrust(Protocol):
    """Says whether the lease is good enough to touch the world."""

    def is_trusted(self) -> bool: ...
    async def until_trusted(self) -> None: ...


class AttemptReturned(Struct, frozen=True, gc=False):
    """It returned: the value as it is stored, and as it is read back if it was."""

    value: bytes
    read_back: Any = UNSET


class AttemptRaised(Struct, frozen=True):
    error: BaseException

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "error", tame(self.error))


AttemptOutcome = AttemptReturned | AttemptRaised


class AttemptRefused(Struct, frozen=True):
    """It was not entered, and is no attempt: its deadline is over, or the lease could not be relied on."""
