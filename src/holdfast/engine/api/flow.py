"""Breakers and limits, for operators: what there is, and opening or closing a breaker by hand.

A breaker or a limit is known from the first time that an effect of it wants to begin.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engine.api.scope import Scope
from holdfast.errors import UnknownBreaker, UsageError
from holdfast.kernel import breakers, effect_limits
from holdfast.kernel.breakers import BreakerStatus, ClosedByHand, OpenedByHand, kept_in
from holdfast.kernel.documents import Document
from holdfast.kernel.effect_limits import LimitStatus, slots_in
from holdfast.kernel.units import Duration, milliseconds

PAGE = 100
WHO_MAX = 600


class EffectRuleVerbs:
    """The breakers and the limits of one namespace."""

    def __init__(self, scope: Scope, *, on_changed: Callable[[], None]) -> None:
        self._scope = scope
        self._on_changed = on_changed  # for this process: notices tell others alone

    async def breakers(self) -> list[BreakerStatus]:
        """All of them, by name."""
        return [breakers.status(each.id, kept_in(each)) for each in await self._listed(breakers.KIND)]

    async def breaker(self, name: str) -> BreakerStatus:
        """One of them."""
        self._scope.require_open()
        return breakers.status(name, kept_in(await self._found(name)))

    async def open_breaker(self, name: str, by: str, lasts: Duration | None) -> BreakerStatus:
        """Open it, for a time or until it is closed by hand."""
        return await self._turn(name, OpenedByHand(_checked(by), None if lasts is None else milliseconds(lasts)))

    async def close_breaker(self, name: str, by: str) -> BreakerStatus:
        """Close it, whatever it has seen."""
        return await self._turn(name, ClosedByHand(_checked(by)))

    async def limits(self) -> list[LimitStatus]:
        """The limits at effects, by name."""
        return [effect_limits.status(each.id, slots_in(each)) for each in await self._listed(effect_limits.KIND)]

    async def _turn(self, name: str, event: OpenedByHand | ClosedByHand) -> BreakerStatus:
        self._scope.require_open()
        store, namespace = self._scope.store, self._scope.namespace
        while True:
            found, now_ms = await self._found(name), store.now_ms()
            kept = breakers.decide(None, kept_in(found), event, now_ms=now_ms)
            assert kept is not None
            [stored] = await store.write([breakers.writing(namespace, name, found, kept, now_ms=now_ms)])
            if stored:
                self._on_changed()
                return breakers.status(name, kept)

    async def _found(self, name: str) -> Document:
        found = await self._scope.store.document(self._scope.namespace, breakers.KIND, name)
        if found is None:
            raise UnknownBreaker(name)
        return found

    async def _listed(self, kind: str) -> list[Document]:
        self._scope.require_open()
        found: list[Document] = []
        while True:
            after = found[-1].id if found else ""
            page = await self._scope.store.documents(self._scope.namespace, kind, after=after, limit=PAGE)
            found += page
            if len(page) < PAGE:
                return found


def _checked(by: str) -> str:
    if len(by) > WHO_MAX:
        raise UsageError(f"a name of {len(by)} characters is too long", hint=f"Use {WHO_MAX} at most.")
    return by
