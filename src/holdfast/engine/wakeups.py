"""Who is told when something happens: one method for each thing that can happen, in this process or in another.

    what happens                                told
    here   a commit changed a run               those who follow the run
           a commit brought runs messages       mail
           a commit works again after trouble   all of them: what was made meanwhile, nothing tells
           a run has ended, or is blocked       those who wait for it
           a run has left the memory            those who wait: it may end elsewhere from now on
           a run is to be woken at a time       the waker, if that is before all that it knows of
           runs are claimed                     the waker, unless it knows what is next
    timer  a run is due                         claims, if there is room; a slot that becomes free rings by itself
    lease  can be relied on again               claims
           was renewed                          claims: make sure that all that is held is executed
           is lost                              every run is dropped; those who wait
    duty   runs were rescued                    claims
           messages were relayed                claims and mail: no notice tells us of these messages
    notice runs have ended                      those who wait for one of them
           runs have changed                    those who follow one of them
           documents have changed               those who follow one of this kind, tasks, API keys
           a run was handed over                claims: make sure that all that is held is executed
           runs got messages                    mail
           runs are ready                       claims or the waker, if they are served here
           it is not known what                 all of them

A notice that runs are ready goes to one worker of many. So `on_notice` returns whether this process has use for it:
False makes the bus pass it on to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from holdfast import events
from holdfast.engine.api import apikeys
from holdfast.engine.api.apikeys import ApiKeys
from holdfast.engine.api.subscriptions import Subscriptions
from holdfast.engine.api.waiters import Waiters
from holdfast.engine.duties.periodic import Periodic
from holdfast.engine.remote.task_watch import TaskWatch
from holdfast.engine.worker.claims import Claims
from holdfast.engine.worker.lease import WorkerLease
from holdfast.engine.worker.mail import Mail
from holdfast.engine.worker.slots import Slots
from holdfast.engine.worker.waker import Waker
from holdfast.events import Emit
from holdfast.kernel import handovers
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant, Millis
from holdfast.ports.notices import ANYTHING, Notice, Ready


class WokenWorker(Protocol):
    """The worker, as far as it is told something."""

    claims: Claims
    mail: Mail
    slots: Slots

    def drop_all(self) -> int:
        """Forget every run. Returns how many there were."""
        ...


class Woken(NamedTuple):
    """What a process has only if it executes runs."""

    worker: WokenWorker
    lease: WorkerLease
    waker: Waker
    waking: Periodic  # ticks the waker
    namespace: str
    workflows: frozenset[str]


class Wakeups:
    """Tells the parts of one process. Without a worker it tells those who wait and follow, and no other part."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], Instant],
        emit: Emit,
        waiters: Waiters,
        subscriptions: Subscriptions,
        task_watch: TaskWatch,
        api_keys: ApiKeys,
    ) -> None:
        self._now_ms = now_ms
        self._emit = emit
        self._waiters = waiters
        self._subscriptions = subscriptions
        self._task_watch = task_watch
        self._api_keys = api_keys
        self._woken: Woken | None = None
        self.on_changed = subscriptions.runs_changed

    def attach(self, woken: Woken) -> None:
        """Runs are executed here. It comes later than all else: the worker needs someone to tell, too."""
        self._woken = woken

    # -- here

    def on_told(self, run_ids: Collection[str]) -> None:
        if self._woken is not None:
            self._woken.worker.mail.note_commit(run_ids)

    def on_unsure(self) -> None:
        self.on_notice(ANYTHING)

    def on_settled(self, run: Run) -> None:
        self._waiters.settled(run)
        if run.lane and self._woken is not None:
            self._woken.waking.nudge()

    def on_gone(self) -> None:
        self._waiters.look()

    def on_pending(self, run: Run) -> None:
        if run.wake_at_ms is not None:
            self.on_wake_at(run.wake_at_ms)

    def on_wake_at(self, wake_at_ms: Instant) -> None:
        if self._woken is not None and self._woken.waker.is_news(wake_at_ms):
            self._woken.waking.nudge()

    def on_claimed(self) -> None:
        if self._woken is not None and self._woken.waker.note_claim():
            self._woken.waking.nudge()

    # -- timer, lease and duties

    def on_due(self) -> None:
        if self._woken is not None and self._woken.worker.slots.has_room:
            self._woken.worker.claims.ring()

    def on_lease_reliable(self) -> None:
        if self._woken is not None:
            self._woken.worker.claims.ring()

    def on_lease_renewed(self) -> None:
        if self._woken is not None:
            self._woken.worker.claims.make_sure()

    def on_lease_lost(self) -> None:
        if self._woken is not None:
            lease = self._woken.lease
            age_ms = Millis(round(lease.age_ms))
            self._emit(events.LeaseWasLost(lease.owner, self._woken.worker.drop_all(), age_ms))

    def on_rescued(self) -> None:
        if self._woken is not None:
            self._woken.worker.claims.ring()

    def on_relayed(self) -> None:
        if self._woken is not None:
            self._woken.worker.claims.ring()
            self._woken.worker.mail.look_at_all()

    # -- notices

    def on_notice(self, notice: Notice) -> bool:
        """Another process has changed something. False if it is work, and there is no room for it here."""
        if notice.everything:
            self._tell_everything()
        else:
            self._tell(notice)
        if self._woken is None:
            return False
        if notice.everything:
            self._woken.waking.nudge()
            self._woken.worker.mail.look_at_all()
        elif notice.told:
            self._woken.worker.mail.note_notice(notice.told)
        return self._take(self._woken, notice.ready)

    def _tell_everything(self) -> None:
        self._api_keys.forget()
        self._waiters.look()
        self._subscriptions.all_changed()
        self._task_watch.look()

    def _tell(self, notice: Notice) -> None:
        self._waiters.look_at(notice.settled)
        for run_id in notice.runs:
            self._subscriptions.changed(run_id)
        for namespace, kind in notice.documents:
            if kind == handovers.CALL and self._woken is not None and namespace == self._woken.namespace:
                self._woken.worker.claims.make_sure()
            if kind == apikeys.KIND:
                self._api_keys.forget()
            self._subscriptions.documents_changed(namespace, kind)
            self._subscriptions.anything_changed()
            self._task_watch.look()

    def _take(self, woken: Woken, ready: tuple[Ready, ...]) -> bool:
        """Have what is ready and served here claimed. False if none is, or if there is no room for it."""
        slots, now_ms = woken.worker.slots, self._now_ms()
        mine = [each for each in ready if each.namespace == woken.namespace and each.workflow in woken.workflows]
        for each in mine:
            # Also what was ready at once for the process that tells of it: its clock may be ahead of ours.
            if each.wake_at_ms > now_ms:
                self.on_wake_at(each.wake_at_ms)
            elif slots.has_room:
                woken.worker.claims.ring()
        # Judged by the room alone, and not by the clock: a full worker that plans for a wake-up which only it was
        # given would keep it from those that have room.
        return bool(mine) and slots.has_room
