"""What a notice says of documents that were written."""

from __future__ import annotations

from holdfast.kernel import leaders
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.times import Millis
from holdfast.ports.notices import NOTHING, Notice
from holdfast.stores.notices import of_documents
from tests.builders import NOW_MS


def a_writing(kind: str, id: str = "1") -> Writing:
    return Writing(Document("shop", kind, id, 1, b"{}"), None)


def test_each_kind_that_was_stored_is_named_once() -> None:
    writings = [a_writing("task", "1"), a_writing("note"), a_writing("task", "2"), a_writing("refused")]
    assert of_documents(writings, [True, True, True, False]) == Notice(documents=(("shop", "note"), ("shop", "task")))


def test_nothing_that_was_stored_is_nothing_to_tell() -> None:
    assert of_documents([a_writing("task")], [False]) is NOTHING


def test_no_process_is_woken_because_a_leader_has_renewed_its_lease() -> None:
    bid = leaders.bid("rescue", None, leaders.Holder("worker-1", "nonce"), now_ms=NOW_MS, ttl_ms=Millis(5_000))
    assert bid is not None
    assert of_documents([bid], [True]) is NOTHING
    assert of_documents([bid, a_writing("task")], [True, True]) == Notice(documents=(("shop", "task"),))
