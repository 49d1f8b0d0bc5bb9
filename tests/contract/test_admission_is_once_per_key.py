"""Admission is one atomic commit: the key, the run, its input. A duplicate writes nothing."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.kernel import attributes, markers
from holdfast.kernel.changes import Change, Committed, HolderOf, KeyFree, KeyHeldBy, Refused
from holdfast.kernel.journal import Started
from holdfast.kernel.messages import Watcher
from holdfast.kernel.runs import Status
from holdfast.ports.store import Store
from tests.builders import FakeClock
from tests.contract.conftest import Backend
from tests.contract.helpers import (
    A_BLOB,
    ANOTHER_BLOB,
    WORKFLOW,
    admission,
    admitted,
    claim,
    committed,
    completion,
    ended,
    held,
    history,
    offer,
    refused,
    takeover,
)


async def test_an_admission_brings_row_key_journal_and_blobs_together(store: Store) -> None:
    change = admission(store, blobs=(A_BLOB,), input={"order": "o-1"})
    run = await committed(store, change)
    assert run == change.run
    assert await store.run("default", "run-1") == run
    assert await store.run_of_key("default", WORKFLOW, "order:1") == run
    assert (await history(store)).journal == change.entries
    assert isinstance(change.entries[0], Started)
    assert await store.blob("run-1", A_BLOB.digest) == A_BLOB.data


async def test_whatever_an_admission_says_about_the_run_is_read_back(store: Store) -> None:
    """A fork is admitted with markers, attributes and a past; nothing of its row may be left out."""
    change = admission(store, version="2", attributes=attributes.encode({"stage": "paid"}))
    assert change.run is not None
    offered = replace(change.run, markers=markers.encode((("paid", 7),)), started_at_ms=store.now_ms() - 5)
    await committed(store, replace(change, run=offered))
    assert await store.run("default", "run-1") == offered


async def test_an_admission_for_a_worker_at_hand_is_running_and_not_claimable(store: Store) -> None:
    run = await held(store, owner="w-1")
    assert (run.status, run.owner, run.epoch, run.started_at_ms) == (Status.RUNNING, "w-1", 1, store.now_ms())
    assert await store.held("w-1") == ["run-1"]
    assert await claim(store, "w-2") == []


async def test_a_look_at_the_holder_of_a_key_writes_nothing_and_names_the_holder(store: Store) -> None:
    def look(run_id: str, key: str = "order:1") -> Change:
        return Change(run_id, HolderOf(run_id, "default", WORKFLOW, key))

    assert await refused(store, look("run-1")) is None
    first = await admitted(store, "run-1")
    assert await refused(store, look("run-2")) == first
    assert await refused(store, look("run-1")) is None  # it is there: a start that is repeated is offered whole
    assert await refused(store, look("run-2", key="order:2")) is None
    assert await store.run("default", "run-2") is None


async def test_a_second_run_under_a_live_key_writes_nothing_and_names_the_holder(store: Store) -> None:
    first = await admitted(store, "run-1")
    second = admission(store, "run-2", blobs=(ANOTHER_BLOB,), watcher=Watcher("run-9", "child#1"))
    assert await refused(store, second) == first
    assert await store.run("default", "run-2") is None
    assert await store.histories(["run-2"]) == []
    assert await store.blob("run-2", ANOTHER_BLOB.digest) is None
    assert await store.run_of_key("default", WORKFLOW, "order:1") == first
    assert [run.id for run in await claim(store)] == ["run-1"]


async def test_the_watcher_of_a_refused_admission_is_told_nothing(store: Store) -> None:
    await held(store, "parent", key=None)
    child = await held(store, "run-1")
    await refused(store, admission(store, "run-2", watcher=Watcher("parent", "child#1")))
    answer = await offer(store, completion(store, child))
    assert isinstance(answer, Committed)
    assert answer.told == ()
    assert (await history(store, "parent")).messages == ()


async def test_of_64_admissions_under_one_key_one_is_committed(backend: Backend) -> None:
    """K1, within one process: many stores on the same data."""
    stores = [await backend.another() for _ in range(4)]
    offers = [offer(stores[n % 4], admission(stores[n % 4], f"run-{n}")) for n in range(64)]
    answers = await asyncio.gather(*offers)
    [winner] = [answer.run for answer in answers if isinstance(answer, Committed)]
    assert winner is not None
    holders = {answer.current.id for answer in answers if isinstance(answer, Refused) and answer.current}
    assert holders == {winner.id}
    assert len(await stores[0].runs([f"run-{n}" for n in range(64)])) == 1


async def test_runs_without_a_key_never_stand_in_each_others_way(store: Store) -> None:
    answers = await store.commit([admission(store, f"run-{n}", key=None) for n in range(5)])
    assert all(isinstance(answer, Committed) for answer in answers)
    assert len(await store.runs([f"run-{n}" for n in range(5)])) == 5


async def test_the_same_key_in_two_workflows_is_two_keys(store: Store) -> None:
    """K10."""
    await admitted(store, "run-1", workflow="shop.checkout")
    await admitted(store, "run-2", workflow="shop.refund")
    ours, theirs = [await store.run_of_key("default", name, "order:1") for name in ("shop.checkout", "shop.refund")]
    assert (ours and ours.id, theirs and theirs.id) == ("run-1", "run-2")


async def test_the_same_key_in_two_namespaces_is_two_keys(store: Store) -> None:
    """K10."""
    await admitted(store, "run-1", namespace="default")
    await admitted(store, "run-2", namespace="tenant")
    for namespace, run_id in (("default", "run-1"), ("tenant", "run-2")):
        found = await store.run_of_key(namespace, WORKFLOW, "order:1")
        assert found is not None
        assert found.id == run_id
    assert await store.run("tenant", "run-1") is None
    assert await store.run("default", "run-2") is None


@pytest.mark.parametrize(
    "others",
    [("a", "A"), ("é", "e\u0301"), ("a", "a "), ("1", "01"), ("a", "a\x00"), ("a\x00b", "a\x00c"), ("ß", "ss")],
    ids=["case", "normal-form", "trailing-space", "zeros", "nul", "after-nul", "folding"],
)
async def test_keys_are_the_same_only_if_every_character_is(store: Store, others: tuple[str, str]) -> None:
    for number, key in enumerate(others):
        await admitted(store, f"run-{number}", key=key)
    for number, key in enumerate(others):
        found = await store.run_of_key("default", WORKFLOW, key)
        assert found is not None
        assert (found.id, found.key) == (f"run-{number}", key)


async def test_the_key_stays_with_its_run_after_it_has_ended(store: Store, clock: FakeClock) -> None:
    """K4: who asks later gets the first one's result. Whether retention is over, the kernel asks and not the store."""
    run = await held(store)
    done = await committed(store, completion(store, run))
    clock.advance(run.retention_ms + 1000)
    assert await refused(store, admission(store, "run-2")) == done
    assert done.output is not None


