"""Topics on a cluster of three, with three copies of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from secrets import token_hex

import pytest

from holdfast.buses.nats import jetstream
from holdfast.buses.nats.names import Names
from holdfast.errors import BusUnavailable
from holdfast.lab.cluster.servers import NatsCluster
from tests.bus.ends import Handled, NatsEnds, opened, publish_in_the_end, until

pytestmark = pytest.mark.faults


@pytest.fixture
async def ends(nats_cluster: NatsCluster) -> AsyncIterator[NatsEnds]:
    made = NatsEnds(nats_cluster.url, token_hex(6))
    yield made
    await made.close()
    for node in nats_cluster.nodes:
        if node.state == "dead":
            node.start()
    await asyncio.to_thread(nats_cluster.wait_until_healthy)


async def test_a_topic_survives_one_dead_node_refuses_with_two_and_heals(
    nats_cluster: NatsCluster, ends: NatsEnds
) -> None:
    ends.patience_s = 2.0
    handled, other = Handled(), Handled()
    one, two = ends.end(), ends.end()
    await opened(one, two)
    stream = Names(ends.name).stream("orders")

    # A group that is there, with no member at work.
    await publish_in_the_end(one, "orders", "m0")
    first = await one.consume("orders", "billing", handled)
    await until(lambda: handled.ids == ["m0"])
    await first.stop()
    kept = [f"m{number}" for number in range(6)]
    for each in kept[1:]:
        await one.publish("orders", b"", id=each)
    findings = {finding.what: finding for finding in await one.inspect()}
    assert "3 copies" in findings["topic orders"].detail
    assert findings["NATS servers"].detail == "a cluster of 3"

    info = await jetstream.ask(await one._link.wait_for_client(), f"CONSUMER.INFO.{stream}.billing")
    leader, second, third = sorted(nats_cluster.nodes, key=lambda node: node.name != info["cluster"]["leader"])
    leader.kill()
    await one.consume("orders", "billing", handled, in_flight=4)
    await two.consume("orders", "billing", other, in_flight=4)
    await publish_in_the_end(one, "orders", "with one dead")
    kept.append("with one dead")
    await until(lambda: set(kept) <= {*handled.ids, *other.ids}, lambda: (kept, handled.ids, other.ids))

    second.kill()
    async with asyncio.timeout(30):
        with pytest.raises(BusUnavailable):
            await one.publish("orders", b"", id="unknown")

    second.start()
    await publish_in_the_end(one, "orders", "healed")
    kept.append("healed")
    # What was published when it was not known whether it is kept may be there too.
    await until(lambda: set(kept) <= {*handled.ids, *other.ids}, lambda: (kept, handled.ids, other.ids))
    assert third.state == "running"


async def test_a_wake_finds_the_only_other_member_on_another_node(nats_cluster: NatsCluster, ends: NatsEnds) -> None:
    """The server must not give up because the member nearest to the sender is the sender."""
    own: list[bytes] = []
    woken: list[bytes] = []
    ends.url = nats_cluster.nodes[0].url
    sender = ends.end()
    ends.url = nats_cluster.nodes[1].url
    member = ends.end()
    sender.join("workers", own.append)
    member.join("workers", woken.append)
    await opened(sender, member)

    def wake() -> bool:
        sender.wake("workers", b"")
        return bool(woken)

    await until(wake)
    assert not own
