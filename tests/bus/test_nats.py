"""What is particular to NATS: outages, who may connect, what a server that stands alone can lose."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.buses.nats import NatsBus, jetstream
from holdfast.buses.nats.bus import UNSENT_MAX
from holdfast.buses.nats.names import Names
from holdfast.errors import BusUnavailable, InvalidConfig, PayloadTooLarge
from holdfast.lab.cluster.nats import NatsServer
from holdfast.lab.cluster.servers import start_nats
from holdfast.ports.bus import Bus, TopicMessage
from tests.bus.certificates import CERTIFICATE, KEY
from tests.bus.ends import DEADLINE_S, Handled, NatsEnds, opened, publish_in_the_end, until

pytestmark = pytest.mark.faults

ACK_WAIT_S = 1.0


@asynccontextmanager
async def server_and_ends(directory: Path) -> AsyncIterator[tuple[NatsServer, NatsEnds]]:
    """A server that may be killed."""
    server = await asyncio.to_thread(start_nats, directory)
    ends = NatsEnds(server.url, "own")
    try:
        yield server, ends
    finally:
        await ends.close()
        server.kill()


async def until_heard(sender: Bus, heard: list[bytes], word: bytes) -> None:
    def said() -> bool:
        sender.broadcast("news", word)
        return word in heard

    await until(said, lambda: heard)


@pytest.mark.parametrize("data", ["kept", "wiped"])
async def test_hints_and_topics_go_on_by_themselves_after_the_server_was_killed(tmp_path: Path, data: str) -> None:
    async with server_and_ends(tmp_path) as (server, ends):
        heard: list[bytes] = []
        states: list[bool] = []
        handled = Handled()
        sender, listener = ends.end(), ends.end()
        listener.listen("news", heard.append)
        listener.watch(states.append)
        await opened(sender, listener)
        await listener.consume("orders", "billing", handled, in_flight=2)
        await until_heard(sender, heard, b"before")
        await publish_in_the_end(sender, "orders", "before")
        await until(lambda: handled.ids == ["before"])

        server.kill()
        await until(lambda: not sender.connected and states[-1] is False)
        dropped = sender.dropped
        sender.broadcast("news", b"lost")
        sender.wake("workers", b"lost")
        assert sender.dropped == dropped + 2
        publishing = asyncio.create_task(publish_in_the_end(sender, "orders", "meanwhile"))
        if data == "wiped":
            shutil.rmtree(tmp_path / "data")
        server.start()

        await until_heard(sender, heard, b"after")
        await publishing
        await publish_in_the_end(sender, "orders", "after")
        await until(lambda: {"before", "meanwhile", "after"} <= set(handled.ids), lambda: handled.ids)
        assert b"lost" not in heard
        assert states == [True, False, True]


async def test_a_process_starts_while_the_server_is_down_and_connects_later(tmp_path: Path) -> None:
    async with server_and_ends(tmp_path) as (server, ends):
        server.kill()
        heard: list[bytes] = []
        handled = Handled()
        sender, listener = ends.end(), ends.end()
        listener.listen("news", heard.append)
        await sender.open()
        await listener.open()
        await listener.consume("orders", "billing", handled)
        assert not sender.connected
        [finding] = await sender.inspect()
        assert finding.level == "error"
        assert "No run is lost" in finding.detail

        server.start()
        await until_heard(sender, heard, b"now")
        await publish_in_the_end(sender, "orders", "m")
        await until(lambda: handled.ids == ["m"])


async def test_a_publisher_learns_in_bounded_time_that_the_server_is_gone(tmp_path: Path) -> None:
    async with server_and_ends(tmp_path) as (server, ends):
        ends.patience_s = 2.0
        bus = ends.end()
        await opened(bus)
        await bus.consume("orders", "billing", Handled())
        await publish_in_the_end(bus, "orders", "m")
        server.stop_signal()  # it holds its connections, and is silent
        try:
            async with asyncio.timeout(20):
                with pytest.raises(BusUnavailable, match="orders"):
                    await bus.publish("orders", b"", id="n")
        finally:
            server.cont()


async def test_the_messages_of_a_member_that_was_killed_go_to_another(nats_ends: NatsEnds) -> None:
    nats_ends.ack_wait_s = ACK_WAIT_S
    bus = nats_ends.end()
    await opened(bus)
    script = f"""
import asyncio
from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.buses.nats import NatsBus, jetstream, topics

