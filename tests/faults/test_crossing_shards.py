"""A kill inside what crosses shards: between a script and the delivery of what it left for another shard (S1, E3, K2).

A dry run counts the round trips that write. Then a process dies before each of them, whatever it has left in an outbox
is delivered by another process, and everything has happened once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest

from holdfast import Holdfast, Run, UnknownRun
from holdfast.errors import UnknownHook
from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.stores.redis.net.topologies import slot_of
from tests.faults.cases import RedisCase
from tests.faults.client_actions import Fork, Resume
from tests.faults.conftest import NewRedisCase
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, in_turns
from tests.faults.workflows_across_shards import RUN, bridge

pytestmark = pytest.mark.faults

LEASE = "1s"
AT_ONCE = 8
NODES = 3
SLOTS = 16_384


def apart(case: RedisCase) -> str:
    """A name whose run, child and tokens live in different shards; those of the run, the child and one token on
    different nodes."""
    shards = case.shards
    for name in (
        "n" * length for length in itertools.count(1)
    ):  # their hashes are related as long as lengths are equal
        places = [
            shards.of_key("default", "cross.bridge", f"bridge:{name}"),
            shards.of_key("default", "cross.leg", f"leg:{name}"),
            shards.of_token("default", f"first-{name}"),
            shards.of_token("default", f"second-{name}"),
        ]
        nodes = {slot_of(shards.index(place)) * NODES // SLOTS for place in places[:3]}
        if len(set(places)) == len(places) and len(nodes) == NODES:
            return name
    raise AssertionError


async def given(hf: Holdfast, token: str, payload: str, dedupe: str | None = None) -> None:
    """Some run holds the token, sooner or later; the payload is offered until that run has it."""
    async with asyncio.timeout(45):
        while True:
            try:
                await hf.resume_hook(token, payload, dedupe=dedupe or payload)
            except UnknownHook:
                await asyncio.sleep(0.02)
            else:
                return


async def holder(hf: Holdfast, token: str) -> str | None:
    """The run that has the token, if it is only one that has ended."""
    known = await hf.runtime.store.hook_of_token("default", token)
    return None if known is None else known.run.id


async def received(run: Run[list[str]]) -> Counter[str]:
    """How often the run has taken what."""
    return Counter(str(entry) for entry in await run.journal() if type(entry).__name__ == "Received")


async def check(case: RedisCase, hf: Holdfast, name: str) -> None:
    """Everything has happened, once; and nothing is left on the way."""
    run = await hf.find(bridge, f"bridge:{name}")
    assert await run.result("45s") == ["one", name, "two", "free"]
    taken = await received(run)
    assert taken.total() == len(taken) == 2, taken
    case.ledger.check(lost={process.pid for process in case.processes if process.code == KILLED})
    await case.check_runs(hf)


async def crossed(case: RedisCase, trip: int) -> Process:
    """A worker executes the run and is killed there; another one takes over."""
    name = apart(case)
    doomed = await case.fork(pack=RUN, starts=[Start("bridge", [name])], lease=LEASE, trip=trip)
    async with case.client(RUN) as hf:
        giving = asyncio.gather(given(hf, f"first-{name}", "one"), given(hf, f"second-{name}", "two"))
        assert await doomed.ended() in {KILLED, 0}, doomed
        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        await hf.start(bridge(name))
        await check(case, hf, name)
        await giving
    await successor.leaves()
    return doomed


async def test_a_worker_killed_between_any_two_scripts_leaves_nothing_undone(new_redis_case: NewRedisCase) -> None:
    """Child to parent, token claimed, token freed. On a cluster, which takes longer, before every other one."""
    calm = new_redis_case("calm")
    dry = await crossed(calm, 0)
    count = (await dry.says("done"))["trips"]
    assert count > 12
    points = range(1, count + 1, 2 if isinstance(calm.servers, RedisCluster) else 1)
    reached: list[int] = []

    async def one(n: int) -> None:
        if (await crossed(new_redis_case(f"trip-{n}"), n)).code == KILLED:
            reached.append(n)

    await in_turns([lambda n=n: one(n) for n in points], at_once=AT_ONCE)
    assert len(reached) >= len(points) * 2 // 3, f"only {reached} of {points}"


async def test_a_signal_to_a_token_whose_sender_died_over_it_arrives_once(new_redis_case: NewRedisCase) -> None:
    """As soon as it is reserved it will arrive, though no caller asks again; one that does changes nothing."""
    trips: list[int] = []

    async def sent(case: RedisCase, n: int) -> None:
        name = apart(case)
        worker = await case.fork(pack=RUN, stay=True, lease=LEASE, starts=[Start("bridge", [name])], results=False)
        run_id = (await worker.says("started"))["run"]
        action = Resume(f"first-{name}", "one", "one")
        async with case.client(RUN) as hf:
            run = await hf.get(run_id)
            while await holder(hf, f"first-{name}") is None:
                await asyncio.sleep(0.01)
            doomed = await case.fork(pack=RUN, worker=False, actions=[action], trip=n)
            assert await doomed.ended() == (KILLED if n else 0), doomed
            if not n:
                trips.append(doomed.said("done")[0]["trips"])
            reserved = any(held.startswith("s\0") for held in await case.held(hf))
            if reserved:
                async with asyncio.timeout(45):
                    while not await received(run):
                        await asyncio.sleep(0.05)
            for _ in range(2):
                await given(hf, f"first-{name}", "one")
            await given(hf, f"second-{name}", "two")
            await check(case, hf, name)
        await worker.leaves()
        outcomes[n] = reserved

    outcomes: dict[int, bool] = {}
    await sent(new_redis_case("dry"), 0)
    [count] = trips
    assert count == 3  # the reservation, the delivery, the end of the reservation
    await in_turns([lambda n=n: sent(new_redis_case(f"trip-{n}"), n) for n in range(1, count + 1)], at_once=AT_ONCE)
    assert [outcomes[n] for n in range(1, count + 1)] == [False, True, True]


async def test_a_relay_that_dies_over_a_message_leaves_it_to_the_next(new_redis_case: NewRedisCase) -> None:
    """It is delivered, or its delivery is noted, and then the process is gone."""

    async def relayed(n: int) -> None:
        case = new_redis_case(f"trip-{n}")
        name = apart(case)
        first = await case.fork(pack=RUN, stay=True, starts=[Start("bridge", [name])], results=False)
        async with case.client(RUN) as hf:
            while await holder(hf, f"first-{name}") is None:
                await asyncio.sleep(0.01)
            await first.leaves()
            sender = await case.fork(pack=RUN, worker=False, actions=[Resume(f"first-{name}", "one", "one")], trip=2)
            assert await sender.ended() == KILLED
            assert await case.left(hf) == 1
            doomed = await case.fork(pack=RUN, stay=True, lease=LEASE, trip=n)
            assert await doomed.ended() == KILLED
            successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
            await given(hf, f"second-{name}", "two")
            await check(case, hf, name)
        await successor.leaves()

    await in_turns([lambda n=n: relayed(n) for n in (1, 2, 3)], at_once=AT_ONCE)


async def test_the_token_of_a_fork_whose_maker_died_is_claimed_all_the_same(new_redis_case: NewRedisCase) -> None:
    """It is claimed with the admission, and the admission is in another shard."""

    async def forked(case: RedisCase, n: int) -> Process:
        name = apart(case)
        worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
        async with case.client(RUN) as hf:
            source, _ = await hf.start(bridge(name))
            await asyncio.gather(given(hf, f"first-{name}", "one"), given(hf, f"second-{name}", "two"))
            await check(case, hf, name)
            at = "hook:second#1"  # it has opened one again, which it does not wait for
            doomed = await case.fork(pack=RUN, worker=False, actions=[Fork(source.id, at)], trip=n)
            assert await doomed.ended() == (KILLED if n else 0), doomed
            fork = await hf.find(bridge, f"bridge:{name}")
            if fork.id == source.id:
                fork = await source.fork(at)
            async with asyncio.timeout(45):
                while await holder(hf, f"first-{name}") != fork.id:
                    await asyncio.sleep(0.05)
            await given(hf, f"second-{name}", "two", "two for the fork")
            await check(case, hf, name)
            assert len([run async for run in hf.runs(bridge)]) == 2
        await worker.leaves()
        return doomed

    dry = await forked(new_redis_case("dry"), 0)
    count = dry.said("done")[0]["trips"]
    assert count >= 3  # the admission, the claim, the note at the run
    await in_turns([lambda n=n: forked(new_redis_case(f"trip-{n}"), n) for n in range(1, count + 1)], at_once=AT_ONCE)


async def test_a_client_killed_inside_a_start_has_started_a_run_with_its_key_or_nothing(
    new_redis_case: NewRedisCase,
) -> None:
    """K2."""
    for n in (1, 2):
        case = new_redis_case(f"trip-{n}")
        doomed = await case.fork(pack=RUN, worker=False, starts=[Start("leg", ["a"])], results=False, trip=n)
        code = await doomed.ended()
        assert code == (KILLED if n == 1 else 0), doomed  # there is one: the admission
        worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
        async with case.client(RUN) as hf:
            found = [run async for run in hf.runs()]
            assert len([name for name in await case.held(hf) if name.startswith("k\0")]) == len(found) == n - 1
            if found:
                assert await found[0].result("45s") == "a"
                assert (await hf.find("cross.leg", "leg:a")).id == found[0].id
            else:
                with pytest.raises(UnknownRun):
                    await hf.find("cross.leg", "leg:a")
        await worker.leaves()
