"""Starts the processes of a test, listens to them, sends them signals, and leaves none behind.

Everything is waited for by a condition with a generous deadline. Processes are signalled by their own id, and only
while they are known to live.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from holdfast.errors import StoreUnavailable
from tests.faults.holdfast_process import ProcessPlan
from tests.faults.ledger import Line, read_lines

T = TypeVar("T")
DEADLINE = 60.0
ROOT = Path(__file__).parents[2]
KILLED = -signal.SIGKILL


async def patiently(verb: Callable[[], Awaitable[T]]) -> T:
    """What a good client does: whatever has no answer, it asks again."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await verb()
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def until(condition: Callable[[], T], what: str, *about: object, within: float = DEADLINE) -> T:
    """What `condition` returns, as soon as that is true. Raises when it is not in time, or when a process has ended
    that it is `about`."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + within
    while True:
        ended = [process for process in about if isinstance(process, Process) and process.code is not None]
        if answer := condition():
            return answer
        if ended or clock() > deadline:
            seen = "\n".join(map(repr, about))
            raise AssertionError(f"it did not happen in time: {what}\n{seen}")
        await asyncio.sleep(0.02)


class Handle(Protocol):
    """How a process is watched: by its parent, which is this process or the fork server."""

    pid: int

    def poll(self) -> int | None: ...


class Process:
    """A living or dead process of this test."""

    def __init__(self, handle: Handle, out: Path, err: Path) -> None:
        self.pid = handle.pid
        self._handle = handle
        self._out = out
        self._err = err

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it lives."""
        return self._handle.poll()

    def signal(self, number: int) -> None:
        """Send a signal, if the process still lives."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended this very moment, and its parent knows it
                os.kill(self.pid, number)

    async def ended(self, *, within: float = DEADLINE) -> int:
        """The exit code, once there is one."""
        await until(lambda: self.code is not None, f"the end of process {self.pid}", self, within=within)
        assert self.code is not None
        return self.code

    async def leaves(self) -> None:
        """Asked by SIGTERM it goes, in order and without complaint."""
        await self.says("ready")
        self.signal(signal.SIGTERM)
        code = await self.ended()
        assert (code, self.errors()) == (0, ""), self

    def said(self, event: str, **fields: Any) -> list[Line]:
        """What it has said so far about `event`."""
        wanted = {"event": event} | fields
        return [line for line in read_lines(self._out) if wanted.items() <= line.items()]

    async def says(self, event: str, **fields: Any) -> Line:
        """The first thing that it says about `event`."""

        def heard() -> Line | None:
            if heard := self.said(event, **fields):
                return heard[0]
            assert self.code is None, f"it ended before it said {event!r}: {self}"
            return None

        line = await until(heard, f"{event!r} from process {self.pid}", self)
        assert line is not None
        return line

    def logged(self, phrase: str) -> list[Line]:
        """The events in its log that are worded so."""
        return [line for line in read_lines(self._err) if line.get("event") == phrase]

    def log(self) -> str:
        """All that it has logged."""
        return self._err.read_text()

    def errors(self) -> str:
        """What it has written to standard error that is no log line: tracebacks."""
        text = self._err.read_text() if self._err.exists() else ""
        return "\n".join(line for line in text.splitlines() if not line.startswith("{"))

    @property
    def state(self) -> str:
        """The kernel's letter for what it does: T if it is stopped by a signal."""
        if self.code is not None:
            return f"ended with {self.code}"
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat[stat.rindex(")") + 2]

    def is_stopped(self) -> bool:
        return self.state == "T"

    def __repr__(self) -> str:
        said, logged = self._out.read_text()[-3000:], self._err.read_text()[-3000:]
        return f"process {self.pid} ({self.state})\n{said}\n{logged}"


