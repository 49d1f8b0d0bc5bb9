"""The sockets beside a file: who is there is found, a dead one is cleared away, and nothing ever waits or raises."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.stores.sqlite.peers import EVERYTHING, Peers, label
from holdfast.testing import eventually

QUEUE_MAX = 2_000  # more than any system keeps for one socket


class Site:
    """A file, and the processes that use it: here they are all this one."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "shop.db"
        self.path.touch()
        self.sockets = directory / "shop.db-wake"
        self.made: list[Peers] = []
        self.heard: dict[Peers, list[bytes]] = {}

    def peers(self, path: Path | None = None) -> Peers:
        heard: list[bytes] = []
        peers = Peers(path or self.path, heard.extend)
        self.made.append(peers)
        self.heard[peers] = heard
        return peers

    def opened(self, path: Path | None = None) -> Peers:
        peers = self.peers(path)
        peers.open()
        assert peers.trouble == ""
        return peers

    async def quiet(self) -> None:
        """Everything that was sent before has been received."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def together(self, count: int = 2) -> list[Peers]:
        """So many that have found each other, and have said so."""
        found = [self.opened() for _ in range(count)]
        await self.quiet()
        assert [len(peers) for peers in found] == [count - 1] * count
        for peers in found:
            self.heard[peers].clear()
        return found

    def names(self) -> list[str]:
        return sorted(path.name for path in self.sockets.iterdir()) if self.sockets.exists() else []


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    for peers in site.made:
        peers.close()


def kill(peers: Peers) -> None:
    """What the system does with a killed process: its sockets are closed, its name stays."""
    assert peers._own is not None
    asyncio.get_running_loop().remove_reader(peers._own)
    peers.abandon()


# -- coming and going


async def test_those_who_are_there_and_one_who_comes_find_each_other_and_look_at_everything(site: Site) -> None:
    first = site.opened()
    assert len(first) == 0
    second = site.opened()
    await site.quiet()
    assert (len(first), len(second)) == (1, 1)
    assert site.heard[first] == [EVERYTHING]
    assert site.heard[second] == [EVERYTHING]


async def test_a_datagram_reaches_all_others_and_not_its_sender(site: Site) -> None:
    sender, *others = await site.together(4)
    sender.send(b"news")
    await site.quiet()
    assert [site.heard[each] for each in (sender, *others)] == [[], [b"news"], [b"news"], [b"news"]]


async def test_one_who_is_alone_sends_nothing(site: Site) -> None:
    alone = site.opened()
    alone.send(b"news")
    await site.quiet()
    assert site.heard[alone] == []


async def test_the_last_one_leaves_nothing_behind(site: Site) -> None:
    first, second = await site.together()
    first.close()
    assert len(site.names()) == 1
    second.close()
    assert not site.sockets.exists()
    assert list(site.path.parent.iterdir()) == [site.path]


async def test_one_who_has_left_is_told_nothing_and_one_who_comes_back_is(site: Site) -> None:
    first, second = await site.together()
    second.close()
    first.send(b"lost")
    assert len(first) == 0
    second.open()
    await site.quiet()
    first.send(b"heard")
    await site.quiet()
    assert site.heard[second] == [EVERYTHING, b"heard"]


async def test_two_names_for_one_file_lead_to_one_directory(site: Site) -> None:
    link = site.path.with_name("link.db")
    link.symlink_to(site.path)
    first, second = site.opened(), site.opened(link)
    await site.quiet()
    assert (len(first), len(second)) == (1, 1)


async def test_a_relative_path_means_the_same_when_the_process_has_gone_elsewhere(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(site.path.parent)
    first = site.opened(Path("shop.db"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    second = site.opened(site.path)
    await site.quiet()
    assert (len(first), len(second)) == (1, 1)
    second.close()
    first.close()
    assert not site.sockets.exists()


async def test_a_name_says_which_process_it_is(site: Site) -> None:
    first, second = await site.together()
    assert first.labels == second.labels == {label(socket.gethostname(), os.getpid())}
    assert label("a/b" * 50, 7).startswith("a_b")
    assert label("a-b", 7) == "a_b-7"


# -- the dead


async def test_the_name_of_a_dead_one_is_removed_by_the_first_that_sends_to_it(site: Site) -> None:
    alive, dead = await site.together()
    kill(dead)
    assert len(site.names()) == 2
    alive.send(b"news")
    assert (len(alive), len(site.names())) == (0, 1)
    alive.send(b"more")


async def test_a_name_that_refuses_is_removed_at_the_second_look_and_not_before(site: Site) -> None:
    """In the moment in which a socket is being made, it refuses as a dead one does."""
    dead = site.opened()
    kill(dead)
    alive = site.opened()
    assert len(site.names()) == 2
    alive.look()
    assert len(site.names()) == 2
    alive.look()
    assert len(site.names()) == 1
    alive.look()
    assert (alive.trouble, len(site.names())) == ("", 1)


async def test_a_greeting_is_no_second_look(site: Site) -> None:
    dead = site.opened()
    kill(dead)
    alive = site.opened()
    for _ in range(5):
        alive._find()
    alive.look()
    assert len(site.names()) == 2


async def test_a_socket_that_was_being_made_at_the_first_look_stays(site: Site) -> None:
    alive = site.opened()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    stale = site.opened()
    kill(stale)
    [name] = set(site.names()) - {alive._name}
    alive.look()
    (site.sockets / name).unlink()
    made.bind(alive._address(name))  # by its short form: the path of a test may be too long
    alive.look()
    alive.look()
    assert name in site.names()
    assert len(alive) == 1
    made.close()


async def test_what_is_no_socket_is_left_alone(site: Site) -> None:
    alive = site.opened()
    (site.sockets / "notes.txt").write_text("mine")
    (site.sockets / "link").symlink_to(site.path)
    for _ in range(4):
        alive.look()
    alive.send(b"news")
    assert {"notes.txt", "link"} < set(site.names())
    assert len(alive) == 0


async def test_one_whose_name_was_removed_comes_back_at_its_next_look(site: Site) -> None:
    first, second = await site.together()
    (site.sockets / first._name).unlink()
    first.look()
    await site.quiet()
    assert (len(first), len(second)) == (1, 1)
    second.send(b"news")
    await site.quiet()
    assert site.heard[first][-1] == b"news"


async def test_a_directory_that_was_removed_is_made_again(site: Site) -> None:
    first, second = await site.together()
    for name in site.names():
        (site.sockets / name).unlink()
    site.sockets.rmdir()
    first.look()
    second.look()
    await site.quiet()
    assert (len(first), len(second)) == (1, 1)
    assert len(site.names()) == 2


async def test_one_who_came_unseen_is_found_at_the_next_look(site: Site) -> None:
    first = site.opened()
    loop = asyncio.get_running_loop()
    assert first._own is not None
    loop.remove_reader(first._own)  # its greeting is lost
    second = site.opened()
    await site.quiet()
    assert len(first) == 0
    first.look()
    assert len(first) == 1
    loop.add_reader(first._own, first._receive)
    second.close()


async def test_the_directory_may_vanish_while_one_comes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one that was there has left between the look at the directory and the making of the socket."""
    comes = site.peers()
    address, vanishes = comes._address, iter([True])

    def vanishing(name: str) -> str:
        if next(vanishes, False):
            site.sockets.rmdir()
        return address(name)

    monkeypatch.setattr(comes, "_address", vanishing)
    comes.open()
    assert (comes.trouble, len(site.names())) == ("", 1)


