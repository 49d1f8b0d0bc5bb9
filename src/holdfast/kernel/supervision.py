"""Supervision: a fixed number of processes is kept alive, and all of them end together.

    a process is  that means                             when it ends                        when all are to stop
    ────────────  ─────────────────────────────────────  ──────────────────────────────────  ────────────────────
    WAITING       not started: the first one goes ahead  -                                   GONE
    STARTING      started, and not ready yet             RESTING, or all is given up         STOPPING
    READY         it has said that it is ready           STARTING, RESTING, or all given up  STOPPING
    RESTING       to be started again, a little later    -                                   GONE
    STOPPING      told to stop                           GONE; STARTING if it is restarted   STOPPING
    KILLED        it did not stop within the grace       GONE; STARTING if it is restarted   KILLED
    GONE          ended, and not to be started again     -                                   GONE

Rules
- The first process starts alone, and the others when it is ready: it makes the store's file or brings it up to date,
  and what is wrong with the settings is said once.
- A process that was ready for long is started again at once. One that ended soon rests first, longer each time. If it
  ends soon several times in a row, all is given up: a supervisor that hides a crash loop keeps those who watch over it
  from noticing.
- A process that finds its settings wrong before all were ready is not started again: it would find the same.
- Asked to stop, each process is told once, and killed after the grace. Asked again, all are killed at once; but a
  terminal and a parent may both pass one Ctrl-C on, so a second request within a moment is taken for the first.
- Asked to restart, one process after the other is stopped and started, each when all are ready.
"""

from __future__ import annotations

from enum import Enum
from signal import SIGINT, SIGTERM, Signals
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from holdfast.kernel.times import Millis, Steady

USAGE = 2  # the exit code of a command whose settings cannot work
STOPPED_BY = (SIGINT, SIGTERM)  # they end a process that is too young to handle them, or too old
SIGNAL_NAMES = {each.value: each.name for each in Signals}


