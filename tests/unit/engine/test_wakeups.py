"""Who is told when something happens, as a table."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.engine.api import apikeys
from holdfast.engine.wakeups import Wakeups, Woken
from holdfast.events import LeaseWasLost
from holdfast.ports.notices import ANYTHING, NOTHING, Notice, Ready
from tests.builders import NOW_MS, a_run

WORKFLOW = "shop.checkout"
SOON = Ready("default", WORKFLOW, NOW_MS + 40)  # ready at once for the sender, whose clock is ahead of ours
NOW = Ready("default", WORKFLOW, NOW_MS)
ELSEWHERE = Ready("another", WORKFLOW, NOW_MS)
UNKNOWN = Ready("default", "shop.other", NOW_MS)

ALL_WHO_WAIT = ["api_keys.forget", "waiters.look", "subscriptions.all_changed", "task_watch.look"]


class Part:
    """Remembers which of its methods are called."""

    def __init__(self, name: str, calls: list[str], *, shows: int = 0) -> None:
        self._name = name
        self._calls = calls
        self._shows = shows  # how many arguments of each call are remembered

    def __getattr__(self, method: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            shown = "".join(f" {argument}" for argument in arguments[: self._shows])
            self._calls.append(f"{self._name}.{method}{shown}")
            return 7

        return call


class Parts:
    """A process in which every part says that it was told."""

    def __init__(self, *, has_worker: bool = True, has_room: bool = True) -> None:
        self.calls: list[str] = []
        self.events: list[Any] = []
        self.planned_at_ms: int | None = None
        self.looks_on = False
        self.room = SimpleNamespace(has_room=has_room)
        part: Any = self._part
        self.wakeups = Wakeups(
            now_ms=lambda: NOW_MS,
            emit=self.events.append,
            waiters=part("waiters"),
            subscriptions=part("subscriptions", shows=2),
            task_watch=part("task_watch"),
            api_keys=part("api_keys"),
        )
        if has_worker:
            worker: Any = SimpleNamespace(
                claims=part("claims"),
                mail=part("mail"),
                slots=self.room,
                gate=part("gate"),
                drop_all=part("worker").drop_all,
            )
            waker: Any = SimpleNamespace(
                is_news=lambda wake_at_ms: self.planned_at_ms is None or wake_at_ms < self.planned_at_ms,
                note_claim=lambda: self.looks_on,
            )
            self.waker = waker
            lease: Any = SimpleNamespace(owner="w-1", age_ms=1234.4)
            self.wakeups.attach(Woken(worker, lease, waker, part("waking"), "default", frozenset({WORKFLOW})))

    def _part(self, name: str, *, shows: int = 0) -> Part:
        return Part(name, self.calls, shows=shows)


RUN = a_run("run-1", wake_at_ms=NOW_MS + 5)


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (lambda on: on.on_changed(["run-1"]), ["subscriptions.runs_changed ['run-1']"]),
        (lambda on: on.on_told(["run-1"]), ["mail.note_commit"]),
        (lambda on: on.on_settled(RUN), ["waiters.settled"]),
        (lambda on: on.on_settled(a_run("run-1", lane="x")), ["waiters.settled", "waking.nudge"]),
        (lambda on: on.on_lane_set(), ["claims.ring", "waking.nudge"]),
        (lambda on: on.on_gone(), ["waiters.look"]),
        (lambda on: on.on_pending(RUN), ["waking.nudge"]),
        (lambda on: on.on_pending(a_run("run-1", wake_at_ms=None)), []),
        (lambda on: on.on_wake_at(NOW_MS), ["waking.nudge"]),
        (lambda on: on.on_due(), ["claims.ring"]),
        (lambda on: on.on_lease_reliable(), ["claims.ring"]),
        (lambda on: on.on_lease_renewed(), ["claims.make_sure"]),
        (lambda on: on.on_lease_lost(), ["worker.drop_all"]),
        (lambda on: on.on_rescued(), ["claims.ring"]),
        (lambda on: on.on_rules_changed(), ["gate.look"]),
        (lambda on: on.on_relayed(), ["claims.ring", "mail.look_at_all"]),
    ],
)
def test_what_happens_here(happens: Callable[[Wakeups], None], told: list[str]) -> None:
    parts = Parts()
    happens(parts.wakeups)
    assert parts.calls == told
    client = Parts(has_worker=False)
    happens(client.wakeups)
    of_a_worker = ("mail", "claims", "waking", "worker", "gate")
    assert client.calls == [call for call in told if not call.startswith(of_a_worker)]


RULES_CHANGED = [  # of effects
    "waiters.look_at",
    "gate.look",
    "subscriptions.documents_changed default breaker",
    "subscriptions.anything_changed",
    "task_watch.look",
]


@pytest.mark.parametrize(
    ("notice", "told", "is_taken"),
    [
        (NOTHING, ["waiters.look_at"], False),
        (Notice(settled=("run-1",), runs=("run-1",)), ["waiters.look_at", "subscriptions.changed run-1"], False),
        (Notice(told=("run-1",)), ["waiters.look_at", "mail.note_notice"], False),
        (
            Notice(documents=(("default", "notes"),)),
            [
                "waiters.look_at",
                "subscriptions.documents_changed default notes",
                "subscriptions.anything_changed",
                "task_watch.look",
            ],
            False,
        ),
        (
            Notice(documents=(("", apikeys.KIND),)),
            [
                "waiters.look_at",
                "api_keys.forget",
                f"subscriptions.documents_changed  {apikeys.KIND}",
                "subscriptions.anything_changed",
                "task_watch.look",
            ],
            False,
        ),
        (Notice(ready=(NOW,)), ["waiters.look_at", "claims.ring"], True),
        (Notice(ready=(SOON,)), ["waiters.look_at", "waking.nudge"], True),
        (Notice(ready=(ELSEWHERE, UNKNOWN)), ["waiters.look_at"], False),
        (Notice(ready=(ELSEWHERE, NOW)), ["waiters.look_at", "claims.ring"], True),
        (Notice(documents=(("default", "breaker"),)), [*RULES_CHANGED], False),
        (ANYTHING, [*ALL_WHO_WAIT, "waking.nudge", "gate.look", "mail.look_at_all"], False),
    ],
)
def test_what_another_process_tells(notice: Notice, told: list[str], is_taken: bool) -> None:
    parts = Parts()
    assert parts.wakeups.on_notice(notice) is is_taken
    assert parts.calls == told
    client = Parts(has_worker=False)
    assert client.wakeups.on_notice(notice) is False
    assert client.calls == [call for call in told if not call.startswith(("mail", "claims", "waking", "gate"))]


@pytest.mark.parametrize(
    ("ready", "told"),
    [
        (NOW, []),
        (SOON, ["waking.nudge"]),  # it plans for it all the same: it may have room by then
    ],
)
def test_a_full_worker_passes_a_wake_up_on_whatever_its_clock_says(ready: Ready, told: list[str]) -> None:
    """Only one worker is given a wake-up. One that kept it, and then had no room, would swallow it."""
    parts = Parts(has_room=False)
    assert parts.wakeups.on_notice(Notice(ready=(ready,))) is False
    assert parts.calls == ["waiters.look_at", *told]


def test_what_is_due_rings_only_where_there_is_room() -> None:
    parts = Parts(has_room=False)
    parts.wakeups.on_due()
    assert parts.calls == []


def test_only_what_is_due_before_all_that_is_known_is_news_for_the_waker() -> None:
    parts = Parts()
    parts.planned_at_ms = NOW_MS + 100
    parts.wakeups.on_wake_at(NOW_MS + 100)
    assert parts.calls == []
    parts.wakeups.on_wake_at(NOW_MS + 99)
    assert parts.calls == ["waking.nudge"]


@pytest.mark.parametrize("looks_on", [False, True])
def test_what_is_claimed_makes_the_waker_look_on_unless_it_knows_what_is_next(looks_on: bool) -> None:
    parts = Parts()
    parts.looks_on = looks_on
    parts.wakeups.on_claimed()
    assert parts.calls == ["waking.nudge"] * looks_on


def test_a_lease_that_is_lost_is_told_with_what_it_cost() -> None:
    parts = Parts()
    parts.wakeups.on_lease_lost()
    assert parts.events == [LeaseWasLost("w-1", 7, 1234)]
