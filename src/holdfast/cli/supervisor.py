"""`--processes N`: this process starts N others with the same command, and keeps them alive. See `kernel.supervision`.

Rules
- It imports none of the user's code and opens no store. Each of the others is a whole replica, with its own lease.
- They are fresh interpreters and no forks, which would have our event loop without its threads.
- The gateway's socket is bound here, once, and inherited. So no connection is lost when a process ends: what it had
  not accepted yet, another one accepts.
- Each is the leader of a session of its own, so that Ctrl-C reaches only us, and each is told once.
- They write to our stdout and stderr themselves. What would have to pass through us would stop with us.
- None of them outlives us: see `lifeline`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from threading import Event
from typing import assert_never

from holdfast.cli.lifeline import READY, Lifeline
from holdfast.events import Emit, ProcessEnded, ProcessKilled, ProcessStarted
from holdfast.kernel.supervision import (
    Announce,
    Deed,
    Finish,
    Happening,
    HasBegun,
    HasEnded,
    IsReady,
    Kill,
    Launch,
    ReportEnd,
    RestartAsked,
    StopAsked,
    SupervisionPolicy,
    Terminate,
    TimeUp,
    decide,
    group_of,
    how_ended,
    next_due,
)
from holdfast.ports.clock import Clock

SIGNALS: dict[int, Happening] = {signal.SIGTERM: StopAsked(), signal.SIGINT: StopAsked()}
NOT_STARTED = 1  # a process that could not be started counts as one that has ended with this exit code


class Supervisor:
    """Starts processes, watches over them, and ends with them."""

    def __init__(
        self,
        count: int,
        command: Sequence[str],
        *,
        sockets: Sequence[Sequence[socket.socket | None]] = (),
        clock: Clock,
        emit: Emit,
        on_ready: Callable[[Sequence[int]], None],
        policy: SupervisionPolicy | None = None,
    ) -> None:
        self._group = group_of(count)
        self._command = command
        self._sockets = [tuple(filter(None, each)) for each in sockets] or [()] * count  # of each process
        self._clock = clock
        self._emit = emit
        self._on_ready = on_ready
        self._policy = policy or SupervisionPolicy()
        self._happenings: asyncio.Queue[Happening] = asyncio.Queue()
        self._processes: dict[int, Process] = {}
        self._not_started: dict[int, str] = {}
        self._watching: set[asyncio.Task[None]] = set()

    async def run(self) -> Finish:
        """Until all processes have ended, as they were told to or because they cannot be kept alive."""
        loop, signals = asyncio.get_running_loop(), _signals()
        for number, happening in signals.items():
            loop.add_signal_handler(number, self._happenings.put_nowait, happening)
        self._happenings.put_nowait(HasBegun())
        try:
            while True:
                happening = await self._next()
                decided = decide(self._group, happening, now_steady_ms=self._clock.steady_ms(), policy=self._policy)
                self._group = decided.group
                for deed in decided.deeds:
                    if isinstance(deed, Finish):
                        return deed
                    await self._do(deed)
        finally:
            await self._end()
            for number in signals:
                loop.remove_signal_handler(number)

    async def _next(self) -> Happening:
        due_steady_ms = next_due(self._group, self._policy)
        seconds = None if due_steady_ms is None else max(0.0, due_steady_ms - self._clock.steady_ms()) / 1000
        try:
            async with asyncio.timeout(seconds):
                return await self._happenings.get()
        except TimeoutError:
            return TimeUp()

    async def _do(self, deed: Deed) -> None:
        match deed:
            case Launch(number):
                await self._launch(number)
            case Terminate(number):
                self._close_if_stopping()
                self._signal(number, signal.SIGTERM)
            case Kill(number):
                if (process := self._processes.get(number)) is not None:
                    self._emit(ProcessKilled(number + 1, process.pid))
                self._signal(number, signal.SIGKILL)
            case ReportEnd(number, code, delay_ms):
                how = self._not_started.pop(number, None) or how_ended(code)
                pid = self._processes[number].pid if number in self._processes else 0
                self._emit(ProcessEnded(number + 1, pid, how, delay_ms))
            case Announce():
                self._on_ready([self._processes[number].pid for number in sorted(self._processes)])
            case Finish():
                raise AssertionError(deed)  # `run` returns it
            case _:
                assert_never(deed)

    async def _launch(self, number: int) -> None:
        self._processes.pop(number, None)  # the one that has ended
        try:
            process, ours = await self._start(number)
        except OSError as error:  # the system has no process, no memory or no file descriptor for it
            self._not_started[number] = f"before it was started: {error}"
            self._happenings.put_nowait(HasEnded(number, NOT_STARTED))
            return
        self._processes[number] = process
        self._emit(ProcessStarted(number + 1, process.pid))
        task = asyncio.create_task(self._watch(number, process, ours))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _start(self, number: int) -> tuple[Process, socket.socket]:
        """The process, and our end of its lifeline."""
        ours, theirs = socket.socketpair()
        given = Lifeline(theirs, self._sockets[number], Event())
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=DEVNULL,
                env={**os.environ, **given.variable},
                pass_fds=given.descriptors,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, ours

    async def _watch(self, number: int, process: Process, lifeline: socket.socket) -> None:
        # Its end is waited for beside its word: a process that it has forked may keep the other end open.
        ready = asyncio.create_task(self._until_ready(number, lifeline))
        try:
            code = await process.wait()
        finally:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)
            lifeline.close()
        self._happenings.put_nowait(HasEnded(number, code))

    async def _until_ready(self, number: int, lifeline: socket.socket) -> None:
        lifeline.setblocking(False)
        with contextlib.suppress(ConnectionError):
            if await asyncio.get_running_loop().sock_recv(lifeline, len(READY)):
                self._happenings.put_nowait(IsReady(number))

    def _signal(self, number: int, signal_number: int) -> None:
        if (process := self._processes.get(number)) is None:
            return  # it could not be started, and we are about to hear of that
        with contextlib.suppress(ProcessLookupError):  # it has ended, and we are about to hear of it
            process.send_signal(signal_number)

    def _close_if_stopping(self) -> None:
        """What comes while all stop is refused by the last process that stops, and not left without a reply."""
        if self._group.stopping_since_steady_ms is not None:
            self._close()

    def _close(self) -> None:
        for each in itertools.chain(*self._sockets):
            each.close()

    async def _end(self) -> None:
        """None is left, whatever has happened here."""
        for number, process in self._processes.items():
            if process.returncode is None:
                self._signal(number, signal.SIGKILL)
        await asyncio.gather(*self._watching, return_exceptions=True)
        self._close()


def command_again() -> list[str]:
    """This very command, in a fresh interpreter."""
    return [sys.executable, "-m", "holdfast", *sys.argv[1:]]


def _signals() -> dict[int, Happening]:
    """What each signal asks for. Where there is a terminal, SIGHUP says that it is gone."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup
        return SIGNALS
    has_terminal = any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return {**SIGNALS, signal.SIGHUP: StopAsked() if has_terminal else RestartAsked()}
