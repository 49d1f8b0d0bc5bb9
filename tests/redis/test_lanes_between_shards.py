"""Lanes whose runs live in other shards: whichever process dies between any two scripts, order and width are kept."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from holdfast.errors import StoreUnavailable
from holdfast.kernel import transitions
from holdfast.kernel.changes import Answer, Change, Committed, Refused
from holdfast.kernel.lanes import Entering
from holdfast.kernel.runs import Run, Status
from holdfast.lab.cluster.redis import RedisServer
from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.ports.store import Claim
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.declarations import Script
from holdfast.stores.redis.net.client import LuaSource, Reply, ScriptCall, ScriptFailed
from holdfast.stores.redis.net.topologies import slot_of
from holdfast.stores.redis.pace import RedisPace
from tests.builders import a_value
from tests.contract.helpers import WORKFLOW, admission, blockage, completion, retry, stop
from tests.paces import redis_store
from tests.redis.calls import move

LANE, OWNER = "account:7", "w-1"
RUNS, WIDTH = 5, 2
SOON = RedisPace(outbox_age_ms=-60_000, overdue_ms=-60_000)  # `relay` sees what has just been left, too
Opens = Callable[[], Awaitable[RedisStore]]
T = TypeVar("T")
_numbers = itertools.count()


@pytest.fixture(params=["redis_server", "redis_cluster"])
def url(request: pytest.FixtureRequest) -> str:
    server: RedisServer | RedisCluster = request.getfixturevalue(request.param)
    return f"{server.url}?name=lanes-{os.getpid()}-{next(_numbers)}&shards=4"


@pytest.fixture
async def opens(url: str) -> AsyncIterator[Opens]:
    """Opens stores on the same data, as further processes would."""
    async with AsyncExitStack() as stack:

        async def one() -> RedisStore:
            store = redis_store(url, SOON)
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield one


class Died(StoreUnavailable):
    """The process has died here."""


def die_before(store: RedisStore, n: int) -> Callable[[], int]:
    """Let the process die before the n-th round trip that writes. Returns how many there were."""
    made, count = store._client.run, 0

    async def run(calls: Sequence[ScriptCall], *, writes: bool) -> list[Reply | ScriptFailed]:
        nonlocal count
        count += writes
        if n and count >= n and writes:
            raise Died("here")
        return await made(calls, writes=writes)

    store._client.run = run
    return lambda: count


def named(store: RedisStore, number: int, *, apart: bool = True) -> tuple[str, str | None]:
    """The id and the key of a run: in a shard by its key, or in that of its lane."""
    key = f"key:{number}" if apart else None
    name = f"run-{number}"
    return store.id_for(name, namespace="default", workflow=WORKFLOW, key=key, lane=LANE), key


def entering(store: RedisStore, number: int, *, apart: bool = True, **limits: Any) -> Change:
    run_id, key = named(store, number, apart=apart)
    return admission(store, run_id, key=key, enters=Entering(LANE, **{"width": 1, **limits}))


async def relayed(store: RedisStore) -> None:
    while await store.relay(100):
        pass


async def run_of(store: RedisStore, run_id: str) -> Run:
    [run] = await store.runs([run_id])
    return run


async def counts(store: RedisStore) -> tuple[int, int]:
    state = await store.lane("default", LANE)
    return (0, 0) if state is None else (state.active, state.parked)


class Life:
    """What clients and a worker do to five runs. When the process dies, another one relays, and does it again."""

    def __init__(self, doomed: RedisStore, survivor: RedisStore) -> None:
        self._stores = [doomed, survivor]
        self.survivor = survivor

    async def do(self, verb: Callable[[RedisStore], Awaitable[T]]) -> T:
        try:
            return await verb(self._stores[0])
        except Died:
            self._stores = [self.survivor]
            await relayed(self.survivor)
            return await verb(self.survivor)

    async def commit(self, change: Change) -> Answer:
        [answer] = await self.do(lambda store: store.commit([change]))
        return answer

    async def take(self) -> list[str]:
        """Runs that the worker holds, after it has claimed what it may."""
        await self.do(lambda store: store.claim(Claim("default", OWNER, "nonce", (WORKFLOW,), 10)))
        return await self.survivor.held(OWNER)

    async def go(self) -> list[str]:
        """The order in which the runs were taken; never more than two at the same time."""
        order: list[str] = []
        for number in range(RUNS):
            change = entering(self.survivor, number, apart=number != 2, width=WIDTH, parked_max=RUNS)
            assert isinstance(await self.commit(change), Committed)
        while len(order) < RUNS:
            held = await self.take()
            assert 1 <= len(held) <= WIDTH
            order += sorted(set(held) - set(order))
            run = await run_of(self.survivor, min(held))
            assert isinstance(await self.commit(completion(self.survivor, run)), Committed)
        for run_id in await self.take():
            assert isinstance(
                await self.commit(completion(self.survivor, await run_of(self.survivor, run_id))), Committed
            )
        return order


@pytest.fixture
async def worlds(url: str) -> AsyncIterator[Callable[[], Awaitable[list[RedisStore]]]]:
    """Two processes on data of their own."""
    async with AsyncExitStack() as stack:

        async def two() -> list[RedisStore]:
            own = url.replace("name=lanes", f"name=w{next(_numbers)}")
            stores = [redis_store(own, SOON) for _ in range(2)]
            for store in stores:
                await store.open()
                stack.push_async_callback(store.close)
            return stores

        yield two


async def test_a_death_before_any_write_of_a_life_leaves_every_run_its_turn(
    worlds: Callable[[], Awaitable[list[RedisStore]]],
) -> None:
    """The admitting client, the worker of the active run, the process that lets the next one go: each dies anywhere."""
    doomed, survivor = await worlds()
    count = die_before(doomed, 0)
    expected = [named(survivor, number, apart=number != 2)[0] for number in range(RUNS)]
    assert await Life(doomed, survivor).go() == expected
    assert count() > 25

    async def one(n: int) -> None:
        doomed, survivor = await worlds()
        die_before(doomed, n)
        assert await Life(doomed, survivor).go() == expected, n
        await relayed(survivor)
        assert await counts(survivor) == (0, 0), n

    await asyncio.gather(*(one(n) for n in range(1, count() + 1)))


async def test_what_is_delivered_late_and_twice_gives_no_place_to_a_run_that_has_left(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opens()
    seen, deliver = list[Any](), store._outbox.deliver

    async def recorded(left: Sequence[Any]) -> Any:
        seen.extend(left)
        return await deliver(left)

    monkeypatch.setattr(store._outbox, "deliver", recorded)
    life = Life(store, store)
    await life.go()
    blocked = await held(store, 7)
    await store.commit([blockage(store, blocked)])
    await store.commit([await retry(store, await run_of(store, blocked.id))])
    [taken] = await life.take()
    await store.commit([completion(store, await run_of(store, taken))])
    assert {each.words[0] for each in seen} == {"enter", "leave", "go"}
    for each in [*seen, *reversed(seen)]:
        await deliver([each])
    assert await counts(store) == (0, 0)
    await held(store, 8)
    assert await counts(store) == (1, 0)


async def held(store: RedisStore, number: int, *, apart: bool = True, **limits: Any) -> Run:
    """A run that is in the lane, and that a worker holds."""
    [answer] = await store.commit([entering(store, number, apart=apart, **limits)])
    assert isinstance(answer, Committed)
    assert answer.run is not None
    [run] = (await store.claim(Claim("default", OWNER, "nonce", (WORKFLOW,), 10))).runs
    assert run.id == answer.run.id
    return run


@pytest.mark.parametrize("limits", [{"if_free": True}, {"parked_max": 1}, {"parked_max": 2, "width": 3}])
async def test_limits_are_exact_however_many_come_at_once(opens: Opens, limits: dict[str, Any]) -> None:
    stores = [await opens() for _ in range(3)]
    changes = [entering(stores[0], number, apart=number % 4 != 0, **limits) for number in range(24)]
    answers = await asyncio.gather(*(stores[n % 3].commit([change]) for n, change in enumerate(changes)))
    came = sum(isinstance(answer, Committed) for [answer] in answers)
    refused = [answer for [answer] in answers if isinstance(answer, Refused)]
    assert {answer.no_room for answer in refused} == {"busy" if "if_free" in limits else "full"}
    # A place that is reserved may yet be given back; it counts as taken until then.
    assert 1 <= came <= limits.get("width", 1) + limits.get("parked_max", 0)
    assert sum(await counts(stores[0])) == came
    assert len(await stores[0].runs([change.run.id for change in changes if change.run])) == came


async def test_a_place_that_was_reserved_by_a_client_which_died_is_taken_back(opens: Opens) -> None:
    doomed, other = await opens(), await opens()
    die_before(doomed, 2)
    with pytest.raises(Died):
        await doomed.commit([entering(doomed, 1, if_free=True)])
    busy = entering(other, 2, if_free=True)
    [refused] = await other.commit([busy])
    assert isinstance(refused, Refused)
    assert refused.no_room == "busy"
    assert await other.relay(100) == 1
    [answer] = await other.commit([busy])
    assert isinstance(answer, Committed)


async def test_an_admission_that_comes_after_its_place_was_taken_back_is_offered_again(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opens()
    reserve, times = store._lanes.reserve, itertools.count()

    async def too_short(changes: Sequence[Change]) -> Any:
        found = await reserve(changes)
        return found if next(times) else {key: replace(each, until_ms="1") for key, each in found.items()}

    monkeypatch.setattr(store._lanes, "reserve", too_short)
    run = await held(store, 1, parked_max=1)
    assert next(times) == 2
    assert (run.status, await counts(store)) == (Status.RUNNING, (1, 0))


async def test_a_failover_that_takes_back_what_a_lane_has_heard_is_put_right_by_the_next_relay(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane's shard has lost that one has left and the next one is active; the other shards know of both."""
    store, other = await opens(), await opens()
    first = await held(store, 1)
    await store.commit([entering(store, 2)])
    shard = store._shards.of_lane("default", LANE)
    before = await _dumped(other, shard)
    monkeypatch.setattr(
        store._outbox, "take_tidying_calls", list
    )  # no replica has confirmed it, so it was not tidied up
    await store.commit([completion(store, first)])
    assert await counts(store) == (1, 0)
    await _restored(other, shard, before)
    assert await counts(other) == (1, 1)
    await other.relay(100)
    assert await counts(other) == (1, 0)
    [second] = (await other.claim(Claim("default", OWNER, "nonce", (WORKFLOW,), 10))).runs
    await other.commit([completion(other, second)])
    assert await counts(other) == (0, 0)


