"""Real processes on one file wake each other, whatever becomes of some of them and whatever else is sent to them.

`pushed_only` processes look for nothing by themselves: one that is not told waits until the test gives up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.kernel.times import Instant
from holdfast.ports import notices
from holdfast.ports.notices import ANYTHING, NOTHING, Notice, Ready
from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.processes import Process, until
from tests.faults.workflows_held_by_flags import RUN

pytestmark = pytest.mark.faults

NOBODY = 65534
IN_A_CONTAINER = ("unshare", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")


def taps(count: int, *, first: int = 0) -> list[Start]:
    return [Start("tap", [f"{n}"]) for n in range(first, first + count)]


def sockets(case: Case) -> list[Path]:
    directory = case.path.with_name(case.path.name + "-wake")
    return sorted(directory.iterdir()) if directory.exists() else []


async def have_found_each_other(case: Case, count: int) -> None:
    await until(lambda: len(sockets(case)) == count, "sockets of all")


async def is_done(client: Process, count: int) -> None:
    """It has started so many runs, and has their results."""
    assert await client.ended() == 0, client
    assert not client.errors(), client
    assert len(client.said("result")) == count


async def test_processes_tell_each_other_what_they_have_done(case: Case) -> None:
    workers = [await case.fork(pack=RUN, stay=True, pushed_only=True) for _ in range(2)]
    for worker in workers:
        await worker.says("ready")
    for first in (0, 20):
        client = await case.fork(pack=RUN, worker=False, starts=taps(20, first=first), pushed_only=True)
        await is_done(client, 20)
    for worker in workers:
        await worker.leaves()
    assert len(case.ledger.calls()) == 40
    assert sockets(case) == []
    assert sorted(path.name for path in case.directory.glob("holdfast.db*")) == ["holdfast.db"]


async def test_the_socket_of_a_killed_process_hurts_none_and_is_removed(case: Case) -> None:
    worker, victim = [await case.fork(pack=RUN, stay=True, worker=n == 0) for n in range(2)]
    await worker.says("ready")
    await victim.says("ready")
    await have_found_each_other(case, 2)
    victim.signal(signal.SIGKILL)
    await victim.ended()
    client = await case.fork(pack=RUN, worker=False, starts=taps(20), pushed_only=True)
    await is_done(client, 20)
    await until(lambda: len(sockets(case)) == 1, "the removal of the dead one's socket", worker)
    await worker.leaves()
    assert sockets(case) == []


async def test_what_was_left_by_processes_that_were_all_killed_is_removed_by_the_next(case: Case) -> None:
    victims = [await case.fork(pack=RUN, stay=True, worker=False) for _ in range(5)]
    for victim in victims:
        await victim.says("ready")
    for victim in victims:
        victim.signal(signal.SIGKILL)
    for victim in victims:
        await victim.ended()
    assert len(sockets(case)) == 5
    worker = await case.fork(pack=RUN, stay=True)
    await worker.says("ready")
    await until(lambda: len(sockets(case)) == 1, "the removal of what was left", worker)
    client = await case.fork(pack=RUN, worker=False, starts=taps(5), pushed_only=True)
    await is_done(client, 5)
    await worker.leaves()
    assert sockets(case) == []


async def test_a_process_that_stands_still_holds_up_no_other_and_finds_what_it_has_missed(case: Case) -> None:
    worker, sleeper = [await case.fork(pack=RUN, stay=True, pushed_only=True) for _ in range(2)]
    await worker.says("ready")
    await sleeper.says("ready")
    sleeper.signal(signal.SIGSTOP)
    await until(sleeper.is_stopped, "a process that stands still")
    for first in (0, 40):
        client = await case.fork(pack=RUN, worker=False, starts=taps(40, first=first), pushed_only=True)
        await is_done(client, 40)
    await worker.leaves()
    held = await case.fork(pack=RUN, worker=False, starts=taps(5, first=100), pushed_only=True)
    for n in range(100, 105):
        await held.says("started", arguments=[f"{n}"])
    assert not held.said("result")
    sleeper.signal(signal.SIGCONT)
    await is_done(held, 5)
    await sleeper.leaves()


FORGED = (
    b"",
    b"garbage",
    os.urandom(300),
    b"\xdd\xff\xff\xff\xff",
    notices.encode(ANYTHING),
    notices.encode(NOTHING),
    notices.encode(
        Notice(
            ("no-such-run", "../../etc"),
            ("no-such-run",),
            (Ready("default", "trial.tap", Instant(0)), Ready("x", "y", Instant(2**62))),
            (("default", "api_key"), ("", "no such kind")),
            settled=("no-such-run", ""),
        )
    ),
)


@contextlib.contextmanager
def flood(case: Case) -> Iterator[None]:
    """As long as this lasts, every socket gets as much of what none of them has sent as it takes."""
    over = threading.Event()

    def send() -> None:
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sender.setblocking(False)
        while not over.wait(0.0005):
            for target in sockets(case):
                for datagram in FORGED:
                    with contextlib.suppress(OSError):
                        sender.sendto(datagram, str(target))
        sender.close()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def test_what_is_forged_costs_time_and_nothing_else(case: Case) -> None:
    worker = await case.fork(pack=RUN, stay=True, lease="30s")
    await worker.says("ready")
    with flood(case):
        client = await case.fork(pack=RUN, worker=False, starts=taps(40))
        await is_done(client, 40)
    client = await case.fork(pack=RUN, worker=False, starts=taps(10, first=40), pushed_only=True)
    await is_done(client, 10)
    await worker.leaves()
    assert len(case.ledger.calls()) == 50
    assert not worker.logged("part failed")
    assert sockets(case) == []


@pytest.mark.parametrize("of_earlier_version", ["client", "worker"])
async def test_a_process_of_an_earlier_version_is_noticed(case: Case, of_earlier_version: str) -> None:
    worker = await case.fork(pack=RUN, stay=True, earlier=of_earlier_version == "worker")
    await worker.says("ready")
    client = await case.fork(pack=RUN, worker=False, starts=taps(20), earlier=of_earlier_version == "client")
    await is_done(client, 20)
    await worker.leaves()


async def test_where_no_socket_can_be_made_they_look_and_the_log_says_why(case: Case) -> None:
    case.path.with_name(case.path.name + "-wake").write_text("in the way")
    worker = await case.fork(pack=RUN, stay=True)
    await worker.says("ready")
    client = await case.fork(pack=RUN, worker=False, starts=taps(10))
    await is_done(client, 10)
    [line] = worker.logged("commits of others are looked for")
    assert "Not a directory" in line["reason"]
    await worker.leaves()
    assert case.path.with_name(case.path.name + "-wake").read_text() == "in the way"


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    """A directory into which all users may write; those of pytest are closed to others."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-faults-"))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