class ProcessState(Enum):
    """What a supervised process is doing."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTING = "resting"
    STOPPING = "stopping"
    KILLED = "killed"
    GONE = "gone"


ALIVE = (ProcessState.STARTING, ProcessState.READY, ProcessState.STOPPING, ProcessState.KILLED)


class SupervisionPolicy(Struct, frozen=True, kw_only=True):
    """How patient a supervisor is."""

    soon_ms: Millis = Millis(10_000)  # a process that ends earlier than this after it was ready has ended soon
    failures_max: int = 5  # in a row, of one process
    rest_ms: Millis = Millis(500)  # after the first of them; twice as long after each further one
    rest_ms_max: Millis = Millis(10_000)
    grace_ms: Millis = Millis(20_000)  # one process stops within 15 s; the rest is for a machine that is busy
    again_ms: Millis = Millis(500)  # a request to stop that comes within this time of another one is the same


class SupervisedProcess(Struct, frozen=True):
    """One of the processes; its number is its place in the group."""

    state: ProcessState = ProcessState.WAITING
    ready_since_steady_ms: Steady | None = None
    due_steady_ms: Steady | None = None  # when a resting one is started, or a stopping one killed
    failures: int = 0


# -- what happens


class HasBegun(Struct, frozen=True):
    """The supervisor has started."""


class IsReady(Struct, frozen=True):
    """A process has said that it is ready."""

    number: int


class HasEnded(Struct, frozen=True):
    """A process has ended: with an exit code, or by the signal whose number is its negative."""

    number: int
    code: int


class StopAsked(Struct, frozen=True):
    """The supervisor was asked to stop."""


class RestartAsked(Struct, frozen=True):
    """The supervisor was asked to restart its processes one after the other."""


class TimeUp(Struct, frozen=True):
    """It may be time for something: see `next_due`."""


Happening = HasBegun | IsReady | HasEnded | StopAsked | RestartAsked | TimeUp


# -- what is to be done


class Launch(Struct, frozen=True):
    """Start a process."""

    number: int


class Terminate(Struct, frozen=True):
    """Tell a process to stop in order."""

    number: int


class Kill(Struct, frozen=True):
    """End a process by force."""

    number: int


class ReportEnd(Struct, frozen=True):
    """Say that a process has ended, and when it is started again."""

    number: int
    code: int
    delay_ms: Millis


class Announce(Struct, frozen=True):
    """Say that all processes are ready."""


class Finish(Struct, frozen=True):
    """End the supervisor with this exit code. `reason` says why it gave up, if no process has said so itself."""

    code: int
    reason: str = ""


Deed = Launch | Terminate | Kill | ReportEnd | Announce | Finish


class ProcessGroup(Struct, frozen=True):
    """The processes of a supervisor, and what has become of them so far."""

    processes: tuple[SupervisedProcess, ...]
    is_announced: bool = False
    to_restart: frozenset[int] = frozenset()
    stopping_since_steady_ms: Steady | None = None
    finish: Finish = Finish(0)  # how the supervisor ends, once all processes are gone


class Supervised(Struct, frozen=True):
    """The group as it is now, and what is to be done about it, in this order."""

    group: ProcessGroup
    deeds: tuple[Deed, ...] = ()


def group_of(count: int) -> ProcessGroup:
    """So many processes, of which none is started yet."""
    return ProcessGroup(tuple(SupervisedProcess() for _ in range(count)))


def decide(
    group: ProcessGroup, happening: Happening, *, now_steady_ms: Steady, policy: SupervisionPolicy
) -> Supervised:
    """What is to be done about what has happened."""
    match happening:
        case HasBegun():
            return _launch(group, [0])
        case IsReady(number):
            return _on_ready(group, number, now_steady_ms, policy)
        case HasEnded():
            return _on_end(group, happening, now_steady_ms, policy)
        case StopAsked():
            return _on_stop(group, now_steady_ms, policy)
        case RestartAsked():
            if not group.is_announced or group.stopping_since_steady_ms is not None:
                return Supervised(group)
            everyone = frozenset(range(len(group.processes)))
            return _restart_next(replace(group, to_restart=everyone), now_steady_ms, policy)
        case TimeUp():
            return _on_time(group, now_steady_ms, policy)
        case _:
            assert_never(happening)


def next_due(group: ProcessGroup, policy: SupervisionPolicy) -> Steady | None:
    """When `TimeUp` is to be told; None if nothing waits for a time."""
    dues = [each.due_steady_ms for each in group.processes if each.due_steady_ms is not None]
    if group.stopping_since_steady_ms is not None and _numbers(group, ProcessState.STOPPING):
        dues.append(group.stopping_since_steady_ms + policy.grace_ms)
    return min(dues, default=None)


def _on_ready(group: ProcessGroup, number: int, now_steady_ms: Steady, policy: SupervisionPolicy) -> Supervised:
    process = group.processes[number]
    if process.state is not ProcessState.STARTING:
        return Supervised(group)  # it was told to stop meanwhile
    group = _with(group, number, replace(process, state=ProcessState.READY, ready_since_steady_ms=now_steady_ms))
    if waiting := _numbers(group, ProcessState.WAITING):
        return _launch(group, waiting)
    if not _are_all_ready(group):
        return Supervised(group)
    if not group.is_announced:
        return Supervised(replace(group, is_announced=True), (Announce(),))
    return _restart_next(group, now_steady_ms, policy)


def _on_end(group: ProcessGroup, ended: HasEnded, now_steady_ms: Steady, policy: SupervisionPolicy) -> Supervised:
    number, process = ended.number, group.processes[ended.number]
    if group.stopping_since_steady_ms is not None:
        group = _with(group, number, SupervisedProcess(ProcessState.GONE))
        if group.finish.code == 0:
            group = replace(group, finish=Finish(_exit_code(ended.code)))
        return _finish_if_over(group)
    if process.state in (ProcessState.STOPPING, ProcessState.KILLED):
        return _launch(_with(group, number, SupervisedProcess()), [number])
    since_steady_ms = process.ready_since_steady_ms
    if since_steady_ms is not None and now_steady_ms - since_steady_ms >= policy.soon_ms:
        again = _launch(_with(group, number, SupervisedProcess()), [number])
        return Supervised(again.group, (ReportEnd(number, ended.code, Millis(0)), *again.deeds))
    return _on_failure(group, ended, now_steady_ms, policy)


def _on_failure(group: ProcessGroup, ended: HasEnded, now_steady_ms: Steady, policy: SupervisionPolicy) -> Supervised:
    """A process has ended soon, or was never ready."""
    number, process = ended.number, group.processes[ended.number]
    failures = process.failures + 1
    group = _with(group, number, SupervisedProcess(ProcessState.GONE))
    if ended.code == USAGE and not group.is_announced and process.state is ProcessState.STARTING:
        return _stop_all(replace(group, finish=Finish(USAGE)), now_steady_ms)
    if failures >= policy.failures_max:
        reason = (
            f"process {number + 1} of {len(group.processes)} ended {failures} times in a row "
            f"soon after its start, the last time {how_ended(ended.code)}"
        )
        return _stop_all(replace(group, finish=Finish(1, reason)), now_steady_ms)
    delay_ms = Millis(min(policy.rest_ms * 2 ** (failures - 1), policy.rest_ms_max))
    due_steady_ms = now_steady_ms + delay_ms
    resting = SupervisedProcess(ProcessState.RESTING, due_steady_ms=due_steady_ms, failures=failures)
    return Supervised(_with(group, number, resting), (ReportEnd(number, ended.code, delay_ms),))


def _on_stop(group: ProcessGroup, now_steady_ms: Steady, policy: SupervisionPolicy) -> Supervised:
    if group.stopping_since_steady_ms is None:
        return _stop_all(group, now_steady_ms)
    if now_steady_ms - group.stopping_since_steady_ms < policy.again_ms:
        return Supervised(group)
    return _kill(group, _numbers(group, ProcessState.STOPPING))


def _on_time(group: ProcessGroup, now_steady_ms: Steady, policy: SupervisionPolicy) -> Supervised:
    since_steady_ms = group.stopping_since_steady_ms
    if since_steady_ms is not None:
        is_over = now_steady_ms - since_steady_ms >= policy.grace_ms
        return _kill(group, _numbers(group, ProcessState.STOPPING) if is_over else [])
    due = [
        number
        for number, each in enumerate(group.processes)
        if each.due_steady_ms is not None and each.due_steady_ms <= now_steady_ms
    ]
    launched = _launch(group, [number for number in due if group.processes[number].state is ProcessState.RESTING])
    killed = _kill(launched.group, [n for n in due if group.processes[n].state is ProcessState.STOPPING])
    return Supervised(killed.group, (*launched.deeds, *killed.deeds))


def _restart_next(group: ProcessGroup, now_steady_ms: Steady, policy: SupervisionPolicy) -> Supervised:
    """Stop the next process that is to be restarted, if all are ready."""
    if not group.to_restart or not _are_all_ready(group):
        return Supervised(group)
    number = min(group.to_restart)
    due_steady_ms = now_steady_ms + policy.grace_ms
    stopping = SupervisedProcess(ProcessState.STOPPING, due_steady_ms=due_steady_ms)
    group = replace(_with(group, number, stopping), to_restart=group.to_restart - {number})
    return Supervised(group, (Terminate(number),))


def _stop_all(group: ProcessGroup, now_steady_ms: Steady) -> Supervised:
    """Tell each process to stop that was not told yet."""
    told = _numbers(group, ProcessState.STARTING, ProcessState.READY)
    processes = tuple(
        SupervisedProcess(ProcessState.STOPPING)
        if number in told
        else SupervisedProcess(each.state if each.state in ALIVE else ProcessState.GONE)
        for number, each in enumerate(group.processes)
    )
    group = replace(group, processes=processes, stopping_since_steady_ms=now_steady_ms)
    over = _finish_if_over(group)
    return Supervised(over.group, (*map(Terminate, told), *over.deeds))


def _finish_if_over(group: ProcessGroup) -> Supervised:
    return Supervised(group) if _numbers(group, *ALIVE) else Supervised(group, (group.finish,))


def _launch(group: ProcessGroup, numbers: list[int]) -> Supervised:
    for number in numbers:
        starting = SupervisedProcess(ProcessState.STARTING, failures=group.processes[number].failures)
        group = _with(group, number, starting)
    return Supervised(group, tuple(map(Launch, numbers)))


def _kill(group: ProcessGroup, numbers: list[int]) -> Supervised:
    for number in numbers:
        group = _with(group, number, SupervisedProcess(ProcessState.KILLED))
    return Supervised(group, tuple(map(Kill, numbers)))


def _with(group: ProcessGroup, number: int, process: SupervisedProcess) -> ProcessGroup:
    processes = (*group.processes[:number], process, *group.processes[number + 1 :])
    return replace(group, processes=processes)


def _numbers(group: ProcessGroup, *states: ProcessState) -> list[int]:
    return [number for number, each in enumerate(group.processes) if each.state in states]


def _are_all_ready(group: ProcessGroup) -> bool:
    return all(each.state is ProcessState.READY for each in group.processes)


def _exit_code(code: int) -> int:
    """What a process that was told to stop says about the whole: nothing is wrong, or the code to end with."""
    if code >= 0:
        return code
    return 0 if -code in STOPPED_BY else 1


def how_ended(code: int) -> str:
    """An exit code in words."""
    return f"by {SIGNAL_NAMES.get(-code, f'signal {-code}')}" if code < 0 else f"with exit code {code}"
