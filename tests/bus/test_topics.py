"""Topics, over every bus."""

from __future__ import annotations

import asyncio

from holdfast.ports.bus import TopicMessage
from tests.bus.ends import Ends, Handled, until


async def test_the_members_of_a_group_share_its_messages(ends: Ends) -> None:
    """Pitfall 6: a consumer that is a plain subscription gets nothing of what it was not there for."""
    publisher, one, two = ends.end(), ends.end(), ends.end()
    for bus in (publisher, one, two):
        await bus.open()
    by_one, by_two = Handled(), Handled()
    first = await one.consume("orders", "billing", by_one)
    await publisher.publish("orders", b"", id="m0")
    await until(lambda: by_one.deliveries)
    await first.stop()

    for number in range(1, 20):  # while no member is there
        await publisher.publish("orders", str(number).encode(), id=f"m{number}")
    await one.consume("orders", "billing", by_one, in_flight=2)
    await two.consume("orders", "billing", by_two, in_flight=2)
    await until(lambda: len(by_one.deliveries) + len(by_two.deliveries) >= 20, lambda: (by_one.ids, by_two.ids))

    assert sorted(by_one.ids + by_two.ids) == sorted(f"m{number}" for number in range(20))
    # A message that was on its way to the member that left has been given back; that member has handled none of them.
    assert {delivery.count for delivery in by_one.deliveries + by_two.deliveries} <= {1, 2}


async def test_each_group_gets_every_message(ends: Ends) -> None:
    """Pitfall 3: what one consumer has seen must not be taken from another."""
    bus = ends.end()
    await bus.open()
    billing, shipping = Handled(), Handled()
    await bus.consume("orders", "billing", billing)
    await bus.consume("orders", "shipping", shipping)
    for number in range(10):
        await bus.publish("orders", b"", id=f"m{number}")
    await until(lambda: len(billing.deliveries) >= 10 and len(shipping.deliveries) >= 10)
    assert billing.ids == shipping.ids == [f"m{number}" for number in range(10)]


async def test_what_is_published_before_anybody_consumes_is_kept(ends: Ends) -> None:
    """Pitfall 6 again: whichever starts first, nothing is lost."""
    bus = ends.end()
    await bus.open()
    await bus.publish("orders", b"early", id="m")
    handled = Handled()
    await bus.consume("orders", "billing", handled)
    await until(lambda: handled.deliveries)
    assert handled.deliveries == [TopicMessage("m", b"early", 1)]


async def test_names_of_topics_and_groups_stay_apart_whatever_they_hold(ends: Ends) -> None:
    bus = ends.end()
    await bus.open()
    names = ["t", "T", "t.*", ">", "t u"]
    handled = {(topic, group): Handled() for topic in names for group in ("g", "g.*")}
    for (topic, group), handle in handled.items():
        await bus.consume(topic, group, handle, in_flight=1)
    for topic in names:
        await bus.publish(topic, topic.encode(), id="m")
    await until(lambda: all(handle.deliveries for handle in handled.values()))
    for (topic, _), handle in handled.items():
        assert handle.deliveries == [TopicMessage("m", topic.encode(), 1)]


async def test_a_message_whose_handler_raises_comes_again_and_says_how_often(ends: Ends) -> None:
    bus = ends.end()
    await bus.open()
    counts: list[int] = []

    async def handle(delivery: TopicMessage) -> None:
        counts.append(delivery.count)
        if delivery.count < 3:
            raise RuntimeError("not yet")

    await bus.consume("orders", "billing", handle)
    await bus.publish("orders", b"", id="m")
    await until(lambda: len(counts) == 3, lambda: counts)
    assert counts == [1, 2, 3]


async def test_a_slow_message_holds_up_no_other(ends: Ends) -> None:
    """Pitfall 11: one message at a time per subscription, and one slow item blocked a replica."""
    bus = ends.end()
    await bus.open()
    release = asyncio.Event()
    done: list[str] = []
    at_work = most = 0

    async def handle(delivery: TopicMessage) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if delivery.id == "slow":
            await release.wait()
        at_work -= 1
        done.append(delivery.id)

    await bus.consume("orders", "billing", handle, in_flight=3)
    await bus.publish("orders", b"", id="slow")
    await until(lambda: at_work)
    for number in range(12):
        await bus.publish("orders", b"", id=f"m{number}")
    await until(lambda: len(done) == 12, lambda: done)

    assert "slow" not in done
    assert most <= 3
    release.set()
    await until(lambda: "slow" in done)


async def test_the_same_id_twice_in_short_order_is_delivered_once(ends: Ends) -> None:
    """An optimisation: it spares work after a publisher was unsure. Nothing may rely on it."""
    bus = ends.end()
    await bus.open()
    handled = Handled()
    await bus.consume("orders", "billing", handled)
    await bus.publish("orders", b"", id="same")
    for each in ("same", " same", "SAME", "same", "säme\n", "last"):
        await bus.publish("orders", b"", id=each)
    await until(lambda: "last" in handled.ids, lambda: handled.ids)
    await until(lambda: len(handled.ids) == 5, lambda: handled.ids)
    assert handled.ids == sorted(["same", " same", "SAME", "säme\n", "last"])


async def test_a_shutdown_acknowledges_nothing_that_was_not_handled(ends: Ends) -> None:
    """Pitfall 5: shutdown acknowledged what it no longer processed."""
    leaving, staying = ends.end(), ends.end()
    await leaving.open()
    await staying.open()
    begun: list[str] = []
    finish = asyncio.Event()

    async def hang(delivery: TopicMessage) -> None:
        begun.append(delivery.id)
        await (finish.wait() if delivery.id == "m0" else asyncio.Event().wait())

    consumption = await leaving.consume("orders", "billing", hang, in_flight=2)
    await leaving.publish("orders", b"", id="m0")
    for number in range(1, 6):
        await leaving.publish("orders", b"", id=f"m{number}")
    await until(lambda: len(begun) == 2, lambda: begun)
    finish.set()
    await until(lambda: len(begun) == 3, lambda: begun)
    await consumption.stop(grace_s=0)

    rest = Handled()
    await staying.consume("orders", "billing", rest)
    await until(lambda: len(rest.deliveries) >= 5, lambda: rest.ids)
    assert rest.ids == ["m1", "m2", "m3", "m4", "m5"]
    assert len(begun) == 3, "it took more after it was told to stop"


async def test_a_handler_that_finishes_within_the_grace_is_acknowledged(ends: Ends) -> None:
    leaving, staying = ends.end(), ends.end()
    await leaving.open()
    await staying.open()
    begun, finish = asyncio.Event(), asyncio.Event()

    async def handle(_: TopicMessage) -> None:
        begun.set()
        await finish.wait()

    consumption = await leaving.consume("orders", "billing", handle)
    await leaving.publish("orders", b"", id="m0")
    await begun.wait()
    stopping = asyncio.create_task(consumption.stop(grace_s=20))
    await asyncio.sleep(0)
    finish.set()
    await stopping

    rest = Handled()
    await staying.consume("orders", "billing", rest)
    await staying.publish("orders", b"", id="m1")
    await until(lambda: "m1" in rest.ids)
    assert rest.ids == ["m1"]


async def test_an_empty_topic_leaves_room_for_many_more(ends: Ends) -> None:
    """Each reserves a gibibyte: a server that reserves by its free disk refuses the next after a dozen or two."""
    bus = ends.end()
    await bus.open()
    for number in range(64):
        await bus.publish(f"orders-{number}", b"", id="m0")