async def _dumped(store: RedisStore, shard: int) -> list[tuple[bytes, bytes | None]]:
    dump = LuaSource("return redis.call('DUMP', KEYS[1])")
    keys = [store._shards.index(shard), store._shards.names(shard), store._shards.out(shard)]
    replies = await store._client.run([ScriptCall(dump, (key,), ()) for key in keys], writes=False)
    return [(key, reply if isinstance(reply, bytes) else None) for key, reply in zip(keys, replies, strict=True)]


async def _restored(store: RedisStore, shard: int, dumped: list[tuple[bytes, bytes | None]]) -> None:
    restore = LuaSource(
        "redis.call('DEL', KEYS[1])\nreturn ARGV[1] ~= '' and redis.call('RESTORE', KEYS[1], 0, ARGV[1])"
    )
    await store._client.run([ScriptCall(restore, (key,), (value or b"",)) for key, value in dumped], writes=True)


@pytest.mark.parametrize("apart", [True, False])
async def test_a_run_that_an_earlier_version_has_ended_leaves_with_the_next_relay(opens: Opens, *, apart: bool) -> None:
    store = await opens()
    run = await held(store, 1, apart=apart)
    await store.commit([entering(store, 2), entering(store, 3, apart=False)])
    end = LuaSource("return redis.call('HSET', KEYS[1], 's', 'completed', 'o', '', 'f', '1')")
    await store._client.run([ScriptCall(end, (store._shards.part(b"run", run.id),), ())], writes=True)
    assert await counts(store) == (1, 2)
    assert await store.relay(100) == 1
    assert await counts(store) == (1, 1)


