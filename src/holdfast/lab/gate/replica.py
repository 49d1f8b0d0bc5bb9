"""What every replica of the gate loads beside its work: accidents that no signal alone can cause, and a look at writes.

    SIGUSR1    sent to a stopped process: it had looked at its lease just before it was stopped. When it goes on it acts
               on that look, as any process may, and its late writes really reach the store
    SIGUSR2    it dies over its next message to another shard: its cause is committed, and it is not sent

Every write at a fence that the store refuses becomes a line of the log: the run is with another holder by now, or it
wants to end over a message that it has not read. Without such lines nothing is known about these guards: they may not
have been asked.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.adapters.machine import SystemClock
from holdfast.engine.duties.leaders import Leaders
from holdfast.engine.worker.lease import WorkerLease
from holdfast.kernel.changes import Change
from holdfast.kernel.runs import Fenced
from holdfast.kernel.times import Steady
from holdfast.lab.gate import ledger
from holdfast.lab.gate.evidence import STALE, TAKEN_BACK
from holdfast.lab.gate.pack import pack
from holdfast.stores.redis.commits import ChangeOutcome, Commits
from holdfast.stores.redis.encode_change import LeftMessage
from holdfast.stores.redis.net.client import Reply
from holdfast.stores.redis.outbox import Delivered, Outbox

__all__ = ["install", "pack"]

TICK_SECONDS = 0.1
_log = logging.getLogger("holdfast")


class Unaware(SystemClock):
    """The clock by which a process measures its leases: it leaves out the time for which it was stopped, if told so."""

    def __init__(self) -> None:
        self._left_out_ms = 0.0
        self._seen_steady_ms = self._before_steady_ms = super().steady_ms()

    def steady_ms(self) -> Steady:
        return Steady(super().steady_ms() - self._left_out_ms)

    def install(self) -> None:
        for kind in (WorkerLease, Leaders):
            kind.__init__ = self._given_to(kind.__init__)
        threading.Thread(target=self._watch, daemon=True).start()
        signal.signal(signal.SIGUSR1, self._was_stopped)

    def _given_to(self, init: Callable[..., None]) -> Callable[..., None]:
        def given(made: object, *args: Any, **options: Any) -> None:
            init(made, *args, **options | {"clock": self})

        return given

    def _watch(self) -> None:
        pause = threading.Event()
        while True:
            self._before_steady_ms, self._seen_steady_ms = self._seen_steady_ms, super().steady_ms()
            pause.wait(TICK_SECONDS)

    def _was_stopped(self, *_: object) -> None:
        # The thread above may have been faster: then the gap lies between the last two times that it looked.
        now_steady_ms = super().steady_ms()
        self._left_out_ms += max(now_steady_ms - self._seen_steady_ms, self._seen_steady_ms - self._before_steady_ms)


class DeathOverMail:
    """Kills its process between a commit and the delivery of what that has left for another shard."""

    def __init__(self) -> None:
        self._deliver = Outbox.deliver
        self._armed = False

    def install(self) -> None:
        async def deliver(outbox: Outbox, left: Sequence[LeftMessage]) -> list[Delivered]:
            if self._armed and left:
                os.kill(os.getpid(), signal.SIGKILL)
            return await self._deliver(outbox, left)

        setattr(Outbox, "deliver", deliver)  # noqa: B010 - a type checker would want our names, too
        signal.signal(signal.SIGUSR2, self._arm)

    def _arm(self, *_: object) -> None:
        self._armed = True


def _tell_of_refusals() -> None:
    read: Any = Commits._outcome  # noqa: SLF001 - the only place that sees every reply to a write

    def outcome(commits: Commits, change: Change, reply: Reply) -> ChangeOutcome:
        found: ChangeOutcome = read(commits, change, reply)
        guard = change.guard
        if isinstance(guard, Fenced) and not found.committed:
            is_stale = found.run is None or found.run.fence != guard
            fields = {"run_id": guard.run_id, "instance": f"-{os.getpid()}-", "epoch": guard.epoch}
            _log.warning(STALE if is_stale else TAKEN_BACK, extra={"holdfast": fields})
        return found

    setattr(Commits, "_outcome", outcome)  # noqa: B010 - see above


def install() -> None:
    """Only in a process of the gate's: signals and the clock belong to it."""
    Unaware().install()
    DeathOverMail().install()
    _tell_of_refusals()


if ledger.ADDRESS in os.environ:
    install()