class ForkServer:
    """The parent of forked processes; see `fork_server.py`."""

    def __init__(self) -> None:
        self._codes: dict[int, int] = {}
        self._forked: dict[str, int] = {}
        self._rest = b""
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment({}),
        )
        assert self._popen.stdin
        assert self._popen.stdout
        self._in, self._out = self._popen.stdin, self._popen.stdout
        os.set_blocking(self._out.fileno(), False)

    async def fork(self, plan: Struct, out: Path, err: Path, *, module: str) -> Handle:
        request = {
            "module": module,
            "options": msgspec.to_builtins(plan),
            "out": str(out),
            "err": str(err),
        }
        self._in.write(json.dumps(request).encode() + b"\n")
        self._in.flush()
        return ForkedProcess(self, await until(lambda: self._pid_of(out), "a process from the fork server"))

    def code_of(self, pid: int) -> int | None:
        self._listen()
        return self._codes.get(pid)

    def close(self) -> None:
        self._in.close()
        self._popen.wait(30)
        self._out.close()

    def _pid_of(self, out: Path) -> int | None:
        self._listen()
        return self._forked.pop(str(out), None)

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._out.fileno(), 65536):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in map(json.loads, lines):
                    if "ended" in line:
                        self._codes[line["ended"]] = line["code"]
                    elif "forked" in line:
                        self._codes.pop(line["forked"], None)  # pids come round
                        self._forked[line["out"]] = line["forked"]


class ForkedProcess:
    """A process whose parent is the fork server."""

    def __init__(self, fork_server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._fork_server = fork_server

    def poll(self) -> int | None:
        return self._fork_server.code_of(self.pid)


class Processes:
    """All processes of one test."""

    def __init__(self, fork_server: ForkServer, directory: Path) -> None:
        self._fork_server = fork_server
        self._directory = directory
        self._all: list[Process] = []
        self._numbers = itertools.count(1)

    async def fork(self, plan: Struct, *, module: str = "tests.faults.holdfast_process") -> Process:
        """A process from the fork server: cheap, for tests that need many."""
        out, err = self._files()
        handle = await self._fork_server.fork(plan, out, err, module=module)
        return self._keep(handle, out, err)

    def run(self, plan: ProcessPlan, *, env: Mapping[str, str] = {}, prefix: tuple[str, ...] = ()) -> Process:
        """A process of its own from its first instruction."""
        return self.run_module("tests.faults.holdfast_process", msgspec.to_builtins(plan), env=env, prefix=prefix)

    def run_module(
        self, module: str, options: Any, *, env: Mapping[str, str] = {}, prefix: tuple[str, ...] = ()
    ) -> Process:
        out, err = self._files()
        wanted = out.with_suffix(".json")
        wanted.write_text(json.dumps(options))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            handle = subprocess.Popen(
                [*prefix, sys.executable, "-m", module, str(wanted)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=ROOT,
                env=environment(env),
            )
        return self._keep(handle, out, err)

    def clear_away(self) -> None:
        """Kill what still lives."""
        for process in self._all:
            process.signal(signal.SIGKILL)
        for process in self._all:
            while process.code is None:
                os.sched_yield()

    def __iter__(self) -> Iterator[Process]:
        return iter(self._all)

    def overtaken(self) -> set[int]:
        """Those that lost their lease although they live: the machine was too busy to let them renew it."""
        return {process.pid for process in self._all if process.logged("lease lost") or process.logged("run overtaken")}

    def _files(self) -> tuple[Path, Path]:
        name = f"process-{next(self._numbers)}"
        out, err = self._directory / f"{name}.out", self._directory / f"{name}.err"
        out.touch()
        err.touch()
        return out, err

    def _keep(self, handle: Handle, out: Path, err: Path) -> Process:
        self._all.append(process := Process(handle, out, err))
        return process


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """What the processes of a test find in their environment."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST"))}
    return inherited | {"HOLDFAST_LOG": "json", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"} | more


async def in_turns(jobs: Sequence[Callable[[], Awaitable[object]]], *, at_once: int) -> None:
    """Do all jobs, a few at once; raises the first failure."""
    room = asyncio.Semaphore(at_once)

    async def one(job: Callable[[], Awaitable[object]]) -> None:
        async with room:
            await job()

    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(one(job))