async def test_a_run_of_another_shard_that_is_stopped_while_it_is_parked_leaves(opens: Opens) -> None:
    store = await opens()
    first = await held(store, 1)
    for number in (2, 3):
        await store.commit([entering(store, number)])
    parked = await run_of(store, named(store, 2)[0])
    await store.commit([await stop(store, parked)])
    assert await counts(store) == (1, 1)
    await store.commit([completion(store, first)])
    [last] = (await store.claim(Claim("default", OWNER, "nonce", (WORKFLOW,), 10))).runs
    assert last.id == named(store, 3)[0]


async def test_a_run_that_steps_aside_in_another_shard_enters_again_at_the_end(opens: Opens) -> None:
    store = await opens()
    first = await held(store, 1)
    for number in (2, 3):
        await store.commit([entering(store, number)])
    stuck = transitions.decide(first, transitions.Stuck("x", "y", steps_aside=True), now_ms=store.now_ms())
    await store.commit([stuck])
    order: list[str] = []
    await store.commit([await retry(store, await run_of(store, first.id))])
    while found := (await store.claim(Claim("default", OWNER, "nonce", (WORKFLOW,), 10))).runs:
        order += [run.id for run in found]
        await store.commit([completion(store, found[0])])
    assert order == [named(store, number)[0] for number in (2, 3, 1)]


