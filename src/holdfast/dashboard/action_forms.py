"""What may be done with a run, as its page offers it: each action with what will happen, before it does.

The buttons stand in one place and in one order, that of `next_actions`. One of them may be laid open, since it is what
the run waits for: the form that was refused, a decision, a signal. The first thing to do in a state is the primary one:

    state                            primary
    ───────────────────────────────  ─────────────────────────
    an outcome is not known          decide
    failed, blocked                  retry
    cancelled, and may be resumed    resume
    waits for a signal               signal
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.client import Run
from holdfast.dashboard.context import Visit
from holdfast.kernel import doubts, retry_requests
from holdfast.kernel.journal import Entry
from holdfast.kernel.waits import Wait
from holdfast.run import row_of
from holdfast.wire import samples

LABELS = {
    "decide": "Decide",
    "retry": "Retry",
    "retry_now": "Retry now",
    "resume": "Resume",
    "signal": "Signal",
    "cancel": "Cancel",
    "fork": "Fork",
    "release_key": "Release the key",
}
OPTIONS_MAX = 200  # so many steps are offered in a list; of more, one is typed


class Action(NamedTuple):
    """A button, and what stands in the panel that it opens."""

    name: str
    label: str
    will: str  # what will happen
    is_primary: bool
    is_open: bool


class Doubt(NamedTuple):
    """A step whose outcome is not known."""

    step: str
    effect: str
    key: str
    attempt: int
    schema: str  # of what the effect returns; empty if that is not known
    sample: str


class AwaitedHook(NamedTuple):
    """A hook that the run waits for, and what its payloads must look like."""

    name: str
    fields: tuple[tuple[str, str], ...]
    sample: str


def actions(run: Run[Any], names: Sequence[str], *, refused: str, waits_for_signal: bool) -> list[Action]:
    """The actions of a run, in the order of `names`."""
    in_doubt = "decide" in names
    wanted = refused or ("decide" if in_doubt else "signal" if waits_for_signal else "")
    primary = (
        "signal" if waits_for_signal else next((name for name in names if name in {"decide", "retry", "resume"}), "")
    )
    return [
        Action(name, LABELS[name], will(name, run, in_doubt=in_doubt), name == primary, name == wanted)
        for name in names
    ]


def will(name: str, run: Run[Any], *, in_doubt: bool) -> str:
    """What an action will do, in a sentence or two."""
    if name == "retry" and in_doubt:
        return (
            "The outcome is as unknown to a retry as before: it blocks again, unless the effect has been given a "
            "reconcile function since. If you know what happened, decide it instead."
        )
    texts: Mapping[str, str] = {
        "decide": (
            "What you say is recorded with your name, and the run goes on with it. It cannot be taken back: look it up "
            "at the other side first."
        ),
        "retry": (
            "The run goes on from its last record. Nothing that is recorded is done again; what "
            f"{'failed' if run.status == 'failed' else 'blocked it'} is tried again."
        ),
        "retry_now": (
            "The next attempt begins at once, instead of at the end of its pause. Attempts that were made still count. "
            "This is recorded with your name."
        ),
        "resume": "The run goes on as if it had not been cancelled.",
        "signal": "The payload is recorded and delivered to the run once, also if this form is sent twice.",
        "cancel": (
            "The run is stopped, and what can be undone is undone. A receipt says what is left; at the deadline it is "
            "stopped without further cleanup."
        ),
        "fork": "A new run begins with what this one did before that step, and goes on from there. This one stays.",
        "release_key": f"The next start under {run.key!r} is a new run. This is recorded.",
    }
    return texts[name]


def doubts_of(run: Run[Any], journal: Sequence[Entry], visit: Visit) -> list[Doubt]:
    """The steps that a person may decide."""
    found: list[Doubt] = []
    for step, entry in doubts.in_doubt(row_of(run), tuple(journal)).items():
        schema = visit.runtime.result_schema(entry.intent.name)
        text = "" if schema is None else msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
        sample = samples.form_value(schema)
        found.append(Doubt(step, entry.intent.name, entry.intent.key, entry.attempt, text, sample))
    return found


def retries_of(run: Run[Any], journal: Sequence[Entry], visit: Visit) -> list[str]:
    """The steps whose next attempt may begin at once."""
    return retry_requests.not_due(row_of(run), tuple(journal), now_ms=visit.now_ms)


async def awaited_hooks(run: Run[Any], waits: Sequence[Wait], visit: Visit) -> list[AwaitedHook]:
    """The hooks that a run waits for, with what the store knows about each."""
    names = dict.fromkeys(wait.name for wait in waits if wait.kind == "hook")
    found: list[AwaitedHook] = []
    for name in names:
        schema = await visit.runtime.hook_schema(run.id, name)
        found.append(AwaitedHook(name, samples.fields(schema), samples.form_value(schema)))
    return found
