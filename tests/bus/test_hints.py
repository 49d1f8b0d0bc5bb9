"""Hints, over every bus."""

from __future__ import annotations

from collections import Counter

from tests.bus.ends import Ends, opened, until

AWKWARD = [
    "a",
    "A",
    "a.b",
    "a.*",
    "a.>",
    "*",
    ">",
    "",
    " ",
    "a b",
    "a_2eb",
    "ä",
    "a\r\nPUB x 0",
    "/",
    "x" * 5000,
    "x" * 5001,
]


async def test_a_broadcast_reaches_everybody_else_and_not_its_sender(ends: Ends) -> None:
    heard: dict[str, list[bytes]] = {"sender": [], "second": [], "third": []}
    buses = {name: ends.end() for name in heard}
    for name, bus in buses.items():
        bus.listen("news", heard[name].append)
    await opened(*buses.values())

    buses["sender"].broadcast("news", b"one")
    await until(lambda: heard["second"] and heard["third"])
    # An echo would have come before this.
    buses["second"].broadcast("news", b"two")
    await until(lambda: heard["sender"] and len(heard["third"]) == 2)

    assert heard == {"sender": [b"two"], "second": [b"one"], "third": [b"one", b"two"]}


async def test_a_wake_reaches_exactly_one_member_and_not_its_sender(ends: Ends) -> None:
    woken: Counter[int] = Counter()
    fences: list[int] = []
    sender, *members = [ends.end() for _ in range(4)]
    sender.join("workers", lambda _: woken.update([0]))
    for number, member in enumerate(members, start=1):
        member.join("workers", lambda _, number=number: woken.update([number]))
        member.listen("fence", lambda _, number=number: fences.append(number))
    await opened(sender, *members)

    for _ in range(30):
        sender.wake("workers", b"")
    await until(lambda: woken.total() >= 30, lambda: woken)
    # A wake that two have got would have come before this.
    sender.broadcast("fence", b"")
    await until(lambda: len(fences) == 3)

    assert woken.total() == 30
    assert woken[0] == 0
    assert len(woken) > 1, "one member got all of them"


async def test_names_reach_their_equals_only_whatever_they_hold(ends: Ends) -> None:
    """No tenant hears another's hints because of what either is called."""
    heard: dict[tuple[str, str], list[bytes]] = {}
    sender, listener = ends.end(), ends.end()
    for name in AWKWARD:
        listener.listen(name, heard.setdefault(("all", name), []).append)
        listener.join(name, heard.setdefault(("one", name), []).append)
    await opened(sender, listener)

    for name in AWKWARD:
        sender.broadcast(name, b"all" + name.encode())
        sender.wake(name, b"one" + name.encode())
    await until(lambda: all(heard.values()), lambda: heard)

    assert heard == {(how, name): [(how + name).encode()] for how, name in heard}


async def test_what_is_listened_to_while_connected_is_heard_too(ends: Ends) -> None:
    heard: list[bytes] = []
    sender, listener = ends.end(), ends.end()
    await opened(sender, listener)
    listener.listen("news", heard.append)

    def sent() -> bool:
        sender.broadcast("news", b"now")
        return bool(heard)

    await until(sent)


async def test_hints_after_the_end_are_dropped_and_counted(ends: Ends) -> None:
    bus = ends.end()
    states: list[bool] = []
    bus.watch(states.append)
    await opened(bus)
    assert bus.connected
    await bus.close()

    bus.broadcast("news", b"")
    bus.wake("workers", b"")

    assert not bus.connected
    assert bus.dropped == 2
    assert states == [True, False]


async def test_an_inspection_of_a_healthy_bus_finds_no_error(ends: Ends) -> None:
    bus = ends.end()
    await opened(bus)
    findings = await bus.inspect()
    assert findings
    assert not [finding for finding in findings if finding.level == "error"]
