"""The steps of a run as a tree: what was done in which attempt, what it waits for, and its children as branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, Struct
from rich.text import Text
from rich.tree import Tree

from holdfast.cli import render
from holdfast.cli.output import plain
from holdfast.client import Caller, Run
from holdfast.errors import UnknownRun
from holdfast.kernel.cancels import UNDO
from holdfast.kernel.explanations import worded
from holdfast.kernel.journal import (
    Attempted,
    Blocked,
    EffectEntry,
    Entry,
    GaveUp,
    Intended,
    Joined,
    Performed,
    Spawned,
    Value,
)
from holdfast.kernel.times import Instant
from holdfast.wire.times import duration

DEPTH_MAX = 5
ROWS_MAX = 40
INPUT_CHARACTERS = 2_000
StepEntry = Intended | Attempted | Performed | GaveUp | Spawned | Joined


class StepEntries(Struct):
    """One step, and the entries that tell of it, in order."""

    name: str
    entries: list[StepEntry]

    @property
    def last(self) -> StepEntry:
        return self.entries[-1]

    @property
    def is_done(self) -> bool:
        """Whether it has come to a good end."""
        match self.last:
            case Performed() | Joined(error=None) | Spawned(detached=True):  # a detached child is not waited for
                return True
            case _:
                return False

    @property
    def failures(self) -> list[Attempted | GaveUp]:
        failed = [entry for entry in self.entries if isinstance(entry, Attempted | GaveUp)]
        return [entry for entry in failed if entry.by_hand is None or not entry.by_hand.retry_now]

    @property
    def input(self) -> Value | None:
        """The arguments of the effect, if they are recorded."""
        recorded = (entry.input for entry in self.entries if isinstance(entry, EffectEntry))
        return next((value for value in recorded if value is not None), None)

    @property
    def child(self) -> str | None:
        """The id of the run that this step started."""
        return next((entry.run_id for entry in self.entries if isinstance(entry, Spawned | Joined)), None)


def steps_of(journal: Sequence[Entry]) -> list[StepEntries | Entry]:
    """What happened, in order; entries of one step come together, where the last of them was."""
    told: dict[str | int, StepEntries | Entry] = {}
    for position, entry in enumerate(journal):
        if not isinstance(entry, StepEntry):
            told[position] = entry
            continue
        step = told.pop(entry.step, None)
        if isinstance(step, StepEntries):
            step.entries.append(entry)
        told[entry.step] = step or StepEntries(entry.step, [entry])
    return list(told.values())


class Alike(NamedTuple):
    """Rows that need no line each, and what is said of them together."""

    words: str
    rows: Sequence[StepEntries | Entry]


def grouped(told: Sequence[StepEntries | Entry]) -> list[StepEntries | Entry | Alike]:
    """Fewer rows: those that have failed or are not done come first and whole, the others by their name."""
    whole = [each for each in told if isinstance(each, StepEntries) and not each.is_done]
    alike: dict[str, list[StepEntries | Entry]] = {}
    for each in told:
        if isinstance(each, StepEntries) and not each.is_done:
            continue
        name = f"✓ {each.name.rpartition('#')[0] or each.name}" if isinstance(each, StepEntries) else each.what
        rows = alike.pop(name, [])
        alike[name] = rows  # its place is that of the last of them
        rows.append(each)
    rest = whole[ROWS_MAX:]
    return [
        *whole[:ROWS_MAX],
        *([Alike(f"{len(rest):,} more that have failed or are not done", rest)] if rest else ()),
        *(rows[0] if len(rows) == 1 else Alike(f"{name}, {len(rows):,} times", rows) for name, rows in alike.items()),
    ]


async def tree_of(
    caller: Caller, run: Run[Any], *, depth: int = 0, inputs: bool = False, every_row: bool = False
) -> Tree:
    """The tree of a run; branches end where they are too deep, or where a child is no longer kept.

    With `inputs` each effect has its arguments below it, where they are recorded. A tree of many rows is grouped,
    unless `every_row` is wanted.
    """
    tree = Tree(Text.assemble(plain(run.workflow), " ", render.status(run.status)) if depth == 0 else _child(run))
    journal = await run.journal()
    began_at_ms = journal[0].at_ms
    told = steps_of(journal)
    is_grouped = len(told) > ROWS_MAX and not every_row
    for each in grouped(told) if is_grouped else told:
        if isinstance(each, Alike):
            tree.add(_many(each, began_at_ms))
        elif isinstance(each, StepEntries):
            branch = tree.add(_label(each, began_at_ms))
            if inputs and each.input is not None:
                branch.add(plain(f"input: {shown(each.input)}"))
            for failure in each.failures:
                branch.add(plain(f"attempt {failure.attempt}: {failure.error.type}: {failure.error.message}", "red"))
            await _grow(branch, caller, each.child, depth, inputs=inputs, every_row=every_row)
        else:
            tree.add(Text.assemble(_at(each, began_at_ms), plain(_worded(each, run, depth), "dim")))
    if is_grouped:
        tree.add(Text(f"{len(told):,} rows, grouped by name: --all shows each", style="dim"))
    for wait in run.waiting_on:
        tree.add(plain(f"waits for {render.wait_of(wait)}", "yellow"))
    return tree


async def _grow(branch: Tree, caller: Caller, child: str | None, depth: int, *, inputs: bool, every_row: bool) -> None:
    if child is None or depth >= DEPTH_MAX:
        return
    try:
        run = await caller.get(child)
        branch.children.append(await tree_of(caller, run, depth=depth + 1, inputs=inputs, every_row=every_row))
    except UnknownRun:
        branch.add(plain(f"run {child}, which is no longer kept", "dim"))


def shown(value: Value) -> str:
    """A value on one line; of a large one, only how large it is; of a sealed one, which key opens it."""
    if value.sealed:
        return f"sealed under key {value.sealed}"
    if value.json is UNSET:
        return f"{value.size:,} bytes"
    text = bytes(value.json).decode()
    return text if len(text) <= INPUT_CHARACTERS else text[:INPUT_CHARACTERS].rstrip() + " ..."


def _worded(entry: Entry, run: Run[Any], depth: int) -> str:
    """An entry in words; not again what stands above the tree as the error of the run."""
    if depth == 0 and isinstance(entry, Blocked) and run.error is not None and entry.message == run.error.message:
        return f"is blocked ({entry.code}): see error"
    return worded(entry)


def _child(run: Run[Any]) -> Text:
    return Text.assemble("run ", run.id, " of ", plain(run.workflow), " ", render.status(run.status))


def _many(alike: Alike, began_at_ms: Instant) -> Text:
    first, last = (_at(_last(row), began_at_ms) for row in (alike.rows[0], alike.rows[-1]))
    return Text.assemble(first, Text("to ", style="dim"), last, plain(alike.words))


def _last(row: StepEntries | Entry) -> Entry:
    return row.last if isinstance(row, StepEntries) else row


def _label(step: StepEntries, began_at_ms: Instant) -> Text:
    last = step.last
    match last:
        case Performed(intent=intent, attempt=attempt):
            did = f"undid {step.name.removeprefix(UNDO)}" if intent.kind == "undo" else step.name
            tries = f", attempt {attempt}" if attempt > 1 else ""
            took = f", took {duration(last.took_ms)}" if last.took_ms else ""
            words = Text.assemble(("✓ ", "green"), plain(did), plain(f"  {intent.key}{tries}{took}", "dim"))
        case Joined(error=None) | Spawned():
            words = Text.assemble(("✓ " if isinstance(last, Joined) else "→ ", "green"), plain(step.name))
        case Joined() | GaveUp():
            words = Text.assemble(("✗ ", "red"), plain(step.name))
        case Attempted():
            words = Text.assemble(("… ", "yellow"), plain(step.name), (" to be tried again", "yellow"))
        case _:
            words = Text.assemble(("… ", "yellow"), plain(step.name), (" was begun", "yellow"))
    return Text.assemble(_at(last, began_at_ms), words)


def _at(entry: Entry, began_at_ms: Instant) -> Text:
    return Text(f"+{duration(entry.at_ms - began_at_ms)} ", style="dim")
