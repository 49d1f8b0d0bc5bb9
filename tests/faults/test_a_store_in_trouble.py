"""The disk is full, the file is locked, a sync fails: a clear word to callers, and work goes on when it can."""

from __future__ import annotations

import contextlib
import itertools
import resource
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.processes import Process, until
from tests.faults.workflows_held_by_flags import RUN, hold, tap

pytestmark = pytest.mark.faults

LONG = "60s"  # the worker keeps its lease through the trouble
SHORT = "1s"  # it loses it, and has to begin again


async def a_run_in_its_effect(case: Case, *, lease: str, disk: str | None = None) -> Process:
    worker = await case.fork(pack=RUN, starts=[Start("hold", ["a"])], results=False, stay=True, lease=lease, disk=disk)
    await until(lambda: case.ledger.calls("grip"), "the effect", worker)
    return worker


async def the_trouble_is_felt(worker: Process, *, lease: str) -> None:
    await until(lambda: worker.logged("store in trouble"), "the trouble", worker)
    if lease == SHORT:
        await until(lambda: worker.logged("lease lost"), "the lost lease", worker)


async def the_worker_went_on(case: Case, hf: Holdfast, worker: Process, *, lease: str) -> None:
    """The run that was under way ends, and so does a new one. An effect was repeated only if the lease was lost."""
    assert await (await hf.find(hold, "hold:a")).result("45s") == "a"
    run, _ = await hf.start(tap("later"))
    assert await run.result("45s") == "later"
    await worker.leaves()
    overtaken = case.processes.overtaken()
    case.ledger.check(lost=overtaken)
    if lease == LONG:
        assert not overtaken, worker
    assert case.ask("PRAGMA integrity_check") == [("ok",)]
    assert case.ask("SELECT count(*) FROM runs WHERE status <> 'completed'") == [(0,)]


# -- disk full


class Disk:
    """A disk that can be filled and freed."""

    def __init__(self, directory: Path, case: Case) -> None:
        self.directory = directory
        self._case = case
        self._filler = directory / "filler"

    def fill(self, _: Process) -> None:
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)

    def free(self, _: Process) -> None:
        self._filler.unlink()


class Limit(Disk):
    """Where nothing may be mounted: files of the worker may not grow."""

    def fill(self, worker: Process) -> None:
        size = self._case.path.with_name("holdfast.db-wal").stat().st_size
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def free(self, worker: Process) -> None:
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.fixture
def small_disk(case: Case) -> Iterator[Disk]:
    directory = case.flag("disk")
    directory.mkdir()
    mounted = not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(directory)], check=False, capture_output=True
    ).returncode
    yield Disk(directory, case) if mounted else Limit(directory, case)
    case.processes.clear_away()
    if mounted:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


async def started_until_refused(hf: Holdfast) -> set[str]:
    """The runs that were confirmed before the disk was full: what the file had kept for itself may hold a few."""
    confirmed: set[str] = set()

    async def start_for_ever() -> None:
        for n in itertools.count():
            confirmed.add((await hf.start(tap(f"n{n}"))).run.id)

    with pytest.raises(StoreUnavailable, match=r"disk that holds .*holdfast\.db is full"):
        await start_for_ever()
    return confirmed


@pytest.mark.parametrize("means", [Disk, Limit])
@pytest.mark.parametrize("lease", [LONG, SHORT])
async def test_on_a_full_disk_nothing_is_lost_and_work_goes_on_when_there_is_room(
    case: Case, small_disk: Disk, lease: str, means: type[Disk]
) -> None:
    if means is Limit:
        small_disk = Limit(small_disk.directory, case)
    case.path = small_disk.directory / "holdfast.db"
    worker = await a_run_in_its_effect(case, lease=lease)
    confirmed: set[str] = set()
    async with case.client(RUN) as hf:
        small_disk.fill(worker)
        if type(small_disk) is Disk:
            confirmed = await started_until_refused(hf)
        case.raise_flag("go-a")
        await the_trouble_is_felt(worker, lease=lease)
        small_disk.free(worker)
        assert confirmed <= {row[0] for row in case.ask("SELECT id FROM runs")}
        await the_worker_went_on(case, hf, worker, lease=lease)
    for line in worker.logged("store in trouble"):
        assert "holdfast.db" in line["message"]


# -- locked


async def test_a_short_lock_is_waited_out(case: Case) -> None:
    worker = await a_run_in_its_effect(case, lease=LONG)
    client = await case.fork(
        pack=RUN, worker=False, starts=[Start("tap", ["b"])], start_gate=str(case.flag("start")), results=False
    )
    await client.says("waits", gate="start")
    with case.locked():
        case.raise_flag("start")
        case.raise_flag("go-a")
        await client.says("starts")
        with pytest.raises(AssertionError):  # held for longer than a commit takes, and shorter than anybody's patience
            await until(lambda: client.said("started"), "a start in spite of the lock", within=1.5)
    assert (await client.says("started"))["created"] is True
    async with case.client(RUN) as hf:
        await the_worker_went_on(case, hf, worker, lease=LONG)
    assert not worker.logged("store in trouble"), worker


