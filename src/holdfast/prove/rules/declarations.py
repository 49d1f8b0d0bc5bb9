"""What the packs of a case declare, as rules look it up: effects by name, and workflows."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engine.api.registry import Registry
from holdfast.pack import Pack, Workflow
from holdfast.prove.samples import CODEC


class Declarations:
    """The effects and workflows of some packs."""

    def __init__(self, packs: Iterable[Pack]) -> None:
        packs = self._packs = tuple(packs)
        self.effects = {name: effect for pack in packs for name, effect in pack.effects.items()}
        self.registry = Registry(packs, codec=CODEC)

    @property
    def packages(self) -> set[str]:
        """The first names of the modules that the packs are written in."""
        written = (*self.effects.values(), *(each for pack in self._packs for each in pack.workflows.values()))
        return {each.fn.__module__.partition(".")[0] for each in written}

    def workflow(self, name: str) -> Workflow[..., object]:
        return self.registry.workflow(name)

    def safety(self, effect: str) -> str:
        """How the effect of this name is to be repeated."""
        return self.effects[effect].policy.safety