async def test_processes_of_two_users_who_may_write_the_file_tell_each_other(
    case: Case, shared_directory: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    case.path = shared_directory / "holdfast.db"
    first = await case.fork(pack=RUN, starts=taps(1))
    await is_done(first, 1)
    case.path.chmod(0o666)
    case.ledger.path.chmod(0o666)
    case.directory.chmod(0o777)
    worker = await case.fork(pack=RUN, stay=True, pushed_only=True)
    await worker.says("ready")
    client = await case.fork(pack=RUN, worker=False, starts=taps(10, first=1), pushed_only=True, user=NOBODY)
    await is_done(client, 10)
    await worker.leaves()
    assert sockets(case) == []


async def test_containers_that_share_a_volume_tell_each_other(case: Case) -> None:
    """Each has process ids, a network and a host name of its own."""
    if not shutil.which("unshare") or subprocess.run([*IN_A_CONTAINER, "true"], check=False, timeout=60).returncode:
        pytest.skip("this machine makes no namespaces for us")
    worker = case.processes.run(case.plan(pack=RUN, stay=True, pushed_only=True), prefix=IN_A_CONTAINER)
    await worker.says("ready")
    client = case.processes.run(
        case.plan(pack=RUN, worker=False, starts=taps(10), pushed_only=True), prefix=IN_A_CONTAINER
    )
    await is_done(client, 10)
    inner = worker.said("ready")[0]["pid"]
    assert inner != worker.pid
    assert [path.name.split("-")[-2] for path in sockets(case)] == [str(inner)]