@pytest.mark.parametrize("lease", [LONG, SHORT])
async def test_a_long_lock_is_a_clear_error_to_callers_and_a_pause_for_workers(case: Case, lease: str) -> None:
    worker = await a_run_in_its_effect(case, lease=lease)
    asked = Start("tap", ["b"], request_id="request-b")
    client = await case.fork(pack=RUN, worker=False, starts=[asked], start_gate=str(case.flag("start")), results=False)
    await client.says("waits", gate="start")
    with case.locked():
        case.raise_flag("start")
        case.raise_flag("go-a")
        late = await case.fork(pack=RUN)
        failed = await client.says("failed")
        assert failed["error"] == "StoreUnavailable"
        assert "is locked by another process" in failed["text"]
        await the_trouble_is_felt(worker, lease=lease)
        assert await late.ended() == 3, late
        assert "is locked by another process" in late.said("refused")[0]["text"]
    async with case.client(RUN) as hf:
        run, created = await hf.start(tap("b"), request_id="request-b")
        assert created
        assert await run.result("45s") == "b"
        await the_worker_went_on(case, hf, worker, lease=lease)


async def test_a_worker_that_cannot_write_still_stops_in_time(case: Case) -> None:
    """It cannot give its work back; the expiry of its lease will."""
    worker = await a_run_in_its_effect(case, lease="2s")
    with case.locked():
        case.raise_flag("go-a")
        await until(lambda: worker.logged("store in trouble"), "the trouble", worker)
        worker.signal(signal.SIGTERM)
        assert await worker.ended(within=15) == 0, worker
        assert not worker.errors(), worker
    successor = await case.fork(pack=RUN, stay=True, lease="2s")
    async with case.client(RUN) as hf:
        assert await (await hf.find(hold, "hold:a")).result("45s") == "a"
    await successor.leaves()
    case.ledger.check(lost={worker.pid})


async def test_a_fresh_file_that_is_locked_is_a_clear_error_too(case: Case) -> None:
    """Another process locks the file before it has become Holdfast's."""
    db = apsw.Connection(str(case.path))
    db.execute("CREATE TABLE t (x); DROP TABLE t; BEGIN EXCLUSIVE")
    late = await case.fork(pack=RUN)
    assert await late.ended(within=30) == 3, late
    [refused] = late.said("refused")
    assert refused["error"] == "StoreUnavailable"
    assert "is locked by another process" in refused["text"]
    db.execute("ROLLBACK")
    db.close()
    again = await case.fork(pack=RUN, starts=[Start("tap", ["a"])])
    assert (await again.says("result"))["value"] == "a"


# -- a sync that fails


@contextlib.asynccontextmanager
async def failing_below(case: Case, _: Process) -> AsyncIterator[None]:
    case.raise_flag("failing")
    yield
    case.flag("failing").unlink()


@contextlib.asynccontextmanager
async def failing_in_the_kernel(case: Case, process: Process) -> AsyncIterator[None]:
    report = case.flag("strace")
    tracer = subprocess.Popen(
        ["strace", "-f", "-p", str(process.pid), "-o", str(report), "-e", "inject=fdatasync,fsync:error=EIO"],
        stderr=subprocess.PIPE,
    )
    assert tracer.stderr
    assert b"attached" in tracer.stderr.readline()
    try:
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(30)
        tracer.stderr.close()
    assert "(INJECTED)" in report.read_text()


MEANS: list[Any] = [pytest.param("failing", failing_below, id="below SQLite")]
if shutil.which("strace"):
    MEANS.append(pytest.param(None, failing_in_the_kernel, id="in the kernel"))

Failing = Callable[[Case, Process], contextlib.AbstractAsyncContextManager[None]]


@pytest.mark.parametrize(("disk", "failing"), MEANS)
async def test_a_failed_sync_is_never_confirmed_as_success(case: Case, disk: str | None, failing: Failing) -> None:
    client = await case.fork(
        pack=RUN,
        worker=False,
        starts=[Start("tap", ["b"], request_id="request-b")],
        start_gate=str(case.flag("start")),
        results=False,
        disk=disk,
    )
    await client.says("waits", gate="start")
    async with failing(case, client):
        case.raise_flag("start")
        failed = await client.says("failed")
    assert client.said("started") == []
    assert failed["error"] == "StoreUnavailable"
    assert "holdfast.db" in failed["text"]
    worker = await case.fork(pack=RUN, starts=[Start("tap", ["b"], request_id="request-b")])
    assert (await worker.says("started"))["created"] is True
    assert (await worker.says("result"))["value"] == "b"
    case.ledger.check()


@pytest.mark.parametrize(("disk", "failing"), MEANS)
@pytest.mark.parametrize("lease", [LONG, SHORT])
async def test_a_worker_outlives_failing_syncs(case: Case, disk: str | None, failing: Failing, lease: str) -> None:
    worker = await a_run_in_its_effect(case, lease=lease, disk=disk)
    async with failing(case, worker):
        case.raise_flag("go-a")
        await the_trouble_is_felt(worker, lease=lease)
        assert case.statuses() == {"hold:a": "running"}
    async with case.client(RUN) as hf:
        await the_worker_went_on(case, hf, worker, lease=lease)
