"""What the packs of one Holdfast define, by name, and which of it is executed here."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from holdfast.errors import UnknownWorkflow, UsageError
from holdfast.kernel.cancels import Outcome
from holdfast.kernel.effect_rules import check_alike
from holdfast.pack import Effect, EffectPolicy, Pack, Workflow
from holdfast.ports.codec import Codec


class Description(Struct, frozen=True):
    """What a workflow declares about itself. A schema is a JSON Schema; None if the types have none."""

    name: str
    doc: str
    key: str | None
    version: str | None
    queue: str
    retention: timedelta
    markers: Mapping[str, tuple[str, ...]]
    outcomes: tuple[Outcome, ...] | None
    input_schema: dict[str, Any] | None
    result_schema: dict[str, Any] | None
    lane: str | None = None
    rules: tuple[str, ...] = ()  # its flow rules, in words


class Registry:
    """Workflows and effect policies of all packs."""

    def __init__(
        self,
        packs: Iterable[Pack],
        *,
        codec: Codec,
        queues: Collection[str] | None = None,
        own: Collection[Pack] = (),
    ) -> None:
        """Says at once what could only go wrong later: types that cannot be resolved, or not be read back.

        The packs of the engine's `own` are executed whatever the queues are, and are not among what is described.
        """
        effects: list[Effect[..., Any]] = []
        self._workflows: dict[str, Workflow[..., Any]] = {}
        self._policies: dict[str, EffectPolicy] = {}
        names: set[str] = set()
        reserved = {pack.name for pack in own}
        for pack in packs:
            if pack.name in reserved:
                raise UsageError(f"the pack name {pack.name!r} belongs to the engine", hint="Choose another one.")
            if pack.name in names:
                raise UsageError(f"two packs are named {pack.name!r}", hint="Rename one, or pass it once.")
            names.add(pack.name)
            self._workflows.update(pack.workflows)
            self._policies.update({name: effect.policy for name, effect in pack.effects.items()} | pack.policies)
            effects.extend(pack.effects.values())
        check_alike((each.name, each.rules) for each in effects if each.rules is not None)
        for each in self._workflows.values():
            codec.check(each.signature.arguments_type, what=each.input_name)
            each.signature.check_types(arguments=True)
            each.check_batch()
        for each in (*self._workflows.values(), *effects):
            codec.check(each.signature.returns, what=each.result_name)
            each.signature.check_types(arguments=False)
            if each.key is not None:
                each.signature.check_key(each.key)
        for each in self._workflows.values():
            if each.lane.template is not None:
                each.signature.check_key(each.lane.template)

        self._codec = codec
        self._effects = {each.name: each for each in effects}
        self._described: dict[str, Description] = {}
        self.workflow_names = tuple(self._workflows)
        served = [name for name, each in self._workflows.items() if queues is None or each.queue in queues]
        for pack in own:  # they are known to be right
            self._workflows.update(pack.workflows)
            self._effects.update(pack.effects)
            self._policies.update({name: effect.policy for name, effect in pack.effects.items()})
            served += pack.workflows
        self.served = tuple(served)

    def workflow(self, name: str) -> Workflow[..., Any]:
        """The workflow of this name; the pack's part may be left out where that is unambiguous."""
        return self._workflows.get(name) or self._workflows[self._full_name(name)]

    def _full_name(self, name: str) -> str:
        short = [full for full in self.workflow_names if full.partition(".")[2] == name]
        if len(short) != 1:
            raise UnknownWorkflow(name, self.workflow_names)
        return short[0]

    def served_workflows(self) -> list[Workflow[..., Any]]:
        """The workflows that are executed here."""
        return [self._workflows[name] for name in self.served]

    def descriptions(self) -> tuple[Description, ...]:
        """What the workflows declare about themselves."""
        return tuple(self._description(self._workflows[name]) for name in self.workflow_names)

    def description(self, name: str) -> Description:
        """What the workflow of this name declares about itself."""
        return self._description(self.workflow(name))

    def _description(self, workflow: Workflow[..., Any]) -> Description:
        if workflow.name not in self._described:  # schemas take their time, and nothing about a workflow changes
            self._described[workflow.name] = self._made(workflow)
        return self._described[workflow.name]

    def _made(self, workflow: Workflow[..., Any]) -> Description:
        return Description(
            name=workflow.name,
            doc=inspect.cleandoc(workflow.__doc__ or ""),
            key=None if workflow.key is None else workflow.key.text,
            lane=None if workflow.lane.template is None else workflow.lane.template.text,
            version=workflow.version,
            queue=workflow.queue,
            retention=timedelta(milliseconds=workflow.retention_ms),
            markers=workflow.markers,
            outcomes=workflow.outcomes,
            input_schema=self._codec.schema(workflow.signature.arguments_type),
            result_schema=self._codec.schema(workflow.signature.returns),
            rules=workflow.flow.texts,
        )

    def require(self, workflow: Workflow[..., Any]) -> None:
        """Raises `UnknownWorkflow` if it is not one of the packs of this Holdfast."""
        if self._workflows.get(workflow.name) is not workflow:
            raise UnknownWorkflow(workflow.name, self.workflow_names)

    def returns_of_effect(self, name: str) -> Any:
        """The declared type of an effect's result; anything if the effect is not defined here."""
        effect = self._effects.get(name)
        return Any if effect is None else effect.signature.returns

    def result_schema_of_effect(self, name: str) -> dict[str, Any] | None:
        """The JSON Schema of an effect's result; None if the effect is not defined here, or anything goes."""
        effect = self._effects.get(name)
        return None if effect is None else self._codec.schema(effect.signature.returns)

    def policy_of(self, effect: Effect[..., Any]) -> EffectPolicy:
        """The policy in force: the operator's if there is one, else the author's."""
        return self._policies.get(effect.name, effect.policy)
