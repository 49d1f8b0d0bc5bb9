"""The supervisor with small programs for processes, so that what a whole replica hardly ever does can be tried."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from threading import Event as Flag

import pytest

from holdfast.adapters.machine import SystemClock
from holdfast.cli.lifeline import Lifeline
from holdfast.cli.supervisor import Supervisor
from holdfast.events import Event, ProcessEnded, ProcessKilled, ProcessStarted
from holdfast.kernel.supervision import Finish, StopAsked, SupervisionPolicy
from tests.cli.conftest import DEADLINE, ROOT, until

FAST = SupervisionPolicy(soon_ms=60_000, failures_max=3, rest_ms=1, rest_ms_max=2, grace_ms=60_000, again_ms=0)
BEGIN = "import os, signal, sys, time; from holdfast.cli.lifeline import inherited; lifeline = inherited()\n"
OBEYS = (
    BEGIN + "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); lifeline.say_ready()\nwhile True: time.sleep(60)"
)
DEAF = BEGIN + "signal.signal(signal.SIGTERM, signal.SIG_IGN); lifeline.say_ready()\nwhile True: time.sleep(60)"


class Watched:
    """A supervisor that runs in this process, and what it has said."""

    def __init__(self, count: int, command: Sequence[str], policy: SupervisionPolicy = FAST) -> None:
        self.events: list[Event] = []
        self.pids: list[int] = []
        self.ready = asyncio.Event()
        self.supervisor = Supervisor(
            count, command, clock=SystemClock(), emit=self.events.append, on_ready=self._on_ready, policy=policy
        )
        self.task = asyncio.create_task(self.supervisor.run())

    def _on_ready(self, pids: Sequence[int]) -> None:
        self.pids += pids
        self.ready.set()

    def stop(self) -> None:
        self.supervisor._happenings.put_nowait(StopAsked())

    async def finish(self) -> Finish:
        async with asyncio.timeout(DEADLINE):
            return await self.task

    async def until_ready(self) -> None:
        async with asyncio.timeout(DEADLINE):
            await self.ready.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(0.02)

    def told(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


Supervise = Callable[..., Watched]


@pytest.fixture
async def supervise(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervise]:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/src:{ROOT}")
    started: list[Watched] = []

    def start(count: int, program: str, **options: SupervisionPolicy) -> Watched:
        started.append(Watched(count, [sys.executable, "-c", program], **options))
        return started[-1]

    yield start
    for watched in started:
        watched.task.cancel()
        await asyncio.gather(watched.task, return_exceptions=True)
        assert [pid for pid in watched.pids if is_alive(pid)] == []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_all_processes_are_told_to_stop_and_none_is_left(supervise):
    watched = supervise(3, OBEYS)
    await watched.until_ready()
    assert len(set(watched.pids)) == 3
    watched.stop()
    assert await watched.finish() == Finish(0)
    assert watched.told(ProcessKilled) == []


async def test_a_signal_to_the_supervisor_stops_all(supervise):
    watched = supervise(2, OBEYS)
    await watched.until_ready()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await watched.finish() == Finish(0)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.StringIO())


async def test_sighup_replaces_every_process_by_a_new_one(supervise, no_terminal):
    watched = supervise(2, OBEYS)
    await watched.until_ready()
    os.kill(os.getpid(), signal.SIGHUP)
    await watched.until(lambda: len(watched.told(ProcessStarted)) == 4)
    assert [event.number for event in watched.told(ProcessStarted)] == [1, 2, 1, 2]
    assert not any(map(is_alive, watched.pids))
    watched.stop()
    assert await watched.finish() == Finish(0)


async def test_sighup_means_that_the_terminal_is_gone_where_there_is_one(supervise, no_terminal, monkeypatch):
    terminal, ours = pty.openpty()
    with os.fdopen(ours, "w") as stream, os.fdopen(terminal):
        monkeypatch.setattr(sys, "stderr", stream)
        watched = supervise(2, OBEYS)
        await watched.until_ready()
        os.kill(os.getpid(), signal.SIGHUP)
        assert await watched.finish() == Finish(0)


async def test_nohup_is_heeded(supervise, no_terminal, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        watched = supervise(2, OBEYS)
        await watched.until_ready()
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await watched.finish() == Finish(0)
        assert len(watched.told(ProcessStarted)) == 2
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_process_that_is_killed_is_started_again(supervise):
    watched = supervise(2, OBEYS)
    await watched.until_ready()
    os.kill(watched.pids[1], signal.SIGKILL)
    await watched.until(lambda: len(watched.told(ProcessStarted)) == 3)
    assert watched.told(ProcessEnded) == [ProcessEnded(2, watched.pids[1], "by SIGKILL", 1)]
    watched.stop()
    assert await watched.finish() == Finish(0)


async def test_a_process_that_does_not_stop_is_killed_after_the_grace(supervise):
    watched = supervise(2, DEAF, policy=SupervisionPolicy(grace_ms=1))
    await watched.until_ready()
    watched.stop()
    assert await watched.finish() == Finish(1)
    assert {event.pid for event in watched.told(ProcessKilled)} == set(watched.pids)


async def test_a_second_request_to_stop_kills(supervise):
    watched = supervise(2, DEAF)
    await watched.until_ready()
    watched.stop()
    watched.stop()
    assert await watched.finish() == Finish(1)


async def test_a_crash_loop_ends_and_says_what_it_was(supervise):
    watched = supervise(2, "raise SystemExit(3)")
    finish = await watched.finish()
    assert finish.code == 1
    assert "process 1 of 2 ended 3 times in a row soon after its start, the last time with exit code 3" in finish.reason
    assert [event.delay_ms for event in watched.told(ProcessEnded)] == [1, 2]


async def test_a_crash_loop_of_one_process_stops_the_others(supervise, tmp_path):
    program = f"{OBEYS.replace('lifeline.say_ready()', 'first()')}"
    # Only the first one that comes lives.
    first = (
        "def first():\n"
        f"    try: os.mkdir({str(tmp_path / 'first')!r})\n"
        "    except FileExistsError: os._exit(7)\n"
        "    lifeline.say_ready()\n"
    )
    watched = supervise(2, BEGIN + first + program.removeprefix(BEGIN))
    finish = await watched.finish()
    assert "process 2 of 2" in finish.reason
    assert watched.told(ProcessKilled) == []


async def test_a_program_that_cannot_be_started_counts_as_one_that_ends():
    watched = Watched(2, ["/nowhere/python"])
    finish = await watched.finish()
    assert finish.code == 1
    assert all("before it was started: " in event.how for event in watched.told(ProcessEnded))


async def test_a_process_that_no_descriptor_is_left_for_is_tried_again_and_the_others_live_on(supervise, monkeypatch):
    watched = supervise(2, OBEYS)
    await watched.until_ready()
    make, fails = socket.socketpair, iter([True])

    def socketpair():
        if next(fails, False):
            raise OSError(errno.EMFILE, "Too many open files")
        return make()

    monkeypatch.setattr(socket, "socketpair", socketpair)
    os.kill(watched.pids[1], signal.SIGKILL)
    await watched.until(lambda: len(watched.told(ProcessStarted)) == 3)
    assert watched.told(ProcessEnded) == [
        ProcessEnded(2, watched.pids[1], "by SIGKILL", 1),
        ProcessEnded(2, 0, "before it was started: [Errno 24] Too many open files", 2),
    ]
    assert is_alive(watched.pids[0])
    watched.stop()
    assert await watched.finish() == Finish(0)


@pytest.mark.parametrize("requests", [1, 2])  # told to stop; killed
async def test_a_request_to_stop_that_comes_while_a_process_cannot_be_started_is_met(requests, monkeypatch):
    watched = Watched(2, ["/nowhere/python"])

    async def fail(*_, **__):
        for _ in range(requests):
            watched.stop()
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail)
    assert await watched.finish() == Finish(1)
    assert watched.events == []


async def test_a_fork_that_keeps_the_lifeline_open_does_not_hide_that_its_process_ended(supervise, tmp_path):
    pid_file = tmp_path / "fork"
    program = BEGIN + (
        "fork = os.fork()\n"
        "if fork == 0:\n"
        "    time.sleep(3600)\n"
        f"open({str(pid_file)!r}, 'a').write(f'{{fork}}\\n')\n"
        "os._exit(3)\n"
    )
    watched = supervise(2, program)
    try:
        assert (await watched.finish()).code == 1
    finally:
        for line in pid_file.read_text().split():
            os.kill(int(line), signal.SIGKILL)


async def test_none_is_left_if_the_supervisor_itself_fails(supervise):
    watched = supervise(2, DEAF)
    await watched.until_ready()
    watched.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watched.task
    assert not any(map(is_alive, watched.pids))


@pytest.mark.parametrize("does", ["pass", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_a_process_ends_without_its_supervisor_even_if_it_is_stuck(does):
    ours, theirs = socket.socketpair()
    given = Lifeline(theirs, (), Flag())
    program = (
        "import signal, time\n"
        "from holdfast.cli import lifeline\n"
        f"{does}\n"
        "lifeline.inherited(grace_seconds=0.1).say_ready()\n"
        "while True: time.sleep(3600)\n"
    )
    environment = {**os.environ, **given.variable, "PYTHONPATH": f"{ROOT}/src"}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, pass_fds=given.descriptors) as process:
        theirs.close()
        assert ours.recv(64) == b"ready\n"
        assert process.poll() is None
        ours.close()
        until(lambda: process.poll() is not None, lambda: "it lives on")
    assert process.returncode == (-signal.SIGTERM if does == "pass" else -signal.SIGKILL)