# -- too much


async def test_sending_never_waits_and_who_was_sent_too_much_looks_at_everything(site: Site) -> None:
    sender, receiver = await site.together()
    for number in range(QUEUE_MAX):
        sender.send(b"%d" % number)
    await eventually(lambda: site.heard[receiver])
    await site.quiet()
    assert set(site.heard[receiver]) == {EVERYTHING}
    sender.send(b"news")
    await eventually(lambda: len(site.heard[receiver]) > 1)
    assert site.heard[receiver][-1] in {EVERYTHING, b"news"}
    sender.send(b"after")
    await eventually(lambda: site.heard[receiver][-1] == b"after")


async def test_one_that_stands_still_holds_up_no_other(site: Site) -> None:
    sender, stopped, receiver = await site.together(3)
    assert stopped._own is not None
    asyncio.get_running_loop().remove_reader(stopped._own)
    for number in range(200):
        sender.send(b"x" * 4_000 + b"%d" % number)
        await site.quiet()
    assert len(site.heard[receiver]) == 200
    assert EVERYTHING not in site.heard[receiver]
    asyncio.get_running_loop().add_reader(stopped._own, stopped._receive)
    await eventually(lambda: site.heard[stopped] == [EVERYTHING])
    sender.send(b"lost for it")
    await eventually(lambda: site.heard[stopped] == [EVERYTHING] * 2)  # a datagram was dropped before


