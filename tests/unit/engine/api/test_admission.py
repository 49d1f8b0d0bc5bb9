"""Admission: one run per key, and a worker that may take a fresh run learns in any case what became of it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engine.api.admission import HELD_KEYS_MAX, wish
from holdfast.errors import EngineFault, InFlight, InputMismatch, Overtaken, StoreUnavailable
from holdfast.events import RunAdmitted, RunJoined
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.starts import Hand
from tests.builders import a_signal, wanted
from tests.unit.engine.api.conftest import Api, report


class FakeTaker:
    """Has one slot."""

    def __init__(self) -> None:
        self.has_room = True
        self.calls: list[tuple[Any, ...]] = []

    def reserve(self, workflow: str, run_id: str) -> Hand | None:
        self.calls.append(("reserve", run_id))
        return Hand("w-1", "nonce") if self.has_room else None

    def adopt_fresh(self, change: Any, run: Run) -> None:
        self.calls.append(("adopt_fresh", run.id))

    def give_back(self, run_id: str, *, is_unsure: bool) -> None:
        self.calls.append(("give_back", run_id, is_unsure))


async def test_the_first_start_of_a_key_is_admitted_and_the_next_one_joins(api: Api) -> None:
    run, created = await api.admission.admit(wanted("a"))
    assert (run.id, run.status, created) == ("a", Status.PENDING, True)
    again, created = await api.admission.admit(wanted("b"))
    assert (again.id, created) == ("a", False)
    assert [type(event) for event in api.events] == [RunAdmitted, RunJoined]


async def test_a_further_start_of_a_held_key_only_looks_at_the_holder() -> None:
    taker = FakeTaker()
    api = Api(taker=taker)
    for run_id in ("a", "b"):
        await api.admission.admit(wanted(run_id))
    taker.calls.clear()
    run, created = await api.admission.admit(wanted("c"))
    assert (run.id, created) == ("a", False)
    assert taker.calls == []
    assert api.told(RunJoined)[-1].run_id == "a"


async def test_a_further_start_that_does_not_join_the_holder_takes_the_whole_way(api: Api) -> None:
    for run_id in ("a", "b"):
        await api.admission.admit(wanted(run_id))
    with pytest.raises(InputMismatch):
        await api.admission.admit(wanted("c", input={"order": "o-2"}))
    with pytest.raises(InFlight):
        await api.admission.admit(wanted("c", join=False))
    told, created = await api.admission.admit(wanted("c", signal=a_signal()))
    assert (told.id, told.unread, created) == ("a", 1, False)


async def test_a_key_that_is_free_again_is_had_by_a_start_that_expected_it_to_be_held(api: Api) -> None:
    for run_id in ("a", "b"):
        await api.admission.admit(wanted(run_id, retention_ms=-1))
    await api.end(await api.claim())
    assert await api.store.prune(10) == 1
    assert (await api.admission.admit(wanted("c")))[1]
    assert not (await api.admission.admit(wanted("d")))[1]


async def test_only_so_many_held_keys_are_remembered() -> None:
    taker = FakeTaker()
    api = Api(taker=taker)
    keys = [f"order-{number}" for number in range(HELD_KEYS_MAX + 1)]
    for attempt in ("first", "second"):
        for key in keys:
            await api.admission.admit(wanted(f"{attempt}-{key}", key=key))
    taker.calls.clear()
    for key in (keys[-1], keys[0]):
        await api.admission.admit(wanted(f"third-{key}", key=key))
    assert [call for call in taker.calls if call[0] == "reserve"] == [("reserve", f"third-{keys[0]}")]


async def test_the_same_request_is_told_that_it_has_created_the_run(api: Api) -> None:
    await api.admission.admit(wanted("a", request_id="r"))
    assert (await api.admission.admit(wanted("b", request_id="r")))[1]


async def test_another_input_is_refused(api: Api) -> None:
    await api.admission.admit(wanted("a"))
    with pytest.raises(InputMismatch) as caught:
        await api.admission.admit(wanted("b", input={"order": "o-2"}))
    assert caught.value.run_id == "a"


async def test_a_start_that_does_not_join_is_refused_while_the_run_is_live(api: Api) -> None:
    await api.admission.admit(wanted("a"))
    with pytest.raises(InFlight):
        await api.admission.admit(wanted("b", join=False))


async def test_a_start_that_replaces_a_run_which_has_lost_its_key_is_overtaken(api: Api) -> None:
    await api.admission.admit(wanted("a"))
    await api.admission.admit(wanted("b", replaces="a"))
    with pytest.raises(Overtaken) as caught:
        await api.admission.admit(wanted("c", replaces="a"))
    assert caught.value.run_id == "b"


async def test_a_signal_reaches_the_live_owner_of_the_key(api: Api) -> None:
    await api.admission.admit(wanted("a"))
    run, created = await api.admission.admit(wanted("b", signal=a_signal()))
    assert (run.id, created) == ("a", False)
    [history] = await api.store.histories(["a"])
    assert [message.id for message in history.messages] == [a_signal().id]


async def test_a_request_whose_id_is_that_of_another_workflow_s_run_is_a_fault(api: Api) -> None:
    await api.admission.admit(wanted("a", key=None))
    with pytest.raises(EngineFault):
        await api.admission.admit(wanted("a", key=None, workflow="shop.report"))


async def test_a_worker_with_room_gets_the_run_in_the_admitting_commit() -> None:
    taker = FakeTaker()
    api = Api(taker=taker)
    run, _ = await api.admission.admit(wanted("a"))
    assert (run.status, run.owner) == (Status.RUNNING, "w-1")
    assert taker.calls == [("reserve", "a"), ("adopt_fresh", "a")]


async def test_a_slot_is_given_back_when_the_key_is_taken() -> None:
    taker = FakeTaker()
    api = Api(taker=taker)
    await api.admission.admit(wanted("a"))
    del taker.calls[:]
    await api.admission.admit(wanted("b"))
    assert taker.calls == [("reserve", "b"), ("give_back", "b", False)]


async def test_when_the_store_did_not_answer_the_worker_must_make_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    taker = FakeTaker()
    api = Api(taker=taker)

    async def away(changes: object) -> object:
        raise StoreUnavailable("away")

    monkeypatch.setattr(api.store, "commit", away)
    with pytest.raises(StoreUnavailable):
        await api.admission.admit(wanted("a"))
    assert taker.calls == [("reserve", "a"), ("give_back", "a", True)]


@pytest.mark.parametrize("why", ["no room", "delay"])
async def test_a_run_that_no_worker_can_take_now_is_pending(why: str) -> None:
    taker = FakeTaker()
    taker.has_room = why != "no room"
    api = Api(taker=taker)
    run, _ = await api.admission.admit(wanted("a", delay_ms=50 if why == "delay" else 0))
    assert run.status is Status.PENDING
    assert taker.calls == ([] if why == "delay" else [("reserve", "a")])


async def test_a_wish_has_what_its_workflow_declares(api: Api) -> None:
    made = wish(api.store, report, b'{"day":"today"}', run_id="a", namespace="n", key=None, digest="d")
    assert (made.run_id, made.request_id) == ("a", "a")
    assert (made.workflow, made.queue, made.version, made.retention_ms) == ("shop.report", "slow", "v7", 86_400_000)
    assert (made.priority, made.delay_ms, made.watcher, made.join) == (0, 0, None, True)