async def main():
    clock, ids = SystemClock(), SystemIds()
    bus = NatsBus({nats_ends.url!r}, name={nats_ends.name!r}, clock=clock, ids=ids, ack_wait_s={ACK_WAIT_S})
    await bus.open()
    async def hang(delivery):
        print(delivery.id, flush=True)
        await asyncio.Event().wait()
    await bus.consume("orders", "billing", hang)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    member = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        await bus.publish("orders", b"work", id="m")
        assert member.stdout is not None
        assert await asyncio.to_thread(member.stdout.readline) == "m\n"
    finally:
        os.kill(member.pid, signal.SIGKILL)
        member.communicate()

    handled = Handled()
    await bus.consume("orders", "billing", handled)
    await until(lambda: handled.deliveries)
    assert handled.deliveries == [TopicMessage("m", b"work", 2)]


async def test_a_message_that_takes_long_is_not_given_to_another_meanwhile(nats_ends: NatsEnds) -> None:
    nats_ends.ack_wait_s = ACK_WAIT_S
    bus = nats_ends.end()
    await opened(bus)
    counts: list[int] = []
    done = asyncio.Event()

    async def handle(delivery: TopicMessage) -> None:
        counts.append(delivery.count)
        await asyncio.sleep(2.5 * ACK_WAIT_S)
        done.set()

    await bus.consume("orders", "billing", handle)
    await publish_in_the_end(bus, "orders", "m")
    await done.wait()
    assert counts == [1]


async def test_what_every_group_has_handled_is_trimmed_and_nothing_else(nats_ends: NatsEnds) -> None:
    bus = nats_ends.end()
    await opened(bus)
    client = await bus._link.wait_for_client()
    stream = Names(nats_ends.name).stream("orders")

    async def kept() -> int:
        await jetstream.trim(client, stream)
        info = await jetstream.ask(client, f"STREAM.INFO.{stream}")
        return info["state"]["messages"]

    await bus.publish("orders", b"", id="m0")
    assert await kept() == 1, "there is no group yet, and one may come"

    hold = asyncio.Event()
    quick, slow = Handled(), Handled()

    async def handle_slowly(delivery: TopicMessage) -> None:
        if delivery.id == "m1":
            await hold.wait()
        await slow(delivery)

    await bus.consume("orders", "quick", quick)
    await bus.consume("orders", "slow", handle_slowly)
    for number in range(1, 4):
        await bus.publish("orders", b"", id=f"m{number}")
    await until(lambda: len(quick.deliveries) == 4 and len(slow.deliveries) == 3)
    async with asyncio.timeout(DEADLINE_S):
        while await kept() != 3:  # acknowledgements are on their way
            pass
    hold.set()
    async with asyncio.timeout(DEADLINE_S):
        while await kept() != 0:
            pass
    assert slow.ids == ["m0", "m1", "m2", "m3"]


async def test_two_stores_on_the_same_servers_do_not_hear_each_other(nats_ends: NatsEnds) -> None:
    heard: dict[str, list[bytes]] = {"a": [], "a.>": []}
    for name, words in heard.items():
        nats_ends.name = name
        listener = nats_ends.end()
        listener.listen("news", words.append)
        await opened(listener)
    for name, words in heard.items():
        nats_ends.name = name
        sender = nats_ends.end()
        await opened(sender)
        sender.broadcast("news", name.encode())
        await until(lambda words=words: words)
    assert heard == {"a": [b"a"], "a.>": [b"a.>"]}


async def test_more_hints_than_can_be_sent_are_dropped_and_the_rest_arrives(nats_ends: NatsEnds) -> None:
    sender, listener = nats_ends.end(), nats_ends.end()
    heard: list[bytes] = []
    listener.listen("news", heard.append)
    await opened(sender, listener)
    size = UNSENT_MAX // 8 - 100  # eight of them fit, with their subjects
    for _ in range(20):
        sender.broadcast("news", b"x" * size)
    assert sender.dropped == 12
    await until(lambda: len(heard) == 8)
    await until_heard(sender, heard, b"after")


