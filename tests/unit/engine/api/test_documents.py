"""The documents of one namespace: read and written within it, refused while closed, followed by place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from holdfast.engine.api.documents import COMMON, Documents
from holdfast.engine.api.scope import Scope
from holdfast.engine.api.subscriptions import Subscriptions
from holdfast.errors import UsageError
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.stores.memory import MemoryStore
from tests.builders import NOW_MS, FakeClock, SeededIds


class Office:
    """One process: a store, who follows what, and the documents of any namespace."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.subscriptions = Subscriptions()
        self.is_open = True
        self.events: list[object] = []

    def documents(self, namespace: str = "shop") -> Documents:
        unused = cast("Any", None)  # documents are no runs: they need no code and no commits
        scope = Scope(
            self.store,
            unused,
            registry=unused,
            codec=unused,
            ids=SeededIds(),
            emit=self.events.append,
            pace=unused,
            namespace=namespace,
            is_open=lambda: self.is_open,
        )
        return Documents(scope, self.subscriptions)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def office(clock: FakeClock) -> AsyncIterator[Office]:
    store = MemoryStore(clock=clock)
    await store.open()
    yield Office(store)
    await store.close()


def a_writing(
    documents: Documents, id: str = "one", *, body: bytes = b"1", replaces: int | None = None, **fields: Any
) -> Writing:
    version = next_version(replaces, now_ms=documents.now_ms())
    return Writing(Document(documents.namespace, "note", id, version, body, **fields), replaces)


async def test_what_is_written_is_read_by_kind_and_id(office: Office) -> None:
    documents = office.documents()
    writing = a_writing(documents)
    assert await documents.write(writing)
    assert await documents.read("note", "one") == writing.document
    assert await documents.read("note", "two") is None
    assert await documents.read("letter", "one") is None


async def test_a_namespace_sees_its_own_documents_only(office: Office) -> None:
    shop, bank, common = office.documents("shop"), office.documents("bank"), office.documents(COMMON)
    for documents, body in ((shop, b"shop"), (bank, b"bank"), (common, b"common")):
        assert await documents.write(a_writing(documents, body=body))
    for documents, body in ((shop, b"shop"), (bank, b"bank"), (common, b"common")):
        found = await documents.read("note", "one")
        assert found is not None
        assert found.body == body
        assert [each.body for each in await documents.listed("note")] == [body]


async def test_they_are_listed_by_id_page_by_page(office: Office) -> None:
    documents = office.documents()
    for name in ("c", "a", "b"):
        assert await documents.write(a_writing(documents, name))
    assert [each.id for each in await documents.listed("note", limit=2)] == ["a", "b"]
    assert [each.id for each in await documents.listed("note", after="b")] == ["c"]
    assert await documents.listed("letter") == []


async def test_a_writer_that_is_late_is_refused_and_changes_nothing(office: Office) -> None:
    documents = office.documents()
    first = a_writing(documents)
    assert await documents.write(first)
    second = a_writing(documents, body=b"2", replaces=first.document.version)
    assert await documents.write(second)
    assert not await documents.write(a_writing(documents, body=b"late", replaces=first.document.version))
    assert not await documents.write(a_writing(documents, body=b"new"))
    assert await documents.read("note", "one") == second.document


async def test_the_clock_is_the_stores(office: Office, clock: FakeClock) -> None:
    documents = office.documents()
    assert documents.now_ms() == NOW_MS
    clock.advance(500)
    assert documents.now_ms() == NOW_MS + 500


async def test_what_has_expired_is_not_there(office: Office, clock: FakeClock) -> None:
    documents = office.documents()
    assert await documents.write(a_writing(documents, expires_at_ms=NOW_MS + 10))
    clock.advance(10)
    assert await documents.read("note", "one") is None
    assert await documents.listed("note") == []


async def test_followers_of_a_document_are_told_when_it_is_stored(office: Office) -> None:
    documents, bank = office.documents(), office.documents("bank")
    with (
        documents.following("note", "one") as changed,
        documents.following("note", "two") as other_id,
        documents.following("letter", "one") as other_kind,
        bank.following("note", "one") as other_namespace,
    ):
        first = a_writing(documents)
        assert await documents.write(first)
        assert changed.is_set()
        assert not any(each.is_set() for each in (other_id, other_kind, other_namespace))
        changed.clear()
        assert not await documents.write(a_writing(documents, body=b"late"))
        assert not changed.is_set()
        assert await documents.write(a_writing(documents, body=b"2", replaces=first.document.version))
        assert changed.is_set()


async def test_one_that_has_stopped_following_is_told_nothing(office: Office) -> None:
    documents = office.documents()
    with documents.following("note", "one") as changed:
        pass
    assert await documents.write(a_writing(documents))
    assert not changed.is_set()


async def test_a_change_by_another_process_is_told_as_well(office: Office) -> None:
    with office.documents().following("note", "one") as changed:
        office.subscriptions.documents_changed("bank", "note")
        assert not changed.is_set()
        office.subscriptions.documents_changed("shop", "note")
        assert changed.is_set()


async def test_a_closed_holdfast_neither_reads_nor_writes(office: Office) -> None:
    documents = office.documents()
    office.is_open = False
    for refused in (documents.read("note", "one"), documents.listed("note"), documents.write(a_writing(documents))):
        with pytest.raises(UsageError):
            await refused
    office.is_open = True
    assert await documents.listed("note") == []


async def test_events_and_ids_are_those_of_the_scope(office: Office) -> None:
    documents = office.documents()
    documents.emit(cast("Any", "something"))
    assert office.events == ["something"]
    assert documents.ids.nonce() == SeededIds().nonce()
