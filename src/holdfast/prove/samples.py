"""Values to begin with where a proof declares none: inputs of workflows and results of effects, by their types."""

from __future__ import annotations

from typing import Any

from holdfast.adapters.payloads import JsonCodec
from holdfast.calls import Call
from holdfast.errors import HoldfastError
from holdfast.pack import Effect, Workflow
from holdfast.wire.samples import sample

CODEC = JsonCodec()


def result_of(effect: Effect[..., Any]) -> Any:
    """A result that the effect could have; None if its type does not say."""
    returns = effect.signature.returns
    schema = CODEC.schema(returns)
    if schema is None:
        return None
    try:
        return CODEC.decode(CODEC.encode(sample(schema), what="a sample"), returns)
    except HoldfastError:
        return None


def call_of(workflow: Workflow[..., Any]) -> Call[Any] | str:
    """A call with an input that fits; or why none could be made."""
    schema = CODEC.schema(workflow.signature.arguments_type)
    if schema is None:
        return "its parameters have no schema"
    try:
        data = CODEC.encode(sample(schema), what="a sample")
        return Call(workflow, workflow.signature.named(CODEC.decode(data, workflow.signature.arguments_type)))
    except HoldfastError as error:
        return f"no sample fits its parameters: {error.message}"