async def test_a_message_over_the_servers_limit_is_refused_and_the_connection_stays(nats_ends: NatsEnds) -> None:
    bus = nats_ends.end()
    states: list[bool] = []
    bus.watch(states.append)
    await opened(bus)
    handled = Handled()
    await bus.consume("orders", "billing", handled)
    await publish_in_the_end(bus, "orders", "small")
    with pytest.raises(PayloadTooLarge):
        await bus.publish("orders", b"x" * 1024 * 1024, id="large")
    await bus.publish("orders", b"x" * (1024 * 1024 - 200), id="just fits")
    await until(lambda: handled.ids == ["just fits", "small"])
    assert states == [True]


async def test_a_listener_that_raises_is_reported_and_hears_what_follows(nats_ends: NatsEnds) -> None:
    sender, listener = nats_ends.end(), nats_ends.end()
    heard: list[bytes] = []
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))

    def hear(body: bytes) -> None:
        heard.append(body)
        if body == b"bad":
            raise LookupError(body)

    listener.listen("news", hear)
    await opened(sender, listener)
    sender.broadcast("news", b"bad")
    sender.broadcast("news", b"good")
    await until(lambda: heard == [b"bad", b"good"])
    assert [type(each) for each in reported] == [LookupError]


# ------------------------------------------------------------------------------------------------ who may connect


def bus_at(url: str) -> NatsBus:
    return NatsBus(url, name="own", clock=SystemClock(), ids=SystemIds())


async def open_until_refused(url: str) -> None:
    """Open buses there until one is refused: on a busy machine the server may be silent for as long as one waits."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            bus = bus_at(url)
            await bus.open()
            await bus.close()


async def test_a_wrong_password_is_said_at_once_and_a_right_one_connects(tmp_path: Path) -> None:
    async with server_and_ends(tmp_path) as (server, _):
        server.kill()
        with (tmp_path / "server.conf").open("a") as file:
            file.write('authorization { user: "an@na", password: "s:e/c,r" }\n')
        server.start()
        with pytest.raises(InvalidConfig, match="refuses the user name and password") as raised:
            await open_until_refused(f"nats://an%40na:wrong@{server.address}")
        assert "wrong" not in str(raised.value)

        bus = bus_at(f"nats://an%40na:s%3Ae%2Fc%2Cr@{server.address}")
        await opened(bus)
        assert bus.connected
        await bus.close()


async def test_a_certificate_has_to_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    async with server_and_ends(tmp_path) as (server, _):
        server.kill()
        with (tmp_path / "server.conf").open("a") as file:
            file.write(f"tls {{ cert_file: {str(certificate)!r}, key_file: {str(key)!r} }}\n")
        server.start()
        for scheme in ("tls", "nats"):
            with pytest.raises(InvalidConfig, match="certificate that does not verify"):
                await open_until_refused(f"{scheme}://{server.address}")

        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        bus = bus_at(f"tls://{server.address}")
        await opened(bus)
        assert bus.connected
        await bus.close()


async def test_with_tls_no_word_is_said_to_a_server_without_it() -> None:
    said: list[bytes] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"headers":true}\r\n')
        said.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(InvalidConfig, match="does not speak TLS"):
            await open_until_refused(f"tls://anna:secret@{host}:{port}")
        await until(lambda: said)
    assert b"".join(said) == b""


# ---------------------------------------------------------------------------------------------------- inspections


async def test_an_inspection_says_what_one_server_alone_can_lose(nats_ends: NatsEnds) -> None:
    bus = nats_ends.end()
    await opened(bus)
    before = {finding.what: finding for finding in await bus.inspect()}
    assert before["NATS"].level == "ok"
    assert before["NATS version"].level == "ok"
    assert before["NATS servers"].level == "warning"
    assert before["JetStream sync_interval"].level == "ok", "there is no topic yet that could lose anything"

    await bus.consume("orders", "billing", Handled())
    await publish_in_the_end(bus, "orders", "m")
    after = {finding.what: finding for finding in await bus.inspect()}
    assert "if its disk is lost, so is all of it" in after["topic orders"].detail
    assert after["room of topic orders"].level == "ok"
    assert "a client cannot see this setting" in after["JetStream sync_interval"].detail
    assert "sync_interval: always" in after["JetStream sync_interval"].hint


async def test_an_inspection_says_that_topics_need_jetstream(tmp_path: Path) -> None:
    server = await asyncio.to_thread(lambda: start_nats(tmp_path, jetstream=False))
    bus = bus_at(server.url)
    try:
        await opened(bus)
        findings = {finding.what: finding for finding in await bus.inspect()}
        assert "Hints work" in findings["JetStream"].detail
    finally:
        await bus.close()
        server.kill()
