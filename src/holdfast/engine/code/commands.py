"""A step that the code of a run waits for, and how that code can end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import UNSET, Struct

from holdfast.calls import Call
from holdfast.kernel.changes import HookOpen
from holdfast.kernel.journal import Intent
from holdfast.kernel.steps import Step
from holdfast.kernel.times import EPOCH, Instant
from holdfast.kernel.waits import Wait
from holdfast.pack import Effect, EffectPolicy


class Policies(Protocol):
    """Knows the policy in force for each effect: the operator's if there is one, else the author's."""

    def policy_of(self, effect: Effect[..., Any]) -> EffectPolicy: ...


class Command(Struct):
    """A step that the code waits for, and how far it has come."""

    step: str
    intent: Intent  # of kind effect, undo, child, spawn, join, hook or stop
    asked_at_ms: Instant
    future: asyncio.Future[Any]
    returns: Any
    call: Call[Any] | None = None  # of an effect or a child
    effect: Effect[..., Any] | None = None  # to be performed, or to undo another
    arguments: bytes = b""
    key: str | None = None  # of a child
    detached: bool = False
    lane: str | None = None  # of a child, if not as its workflow says
    width: int | None = None
    child_id: str = ""  # of a child once admitted; of a join; of a child to be stopped
    hook: HookOpen | None = None
    deadline_at_ms: Instant = EPOCH  # of a child to be stopped
    failures: int = 0
    last_error: str = ""  # why the last attempt failed, in words
    retry_at_ms: Instant | None = None
    held: Wait | None = None  # what stands before it: it is to be begun at `retry_at_ms`, which is no retry then
    intended: bool = False  # a `once` effect: the intent to call it is recorded
    may_call: bool = False  # and this process has recorded it, or knows that the effect never happened
    reconciles: bool = False  # what is to be done next is to ask the world about it
    policy: EffectPolicy | None = None  # of an effect, known once it is to be begun
    returned: Any = UNSET  # what the effect has returned here, as it is read back from its record

    @property
    def is_in_doubt(self) -> bool:
        """Whether a process that has died since may have called it."""
        return self.intended and not self.may_call

    @property
    def is_remote(self) -> bool:
        """Whether it is an effect that remote workers perform."""
        return self.effect is not None and self.effect.remote

    @property
    def touches_the_world(self) -> bool:
        return self.effect is not None

    @property
    def admits_a_run(self) -> bool:
        return self.intent.kind in {"child", "spawn"}

    @property
    def awaits_a_run(self) -> bool:
        """Whether another run's end is what it waits for."""
        return bool(self.child_id)

    @property
    def awaits_a_child(self) -> bool:
        """Whether it is an awaited child that has been admitted."""
        return self.intent.kind == "child" and bool(self.child_id)

    def is_under_way(self, now_ms: Callable[[], Instant]) -> bool:
        """Whether nothing needs to be begun: its child exists, or its retry is not yet due."""
        if self.child_id and self.awaits_a_child:
            return True
        return self.retry_at_ms is not None and self.retry_at_ms > now_ms()

    def as_step(
        self,
        *,
        waited: bool,
        begun: bool = False,
        under_way: bool = False,
        in_doubt: bool = False,
        told_at_ms: Instant = EPOCH,
        took_ms: float | None = None,
    ) -> Step:
        """What is known of the step, for the kernel to decide."""
        return Step(
            self.step,
            self.intent,
            self.asked_at_ms,
            self.failures,
            waited,
            self.intended,
            self.may_call,
            self.is_remote,
            self.detached,
            begun,
            under_way,
            in_doubt,
            told_at_ms,
            took_ms,
        )

    def policy_on(self, host: Policies) -> EffectPolicy:
        """The policy of an effect, as it is in force on this worker."""
        if self.policy is None:
            assert self.effect is not None
            self.policy = host.policy_of(self.effect)
        return self.policy


class CodeReturned(Struct, frozen=True):
    value: Any


class CodeRaised(Struct, frozen=True):
    error: BaseException


class CodeCancelled(Struct, frozen=True):
    pass


class CodeContinued(Struct, frozen=True):
    """It wants to begin again with this call's arguments."""

    call: Call[Any]


CodeOutcome = CodeReturned | CodeRaised | CodeCancelled | CodeContinued