async def test_a_datagram_that_no_system_takes_becomes_one_that_names_nothing(site: Site) -> None:
    sender, receiver = await site.together()
    sender.send(b"x" * 1_000_000)
    await site.quiet()
    assert (site.heard[receiver], len(sender)) == ([EVERYTHING], 1)


async def test_a_flood_leaves_room_for_other_work(site: Site) -> None:
    """However much comes, what is received at once is bounded, and is one look."""
    receiver = site.opened()
    calls: list[int] = []
    receiver._on_datagrams = lambda datagrams: calls.append(len(datagrams))
    flood = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(20)]
    for each in flood:
        each.setblocking(False)
        each.connect(receiver._address(receiver._name))

    def send_all() -> None:
        for each in flood:
            for _ in range(20):
                try:
                    each.send(os.urandom(100))
                except BlockingIOError:
                    return

    for _ in range(50):
        send_all()
        await asyncio.sleep(0)
    await site.quiet()
    assert calls
    assert max(calls) < 8  # more than that counts as one
    for each in flood:
        each.close()


# -- permissions


@pytest.mark.parametrize(
    ("file", "directory", "sockets"),
    [(0o600, 0o700, 0o600), (0o660, 0o770, 0o660), (0o644, 0o755, 0o644), (0o666, 0o777, 0o666), (0o640, 0o750, 0o640)],
)
async def test_who_may_write_the_file_may_send_and_no_other(
    site: Site, file: int, directory: int, sockets: int
) -> None:
    umask = os.umask(0o077)
    try:
        site.path.chmod(file)
        site.opened()
        site.opened()
    finally:
        os.umask(umask)
    assert stat.S_IMODE(site.sockets.stat().st_mode) == directory
    assert {stat.S_IMODE((site.sockets / name).stat().st_mode) for name in site.names()} == {sockets}


def _made_by_another_user(site: Site) -> None:
    site.sockets.mkdir(0o700)
    os.chown(site.sockets, 12_345, 12_345)


def _open_to_all(site: Site) -> None:
    site.sockets.mkdir()
    site.sockets.chmod(0o777)


def _open_to_a_group(site: Site) -> None:
    site.sockets.mkdir()
    site.sockets.chmod(0o770)


def _a_link(site: Site) -> None:
    (site.path.parent / "elsewhere").mkdir()
    site.sockets.symlink_to(site.path.parent / "elsewhere")


def _a_file(site: Site) -> None:
    site.sockets.touch()


@pytest.mark.parametrize("odd", [_made_by_another_user, _open_to_all, _open_to_a_group, _a_link, _a_file])
async def test_a_directory_that_others_may_have_made_to_listen_is_not_used(
    site: Site, odd: Callable[[Site], None]
) -> None:
    if odd is _made_by_another_user and os.geteuid() != 0:
        pytest.skip("only root can make it")
    odd(site)
    listens = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if site.sockets.is_dir():
        listens.bind(str(site.sockets / "listens"))
    peers = site.peers()
    for verb in (peers.open, peers.look):
        verb()
        assert str(site.sockets) in peers.trouble
        assert len(peers) == 0
        peers.send(b"news")
    peers.close()
    assert site.sockets.exists()
    with pytest.raises(BlockingIOError):
        listens.recv(1, socket.MSG_DONTWAIT)
    listens.close()


