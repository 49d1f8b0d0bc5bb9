"""Changes that share a commit are independent: each is applied or refused for itself, with its answer in its place."""

from __future__ import annotations

from holdfast.kernel.changes import Committed, Refused
from holdfast.kernel.messages import Watcher
from holdfast.ports.store import Store
from tests.builders import performed
from tests.contract.helpers import (
    admission,
    admitted,
    beat,
    completion,
    everything,
    failure,
    held,
    history,
    let_go,
    progress,
    watch,
)


async def test_an_empty_commit_answers_nothing(store: Store) -> None:
    assert await store.commit([]) == []


async def test_answers_come_in_the_order_of_the_changes(store: Store) -> None:
    answers = await store.commit([admission(store, f"run-{n}", key=f"order:{n}") for n in range(600)])
    assert [answer.run.id for answer in answers if isinstance(answer, Committed) and answer.run] == [
        f"run-{n}" for n in range(600)
    ]


async def test_one_refused_among_good_ones_harms_none_of_them(store: Store) -> None:
    one, two, three = [await held(store, f"run-{n}", key=f"order:{n}") for n in (1, 2, 3)]
    stale = await held(store, "stale", key="order:9", owner="w-9")
    await store.leave("w-9")
    before = await everything(store, "stale")
    answers = await store.commit(
        [
            progress(store, one, performed()),
            completion(store, stale),
            completion(store, two),
            admission(store, "run-4", key="order:1"),
            admission(store, "run-5", key="order:5"),
            beat(stale),
            failure(store, three),
            watch("nobody", Watcher("run-1", "child#1")),
        ]
    )
    assert [type(answer) for answer in answers] == [
        Committed,
        Refused,
        Committed,
        Refused,
        Committed,
        Refused,
        Committed,
        Refused,
    ]
    states = {run.id: (run.status.value, run.length) for run in await store.runs([f"run-{n}" for n in range(1, 6)])}
    assert states == {
        "run-1": ("running", 2),
        "run-2": ("completed", 2),
        "run-3": ("failed", 2),
        "run-5": ("pending", 1),
    }
    assert await everything(store, "stale") == before


async def test_of_two_admissions_under_one_key_in_one_commit_the_first_wins(store: Store) -> None:
    first, second = await store.commit([admission(store, "run-1"), admission(store, "run-2")])
    assert isinstance(first, Committed)
    assert second == Refused(first.run)


async def test_later_changes_see_what_earlier_ones_of_the_commit_did(store: Store) -> None:
    """A child ends and its parent is let go in one commit: the message is seen, the parent does not sleep on it."""
    parent = await held(store, "parent", key=None)
    child = await held(store, "run-1", watcher=Watcher("parent", "child#1"))
    ended, gone = await store.commit([completion(store, child), let_go(store, parent)])
    assert isinstance(ended, Committed)
    assert ended.told == ("parent",)
    assert isinstance(gone, Committed)
    assert gone.run is not None
    assert gone.run.wake_at_ms == store.now_ms()
    assert len((await history(store, "parent")).messages) == 1


async def test_a_parent_let_go_before_its_child_ends_in_the_same_commit_is_woken(store: Store) -> None:
    parent = await held(store, "parent", key=None)
    child = await held(store, "run-1", watcher=Watcher("parent", "child#1"))
    await store.commit([let_go(store, parent), completion(store, child)])
    assert (await store.runs(["parent"]))[0].wake_at_ms == store.now_ms()


async def test_successive_changes_of_one_run_may_share_a_commit(store: Store) -> None:
    run = await held(store)
    first = progress(store, run, performed("a#1"))
    assert first.run is not None
    second = progress(store, first.run, performed("b#1"))
    answers = await store.commit([first, second])
    assert all(isinstance(answer, Committed) for answer in answers)
    assert [getattr(entry, "step", "") for entry in (await history(store)).journal] == ["", "a#1", "b#1"]


async def test_a_run_admitted_beside_others_keeps_its_own_journal_and_blobs(store: Store) -> None:
    await store.commit([admission(store, f"run-{n}", key=f"order:{n}", input={"n": n}) for n in range(20)])
    for n, found in enumerate(await store.histories([f"run-{n}" for n in range(20)])):
        assert found.run.input is not None, n
        assert found.journal[0].at_ms == found.run.created_at_ms
    digests = {(await history(store, f"run-{n}")).run.digest for n in range(20)}
    assert len(digests) == 20
    assert (await admitted(store, "run-20", key="order:20")).length == 1