async def test_the_word_of_an_earlier_turn_wakes_no_run_that_is_parked_again(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opens()
    seen, deliver = list[Any](), store._outbox.deliver

    async def recorded(left: Sequence[Any]) -> Any:
        seen.extend(left)
        return await deliver(left)

    monkeypatch.setattr(store._outbox, "deliver", recorded)
    first = await held(store, 1)
    await store.commit([entering(store, 2)])
    stuck = transitions.decide(first, transitions.Stuck("x", "y", steps_aside=True), now_ms=store.now_ms())
    await store.commit([stuck])
    await store.commit([await retry(store, await run_of(store, first.id))])
    for each in seen:
        await deliver([each])
    assert [run.id for run in (await store.claim(Claim("default", OWNER, "n", (WORKFLOW,), 10))).runs] == [
        named(store, 2)[0]
    ]


async def test_a_run_in_the_shard_of_its_lane_pays_no_message(opens: Opens) -> None:
    store = await opens()
    scripts, made = list[list[str]](), store._client.run

    async def seen(calls: Sequence[ScriptCall], *, writes: bool) -> list[Reply | ScriptFailed]:
        scripts.append([call.script.name for call in calls if isinstance(call.script, Script)])
        return await made(calls, writes=writes)

    first = await held(store, 1, apart=False, parked_max=9)
    store._client.run = seen
    await store.commit([entering(store, 2, apart=False, parked_max=9)])
    [answer] = await store.commit([completion(store, first)])
    assert isinstance(answer, Committed)
    assert answer.told == (named(store, 2, apart=False)[0],)
    assert scripts == [["admit"], ["settle"]]


async def test_an_end_while_the_slot_of_the_lane_moves_lets_the_next_run_go(redis_cluster: RedisCluster) -> None:
    """Its row is on the other node already, and its key could not be declared."""
    cluster = redis_cluster
    store = redis_store(f"{cluster.url}?name=moves-{os.getpid()}-{next(_numbers)}&shards=4", SOON)
    await store.open()
    try:
        first = await held(store, 1, apart=False)
        await store.commit([entering(store, 2, apart=False)])
        second = named(store, 2, apart=False)[0]
        row = store._shards.part(b"run", second)
        slot = slot_of(row)
        source = cluster.primary_of(slot)
        target = next(node for node in cluster.primaries() if node is not source)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", str(source.ask("CLUSTER", "MYID")))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", str(target.ask("CLUSTER", "MYID")))
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", row.decode())
        ending = asyncio.create_task(store.commit([completion(store, first)]))
        await asyncio.to_thread(move, cluster, slot)
        [answer] = await ending
        assert isinstance(answer, Committed)
        [run] = (await store.claim(Claim("default", OWNER, "nonce", (WORKFLOW,), 10))).runs
        assert run.id == second
    finally:
        await store.close()


async def test_what_is_known_of_runs_that_have_left_goes_with_them(opens: Opens) -> None:
    store = await opens()
    change = entering(store, 1)
    assert change.run is not None
    for number in (1, 2):
        short = replace(entering(store, number, apart=number == 1).run, retention_ms=0)
        await store.commit([replace(entering(store, number, apart=number == 1), run=short)])
    for _ in range(2):
        [run] = (await store.claim(Claim("default", OWNER, "nonce", (WORKFLOW,), 10))).runs
        ended = transitions.decide(run, transitions.RunReturned(a_value("done")), now_ms=store.now_ms() - 1_000)
        await store.commit([ended])
    assert await store.prune(10) == 2
    hkeys = LuaSource("return {redis.call('HKEYS', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1)}")
    left = list[str]()
    for shard in store._shards.all:
        keys = (store._shards.names(shard), store._shards.index(shard))
        [[names, members]] = await store._client.run([ScriptCall(hkeys, keys, ())], writes=False)
        left += [name.decode()[:2] for name in (*names, *members)]
    assert sorted(left) == ["b\0", "l\0", "l\0"]  # the lane itself, which is remembered for an hour
