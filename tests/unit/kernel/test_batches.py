"""Single items are gathered, and one run has many of them."""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict

import msgspec
import pytest
from msgspec import Raw

from holdfast.errors import UsageError
from holdfast.kernel import attributes, batches, hooks
from holdfast.kernel.batches import Batch, Batching
from holdfast.kernel.changes import Gathering, KeyFree, KeyHeldBy
from holdfast.kernel.journal import Received, Started, Value
from holdfast.kernel.messages import Envelope, size
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.starts import Again, Tell, admission, after_refusal, resolve
from tests.builders import NOW_MS, a_run, wanted

OWNER = "workflow 'shop.embed'"


class Chunk(msgspec.Struct):
    tenant: str
    text: str = ""


@dataclasses.dataclass
class Record:
    tenant: str


class Row(TypedDict):
    tenant: str


@pytest.mark.parametrize(
    ("size", "wait", "message"),
    [
        (0, "1s", "out of range"),
        (1001, "1s", "out of range"),
        (True, "1s", "out of range"),
        ("10", "1s", "out of range"),
        (10, "0s", "wait='0s'"),
        (10, "2h", "wait='2h'"),
    ],
)
def test_what_is_wrong_with_a_batch(size: Any, wait: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Batch(size, wait=wait)


def declared(batch: object, *, names: frozenset[str] = frozenset({"items"}), fields: Any = None) -> Batching:
    return batches.declared(batch, parameters=names, fields=fields, owner=OWNER)


@pytest.mark.parametrize(
    ("batch", "names", "fields", "message"),
    [
        (100, {"items"}, None, "is no Batch"),
        (Batch(3), {"items", "model"}, None, "2 parameters"),
        (Batch(3), set(), None, "0 parameters"),
        (Batch(3, by="{shop}"), {"items"}, frozenset({"tenant"}), "names 'shop'"),
        (Batch(3, by="{shop"), {"items"}, None, "unmatched brace"),
    ],
)
def test_what_is_wrong_with_a_declaration(batch: object, names: Any, fields: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        declared(batch, names=frozenset(names), fields=fields)


def test_a_declaration_without_groups() -> None:
    found = declared(Batch(3, wait="2s"))
    assert (found.size, found.wait_ms, found.by, found.parameter) == (3, 2000, None, "items")
    assert found.key("whatever") == "batch:"


@pytest.mark.parametrize("item", [Chunk("t"), Record("t"), {"tenant": "t"}])
def test_items_are_gathered_by_their_fields(item: object) -> None:
    assert declared(Batch(3, by="{tenant}")).key(item) == "batch:t"


def test_items_are_gathered_by_themselves() -> None:
    assert declared(Batch(3, by="{item}"), fields=frozenset()).key("t") == "batch:t"


@pytest.mark.parametrize("item", [{}, Record, 7])
def test_an_item_without_the_field_is_refused(item: object) -> None:
    with pytest.raises(UsageError, match="has no field 'shop'"):
        declared(Batch(3, by="{shop}")).key(item)


@pytest.mark.parametrize(("items", "item"), [(list[str], str), (list, Any), (Any, Any), (list[Chunk], Chunk)])
def test_the_type_of_an_item(items: Any, item: Any) -> None:
    assert batches.item_type(items, owner=OWNER) == item


@pytest.mark.parametrize("items", [str, dict[str, int], tuple[int, ...]])
def test_a_parameter_that_is_no_list_is_refused(items: Any) -> None:
    with pytest.raises(UsageError, match="its parameter is of type"):
        batches.item_type(items, owner=OWNER)


@pytest.mark.parametrize(
    ("item", "fields"),
    [
        (Chunk, {"tenant", "text"}),
        (Record, {"tenant"}),
        (Row, {"tenant"}),
        (str, set()),
        (dict, None),
        (str | None, None),
        (Any, None),
    ],
)
def test_the_fields_of_an_item(item: Any, fields: Any) -> None:
    assert batches.fields_of(item) == fields


MESSAGE = hooks.signal(batches.ITEM, b'"a"', dedupe="a", nonce="", by_key=True)
WISH = wanted("run-2", key="batch:", gathers=3, signal=MESSAGE)


@pytest.mark.parametrize(
    ("holder", "has_room"),
    [
        (a_run(), True),
        (a_run(unread=2), True),
        (a_run(unread=3), False),
        (a_run(status=Status.RUNNING, epoch=1), False),
        (a_run(epoch=1), False),
        (a_run(holds_key=False), False),
        (a_run(status=Status.COMPLETED), False),
    ],
)
def test_an_item_goes_in_as_long_as_there_is_room(holder: Run, *, has_room: bool) -> None:
    assert batches.has_room(holder, 3) is has_room
    found = resolve(WISH, holder, now_ms=NOW_MS)
    if has_room:
        assert isinstance(found, Tell)
        assert found.change.guard == Gathering(holder.id, 3, batches.BYTES_MAX)
        assert [each.message for each in found.change.envelopes] == [MESSAGE]
    else:
        assert found == Again(KeyHeldBy(holder.id))


def test_what_is_tried_after_a_refusal() -> None:
    assert after_refusal(WISH, a_run()) == KeyHeldBy("run-1")  # too many bytes
    assert after_refusal(WISH, a_run(unread=3)) == KeyFree()
    assert after_refusal(WISH, None) == KeyFree()
    assert after_refusal(wanted("run-2"), a_run()) == KeyFree()


def test_the_run_says_why_it_waits() -> None:
    run = admission(WISH, now_ms=NOW_MS, hand=None).run
    assert run is not None
    assert run.waits == batches.WAITS


def test_the_last_one_makes_it_full() -> None:
    assert [batches.is_full(count, 3) for count in (2, 3, 4)] == [False, True, True]


def test_a_batch_is_known_by_its_attribute() -> None:
    assert batches.is_batch(a_run(attributes=attributes.encode({batches.BATCH: True})))
    assert not batches.is_batch(a_run())


def test_the_items_of_a_batch_in_their_order() -> None:
    value = Value(Raw(b"1"))
    journal = (
        Started(NOW_MS, value),
        Received(NOW_MS, batches.ITEM, "a", value),
        Received(NOW_MS, "other", "x", value),
        Received(NOW_MS, batches.ITEM, "b", value),
    )
    assert batches.items_of(journal) == ("a", "b")


@pytest.mark.parametrize(
    ("results", "wrong"), [([1, 2], ""), ((1, 2), ""), ([1], "1 results for 2 items"), (None, "NoneType")]
)
def test_there_is_a_result_for_each(results: object, wrong: str) -> None:
    found = batches.misfit(results, 2)
    assert wrong in found if wrong else not found


def test_the_size_of_a_message_is_that_of_its_json() -> None:
    assert size(Envelope("r", MESSAGE).message) == len(msgspec.json.encode(MESSAGE))