async def test_a_takeover_moves_the_key_and_leaves_the_former_holder_its_record(store: Store) -> None:
    done = await ended(store)
    successor = await committed(store, takeover(store, done))
    assert successor.id == "run-2"
    assert await store.run_of_key("default", WORKFLOW, "order:1") == successor
    former = await store.run("default", "run-1")
    assert former is not None
    assert (former.holds_key, former.status, former.output) == (False, Status.COMPLETED, done.output)
    assert len((await history(store, "run-1")).journal) == 2
    assert await refused(store, admission(store, "run-3")) == successor


@pytest.mark.parametrize("wrong", ["epoch", "nonce", "run", "run, at any fence"])
async def test_a_takeover_from_somebody_else_is_refused(store: Store, wrong: str) -> None:
    done = await ended(store)
    guard = {
        "epoch": KeyHeldBy(done.id, replace(done.fence, epoch=done.epoch - 1)),
        "nonce": KeyHeldBy(done.id, replace(done.fence, nonce="somebody else's")),
        "run": KeyHeldBy("run-0", replace(done.fence, run_id="run-0")),
        "run, at any fence": KeyHeldBy("run-0"),
    }[wrong]
    assert await refused(store, admission(store, "run-2", guard=guard)) == done
    assert await store.run("default", "run-2") is None
    assert await store.run_of_key("default", WORKFLOW, "order:1") == done


async def test_of_two_takeovers_one_wins(store: Store) -> None:
    done = await ended(store)
    first, second = await store.commit([takeover(store, done, f"run-{n}") for n in (2, 3)])
    assert isinstance(first, Committed)
    assert isinstance(second, Refused)
    assert second.current == first.run


async def test_a_key_can_be_taken_over_again_and_again(store: Store) -> None:
    guard: KeyFree | KeyHeldBy = KeyFree()
    for number in range(4):
        run = await committed(store, admission(store, f"run-{number}", owner="w-1", guard=guard))
        done = await committed(store, completion(store, run))
        guard = KeyHeldBy(done.id, done.fence)
    former = await store.runs([f"run-{number}" for number in range(4)])
    assert sorted(run.id for run in former if run.holds_key) == ["run-3"]


async def test_the_input_is_read_back_as_it_was_given(store: Store) -> None:
    given: dict[str, object] = {"text": "ü 🎈 \x00", "none": None, "list": [1, 2.5, True], "deep": {"er": [[[]]]}}
    await admitted(store, input=given)
    found = await store.run("default", "run-1")
    assert found is not None
    assert found.input is not None
    assert msgspec.json.decode(msgspec.json.encode(found.input.json)) == given
