"""How time passes in a simulation: what is ready now, then upkeep if something is due, then a jump to what comes next.

If nothing is ready, due or to come, nothing will ever happen again: then those who wait are told, and told for what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.errors import UsageError
from holdfast.kernel.runs import ENDED, Run, Status
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.waits import waits_of
from holdfast.testing.effect_ledger import EffectLedger
from holdfast.testing.simulation.bridge import AwaitedReply, Pump
from holdfast.testing.simulation.calendar import Calendar
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.loop import FOREVER
from holdfast.testing.simulation.world import World

PATIENCE_MS = Millis(366 * 86_400_000)  # of virtual time, for one await
SHOWN = 5  # runs in a message


class SimulationStuck(UsageError):
    """A test waits for something that will never happen."""

    code = "simulation_stuck"


class PassingTime:
    """Lets the world of a simulation go on, for its pump."""

    def __init__(
        self,
        world: World,
        calendar: Calendar,
        ledger: EffectLedger,
        *,
        workers: Sequence[Host | None],
        lease_ms: Millis,
    ) -> None:
        self._world = world
        self._calendar = calendar
        self._ledger = ledger
        self._workers = workers
        # By then every part of a worker has had its turn, a lease has expired and another process leads.
        self._settle_seconds = 2 * lease_ms / 1000 + 15
        self._fault: Exception | None = None

    def note_fault(self, error: Exception) -> None:
        """Something was asked for that a simulation does not have."""
        self._fault = self._fault or error

    def go_on(self, is_over: Callable[[], bool], pump: Pump) -> None:
        """Let the world go on until it is over; over what is idle, the calendar is turned."""

        def is_enough() -> bool:
            return self._fault is not None or is_over()

        while not is_enough():
            if not self._world.run(is_enough, seconds=0):
                self._pass_time(is_enough, pump)
        if self._fault is not None:
            error, self._fault = self._fault, None
            raise error

    def _pass_time(self, is_over: Callable[[], bool], pump: Pump) -> None:
        """Nothing is ready at this moment: let the next one come."""
        calendar, world = self._calendar, self._world
        now_ms = calendar.now_ms()
        self._check_patience(pump.pending, now_ms)
        wanted = [each.until_ms for each in pump.pending if each.until_ms is not None]
        coming = list(calendar.comes_next())
        expires_at_ms = calendar.expires_next()
        later = [at_ms for at_ms in (*coming, *wanted) if at_ms > now_ms]
        is_due = any(at_ms <= now_ms for at_ms in coming)
        is_due |= bool(later or wanted) and expires_at_ms is not None and expires_at_ms <= now_ms
        upkeep_at = world.next_at()
        is_settled = world.now() - calendar.changed_at >= self._settle_seconds or upkeep_at == FOREVER
        if is_due and not is_settled:  # a part of a worker sees to it at its next turn
            world.run(is_over, seconds=upkeep_at - world.now())
            return
        if wanted and min(wanted) <= now_ms:
            pump.settle_moments(now_ms)
            return
        if not later:
            if not is_settled:
                world.run(is_over, seconds=upkeep_at - world.now())
                return
            raise SimulationStuck("nothing will ever happen again")
        next_at_ms = min(later)
        if expires_at_ms is not None and expires_at_ms > now_ms:
            next_at_ms = min(next_at_ms, expires_at_ms)
        calendar.turn(Millis(next_at_ms - now_ms))

    def _check_patience(self, pending: list[AwaitedReply], now_ms: Instant) -> None:
        """Something that goes on forever, such as an effect that is tried again and again, must not hang a test."""
        for each in pending:
            each.since_ms = now_ms if each.since_ms is None else each.since_ms
            if each.until_ms is None and now_ms - each.since_ms > PATIENCE_MS:
                raise SimulationStuck("a year has passed in this simulation, and what was waited for has not happened")

    def failure(self, error: BaseException, pending: AwaitedReply) -> BaseException:
        """What the caller is told who waits for this."""
        if not isinstance(error, SimulationStuck):
            return error
        runs = self._calendar.tables.runs
        unfinished = [run for run in runs.values() if run.status not in ENDED]
        meant = [run for run in unfinished if run.id == pending.about] or unfinished
        said = "; ".join(map(self._why, meant[:SHOWN])) or "there is no run that has not ended"
        more = f"; and {len(meant) - SHOWN} more" if len(meant) > SHOWN else ""
        return SimulationStuck(f"{error.message}: {said}{more}", hint=self._cure(meant))

    def _why(self, run: Run) -> str:
        key = "" if run.key is None else f" under key {run.key!r}"
        performed = [
            call
            for call in self._ledger
            if call.run == run.id and call.outcome == "under way" and run.owner is not None
        ]
        if performed:
            waits = [f"effect {call.effect}, attempt {call.attempt}, which does not return" for call in performed]
        else:
            waits = [str(wait) for wait in waits_of(run, served=(run.workflow,), now_ms=self._calendar.now_ms())]
        return f"run {run.id} of {run.workflow}{key} is {run.status} and waits for {', '.join(waits) or 'nothing'}"

    def _cure(self, runs: list[Run]) -> str:
        if not any(host is not None and host.is_running for host in self._workers):
            return "No worker runs: restart() starts those that were killed, unpause() those that were paused."
        if any(run.status is Status.BLOCKED for run in runs):
            return "A blocked run waits for a person: run.retry(), run.decide(...) or a correction of the code."
        return "Do first what it waits for, such as run.signal(...), or wait in a task of its own: asyncio.create_task."
