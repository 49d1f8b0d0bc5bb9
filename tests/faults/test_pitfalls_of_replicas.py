"""How comparable systems really broke with replicas on Redis and a bus: those that no other test is about.

The list of all of them, and of what proves each, is in `test_pitfalls`.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from holdfast import Holdfast, Pack, RunCancelled
from holdfast.engine.pace import Pace
from holdfast.errors import StoreUnavailable
from holdfast.lab.cluster.nats import NatsServer
from holdfast.lab.cluster.redis import RedisServer
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.net.client import LuaSource, ScriptCall
from holdfast.stores.redis.rows import pack as packed
from tests.faults.cases import Case, RedisCase
from tests.faults.conftest import NewRedisCase
from tests.faults.holdfast_process import Start
from tests.faults.processes import until
from tests.faults.workflows_long_lived import RUN as POSTS, post
from tests.faults.workflows_of_pitfalls import RUN, guard, naps, pile
from tests.paces import PUSHED_ONLY

pytestmark = pytest.mark.faults

LEASE = "1s"
NO_TEXT = b"\x91\xa1\xff"  # a list of one text that is no UTF-8
LEAVE = LuaSource("return redis.call('XADD', KEYS[1], '1-1', 'm', ARGV[1])")


@pytest.fixture
def single(case_on: NewRedisCase, redis_server: RedisServer) -> RedisCase:
    return case_on(redis_server)


async def held(hf: Holdfast, token: str) -> None:
    """Wait until a run has the token."""
    async with asyncio.timeout(45):
        while await hf.runtime.store.hook_of_token("default", token) is None:
            await asyncio.sleep(0.01)


async def test_one_message_id_counts_for_each_receiver_by_itself(single: RedisCase) -> None:
    """Pitfall 3: the key of the dedupe lacked the consumer: two consumers would have eaten each other's messages."""
    worker = await single.fork(pack=RUN, stay=True)
    async with single.client(RUN) as hf:
        runs = [(await hf.start(guard(token, 1))).run for token in ("left", "right")]
        for token in ("left", "right"):
            await held(hf, token)
            for _ in range(2):
                await hf.resume_hook(token, token, dedupe="the same")
        assert [await run.result("45s") for run in runs] == [["left"], ["right"]]
    await worker.leaves()


async def test_who_has_no_room_passes_the_word_on(single: RedisCase, nats_server: NatsServer) -> None:
    """Pitfall 9: a full pool was acknowledged and retried only by a sweep minutes later. Here there is no sweep."""
    pool = Pack("pool")
    gate, begun = asyncio.Event(), asyncio.Event()

    @pool.effect
    async def act(number: int) -> int:
        if number == 0:
            begun.set()
            await gate.wait()
        return number

    @pool.workflow
    async def work(number: int) -> int:
        return await act(number)

    options: dict[str, Any] = {"packs": [pool], "bus": nats_server.url, "_pace": PUSHED_ONLY}
    async with (
        Holdfast(single.url, concurrency=1, **options) as full,
        Holdfast(single.url, **options, worker=False) as hf,
    ):
        first, _ = await full.start(work(0))
        await begun.wait()
        async with Holdfast(single.url, **options):  # each wake-up goes to one of the two
            for number in range(1, 9):
                run, _ = await hf.start(work(number))
                assert await run.result("45s") == number
        gate.set()
        assert await first.result("45s") == 0


async def test_what_one_run_did_is_undone_for_that_run_alone(single: RedisCase) -> None:
    """Pitfall 13: compensation stacks keyed by the definition, not the run: run A's failure undid run B."""
    worker = await single.fork(pack=POSTS, stay=True)
    async with single.client(POSTS) as hf:
        runs = [(await hf.start(post(name, 1))).run for name in ("a", "b")]
        await until(lambda: len(single.ledger.calls("serve 1")) == 2, "both", worker)
        receipt = await runs[0].cancel()
        assert receipt.outcome == "compensated"
        with pytest.raises(RunCancelled):
            await runs[0].result("45s")
        await runs[1].signal("relief", "thanks")
        assert await runs[1].result("45s") == "thanks"
    await worker.leaves()
    assert [line["order"] for line in single.ledger.calls("unserve 1")] == ["a"]


async def test_each_of_several_waits_of_one_run_ends_in_its_own_time_though_its_worker_dies(any_case: Case) -> None:
    """Pitfall 15: one delay timer per run: parallel delays overwrote each other; popped before resumed."""
    case = any_case
    first = await case.fork(pack=RUN, stay=True, lease=LEASE, starts=[Start("naps", ["a", 0.4])], results=False)
    await until(lambda: case.ledger.calls("wake 1"), "the shortest", first)
    first.signal(signal.SIGKILL)
    await first.ended()
    second = await case.fork(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        run = await hf.find(naps, "naps:a")
        assert await run.result("45s") == [3, 1, 2]
        elapsed = [entry.step for entry in await run.journal() if type(entry).__name__ == "Elapsed"]
    await second.leaves()
    assert len(elapsed) == len(set(elapsed)) == 3
    case.ledger.check(lost={first.pid})
    assert list(dict.fromkeys(line["step"] for line in case.ledger.calls())) == ["wake 1", "wake 2", "wake 3"]


async def test_what_lies_behind_hundreds_of_others_is_delivered_too(
    single: RedisCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall 16: sweeps that always read the first 200 rows: old stuck work was never seen."""
    count = Pace().relay_max + 50
    first = await single.fork(pack=RUN, stay=True, starts=[Start("pile", ["a", count])], results=False)
    async with single.client(RUN) as hf:
        await held(hf, "heap-a")
        await first.leaves()
        assert isinstance(hf.runtime.store, RedisStore)
        with monkeypatch.context() as patch:
            patch.setattr(hf.runtime.store._outbox, "signal", _dies)
            for number in range(count):
                with suppress(StoreUnavailable):
                    await hf.resume_hook("heap-a", number, dedupe=str(number))
        assert await single.left(hf) == count
        second = await single.fork(pack=RUN, stay=True, lease=LEASE)
        run = await hf.find(pile, "pile:a")
        assert Counter(await run.result("45s")) == Counter(range(count))
        await single.check_runs(hf)
        await second.leaves()


async def _dies(*_: object) -> None:
    """As if the process that was to deliver it had died over it."""
    raise StoreUnavailable("it died")


async def test_a_message_that_nobody_understands_holds_up_no_other(
    single: RedisCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfalls 4 and 16: a newer replica may leave what an older one does not know. It stays, and the rest goes on."""
    worker = await single.fork(pack=RUN, stay=True, lease=LEASE, starts=[Start("pile", ["a", 1])], results=False)
    async with single.client(RUN) as hf:
        await held(hf, "heap-a")
        assert isinstance(hf.runtime.store, RedisStore)
        outbox, shards = hf.runtime.store._outbox, single.shards
        kinds = itertools.cycle([packed(("tomorrow",)), NO_TEXT])
        unknown = [ScriptCall(LEAVE, (shards.out(shard),), (next(kinds),)) for shard in shards.all]
        await hf.runtime.store._asks.ask(unknown, writes=True)
        with monkeypatch.context() as patch:
            patch.setattr(outbox, "signal", _dies)
            with pytest.raises(StoreUnavailable):
                await hf.resume_hook("heap-a", 1)
        assert await (await hf.find(pile, "pile:a")).result("45s") == [1]
        assert await single.left(hf) == shards.count
    await worker.leaves()
