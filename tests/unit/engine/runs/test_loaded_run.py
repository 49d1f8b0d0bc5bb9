"""A run in memory, without a worker: what arrives is decided, applied to the code, and collected to be recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from holdfast import Pack, Retry, workflow as wf
from holdfast.engine.code.commands import CodeReturned
from holdfast.engine.failures import described
from holdfast.engine.runs import leftovers
from holdfast.engine.runs.completions import ActivationRecord, Broken, Completion, NeedsPerson
from holdfast.errors import UnknownOutcome
from holdfast.events import EffectGaveUp, EffectPerformed, EffectWillRetry
from holdfast.kernel.changes import Blob
from holdfast.kernel.journal import (
    Attempted,
    CancelAsked,
    Dropped,
    Entry,
    GaveUp,
    Intended,
    Joined,
    Late,
    Opened,
    Performed,
    Received,
    Spawned,
    Stopped,
    Value,
)
from holdfast.kernel.messages import CancelRequest, KeyTaken, OutcomeMessage, SignalMessage
from holdfast.kernel.runs import Status
from holdfast.kernel.steps import (
    DENIED,
    WATCHING,
    ChildAdmitted,
    Confirmed,
    Expired,
    Interrupted,
    Raised,
    Repeated,
    Returned,
    TokenClaimed,
)
from tests.builders import NOW_MS, a_failure, a_value
from tests.unit.engine.runs.hosts import CODEC, FakeHost, a_history, load, nothing_is_left_in_memory

BOOM = ValueError("boom")
pytestmark = pytest.mark.usefixtures(nothing_is_left_in_memory.__name__)
pack = Pack("shop")


@pack.effect
async def charge(amount: int) -> int: ...


@pack.effect(safety="once", retry=Retry())
async def post(letter: str) -> str: ...


@pack.effect(safety="once", reconcile=len)
async def wire(letter: str) -> str: ...


@pack.effect(remote=True)
async def grind(beans: str) -> str: ...


@pack.workflow
async def pay(amount: int) -> int: ...


@pack.workflow
async def one_charge() -> int:
    return await charge(7)


@pack.workflow
async def one_post() -> str:
    return await post("l-1")


@pack.workflow
async def one_wire() -> str:
    return await wire("l-1")


@pack.workflow
async def hasty() -> str:
    try:
        async with asyncio.timeout(1):
            await charge(7)
    except TimeoutError:
        await wf.sleep("1h")
    return "done"


@pack.workflow
async def hasty_grind() -> str:
    try:
        async with asyncio.timeout(1):
            await grind("arabica")
    except TimeoutError:
        await wf.sleep("1h")
    return "done"


@pack.workflow
async def hasty_child() -> str:
    try:
        async with asyncio.timeout(1):
            await pay(7)
    except TimeoutError:
        await wf.sleep("1h")
    return "done"


@pack.workflow
async def parent() -> int:
    return await pay(7)


@pack.workflow
async def listener() -> Any:
    async with wf.hook("approval", token="t-1") as approval:
        return await approval


class Loaded:
    """A loaded run, its host, and what its present activation has recorded."""

    def __init__(self, workflow: Any, *entries: Entry, **fields: Any) -> None:
        self.host = FakeHost()
        self.run = load(self.host, a_history(workflow, *entries, **fields), workflow, self._keep)
        self.record = ActivationRecord()

    def _keep(self, arrival: Any) -> None:
        self.run.arrivals.append(arrival)

    def begin(self) -> list[str]:
        """What is to be begun now."""
        return [command.step for command in self.run.to_begin(self.record)]

    def deliver(self, *arrivals: Any) -> list[Entry]:
        """What is recorded when this has arrived, as far as it is new."""
        before = len(self.record.entries)
        self.run.arrivals.extend(arrivals)
        self.run.deliver(self.record)
        return self.record.entries[before:]

    def pass_time(self, ms: int) -> list[Entry]:
        self.host.store.at_ms += ms
        return self.deliver()

    @property
    def said(self) -> list[type]:
        return [type(event) for event in self.host.events]


def raised(step: str, error: BaseException = BOOM, **facts: Any) -> Completion:
    return Completion(step, Raised(error, described(error, CODEC), **facts), took_ms=2.0)


def returned(step: str, value: object = 7) -> Completion:
    return Completion(step, Returned(a_value(value)), took_ms=2.0)


async def test_an_ordinary_effect_is_begun_without_a_record_and_its_value_reaches_the_code():
    loaded = Loaded(one_charge)
    assert loaded.begin() == ["charge#1"]
    assert not loaded.record.is_worth_a_commit
    assert loaded.begin() == []  # once is enough
    [entry] = loaded.deliver(returned("charge#1"))
    assert isinstance(entry, Performed)
    assert (entry.step, entry.attempt, entry.at_ms) == ("charge#1", 1, NOW_MS)
    assert loaded.run.machine.outcome == CodeReturned(7)
    assert loaded.host.events == [EffectPerformed("run-1", "charge#1", 1, "shop.charge", 2.0)]


async def test_a_large_value_is_recorded_beside_the_journal():
    loaded = Loaded(one_charge)
    loaded.begin()
    blob = Blob("digest", b"7")
    loaded.deliver(Completion("charge#1", Returned(Value(blob="digest", size=1)), (blob,)))
    assert loaded.record.blobs == (blob,)
    assert loaded.run.machine.outcome == CodeReturned(7)


async def test_a_failed_attempt_is_repeated_when_its_wait_is_over():
    loaded = Loaded(one_charge)
    loaded.begin()
    [entry] = loaded.deliver(raised("charge#1"))
    assert isinstance(entry, Attempted)
    assert entry.retry_at_ms == NOW_MS + 250 == loaded.run.next_due_at_ms()
    assert loaded.said == [EffectWillRetry]
    assert loaded.begin() == []
    assert loaded.pass_time(250) == []
    assert loaded.begin() == ["charge#1"]


async def test_an_effect_that_has_no_attempt_left_has_failed():
    loaded = Loaded(one_charge)
    loaded.begin()
    for _ in range(2):
        loaded.deliver(raised("charge#1"))
        loaded.pass_time(1_000)
        loaded.begin()
    [entry] = loaded.deliver(raised("charge#1"))
    assert isinstance(entry, GaveUp)
    assert loaded.said == [EffectWillRetry, EffectWillRetry, EffectGaveUp]


async def test_a_deadline_that_is_over_is_said_by_its_plain_name():
    loaded = Loaded(one_charge)
    loaded.begin()
    loaded.deliver(Completion("charge#1", Expired(a_failure("holdfast.errors.TimedOut", "too late"))))
    assert loaded.host.events == [EffectGaveUp("run-1", "charge#1", 0, "TimedOut: too late", "shop.charge", None)]


async def test_the_intent_of_a_once_effect_is_recorded_before_it_is_begun():
    loaded = Loaded(one_post)
    assert loaded.begin() == ["post#1"]
    assert [type(entry) for entry in loaded.record.entries] == [Intended]
    command = loaded.run.machine.open["post#1"]
    assert command.may_call
    assert not command.reconciles


async def test_each_attempt_of_a_once_effect_has_an_intent_of_its_own():
    loaded = Loaded(one_post)
    loaded.begin()
    loaded.deliver(raised("post#1"))
    assert not loaded.run.machine.open["post#1"].may_call
    loaded.pass_time(1_000)
    loaded.begin()
    assert [entry.attempt for entry in loaded.record.entries if isinstance(entry, Intended)] == [1, 2]


def intended(workflow: Any, step: str) -> Intended:
    """The intent that a process which has died since has recorded."""
    intent = Loaded(workflow).run.machine.open[step].intent
    return Intended(NOW_MS, step, intent, 1)


async def test_what_a_process_that_died_may_have_called_needs_a_person():
    loaded = Loaded(one_post, intended(one_post, "post#1"), epoch=2)
    with pytest.raises(NeedsPerson) as caught:
        loaded.begin()
    assert caught.value.code == UnknownOutcome.code
    assert "the process died" in caught.value.message


async def test_or_it_is_reconciled_and_called_if_it_never_happened():
    loaded = Loaded(one_wire, intended(one_wire, "wire#1"), epoch=2)
    assert loaded.begin() == ["wire#1"]
    command = loaded.run.machine.open["wire#1"]
    assert command.reconciles
    assert not loaded.run.is_all_there_is(command)
    assert loaded.deliver(Completion("wire#1", DENIED)) == []
    assert loaded.begin() == ["wire#1"]
    assert not command.reconciles
    assert loaded.record.entries == []  # the intent is recorded already


async def test_or_its_result_is_found_out():
    loaded = Loaded(one_wire, intended(one_wire, "wire#1"), epoch=2)
    loaded.begin()
    [entry] = loaded.deliver(Completion("wire#1", Confirmed(a_value("sent"))))
    assert isinstance(entry, Performed)
    assert loaded.host.events == [EffectPerformed("run-1", "wire#1", 1, "shop.wire", None)]


async def test_work_that_breaks_breaks_the_run_if_the_code_waits_for_it():
    loaded = Loaded(one_charge)
    loaded.begin()
    with pytest.raises(ValueError, match="boom"):
        loaded.deliver(Completion("charge#1", Broken(BOOM)))


# -- what the code no longer waits for


def left(workflow: Any, **fields: Any) -> Loaded:
    """A run whose code has stopped waiting for its first step."""
    loaded = Loaded(workflow, **fields)
    loaded.begin()
    loaded.run.in_doubt = frozenset(loaded.run.machine.open)
    loaded.pass_time(1_000)
    return loaded


async def test_what_may_have_begun_is_noted_when_the_code_stops_waiting():
    loaded = left(hasty)
    assert [type(entry) for entry in loaded.record.entries][-1] is Dropped
    assert list(loaded.run.dropped) == ["charge#1"]


async def test_what_comes_after_that_is_late():
    loaded = left(hasty)
    [entry] = loaded.deliver(returned("charge#1"))
    assert isinstance(entry, Late)
    assert loaded.said == []
    assert loaded.deliver(returned("charge#1")) == []  # there is nothing more to know


async def test_work_that_breaks_late_breaks_nothing():
    assert left(hasty).deliver(Completion("charge#1", Broken(BOOM))) == []


async def test_a_task_that_a_former_holder_may_have_put_up_is_taken_back():
    loaded = Loaded(hasty_grind, epoch=2)
    loaded.pass_time(1_000)
    assert list(loaded.run.in_flight.tasks) == ["grind#1"]
    loaded.run.close()


async def test_a_worker_that_stops_leaves_it_to_the_next():
    loaded = Loaded(hasty_grind, epoch=2)
    loaded.run.in_flight.leave_tasks()
    loaded.pass_time(1_000)
    assert not loaded.run.in_flight.tasks


async def test_a_child_that_a_former_holder_may_have_admitted_is_admitted_again():
    loaded = left(hasty_child, epoch=2)
    assert list(loaded.run.in_flight.tasks) == ["pay#1"]
    await loaded.run.in_flight.tasks["pay#1"]
    [entry] = loaded.deliver()
    assert isinstance(entry, Late)
    assert entry.run_id == "child-1"


# -- what a refused change had recorded


@pytest.mark.parametrize("waited", [True, False])
async def test_what_was_refused_reaches_the_code_or_is_late(waited: bool):
    first = Loaded(one_charge)
    first.begin()
    [performed] = first.deliver(returned("charge#1"))
    assert isinstance(performed, Performed)
    loaded = Loaded(one_charge if waited else parent)
    [entry] = loaded.deliver(Completion("charge#1", Repeated(performed)))
    assert isinstance(entry, Performed if waited else Late)


async def test_a_child_of_a_refused_change_is_not_forgotten():
    first = Loaded(parent)
    first.begin()
    [spawned] = first.deliver(Completion("pay#1", ChildAdmitted("child-1", "pay:1", created=True)))
    assert isinstance(spawned, Spawned)
    [entry] = Loaded(one_charge).deliver(Completion("pay#1", Repeated(spawned)))
    assert isinstance(entry, Late)
    assert entry.run_id == "child-1"


# -- children, hooks, messages


async def test_the_end_of_a_child_comes_as_a_message():
    loaded = Loaded(parent)
    loaded.begin()
    loaded.deliver(Completion("pay#1", ChildAdmitted("child-1", "pay:1", created=True)), Completion("pay#1", WATCHING))
    message = OutcomeMessage("m-1", "pay#1", "child-1", Status.COMPLETED, Raw(b'{"json":9}'))
    [entry] = loaded.deliver(message)
    assert isinstance(entry, Joined)
    assert loaded.record.read == ("m-1",)
    assert loaded.run.machine.outcome == CodeReturned(9)


async def test_a_child_that_was_cancelled_is_an_error_of_the_parent():
    loaded = Loaded(parent)
    loaded.begin()
    loaded.deliver(Completion("pay#1", ChildAdmitted("child-1", "pay:1", created=True)))
    [entry] = loaded.deliver(OutcomeMessage("m-1", "pay#1", "child-1", Status.CANCELLED))
    assert isinstance(entry, Joined)
    assert entry.error is not None
    assert entry.error.type.endswith("RunCancelled")


async def test_a_signal_is_recorded_and_taken():
    loaded = Loaded(listener)
    loaded.begin()
    [opened] = loaded.deliver(Completion("hook:approval#1", TokenClaimed(None)))
    assert isinstance(opened, Opened)
    [received] = loaded.deliver(SignalMessage("s-1", "approval", Raw(b'"yes"')))
    assert isinstance(received, Received)
    assert loaded.run.machine.outcome == CodeReturned("yes")


async def test_a_cancellation_reaches_the_code_and_what_it_waits_for_is_dropped():
    loaded = left_in_flight()
    entries = loaded.deliver(CancelRequest("c-1", NOW_MS + 5_000, "enough"))
    assert [type(entry) for entry in entries] == [CancelAsked]
    assert loaded.run.next_due_at_ms() == NOW_MS + 5_000
    assert loaded.deliver(CancelRequest("c-2", NOW_MS + 1, "again")) == []  # the first one counts
    assert not loaded.run.is_cancelled_by_now()
    loaded.run.in_flight.tasks.clear()
    assert [type(entry) for entry in loaded.deliver()] == [Stopped]


def left_in_flight() -> Loaded:
    loaded = Loaded(one_charge)
    [command] = loaded.run.to_begin(loaded.record)
    loaded.run.in_flight.begin(command)
    return loaded


async def test_what_the_run_leaves_under_way_is_noted_once():
    loaded = Loaded(one_charge)
    loaded.begin()
    loaded.run.in_doubt = frozenset({"charge#1"})
    loaded.run.note_what_may_be_under_way(loaded.record)
    assert [type(entry) for entry in loaded.record.entries] == [Dropped]
    loaded.run.arrivals.append(returned("charge#1"))
    again = ActivationRecord()
    loaded.run.take_what_ended(again)
    loaded.run.note_what_may_be_under_way(again)
    assert [type(entry) for entry in again.entries] == [Late]


async def test_a_token_stays_with_a_run_that_is_left_while_its_code_waits_for_it():
    loaded = Loaded(listener)
    loaded.begin()
    loaded.run.arrivals.append(Completion("hook:approval#1", TokenClaimed(None)))
    loaded.run.take_what_ended(loaded.record)
    assert loaded.record.closes == ()
    assert loaded.record.entries == []


async def test_an_effect_that_was_interrupted_before_it_began_leaves_no_trace():
    loaded = Loaded(one_charge)
    loaded.begin()
    assert loaded.deliver(Completion("charge#1", Interrupted(begun=False))) == []
    assert [type(each) for each in loaded.deliver(Completion("charge#1", Interrupted(begun=True)))] == [Dropped]


async def test_messages_that_come_too_late_are_read_and_signals_recorded():
    loaded = Loaded(one_charge)
    late = [SignalMessage("s-1", "approval", Raw(b"1")), CancelRequest("c-1", 1), KeyTaken("k-1")]
    leftovers.dismiss(loaded.run, late, loaded.record)
    assert loaded.record.read == ("s-1", "c-1", "k-1")
    assert [entry.what for entry in loaded.record.entries] == ["received", "key_released"]
    [received, _] = loaded.record.entries
    assert isinstance(received, Received)
    assert received.left
