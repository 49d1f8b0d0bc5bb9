"""Signals to a run that waits for a hook: what its proof declares; else, a few times, a sample of the hook's type."""

from __future__ import annotations

from typing import Any

from holdfast.prove.samples import CODEC
from holdfast.testing.proofs import FakeWorld
from holdfast.wire.samples import sample

SIGNALS_MAX = 2  # to one hook of one run, where a proof declares none


def has_more(fake: FakeWorld, hook: str, *, sent: int) -> bool:
    """Whether a run that was sent so many gets another one."""
    declared = fake.payloads.get(hook)
    return sent < (SIGNALS_MAX if declared is None else len(declared))


def payload_of(fake: FakeWorld, hook: str, *, sent: int, schema: bytes | None) -> Any:
    """What it gets next, if the hook was opened with this schema."""
    declared = fake.payloads.get(hook)
    if declared is not None:
        return declared[sent]
    return None if schema is None else sample(CODEC.decode(schema, dict[str, Any]))
