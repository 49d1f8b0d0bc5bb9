"""What a run waits for, as its page shows it: a sentence, and what is known of an effect that runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from msgspec import UNSET

from holdfast.kernel.running_effects import RunningEffect
from holdfast.kernel.units import utc_of
from holdfast.kernel.waits import Wait

TEXT_MAX = 300


class Fact(NamedTuple):
    label: str
    text: str
    at: datetime | None = None


class ShownWait(NamedTuple):
    kind: str
    text: str
    until: datetime | None
    facts: tuple[Fact, ...] = ()
    until_is: str = ""  # what happens then, where the text does not say it
    run_id: str = ""  # of a child, to be linked behind the text
    run_name: str = ""  # its key, if that is known
    step: str = ""


def shown(waits: Iterable[Wait], keys: Mapping[str, str | None] | None = None) -> tuple[ShownWait, ...]:
    """`keys` are those of the children that are known, by run id."""
    return tuple(_shown(wait, keys or {}) for wait in waits)


def _shown(wait: Wait, keys: Mapping[str, str | None]) -> ShownWait:
    if wait.kind == "child":
        name = keys.get(wait.name) or wait.name
        return ShownWait(wait.kind, "child run", wait.until, run_id=wait.name, run_name=name, step=wait.step)
    if wait.effect is None:
        return ShownWait(wait.kind, str(wait), wait.until)
    facts = tuple(_facts(wait.effect, wait.instance))
    return ShownWait(wait.kind, f"effect {wait.step}", wait.until, facts, until_is="times out")


def _facts(effect: RunningEffect, instance: str) -> Iterator[Fact]:
    yield Fact("effect", effect.name)
    yield Fact("attempt", str(effect.attempt))
    yield Fact("began", "", effect.since)
    where = ", by remote workers" if effect.remote else ", until its lease expired" if effect.lost else ""
    yield Fact("on instance", f"{instance}{where}")
    if effect.heartbeat_json is not UNSET:
        text = bytes(effect.heartbeat_json).decode(errors="replace")
        yield Fact("last heartbeat", text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} …")
        if effect.heartbeat_at_ms is not None:
            yield Fact("heard", "", utc_of(effect.heartbeat_at_ms))
