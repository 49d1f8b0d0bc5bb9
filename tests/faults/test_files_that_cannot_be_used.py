"""A file that is not what it should be: a clear word, nothing touched, nothing left behind."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.processes import Process, until
from tests.faults.workflows_held_by_flags import RUN

pytestmark = pytest.mark.faults

NOBODY = 65534


async def refused(case: Case, *, worker: bool = True, user: int | None = None) -> str:
    """What a process says that cannot open the file. It ends, and says it only once."""
    process: Process = await case.fork(pack=RUN, worker=worker, user=user, starts=[Start("tap", ["a"])])
    assert await process.ended() == 3, process
    assert not process.errors(), process
    [said] = process.said("refused")
    assert said["error"] == "InvalidConfig"
    return said["text"]


def foreign(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('https://example.org')")
    db.close()


def marked(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("PRAGMA application_id = 252006674; VACUUM")
    db.close()


def text(path: Path) -> None:
    path.write_text("These are my notes, and no database at all.\n" * 200)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (text, "is not a SQLite database"),
        (foreign, "belongs to another application"),
        (marked, "belongs to another application"),
    ],
)
@pytest.mark.parametrize("worker", [True, False])
async def test_somebody_elses_file_is_refused_and_left_as_it_was(
    case: Case, make: Callable[[Path], None], says: str, worker: bool
) -> None:
    make(case.path)
    before = case.path.read_bytes()
    answer = await refused(case, worker=worker)
    assert says in answer
    assert str(case.path) in answer
    assert case.path.read_bytes() == before
    assert not case.path.with_name("holdfast.db-wal").exists()


async def test_a_file_of_a_newer_holdfast_is_refused(case: Case) -> None:
    first = await case.fork(pack=RUN, starts=[Start("tap", ["a"])])
    assert await first.ended() == 0
    case.ask("PRAGMA user_version = 99")
    assert "has schema 99" in await refused(case)


async def test_a_directory_that_does_not_exist_is_named_with_the_cure(case: Case) -> None:
    case.path = case.directory / "absent" / "holdfast.db"
    case.ledger.path.touch()
    assert "mkdir -p" in await refused(case)
    assert not case.path.parent.exists()


async def test_a_directory_in_place_of_the_file_is_refused(case: Case) -> None:
    case.path.mkdir()
    assert "cannot be opened" in await refused(case)


async def test_an_empty_file_is_a_fresh_one(case: Case) -> None:
    case.path.touch()
    process = await case.fork(pack=RUN, starts=[Start("tap", ["a"])])
    assert (await process.says("result"))["value"] == "a"


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that another user can reach; those of pytest are closed to others."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-faults-"))
    directory.chmod(0o755)
    yield directory
    directory.chmod(0o755)
    shutil.rmtree(directory)


@pytest.mark.parametrize("exists", [False, True])
async def test_a_read_only_directory_is_refused(case: Case, open_directory: Path, exists: bool) -> None:
    case.path = open_directory / "holdfast.db"
    if exists:
        first = await case.fork(pack=RUN, starts=[Start("tap", ["a"])])
        assert await first.ended() == 0
        case.path.chmod(0o444)
    open_directory.chmod(0o555)
    before = sorted(open_directory.iterdir())
    answer = await refused(case, user=NOBODY)
    assert "cannot be opened for writing" in answer
    assert "permissions" in answer
    assert sorted(open_directory.iterdir()) == before


def damage(path: Path, *, keep: int = 4096) -> None:
    """Everything after the first page is noise."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(keep)
        file.write(b"\xa5" * max(0, size - keep))


@pytest.mark.parametrize("worker", [True, False])
async def test_a_corrupt_file_is_called_corrupt(case: Case, worker: bool) -> None:
    first = await case.fork(pack=RUN, starts=[Start("tap", [f"{n}"]) for n in range(50)])
    assert await first.ended() == 0
    damage(case.path)
    answer = await refused(case, worker=worker)
    assert "is corrupt" in answer
    assert "backup" in answer


async def test_a_worker_whose_file_becomes_corrupt_says_so_and_stops_in_order(case: Case) -> None:
    """Another program overwrites the file in use. Nothing can go on; it is said, in our words, and no more."""
    first = await case.fork(pack=RUN, starts=[Start("tap", [f"{n}"]) for n in range(50)])
    assert await first.ended() == 0
    worker = await case.fork(pack=RUN, starts=[Start("hold", ["a"])], results=False, stay=True, lease="1s")
    await until(lambda: case.ledger.calls("grip"), "the effect", worker)
    damage(case.path)
    damage(case.path.with_name("holdfast.db-wal"), keep=32)
    case.raise_flag("go-a")
    await until(lambda: "is corrupt" in worker.log(), "a word about it", worker)
    worker.signal(signal.SIGTERM)
    await worker.ended(within=15)
    assert not worker.errors(), worker  # no traceback: everything was said as an event
