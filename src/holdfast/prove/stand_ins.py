"""Puts stand-ins in the place of the effects of some packs, for as long as worlds are lived.

A workflow names its effects as globals of its module, so it is the effect itself that is changed, and changed back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec.structs import replace

from holdfast.pack import Effect, Pack


class Performs(Protocol):
    """A world in which effects are performed."""

    async def stand_in(self, effect: Effect[..., Any], arguments: dict[str, Any]) -> Any: ...
    async def perform(self, effect: Effect[..., Any], arguments: dict[str, Any], fn: Callable[[], Any]) -> Any: ...
    def perform_sync(self, effect: Effect[..., Any], arguments: dict[str, Any], fn: Callable[[], Any]) -> Any: ...
    def reconcile(self, effect: Effect[..., Any], key: str) -> Any: ...


@contextmanager
def standing_in(packs: Iterable[Pack], real: Collection[str], world: Callable[[], Performs]) -> Generator[None]:
    """Until the end of the block, the effects of these packs are performed by the world that `world` returns."""
    before: list[tuple[Any, dict[str, Any]]] = []
    for pack in packs:
        before.append((pack, {"policies": pack.policies}))
        pack.policies = {
            name: policy if policy.reconcile is None else replace(policy, reconcile=_asked(pack.effects[name], world))
            for name, policy in {**{name: each.policy for name, each in pack.effects.items()}, **pack.policies}.items()
        }
        for effect in pack.effects.values():
            changed = _real(effect, world) if effect.name in real else _stubbed(effect, world)
            before.append((effect, {name: getattr(effect, name) for name in changed}))
            before.append((effect.signature, {"resources": effect.signature.resources}))
            if effect.name not in real:
                effect.signature.resources = {}
            for name, value in changed.items():
                setattr(effect, name, value)
    try:
        yield
    finally:
        for changed_thing, attributes in reversed(before):
            for name, value in attributes.items():
                setattr(changed_thing, name, value)


def _stubbed(effect: Effect[..., Any], world: Callable[[], Performs]) -> dict[str, Any]:
    async def stand_in(*args: Any, **kwargs: Any) -> Any:
        return await world().stand_in(effect, effect.signature.bind(args, kwargs))

    return {"fn": stand_in, "is_async": True, "remote": False, "runs_here": True, "is_plain": True}


def _real(effect: Effect[..., Any], world: Callable[[], Performs]) -> dict[str, Any]:
    fn, own = effect.fn, effect.signature.names

    def named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return effect.signature.bind(args, {name: value for name, value in kwargs.items() if name in own})

    if not effect.is_async:

        def perform_sync(*args: Any, **kwargs: Any) -> Any:
            return world().perform_sync(effect, named(args, kwargs), lambda: fn(*args, **kwargs))

        return {"fn": perform_sync}

    async def perform(*args: Any, **kwargs: Any) -> Any:
        return await world().perform(effect, named(args, kwargs), lambda: fn(*args, **kwargs))

    return {"fn": perform}


def _asked(effect: Effect[..., Any], world: Callable[[], Performs]) -> Callable[[str], Any]:
    async def reconcile(key: str) -> Any:
        return world().reconcile(effect, key)

    return reconcile
