"""Cases: what there is to prove of some modules. What they declare, and a sample of each workflow that they do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from msgspec import Struct

from holdfast.calls import Call
from holdfast.errors import HoldfastError, UsageError
from holdfast.pack import Pack
from holdfast.prove.samples import CODEC, call_of
from holdfast.testing.proofs import DELIVERIES, Delivery, FakeWorld, WorkflowProof
from holdfast.testing.simulation.network import Observer, StoreModel
from holdfast.testing.simulation.world import World

StoreMaker = Callable[[World, Observer], StoreModel]


class Case(Struct, frozen=True, kw_only=True):
    """What is proved: a call, the packs that it needs, and the world around it."""

    name: str
    call: Call[Any]
    packs: tuple[Pack, ...]
    arrange: Callable[[FakeWorld], None]
    deliver: tuple[Delivery, ...] = DELIVERIES
    fails: type[BaseException] | None = None  # what the clean run is to fail with
    make_store: StoreMaker | None = None  # of every world; a test may hand in one with a mistake

    def fake_world(self) -> FakeWorld:
        """What surrounds the workflow in one world."""
        world = FakeWorld()
        self.arrange(world)
        return world


class Unproved(Struct, frozen=True):
    """A workflow for which no input could be made."""

    workflow: str
    problem: str


def packs_of(modules: Iterable[ModuleType]) -> tuple[Pack, ...]:
    """The packs of these modules, and of those whose workflows they declare proofs for."""
    packs: list[Pack] = []
    for module in modules:
        of_proofs = [sys.modules[proof.workflow.fn.__module__] for proof in proofs_of([module])]
        for home in (module, *of_proofs):
            packs += [value for value in vars(home).values() if isinstance(value, Pack) and value not in packs]
    return tuple(packs)


def proofs_of(modules: Iterable[ModuleType]) -> list[WorkflowProof]:
    """The proofs that these modules declare, each once."""
    found = [value for module in modules for value in vars(module).values() if isinstance(value, WorkflowProof)]
    return list({id(proof): proof for proof in found}.values())


def find(
    modules: Sequence[ModuleType], packs: Sequence[Pack], *, only: str | None = None, store: StoreMaker | None = None
) -> list[Case | Unproved]:
    """Every case, in the order of the packs."""
    proofs, found = proofs_of(modules), list[Case | Unproved]()
    workflows = {name: each for pack in packs for name, each in pack.workflows.items()}
    if only is not None:
        workflows = {name: each for name, each in workflows.items() if only in {name, name.partition(".")[2]}}
        if not workflows:
            raise UsageError(f"there is no workflow {only!r} to prove", hint="`holdfast workflows` lists them.")
    for name, workflow in workflows.items():
        declared = [proof for proof in proofs if proof.workflow is workflow]
        for proof in declared:
            is_only = sum(other.name == proof.name for other in declared) == 1
            known_as = proof.name if is_only else f"{proof.module}.{proof.name}"
            calls = [_call(proof, arguments) for arguments in proof.runs] or [call_of(workflow)]
            for number, call in enumerate(calls, 1):
                label = f"{name} ({known_as}{f', run {number}' if len(calls) > 1 else ''})"
                found.append(_case(label, call, packs, proof, store))
        if not declared:
            found.append(_case(name, call_of(workflow), packs, None, store))
    return found


def _call(proof: WorkflowProof, arguments: tuple[Any, ...]) -> Call[Any]:
    """One run that a proof declares. Raises `UsageError`, which names the proof, if it does not fit."""
    try:
        call: Any = proof.workflow(*arguments)
        call.is_taken = True  # it is only looked at
        CODEC.encode(call.arguments, what=proof.workflow.input_name)
    except (HoldfastError, TypeError) as error:
        words = error.message if isinstance(error, HoldfastError) else str(error)
        hint = error.hint if isinstance(error, HoldfastError) else ""
        raise UsageError(
            f"the run {arguments!r:.60} of the proof {proof.name} ({proof.place}): {words}", hint=hint
        ) from error
    return call


def _case(
    name: str, call: object, packs: Sequence[Pack], proof: WorkflowProof | None, store: StoreMaker | None
) -> Case | Unproved:
    if not isinstance(call, Call):
        return Unproved(name.partition(" ")[0], str(call))
    call.is_taken = True  # it is only looked at: each world makes one of its own
    return Case(
        name=name,
        call=call,  # pyright: ignore[reportUnknownArgumentType]
        packs=tuple(packs),
        arrange=_nothing if proof is None else proof,
        deliver=DELIVERIES if proof is None else proof.deliver,
        fails=None if proof is None else proof.fails,
        make_store=store,
    )


def _nothing(world: FakeWorld) -> None:
    """What a workflow without a declaration has around it: stubs alone."""
