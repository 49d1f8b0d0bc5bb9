"""The work of one run, without a worker: each step that is begun comes back as one completion."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import Pack, Retry, workflow as wf
from holdfast.engine.code.commands import Command
from holdfast.engine.runs import in_flight
from holdfast.engine.runs.completions import ActivationRecord, Broken, Completion
from holdfast.engine.runs.heartbeats import Heartbeats
from holdfast.errors import LeaseLost, NotPerformed, UnknownWorkflow
from holdfast.events import EffectBegan
from holdfast.kernel.changes import Committed, Refused
from holdfast.kernel.journal import Other
from holdfast.kernel.steps import (
    DENIED,
    WATCHING,
    ChildAdmitted,
    Confirmed,
    Event,
    Expired,
    Interrupted,
    NotAdmitted,
    Raised,
    Returned,
    TokenClaimed,
    Undecided,
)
from tests.builders import a_value, running
from tests.unit.engine.runs.hosts import FakeHost, a_history, load, nothing_is_left_in_memory

pytestmark = pytest.mark.usefixtures(nothing_is_left_in_memory.__name__)
pack = Pack("shop")


@pack.effect
async def charge(amount: int) -> int:
    return amount + 1


@pack.effect
def charge_in_thread(amount: int) -> int:
    return amount + 1


@pack.effect
async def decline(amount: int) -> int:
    raise ValueError(f"declined {amount}")


HANGING: list[int] = []


@pack.effect
async def hang(amount: int) -> int:
    HANGING.append(amount)
    await asyncio.Event().wait()
    return amount


@pack.effect(retry=Retry(deadline="1ms"))
async def too_late(amount: int) -> int:
    return amount


def _ask(key: str) -> str:
    if key.endswith("o-2"):
        raise NotPerformed(key)
    if key.endswith("o-3"):
        raise OSError("no route")
    return f"receipt of {key}"


@pack.effect(safety="once", reconcile=_ask, key="wire:{order}")
async def wire(order: str) -> str: ...


@pack.workflow
async def pay(amount: int) -> int: ...


@pack.workflow
async def performs(name: str) -> Any:
    return await {each.step_name: each for each in (charge, charge_in_thread, decline, hang, too_late)}[name](7)


@pack.workflow
async def wires(order: str) -> str:
    return await wire(order)


@pack.workflow
async def parent() -> int:
    return await pay(7)


@pack.workflow
async def listens() -> Any:
    return await wf.hook("approval", token="t-1")


async def until_it_hangs() -> None:
    while not HANGING:
        await asyncio.sleep(0)


class InFlight:
    """A run whose first step is about to be begun, and what comes back."""

    def __init__(self, workflow: Any, *args: Any) -> None:
        HANGING.clear()
        self.host = FakeHost()
        self.completions: asyncio.Queue[Completion] = asyncio.Queue()
        history = a_history(workflow, args=args)
        self.run = load(self.host, history, workflow, self.completions.put_nowait)
        self.steps = self.run.in_flight
        [self.command] = self.run.to_begin(ActivationRecord())

    def begin(self) -> Command:
        self.steps.begin(self.command)
        return self.command

    async def completion(self) -> Completion:
        async with asyncio.timeout(30):
            return await self.completions.get()

    async def event(self) -> Event | Broken:
        """What comes of the step."""
        self.begin()
        completion = await self.completion()
        assert completion.step == self.command.step
        return completion.event


@pytest.mark.parametrize("name", ["charge", "charge_in_thread"])
async def test_what_an_effect_returns_comes_back(name: str):
    work = InFlight(performs, name)
    assert await work.event() == Returned(a_value(8))
    assert [type(event) for event in work.host.events] == [EffectBegan]
    assert not work.steps.has_begun(work.command.step)  # it has come to its end


async def test_so_does_what_it_raises():
    event = await InFlight(performs, "decline").event()
    assert isinstance(event, Raised)
    assert isinstance(event.error, ValueError)
    assert event.failure.message == "declined 7"
    assert not event.interrupted


async def test_an_attempt_says_how_long_it_took():
    work = InFlight(performs, "charge")
    work.begin()
    completion = await work.completion()
    assert completion.took_ms is not None
    assert completion.took_ms >= 0


async def test_no_attempt_is_begun_after_the_deadline():
    work = InFlight(performs, "too_late")
    work.host.store.at_ms += 1
    event = await work.event()
    assert isinstance(event, Expired)
    assert "before attempt 1 could begin" in event.failure.message
    assert work.host.events == []


async def test_an_effect_that_is_interrupted_comes_back_as_begun():
    work = InFlight(performs, "hang")
    work.begin()
    await until_it_hangs()
    assert work.steps.has_begun(work.command.step)
    assert work.steps.are_under_way()
    work.steps.interrupt(work.command.step)
    assert (await work.completion()).event == Interrupted(begun=True)


async def test_one_that_is_interrupted_before_its_first_step_was_not_begun():
    work = InFlight(performs, "hang")
    work.begin()
    work.steps.interrupt(work.command.step)
    assert (await work.completion()).event == Interrupted(begun=False)


async def test_nothing_comes_back_to_a_run_that_is_closed():
    work = InFlight(performs, "hang")
    work.begin()
    [task] = work.steps.tasks.values()
    await asyncio.sleep(0)
    work.steps.close()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert work.completions.empty()
    assert not work.steps.tasks


@pytest.mark.parametrize(
    ("order", "event"),
    [
        ("o-1", Confirmed(a_value("receipt of wire:o-1"))),
        ("o-2", DENIED),
        ("o-3", Undecided("reconcile raised OSError: no route")),
    ],
)
async def test_what_is_in_doubt_is_asked_about_and_not_called(order: str, event: Event):
    work = InFlight(wires, order)
    work.command.reconciles = True
    assert await work.event() == event
    assert work.host.events == []  # nothing was begun


@pytest.mark.parametrize(
    ("child", "event"),
    [
        ((running("child-1", key="pay:1"), True), ChildAdmitted("child-1", "pay:1", created=True)),
        ((running("child-1", key=None), False), ChildAdmitted("child-1", "", created=False)),
    ],
)
async def test_a_child_is_admitted(child: Any, event: Event):
    work = InFlight(parent)
    work.host.child = child
    assert await work.event() == event


async def test_a_child_that_cannot_exist_is_a_failure():
    work = InFlight(parent)
    work.host.child = UnknownWorkflow("shop.pay")
    event = await work.event()
    assert isinstance(event, NotAdmitted)
    assert event.failure.type.endswith("UnknownWorkflow")


async def test_a_child_that_exists_is_watched():
    work = InFlight(parent)
    work.command.child_id = "child-1"
    assert await work.event() == WATCHING
    work.host.watchable = False
    event = await work.event()
    assert isinstance(event, NotAdmitted)
    assert "child-1" in event.failure.message


async def test_a_fault_of_the_store_breaks_the_work_and_is_no_outcome():
    work = InFlight(parent)
    work.command.child_id, work.host.watchable = "child-1", RuntimeError("disk")
    event = await work.event()
    assert isinstance(event, Broken)
    assert str(event.error) == "disk"


async def test_work_on_a_lost_lease_ends_without_a_word():
    work = InFlight(parent)
    work.command.child_id, work.host.watchable = "child-1", LeaseLost("gone")
    work.begin()
    [task] = work.steps.tasks.values()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert work.completions.empty()


async def test_a_token_is_claimed_or_held_by_another_run():
    work = InFlight(listens)
    work.host.answer = Committed(None)
    assert await work.event() == TokenClaimed(None)
    [change] = work.host.changes
    assert change.id == "run-1/hook:approval#1"
    work.host.answer = Refused(running("run-2", key="order:2"))
    assert await work.event() == TokenClaimed(Other("run-2", "shop.checkout", "order:2"))


async def test_where_this_very_run_stands_in_the_way_nothing_is_said():
    work = InFlight(listens)
    work.host.answer = Refused(running("run-1"))  # another worker has it: the next commit is refused, too
    work.begin()
    [task] = work.steps.tasks.values()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert work.completions.empty()


async def test_a_heartbeat_of_an_attempt_is_committed_from_any_thread():
    work = InFlight(performs, "hang")
    work.begin()
    await until_it_hangs()
    [scope] = work.steps._attempts.values()
    beat = threading.Thread(target=scope.beat, args=("half",))  # pyright: ignore[reportAttributeAccessIssue]
    beat.start()
    await asyncio.to_thread(beat.join)
    await work.host.committed.wait()
    [change] = work.host.changes
    assert [each.details for each in change.beats] == [b'"half"']
    assert scope.last_beat() == "half"  # pyright: ignore[reportAttributeAccessIssue]
    work.steps.close()


async def test_effects_in_two_threads_that_beat_at_once_share_the_heartbeats_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of them would give two writes the same id, and the store would take the second for the first."""
    made: list[Heartbeats] = []
    is_second = threading.Event()

    class SlowHeartbeats(Heartbeats):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)
            if len(made) == 1:
                is_second.wait(0.2)  # the other thread has the time to make one, too
            else:
                is_second.set()

    monkeypatch.setattr(in_flight, "Heartbeats", SlowHeartbeats)
    steps = InFlight(performs, "charge").steps
    both = await asyncio.gather(*(asyncio.to_thread(steps.heartbeats) for _ in range(2)))
    assert both == made * 2
