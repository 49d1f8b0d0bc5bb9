"""What the packs of one Holdfast define, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.errors import UnknownWorkflow, UsageError
from holdfast.pack import Effect, EffectPolicy, Pack, Workflow


class Registry:
    """Workflows and effect policies of all packs."""

    def __init__(self, packs: Iterable[Pack]) -> None:
        self._workflows: dict[str, Workflow[..., Any]] = {}
        self._policies: dict[str, EffectPolicy] = {}
        names: set[str] = set()
        for pack in packs:
            if pack.name in names:
                raise UsageError(f"two packs are named {pack.name!r}", hint="Rename one, or pass it once.")
            names.add(pack.name)
            self._workflows.update(pack.workflows)
            self._policies.update({name: effect.policy for name, effect in pack.effects.items()} | pack.policies)
        for workflow in self._workflows.values():
            _ = (
                workflow.signature.arguments_type,
                workflow.signature.returns,
            )  # an annotation that cannot be resolved is said now

    @property
    def workflow_names(self) -> tuple[str, ...]:
        return tuple(self._workflows)

    def workflow(self, name: str) -> Workflow[..., Any]:
        """The workflow of this name; the pack's part may be left out where that is unambiguous."""
        found = self._workflows.get(name)
        if found is None:
            short = [workflow for full, workflow in self._workflows.items() if full.partition(".")[2] == name]
            if len(short) != 1:
                raise UnknownWorkflow(name, self.workflow_names)
            found = short[0]
        return found

    def known(self, workflow: Workflow[..., Any]) -> bool:
        return self._workflows.get(workflow.name) is workflow

    def policy_of(self, effect: Effect[..., Any]) -> EffectPolicy:
        """The policy in force: the operator's if there is one, else the author's."""
        return self._policies.get(effect.name, effect.policy)
