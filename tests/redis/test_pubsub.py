"""Hints by Redis Pub/Sub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.lab.cluster.redis import RedisServer
from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.stores.redis.net import urls
from holdfast.stores.redis.net.connections import BACKOFF_SECONDS_MIN
from holdfast.stores.redis.net.pubsub import PubSub
from tests.redis.calls import until
from tests.redis.conftest import Starts

Buses = Callable[[str], PubSub]


@pytest.fixture
async def bus() -> AsyncIterator[Buses]:
    """Makes a bus, and closes it in the end."""
    async with AsyncExitStack() as stack:

        def one(url: str) -> PubSub:
            made = PubSub(urls.parse(url), clock=SystemClock(), ids=SystemIds())
            stack.push_async_callback(made.close)
            return made

        yield one


async def up(*buses: PubSub) -> None:
    for each in buses:
        await each.open()
    await until(lambda: all(each.connected for each in buses))


async def test_others_hear_what_is_broadcast_and_the_speaker_does_not(
    redis_server: RedisServer, bus: Buses, tag: bytes
) -> None:
    url = f"{redis_server.url}?name=hears"
    speaker, one, two, stranger = bus(url), bus(url), bus(url), bus(f"{redis_server.url}?name=stranger")
    subject = "any > text.* \n with {strange} \u00e9 characters"
    heard: dict[str, list[bytes]] = {"speaker": [], "one": [], "two": [], "stranger": []}
    for name, each in zip(heard, (speaker, one, two, stranger), strict=True):
        each.listen(subject, heard[name].append)
        each.listen("end", heard[name].append)
    await up(speaker, one, two, stranger)
    speaker.broadcast(subject, b"\x00 first")
    speaker.broadcast("other", b"not for these")
    speaker.broadcast("end", b"second")
    await until(lambda: all(len(heard[name]) == 2 for name in ("one", "two")))
    assert heard == {
        "speaker": [],
        "one": [b"\x00 first", b"second"],
        "two": [b"\x00 first", b"second"],
        "stranger": [],
    }


async def test_all_members_of_a_group_hear_a_wake_up(redis_server: RedisServer, bus: Buses) -> None:
    url = f"{redis_server.url}?name=wakes"
    speaker, one, two = bus(url), bus(url), bus(url)
    woken: list[bytes] = []
    for each in (one, two):
        each.join("workers", woken.append)
    two.listen("workers", woken.append)  # a subject is not a group
    await up(speaker, one, two)
    speaker.wake("workers", b"look")
    await until(lambda: len(woken) == 2)
    speaker.wake("workers", b"again")
    await until(lambda: len(woken) == 4)
    assert sorted(woken) == [b"again", b"again", b"look", b"look"]


async def test_what_is_listened_to_later_is_heard_too(redis_server: RedisServer, bus: Buses) -> None:
    url = f"{redis_server.url}?name=later"
    speaker, listener = bus(url), bus(url)
    await up(speaker, listener)
    heard = asyncio.Event()
    listener.listen("news", lambda _: heard.set())

    def is_heard() -> bool:
        speaker.broadcast("news", b"")
        return heard.is_set()

    await until(is_heard)


async def test_what_is_said_right_before_the_end_is_heard(redis_server: RedisServer, bus: Buses) -> None:
    url = f"{redis_server.url}?name=last"
    speaker, listener = bus(url), bus(url)
    heard: list[bytes] = []
    listener.listen("news", heard.append)
    await up(speaker, listener)
    for number in range(1000):
        speaker.broadcast("news", b"%d" % number)
    await speaker.close()
    await until(lambda: len(heard) == 1000)


async def test_a_bus_can_be_closed_while_the_server_hangs(started: Starts, bus: Buses) -> None:
    server = started()
    speaker = bus(server.url)
    await up(speaker)
    server.stop_signal()
    speaker.broadcast("news", b"unheard")
    async with asyncio.timeout(20):
        await speaker.close()
    assert not speaker.connected


async def test_a_lost_connection_is_told_and_made_anew(started: Starts, bus: Buses) -> None:
    server = started()
    speaker, listener = bus(server.url), bus(server.url)
    states: list[bool] = []
    heard: list[bytes] = []
    listener.watch(states.append)
    listener.listen("news", heard.append)
    await up(speaker, listener)
    server.kill()
    await until(lambda: not speaker.connected and not listener.connected)
    speaker.broadcast("news", b"into the void")
    assert speaker.dropped == 1
    [finding] = await speaker.inspect()
    assert finding.level == "warning"
    assert server.address in finding.detail
    server.start()
    await until(lambda: speaker.connected and listener.connected)
    speaker.broadcast("news", b"back")
    await until(lambda: bool(heard))
    assert heard == [b"back"]
    assert states == [True, False, True]


async def test_a_bus_that_is_down_keeps_nobody_from_starting(bus: Buses) -> None:
    down = bus("redis://127.0.0.1:1")
    await down.open()
    down.wake("workers", b"")
    assert (down.connected, down.dropped) == (False, 1)


async def test_a_server_that_refuses_us_is_asked_ever_more_slowly_and_the_reason_is_told(
    started: Starts, monkeypatch: pytest.MonkeyPatch, bus: Buses
) -> None:
    server = started()
    login = ("ACL", "SETUSER", "shop", "on", ">secret", "~{hf:*", "+@all")
    server.ask(*login, "resetchannels")
    pauses: list[float] = []
    pause = SystemClock.pause

    async def noted(clock: SystemClock, seconds: float) -> None:
        pauses.append(seconds)
        await pause(clock, seconds)

    monkeypatch.setattr(SystemClock, "pause", noted)
    refused, states = bus(f"redis://shop:secret@{server.address}"), list[bool]()
    refused.watch(states.append)
    refused.listen("news", lambda _: None)
    await refused.open()
    await until(lambda: len(pauses) == 6)
    assert pauses[-1] > 4 * max(pauses[0], BACKOFF_SECONDS_MIN)
    assert states == []
    [finding] = await refused.inspect()
    assert (finding.level, finding.what) == ("warning", "bus")
    assert f"{server.address} refuses: NOPERM" in finding.detail
    assert "&hf:*" in finding.hint
    server.ask(*login, "&hf:*")  # as the hint says
    await until(lambda: refused.connected)


async def test_a_listener_that_fails_keeps_no_other_from_hearing(
    redis_server: RedisServer, bus: Buses, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{redis_server.url}?name=fails"
    speaker, listener = bus(url), bus(url)
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    heard: list[bytes] = []
    listener.listen("news", lambda _: 1 / 0)
    listener.listen("news", heard.append)
    await up(speaker, listener)
    speaker.broadcast("news", b"one")
    speaker.broadcast("news", b"two")
    await until(lambda: len(heard) == 2)
    assert [type(each) for each in reported] == [ZeroDivisionError, ZeroDivisionError]


async def test_hints_cross_a_cluster_from_any_node_to_any(redis_cluster: RedisCluster, bus: Buses) -> None:
    buses = [bus(f"{redis_cluster.url}?name=crosses") for _ in range(3)]
    for number, each in enumerate(buses):
        each._turn = number  # to three different primaries
    heard: list[bytes] = []
    for each in buses:
        each.listen("news", heard.append)
    await up(*buses)
    buses[0].broadcast("news", b"hello")
    await until(lambda: len(heard) == 2)