async def test_the_file_of_another_user_gives_its_owner_what_root_makes(site: Site) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root works on the files of others")
    os.chown(site.path, 12_345, 12_346)
    site.opened()
    [name] = site.names()
    for made in (site.sockets, site.sockets / name):
        assert (made.stat().st_uid, made.stat().st_gid) == (12_345, 12_346)


async def test_who_may_not_give_it_to_the_group_of_the_file_gives_it_to_no_group(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is no member of it; or a container whose system does not know the group."""
    site.path.chmod(0o660)
    if os.geteuid() == 0:
        os.chown(site.path, -1, 12_346)

    def chown(*_: object, **__: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "chown", chown)
    site.opened()
    shared = site.sockets.stat().st_gid == site.path.stat().st_gid
    assert stat.S_IMODE(site.sockets.stat().st_mode) == (0o770 if shared else 0o700)
    assert stat.S_IMODE((site.sockets / site.names()[0]).stat().st_mode) == (0o660 if shared else 0o600)


async def test_what_comes_counts_though_no_descriptor_is_left_to_see_who_is_there(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = await site.together()

    def listdir(*_: object) -> list[str]:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", listdir)
        sender.send(EVERYTHING)
        await site.quiet()
    assert site.heard[receiver] == [EVERYTHING]
    assert (len(sender), len(receiver)) == (1, 1)


@pytest.mark.parametrize("lacks", [(os, "listdir"), (socket, "socket")], ids=["to list", "to send"])
async def test_one_who_came_while_no_descriptor_was_left_is_found_at_the_next_look(
    site: Site, monkeypatch: pytest.MonkeyPatch, lacks: tuple[object, str]
) -> None:
    def no_descriptor(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    first = site.opened()
    site.opened()
    with monkeypatch.context() as patched:
        patched.setattr(*lacks, no_descriptor)
        await site.quiet()  # the greeting of the second has come
        assert site.heard[first] == [EVERYTHING]
    assert len(first) == 0
    first.look()
    assert len(first) == 1


# -- where it cannot work


async def test_a_path_that_is_too_long_for_a_socket_is_none_for_a_descriptor(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    site = Site(deep)
    first, second = await site.together()
    first.send(b"news")
    await site.quiet()
    assert site.heard[second] == [b"news"]
    first.close()
    second.close()
    assert not site.sockets.exists()


async def test_a_loop_that_watches_no_sockets_is_a_trouble_and_no_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_reader(*_: object) -> None:
        raise NotImplementedError

    peers = site.peers()
    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "add_reader", add_reader)
        peers.open()
    assert "NotImplementedError" in peers.trouble
    assert site.names() == []
    peers.look()
    assert (peers.trouble, len(site.names())) == ("", 1)


async def test_one_that_is_closed_can_be_closed_again(site: Site) -> None:
    peers = site.peers()
    peers.close()
    peers.open()
    peers.close()
    peers.close()
    assert peers.trouble
    assert not site.sockets.exists()


FORK = """
import asyncio, os, signal, sys
from pathlib import Path
from holdfast.stores.sqlite.peers import Peers

async def main():
    peers = Peers(Path(sys.argv[1]), lambda datagrams: None)
    peers.open()
    assert not peers.trouble
    child = os.fork()
    if child:
        print(child, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()
    os._exit(0)

asyncio.run(main())
"""


async def test_a_forked_process_does_not_seem_to_be_its_parent_when_that_is_dead(site: Site) -> None:
    """A multiprocessing worker, say. It lives on, and must not keep the socket of the dead one alive."""
    alive = site.opened()
    process = await asyncio.to_thread(_forked_and_killed, site.path)
    try:
        await eventually(lambda: site.heard[alive])  # whether or not it was still there to be found

        def cleared() -> bool:
            alive.send(b"news")
            alive.look()
            return (len(alive), len(site.names())) == (0, 1)

        await eventually(cleared)
    finally:
        assert process.stdin is not None
        process.stdin.close()  # the child ends
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.read)
        process.stdout.close()


def _forked_and_killed(path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", FORK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert int(process.stdout.readline())
    process.wait(60)
    return process
