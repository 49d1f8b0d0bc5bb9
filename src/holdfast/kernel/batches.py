"""Batches: single items are gathered, and one run has many of them.

    an item comes, and the open batch of its group       the item
    ───────────────────────────────────────────────────  ────────────────────────────────────────────────────
    is not there                                         opens one: it is admitted, and goes after `wait`
    has not begun, and has room                          goes into it; the last one that it has room for lets it go
    is full, has begun or has ended                      opens the next one, which takes the key over
    (any) has had an item with its dedupe id before      is there already: its run is the one that has it

Rules
- A batch is a run that holds the key `batch:` of its group, and its items are messages in its inbox. What is in it when
  it begins is what it has: a message is accepted only as long as the run has not begun, in one commit.
- A batch has room for `size` items, and for `BYTES_MAX` bytes of them.
- The items have the order in which they came, and the workflow returns as many results in the same order.
- A failed batch fails its items. It can be retried, although the next batch has the key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args, get_origin, is_typeddict

from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.kernel import keys
from holdfast.kernel.attributes import RESERVED
from holdfast.kernel.changes import Change, Gathering
from holdfast.kernel.journal import Entry, Received
from holdfast.kernel.keys import Template
from holdfast.kernel.messages import Envelope
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Millis
from holdfast.kernel.units import Duration, milliseconds

BATCH = f"{RESERVED}batch"  # the attribute of a run that is a batch
ITEM = "item"  # the hook that items are sent to
WHOLE = "item"  # how a template names the item itself
SIZE_MAX = 1_000
BYTES_MAX = 1 << 20
WAIT_MAX = "1h"
WAITS = b'[{"kind":"batch"}]'  # what the run waits for until it goes


class Batch(Struct, frozen=True, gc=False):
    """Up to `size` items are gathered for at most `wait`, apart for each value of the template `by` (`"{tenant}"`).

    The template names fields of an item, or `{item}` itself.
    """

    size: int
    wait: Duration = "1s"
    by: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not 1 <= self.size <= SIZE_MAX:
            raise UsageError(f"Batch({self.size!r}) is out of range", hint=f"It has room for 1 to {SIZE_MAX:,} items.")
        if not 1 <= milliseconds(self.wait) <= milliseconds(WAIT_MAX):
            raise UsageError(f"Batch(wait={self.wait!r}) is out of range", hint=f"Wait from 1ms to {WAIT_MAX}.")


class Batching(Struct, frozen=True, gc=False):
    """A batch as a workflow declares it."""

    size: int
    wait_ms: Millis
    by: Template | None
    parameter: str  # of the workflow, which takes the items

    def key(self, item: object) -> str:
        """The key of the batch that the item belongs to."""
        if self.by is None:
            return keys.checked("batch:")
        values = {name: item if name == WHOLE else _field(item, name) for name in self.by.parameters}
        return keys.checked(f"batch:{self.by.fill(values)}")


def declared(batch: object, *, parameters: frozenset[str], fields: frozenset[str] | None, owner: str) -> Batching:
    """What `batch=` says, or a `UsageError`. `fields` are those of an item, if they are known."""
    if not isinstance(batch, Batch):
        raise UsageError(
            f"batch={batch!r:.60} of {owner} is no Batch", hint='Say how many: batch=Batch(100, wait="2s").'
        )
    if len(parameters) != 1:
        raise UsageError(
            f"{owner} has batch= and {len(parameters)} parameters", hint="It takes the items, as one list, and no more."
        )
    by = None
    if batch.by:
        named = fields if fields is not None else frozenset(_names_in(batch.by))
        by = keys.parse(batch.by, parameters=named | {WHOLE}, owner=f"batch= of {owner}")
    [parameter] = parameters
    return Batching(batch.size, milliseconds(batch.wait), by, parameter)


def item_type(items: Any, *, owner: str) -> Any:
    """The type of an item, of a workflow whose parameter has this type: anything, if that says no more."""
    if items is Any or items is list:
        return Any
    if get_origin(items) is not list:
        raise UsageError(
            f"{owner} has batch=, and its parameter is of type {items}",
            hint="It takes a list of items, such as `items: list[Chunk]`.",
        )
    return get_args(items)[0]


def fields_of(item: Any) -> frozenset[str] | None:
    """The names of the fields that items of this type have; None if they may have any."""
    if not isinstance(item, type):
        return None
    kind: type[Any] = item
    if issubclass(kind, Struct):
        return frozenset(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return frozenset(field.name for field in dataclasses.fields(kind))
    if is_typeddict(kind):
        names: dict[str, Any] = kind.__annotations__
        return frozenset(names)
    return frozenset() if kind in {str, int, float, bool, bytes} else None


def has_room(holder: Run, size: int) -> bool:
    """Whether an item may go into the batch, as far as its row tells."""
    return holder.status is Status.PENDING and holder.epoch == 0 and holder.holds_key and holder.unread < size


def is_full(count: int, size: int) -> bool:
    """Whether a batch with so many items may be claimed at once."""
    return count >= size


def add(holder: Run, envelope: Envelope, *, size: int) -> Change:
    """The change by which an item goes into a batch, as long as that has room."""
    guard = Gathering(holder.id, size, BYTES_MAX)
    return Change(f"{holder.id}/{envelope.message.id}", guard, envelopes=(envelope,))


def is_batch(run: Run) -> bool:
    """Whether the run is a batch. Its key is that of its group: it loses it to the next one, and goes on without."""
    return BATCH.encode() in run.attributes


def items_of(journal: tuple[Entry, ...]) -> tuple[str, ...]:
    """The ids of the items of a batch that has begun, in the order in which it has them."""
    return tuple(entry.id for entry in journal if isinstance(entry, Received) and entry.hook == ITEM)


def misfit(results: object, count: int) -> str:
    """What is wrong with what a batch returned for so many items; nothing if there is one result for each."""
    if not isinstance(results, list | tuple):
        return f"it returned {type(results).__name__}, and not a list with one result for each of its {count} items"
    given = len(results)  # pyright: ignore[reportUnknownArgumentType] - whatever they are
    return "" if given == count else f"it returned {given} results for {count} items"


def _field(item: object, name: str) -> Any:
    if isinstance(item, Mapping):
        if name in item:
            return item[name]
    elif hasattr(item, name):
        return getattr(item, name)
    raise UsageError(
        f"an item has no field {name!r}, by which it is to be gathered: {item!r:.80}",
        hint="The template by= names fields of an item, or {item} itself.",
    )


def _names_in(template: str) -> list[str]:
    """The names that a template has; what is wrong with it is said by the one that parses it."""
    return [part.split("}")[0].split(".")[0] for part in template.split("{")[1:]]
