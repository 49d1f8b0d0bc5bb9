"""What effects did in a simulation, as the world outside of the engine saw it: attempt by attempt.

It knows what happened whether or not a worker lived to record it. That is what a test of exactly-once is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.pack import Effect

AttemptEnd = Literal["under way", "returned", "raised", "interrupted", "lost"]


class LedgerCall(Struct, eq=False):
    """One attempt of an effect.

    `happened` says whether the world has changed: its function, or its stub, came to its end. `outcome` is what the
    worker learned of it: "lost" means nothing, because the reply was lost or the worker killed.
    """

    effect: str
    run: str
    step: str
    key: str
    attempt: int
    arguments: dict[str, Any]
    worker: str
    at: datetime
    outcome: AttemptEnd = "under way"
    happened: bool = False
    result: Any = None
    error: BaseException | None = None


class EffectLedger:
    """Every attempt of every effect, in order."""

    def __init__(self) -> None:
        self._calls: list[LedgerCall] = []

    def write(self, call: LedgerCall) -> None:
        """Note an attempt that begins."""
        self._calls.append(call)

    def __iter__(self) -> Iterator[LedgerCall]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def calls(
        self,
        effect: Effect[..., Any] | str | None = None,
        *,
        run: str | None = None,
        key: str | None = None,
        **arguments: Any,
    ) -> list[LedgerCall]:
        """The attempts of an effect so far, of this run or under this key, with these arguments: failed ones, too."""
        name = effect.name if isinstance(effect, Effect) else effect
        self._check_arguments(effect, name, arguments)
        return [
            call
            for call in self._calls
            if name in {None, call.effect, call.effect.partition(".")[2]}
            and run in {None, call.run}
            and key in {None, call.key}
            and all(name in call.arguments and call.arguments[name] == value for name, value in arguments.items())
        ]

    def count(
        self,
        effect: Effect[..., Any] | str | None = None,
        *,
        run: str | None = None,
        key: str | None = None,
        **arguments: Any,
    ) -> int:
        """How often it happened: attempts that changed the world, whether or not they were recorded."""
        return sum(call.happened for call in self.calls(effect, run=run, key=key, **arguments))

    def _check_arguments(
        self, effect: Effect[..., Any] | str | None, name: str | None, asked: Mapping[str, Any]
    ) -> None:
        """A misspelt argument fits no call: a test that counts none would be green for nothing."""
        if isinstance(effect, Effect):
            known = set(effect.signature.names)
        else:
            calls = [call for call in self._calls if name in {None, call.effect, call.effect.partition(".")[2]}]
            known = {each for call in calls for each in call.arguments} if calls else set(asked)
        if unknown := sorted(asked.keys() - known):
            raise UsageError(
                f"effect {name!r} has no argument {unknown[0]!r}" if name else f"no argument {unknown[0]!r} is known",
                hint=f"It has {', '.join(sorted(known)) or 'none'}.",
            )

    def __repr__(self) -> str:
        lines = (f"{call.effect} {call.key!r} attempt {call.attempt}: {call.outcome}" for call in self._calls)
        return f"<EffectLedger: {'; '.join(lines) or 'empty'}>"
