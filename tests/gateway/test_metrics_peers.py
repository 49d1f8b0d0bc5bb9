"""Processes that share a port say each other's metrics."""

from __future__ import annotations

import asyncio
import contextlib
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.gateway.metrics_peers import MetricsPeers, bind_peers, remove_peers
from holdfast.telemetry.metrics import Rendered

Started = Callable[..., list[MetricsPeers]]


def says(number: int) -> Callable[[str], Awaitable[Rendered]]:
    async def render(accept: str) -> Rendered:
        return Rendered(f'# HELP m what\n# TYPE m gauge\nm{{n="{number}",a="{accept}"}} 1\n'.encode(), "text/plain")

    return render


@pytest.fixture
async def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Started]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    every: list[MetricsPeers] = []

    def start(count: int, *, seconds_max: float = 30.0) -> list[MetricsPeers]:
        sockets = bind_peers(count)
        every.extend(MetricsPeers(each, says(number), seconds_max=seconds_max) for number, each in enumerate(sockets))
        for each in every:
            each.start()
        return every

    yield start
    for each in every:
        each.close()
        each._socket.close()


def numbers(rendered: Rendered) -> list[str]:
    return [line[5] for line in rendered.body.decode().splitlines() if not line.startswith("#")]


async def test_each_says_what_all_have_counted_and_its_own_first(started):
    each = started(3)
    assert [numbers(await one.metrics("x")) for one in each] == [["0", "1", "2"], ["1", "0", "2"], ["2", "0", "1"]]
    assert (await each[0].metrics("x")).body.count(b'a="x"') == 3


async def test_one_that_is_away_is_missing_and_holds_nothing_up_forever(started):
    each = started(3, seconds_max=2.0)
    kept = each[1]._socket.dup()  # as the supervisor does
    each[1].close()
    with kept:
        assert numbers(await each[0].metrics("")) == ["0", "2"]


async def test_one_that_breaks_off_or_says_nonsense_disturbs_no_other(started):
    each = started(2)
    _, writer = await asyncio.open_unix_connection(str(each[0].address))
    writer.close()
    reader, writer = await asyncio.open_unix_connection(str(each[0].address))
    writer.write(b"x" * 20_000)  # a line that does not end
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""  # it hangs up
    writer.close()
    assert numbers(await each[1].metrics("")) == ["1", "0"]


def test_only_their_user_can_enter_the_directory_and_it_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sockets = bind_peers(2)
    [directory] = tmp_path.iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    remove_peers(sockets[0].getsockname())
    assert list(tmp_path.iterdir()) == []
    for each in sockets:
        each.close()


def test_where_there_is_no_room_for_anaddress_nothing_is_left(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 120)  # longer than an address may be
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(OSError, match="path too long"):
        bind_peers(2)
    assert list(deep.iterdir()) == []
